"""Faulty copies of a listing: one synchronisation or asynchronous copy left out at a time.

A detector is worth what it catches. Every mutant of a kernel should raise a fault or give wrong numbers; one that does neither shows
a synchronisation that the kernel does not need, or a hole in the detector. ``Report.dropped`` says how often a warp came to the place;
0 means that the problem is too small to say anything.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ladder.emulator.program import Json

#: starts of PTX texts that synchronise or that move data on their own
PTX = (
    "bar.",
    "barrier.",
    "cp.async",
    "cp.reduce.async",
    "fence",
    "mbarrier.arrive",
    "mbarrier.expect_tx",
    "mbarrier.init",
    "mbarrier.try_wait",
    "wgmma.commit_group",
    "wgmma.fence",
    "wgmma.wait_group",
)
#: calls that synchronise
CALLS = (
    "cuda.cta_sync",
    "cuda.warp_sync",
    "cuda.mbarrier_wait",
    "cuda.mbarrier_wait_acquire_cluster",
    "cuda.cluster_sync",
)


@dataclass(frozen=True)
class Mutant:
    """A listing without one instruction.

    Attributes:
        dropped: the instruction, its place among the candidates, and its stage.
        text: the instruction.
        listing: the faulty kernel.
    """

    dropped: str
    text: str
    listing: Mapping[str, Json]


def mutants(listing: Mapping[str, Json]) -> Iterator[Mutant]:
    """Yield the listing with each candidate dropped in turn, in the order of the text."""
    total, text_of_all = len(_candidates(listing)), json.dumps(dict(listing))
    for number in range(total):
        faulty = json.loads(text_of_all)  # many times quicker than a deep copy
        node, text, stage = _candidates(faulty)[number]
        node[:] = ["dropped", text]
        place = f" in stage {stage}" if stage else ""
        yield Mutant(f"{text}{place} ({number + 1} of {total})", text, faulty)


def _candidates(listing: Mapping[str, Json]) -> list[tuple[Json, str, str]]:
    found: list[tuple[Json, str, str]] = []
    _walk(listing["body"], listing["opcodes"], "", found)
    return found


def _walk(node: Json, opcodes: Json, stage: str, found: list[tuple[Json, str, str]]) -> None:
    if not isinstance(node, list) or not node:
        return
    head = node[0]
    if head == "ptx":
        text = opcodes[node[1]]["text"]
        if text.startswith(PTX):
            found.append((node, text, stage))
        return
    if head == "eval":
        call = node[1]
        if isinstance(call, list) and call[0] == "call" and call[1] in CALLS:
            found.append((node, call[1], stage))
        return
    if head == "stage":
        stage = node[1]
    for child in node[1:]:
        _walk(child, opcodes, stage, found)
