"""Arrays whose memory is not what their name says, and other operands that no kernel may get."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import ladder
from ladder.errors import LadderError, LaunchError, PackingError
from ladder.runtime.arrays import view
from ladder.runtime.packed import Packed


@pytest.fixture(scope="module")
def made():
    """A kernel with its text alone, weights and activations."""
    from ladder.codegen.lower import lower
    from ladder.runtime.kernel import Kernel
    from ladder.runtime.variant import Variant

    rng = np.random.default_rng(0)
    q = ladder.quantize(rng.standard_normal((24, 72)), ladder.types["int4"].grouped(32))
    op = ladder.matmul(m=3, n=24, k=72, activation="float16", weight=q.type, bias=True)
    plan = ladder.schedule(op, "h200", access="scalar")
    kernel = Kernel([Variant(plan, lower(plan), {})], plan, plan.packing)
    x = rng.standard_normal((3, 72)).astype(np.float16)
    return SimpleNamespace(
        kernel=kernel, op=op, q=q, x=x, bias=np.ones(24, np.float16), packed=kernel.pack(q)
    )


def call(made, **change):
    given = {"x": made.x, "packed": made.packed, "bias": made.bias, "out": None, **change}
    return made.kernel(**given, device="emulator")


def frozen(array):
    array.setflags(write=False)
    return array


@pytest.mark.parametrize("name", ["x", "bias", "out"])
def test_swapped_bytes_are_refused_wherever_they_come(made, name):
    given = {"x": made.x, "bias": made.bias, "out": np.zeros((3, 24), np.float16)}
    with pytest.raises(LaunchError, match="the bytes of >f2 are swapped") as caught:
        call(made, **{name: given[name].astype(">f2")})
    assert caught.value.hint == "convert the array: array.astype('float16')"


def test_swapped_bytes_behind_the_cuda_array_interface_are_refused():
    facts = {"typestr": ">f2", "shape": (2,), "data": (0, False), "strides": None, "version": 3}

    class Foreign:
        __cuda_array_interface__ = facts

    with pytest.raises(LaunchError, match="the bytes of >f2 are swapped"):
        view(Foreign())


def test_a_mask_is_not_ignored(made):
    with pytest.raises(LaunchError, match="masked array") as caught:
        call(made, x=np.ma.array(made.x, mask=made.x > 0))
    assert "filled(0)" in caught.value.hint


def test_a_frozen_output_is_refused_before_anything_runs(made):
    out = np.full((3, 24), 7, np.float16)
    with pytest.raises(LaunchError, match="out is read-only") as caught:
        call(made, out=frozen(out))
    assert (caught.value.at, (out == 7).all()) == ("out", True)


STRIDES = {
    "row gap": lambda rng: rng.standard_normal((3, 90)).astype(np.float16)[:, 5:77],
    "transposed": lambda rng: rng.standard_normal((72, 3)).astype(np.float16).T,
    "one row": lambda rng: np.broadcast_to(rng.standard_normal(72).astype(np.float16), (3, 72)),
    "every other": lambda rng: rng.standard_normal((6, 144)).astype(np.float16)[::2, ::2],
    "odd address": lambda rng: _odd(rng.standard_normal((3, 72)).astype(np.float16)),
}


def _odd(x):
    memory = np.frombuffer(b"\0" + x.tobytes(), np.uint8)
    return memory[1:].view(np.float16).reshape(x.shape)


@pytest.mark.parametrize("pattern", STRIDES)
def test_strides_mean_the_same_to_kernel_plan_and_operator(made, pattern):
    """C47, C48: a real kernel in the emulator and the plan's NumPy read what the operator reads."""
    x = STRIDES[pattern](np.random.default_rng(47))
    want = made.op.reference(np.ascontiguousarray(x), made.q, made.bias)
    for y in (call(made, x=x), made.kernel.plan.run(x, made.q, made.bias)):
        np.testing.assert_allclose(y, want, rtol=2e-3, atol=2e-2)


def test_walking_backwards_is_refused_or_copied(made):
    """C47: negative strides are read right or not at all."""
    want = made.op.reference(made.x[:, ::-1], made.q, made.bias)
    np.testing.assert_allclose(
        made.kernel.plan.run(made.x[:, ::-1], made.q, made.bias), want, rtol=2e-3, atol=2e-2
    )
    for x in (made.x[::-1], made.x[:, ::-1]):
        with pytest.raises(LadderError, match="strides") as caught:
            call(made, x=x)
        assert "ascontiguousarray" in caught.value.hint


@pytest.mark.parametrize("given", [None, np.zeros((24, 72)), [[1.0]], "q"])
def test_only_quantised_weights_are_packed(made, given):
    with pytest.raises(PackingError, match=r"weights is .*, not a Quantized") as caught:
        made.kernel.pack(given)
    assert "ladder.quantize" in caught.value.hint


@pytest.mark.parametrize("place", ["missing/p.npz", "."])
def test_packed_weights_that_cannot_be_saved_say_so_and_leave_nothing(made, tmp_path, place):
    with pytest.raises(PackingError, match="cannot write packed weights") as caught:
        made.packed.save(tmp_path / place)
    assert caught.value.at == str(tmp_path / place)
    assert not list(tmp_path.iterdir())


def test_a_flipped_bit_anywhere_in_a_file_of_weights_is_found(made, tmp_path):
    """C72, weights: what loads is what was saved, bit by bit, or it is an error."""
    made.packed.save(tmp_path / "whole.npz")
    content = (tmp_path / "whole.npz").read_bytes()
    refused = 0
    for place in range(0, len(content), 29):
        damaged = bytearray(content)
        damaged[place] ^= 0x41
        (tmp_path / "damaged.npz").write_bytes(damaged)
        try:
            assert Packed.load(tmp_path / "damaged.npz", made.kernel.packing) == made.packed
        except PackingError:
            refused += 1
    assert refused > len(content) // 29 // 2


@pytest.mark.parametrize("device", ["cpu", "xpu", "cuda:x", "cuda:-1", 1.5])
def test_a_device_that_is_none_is_named_before_a_driver_is_looked_for(made, device):
    with pytest.raises(LaunchError, match=r"no device is called|not the name or number") as caught:
        made.kernel(made.x, made.packed, made.bias, device=device)
    assert "emulator" in caught.value.hint
