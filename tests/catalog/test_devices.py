from __future__ import annotations

import importlib
import pkgutil
import sys
from pathlib import Path

import pytest

import ladder
import ladder.catalog.devices
from ladder.errors import DeviceError
from ladder.registry import Registry, _load_devices
from ladder.ttile import Device
from ladder.ttile.isa import NIBBLES

NAMES = ("a100", "h100", "h200", "orin", "rtx3090", "rtx4090")


def shipped() -> dict[str, Device]:
    modules = pkgutil.iter_modules(ladder.catalog.devices.__path__)
    return {
        module.name: importlib.import_module(f"ladder.catalog.devices.{module.name}").DEVICE
        for module in modules
    }


DEVICES = shipped()

#: a file from outside that promises to be fit for shipping
EXAMPLE = ladder.load_device(Path(__file__).parents[2] / "examples" / "new_device.py")
FIT = {**DEVICES, EXAMPLE.name: EXAMPLE}


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


@pytest.mark.parametrize("name", FIT)
def test_a_module_is_named_after_its_device_and_holds_what_the_compiler_asks(name: str) -> None:
    device = FIT[name]
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


@pytest.mark.parametrize("name", FIT)
def test_the_tensor_pipe_agrees_with_the_rate_of_mma(name: str) -> None:
    """Lane instructions per clock and SM times operations of an instruction is the rate of the device."""
    device = FIT[name]
    mma = device.instruction("mma.m16n8k16.float16")
    rate = device.pipe_per_second("tensor") / 32 * mma.operations
    assert rate == pytest.approx(mma.per_second, rel=0.03)


@pytest.mark.parametrize(
    "name,arch_features",
    [
        ("h200", {"wgmma", "tma", "pdl", "cvt.e4m3x2"}),
        ("rtx4090", {"mma.e4m3", "cvt.e4m3x2", "mma.s4", "mma.u4"}),
        ("a100", {"mma.s4", "mma.u4"}),
        ("rtx3090", {"mma.s4", "mma.u4"}),
        ("orin", {"mma.s4", "mma.u4"}),
    ],
)
def test_features_of_the_generations(name: str, arch_features: set[str]) -> None:
    asked = {"wgmma", "tma", "pdl", "cvt.e4m3x2", "mma.e4m3", "mma.s4", "mma.u4"}
    assert DEVICES[name].features & asked == arch_features


@pytest.mark.parametrize("name", DEVICES)
def test_integers_of_4_bits_are_multiplied_where_the_tensor_cores_do_it(name: str) -> None:
    """Twice as fast as those of 8 bits from sm_80 to sm_89; sm_90 has no such product (NVIDIA H100 white paper)."""
    device = DEVICES[name]
    found = {i.name: i.per_second for w in NIBBLES for i in device.instructions(w=w)}
    if not device.has("mma.s4"):
        assert not found
        return
    assert len(found) == 4
    assert set(found.values()) == {2 * device.instruction("mma.m16n8k32.int8").per_second}


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
    for device in FIT.values():
        claims = [i.measured for i in device.instruction_set]
        claims += [level.measured for level in device.levels]
        assert (any(claims) or device.cost.measured) == (device.name == "h200")


@pytest.mark.parametrize(
    "text",
    [
        'import ladder\nDEVICE = ladder.devices["rtx3090"].with_(name="{name}")\n',
        "SMS = 28\n",
    ],
    ids=["written as a relative of another", "without a device"],
)
@pytest.mark.parametrize("name", ["a_first", "zz_last"])
def test_a_file_that_cannot_be_shipped_is_refused_with_its_path(
    text: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / f"{name}.py"
    file.write_text(text.replace("{name}", name), encoding="utf-8")
    package = ladder.catalog.devices
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    devices: Registry[Device] = Registry("device", _load_devices, DeviceError)
    monkeypatch.setattr(ladder, "devices", devices)
    try:
        for _ in range(2):  # a look-up that failed leaves nothing behind that hides why
            with pytest.raises(DeviceError, match="has no DEVICE") as caught:
                devices["h200"]
            assert caught.value.at == str(file)
            assert "importing only ladder.ttile" in caught.value.hint
    finally:
        sys.modules.pop(f"{package.__name__}.{name}", None)
        vars(package).pop(name, None)
