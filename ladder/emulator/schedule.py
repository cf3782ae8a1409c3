"""Chooses who goes on: a warp that is ready, or an asynchronous operation in flight.

``random`` draws both from a seed. ``eager`` carries copies out as soon as they are issued and ``lazy`` only when somebody waits for
them; both take warps in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ladder.emulator import wgmma
from ladder.emulator.report import Fault
from ladder.emulator.warp import Block, Cluster, Copy, Machine, Steps, Wait, Warp

SCHEDULES = ("random", "eager", "lazy")
#: decisions without progress after which a spinning kernel counts as stuck
PATIENCE = 20_000


class Scheduler:
    """Runs the warps of some clusters together.

    Args:
        machine: of the launch.
        clusters: memory and tables for as many clusters as run at one time.
        start: makes the generator of a warp.
        renew: gives a cluster its next CTAs; false when there are none left.
    """

    def __init__(
        self,
        machine: Machine,
        clusters: Sequence[Cluster],
        start: Callable[[Warp], Steps],
        renew: Callable[[Cluster], bool],
    ) -> None:
        self.machine = machine
        self.clusters = clusters
        self.start, self.renew = start, renew
        self.warps: dict[int, Warp] = {}
        self.threads: dict[int, Steps] = {}
        self.state: dict[int, Wait] = {}
        self.left = dict.fromkeys((c.slot for c in clusters), 0)
        self.last = -1
        for cluster in clusters:
            self._begin(cluster)

    def _begin(self, cluster: Cluster) -> None:
        """Start the next CTAs on a cluster's memory, if there are any."""
        if not self.renew(cluster):
            return
        for block in cluster.blocks:
            for warp in block.warps:
                self.warps[warp.row] = warp
                self.threads[warp.row] = self.start(warp)
                self.state[warp.row] = ("has not started", None)
                self.left[cluster.slot] += 1

    def run(self) -> None:
        """Run all warps to their end, with what they leave in flight.

        Raises:
            Fault: ``deadlock`` when nobody can go on, ``livelock`` when nobody gets anywhere, or what a warp met.
        """
        machine = self.machine
        idle = 0
        while self.state:
            before = machine.progress
            self._step()
            idle = idle + 1 if machine.progress == before else 0
            if idle > PATIENCE:
                raise Fault(
                    f"livelock: nothing changed in {PATIENCE} steps: {self._reasons()}",
                    at=self._barriers(),
                )

    def _step(self) -> None:
        machine = self.machine
        ready = [i for i, (_, test) in self.state.items() if test is None or test()]
        if machine.copies:
            machine.copies = [copy for copy in machine.copies if not copy.done]
        machine.steps += 1
        copy = self._copy(ready)
        if copy is not None:
            copy.run()
            machine.progress += 1
        elif not ready:
            raise self._deadlock()
        else:
            self._advance(self._pick(ready))

    def _copy(self, ready: list[int]) -> Copy | None:
        """An operation in flight to carry out now, or None to let a warp go on."""
        machine = self.machine
        if not machine.copies or (ready and machine.policy == "lazy"):
            return None
        if ready and machine.policy == "random" and machine.rng.random() < 0.5:
            return None
        able = [copy for copy in machine.copies if copy.ready]
        if machine.policy == "random":
            return able[machine.rng.randrange(len(able))]
        return able[0]

    def _pick(self, ready: list[int]) -> int:
        machine = self.machine
        if machine.policy == "random":
            return ready[machine.rng.randrange(len(ready))]
        return min(ready, key=lambda i: (i <= self.last, i))

    def _advance(self, index: int) -> None:
        self.last = index
        try:
            self.state[index] = next(self.threads[index])
        except Fault as fault:
            fault.at = f"{fault.at}; in CTA {self.warps[index].block.name}"
            raise
        except StopIteration:
            del self.state[index]
            self.machine.progress += 1
            cluster = self.warps[index].cluster
            self._leave(self.warps[index].block)
            self.left[cluster.slot] -= 1
            if not self.left[cluster.slot]:
                self._finish(cluster)

    def _leave(self, block: Block) -> None:
        """A warp ends; with the last one of a CTA, its shared memory."""
        block.ended += 1
        shadow = block.cluster.shadow
        if block.ended == len(block.warps) and shadow is not None and len(block.cluster.ranks) > 1:
            shadow.close([w.agent for w in block.warps], block.base, block.cluster.stride)

    def _finish(self, cluster: Cluster) -> None:
        """Let what the CTAs left in flight come to its end, and start the next ones."""
        for block in cluster.blocks:
            wgmma.finish(block.warps)
        for copy in self.machine.copies:
            if copy.cluster is cluster:
                copy.run()
        self._begin(cluster)

    # ---- reports ------------------------------------------------------------------------------------------------

    def _name(self, index: int) -> str:
        warp = self.warps[index]
        many = len(self.clusters) > 1 or len(self.clusters[0].blocks) > 1
        return f"warp {warp.index} of CTA {warp.block.name}" if many else f"warp {warp.index}"

    def _reasons(self) -> str:
        return "; ".join(f"{self._name(i)} {reason}" for i, (reason, _) in self.state.items())

    def _barriers(self) -> str:
        found = []
        for cluster in self.clusters:
            found += [
                f"barrier {n}: {b}" for k in cluster.blocks for n, b in sorted(k.barriers.items())
            ]
            found += [str(b) for b in cluster.mbarriers.values()]
        return "; ".join(found)

    def _deadlock(self) -> Fault:
        gone = [self._name(i) for i in self.warps if i not in self.state]
        ended = f"{', '.join(gone)} ended; " if gone else ""
        return Fault(
            f"deadlock: {ended}{self._reasons()}",
            at=self._barriers(),
            hint="all participants have to reach a barrier, and every wait needs its arrivals",
        )
