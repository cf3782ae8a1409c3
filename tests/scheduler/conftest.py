"""Weights with random codes and metadata, and the error that a plan's arithmetic may make."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ladder.decode.reference import decode_atom, pack_atom
from ladder.registry import types
from ladder.scheduler import Plan
from ladder.ttype import GroupedType, Quantized, TType, weight_type

#: every element that weights can be made of
ELEMENTS = tuple(name for name, found in types.items() if isinstance(found, TType))
GROUPED = tuple(name for name, found in types.items() if isinstance(found, GroupedType))


def finite_codes(element: TType, undefined: tuple[int, ...] = ()) -> np.ndarray:
    """Codes of finite numbers that a decode can carry."""
    codes = np.flatnonzero(np.isfinite(element.values))
    return np.setdiff1d(codes, undefined)


def some_weights(
    given: GroupedType | TType, n: int, k: int, *, seed: int = 0, undefined: tuple[int, ...] = ()
) -> Quantized:
    """Random codes; scales of 2**-3 .. 4 with some mantissa where the type has one; zeros by convention."""
    wt = weight_type(given)
    rng = np.random.default_rng(seed)
    codes = finite_codes(wt.element, undefined)
    shape = wt.scale_shape(n, k)
    parts: dict[str, object] = {}
    if wt.scale is not None:
        mantissa = 1.0 if wt.scale == "e8m0" else rng.integers(8, 16, shape) / 8
        parts["scales"] = (np.exp2(rng.integers(-3, 2, shape)) * mantissa).astype(wt.scale_dtype)
    if wt.zero == "integer":
        # of codes with the same number the lowest, as the quantiser makes them
        _, lowest = np.unique(wt.element.values[codes] + 0.0, return_index=True)
        parts["zeros"] = rng.choice(codes[lowest], shape)
    elif wt.zero is not None:
        parts["zeros"] = rng.integers(-8, 8, shape).astype(wt.scale_dtype)
    if wt.second is not None:
        parts["global_scale"] = 0.375
    return Quantized(wt, rng.choice(codes, (n, k)), **parts)


def error_bound(plan: Plan, x: np.ndarray, weights: Quantized, y: np.ndarray) -> np.ndarray:
    """Largest |plan.run - y| for the exact result y, element by element.

    Every term of an output is rounded at most ``depth`` times in float32, each time by a part 2**-24 of a partial sum that
    is not larger than the sum of the terms' magnitudes: 16 products of a step, the steps between two flushes, scale *
    alpha, the offset, two fma for each flush and class, the K slices, global scale and bias. To that come what the decode
    itself rounds (nothing where it is lossless) and the rounding of the output.
    """
    cut, program = plan.packing.geometry, plan.packing.program
    steps = cut.padded_k // 16
    flushes = cut.blocks * max(1, plan.flushes_per_block)
    depth = 16 + steps + 4 + flushes * 2 * program.classes + plan.tiling.warps_k + 2
    u = 2.0**-24
    wt = weights.type
    values = wt.element.values[weights.codes]
    affine = plan.deferred if plan.zero == "sums" else program.affine
    beta = max(abs(float(a.beta)) for pair in affine for a in pair)
    rows, columns = wt.group_extents(*weights.shape)

    def spread(metadata: np.ndarray) -> np.ndarray:
        return metadata[np.arange(len(values)) // rows][:, np.arange(values.shape[1]) // columns]

    scale = np.ones_like(values)
    zero = np.zeros_like(values)
    if weights.scales is not None:
        scale = spread(np.abs(weights.scales.astype(np.float64)))
    if weights.zeros is not None:
        zeros = wt.element.values[weights.zeros] if wt.zero == "integer" else weights.zeros
        zero = spread(np.abs(zeros.astype(np.float64)))
    shift = zero if wt.zero == "rescaled" else scale * zero
    # the lane value is (value - beta) / alpha, so its share is at most |value| + |beta|
    magnitude = scale * (np.abs(values) + 2 * beta) + shift
    decoded = scale * np.abs(decoded_values(plan, weights) - values)
    second = float(weights.global_scale) if weights.global_scale is not None else 1.0
    terms = np.abs(x.astype(np.float64)) @ magnitude.T * second
    bound = depth * u / (1 - depth * u) * (terms + np.abs(y))
    bound += np.abs(x.astype(np.float64)) @ decoded.T * second
    limits = np.finfo(np.float32) if plan.op.out.name == "float32" else None
    half_ulp = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24}[plan.op.out.name]
    tiny = 0.0 if limits is not None else 2.0**-25
    return bound + half_ulp * (np.abs(y) + bound) + tiny


def decoded_values(plan: Plan, weights: Quantized) -> np.ndarray:
    """What the decode program makes of every code, by running it on atoms that hold one code alone."""
    packing = plan.packing
    program = packing.program
    codes = finite_codes(packing.element, program.undefined)
    atoms = np.broadcast_to(codes.astype(np.uint8)[:, None, None], (len(codes), 16, program.atom_k))
    table = np.zeros(1 << packing.element.bits)
    table[codes] = decode_atom(program, pack_atom(program, atoms))[:, 0, 0]
    return table[weights.codes]


@pytest.fixture(scope="session")
def weights_of() -> Callable[..., Quantized]:
    return some_weights


@pytest.fixture(scope="session")
def bound_of() -> Callable[..., np.ndarray]:
    return error_bound


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """``element`` stands for every element of the catalogue, ``grouped`` for every grouped type."""
    for name, values in (("element", ELEMENTS), ("grouped", GROUPED)):
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, values)
