"""4-bit activations: operator = plan = emulated kernel by the tensor cores that multiply them; integer sums are exact."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import ladder
from ladder.codegen.lower import lower
from ladder.codegen.machine_code import compile_kernel
from ladder.codegen.toolchain import Toolchain
from ladder.errors import LadderError, LosslessError, ScheduleError, ShapeError
from ladder.graph.draw import activations, row_scales
from ladder.runtime.error_bar import PROMISED, error_bar
from ladder.scheduler import Plan, choose_packing
from tests.codegen.conftest import Emulated

#: (activation, weight): every width, either sign on either side
KINDS = (
    *(("int4", name) for name in ("int1", "uint2", "int3", "bipolar3", "ternary", "int4")),
    *(("int4", name) for name in ("uint4", "offset4")),
    *(("uint4", name) for name in ("int2", "uint3", "int4", "uint4")),
)
#: the lanes of a weight where they are not those of int4
UNSIGNED = ("uint4",)
DEVICES = ("a100", "rtx3090", "orin", "rtx4090")


def operator(
    activation: str, name: str, n: int, k: int, group: Any = "channel", **more: Any
) -> ladder.MatMul:
    wt: Any = ladder.types[name].grouped(group, scale="float32", zero=more.pop("zero", None))
    scaled = {"activation_scale": True, **more}
    return ladder.matmul(None, n, k, activation=activation, weight=wt, **scaled)


def operands(op: ladder.MatMul, m: int, seed: int = 0) -> tuple[NDArray[Any], dict[str, Any]]:
    """Activations as numbers, and all that a call takes: they are stored two to a byte there."""
    rng = np.random.default_rng([seed, m])
    weights = ladder.quantize(rng.standard_normal((op.n, op.k)), op.weight)
    bias = rng.standard_normal(op.n).astype(op.out.dtype) if op.bias else None
    x = activations(op, rng, m)
    stored = op.activation.pack(x)
    assert stored.shape == (m, -(-op.k // 2))
    assert stored.dtype == np.uint8
    given_ = {"x": stored, "weights": weights, "bias": bias, "x_scale": row_scales(op, rng, m)}
    return x, given_


def relative(y: NDArray[Any], exact: NDArray[np.float64]) -> float:
    """Relative error of the whole output, where that is not zero; NaN where something was not written."""
    gap, size = (float(np.linalg.norm(part)) for part in (y.astype(np.float64) - exact, exact))
    return gap / size if size else gap


def check(
    emulated: Emulated, op: ladder.MatMul, m: int, device: str = "a100", **fixed: Any
) -> Plan:
    """The kernel against the operator and against the plan."""
    plan: Any = ladder.schedule(replace(op, m=m), device, **fixed)
    x, given_ = operands(op, m)
    y, wanted = emulated(plan, **given_), plan.run(**given_)
    exact = op.reference(x, given_["weights"], given_["bias"], given_["x_scale"])
    assert relative(y, exact) <= error_bar(op)
    # float32 totals are added in one order by both
    assert relative(y, wanted.astype(np.float64)) <= PROMISED
    return plan


@pytest.mark.parametrize("kind, m", list(zip(KINDS, cycle((1, 16, 77)))))
def test_what_the_search_chooses(emulated: Emulated, kind: tuple[str, str], m: int) -> None:
    """K = 333 is odd: rows end with half a byte, and are read value by value."""
    activation, name = kind
    plan = check(emulated, operator(*kind, 75, 333), m)
    lanes = "uint4" if name in UNSIGNED else "int4"
    pair = lanes if lanes == activation else f"{lanes}.{activation}"
    assert plan.instruction == f"mma.m16n8k64.{pair}"
    assert (plan.program.step_k, plan.access) == (64, "scalar")


@pytest.mark.parametrize("kind, m", list(zip(KINDS, cycle((40, 3)))))
def test_whole_pieces_are_copied(emulated: Emulated, kind: tuple[str, str], m: int) -> None:
    """Rows of 320 values are 160 bytes, ten copies of 16."""
    assert check(emulated, operator(*kind, 72, 320), m).access == "vector"


@pytest.mark.parametrize("name, group", [("int4", "channel"), ("int4", 64), ("int2", 128)])
def test_one_token_in_registers(emulated: Emulated, name: str, group: Any) -> None:
    op = operator("int4", name, 72, 480, group)
    assert check(emulated, op, 1, access="column", depth=2).family == "skinny"


@pytest.mark.parametrize(
    "group, kind, m",
    [
        (16, ("int4", "int4"), 7),
        (33, ("uint4", "int2"), 40),
        (64, ("int4", "int4"), 40),
        (100, ("int4", "int3"), 7),
        (128, ("uint4", "int1"), 40),
        (192, ("int4", "uint4"), 7),
        (256, ("int4", "int4"), 40),
    ],
)
def test_scales_that_change_along_k(
    emulated: Emulated, group: int, kind: tuple[str, str], m: int
) -> None:
    """Groups that are no power of two are padded: a value then stands elsewhere in its byte. The last group is short."""
    check(emulated, operator(*kind, 72, 531, group), m)


@pytest.mark.parametrize(
    "name, zero, m", [("uint4", "integer", 40), ("uint3", "float", 3), ("int4", "rescaled", 3)]
)
def test_zero_points_come_off_by_sums_of_activations(
    emulated: Emulated, name: str, zero: str, m: int
) -> None:
    plan = check(emulated, operator("int4", name, 72, 320, 64, zero=zero), m)
    assert plan.sum_sets


@pytest.mark.parametrize("name, family", [("int3", "skinny"), ("int2", "ring"), ("int4", "ring")])
def test_weights_are_converted_in_shared_memory(emulated: Emulated, name: str, family: str) -> None:
    check(emulated, operator("int4", name, 72, 320), 11, family=family, placement="shared")


@pytest.mark.parametrize(
    "device, out",
    [("a100", "float32"), ("rtx3090", "bfloat16"), ("orin", "float16"), ("rtx4090", "float32")],
)
def test_devices_and_outputs(emulated: Emulated, device: str, out: str) -> None:
    check(emulated, operator("int4", "int4", 72, 320, out=out, bias=True), 21, device)


def test_gates_and_residuals(emulated: Emulated) -> None:
    op = operator("int4", "int4", 144, 320, epilogue=("silu_gate",))
    check(emulated, op, 21)


def test_no_rows_and_one_row(emulated: Emulated) -> None:
    op = operator("int4", "int4", 40, 65)
    plans: Any = ladder.schedule(op, "a100")
    _, one = operands(op, 1)
    assert emulated(plans.plan_for(1), **one).shape == (1, 40)
    _, empty = operands(op, 0)
    assert emulated(plans.plan_for(0), **empty).shape == (0, 40)
    assert plans.run(**empty).shape == (0, 40)


@pytest.mark.parametrize(
    "activation, name", [("int4", "int4"), ("uint4", "uint4"), ("int4", "uint4"), ("uint4", "int4")]
)
@pytest.mark.parametrize("m", [8, 32])
def test_integer_products_are_exact_for_every_code(
    emulated: Emulated, activation: str, name: str, m: int
) -> None:
    """Every code of either side against every code of the other, in NumPy's integers."""
    n, k = 32, 256
    codes = ((np.arange(n)[:, None] + np.arange(k) // 16) % 16).astype(np.uint8)
    x = (np.arange(m)[:, None] + np.arange(k)) % 16
    assert len({(a, b) for a, b in zip(codes[0], x[0], strict=True)}) == 256
    signed = lambda v: (v.astype(np.int64) ^ 8) - 8  # noqa: E731
    values = signed(codes) if name == "int4" else codes.astype(np.int64)
    numbers = signed(x) if activation == "int4" else x
    stored = (x[:, ::2] | x[:, 1::2] << 4).astype(np.uint8)
    op = ladder.matmul(m, n, k, activation=activation, weight=name, out="float32")
    y = emulated(ladder.schedule(op, "a100"), stored, ladder.Quantized(op.weight, codes))
    np.testing.assert_array_equal(y.astype(np.int64), numbers @ values.T)


@pytest.mark.parametrize(
    "k, m, n",
    [
        *((1, 1, 16), (2, 2, 32), (31, 7, 64), (32, 1, 32), (33, 20, 16), (63, 2, 16)),
        *((64, 20, 64), (65, 7, 16), (255, 1, 16), (257, 20, 32)),
    ],
)
def test_k_below_and_between_the_steps(emulated: Emulated, k: int, m: int, n: int) -> None:
    """Ones times ones is K exactly, and the unused half of a last byte counts for nothing whatever it holds."""
    op = ladder.matmul(m, n, k, activation="int4", weight="bipolar1", out="float32")
    x = op.activation.pack(np.ones((m, k)))
    if k % 2:
        x[:, -1] |= 0x70
    weights = ladder.Quantized(op.weight, np.ones((n, k), np.uint8))
    plan = ladder.schedule(op, "a100")
    want = np.full((m, n), k, np.float32)
    np.testing.assert_array_equal(emulated(plan, x, weights), want)
    np.testing.assert_array_equal(plan.run(x, weights), want)


def test_the_largest_sums_stay_within_int32(emulated: Emulated) -> None:
    k = 2**13
    op = ladder.matmul(8, 16, k, activation="uint4", weight="uint4", out="float32")
    x = np.full((8, k // 2), 0xFF, np.uint8)
    weights = ladder.Quantized(op.weight, np.full((16, k), 15, np.uint8))
    y = emulated(ladder.schedule(op, "a100"), x, weights)
    np.testing.assert_array_equal(y, np.full((8, 16), 225.0 * k, np.float32))
    with pytest.raises(ShapeError, match=r"k is 9544372, not an integer in 1 \.\. 9544371"):
        ladder.matmul(1, 16, 9544372, activation="uint4", weight="uint4")


@settings(max_examples=25)
@given(
    st.sampled_from(KINDS),
    st.sampled_from(["channel", 64, 96, 128, None]),
    st.integers(1, 40),
    st.integers(1, 80),
    st.integers(1, 600),
    st.booleans(),
)
def test_every_shape_has_a_right_plan(
    kind: tuple[str, str], group: Any, m: int, n: int, k: int, scaled: bool
) -> None:
    """The plan's meaning alone, which is quick."""
    activation, name = kind
    wt: Any = ladder.types[name]
    wt = wt if group is None else wt.grouped(group, scale="float32")
    op = ladder.matmul(
        m, n, k, activation=activation, weight=wt, out="float32", activation_scale=scaled
    )
    x, given_ = operands(op, m)
    exact = op.reference(x, given_["weights"], x_scale=given_["x_scale"])
    plan = ladder.schedule(op, "a100")
    np.testing.assert_allclose(
        plan.run(**given_), exact, rtol=1e-5, atol=1e-4 * np.abs(exact).max()
    )


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(KINDS),
    st.sampled_from(["channel", 64, 128]),
    st.sampled_from(DEVICES),
    st.integers(1, 24),
    st.integers(1, 40),
    st.integers(1, 400),
)
def test_every_shape_has_a_right_kernel(
    emulated: Emulated, kind: tuple[str, str], group: Any, device: str, m: int, n: int, k: int
) -> None:
    check(emulated, operator(*kind, n, k, group), m, device)


@pytest.mark.parametrize("name", ["int1", "int3", "int4", "uint4"])
def test_weights_come_back_from_how_they_are_packed(name: str) -> None:
    op = operator("int4", name, 40, 300, 64)
    packing = choose_packing(op, ladder.devices["a100"].features)
    weights = ladder.quantize(np.random.default_rng(0).standard_normal((40, 300)), op.weight)
    packed = packing.pack(weights)
    assert packing.unpack(packed) == weights
    alike = packing.pack_arrays(weights.codes, scales=weights.scales)
    for part, array in packed.items():
        np.testing.assert_array_equal(alike[part], array)
    np.testing.assert_array_equal(packing.unpack_arrays(alike)["codes"], weights.codes)


@pytest.mark.parametrize("device", ["h100", "h200"])
def test_hopper_says_that_it_has_no_such_products(device: str) -> None:
    op = operator("int4", "int4", 72, 320)
    with pytest.raises(ScheduleError) as error:
        ladder.schedule(op, device)
    assert error.value.what == (
        f"{device} has no instruction mma.m16n8k64.int4: the tensor cores of sm_90a have no product of int4 weights"
        " with int4 activations"
    )
    assert error.value.hint == "they have those of int8: declare activation='int8'"


def test_what_no_4_bits_hold_is_refused() -> None:
    for name, words in (
        ("int5", "int5 does not fit int4"),
        ("signmag4", "no program decodes signmag4 to int4"),
        ("nf4", "nf4 .* int4"),
    ):
        with pytest.raises(LosslessError, match=words):
            ladder.schedule(operator("int4", name, 72, 320), "a100")


def test_numbers_that_are_not_packed_are_refused(emulated: Emulated) -> None:
    op = operator("int4", "int4", 32, 65)
    plan: Any = ladder.schedule(replace(op, m=3), "a100")
    x, given_ = operands(op, 3)
    words = r"x is int4\[3, 65\], the operator reads int4, 2 to an item of uint8\[\.\.\., 33\]"
    with pytest.raises(ShapeError, match=words):
        plan.run(**{**given_, "x": x})
    with pytest.raises(
        LadderError, match=r"x is \[3, 65\], the operator takes \[\.\.\., 33\], 65 numbers of int4"
    ):
        emulated(plan, **{**given_, "x": x.view(np.uint8)})


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "activation, name, group, zero, m",
    [
        ("int4", "int4", "channel", None, 1024),
        ("int4", "uint4", 64, "integer", 64),
    ],
)
def test_kernels_compile_and_spill_nothing(
    device: str, activation: str, name: str, group: Any, zero: Any, m: int
) -> None:
    if not Toolchain.available():
        pytest.skip("no CUDA compiler on this machine")
    target = ladder.devices[device]
    op = replace(operator(activation, name, 4096, 4096, group, zero=zero), m=m)
    source = lower(ladder.schedule(op, target)).source
    assert "mma.sync.aligned.m16n8k64.row.col.s32." in source
    cubin = compile_kernel(source, target.arch)
    assert (cubin.spill_bytes, cubin.stack_bytes) == (0, 0)
