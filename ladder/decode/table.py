"""Write the table of all decodes: ``python -m ladder.decode.table`` writes ``docs/decode-table.md``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ladder.decode.bare import bare, spared
from ladder.decode.derive import FEATURES, derive
from ladder.decode.generate import elements
from ladder.decode.lanes import LANE_FORMATS, NARROW_FORMATS
from ladder.decode.program import DecodeProgram
from ladder.decode.scaled import scaled
from ladder.decode.single import one_class
from ladder.decode.tables import in_registers
from ladder.decode.text import markdown
from ladder.errors import LosslessError
from ladder.ttype import TType

TARGET = Path(__file__).parents[2] / "docs" / "decode-table.md"

HEAD = """# How every shipped type is decoded

Written by `python -m ladder.decode.table`; do not edit. One row is one decode program: what a lane of a warp does to turn
packed words into the A fragment of `mma.m16n8k16`, or of `m16n8k32` for compute types of 8 bits, `m16n8k64` for those of 4.

* **per 8 codes**: operations of one lane for the 8 codes of a fragment, by pipe. ALU: LOP3, SHF, PRMT, F2FP. FMA: HFMA2. LSU: LDS.
* **classes**: accumulator sets, where deferred factors differ between steps. Where the cheapest program has several, the
  row below it (needs: *one class*) is what warpgroups run: another program over the same packed words.
* **scaled**: where a program finishes lanes by an fma, the row below it (needs: *scaled*) is what kernels run that scale decoded
  weights in registers: the same words, each register with the factor and zero that its mask leaves, which the kernel's own fma
  applies.
  Without the fmas that finish its registers a program is also read from the same words, where a kernel takes zero points off or
  scales in registers (needs: *bare*), or takes them off by sums of the activations (needs: *sums*).
* **table**: shared memory of a lookup table, replicated for the 32 lanes. Where a program looks part of the codes up there, the
  row below it (needs: *registers*) is what kernels run that have no shared memory or time of it left: the same words, looked up
  in registers alone.
* **deferred**: what the float32 accumulators make good, exactly: factors (two where rows g and g+8 differ), and a zero. Of
  *scaled* programs: what the scales of registers do.
* **values**: exact, or rounded to nearest even in the compute type; codes that mean NaN or infinity and that the form
  cannot carry, and unused codes, must not occur in weights.
* A type without a row for a compute type has a value that would overflow there; for one of 8 or 4 bits, a value that is not exact.

"""


def rows() -> Iterator[tuple[str, DecodeProgram]]:
    """Programs of the catalogue with the feature that they need, by type."""
    for element in elements():
        for compute in LANE_FORMATS:
            try:
                plain = derive(element, compute)
            except LosslessError:
                continue
            yield "", plain
            yield from _beside(element, plain)
            for feature in sorted(FEATURES):
                with_it = derive(element, compute, features=frozenset({feature}))
                if with_it != plain:
                    yield feature, with_it
        yield from _narrow(element)


def _beside(element: TType, plain: DecodeProgram) -> Iterator[tuple[str, DecodeProgram]]:
    """Other programs for the same words."""
    others = {
        "one class": one_class(element, plain),
        "scaled": scaled(element, plain),
        "bare": bare(plain),
        "sums": spared(plain),
        "registers": in_registers(element, plain),
    }
    for needs, program in others.items():
        if program is not None and program != plain:
            yield needs, program


def _narrow(element: TType) -> Iterator[tuple[str, DecodeProgram]]:
    """Programs for compute types of 8 bits and of 4, where there are some."""
    for compute in NARROW_FORMATS:
        try:
            yield "", derive(element, compute)
        except LosslessError:
            continue


def text() -> str:
    """The page."""
    return HEAD + markdown(rows())


if __name__ == "__main__":
    TARGET.write_text(text(), encoding="utf-8")
