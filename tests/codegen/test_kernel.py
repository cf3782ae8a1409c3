from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladder.codegen.kernel import (
    BUFFER_ROLES,
    SCALAR_ROLES,
    CeilDiv,
    Launch,
    LoweredKernel,
    Parameter,
)
from ladder.errors import ArtifactError, LaunchError

extents = st.integers(1, 1000)
launches = st.builds(
    Launch,
    grid=st.tuples(*[extents | st.builds(CeilDiv, extents)] * 3),
    block=st.tuples(st.integers(1, 16), st.integers(1, 8), st.integers(1, 8)),
    shared_bytes=st.integers(0, 2**18),
    attributes=st.sampled_from([(), ("pdl",)]),
    cluster=st.none() | st.tuples(*[st.integers(1, 4)] * 3),
)
buffers = st.builds(
    Parameter,
    st.text("abc", min_size=1),
    st.just("buffer"),
    st.just("float16"),
    st.sampled_from(BUFFER_ROLES),
)
scalars = st.builds(
    Parameter,
    st.text("abc", min_size=1),
    st.just("scalar"),
    st.sampled_from(["int32", "int64"]),
    st.sampled_from(SCALAR_ROLES),
)
kernels = st.builds(
    LoweredKernel,
    name=st.text("abc", min_size=1),
    source=st.text(max_size=20),
    parameters=st.lists(buffers | scalars, unique_by=lambda p: p.role).map(tuple),
    launch=launches,
    listing=st.none() | st.just({"steps": [1, 0.5, "x", None]}),
    device_arch=st.sampled_from(["sm_80", "sm_90a"]),
)


@given(kernels)
def test_a_kernel_survives_json(kernel):
    back = LoweredKernel.from_json(json.loads(json.dumps(kernel.to_json())))
    assert back == kernel
    assert hash(back) == hash(kernel)
    assert str(back) == str(kernel)


@given(st.integers(0, 10**6), extents)
def test_blocks_cover_the_rows_and_no_more(m, by):
    blocks = CeilDiv(by)(m)
    assert blocks * by >= m
    assert (blocks - 1) * by < m or blocks == 0


def test_the_grid_follows_the_rows():
    assert Launch((4, CeilDiv(16), 1), (32, 1, 1)).grid_for(33) == (4, 3, 1)


def test_values_print():
    parameter = Parameter("x_ptr", "buffer", "float16", "x")
    launch = Launch((CeilDiv(16), 2, 1), (128, 1, 1), 1024, ("pdl",), (2, 1, 1))
    kernel = LoweredKernel("k", "", (parameter, Parameter("m", "scalar", "int32", "m")), launch)
    assert str(kernel) == (
        "k(x_ptr: float16* = x, m: int32 = m) on sm_90a: "
        "grid (ceil(m / 16), 2, 1), block (128, 1, 1), shared 1024 B, cluster (2, 1, 1), pdl"
    )
    assert kernel.parameter("x") is parameter
    assert kernel.parameter("bias") is None


@pytest.mark.parametrize(
    "make, text",
    [
        (lambda: Parameter("x", "tensor", "float16", "x"), "of kind 'tensor'"),
        (lambda: Parameter("x", "buffer", "float16", "m"), "has role 'm'"),
        (lambda: Parameter("m", "scalar", "int32", "x"), "has role 'x'"),
        (lambda: Parameter("m", "scalar", "float32", "m"), "has dtype 'float32'"),
        (lambda: CeilDiv(0), "divides by 0"),
        (lambda: Launch((1, 0, 1), (1, 1, 1)), "grid is"),
        (lambda: Launch((1, 1, 1), (1025, 1, 1)), "a block of 1025 threads"),
        (lambda: Launch((1, 1, 1), (1, 1, 1), 0, ("fast",)), "unknown launch attributes"),
        (
            lambda: LoweredKernel(
                "k", "", (Parameter("a", "buffer", "x", "x"),) * 2, Launch((1, 1, 1), (1, 1, 1))
            ),
            "roles given twice: x",
        ),
    ],
)
def test_nonsense_is_refused_where_it_is_said(make, text):
    with pytest.raises(LaunchError, match=text):
        make()


@pytest.mark.parametrize(
    "name", ["name", "source", "parameters", "launch", "listing", "device_arch"]
)
def test_a_record_without_a_field_is_refused(name):
    record = LoweredKernel("k", "", (), Launch((1, 1, 1), (1, 1, 1))).to_json()
    del record[name]
    with pytest.raises(ArtifactError, match=f"KeyError: '{name}'"):
        LoweredKernel.from_json(record)


def test_rows_end_where_the_grid_does():
    assert Launch((4, CeilDiv(16), 1), (32, 1, 1)).most_rows == 65535 * 16
    assert Launch((CeilDiv(16), 1, 1), (32, 1, 1)).most_rows == (2**31 - 1) * 16
    assert Launch((4, 1, 1), (32, 1, 1)).most_rows is None
