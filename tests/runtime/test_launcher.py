from __future__ import annotations

import pytest

from ladder.errors import LaunchError, ToolchainError
from ladder.runtime.launcher import Launcher, best_arch, compile_arch, runs_on
from ladder.runtime.variant import Variant


@pytest.mark.parametrize(
    "arch, capability, expected",
    [
        ("sm_80", (8, 0), True),
        ("sm_80", (8, 9), True),
        ("sm_89", (8, 6), False),
        ("sm_80", (9, 0), False),
        ("sm_90a", (9, 0), True),
        ("sm_90a", (9, 1), False),
        ("sm_100f", (10, 3), True),
        ("sm_103f", (10, 0), False),
        ("sm_120", (12, 1), True),
        ("compute_90", (9, 0), False),
    ],
)
def test_code_runs_on_later_minors_of_its_major(arch, capability, expected):
    """C67: major, minor and suffix all count."""
    assert runs_on(arch, capability) is expected


def test_the_nearest_code_is_taken_and_features_first():
    archs = ["sm_80", "sm_86", "sm_89", "sm_90", "sm_90a"]
    assert best_arch(archs, (8, 7)) == "sm_86"
    assert best_arch(archs, (9, 0)) == "sm_90a"
    assert best_arch(archs, (7, 5)) is None
    assert best_arch([], (9, 0)) is None


@pytest.mark.parametrize(
    "arch, capability, expected",
    [
        ("sm_90a", (9, 0), "sm_90a"),
        ("sm_80", (8, 9), "sm_80"),
        ("sm_80", (9, 0), "sm_90"),
        ("sm_90a", (10, 0), None),
        ("sm_90", (8, 0), None),
    ],
)
def test_text_is_compiled_for_the_device_where_it_may_be(arch, capability, expected):
    assert compile_arch(arch, capability) == expected


def launcher(fakes, capability, cubins, compiling):
    variant = Variant(fakes.Plan(), fakes.lowered(), cubins)
    return Launcher([variant], fakes.Driver((capability,)), compiling)


def test_text_without_code_is_compiled_at_the_first_launch_only(fakes):
    asked = []

    def compiling(source, arch):
        asked.append((source, arch))
        return fakes.cubin(b"new")

    used = launcher(fakes, (9, 0), {}, compiling)
    for m in (1, 40):
        used.prepared(0, 0, m)
    assert asked == [("// k", "sm_90a")]
    assert used.driver.loads == [(0, b"new", "k", 1024)]


def test_without_code_and_compiler_one_error_says_both(fakes):
    def compiling(source, arch):
        raise ToolchainError("no CUDA compiler", hint="pip install 'ladder[cuda]'")

    with pytest.raises(LaunchError) as caught:
        launcher(fakes, (9, 0), {}, compiling).prepared(0, 0, 1)
    assert str(caught.value) == (
        "k holds no code for Fake 0 (sm_90), and its text was not compiled: no CUDA compiler\n"
        "  at: cuda:0\n"
        "  hint: pip install 'ladder[cuda]'"
    )


def test_a_device_that_cannot_run_the_kernel_is_named(fakes):
    """C75: never the other card's code."""
    with pytest.raises(LaunchError, match=r"k is for sm_90a, cuda:0 is Fake 0 \(sm_89\)"):
        launcher(fakes, (8, 9), {"sm_90a": fakes.cubin()}, None).prepared(0, 0, 1)


def test_a_thread_keeps_few_prepared_launches(fakes):
    used = launcher(fakes, (9, 0), {"sm_90a": fakes.cubin()}, None)
    for m in range(1, 3000, 16):
        used.prepared(0, 0, m)
    assert len(used._local.kept) <= 64
