"""Places by name: what there is, and what is refused, with and without a GPU."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from ladder.errors import LaunchError  # noqa: E402
from ladder.torch import places  # noqa: E402
from ladder.torch.places import ByPlan, Compiler, InEmulator, OnGpu, place_of  # noqa: E402


def machine(monkeypatch, gpus):
    """A machine with so many GPUs, the last of which is torch's current one."""
    cuda = places.torch.cuda
    monkeypatch.setattr(cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(cuda, "current_device", lambda: gpus - 1)


def test_places_have_names(monkeypatch):
    machine(monkeypatch, 2)
    assert isinstance(place_of("cpu"), ByPlan)
    assert isinstance(place_of("emulator"), InEmulator)
    for name, number in (("cuda", 1), ("cuda:0", 0), (torch.device("cuda", 1), 1)):
        found = place_of(name)
        assert isinstance(found, OnGpu)
        assert found.device == torch.device("cuda", number)


@pytest.mark.parametrize("name", ["moon", "", None, 3, [], "cudax", torch.device("meta")])
def test_a_name_that_no_place_has_is_refused(name):
    with pytest.raises(LaunchError, match="no place is called"):
        place_of(name)


@pytest.mark.parametrize("name", ["cuda", "cuda:0", "cuda:x", torch.device("cuda")])
def test_without_a_gpu_that_is_what_is_said(monkeypatch, name):
    machine(monkeypatch, 0)
    with pytest.raises(LaunchError, match="torch finds no GPU") as caught:
        place_of(name)
    assert "model.on('emulator')" in caught.value.hint


@pytest.mark.parametrize("name", ["cuda:2", "cuda:x", "cuda:", "cuda:-1", "cuda:1:1"])
def test_a_gpu_that_is_not_there_is_refused(monkeypatch, name):
    machine(monkeypatch, 2)
    with pytest.raises(LaunchError, match=f"there is no {name}") as caught:
        place_of(name)
    assert caught.value.hint == "the GPUs are cuda:0 to cuda:1"


@pytest.mark.parametrize("builder", [3, [], object(), Compiler.kernel])
@pytest.mark.parametrize("name", ["cpu", "emulator"])
def test_what_is_no_builder_is_refused(name, builder):
    with pytest.raises(LaunchError, match="not a builder of kernels"):
        place_of(name, builder)
