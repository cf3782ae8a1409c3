"""Packing where arrays lie gives the same bytes as packing in NumPy, for every library that is installed."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladder.decode.geometry import STEPS, WORDS
from ladder.decode.program import Slot
from ladder.errors import PackingError
from ladder.graph.matmul import matmul
from ladder.registry import devices, types
from ladder.scheduler import Packing, choose_packing
from ladder.scheduler.packing_arrays import runs
from ladder.ttype import Quantized, quantize, weight_type

INT4 = types["int4"]


def packing_of(weight, n=37, k=300, activation="bfloat16") -> Packing:
    op = matmul(None, n, k, activation=activation, weight=weight)
    return choose_packing(op, devices["h200"].features)


def raw(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def parts_of(weights: Quantized, to: Any = lambda array: array) -> dict[str, Any]:
    parts: dict[str, Any] = {"codes": to(weights.codes)}
    for name in ("scales", "zeros"):
        if getattr(weights, name) is not None:
            parts[name] = to(getattr(weights, name))
    if weights.global_scale is not None:
        parts["global_scale"] = float(weights.global_scale)
    return parts


def assert_same(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    assert set(found) == set(wanted)
    for name, array in wanted.items():
        assert found[name].shape == array.shape, name
        assert np.array_equal(raw(found[name]), raw(array)), name


def check_numpy(weights: Quantized, packing: Packing) -> None:
    arrays = packing.pack_arrays(**parts_of(weights))
    assert_same(arrays, packing.pack(weights))
    back = packing.unpack_arrays(arrays)
    assert Quantized(weights.type, **back) == weights


def test_every_element_gets_the_same_bytes(element, weights_of):
    packing = packing_of(element)
    undefined = packing.program.undefined
    check_numpy(weights_of(packing.weight, 37, 300, undefined=undefined), packing)


def test_every_grouped_type_gets_the_same_bytes(grouped, weights_of):
    packing = packing_of(grouped)
    undefined = packing.program.undefined
    check_numpy(weights_of(packing.weight, 37, 300, undefined=undefined), packing)


@pytest.mark.parametrize("group", ["tensor", "channel", 1, 20, 64, 100, (3, 40), (None, 128)])
@pytest.mark.parametrize("zero", [None, "integer", "float", "rescaled"])
def test_every_group_and_convention_gets_the_same_bytes(group, zero, weights_of):
    packing = packing_of(INT4.grouped(group, zero=zero))
    check_numpy(weights_of(packing.weight, 37, 300), packing)


def test_chunks_give_the_same_bytes(monkeypatch, weights_of):
    monkeypatch.setattr("ladder.scheduler.packing_arrays.CHUNK_CODES", 1)
    packing = packing_of(INT4)
    check_numpy(weights_of(INT4, 37, 300), packing)


def test_runs_cover_every_bit_of_the_words_once():
    for name in ("int4", "nf4", "int8"):
        program = packing_of(name).program
        bits = [32 * run.word + run.position + i for run in runs(program) for i in range(run.count)]
        assert sorted(bits) == list(range(32 * program.words))
        assert all(run.position + run.count <= 32 for run in runs(program))


def scattered(bits: int, seed: int) -> Packing:
    """A packing whose bits lie anywhere, with two relabellings."""
    rng = np.random.default_rng(seed)
    steps, words = STEPS[bits], WORDS[bits]
    places = rng.permutation(32 * words).reshape(steps, 4, 2, bits)
    relabels = tuple(tuple(rng.permutation(2**bits).tolist()) for _ in range(2))
    program = replace(
        packing_of("int4").program,
        bits=bits,
        words=words,
        steps=steps,
        step_class=(0,) * steps,
        relabels=relabels,
        slots=tuple(
            tuple(
                (Slot(tuple(low.tolist())), Slot(tuple(high.tolist()), relabel=1))
                for low, high in step
            )
            for step in places
        ),
    )
    return Packing(weight_type(types[f"uint{bits}"]), 17, 70, program)


@given(bits=st.integers(1, 8), seed=st.integers(0, 1000))
def test_any_placement_of_bits_gets_the_same_bytes(bits, seed, weights_of):
    """Nothing that a decode program may ask of a packing is left out."""
    packing = scattered(bits, seed)
    weights = weights_of(packing.weight, 17, 70, seed=seed)
    check_numpy(weights, packing)
    assert packing.unpack(packing.pack(weights)) == weights


@pytest.mark.parametrize(
    "parts, text",
    [
        ({"codes": np.zeros((37, 299), np.uint8)}, "codes are [37, 299], the packing is for"),
        ({"scales": None}, "scales are missing"),
        ({"zeros": np.zeros((37, 5), np.uint8)}, "zeros are not part of the type"),
        ({"scales": np.ones((37, 4), np.float16)}, "scales are [37, 4], expected [37, 5]"),
    ],
)
def test_parts_that_do_not_fit_are_named(parts, text, weights_of):
    packing = packing_of(INT4.grouped(64))
    good = parts_of(weights_of(packing.weight, 37, 300))
    with pytest.raises(PackingError) as caught:
        packing.pack_arrays(**{**good, **parts})
    assert caught.value.what.startswith(text)


def torch_or_skip() -> ModuleType:
    return pytest.importorskip("torch", reason="torch is not installed")


@pytest.mark.parametrize("name", ["int4", "nf4", "int3", "fp8_e4m3fn"])
@pytest.mark.parametrize("group", ["tensor", 20, 64])
@pytest.mark.parametrize("zero", [None, "integer"])
def test_torch_tensors_get_the_same_bytes(name, group, zero, weights_of):
    torch = torch_or_skip()
    packing = packing_of(types[name].grouped(group, zero=zero))
    weights = weights_of(packing.weight, 37, 300, undefined=packing.program.undefined)
    arrays = packing.pack_arrays(**parts_of(weights, lambda a: torch.from_numpy(a.copy())))
    assert all(isinstance(array, torch.Tensor) for array in arrays.values())
    found = {
        name: array.view(getattr(torch, f"int{8 * array.itemsize}")).numpy()
        for name, array in arrays.items()
    }
    assert_same(found, packing.pack(weights))
    back = packing.unpack_arrays(arrays)
    assert np.array_equal(back["codes"].numpy(), weights.codes)


def test_torch_bfloat16_scales_keep_their_type(weights_of):
    torch = torch_or_skip()
    packing = packing_of(INT4.grouped(64, scale="bfloat16"))
    weights = weights_of(packing.weight, 37, 300)
    scales = torch.from_numpy(weights.scales.view(np.int16).copy()).view(torch.bfloat16)
    arrays = packing.pack_arrays(torch.from_numpy(weights.codes.copy()), scales=scales)
    assert arrays["scales"].dtype == torch.bfloat16
    assert torch.equal(packing.unpack_arrays(arrays)["scales"], scales)


@pytest.mark.parametrize("bits", range(1, 9))
def test_torch_moves_bits_anywhere(bits, weights_of):
    torch = torch_or_skip()
    packing = scattered(bits, seed=bits)
    weights = weights_of(packing.weight, 17, 70)
    arrays = packing.pack_arrays(torch.from_numpy(weights.codes.copy()))
    assert arrays["weight"].dtype == torch.uint32
    found = arrays["weight"].view(torch.int32).numpy()
    assert np.array_equal(found, packing.pack(weights)["weight"].view(np.int32))
    assert np.array_equal(packing.unpack_arrays(arrays)["codes"].numpy(), weights.codes)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_dense_codes_come_as_raw_bits_too(name):
    packing = packing_of(name, activation=name)
    weights = quantize(np.random.default_rng(0).standard_normal((37, 300)), name)
    check_numpy(weights, packing)
    for codes in (weights.codes.view(np.int16), weights.codes.astype(np.int32)):
        assert_same(packing.pack_arrays(codes), packing.pack(weights))
    with pytest.raises(PackingError, match="not integers") as caught:
        packing.pack_arrays(weights.codes.view(np.float16))
    assert "uint16" in caught.value.hint
