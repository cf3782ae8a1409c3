"""Classes of instructions, one small kernel each, against NumPy written for the test."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from ladder.emulator import run


def beside(name):
    """A module that lies beside this one; tests are no package."""
    spec = importlib.util.spec_from_file_location(
        f"emulator_{name}", Path(__file__).with_name(f"{name}.py")
    )
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


probes, copies = beside("probes"), beside("probes_copies")

SCHEDULES = [("random", 0), ("random", 1), ("eager", 0), ("lazy", 0)]


def launch(
    lower, build, arguments, threads, grid=(1, 1, 1), cluster=(1, 1, 1), schedules=SCHEDULES
):
    listing = lower(build())
    for schedule, seed in schedules:
        run(listing, arguments, grid, threads, schedule=schedule, seed=seed, cluster=cluster)
    return arguments


def test_register_instructions(lower):
    """Two of them have oracles in test_semantics; the others are spelled out here."""
    i = probes.bits(np.random.default_rng(0), (3, probes.ROWS, 32))
    o = np.zeros((len(probes.REGISTER_OPS) + 3, probes.ROWS, 32), np.uint32)
    launch(
        lower, probes.registers, {"I": i, "O": o}, 32, (probes.ROWS, 1, 1), schedules=SCHEDULES[:1]
    )
    a, b, c = i.astype(np.uint64)
    names = [name for name, _ in probes.REGISTER_OPS]
    want = {
        "and.b32": a & b,
        "or.b32": a | b,
        "xor.b32": a ^ b,
        "not.b32": ~a,
        "add.u32": a + b,
        "mul.lo.u32": a * b,
        "mad.lo.u32": a * b + c,
        "min.u32": np.minimum(a, b),
        "max.u32": np.maximum(a, b),
        "shl.b32": np.where(c > 31, 0, a << np.minimum(c, np.uint64(31))),
        "shr.u32": np.where(c > 31, 0, a >> np.minimum(c, np.uint64(31))),
        "popc.b32": np.array([int(x).bit_count() for x in a.ravel()], np.uint64).reshape(a.shape),
    }
    for name, value in want.items():
        np.testing.assert_array_equal(o[names.index(name)], value.astype(np.uint32), err_msg=name)
    np.testing.assert_array_equal(o[-3], (i[0] & i[1]) | i[2])
    np.testing.assert_array_equal(o[-2], i[0] ^ i[1] ^ i[2])


def test_conversions_cover_all_codes(lower):
    rng = np.random.default_rng(1)
    f = rng.integers(0, 1 << 32, (2, 2048, 32), dtype=np.uint64).astype(np.uint32).view(np.float32)
    o = np.zeros((6, 2048, 32), np.uint32)
    launch(lower, probes.conversions, {"F": f, "O": o}, 32, (2048, 1, 1), schedules=SCHEDULES[:1])
    import ml_dtypes

    words = np.arange(65536, dtype=np.uint16).view(np.uint8).reshape(2048, 32, 2)
    for row, dtype in ((0, ml_dtypes.float8_e4m3fn), (1, ml_dtypes.float8_e5m2)):
        got = o[row][..., None].view(np.float16).astype(np.float64)
        np.testing.assert_array_equal(got, words.view(dtype).astype(np.float64))
    with np.errstate(all="ignore"):
        pair = np.stack([f[1], f[0]], -1).astype(np.float16)
        np.testing.assert_array_equal(o[2][..., None].view(np.float16), pair)
        single = f[0].astype(np.float64) * f[1] + f[0]
        near = np.isclose(o[4].view(np.float32), single, rtol=1e-6) | ~np.isfinite(single)
        assert (near | (np.abs(single) < 1e-37) | (np.abs(single) > 3e38)).all()
        product = f[0] * f[1]
    np.testing.assert_array_equal(o[5].view(np.float32), product)
    for row in (4, 5):  # no payload comes through, as on an H200
        assert set(o[row][np.isnan(o[row].view(np.float32))]) == {0x7FFFFFFF}


def lane_words(i):
    return i.reshape(-1)


def test_exchanges_between_lanes(lower):
    rng = np.random.default_rng(2)
    i = rng.integers(0, 1 << 32, (8, 32), dtype=np.uint64).astype(np.uint32)
    o = np.zeros((27, 32), np.uint32)
    launch(lower, probes.exchanges, {"I": i, "O": o}, 32)
    plain, turned = i[:4].reshape(4, 8, 4), i[4:].reshape(4, 8, 4)
    lanes = np.arange(32)
    for m in range(4):
        np.testing.assert_array_equal(o[m], plain[m].reshape(-1))
        halves = turned[m].view(np.uint16).reshape(8, 8).T
        np.testing.assert_array_equal(o[4 + m].view(np.uint16).reshape(8, 8), halves)
    stored = np.stack([o[0], o[5], o[2], o[7]])
    for m in range(4):
        want = stored[m].view(np.uint16).reshape(8, 8).T
        np.testing.assert_array_equal(o[8 + m].view(np.uint16).reshape(8, 8), want)
    np.testing.assert_array_equal(
        o[12].view(np.uint16).reshape(8, 8), o[1].view(np.uint16).reshape(8, 8).T
    )
    r = o[0]
    np.testing.assert_array_equal(o[13], r[lanes ^ 5])
    np.testing.assert_array_equal(o[14], r[np.where(lanes >= 3, lanes - 3, lanes)])
    np.testing.assert_array_equal(o[15], r[np.where(lanes < 30, lanes + 2, lanes)])
    source = (lanes & 24) | (o[1] & 7)  # segments of 8: c = 0x181F
    np.testing.assert_array_equal(o[16], r[source.astype(int)])
    other = lanes ^ 9  # beyond the segment of 8, so every lane keeps its own
    np.testing.assert_array_equal(o[17], np.where(other <= (lanes & 24 | 7), r[other], r))
    ballot = sum(int(r[lane] & 1) << lane for lane in range(32))
    assert (o[18] == ballot).all()
    assert (o[19] == int((r & 64).any())).all()
    assert (o[20] == int((r & 128 != 0).all())).all()
    assert (o[24] == r.max()).all()
    assert (o[25] == r.min()).all()
    assert (o[26] == r.sum(dtype=np.uint32)).all()
    assert o[22].sum() == 1
    assert o[22][o[21][0]] == 1


@pytest.mark.parametrize("kind", probes.MMA)
def test_products_of_exact_operands(lower, kind):
    """Against a plain triple loop over the fragment maps of the PTX ISA."""
    arguments = probes.operands(kind)(np.random.default_rng(3))
    launch(lower, probes.product(kind), arguments, 32, (probes.ROWS, 1, 1), schedules=SCHEDULES[:1])
    a, c, o = arguments["A"], arguments["C"], arguments["O"]
    for row in (0, 1, 2, probes.ROWS - 1):
        np.testing.assert_array_equal(
            o[row],
            (c[row] + brute(kind, a[row]))
            .astype(o.dtype if kind not in "s8u8" else np.int32)
            .view(o.dtype),
        )


def elements(kind, words):
    """[registers, 32] words -> [registers, 32, J] numbers."""
    import ml_dtypes

    dtype = {
        "f16": np.float16,
        "bf16": ml_dtypes.bfloat16,
        "e4m3": ml_dtypes.float8_e4m3fn,
        "e5m2": ml_dtypes.float8_e5m2,
        "s8": np.int8,
        "u8": np.uint8,
    }.get(kind)
    if dtype is None:
        return (words[..., None] >> np.arange(32, dtype=np.uint32) & 1).astype(np.float64)
    return words[..., None].view(dtype).astype(np.float64)


def brute(kind, words):
    values = elements(kind, words)
    per = values.shape[-1]
    a, b = np.zeros((16, 8 * per)), np.zeros((8 * per, 8))
    for lane in range(32):
        g, t = lane // 4, lane % 4
        for j in range(per):
            for i in range(4):
                a[g + 8 * (i & 1), per * t + j + 4 * per * (i >> 1)] = values[i, lane, j]
            for i in range(2):
                b[per * t + j + 4 * per * i, g] = values[4 + i, lane, j]
    d = a @ b
    lanes = np.arange(32)
    return np.stack([d[lanes // 4 + 8 * (i >> 1), lanes % 4 * 2 + (i & 1)] for i in range(4)])


def test_shortened_copies_fill_with_zeros(lower):
    i = np.arange(512, dtype=np.uint32) * np.uint32(0x01010101) + np.uint32(0x11223344)
    o = np.zeros((3, 128), np.uint32)
    launch(lower, copies.partial_copies, {"I": i, "O": o}, 32)
    for row, size in ((0, 16), (1, 8), (2, 4)):
        raw = i.view(np.uint8)[row * 512 : row * 512 + 32 * size].reshape(32, size)
        limit = {16: 17, 8: 9, 4: 5}[size]
        kept = (np.arange(32) % 17) % limit
        want = np.where(np.arange(size) < kept[:, None], raw, 0).astype(np.uint8).reshape(-1)
        got = o[row].view(np.uint8)
        np.testing.assert_array_equal(got[: len(want)], want)
        assert (got[len(want) :].view(np.uint32) == 7).all()


def test_bulk_copies_move_and_add(lower):
    i = np.random.default_rng(4).integers(0, 1000, (4, 256)).astype(np.uint32)
    listing = lower(copies.bulk_copies())
    for schedule, seed in SCHEDULES:
        o, r = np.zeros_like(i), np.full(256, 5, np.uint32)
        run(listing, {"I": i, "O": o, "R": r}, (4, 1, 1), 64, schedule=schedule, seed=seed)
        want = i.copy()
        want[:, ::4] += 1
        np.testing.assert_array_equal(o, want)
        np.testing.assert_array_equal(r, 5 + want.sum(0))


def cute_swizzle(address, span):
    """CuTe's Swizzle<B, 4, 3> on byte addresses, B = 1, 2, 3 for 32, 64, 128 bytes."""
    b = {"none": 0, "32B": 1, "64B": 2, "128B": 3}[span]
    mask = ((1 << b) - 1) << 7
    return address ^ ((address & mask) >> 3)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("swizzle", copies.SPANS)
