"""Machine code of a plan's kernel: what is compiled must run its products as the plan has them.

A warpgroup's products overlap with decoding only where ptxas leaves them asynchronous. Where it cannot, it serialises all of
them, says so in a note of its log (C7510 and its neighbours) and succeeds: the results are right, the kernel is several times
slower. For a kernel that is an error of the build.
"""

from __future__ import annotations

import re

from ladder.codegen.toolchain import Cubin, Toolchain, compile_cuda
from ladder.errors import ToolchainError

_SERIALISED = re.compile(
    r"\((C75\d\d)\)[^\n]*wgmma\.mma_async instructions are serialized due to ([^\n]+?)"
    r"(?: in (?:the )?function '([^'\n]*)')?[ \t]*$",
    re.MULTILINE,
)

HINT = (
    "fewer registers a thread (less token_tiles or warps_n), or another family, makes them asynchronous;"
    ' compute="mma" does without; a plan that the scheduler chose should never come to this: please report it'
)


def serialised(log: str) -> tuple[str, ...]:
    """Return ptxas' reasons for serialising warpgroup products, each with its number; none where they overlap."""
    found = [f"{reason} ({number})" for number, reason, _ in _SERIALISED.findall(log)]
    return tuple(dict.fromkeys(found))


def compile_kernel(source: str, arch: str, *, toolchain: Toolchain | None = None) -> Cubin:
    """Compile the text of a plan's kernel; arguments as :func:`~ladder.codegen.toolchain.compile_cuda` takes them.

    Raises:
        ToolchainError: there is no compiler, it refused the text, or it serialised the kernel's warpgroup products.
    """
    cubin = compile_cuda(source, arch, toolchain=toolchain)
    if reasons := serialised(cubin.log):
        raise ToolchainError(
            f"{cubin.compiler} serialised the wgmma products of the kernel: {'; '.join(reasons)}",
            at=f"{arch}, {cubin.registers} registers a thread",
            hint=HINT,
        )
    return cubin
