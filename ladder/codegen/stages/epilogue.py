"""Epilogue: steps on finished float32 outputs before they are cast, one registered emitter for each kind of stage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ladder.codegen.context import Kernel
from ladder.codegen.widen import widen
from ladder.errors import LoweringError
from ladder.scheduler.stage import AddBias, EpilogueStage, GlobalScale

#: emits one epilogue stage: (kernel, stage, value, channel index) -> value
EpilogueEmitter = Callable[[Kernel, EpilogueStage, Any, Any], Any]


def _global_scale(kernel: Kernel, _stage: EpilogueStage, value: Any, _channel: Any) -> Any:
    return value * kernel.arg["global_scale"][0]


def _bias(kernel: Kernel, _stage: EpilogueStage, value: Any, channel: Any) -> Any:
    return value + widen(kernel.plan.op.out.name, kernel.arg["bias"][channel])


EPILOGUE_EMITTERS: dict[type[EpilogueStage], EpilogueEmitter] = {
    GlobalScale: _global_scale,
    AddBias: _bias,
}


def apply_epilogue(kernel: Kernel, value: Any, channel: Any) -> Any:
    """All steps of the plan on an output of a channel.

    Raises:
        LoweringError: a stage has no emitter.
    """
    for step in kernel.plan.epilogue:
        value = _emitter(step)(kernel, step, value, channel)
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
