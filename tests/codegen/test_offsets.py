"""Index arithmetic of the emitted text: 64 bits wherever an array can be that large."""

from __future__ import annotations

import os
import re
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import ladder
from ladder.codegen.lower import lower
from ladder.errors import PackingError, ShapeError
from ladder.graph.matmul import MAX_EXTENT
from tests.codegen.conftest import Emulated

TYPE = {"int": 32, "int64_t": 64}


def index_bits(source: str, buffer: str) -> set[int]:
    """Width of the index of every access to a buffer: a sum is as wide as its widest term (C++, [expr.arith.conv])."""
    declared = {
        name: TYPE[kind] for kind, name in re.findall(r"\b(int|int64_t) (\w+)(?: =|[;,)])", source)
    }
    found = set()
    for start in (match.end() for match in re.finditer(rf"\b{buffer}\[", source)):
        depth, end = 1, start
        while depth:
            depth += {"[": 1, "]": -1}.get(source[end], 0)
            end += 1
        index = source[start : end - 1]
        wide = "(int64_t)" in index or any(
            declared.get(name) == 64 for name in re.findall(r"\w+", index)
        )
        found.add(64 if wide else 32)
    return found


def both_families(n: int, k: int, weight: Any) -> list[str]:
    op = ladder.matmul(m=None, n=n, k=k, activation="float16", weight=weight)
    few = ladder.schedule(op, "h200", family="skinny", m_range=(2, 8))
    ring = ladder.schedule(op, "h200", family="ring").plan_for(4096)
    chosen = [few.plan_for(2), ring]  # of one token there is one row, at offsets below K
    assert [plan.family for plan in chosen] == ["skinny", "ring"]
    return [lower(plan).source for plan in chosen]


def test_the_width_is_read_as_c_does() -> None:
    text = "int m, int64_t s) { int a = 3; int64_t b = 4; y[a]; y[a + x[b]]; y[((int64_t)a) * 2]; x[m + b];"
    assert index_bits(text, "y") == {32, 64}
    assert index_bits(text, "x") == {64}
    assert index_bits("int a; x[a + 1];", "x") == {32}


@pytest.mark.parametrize("n, k", [(28672, 64), (16, 33), (64, 4096)])
def test_activations_and_outputs_have_64_bit_offsets(n: int, k: int) -> None:
    """C60: M is open, so M * N and M * K may pass 2^31 in any kernel: N = 28672 does from M = 74899 on."""
    for source in both_families(n, k, "int4"):
        assert index_bits(source, "x_ptr") == {64}
        assert index_bits(source, "y_ptr") == {64}


@pytest.mark.parametrize(
    "n, k, group",
    [
        (131072, 131072, 256),  # 4 G words
        (1048576, 6144, 32),  # 1.6 G words
        (4096, 2**26, 1024),  # 64 G words
        (2**24, 1024, 32),  # 4 G words, 0.5 G scales
        (2**20, 2**17, 32),  # 32 G words, 4 G scales
    ],
)
def test_weights_and_scales_have_64_bit_offsets_where_they_are_large(
    n: int, k: int, group: int
) -> None:
    """C60: int8 weights and their scales, 64 bits as soon as an array holds more than 2^31 - 1 elements."""
    weight = ladder.types["int8"].grouped(group)
    op = ladder.matmul(m=1, n=n, k=k, activation="float16", weight=weight)
    shapes = ladder.schedule(op, "h200").packing.shapes()
    for source in both_families(n, k, weight):
        for name in ("weight", "scales"):
            if np.prod(shapes[name][0], dtype=object) > 2**31 - 1:
                assert index_bits(source, f"{name}_ptr") == {64}, name


@pytest.mark.parametrize("n, k, group", [(131072, 131072, 256), (64, MAX_EXTENT, 32)])
def test_a_specialised_kernel_counts_them_as_wide(n: int, k: int, group: int) -> None:
    """Bulk copies start at 64-bit offsets, within one band of 64 rows too."""
    weight = ladder.types["int8"].grouped(group)
    op = ladder.matmul(m=None, n=n, k=k, activation="float16", weight=weight)
    plan = ladder.schedule(op, "h200", family="specialised", m_range=(0, None)).plan_for(4096)
    source = lower(plan).source
    for name in ("weight", "scales"):
        if np.prod(plan.packing.shapes()[name][0], dtype=object) > 2**31 - 1:
            assert index_bits(source, f"{name}_ptr") == {64}, name
    assert index_bits(source, "y_ptr") == {64}


@pytest.mark.slow
def test_a_row_past_2_to_the_31_is_read_and_written_where_it_lies(emulated: Emulated) -> None:
    """C60: two rows of x lie 2^31 elements apart; the second one is its own, not the first or what lies between."""
    if os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") < 8 * 2**30:
        pytest.skip("needs 8 GiB of free memory: the emulator takes a copy of x")
    apart = 2**31 + 64
    memory = np.zeros(apart + 64, np.float16)  # touched at both ends only
    x = as_strided(memory, (2, 64), (2 * apart, 2))
    rng = np.random.default_rng(60)
    x[...] = rng.standard_normal((2, 64))
    q = ladder.quantize(rng.standard_normal((16, 64)), ladder.types["int4"].grouped(32))
    op = ladder.matmul(m=2, n=16, k=64, activation="float16", weight=q.type, out="float32")
    y = emulated(ladder.schedule(op, "h200"), x, q)
    np.testing.assert_allclose(y, op.reference(x, q), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("n, k", [(MAX_EXTENT, 64), (64, MAX_EXTENT)])
def test_the_largest_extents_can_be_lowered(n: int, k: int) -> None:
    """C60: rows and columns are counted in 32 bits, so their largest number leaves room for padding."""
    both_families(n, k, ladder.types["int4"].grouped(32))


def test_past_the_largest_extent_the_declaration_refuses() -> None:
    """C60."""
    for extents in ({"m": MAX_EXTENT + 1}, {"n": 2**31 - 1}, {"k": 2**31}):
        with pytest.raises(ShapeError, match=f"not an integer in . .. {MAX_EXTENT}"):
            ladder.matmul(
                **{"m": 1, "n": 16, "k": 64, **extents}, activation="float16", weight="int4"
            )


def test_padding_of_groups_cannot_pass_2_to_the_31() -> None:
    """C60: groups of one column are padded to 16, so that 2^28 columns would become 2^32."""
    op = ladder.matmul(
        m=1, n=16, k=2**28, activation="float16", weight=ladder.types["int4"].grouped(1)
    )
    with pytest.raises(
        PackingError, match="makes 4294967296 columns, more than kernels count"
    ) as caught:
        ladder.schedule(op, "h200")
    assert "need no padding" in caught.value.hint
