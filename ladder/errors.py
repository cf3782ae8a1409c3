"""Every error that the package raises on purpose: what went wrong, where, and what to do about it."""

from __future__ import annotations


class LadderError(Exception):
    """Base of all errors of the package.

    Args:
        what: the fact, with the values that were found.
        at: the value or place that was being handled.
        hint: what the reader can do next.
    """

    def __init__(self, what: str, *, at: object = "", hint: str = "") -> None:
        self.what = what
        self.at = str(at)
        self.hint = hint
        super().__init__(what)

    def __str__(self) -> str:
        lines = [self.what]
        if self.at:
            lines.append(f"  at: {self.at}")
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle with all three parts, so that an error crosses process borders whole."""
        return (_rebuild, (type(self), self.what, self.at, self.hint))


def _rebuild(kind: type[LadderError], what: str, at: str, hint: str) -> LadderError:
    return kind(what, at=at, hint=hint)


class TypeDeclarationError(LadderError):
    """A number format, group or quantised tensor contradicts itself."""


class ShapeError(LadderError):
    """Extents do not fit each other."""


class LayoutError(LadderError):
    """A layout is not the map that it has to be."""


class DeviceError(LadderError):
    """A device description is wrong, unknown, or lacks what was asked of it."""


class DecodeError(LadderError):
    """No decode program exists, or one failed its proof."""


class LosslessError(LadderError):
    """A conversion may overflow where it was asked to keep every value."""


class PackingError(LadderError):
    """Weights do not fit the packing that they were given for."""


class ScheduleError(LadderError):
    """No legal plan exists for an operator on a device."""


class PlanError(LadderError):
    """A plan breaks a rule of its device, or cannot be read back."""


class LoweringError(LadderError):
    """A plan cannot be lowered, for example because the compile extra is missing."""


class ToolchainError(LadderError):
    """CUDA text could not be compiled."""


class ArtifactError(LadderError):
    """A saved kernel, graph or model is incomplete, damaged, foreign or of another version."""


class LaunchError(LadderError):
    """The arguments of a call, or the device that it meets, do not fit the kernel."""


class CacheError(LadderError):
    """A cache was told to do something impossible."""


class TuningError(LadderError):
    """Plans cannot be measured or compared as was asked, or a table of measured plans is damaged."""


class GraphError(LadderError):
    """A graph of operators contradicts itself, or holds or was given what it cannot handle."""


class ModelImportError(LadderError):
    """A model holds operators, types or attributes that the graph does not know; all of them are listed."""


class ExperimentError(LadderError):
    """A sweep, or a table of its rows, contradicts itself or holds what cannot be read."""


class EmulationError(LadderError):
    """The emulator met something that the hardware would not run rightly."""
