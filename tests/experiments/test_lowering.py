"""Every placement lowers to kernels that run and are right, the slow ones too."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import ladder
from ladder.errors import ExperimentError, LadderError
from ladder.experiments import PLACEMENTS, Point, Sweep, kernels_of, lower, run
from ladder.experiments import lowering as lowering_module
from ladder.experiments.lowering import Scheduler, choice

N, K = 80, 256
WEIGHTS = {"int4": ladder.types["int4"].grouped(64), "nf4": ladder.types["nf4"].grouped(64)}


def sweep(weight="int4", **other) -> Sweep:
    return Sweep(**{"shapes": [(N, K)], "weights": [WEIGHTS[weight]], "ms": [3], **other})


def points(found: Sweep) -> dict[str, Point]:
    return {point.placement: point for point in found.points()}


@pytest.fixture(params=WEIGHTS)
def operands(request):
    rng = np.random.default_rng(0)
    q = ladder.quantize(rng.standard_normal((N, K)), WEIGHTS[request.param])
    return request.param, q


@pytest.mark.parametrize("m", [3, 40])
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_the_meaning_of_every_placement_is_the_operators(operands, placement: str, m: int) -> None:
    name, q = operands
    given = sweep(name, ms=[m])
    x = np.random.default_rng(1).standard_normal((m, K)).astype(np.float16)
    lowering = lower(points(given)[placement], given)
    exact = lowering.op.reference(x, q)
    y = run(lowering, x, q)
    assert y.shape == (m, N)
    assert np.linalg.norm(exact) > 1
    assert np.linalg.norm(y - exact) <= 1e-3 * np.linalg.norm(exact)


@pytest.mark.skipif(importlib.util.find_spec("tvm") is None, reason="needs the compile extra")
@pytest.mark.filterwarnings("ignore:no CUDA compiler")
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_the_kernels_of_every_placement_compute_it_in_the_emulator(
    operands, placement: str, monkeypatch
) -> None:
    monkeypatch.setenv("LADDER_CACHE_DIR", "off")
    name, q = operands
    given = sweep(name)
    x = np.random.default_rng(2).standard_normal((3, K)).astype(np.float16)
    lowering = lower(points(given)[placement], given)
    y, exact = run(lowering, x, q, "emulator"), lowering.op.reference(x, q)
    assert np.linalg.norm(y - exact) <= 1e-3 * np.linalg.norm(exact)
    # sums of a cluster's parts may be added in another order than the plan's
    assert np.allclose(y, run(lowering, x, q), rtol=2e-3, atol=2e-2)


def test_what_runs_and_what_lies_in_memory() -> None:
    given = sweep(shapes=[(4096, 4096)], ms=[1])
    found = {name: lower(point, given) for name, point in points(given).items()}
    names = {name: [kernel.name for kernel in one.kernels] for name, one in found.items()}
    one = ["matmul"]
    assert names == {
        "offline": one,
        "global": ["dequantize", "matmul"],
        "shared": one,
        "register": one,
    }
    codes, dense = 4096 * 4096 // 2, 4096 * 4096 * 2
    assert codes < found["register"].weight_bytes == found["shared"].weight_bytes < 1.1 * codes
    assert found["offline"].weight_bytes == dense
    assert found["global"].weight_bytes == found["register"].weight_bytes + dense
    # codes are read, numbers are written, and read again
    assert found["global"].dram_bytes > found["register"].weight_bytes + 2 * dense
    assert found["register"].product.convert == "register"
    assert found["shared"].product.convert == "shared"
    assert found["global"].us == sum(kernel.cost.us for kernel in found["global"].kernels)
    assert found["global"].limit == "dequantize: BW dram"
    assert found["register"].us < found["shared"].us < found["offline"].us < found["global"].us


def test_decisions_are_fixed_and_the_choice_has_them_free() -> None:
    given = sweep(shapes=[(4096, 4096)], ms=[1], fixed=[{"family": "ring"}])
    known = Scheduler()
    for placement, point in points(given).items():
        assert lower(point, given, known).product.family == "ring", placement
        chosen = choice(point, given, known)
        assert (chosen.product.family, chosen.product.convert) == ("skinny", "register")


def test_a_point_that_cannot_be_had_says_why() -> None:
    given = sweep(fixed=[{"family": "specialised"}], devices=["a100"])
    with pytest.raises(LadderError) as caught:
        lower(points(given)["register"], given)
    assert caught.value.what


def test_a_place_that_is_none_is_refused() -> None:
    given = sweep()
    lowering = lower(points(given)["register"], given)
    with pytest.raises(ExperimentError, match="no place is called 'cuda'"):
        run(lowering, np.ones((3, K), np.float16), None, "cuda")


@pytest.mark.filterwarnings("ignore:no CUDA compiler")
@pytest.mark.parametrize("device", ["numpy", "emulator"])
@pytest.mark.parametrize("source", ["global", "source"])
@pytest.mark.parametrize("target", ["int8", "fp8_e4m3fn"])
def test_quantised_activations_run_with_a_scale_a_row(
    target: str, source: str, device: str, monkeypatch
) -> None:
    if device == "emulator":
        pytest.importorskip("tvm")
    monkeypatch.setenv("LADDER_CACHE_DIR", "off")
    weight = {"int8": "int4", "fp8_e4m3fn": "fp4_e2m1"}[target]
    wt = ladder.types[weight].grouped(128)
    rng = np.random.default_rng(3)
    q = ladder.quantize(rng.standard_normal((N, K)), wt)
    x = (np.array([[1e-3], [1.0], [30.0]]) * rng.standard_normal((3, K))).astype(np.float16)
    given = Sweep(
        shapes=[(N, K)], weights=[wt], ms=[3], activations=[target], sources=[source],
        placements=["register"],
    )  # fmt: skip
    lowering = lower(next(iter(given.points())), given)
    assert [kernel.name for kernel in lowering.kernels][-1] == "matmul"
    y = run(lowering, x, q, device).astype(np.float64)
    exact = x.astype(np.float64) @ q.dequantize().T
    for row, want in zip(y, exact, strict=True):  # each row has its own scale
        assert np.linalg.norm(row - want) <= 0.04 * np.linalg.norm(want)


@pytest.mark.parametrize("placement", ["offline", "global"])
def test_decoded_weights_of_8_bits_have_no_scales(placement: str) -> None:
    given = sweep(activations=["int8"], placements=[placement])
    with pytest.raises(LadderError):
        lower(points(given)[placement], given)


def test_kernels_of_a_sweep_are_those_of_its_points_each_once() -> None:
    given = sweep(weights=list(WEIGHTS.values()), ms=[3, 40])
    found = list(kernels_of(given))
    dense = {kernel.plan for kernel in found if kernel.plan.op.weight.element.name == "float16"}
    assert len(dense) == 2  # one for each M, whichever weight was decoded
    assert sum(kernel.name == "dequantize" for kernel in found) == 2  # one for each weight
    assert len(found) == len({kernel.digest for kernel in found}) == 2 + 2 + 2 * 2 * 2
    assert {
        kernel.digest for point in given.points() for kernel in lower(point, given).kernels
    } == {kernel.digest for kernel in found}


def test_points_that_cannot_be_had_have_no_kernels() -> None:
    given = sweep(activations=["int8"], placements=["offline", "register"])
    assert [kernel.name for kernel in kernels_of(given)] == ["quantize", "matmul"]


@pytest.mark.parametrize("placement", ["shared", "register"])
def test_the_free_choice_is_that_of_its_own_placement(placement: str, monkeypatch) -> None:
    searched = []

    def counted(op, device, **decisions):
        searched.append(decisions)
        return ladder.schedule(op, device, **decisions)

    monkeypatch.setattr(lowering_module, "schedule", counted)
    given = sweep("nf4", ms=[40], placements=[placement])
    (point,) = given.points()
    scheduler = Scheduler()
    plan = lower(point, given, scheduler).product
    assert plan == ladder.schedule(plan.op, "h200", placement=placement)
    free = choice(point, given, scheduler).product
    assert free.convert == "register"
    assert searched == [{}] + [{"placement": "shared"}] * (placement == "shared")
