from __future__ import annotations

import numpy as np
import pytest

from ladder.codegen.toolchain import Toolchain
from ladder.errors import ArtifactError, PlanError, ToolchainError
from ladder.runtime import build as module
from ladder.runtime.artifact import Artifact
from ladder.runtime.build import compile_plan
from ladder.runtime.cache import Cache
from ladder.runtime.load import kernel_of, load
from ladder.settings import Settings


@pytest.fixture
def lower(fakes):
    def lowering(plan):
        lowering.count += 1
        return fakes.lowered(f"k{plan.m_range[0]}")

    lowering.count = 0
    return lowering


@pytest.fixture
def compiler(monkeypatch, fakes):
    """A CUDA compiler stub, found as nvrtc 13.0."""
    found = Toolchain("nvrtc", "13.0")

    def compiling(source, arch, *, toolchain):
        compiling.asked.append(arch)
        return fakes.cubin(arch.encode())

    compiling.asked = []
    monkeypatch.setattr(module, "compile_kernel", compiling)
    monkeypatch.setattr(Toolchain, "choose", staticmethod(lambda settings=None: found))
    return compiling


class PlanSet:
    def __init__(self, *plans):
        self.plans = plans
        self.packing = plans[0].packing

    def __iter__(self):
        return iter(self.plans)

    def to_json(self):
        return {"format": "fake.set/1", "plans": [plan.to_json() for plan in self.plans]}


def test_a_plan_is_lowered_and_compiled_once(fakes, lower, compiler, tmp_path):
    """C68: the second identical run asks neither lowering nor the compiler."""
    for _ in range(2):
        kernel = compile_plan(fakes.Plan(), lower=lower, cache=Cache(tmp_path))
        assert kernel.plan == fakes.Plan()
        assert kernel.toolchain == "nvrtc 13.0"
        assert set(kernel.variants[0].cubins) == {"sm_90a"}
    assert (lower.count, compiler.asked) == (1, ["sm_90a"])
    compile_plan(fakes.Plan(access="vector"), lower=lower, cache=Cache(tmp_path))
    assert lower.count == 2


def test_a_set_becomes_one_kernel_with_a_variant_for_each_range(fakes, lower, compiler):
    plans = PlanSet(fakes.Plan(m_range=(0, 16)), fakes.Plan(m_range=(17, None)))
    kernel = compile_plan(plans, lower=lower, cache=Cache(None))
    assert kernel.plan is plans
    assert [variant.plan for variant in kernel.variants] == list(plans)
    assert kernel.source == "// k0\n// k17"


def test_without_a_compiler_the_text_is_kept_and_said(fakes, lower, tmp_path, monkeypatch):
    def none(settings=None):
        raise ToolchainError("no CUDA compiler")

    monkeypatch.setattr(Toolchain, "choose", staticmethod(none))
    with pytest.warns(RuntimeWarning, match="holds its text only"):
        kernel = compile_plan(fakes.Plan(), lower=lower, cache=Cache(None), settings=Settings())
    folder = kernel.save(tmp_path / "k")
    loaded = Artifact.load(folder)
    assert loaded.toolchain == "none"
    assert loaded.parts[0].cubins == {}
    assert (folder / "k1.cu").read_text() == "// k1"
    with pytest.raises(ToolchainError):
        compile_plan(
            fakes.Plan(), lower=lower, cache=Cache(None), settings=Settings(toolchain="nvcc")
        )


def readers(fakes):
    return {
        "read_plan": fakes.Plan.from_json,
        "read_packing": lambda data: fakes.Packing(data["n"], data["k"], data["version"]),
    }


def test_a_saved_kernel_runs_like_the_first(
    fakes, lower, compiler, tmp_path, driver, weights, x, reference
):
    kernel = compile_plan(fakes.Plan(), lower=lower, cache=Cache(None))
    kernel.save(tmp_path / "k")
    back = kernel_of(Artifact.load(tmp_path / "k"), driver=driver, **readers(fakes))
    assert back.plan == kernel.plan
    assert back.artifact() == fakes.replace(kernel.artifact(), created=back.artifact().created)
    np.testing.assert_allclose(back(x, kernel.pack(weights)), reference(x), rtol=1e-2)


def test_another_packing_version_is_refused(fakes, lower, compiler):
    artifact = compile_plan(fakes.Plan(), lower=lower, cache=Cache(None)).artifact()
    with pytest.raises(ArtifactError, match="packing version 9, this version packs by 1"):
        kernel_of(fakes.replace(artifact, packing_version=9), **readers(fakes))


def test_a_plan_of_another_version_is_refused(fakes, lower, compiler, tmp_path):
    compile_plan(fakes.Plan(), lower=lower, cache=Cache(None)).save(tmp_path / "k")
    with pytest.raises(ArtifactError, match="the plan cannot be read"):
        load(tmp_path / "k")


@pytest.mark.parametrize("given", [None, "plan", [], object()])
def test_what_is_no_plan_is_refused_before_anything_is_looked_for(given):
    with pytest.raises(PlanError, match="is no plan") as caught:
        compile_plan(given)
    assert "ladder.schedule" in caught.value.hint
