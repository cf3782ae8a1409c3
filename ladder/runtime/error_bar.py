"""How far an output may be from float64, derived from what a kernel must round; nothing is fitted to measurements.

The relative error of a row is ``|y - ref|_2 / |ref|_2``, ref in float64 of the dequantised operands. By the triangle
inequality it is at most the sum of three parts:

* **output**: each element is rounded once to the output's type, p significant bits: at most u = 2**-p of its size
  (float16 2**-11, bfloat16 2**-8), and so at most u of the norm.
* **weights**: values that the compute type cannot hold are rounded to nearest in the decode table. With w the largest
  relative error over the value table, the weights that are multiplied differ by at most w each; for activations that are
  independent with mean zero, the outputs then differ by at most w of the norm (both norms are the same sums of squares,
  ``E|dW x|^2 = |dW|_F^2``). 0 where decoding is lossless.
* **sums**: products are exact in float32 and added in float32, scale and zero are applied in float32. Adding K numbers
  in order costs at most K * 2**-24; 2**-11 covers K = 8192 in the worst case, and 28672, whose errors have no common
  sign, by far. It also covers the float16 zero and the terms that cancel when a zero is taken off by activation sums.

Products of fp8 activations are added by tensor cores that align them to the largest term and cut off below 13 bits of its
fraction (DeepSeek-V3 technical report, section 3.5.2: about 14 bits on Hopper). Each step of 32 columns so loses up to
2**-13 of its sum; losses of K / 32 steps, whose sums change their sign, add by their squares: 2**-13 * sqrt(K / 32), 1.95e-3
for K = 8192, where 0.7e-3 to 1.2e-3 were measured. Sums of int8 products are exact.

float16 outputs with losslessly decoded weights: 2**-11 + 2**-11 = 0.98e-3, stated as the 1e-3 that is promised. The
promise holds for every float16 output: with nf4's float16 table the sum of the worst cases is 1.3e-3, but roundings of
random sign add by their squares and stay below it. bfloat16 outputs: 2**-8 + 2**-11 = 4.4e-3, nf4 in bfloat16 7.5e-3.

Steps of an epilogue come before the output's rounding, in float32. What was off before them is off by another part of what
they make:

* an **activation function** f multiplies the relative error by sqrt(E[f'(y)^2] E[y^2] / E[f(y)^2]): 1 for relu, 1.035 at most
  for gelu and silu, whatever the deviation of normal y; for sigmoid and tanh, which cut large y off, it grows with the root
  of the deviation and is taken at 16. Its own float32 formula (:mod:`ladder.scheduler.formulas`) costs less than 2**-20.
* a **gate** f(g) * u has both errors, that of f(g) and that of u: 1 + the factor of f.
* a **residual** that is independent of y makes the norm larger and no error.
* **codes** by a known scale differ by a step where the error of y takes it over a half. With e that error in steps, it does so in a
  part E|e| of the codes, and their squares add to as much. With b the relative error, E|e| is at most b times the root of the mean
  square of y in steps, hence codes for which that is 1 or more are off by at most sqrt(b) of their norm.

The bar is for activations whose mean is zero. Where they have one (behind a GELU, say), what all weights of a group lose
alike no longer cancels: :func:`bar_on` adds that for given operands.
"""

from __future__ import annotations

import math
from typing import Any

from ladder.graph import MatMul
from ladder.graph.epilogue import Activated, Gated
from ladder.scheduler.plan import Plan
from ladder.scheduler.planset import PlanSet
from ladder.ttype import losslessness

#: unit roundoff of each output type: half a unit in the last place of 1
ROUNDOFF = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24}
SUMS = 2.0**-11

#: part of a sum that tensor cores lose in a step of 8-bit float products, and columns of a step
CUT = 2.0**-13
CUT_COLUMNS = 32

#: by how much an activation function makes relative errors of normal sums larger, at most
AMPLIFIED = {
    "relu": 1.0,
    "gelu": 1.04,
    "gelu_tanh": 1.04,
    "silu": 1.04,
    "sigmoid": 1.5,
    "tanh": 3.0,
}
#: relative error of a function's formula
FORMULA = 2.0**-20

#: promised for float16 outputs
PROMISED = 1e-3


def table_error(op: MatMul) -> float:
    """Largest relative error of a weight value in the compute type; 0 where decoding is lossless."""
    answer = losslessness(op.weight.element, op.weight_compute)
    return float(getattr(answer, "worst", 0.0))


def sums_error(op: MatMul) -> float:
    """What adding products may cost, relative to the norm of an output's row."""
    if op.activation.is_float and op.activation.bits == 8:
        return SUMS + CUT * math.sqrt(op.k / CUT_COLUMNS)
    return SUMS


def error_bar(op: MatMul, alike: float = 0.0) -> float:
    """The bar of an operator's outputs; see the module's docstring, and :func:`bar_on` for ``alike``."""
    promised = op.out.name == "float16" and sums_error(op) == SUMS
    if promised and not op.epilogue:
        return PROMISED + alike
    before = table_error(op) + sums_error(op) + alike
    for step in op.epilogue:
        if isinstance(step, Activated):
            before = before * AMPLIFIED[step.function] + FORMULA
        elif isinstance(step, Gated):
            before = before * (1 + AMPLIFIED[step.function]) + FORMULA
    if op.codes is not None:
        return math.sqrt(before)
    bar = ROUNDOFF[op.out.name] + before
    return max(PROMISED, bar) if promised else bar


def bar_on(plan: Plan | PlanSet, x: Any, w: Any) -> float:
    """The bar for given operands, float64 of NumPy or torch: x ``[..., K]``, scaled, and w ``[N, K]``.

    A plan that scales weights in registers rounds each of them once, by at most u of its size, and in a group weights of one
    code are rounded alike. With m the mean of x over a group, its sum is off by at most ``|m| u sum |w|`` beside what cancels;
    roundings of different groups have different scales and add by their squares.
    """
    rows = x.reshape(-1, x.shape[-1])
    chosen = plan.plan_for(len(rows)) if isinstance(plan, PlanSet) else plan
    size = math.sqrt(float(((rows @ w.T) ** 2).sum())) if chosen.scale == "register" else 0.0
    if not size:
        return error_bar(chosen.op)
    alike = ROUNDOFF[chosen.op.activation.name] * _alike(rows, w, chosen.op) / size
    return error_bar(chosen.op, alike)


def _alike(x: Any, w: Any, op: MatMul) -> float:
    """``sqrt(sum (m |w|)^2)`` over outputs and groups, m being means of x and |w| sums of magnitudes of a group."""
    group = op.weight.group_extents(op.n, op.k)[1]
    whole = op.k // group * group
    squares = 0.0
    for first, last, width in ((0, whole, group), (whole, op.k, op.k - whole)):
        if first < last:
            means = x[:, first:last].reshape(len(x), -1, width).mean(-1)
            sums = abs(w[:, first:last]).reshape(len(w), -1, width).sum(-1)
            squares += float(((means**2) @ (sums**2).T).sum())
    return math.sqrt(squares)
