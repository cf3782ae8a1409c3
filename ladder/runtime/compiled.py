"""What every compiled operator is, whatever it computes: kernels of a plan, their text, and the record that brings it back."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ladder.checks import accept, instance, several
from ladder.errors import LaunchError
from ladder.runtime.artifact import Artifact, Part
from ladder.runtime.driver import Driver
from ladder.runtime.launcher import Launcher
from ladder.runtime.packed import PackingLike, as_json
from ladder.runtime.variant import Variant

VARIANTS = several(instance(Variant, "ladder.compile(plan) makes them"), "a tuple of Variant")


class Compiled:
    """Kernels of one plan, or of a set of plans; it is pickled as its artifact, and comes back with its process's own driver.

    Args:
        variants: in the order in which they are tried.
        plan: the plan, or the set of plans, that they were lowered from.
        packing: how the weights of calls are packed; None where the record does not say.
        toolchain: name and version of the CUDA compiler, for the record.
        driver: None for this machine's; looked for at the first launch.
    """

    def __init__(
        self,
        variants: Sequence[Variant],
        plan: Any,
        packing: PackingLike | None = None,
        *,
        toolchain: str = "none",
        driver: Driver | None = None,
    ) -> None:
        self.variants = accept(variants, VARIANTS, "variants", at="Kernel", error=LaunchError)
        self.plan = plan
        self.toolchain = toolchain
        self.launcher = Launcher(self.variants, driver)
        self._recorded = packing

    @property
    def source(self) -> str:
        """The CUDA text of all kernels."""
        return "\n".join(variant.lowered.source for variant in self.variants)

    def __str__(self) -> str:
        return "\n".join(str(variant.lowered) for variant in self.variants)

    def __repr__(self) -> str:
        names = ", ".join(variant.name for variant in self.variants)
        return f"{type(self).__name__}({names})"

    def artifact(self) -> Artifact:
        """Return everything that a launch needs, as values."""
        packing = self._recorded
        return Artifact(
            parts=tuple(
                Part(as_json(v.plan.to_json()), v.lowered, v.cubins) for v in self.variants
            ),
            plan=as_json(self.plan.to_json()),
            packing={} if packing is None else as_json(packing.to_json()),
            packing_version=0 if packing is None else packing.version,
            toolchain=self.toolchain,
        )

    def save(self, folder: str | Path) -> Path:
        """Write the artifact folder, whole or not at all; see :mod:`ladder.runtime.artifact`."""
        return self.artifact().save(folder)

    def __reduce__(self) -> tuple[Any, ...]:
        """The files of the artifact; kernels that wait for their first call are compiled for it."""
        return (_restored, (self.artifact().files(),))


def _restored(files: Mapping[str, bytes]) -> Any:
    # which kernel it is says the plan, and who reads that knows all kernels
    load = importlib.import_module("ladder.runtime.load")
    return load.from_artifact(Artifact.from_files(files.__getitem__, at="pickle"), at="pickle")
