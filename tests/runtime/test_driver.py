"""The real driver layer over a stub of libcuda: what reaches the driver, byte for byte."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ladder.codegen.kernel import Parameter
from ladder.errors import LaunchError
from ladder.runtime.argument_block import ArgumentLayout
from ladder.runtime.driver import check_grid

STUB = Path(__file__).parent / "stub" / "libcuda.c"
ROOT = Path(__file__).parents[2]
PARAMETERS = (
    Parameter("a", "buffer", "float16", "x"),
    Parameter("m", "scalar", "int32", "m"),
    Parameter("s", "scalar", "int64", "x_stride_m"),
    Parameter("b", "buffer", "float16", "y"),
)
PRELUDE = """
from ladder.runtime.argument_block import ArgumentLayout
from ladder.runtime.driver import cuda_driver, driver_version
from ladder.codegen.kernel import Parameter
from ladder.errors import LaunchError
driver = cuda_driver()
parameters = (
    Parameter("a", "buffer", "float16", "x"),
    Parameter("m", "scalar", "int32", "m"),
    Parameter("s", "scalar", "int64", "x_stride_m"),
)
arguments = ArgumentLayout(parameters).fill({"x": 2**60 + 5, "m": -7, "x_stride_m": 2**40})
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler for the stub driver")
    if importlib.util.find_spec("cuda") is None:
        pytest.skip("cuda-bindings is not installed")
    folder = tmp_path_factory.mktemp("driver")
    line = [compiler, "-shared", "-fPIC", "-o", str(folder / "libcuda.so.1"), str(STUB)]
    subprocess.run(line, check=True)
    return folder


@pytest.fixture
def run(library, tmp_path):
    def execute(script, **environment):
        log = tmp_path / "log"
        done = subprocess.run(
            [sys.executable, "-c", PRELUDE + script],
            env={
                **os.environ,
                "LD_LIBRARY_PATH": str(library),
                "PYTHONPATH": str(ROOT),
                "STUB_LOG": str(log),
                "STUB_SIZES": "848",
                **environment,
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines(), log.read_text().splitlines() if log.exists() else []

    return execute


def test_devices_are_described(run):
    script = """
print(driver.version(), driver_version(), driver.device_count(), driver.device_name(1), driver.compute_capability(1))
print(driver.device_of(4096))
"""
    assert run(script)[0] == ["13.0 13.0 2 Stub 1 (9, 1)", "1"]


def test_a_launch_reaches_the_driver_whole(run):
    """C75, C85: under the context of the asked device, which is not left current."""
    _, log = run("""
function = driver.load(1, b"ELF!", "kern", 100_000)
launch = driver.prepare(1, function, ((3, 2, 1), (128, 1, 1), 100_000, (2, 1, 1)))
launch(0, arguments, pdl=False)
launch(1234, arguments, pdl=True)
""")
    values = "1152921504606846981 -7 1099511627776"
    shape = "launch kern grid 3 2 1 block 128 1 1 shared 100000"
    assert log == [
        "retain 1",
        "push 1",
        "load ELF!",
        "set kern 8 100000",
        "pop",
        "push 1",
        f"{shape} stream 0 context 1 attribute 4 2 1 1 {values}",
        "pop",
        "push 1",
        f"{shape} stream 1234 context 1 attribute 6 1 0 0 attribute 4 2 1 1 {values}",
        "pop",
    ]


def test_a_current_context_is_used_as_it_is_and_small_kernels_ask_for_no_memory(run):
    _, log = run("""
function = driver.load(0, b"ELF!", "kern", 1024)
launch = driver.prepare(0, function, ((1, 1, 1), (32, 1, 1), 1024, None))
driver._call("cuCtxPushCurrent", driver._context(0))
for _ in range(2):
    launch(5, arguments, pdl=False)
""")
    assert [line.split()[0] for line in log] == [
        "retain",
        "push",
        "load",
        "pop",
        "push",
        "launch",
        "launch",
    ]


def test_memory_is_copied_there_and_back(run):
    out, log = run("""
import numpy as np
from ladder.runtime.buffer import DeviceBuffer
from ladder.runtime.arrays import view
import ml_dtypes
array = np.arange(6, dtype=ml_dtypes.bfloat16).reshape(2, 3)
buffer = DeviceBuffer.of(driver, 1, array.T)
assert (buffer.numpy() == array.T).all() and buffer.numpy().dtype == array.dtype
print(view(buffer).place, buffer.__cuda_array_interface__["typestr"], view(buffer).shape)
del buffer
""")
    assert out == ["cuda:1 <u2 (3, 2)"]
    assert log.count("synchronize") == 1


def test_a_failed_call_says_the_drivers_own_words(run):
    out, _ = run("""
try:
    driver.load(0, b"bad!", "kern", 0)
except LaunchError as error:
    print(error)
try:
    driver.load(7, b"ELF!", "kern", 0)
except LaunchError as error:
    print(error.what)
""")
    assert out == [
        "CUDA_ERROR_NO_BINARY_FOR_GPU: no kernel image",
        "  at: cuModuleLoadData",
        "  hint: compile the plan for this device",
        "device 7 of 2",
    ]


def test_a_driver_that_does_not_start_is_one_error(library):
    script = """
from ladder.runtime.driver import cuda_driver
from ladder.errors import LaunchError
try:
    cuda_driver()
except LaunchError as error:
    print(error)
"""
    for environment, expected in (
        ({"LD_LIBRARY_PATH": str(library), "STUB_INIT": "100"}, "CUDA_ERROR_NO_DEVICE"),
        ({"LD_LIBRARY_PATH": ""}, "NVIDIA's driver library cannot be loaded"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
            capture_output=True,
            text=True,
            check=True,
        )
        if not done.stdout and "LD_LIBRARY_PATH" in environment:
            pytest.skip("this machine has a GPU")
        assert expected in done.stdout
        assert "plan.run(x, q)" in done.stdout
        assert done.stdout.count("\n") == 3


def test_arguments_lie_as_the_kernel_reads_them(fakes):
    values = {"x": 2**63 + 1, "m": 2**31 - 1, "x_stride_m": -(2**62), "y": 0}
    arguments = ArgumentLayout(PARAMETERS).fill(values)
    assert fakes.read_arguments(arguments, PARAMETERS) == values


@pytest.mark.parametrize("m", [2**31, -(2**31) - 1])
def test_a_scalar_that_does_not_fit_is_refused(m):
    with pytest.raises(LaunchError, match=f"m is {m}, the kernel takes an int32"):
        ArgumentLayout(PARAMETERS).fill({"x": 0, "m": m, "x_stride_m": 0, "y": 0})


def test_a_grid_past_the_limits_is_refused():
    check_grid((2**31 - 1, 65535, 65535))
    with pytest.raises(LaunchError, match="65536 blocks along y, at most 65535"):
        check_grid((1, 65536, 1))


def test_importing_the_runtime_loads_neither_cuda_nor_tvm_nor_torch():
    """C76: packing and planning need no driver; import works without one."""
    script = (
        "import sys, ladder.runtime.kernel, ladder.runtime.load, ladder.runtime.cache;"
        "print([m for m in ('cuda', 'tvm', 'torch', 'cupy') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
