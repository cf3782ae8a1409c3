"""Which weights a packing takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ladder.checks import accept, instance
from ladder.errors import PackingError
from ladder.ttype import Quantized

if TYPE_CHECKING:
    from ladder.scheduler.packing import Packing

QUANTIZED = instance(
    Quantized, "ladder.quantize(weights, type), or ladder.Quantized for codes that are there"
)


def check_weights(packing: Packing, weights: Quantized) -> None:
    """Refuse weights that are not of the packing's type and shape, or hold codes that its decoding cannot carry.

    Raises:
        PackingError: they are.
    """
    accept(weights, QUANTIZED, "weights", at=packing.title, error=PackingError)
    if weights.type != packing.weight:
        raise PackingError(
            f"weights are {weights.type}, the packing is for {packing.weight}",
            at=packing.title,
            hint="quantise to the type that the operator was declared with",
        )
    if weights.shape != (packing.n, packing.k):
        raise PackingError(
            f"weights are {list(weights.shape)}, the packing is for {[packing.n, packing.k]}",
            at=packing.title,
            hint="weights are [n, k]: output channels first",
        )
    for code in packing.program.undefined:
        hits = np.argwhere(weights.codes == code)
        if len(hits):
            raise PackingError(
                f"code {code} ({packing.element.values[code]}) occurs {len(hits)} times, first at {hits[0].tolist()}",
                at=f"{packing.element} decoded by {packing.program.form} to {packing.program.compute}",
                hint="this decode form cannot carry that code; replace such weights before packing",
            )
