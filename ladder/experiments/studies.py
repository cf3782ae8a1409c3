"""The two experiments that are shipped: placement of convert against M, and time against bits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from ladder.experiments.row import Row
from ladder.experiments.sweep import PLACEMENTS, Sweep
from ladder.experiments.table import totals
from ladder.registry import types
from ladder.runtime.tuning.shapes import models

MODEL = "llama-2-70b"
#: its projections as they run: q, k and v are one product, gate and up another
LAYERS = ("qkv_proj", "o_proj", "gate_up_proj", "down_proj")

#: a LLaMA-2-70B decoder layer on an A100 with float16 activations, milliseconds by bits of a weight at one token; attention,
#: norms and the like included (Ladder, OSDI 2024, figure 14 and its artifact). At 4096 tokens all widths take 32 to 36 ms.
PAPER_MS: Mapping[int, float] = MappingProxyType({8: 0.600, 4: 0.346, 2: 0.285, 1: 0.266})
PAPER_PREFILL_MS = (32.0, 36.0)


def placement() -> Sweep:
    """int4 and nf4 at N = K = 8192, all placements, one token to 4096."""
    return Sweep(
        name="placement",
        shapes=((8192, 8192),),
        weights=(types["int4"].grouped(128), types["nf4"].grouped(64)),
        ms=(1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096),
        devices=("h200",),  # type: ignore[arg-type]  # by name
    )


def bits() -> Sweep:
    """The projections of a LLaMA-2-70B layer with 1 to 8 bits, at one token and at 4096, beside float16."""
    layers = models()[MODEL].layers
    names = ("bipolar1", "int2", "int3", "int4", "int8")
    return Sweep(
        name="bits",
        shapes=tuple(layers[layer] for layer in LAYERS),
        weights=names,  # type: ignore[arg-type]  # by name
        groups=("channel",),
        ms=(1, 4096),
        placements=("register", "offline"),
        devices=("a100", "h200"),  # type: ignore[arg-type]  # by name
    )


def placement_table(rows: Sequence[Row]) -> str:
    """Markdown: a table for each device, shape and weight; a line for each M, microseconds and price for each placement."""
    parts: dict[tuple[str, int, int, str], list[Row]] = {}
    for row in rows:
        parts.setdefault((row.device, row.n, row.k, row.weight), []).append(row)
    text = []
    for (device, n, k, weight), some in parts.items():
        by_place = {(row.m, row.placement): row for row in some}
        places = [place for place in PLACEMENTS if any(row.placement == place for row in some)]
        lines = [
            [str(m), *(_cell(by_place.get((m, place))) for place in places)]
            for m in dict.fromkeys(row.m for row in some)
        ]
        text.append(f"{weight}, N={n}, K={k}, {device}:\n\n{markdown(['M', *places], lines)}")
    return "\n".join(text)


def _cell(row: Row | None) -> str:
    if row is None:
        return ""
    if row.modelled_us is None:
        return "refused"
    price = "" if row.price is None else f" ({row.price:.2f})"
    measured = "" if row.measured_us is None else f", measured {row.measured_us:.1f}"
    return f"{row.modelled_us:.1f}{price}{measured}"


def bits_table(rows: Sequence[Row]) -> str:
    """Markdown: milliseconds of all shapes together, a table for each device, a line for each number of bits."""
    over = ("device", "placement", "bits", "m")
    found = totals(rows, over)
    text = []
    for device in dict.fromkeys(row.device for row in rows):
        ms = sorted({row.m for row in rows})
        widths = sorted({row.bits for row in rows})
        dense = {m: found.get((device, "offline", widths[0], m)) for m in ms}
        lines = [["float16", *(cell for m in ms for cell in _times(dense[m], dense[m])), ""]]
        for width in widths:
            times = {m: found.get((device, "register", width, m)) for m in ms}
            paper = f"{PAPER_MS[width]:.3f}" if width in PAPER_MS and device == "a100" else ""
            cells = [cell for m in ms for cell in _times(times[m], dense[m])]
            lines.append([str(width), *cells, paper])
        head = ["bits", *(f"{part} M={m}" for m in ms for part in ("ms,", "x float16,"))]
        text.append(f"{device}:\n\n{markdown([*head, 'paper, ms, M=1'], lines)}")
    return "\n".join(text)


def _times(us: float | None, dense: float | None) -> tuple[str, str]:
    if us is None:
        return "refused", ""
    return f"{us / 1e3:.3f}", "" if dense is None else f"{dense / us:.2f}"


def markdown(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table of Markdown."""
    rule = "|".join("---" for _ in head)
    body = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([f"| {' | '.join(head)} |", f"|{rule}|", *body]) + "\n"


@dataclass(frozen=True)
class Study:
    """An experiment that is shipped.

    Attributes:
        name: of its page in ``docs/experiments`` and of its files.
        make: its sweep.
        table: rows -> Markdown, as the page has it.
        figure: the kind of its picture, see :mod:`ladder.experiments.figures`.
    """

    name: str
    make: Callable[[], Sweep]
    table: Callable[[Sequence[Row]], str]
    figure: str


STUDIES: Mapping[str, Study] = MappingProxyType(
    {
        study.name: study
        for study in (
            Study("placement", placement, placement_table, "m"),
            Study("bits", bits, bits_table, "bits"),
        )
    }
)
