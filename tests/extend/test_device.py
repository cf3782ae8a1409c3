"""A device from a file outside the package is planned and compiled for like a shipped one."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import ladder
from ladder.errors import DeviceError

FILE = Path(__file__).parents[2] / "examples" / "new_device.py"
DEVICE = ladder.load_device(FILE)


def operator(m: int | None = 1) -> ladder.MatMul:
    weight = ladder.types["int4"].grouped(128, scale="float16", zero="integer")
    return ladder.matmul(m=m, n=1024, k=2048, activation="float16", weight=weight)


def test_it_is_not_in_the_catalogue() -> None:
    assert DEVICE.name not in ladder.devices


def test_it_says_what_it_is() -> None:
    assert DEVICE.arch == "sm_86"
    assert "mma.m16n8k16.float16" in str(DEVICE)


@pytest.mark.parametrize("m", [1, 16, 100, None])
def test_plans_keep_to_its_limits(m: int | None) -> None:
    decided = ladder.schedule(operator(m), device=DEVICE)
    for plan in [decided] if isinstance(decided, ladder.Plan) else decided:
        assert plan.device is DEVICE
        assert plan.shared_bytes <= DEVICE.shared_bytes_per_block
        assert not plan.check()


def test_a_smaller_relative_gets_a_smaller_plan() -> None:
    small = DEVICE.with_(name="small", shared_bytes_per_block=16 * 1024)
    plan = ladder.schedule(operator(), device=small)
    assert plan.shared_bytes <= 16 * 1024 < ladder.schedule(operator(), device=DEVICE).shared_bytes


def test_without_tensor_cores_for_the_type_it_is_refused_in_words() -> None:
    bare = DEVICE.with_(name="bare", instruction_set=tuple(DEVICE.instructions(kind="load")))
    with pytest.raises(ladder.LadderError) as caught:
        ladder.schedule(operator(), device=bare)
    assert "bare" in str(caught.value)


@pytest.mark.skipif(
    importlib.util.find_spec("tvm") is None, reason="the compile extra is not installed"
)
def test_it_is_compiled_for_its_own_architecture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LADDER_CACHE_DIR", str(tmp_path))
    op = operator()
    kernel = ladder.compile(ladder.schedule(op, device=DEVICE))
    assert {arch for v in kernel.variants for arch in v.cubins} <= {"sm_86"}
    assert kernel.variants[0].lowered.device_arch == "sm_86"
    again = ladder.load(kernel.save(tmp_path / "kernel"))
    assert again.plan == kernel.plan
    assert again.plan.device == DEVICE


def test_the_plan_means_the_same_as_on_any_device() -> None:
    op, rng = operator(2), np.random.default_rng(0)
    q = ladder.quantize(rng.standard_normal((op.n, op.k)), op.weight)
    x = rng.standard_normal((2, op.k)).astype(np.float16)
    exact = op.reference(x, q)
    y = ladder.schedule(op, device=DEVICE).run(x, q)
    assert np.linalg.norm(y - exact) < 1e-3 * np.linalg.norm(exact)


def test_a_broken_file_is_refused_with_its_path(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text("DEVICE = 1 / 0\n", encoding="utf-8")
    with pytest.raises(DeviceError) as caught:
        ladder.load_device(wrong)
    assert str(wrong) in str(caught.value)
    assert "ZeroDivisionError" in str(caught.value)
