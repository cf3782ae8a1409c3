"""Accumulators of warpgroup products as one array in CUDA text, where TVM names each register.

    product(acc_ptr[0], acc_ptr[1], ..., acc_ptr[127], a0, ...)  -->  product(acc_ptr, a0, ...)

The machine code is the same, byte for byte. But TVM's device functions take each register by a reference of its own, and
inlining hundreds of those is most of what NVVM has to do for a kernel: with products of 256 tokens in two main loops, 0.6
instead of 1.5 seconds (NVRTC 13.0).
"""

from __future__ import annotations

import re

#: the device function of a product, with a reference for each accumulator
_PRODUCT = re.compile(
    r"void (?P<name>tvm_builtin_ptx_wgmma_\w+)"
    r"\((?P<references>(?:\w+& __d\d+, )+)(?P<others>.*)\) \{\n(?P<body>.*)\n\}"
)
_REFERENCE = re.compile(r"\b__d(\d+)\b")


def pass_arrays(source: str) -> str:
    """CUDA text whose warpgroup products take an array of accumulators.

    Its extent is part of the parameter's type: calls with registers that are not all of one array do not compile.
    """
    for product in _PRODUCT.finditer(source):
        name, references, others, body = product.groups()
        dtype, count = references.partition("&")[0], references.count("&")
        elements = _REFERENCE.sub(r"__d[\1]", body)
        declared = f"void {name}({dtype} (&__d)[{count}], {others}) {{\n{elements}\n}}"
        source = source.replace(product[0], declared)
        registers = "".join(rf"\1\[{register}\], " for register in range(1, count))
        source = re.sub(rf"{name}\((\w+)\[0\], {registers}", rf"{name}(\1, ", source)
    return source
