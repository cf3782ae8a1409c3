"""The pure-read floor takes the fastest of readers that were seen to read every word, once for each number of bytes."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.read_kernel import FILE, READERS, source

torch = pytest.importorskip("torch")
floor = pytest.importorskip("benchmarks.floor")

SMS = 4


class FakeDriver:
    """A driver whose kernels sum on the CPU; ``skipped`` words are not read."""

    def __init__(self, skipped: int = 0) -> None:
        self.skipped = skipped
        self.grids: set[tuple[int, int]] = set()

    def load(self, device: int, code: bytes, name: str, shared_bytes: int) -> str:
        assert (device, code, shared_bytes) == (0, b"code", 0)
        return name

    def prepare(self, device: int, function: str, geometry: tuple) -> object:
        (blocks, _, _), (threads, _, _), shared, cluster = geometry
        assert (shared, cluster) == (0, None)
        self.grids.add((blocks, threads))

        def launch(stream: int, arguments: object, *, pdl: bool) -> None:
            assert not pdl
            # as cuLaunchKernel reads them: a pointer to each value, in the order of the signature
            places = ctypes.cast(arguments.address, ctypes.POINTER(ctypes.c_void_p))
            kinds = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int32)
            words, count, out, write = (
                kind.from_address(places[i]).value for i, kind in enumerate(kinds)
            )
            if write:
                lanes = (count - self.skipped) * 4
                read = np.ctypeslib.as_array((ctypes.c_uint32 * lanes).from_address(words))
                total = ctypes.c_uint32.from_address(out)
                total.value = (total.value + int(read.sum(dtype=np.uint64))) % 2**32

        return launch


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """A floor on the CPU; graphs are called once, and the third reader is the fastest."""
    asked = []

    def interleaved(graphs: dict, tokens: int) -> dict[str, float]:
        asked.append(tuple(graphs))
        return {name: 9.0 if name == str(READERS[2]) else 10.0 for name in graphs}

    def make(driver: FakeDriver):
        (tmp_path / FILE).write_bytes(b"code")
        monkeypatch.setattr(floor, "cuda_driver", lambda: driver)
        monkeypatch.setattr(floor, "ROTATED_BYTES", 4096)
        monkeypatch.setattr(floor.clock, "capture", lambda calls: [call() for call in calls])
        monkeypatch.setattr(floor.clock, "interleaved", interleaved)
        properties = SimpleNamespace(multi_processor_count=SMS)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
        stream = SimpleNamespace(cuda_stream=7)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
        return floor.Floor(tmp_path, "cpu"), asked

    return make


def test_the_fastest_reader_counts_and_bytes_are_measured_once(measured):
    driver = FakeDriver()
    found, asked = measured(driver)
    assert found.us(1000) == 9.0
    assert found.us(1001) == found.us(1008) == 9.0  # the same 63 words of 16 bytes
    assert asked == [tuple(map(str, READERS))]
    assert driver.grids == {(SMS * each.blocks, each.threads) for each in READERS}
    assert found.us(1009) == 9.0
    assert len(asked) == 2


def test_a_reader_that_skips_a_word_is_found(measured):
    found, _ = measured(FakeDriver(skipped=1))
    with pytest.raises(floor.WrongNumbersError, match="does not read all of 63 words"):
        found.us(1000)


def test_the_signature_is_that_of_the_layout():
    text = source()
    names = [parameter.name for parameter in floor.LAYOUT.parameters]
    assert names == ["words", "count", "out", "write"]
    signature = "const uint4* words, long long count, unsigned* out, int write"
    assert text.count(f"{signature}) {{\n  read<") == len({each.unroll for each in READERS})
    for each in READERS:
        assert f"{each.name}(" in text
        assert each.blocks * each.threads <= 2048
