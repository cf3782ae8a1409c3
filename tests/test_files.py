"""Arrays in files: bit by bit, mapped where they are large, replaced under a reader's feet."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from ladder import files


@pytest.mark.parametrize(
    "dtype", [np.float16, np.uint8, ml_dtypes.bfloat16, ml_dtypes.float8_e8m0fnu]
)
def test_bits_come_back(tmp_path, dtype):
    array = np.random.default_rng(0).normal(size=(3, 5)).astype(dtype)
    files.save_array(tmp_path, "a", array)
    again = files.load_array(tmp_path, "a").view(dtype)
    assert again.tobytes() == array.tobytes()
    assert [file.name for file in tmp_path.iterdir()] == ["a.npy"]


def test_large_arrays_are_mapped_and_survive_being_replaced(tmp_path):
    large = np.arange(files.MAPPED, dtype=np.uint8)
    files.save_array(tmp_path, "a", large)
    mapped = files.load_array(tmp_path, "a")
    assert not mapped.flags.writeable
    files.save_array(tmp_path, "a", large[::-1])
    np.testing.assert_array_equal(mapped, large)
    np.testing.assert_array_equal(files.load_array(tmp_path, "a"), large[::-1])


def test_a_damaged_file_is_refused(tmp_path):
    files.save_array(tmp_path, "a", np.zeros(3 * files.MAPPED, np.uint8))
    content = (tmp_path / "a.npy").read_bytes()
    (tmp_path / "a.npy").write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match="mmap length"):
        files.load_array(tmp_path, "a")
    with pytest.raises(OSError, match=r"b\.npy"):
        files.load_array(tmp_path, "b")
