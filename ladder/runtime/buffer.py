"""Device memory of our own, for callers who have a GPU and NumPy only."""

from __future__ import annotations

import weakref
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ladder.errors import LaunchError
from ladder.runtime.arrays import ArrayView, Library, natural_strides, numpy_dtype
from ladder.runtime.driver import Driver


class DeviceBuffer:
    """A C-order array on a CUDA device, freed with its last reference; other libraries read it without a copy.

    Args:
        driver: whose memory it is.
        device: number of the device.
        shape: extents, outermost first.
        dtype: name, those of ml_dtypes included.
    """

    array_library: ClassVar[Library]

    def __init__(self, driver: Driver, device: int, shape: tuple[int, ...], dtype: str) -> None:
        self._driver = driver
        strides = natural_strides(shape)
        empty = ArrayView(0, tuple(shape), strides, dtype, "cuda", device, None)
        pointer = driver.allocate(device, empty.nbytes)
        self.view = empty._replace(pointer=pointer)
        self._finalizer = weakref.finalize(self, driver.free, device, pointer)
        # at exit the driver may be gone before us, and the process gives its memory back anyhow
        self._finalizer.atexit = False

    @classmethod
    def of(cls, driver: Driver, device: int, array: NDArray[Any]) -> DeviceBuffer:
        """Return a copy of a NumPy array on a device."""
        source = np.ascontiguousarray(array)
        buffer = cls(driver, device, array.shape, source.dtype.name)
        driver.to_device(device, buffer.view.pointer, source.ctypes.data, source.nbytes)
        return buffer

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents, outermost first."""
        return self.view.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy dtype of the elements."""
        return numpy_dtype(self.view.dtype)

    def numpy(self) -> NDArray[Any]:
        """Return a copy on the CPU; waits for the work of the default stream."""
        host = np.empty(self.shape, self.dtype)
        self._driver.to_host(self.view.ordinal, host.ctypes.data, self.view.pointer, host.nbytes)
        return host

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """CUDA array interface, version 3 (Numba documentation); types that it lacks appear as unsigned integers."""
        dtype = self.dtype
        typestr = dtype.str if dtype.kind in "iuf" else f"<u{dtype.itemsize}"
        return {
            "shape": self.shape,
            "typestr": typestr,
            "data": (self.view.pointer, False),
            "version": 3,
            "strides": None,
        }

    def __repr__(self) -> str:
        return f"DeviceBuffer({self.view})"


class Buffers:
    """:class:`~ladder.runtime.arrays.Library` of device buffers."""

    def view(self, array: Any) -> ArrayView:
        """See :class:`Library`."""
        found: ArrayView = array.view
        return found._replace(owner=array)

    def stream(self, view: ArrayView) -> int:
        """See :class:`Library`; the default stream."""
        del view
        return 0

    def empty(self, like: Any, shape: tuple[int, ...], dtype: str) -> Any:
        """See :class:`Library`."""
        return DeviceBuffer(like._driver, like.view.ordinal, shape, dtype)  # noqa: SLF001  its own kind

    def contiguous(self, array: Any) -> Any:
        """See :class:`Library`; buffers are contiguous from birth."""
        raise LaunchError(f"{array!r} does not fit the kernel", at="device buffer")


DeviceBuffer.array_library = Buffers()
