"""Epilogue: steps on finished float32 outputs before they are cast, one registered emitter for each kind of stage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ladder.codegen import emit as e
from ladder.codegen.context import Kernel
from ladder.codegen.widen import widen
from ladder.errors import LoweringError
from ladder.scheduler.stage import AddBias, EpilogueStage, GlobalScale, TokenScale


class Token:
    """A row of outputs, and what is read once for all channels of it that a thread has.

    Attributes:
        index: the row of x and y.
    """

    def __init__(self, index: Any) -> None:
        self.index = index
        self._held: dict[str, Any] = {}

    def held(self, role: str, read: Callable[[], Any]) -> Any:
        """A float32 of this row, read the first time and kept in a register."""
        if role not in self._held:
            self._held[role] = e.hold(read(), role, "float32")
        return self._held[role]


@dataclass(frozen=True)
class Place:
    """Which output a value is: its channel, and its row."""

    channel: Any
    token: Token


#: emits one epilogue stage: (kernel, stage, value, place) -> value
EpilogueEmitter = Callable[[Kernel, EpilogueStage, Any, Place], Any]


def _global_scale(kernel: Kernel, _stage: EpilogueStage, value: Any, _place: Place) -> Any:
    return value * kernel.arg["global_scale"][0]


def _token_scale(kernel: Kernel, _stage: EpilogueStage, value: Any, place: Place) -> Any:
    token = place.token
    return value * token.held("x_scale", lambda: kernel.arg["x_scale"][token.index])


def _bias(kernel: Kernel, _stage: EpilogueStage, value: Any, place: Place) -> Any:
    return value + widen(kernel.plan.op.out.name, kernel.arg["bias"][place.channel])


EPILOGUE_EMITTERS: dict[type[EpilogueStage], EpilogueEmitter] = {
    GlobalScale: _global_scale,
    TokenScale: _token_scale,
    AddBias: _bias,
}


def apply_epilogue(kernel: Kernel, value: Any, place: Place) -> Any:
    """All steps of the plan on an output.

    Raises:
        LoweringError: a stage has no emitter.
    """
    for step in kernel.plan.epilogue:
        value = _emitter(step)(kernel, step, value, place)
    return value


def _emitter(stage: EpilogueStage) -> EpilogueEmitter:
    try:
        return EPILOGUE_EMITTERS[type(stage)]
    except KeyError:
        raise LoweringError(
            f"no emitter for the epilogue stage {stage.name!r}",
            at=type(stage).__qualname__,
            hint="ladder.codegen.stages.epilogue.EPILOGUE_EMITTERS[Stage] = emitter",
        ) from None