def test_tensor_copies_follow_the_swizzle(lower, swizzle, rank):
    arguments = copies.tensor_arguments(swizzle, rank)(np.random.default_rng(5))
    launch(lower, copies.tensor_copies(swizzle, rank), arguments, 32)
    x, y, o = arguments["X_map"].array, arguments["Y_map"].array, arguments["O"]
    inner, outer = copies.box_of(swizzle)
    start = (24, 5, 1)[:rank]
    full = x.reshape((1,) * (3 - rank) + x.shape)
    begin = (*start, *(0,) * (3 - rank))
    rows = outer if rank > 1 else 1
    box = np.zeros((rows, inner), np.float16)
    for r in range(rows):
        for c in range(inner):
            z, v, u = begin[2], begin[1] + r, begin[0] + c
            if z < full.shape[0] and v < full.shape[1] and u < full.shape[2]:
                box[r, c] = full[z, v, u]
    address = np.arange(rows)[:, None] * (2 * inner) + 2 * np.arange(inner)
    np.testing.assert_array_equal(o[cute_swizzle(address, swizzle) // 2], box)
    back = np.zeros_like(full)
    region = (
        slice(begin[2], begin[2] + 1),
        slice(begin[1], begin[1] + rows),
        slice(begin[0], begin[0] + inner),
    )
    back[region] = full[region]
    np.testing.assert_array_equal(y.reshape(full.shape), back)
