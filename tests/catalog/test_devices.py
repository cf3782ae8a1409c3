from __future__ import annotations

import importlib
import pkgutil

import pytest

import ladder.catalog.devices
from ladder.ttile import Device

NAMES = ("a100", "h100", "h200", "orin", "rtx3090", "rtx4090")


def shipped() -> dict[str, Device]:
    modules = pkgutil.iter_modules(ladder.catalog.devices.__path__)
    return {
        module.name: importlib.import_module(f"ladder.catalog.devices.{module.name}").DEVICE
        for module in modules
    }


DEVICES = shipped()


def test_the_shipped_devices() -> None:
    assert tuple(sorted(DEVICES)) == NAMES
    assert {d.name: d.arch for d in DEVICES.values()} == {
        "a100": "sm_80",
        "h100": "sm_90a",
        "h200": "sm_90a",
        "orin": "sm_87",
        "rtx3090": "sm_86",
        "rtx4090": "sm_89",
    }


@pytest.mark.parametrize("name", DEVICES)
def test_a_module_is_named_after_its_device_and_holds_what_the_compiler_asks(name: str) -> None:
    device = DEVICES[name]
    assert device.name == name
    assert hash(device) == hash(device.with_())
    assert [level.name for level in device.levels] == ["dram", "l2", "shared", "register"]
    rates = [level.bytes_per_second for level in device.levels]
    assert rates == sorted(rates)
    for pipe in ("issue", "alu", "fma", "lsu", "tensor"):
        assert 0 < device.pipe(pipe) <= 128
    assert device.has("cp.async", "ldmatrix", "mma.f16", "mma.bf16", "mma.s8")
    for dtype in ("float16", "bfloat16", "int8"):
        assert device.instructions(kind="compute", a=dtype, w=dtype)
    assert device.shared_bytes_per_block == device.shared_bytes_per_sm - 1024


@pytest.mark.parametrize("name", DEVICES)
def test_the_tensor_pipe_agrees_with_the_rate_of_mma(name: str) -> None:
    """Lane instructions per clock and SM times operations of an instruction is the rate of the device."""
    device = DEVICES[name]
    mma = device.instruction("mma.m16n8k16.float16")
    rate = device.pipe_per_second("tensor") / 32 * mma.operations
    assert rate == pytest.approx(mma.per_second, rel=0.03)


@pytest.mark.parametrize(
    "name,arch_features",
    [
        ("h200", {"wgmma", "tma", "pdl", "cvt.e4m3x2"}),
        ("rtx4090", {"mma.e4m3", "cvt.e4m3x2"}),
        ("a100", set()),
        ("rtx3090", set()),
        ("orin", set()),
    ],
)
def test_features_of_the_generations(name: str, arch_features: set[str]) -> None:
    asked = {"wgmma", "tma", "pdl", "cvt.e4m3x2", "mma.e4m3"}
    assert DEVICES[name].features & asked == arch_features


def test_measured_figures_of_the_h200() -> None:
    h200 = DEVICES["h200"]
    assert h200.sms == 132
    assert h200.dram_bytes_per_second == 4.65e12
    assert h200.level("dram").measured
    assert h200.shared_bytes_per_block == 227 * 1024
    assert h200.l2_bytes == 60 * 2**20
    assert h200.pipe_per_second("alu") == pytest.approx(15.2e12, rel=0.01)
    assert h200.pipe_per_second("fma") == pytest.approx(27.7e12, rel=0.01)
    assert h200.instruction("mma.m16n8k16.float16").per_second == 575e12
    assert h200.instruction("wgmma.m64n256k16.float16.rs").per_second == 924e12
    assert h200.cost.measured


def test_only_the_h200_claims_measurements() -> None:
    for device in DEVICES.values():
        claims = [i.measured for i in device.instruction_set]
        claims += [level.measured for level in device.levels]
        assert (any(claims) or device.cost.measured) == (device.name == "h200")
