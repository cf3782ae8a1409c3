"""Chooses who goes on: a warp that is ready, or a copy in flight.

``random`` draws both from a seed. ``eager`` carries copies out as soon as they are issued and ``lazy`` only when somebody waits for
them; both take warps in turn.
"""

from __future__ import annotations

from collections.abc import Callable

from ladder.emulator.report import Fault
from ladder.emulator.warp import Block, Copy, Steps, Wait, Warp

SCHEDULES = ("random", "eager", "lazy")
#: decisions without progress after which a spinning kernel counts as stuck
PATIENCE = 20_000


def run_block(block: Block, start: Callable[[Warp], Steps]) -> None:
    """Run all warps of a CTA to their end.

    Raises:
        Fault: ``deadlock`` when nobody can go on, ``livelock`` when nobody gets anywhere, or what a warp met.
    """
    threads: dict[int, Steps] = {w.index: start(w) for w in block.warps}
    state: dict[int, Wait] = dict.fromkeys(threads, ("start", None))
    last = -1
    idle = 0
    while state:
        ready = [i for i, (_, test) in state.items() if test is None or test()]
        block.copies = [copy for copy in block.copies if not copy.done]
        before = block.progress
        block.steps += 1
        if _prefers_copy(block, ready):
            _any_copy(block).run()
            block.progress += 1
        elif not ready:
            raise _deadlock(block, state)
        else:
            last = _pick(block, ready, last)
            _advance(block, threads, state, last)
        idle = idle + 1 if block.progress == before else 0
        if idle > PATIENCE:
            raise _stuck(state)
    for copy in block.copies:
        copy.run()


def _prefers_copy(block: Block, ready: list[int]) -> bool:
    if not block.copies:
        return False
    return not ready or (block.policy == "random" and block.rng.random() < 0.5)


def _any_copy(block: Block) -> Copy:
    if block.policy == "random":
        return block.copies[block.rng.randrange(len(block.copies))]
    return block.copies[0]


def _pick(block: Block, ready: list[int], last: int) -> int:
    if block.policy == "random":
        return ready[block.rng.randrange(len(ready))]
    return min(ready, key=lambda i: (i <= last, i))


def _advance(block: Block, threads: dict[int, Steps], state: dict[int, Wait], index: int) -> None:
    try:
        state[index] = next(threads[index])
    except StopIteration:
        del state[index]
        block.progress += 1


def _deadlock(block: Block, state: dict[int, Wait]) -> Fault:
    reasons = "; ".join(f"warp {i} {reason}" for i, (reason, _) in sorted(state.items()))
    gone = [w.index for w in block.warps if w.index not in state]
    barriers = [f"barrier {n}: {b}" for n, b in sorted(block.barriers.items())]
    barriers += [str(b) for b in block.mbarriers.values()]
    ended = f"warps {gone} have ended; " if gone else ""
    return Fault(
        f"deadlock: {ended}{reasons}",
        at="; ".join(barriers),
        hint="all participants have to reach a barrier, and every wait needs its arrivals",
    )


def _stuck(state: dict[int, Wait]) -> Fault:
    reasons = "; ".join(f"warp {i} {reason}" for i, (reason, _) in sorted(state.items()))
    return Fault(f"livelock: nothing changed in {PATIENCE} steps: {reasons}")
