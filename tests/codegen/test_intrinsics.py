"""The intrinsics table, and that it is the only place with device text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import ladder
from ladder.codegen import intrinsics
from ladder.codegen.toolchain import compile_cuda
from ladder.errors import LoweringError

PACKAGE = Path(ladder.__file__).parent

#: files that name device text without holding any: headers for NVRTC, a docstring
HEADERS = {"codegen/nvrtc_headers.py", "emulator/intrinsics.py"}

KERNEL_TEXT = re.compile(r"__global__|__device__|__shared__|\basm\s*\(|\basm volatile")


def test_the_table_compiles_for_every_architecture_that_has_its_instructions() -> None:
    names = [*intrinsics.INTRINSICS, "lop3_96"]
    body = "".join(intrinsics.find(name).source for name in names)
    assert compile_cuda(body + 'extern "C" __global__ void k() {}', "sm_90a").code
    older = [name for name in names if not name.startswith("cvt_f16x2_e")]
    body = "".join(intrinsics.find(name).source for name in older)
    assert compile_cuda(body + 'extern "C" __global__ void k() {}', "sm_80").code


def test_only_an_entry_without_instruction_is_volatile() -> None:
    for name in (*intrinsics.INTRINSICS, "lop3_e4"):
        entry = intrinsics.find(name)
        assert ("volatile" in entry.source) == (not entry.asm)


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(LoweringError, match="no intrinsic 'mul24'") as caught:
        intrinsics.find("mul24")
    assert "prmt" in caught.value.hint


def test_the_package_holds_no_kernel_text_outside_the_table() -> None:
    found = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if KERNEL_TEXT.search(path.read_text(encoding="utf-8"))
    }
    assert found - HEADERS <= {"codegen/intrinsics.py"}
