from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladder.errors import LaunchError
from ladder.runtime.arrays import (
    Dlpack,
    Rows,
    as_numpy,
    library_of,
    natural_strides,
    rows,
    view,
)


class Speaker:
    """An array of a library that nobody knows, with DLPack only."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **_):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_a_numpy_array_is_seen_as_it_lies():
    array = np.zeros((4, 6), ml_dtypes.bfloat16)[::2, 1:]
    found = view(array)
    assert found[:6] == (array.ctypes.data, (2, 5), (12, 1), "bfloat16", "cpu", 0)
    assert (found.place, found.nbytes, found.contiguous) == ("cpu", 20, False)
    assert str(found) == "bfloat16[2, 5] strides [12, 1] on cpu"


def test_strides_that_are_no_elements_are_refused():
    record = np.zeros(4, np.dtype([("a", np.float16), ("b", np.int8)]))
    with pytest.raises(LaunchError, match="no multiples of 2"):
        view(record["a"])


def test_dlpack_arrays_are_seen_and_kept_alive():
    array = np.arange(24, dtype=np.float16).reshape(4, 6)[:, ::2]
    found = view(Speaker(array))
    assert found[:6] == (array.ctypes.data, (4, 3), (6, 2), "float16", "cpu", 0)
    del array
    np.testing.assert_array_equal(as_numpy(found)[1], [6, 8, 10])
    with pytest.raises(LaunchError, match="give out="):
        library_of(Speaker(np.zeros(1))).empty(Speaker(np.zeros(1)), (1,), "float16")
    with pytest.raises(LaunchError, match="make it contiguous first"):
        Dlpack().contiguous(Speaker(np.zeros(1)))


def test_dlpack_of_a_kind_that_no_kernel_reads_is_refused():
    with pytest.raises(LaunchError, match="type code 5 of 128 bits"):
        view(Speaker(np.zeros(2, np.complex128)))


def test_the_cuda_array_interface_is_seen_with_its_stream(driver, monkeypatch):
    import ladder.runtime.driver as module

    monkeypatch.setattr(module, "cuda_driver", lambda: driver)
    pointer = driver.allocate(0, 64)

    class Foreign:
        __cuda_array_interface__ = {  # noqa: RUF012  what a library's class would compute
            "shape": (2, 4),
            "typestr": "<f2",
            "strides": (16, 2),
            "data": (pointer, False),
            "version": 3,
            "stream": 42,
        }

    found = view(Foreign())
    assert found[:6] == (pointer, (2, 4), (8, 1), "float16", "cuda", 0)
    assert library_of(Foreign()).stream(found) == 42


def test_torch_is_seen_without_importing_it(torch):
    tensor = torch.on(np.zeros((2, 8), ml_dtypes.bfloat16), 1)
    found = view(tensor)
    assert found[:6] == (tensor.data_ptr(), (2, 8), (8, 1), "bfloat16", "cuda", 1)
    torch.streams[1] = 9
    assert library_of(tensor).stream(found) == 9

    class Parameter(torch.Tensor):
        pass

    assert library_of(Parameter(tensor.array, tensor.device)) is library_of(tensor)


@pytest.mark.parametrize("thing", [3, "x", [1.0], None, object()])
def test_what_is_no_array_is_refused(thing):
    with pytest.raises(LaunchError, match="is no array"):
        view(thing)


def test_a_numpy_scalar_is_no_array():
    with pytest.raises(LaunchError, match="is a NumPy scalar"):
        view(np.float16(3))


@pytest.mark.parametrize(
    "make, expected",
    [
        (lambda: np.zeros((3, 2, 5)), Rows(6, 5, 1)),
        (lambda: np.zeros(5), Rows(1, 5, 1)),
        (lambda: np.zeros((1, 1, 5)), Rows(1, 5, 1)),
        (lambda: np.zeros((3, 8))[:, :5], Rows(3, 8, 1)),
        (lambda: np.zeros((5, 3)).T, Rows(3, 1, 3)),
        (lambda: np.zeros((3, 4, 8))[:, :2, :5], None),
        (lambda: np.zeros((3, 4, 8))[:, :1, :5], Rows(3, 32, 1)),
        (lambda: np.zeros((4, 3, 5)).transpose(1, 0, 2), None),
        (lambda: np.broadcast_to(np.zeros(5), (7, 5)), Rows(7, 0, 1)),
        (lambda: np.broadcast_to(np.zeros(5), (2, 7, 5)), Rows(14, 0, 1)),
        (lambda: np.zeros((3, 7))[:, :1], Rows(3, 7, 1)),
        (lambda: np.zeros((2, 0, 5)), Rows(0, 5, 1)),
        (lambda: np.zeros((0, 2, 5)), Rows(0, 5, 1)),
    ],
)
def test_leading_axes_collapse_where_one_stride_walks_them(make, expected):
    assert rows(view(make())) == expected


@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=4),
    st.data(),
)
def test_rows_address_the_same_elements_as_the_array(shape, data):
    """Walking rows by their strides meets the elements in the order of ``reshape(-1, k)``."""
    steps = [data.draw(st.integers(1, 2)) for _ in shape]
    base = np.arange(np.prod([n * s for n, s in zip(shape, steps, strict=True)]), dtype=np.int32)
    base = base.reshape([n * s for n, s in zip(shape, steps, strict=True)])
    array = base[tuple(slice(None, None, s) for s in steps)]
    order = data.draw(st.permutations(range(len(shape))))
    array = array.transpose(order)
    found = rows(view(array))
    flat = array.reshape(-1, array.shape[-1])
    if found is not None:
        walked = [
            [found.stride_m * i + found.stride_k * j for j in range(flat.shape[1])]
            for i in range(found.m)
        ]
        np.testing.assert_array_equal(np.array(walked), flat)
    else:
        assert not array.flags.c_contiguous


def test_natural_strides_are_those_of_numpy():
    shape = (3, 1, 4)
    assert natural_strides(shape) == tuple(s // 8 for s in np.zeros(shape).strides)
    assert natural_strides(()) == ()


def test_a_tensor_whose_gradient_would_be_cut_off_is_refused():
    """By every kernel: they all look at their arrays here."""
    torch = pytest.importorskip("torch")
    tensor = torch.ones(2, 3).requires_grad_()
    with pytest.raises(LaunchError, match="requires a gradient, and kernels have none") as caught:
        view(tensor)
    assert caught.value.at == "torch.float32[2, 3]"
    with torch.no_grad():
        assert view(tensor).shape == (2, 3)
    assert view(tensor.detach()).pointer == tensor.data_ptr()
