"""The residual of a call: what is passed on, what is refused, and when y may lie where it lies."""

from __future__ import annotations

import numpy as np
import pytest

import ladder
from ladder.codegen.lower import lower
from ladder.errors import LaunchError, ShapeError
from ladder.runtime.arguments import Operands, Variant, check_call
from ladder.runtime.packed import Packed

W4 = ladder.types["int4"].grouped(32)
X = np.ones((3, 64), np.float16)


@pytest.fixture(scope="module")
def made():
    pytest.importorskip("tvm")
    op = ladder.matmul(3, 64, 64, activation="float16", weight=W4, epilogue=("residual",))
    plan = ladder.schedule(op)
    packed = Packed(plan.packing, plan.packing.pack(ladder.quantize(np.ones((64, 64)), W4)))
    return Variant(plan, lower(plan), {}), packed


def call(made, residual, out=None):
    variant, packed = made
    return check_call([variant], packed.key, Operands(X, packed, None, out, None, residual))


def wide(rows=3, columns=80):
    return np.zeros((rows, columns), np.float16)


def test_where_a_residual_lies_is_passed_on(made):
    residual = wide()[:, 8:72]
    values = call(made, residual).values
    assert values["residual"] == residual.ctypes.data
    assert values["residual_stride_m"] == 80
    assert values["residual_pieces"] == int(residual.ctypes.data % 16 == 0)
    assert call(made, wide()[:, 1:65]).values["residual_pieces"] == 0
    assert call(made, wide(columns=81)[:, :64]).values["residual_pieces"] == 0
    assert call(made, np.broadcast_to(wide()[:1, :64], (3, 64))).values["residual_stride_m"] == 0


def test_out_may_be_the_residual_itself_and_nothing_that_overlaps_it(made):
    memory = wide(columns=128)
    whole = memory[:, :64]
    values = call(made, whole, out=whole).values
    assert values["residual"] == values["y"]
    apart = np.zeros((3, 64), np.float16)
    assert call(made, whole, out=apart).values["y"] == apart.ctypes.data
    with pytest.raises(LaunchError, match="out overlaps the residual in part"):
        call(made, memory[:, 8:72], out=whole)
    flat = np.zeros((6, 64), np.float16)
    with pytest.raises(LaunchError, match="out overlaps the residual in part"):
        call(made, flat[:3], out=flat[2:5])
    with pytest.raises(LaunchError, match="out overlaps the residual in part"):
        call(made, flat[::2], out=flat[:3])


@pytest.mark.parametrize(
    "residual, error, what",
    [
        (None, LaunchError, "the operator adds a residual, none was given"),
        (np.zeros((3, 64), np.float32), LaunchError, "residual is float32, the kernel takes"),
        (
            np.zeros((3, 32), np.float16),
            ShapeError,
            r"residual is \[3, 32\], the result \[3, 64\]",
        ),
        (np.zeros((64, 3), np.float16).T, LaunchError, "residual has strides"),
        (np.zeros((3, 64), np.float16)[::-1], LaunchError, "residual has strides"),
    ],
)
def test_what_is_no_residual(made, residual, error, what):
    with pytest.raises(error, match=what):
        call(made, residual)


def test_a_residual_that_nobody_asked_for_is_refused(fakes, weights, torch, x):
    kernel = fakes.kernel()
    packed = kernel.pack(weights).to(torch.device("cuda", 0))
    with pytest.raises(LaunchError, match="a residual was given, the operator has none"):
        kernel(torch.on(x), packed, residual=torch.on(np.ones((3, 8), np.float32)))
