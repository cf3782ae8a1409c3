"""Epilogue: steps on finished float32 outputs before they are cast, one registered emitter for each kind of stage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ladder.codegen import emit as e
from ladder.codegen.context import Kernel
from ladder.codegen.stages.arithmetic import TensorArithmetic
from ladder.codegen.widen import widen
from ladder.errors import LoweringError
from ladder.scheduler.assemble import SCALE_BYTES
from ladder.scheduler.epilogue import (
    Activation,
    AddBias,
    Divide,
    Gate,
    GlobalScale,
    Residual,
    TokenScale,
)
from ladder.scheduler.formulas import FORMULAS
from ladder.scheduler.stage import EpilogueStage


class Token:
    """A row of outputs.

    Attributes:
        index: the row of x and y.
        place: the same among the rows of the CTA.
    """

    def __init__(self, kernel: Kernel, place: Any) -> None:
        self.kernel, self.place = kernel, place
        self.index = kernel.first_token + place
        self._scale: Any = None

    @property
    def scale(self) -> Any:
        """The row's scale, read once for all channels of it that a thread has."""
        if self._scale is None:
            kernel, base = self.kernel, self.kernel.row_scales
            if base is None:
                read = kernel.arg["x_scale"][self.index]
            else:
                read = kernel.shared["float32"][base // SCALE_BYTES + self.place]
            self._scale = e.hold(read, "x_scale", "float32")
        return self._scale


def share_row_scales(kernel: Kernel, base: int) -> None:
    """Bring the scales of the CTA's rows to byte ``base`` of the arena; a barrier of the warps that multiply comes after.

    Read one by one in the place where they are needed, the compiler spills accumulators for their addresses.
    """
    if not kernel.plan.op.activation_scale:
        return
    kernel.row_scales = base
    tokens, threads = kernel.plan.tiling.tokens, kernel.plan.tiling.threads
    with e.loop(-(-tokens // threads), "scale_turn") as turn:
        place = turn * threads + kernel.thread
        with e.when(True if tokens % threads == 0 else place < tokens):
            # Rows that do not exist are not stored; what the epilogue reads for them has to.
            row = e.least(kernel.first_token + place, kernel.arg["m"] - 1)
            at = base // SCALE_BYTES + place
            e.store(kernel.shared["float32"], at, kernel.arg["x_scale"][row])


@dataclass(frozen=True)
class Place:
    """Which output a value is: its channel, and its row.

    Attributes:
        channel: column of y; before a gate, row of the weight.
        token: row of y.
        residual: what is to be added, in float32, or None where it is read from global memory.
    """

    channel: Any
    token: Token
    residual: Any = None


#: emits one epilogue stage: (kernel, stage, value, place) -> value
EpilogueEmitter = Callable[[Kernel, EpilogueStage, Any, Place], Any]


def _global_scale(kernel: Kernel, _stage: EpilogueStage, value: Any, _place: Place) -> Any:
    return value * kernel.arg["global_scale"][0]


def _token_scale(_kernel: Kernel, _stage: EpilogueStage, value: Any, place: Place) -> Any:
    return value * place.token.scale


def _bias(kernel: Kernel, _stage: EpilogueStage, value: Any, place: Place) -> Any:
    return value + widen(kernel.plan.op.out.name, kernel.arg["bias"][place.channel])


def _activation(_kernel: Kernel, stage: EpilogueStage, value: Any, _place: Place) -> Any:
    assert isinstance(stage, Activation)
    return _function(stage.function, value)


def _function(function: str, value: Any) -> Any:
    return FORMULAS[function](TensorArithmetic(), e.bind(value, "argument"))


def _residual(kernel: Kernel, _stage: EpilogueStage, value: Any, place: Place) -> Any:
    if place.residual is not None:
        return value + place.residual
    offset = e.i64(place.token.index) * kernel.arg["residual_stride_m"] + e.i64(place.channel)
    return value + widen(kernel.plan.op.out.name, kernel.arg["residual"][offset])


def _divide(_kernel: Kernel, stage: EpilogueStage, value: Any, _place: Place) -> Any:
    assert isinstance(stage, Divide)
    return value / e.f32(stage.scale)


EPILOGUE_EMITTERS: dict[type[EpilogueStage], EpilogueEmitter] = {
    GlobalScale: _global_scale,
    TokenScale: _token_scale,
    AddBias: _bias,
    Activation: _activation,
    Residual: _residual,
    Divide: _divide,
}


def apply_epilogue(kernel: Kernel, parts: Sequence[Any], place: Place) -> Any:
    """All steps of the plan on an output; ``parts`` is its sum, or those of its gate and of what that gates.

    Raises:
        LoweringError: a stage has no emitter.
    """
    values = list(parts)
    for step in kernel.plan.epilogue:
        if isinstance(step, Gate):
            gate, up = values
            values = [_function(step.function, gate) * up]
            continue
        values = [
            _emitter(step)(kernel, step, value, _of_part(kernel, place, index))
            for index, value in enumerate(values)
        ]
    (value,) = values
    return value


def _of_part(kernel: Kernel, place: Place, index: int) -> Place:
    """The place of a part of an output: what is gated lies half of the weight's rows behind its gate."""
    return replace(place, channel=place.channel + index * kernel.plan.op.out_n) if index else place


def _emitter(stage: EpilogueStage) -> EpilogueEmitter:
    try:
        return EPILOGUE_EMITTERS[type(stage)]
    except KeyError:
        raise LoweringError(
            f"no emitter for the epilogue stage {stage.name!r}",
            at=type(stage).__qualname__,
            hint="ladder.codegen.stages.epilogue.EPILOGUE_EMITTERS[Stage] = emitter",
        ) from None
