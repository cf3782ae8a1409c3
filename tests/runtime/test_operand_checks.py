"""Arrays beside x: what of a residual is passed on and what is refused, and over what y may not lie."""

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


@pytest.mark.parametrize("backwards", [False, True])
def test_out_must_not_overlap_x_however_it_is_walked(made, backwards):
    memory = np.zeros((6, 64), np.float16)
    variant, packed = made
    x = memory[2::-1] if backwards else memory[:3]
    given = Operands(x, packed, None, memory[2:5], None, X)
    with pytest.raises(LaunchError, match="out and x share memory"):
        check_call([variant], packed.key, given)
    check_call([variant], packed.key, given._replace(out=memory[3:]))


def floats(torch, count):
    return torch.on(np.ones(count, np.float32))


def part(memory, count, shape, start=0):
    array = memory.array[start : start + count].reshape(shape)
    return type(memory)(array, memory.device)


@pytest.mark.parametrize("start", [0, 20, 23])
def test_out_must_not_overlap_the_bias(fakes, weights, torch, x, start):
    kernel = fakes.kernel(plans=[fakes.Plan(bias=True)])
    packed = kernel.pack(weights).to(torch.device("cuda", 0))
    memory = floats(torch, 40)
    out = part(memory, 24, (3, 8))
    given = Operands(torch.on(x), packed, part(memory, 8, (8,), start), out)
    with pytest.raises(LaunchError, match="out and bias share memory"):
        check_call(kernel.variants, packed.key, given)
    beside = part(memory, 8, (8,), 24)
    assert check_call(kernel.variants, packed.key, given._replace(bias=beside)).m == 3


def test_out_must_not_overlap_the_scales_of_rows(fakes, weights, torch, x):
    kernel = fakes.kernel(plans=[fakes.Plan(activation_scale=True)])
    packed = kernel.pack(weights).to(torch.device("cuda", 0))
    memory = floats(torch, 40)
    given = Operands(torch.on(x), packed, None, part(memory, 24, (3, 8)), part(memory, 3, (3,), 5))
    with pytest.raises(LaunchError, match="out and x_scale share memory"):
        check_call(kernel.variants, packed.key, given)


def test_out_must_not_overlap_the_weight(made):
    variant, packed = made
    memory = np.zeros(packed["weight"].nbytes + 1024, np.uint8)
    words = memory[: packed["weight"].nbytes].view(packed["weight"].dtype)
    words[...] = packed["weight"].reshape(-1)
    moved = Packed(packed.packing, {**packed, "weight": words.reshape(packed["weight"].shape)})
    out = memory[-2048:][: 2 * 3 * 64].view(np.float16).reshape(3, 64)
    with pytest.raises(LaunchError, match="out and weight share memory"):
        check_call([variant], packed.key, Operands(X, moved, None, out, None, X))
