"""From a real plan to a saved kernel that runs where TVM cannot be imported."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import ladder
from ladder.errors import ArtifactError
from ladder.files import document_digest
from ladder.runtime.build import compile_plan
from ladder.runtime.cache import Cache
from ladder.runtime.load import load

ROOT = Path(__file__).parents[2]

RUN = """
import sys
sys.modules["tvm"] = sys.modules["tvm_ffi"] = None  # importing either is an error
import numpy as np
import ladder
kernel = ladder.load(sys.argv[1])
op = kernel.plan.op
rng = np.random.default_rng(0)
q = ladder.quantize(rng.standard_normal((op.n, op.k)), op.weight)
packed = kernel.pack(q)
assert kernel.unpack(packed) == q
for m in (1, 17):
    x = rng.standard_normal((m, op.k)).astype(np.float16)
    expected = op.reference(x, q)
    assert np.abs(expected).max() > 1
    y = kernel(x, packed, device="emulator")
    print(np.linalg.norm(y - expected) / np.linalg.norm(expected) <= 1e-3)
"""


@pytest.fixture(scope="module")
def plans():
    weight = ladder.types["int4"].grouped(64, scale="float16")
    op = ladder.matmul(m=None, n=32, k=128, activation="float16", weight=weight)
    return ladder.schedule(op, device="h200")


@pytest.fixture(scope="module")
def folder(plans, tmp_path_factory):
    if importlib.util.find_spec("tvm") is None:
        pytest.skip("TVM is not installed")
    kernel = compile_plan(plans, cache=Cache(None))
    return kernel.save(tmp_path_factory.mktemp("saved") / "kernel")


@pytest.mark.filterwarnings("ignore:no CUDA compiler")
def test_a_saved_kernel_comes_back_whole(folder, plans):
    kernel = load(folder)
    assert kernel.plan == plans
    assert kernel.packing == plans.packing
    assert [variant.plan for variant in kernel.variants] == list(plans)
    assert 'extern "C"' in kernel.source


@pytest.mark.filterwarnings("ignore:no CUDA compiler")
def test_plans_of_a_set_are_written_once(folder, plans, tmp_path):
    manifest = json.loads((folder / "manifest.json").read_text())
    size = len(json.dumps(manifest))
    assert [one["plan"] for one in manifest["kernels"]] == list(range(len(plans)))
    # format 1 wrote them out
    for one, plan in zip(manifest["kernels"], plans, strict=True):
        one["plan"] = json.loads(plan.to_json())
    manifest["format"] = 1
    manifest["sha256"] = document_digest(manifest)
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    assert len(json.dumps(manifest)) > 2 * size
    assert [variant.plan for variant in load(tmp_path).variants] == list(plans)


@pytest.mark.filterwarnings("ignore:no CUDA compiler")
def test_a_saved_kernel_loads_and_runs_without_tvm(folder):
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(folder)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["True", "True"], done.stderr


@pytest.mark.filterwarnings("ignore:no CUDA compiler")
def test_a_plan_of_another_version_is_refused(folder, tmp_path):
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["plan"]["format"] = "ladder.planset/99"
    manifest["sha256"] = document_digest(manifest)
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ArtifactError, match=r"the plan cannot be read: .*99"):
        load(tmp_path)
