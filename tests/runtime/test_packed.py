from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from ladder.errors import LaunchError, PackingError
from ladder.runtime.packed import Packed, same_bits


class BrainPacking:
    """A packing with a type that NumPy's own files cannot name."""

    version = 3

    def shapes(self):
        return {
            "weight": ((4,), "uint32"),
            "scales": ((2, 2), "bfloat16"),
            "zeros": ((2,), "float8_e4m3fn"),
        }

    def to_json(self):
        return '{"format": "brain/1"}'

    def pack(self, weights):
        del weights
        return {
            "weight": np.arange(4, dtype=np.uint32),
            "scales": np.array([[1, 2], [3, -0.0]], ml_dtypes.bfloat16),
            "zeros": np.array([1.5, np.nan], ml_dtypes.float8_e4m3fn),
        }


@pytest.fixture
def packing():
    return BrainPacking()


@pytest.fixture
def packed(packing):
    return Packed(packing, packing.pack(None))


def test_it_says_what_it_holds(packed):
    assert (packed.nbytes, packed.place, len(packed)) == (16 + 8 + 2, "cpu", 3)
    assert str(packed).splitlines() == [
        "packed v3, 26 B on cpu",
        "  weight       uint32[4]",
        "  scales       bfloat16[2, 2]",
        "  zeros        float8_e4m3fn[2]",
    ]


def test_numpy_arrays_cannot_be_written_through_it(packed):
    with pytest.raises(ValueError, match="read-only"):
        packed["weight"][0] = 1
    with pytest.raises(TypeError):
        packed["weight"] = 1
    with pytest.raises(TypeError, match="unhashable"):
        hash(packed)


def test_equality_is_of_bits_and_packing(packed, packing):
    other = packing.pack(None)
    assert packed == Packed(packing, other)
    other["scales"][1, 1] = 0.0  # was -0.0
    assert packed != Packed(packing, other)
    assert packed != 3


@pytest.mark.parametrize(
    "change, text",
    [
        ({"scales": None}, "packed scales is missing, expected bfloat16[2, 2]"),
        ({"scales": np.zeros((2, 0), ml_dtypes.bfloat16)}, "packed scales is bfloat16[2, 0]"),
        ({"scales": np.zeros((2, 2), np.float32)}, "packed scales is float32[2, 2]"),
        ({"weight": np.zeros(5, np.uint32)}, "packed weight is uint32[5], expected uint32[4]"),
    ],
)
def test_a_wrong_array_is_refused_before_any_launch(packing, change, text):
    """C48: a wrong number of groups is an error in Python."""
    arrays = {**packing.pack(None), **change}
    arrays = {name: array for name, array in arrays.items() if array is not None}
    with pytest.raises(PackingError) as caught:
        Packed(packing, arrays)
    assert text in str(caught.value)


def test_misaligned_arrays_are_copied_to_aligned_memory(packing):
    """C48: scales two bytes into their storage, read by 4-byte loads."""
    arrays = packing.pack(None)
    storage = np.zeros(5 * 2 + 16, np.uint8)
    start = -storage.ctypes.data % 16 + 2
    scales = storage[start : start + 8].view(ml_dtypes.bfloat16).reshape(2, 2)
    scales[...] = arrays["scales"]
    packed = Packed(packing, {**arrays, "scales": scales})
    assert packed.views["scales"].pointer % 16 == 0
    assert packed == Packed(packing, arrays)


def test_misaligned_device_arrays_are_refused(packing, torch):
    arrays = {
        name: torch.on(array) for name, array in packing.pack(None).items() if name != "zeros"
    }
    packing.shapes = lambda: {"weight": ((4,), "uint32"), "scales": ((2, 2), "bfloat16")}
    storage = torch.on(np.zeros(12, ml_dtypes.bfloat16))[1:5]
    arrays["scales"] = type(storage)(storage.array.reshape(2, 2), storage.device)
    with pytest.raises(PackingError, match="scales lies at address 0x"):
        Packed(packing, arrays)


def test_arrays_on_two_devices_are_refused(packing, torch):
    packing.shapes = lambda: {"weight": ((4,), "uint32"), "scales": ((2, 2), "bfloat16")}
    arrays = packing.pack(None)
    with pytest.raises(PackingError, match="scales is on cuda:1, weight on cuda:0"):
        Packed(
            packing,
            {"weight": torch.on(arrays["weight"]), "scales": torch.on(arrays["scales"], 1)},
        )


def test_it_moves_between_devices_and_comes_back_the_same(packed, driver):
    there = packed.to("cuda", driver=driver)
    assert there.place == "cuda:0"
    assert there.fresh
    assert there.to("cuda:0") is there
    assert packed.to("cpu") is packed
    assert packed.to("cuda:0", driver=driver) is there
    assert there.to("cpu") == packed == there
    pointers = set(there.pointers.values())
    assert pointers == set(driver.memory)
    del there
    packed._copies.clear()
    assert not driver.memory  # freed with the last reference


def test_it_moves_to_torch(packed, torch):
    torch.float8_e4m3fn = type(torch.float16)("float8_e4m3fn")
    there = packed.to(torch.device("cuda", 1))
    assert there.place == "cuda:1"
    assert str(there["scales"].dtype) == "torch.bfloat16"
    assert there == packed
    assert packed.to(there["scales"]).place == "cuda:1"  # a tensor means its device


def test_a_type_that_torch_lacks_moves_as_raw_bits(packed, torch):
    there = packed.to(torch.device("cuda", 0))
    assert str(there["zeros"].dtype) == "torch.int8"
    assert there == packed


@pytest.mark.parametrize("name", ["gpu", "cuda:x", "tpu:0"])
def test_an_unknown_device_is_refused(packed, name):
    with pytest.raises(LaunchError, match=f"no device is called '{name}'"):
        packed.to(name)


def test_it_is_saved_and_read_back(packed, packing, tmp_path):
    packed.save(tmp_path / "w.npz")
    back = Packed.load(tmp_path / "w.npz", packing)
    assert back == packed
    assert back["zeros"].dtype == ml_dtypes.float8_e4m3fn
    assert [file.name for file in tmp_path.iterdir()] == ["w.npz"]


def test_a_damaged_or_foreign_file_is_refused(packed, packing, tmp_path):
    file = tmp_path / "w.npz"
    packed.save(file)
    packing.to_json = lambda: '{"format": "brain/2"}'
    with pytest.raises(PackingError, match="of the same weight"):
        Packed.load(file, packing)
    whole = file.read_bytes()
    for content in (b"", whole[: len(whole) // 2], b"hello"):
        file.write_bytes(content)
        with pytest.raises(PackingError, match="cannot read packed weights"):
            Packed.load(file, packing)
    with pytest.raises(PackingError, match="cannot read packed weights: FileNotFoundError"):
        Packed.load(tmp_path / "none.npz", packing)


def test_raw_integers_as_wide_stand_for_a_type():
    assert same_bits("int32", "uint32")
    assert same_bits("uint8", "float8_e8m0fnu")
    assert not same_bits("uint8", "float16")
    assert not same_bits("float16", "bfloat16")
