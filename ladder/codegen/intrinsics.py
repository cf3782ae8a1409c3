"""The intrinsics table: the only device text of the package.

TensorIR spells loads, integer operations and ``T.ptx`` instructions itself. ``T.ptx`` is ``asm volatile``, which keeps the
compiler from moving it; operations of hot decode code stand here instead as non-volatile device functions, so that
they may be scheduled between tensor-core instructions. Each entry has the text and the pipe that issues it.

The emulator reads the PTX in the text: what a register operation means is in :mod:`ladder.codegen.semantics` (of several
instructions together under the entry's name), by :mod:`ladder.emulator.alu`, what an operation on memory means in :mod:`ladder.emulator.translate_special`
(asynchronous ones: ``translate_async``).
"""

from __future__ import annotations

from dataclasses import dataclass

from ladder.errors import LoweringError


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """One device function.

    Attributes:
        name: symbol in the CUDA text, after the prefix ``ladder_``.
        operands: PTX constraint letter and C type of each operand.
        result: the same of the result.
        asm: PTX with ``%0`` as the result and ``%1 ..`` as operands.
        pipe: issuing pipe: "alu", "fma", "lsu" or "xu".
        returns: dtype of the result in TensorIR.
    """

    name: str
    operands: tuple[str, ...]
    result: str
    asm: str
    pipe: str
    returns: str = "uint32"

    @property
    def symbol(self) -> str:
        """Name in the CUDA text."""
        return f"ladder_{self.name}"

    @property
    def source(self) -> str:
        """The CUDA text of the function; without an instruction it only orders its operand after what came before."""
        if not self.asm:
            kind = self.result
            return (
                f"static __device__ __forceinline__ {_C_TYPES[kind]} {self.symbol}({_C_TYPES[kind]} a) {{\n"
                f'  asm volatile("" : "+{kind}"(a) :: "memory");\n'
                f"  return a;\n"
                f"}}\n"
            )
        letters = "abcdef"
        arguments = ", ".join(
            f"{_C_TYPES[kind]} {letters[i]}" for i, kind in enumerate(self.operands)
        )
        inputs = ", ".join(f'"{kind}"({letters[i]})' for i, kind in enumerate(self.operands))
        return (
            f"static __device__ __forceinline__ {_C_TYPES[self.result]} {self.symbol}({arguments}) {{\n"
            f"  {_C_TYPES[self.result]} d;\n"
            f'  asm("{self.asm}" : "={self.result}"(d) : {inputs});\n'
            f"  return d;\n"
            f"}}\n"
        )


_C_TYPES = {"r": "unsigned int", "h": "unsigned short", "f": "float"}


def _table(*entries: Intrinsic) -> dict[str, Intrinsic]:
    table = {entry.name: entry for entry in entries}
    if len(table) != len(entries):
        raise LoweringError("two intrinsics share a name", at="ladder.codegen.intrinsics")
    return table


_HALVES = "{ .reg .b16 low, high; mov.b32 {low, high}, %1; "

#: PTX ISA: lop3, shf, prmt, fma, abs and max (half), cvt, ex2, rcp
INTRINSICS: dict[str, Intrinsic] = _table(
    Intrinsic("shf_l", ("r", "r"), "r", "shf.l.wrap.b32 %0, %1, %1, %2;", "alu"),
    Intrinsic("prmt", ("r", "r", "r"), "r", "prmt.b32 %0, %1, %2, %3;", "alu"),
    # ptxas makes no instruction of these: a product of two lanes reads one half of a register for both
    Intrinsic("low_twice", ("r",), "r", _HALVES + "mov.b32 %0, {low, low}; }", "alu"),
    Intrinsic("high_twice", ("r",), "r", _HALVES + "mov.b32 %0, {high, high}; }", "alu"),
    Intrinsic("max_s16x2", ("r", "r"), "r", "max.s16x2 %0, %1, %2;", "alu"),
    Intrinsic("fma_f16x2", ("r", "r", "r"), "r", "fma.rn.f16x2 %0, %1, %2, %3;", "fma"),
    Intrinsic("fma_bf16x2", ("r", "r", "r"), "r", "fma.rn.bf16x2 %0, %1, %2, %3;", "fma"),
    Intrinsic("fma_f32", ("f", "f", "f"), "f", "fma.rn.f32 %0, %1, %2, %3;", "fma", "float32"),
    Intrinsic("abs_f16x2", ("r",), "r", "abs.f16x2 %0, %1;", "alu"),
    Intrinsic("abs_bf16x2", ("r",), "r", "abs.bf16x2 %0, %1;", "alu"),
    Intrinsic("max_nan_f16x2", ("r", "r"), "r", "max.NaN.f16x2 %0, %1, %2;", "alu"),
    Intrinsic("max_nan_bf16x2", ("r", "r"), "r", "max.NaN.bf16x2 %0, %1, %2;", "alu"),
    Intrinsic("cvt_f16x2_e4m3x2", ("h",), "r", "cvt.rn.f16x2.e4m3x2 %0, %1;", "alu"),
    Intrinsic("cvt_f16x2_e5m2x2", ("h",), "r", "cvt.rn.f16x2.e5m2x2 %0, %1;", "alu"),
    Intrinsic("cvt_f32_f16", ("h",), "f", "cvt.f32.f16 %0, %1;", "alu", "float32"),
    Intrinsic("cvt_f16_f32", ("f",), "h", "cvt.rn.f16.f32 %0, %1;", "alu", "uint16"),
    Intrinsic("hold_f32", ("f",), "f", "", "alu", "float32"),
    Intrinsic("hold_u32", ("r",), "r", "", "alu"),
    Intrinsic("cvt_f16x2_f32", ("f", "f"), "r", "cvt.rn.f16x2.f32 %0, %1, %2;", "alu"),
    Intrinsic("cvt_bf16x2_f32", ("f", "f"), "r", "cvt.rn.bf16x2.f32 %0, %1, %2;", "alu"),
    Intrinsic("cvt_s8_f32", ("f",), "r", "cvt.rni.sat.s8.f32 %0, %1;", "alu"),
    Intrinsic(
        "cvt_e4m3x2_f32",
        ("f", "f"),
        "h",
        "cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;",
        "alu",
        "uint16",
    ),
    Intrinsic("cvt_bf16_f32", ("f",), "h", "cvt.rn.bf16.f32 %0, %1;", "alu", "uint16"),
    Intrinsic("ex2_f32", ("f",), "f", "ex2.approx.ftz.f32 %0, %1;", "xu", "float32"),
    Intrinsic("rcp_f32", ("f",), "f", "rcp.approx.ftz.f32 %0, %1;", "xu", "float32"),
)


def lop3(table: int) -> Intrinsic:
    """The intrinsic of ``lop3.b32`` with a truth table (an immediate in PTX, so each table is a function)."""
    return Intrinsic(
        f"lop3_{table:02x}", ("r", "r", "r"), "r", f"lop3.b32 %0, %1, %2, %3, 0x{table:02x};", "alu"
    )


def find(name: str) -> Intrinsic:
    """Look an intrinsic up by name; ``lop3_XX`` stands for all 256 truth tables."""
    if name.startswith("lop3_"):
        return lop3(int(name[5:], 16))
    try:
        return INTRINSICS[name]
    except KeyError:
        raise LoweringError(
            f"no intrinsic {name!r}",
            at="ladder.codegen.intrinsics",
            hint=f"known: lop3_XX, {', '.join(INTRINSICS)}",
        ) from None
