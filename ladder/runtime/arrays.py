"""Arrays of NumPy, torch, CuPy and of any library that speaks DLPack, seen as pointer, shape, strides, dtype and device.

    view(torch.empty(4, 8, dtype=torch.bfloat16, device="cuda:1"))
        -->  ArrayView(pointer=..., shape=(4, 8), strides=(8, 1), dtype="bfloat16", device="cuda", ordinal=1)

No library is imported for it: one that made an array is already there. Strides are in elements.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Hashable, Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple, Protocol, cast

import ml_dtypes
import numpy as np

from ladder.errors import LaunchError
from ladder.runtime.plain import check_bytes, check_gradient, check_plain


class ArrayView(NamedTuple):
    """Where an array lies and how; ``owner`` keeps it alive."""

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    device: str
    ordinal: int
    owner: Any

    @property
    def place(self) -> str:
        """``cpu`` or ``cuda:1``."""
        return self.device if self.device == "cpu" else f"{self.device}:{self.ordinal}"

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, gaps between them apart."""
        return prod(self.shape) * numpy_dtype(self.dtype).itemsize

    @property
    def contiguous(self) -> bool:
        """Whether elements follow each other in C order; axes of extent 1 have no say."""
        if 0 in self.shape:
            return True
        natural = natural_strides(self.shape)
        return all(
            n == 1 or s == t for n, s, t in zip(self.shape, self.strides, natural, strict=True)
        )

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)} strides {list(self.strides)} on {self.place}"


class Library(Protocol):
    """What the runtime asks of an array library."""

    def view(self, array: Any) -> ArrayView:
        """Return where and how the array lies."""

    def stream(self, view: ArrayView) -> int:
        """Return the handle of the stream that the library uses now on the array's device."""

    def empty(self, like: Any, shape: tuple[int, ...], dtype: str) -> Any:
        """Return a fresh array of that library on the device of ``like``."""

    def contiguous(self, array: Any) -> Any:
        """Return a fresh C-order copy."""


def natural_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a C-order array, in elements."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


@lru_cache(maxsize=64)
def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return the NumPy dtype of a name, those of ml_dtypes included.

    Raises:
        LaunchError: nobody knows the name.
    """
    try:
        return np.dtype(getattr(ml_dtypes, name, name))
    except TypeError as error:
        raise LaunchError(f"unknown dtype {name!r}", at="array", hint="see ladder types") from error


class Rows(NamedTuple):
    """An array ``[..., k]`` seen as ``m`` rows; strides in elements."""

    m: int
    stride_m: int
    stride_k: int


def rows(view: ArrayView) -> Rows | None:
    """Collapse the leading axes of ``[..., k]`` into rows, or None where no single stride walks them.

    Axes of extent 1 have no stride of their own: a lone row gets stride k, a lone column stride 1.
    """
    *lead, k = view.shape
    if 0 in lead:
        return Rows(0, k, 1)
    stride_k = view.strides[-1] if k > 1 else 1
    m, stride_m, span = 1, k, None
    for extent, stride in zip(reversed(lead), reversed(view.strides[:-1]), strict=True):
        if extent == 1:
            continue
        if span is None:
            stride_m = stride
        elif stride != span:
            return None
        m *= extent
        span = stride * extent
    return Rows(m, stride_m if m > 1 else k, stride_k)


def library_of(array: object) -> Library:
    """Return how to talk to the library that made ``array``.

    Raises:
        LaunchError: it is no array of NumPy, torch or CuPy, and speaks neither DLPack nor the CUDA array interface.
    """
    return _library_of_type(cast("Hashable", type(array)))


def view(array: object) -> ArrayView:
    """Return where and how an array lies; see :class:`ArrayView`."""
    return _library_of_type(cast("Hashable", type(array))).view(array)


@lru_cache(maxsize=256)
def _library_of_type(kind: Any) -> Library:
    for base in kind.__mro__:
        root = base.__module__.partition(".")[0]
        if root in LIBRARIES and base is not object:
            return LIBRARIES[root]
    own = getattr(kind, "array_library", None)
    if own is not None:
        return cast("Library", own)
    if hasattr(kind, "__dlpack__") and hasattr(kind, "__dlpack_device__"):
        return Dlpack()
    if hasattr(kind, "__cuda_array_interface__"):
        return Interface()
    raise LaunchError(
        f"{kind.__module__}.{kind.__qualname__} is no array",
        at="argument",
        hint="give an array of NumPy, torch, CuPy, or one with __dlpack__",
    )


class Numpy:
    """NumPy arrays, on the CPU."""

    def view(self, array: Any) -> ArrayView:
        """See :class:`Library`."""
        if not isinstance(array, np.ndarray):
            raise LaunchError(f"{array!r} is a NumPy scalar", at="argument", hint="give an array")
        check_plain(array)
        size = array.dtype.itemsize
        if any(stride % size for stride in array.strides):
            raise LaunchError(
                f"byte strides {array.strides} are no multiples of {size}",
                at=f"{array.dtype.name}{list(array.shape)}",
                hint="copy the array: numpy.ascontiguousarray",
            )
        strides = tuple(stride // size for stride in array.strides)
        pointer = array.__array_interface__["data"][0]
        return ArrayView(pointer, array.shape, strides, array.dtype.name, "cpu", 0, array)

    def stream(self, view: ArrayView) -> int:
        """See :class:`Library`; the CPU has none, 0 is CUDA's default stream."""
        del view
        return 0

    def empty(self, like: Any, shape: tuple[int, ...], dtype: str) -> Any:
        """See :class:`Library`."""
        del like
        return np.empty(shape, numpy_dtype(dtype))

    def contiguous(self, array: Any) -> Any:
        """See :class:`Library`."""
        return np.array(array, order="C", copy=True, subok=False)


class Torch:
    """torch tensors, on any device."""

    def __init__(self) -> None:
        self._names: dict[Any, str] = {}

    def view(self, array: Any) -> ArrayView:
        """See :class:`Library`."""
        if array.requires_grad:
            check_gradient(array)
        dtype = array.dtype
        name = self._names.get(dtype)
        if name is None:
            name = self._names[dtype] = str(dtype).removeprefix("torch.")
        lies, device = (array.data_ptr(), array.shape, array.stride()), array.device
        return ArrayView(*lies, name, device.type, device.index or 0, array)

    def stream(self, view: ArrayView) -> int:
        """See :class:`Library`."""
        return int(sys.modules["torch"].cuda.current_stream(view.ordinal).cuda_stream)

    def empty(self, like: Any, shape: tuple[int, ...], dtype: str) -> Any:
        """See :class:`Library`."""
        torch = sys.modules["torch"]
        return torch.empty(shape, dtype=getattr(torch, dtype), device=like.device)

    def contiguous(self, array: Any) -> Any:
        """See :class:`Library`."""
        return array.detach().clone(memory_format=sys.modules["torch"].contiguous_format)


class Cupy:
    """CuPy arrays."""

    def view(self, array: Any) -> ArrayView:
        """See :class:`Library`."""
        size = array.dtype.itemsize
        strides = tuple(stride // size for stride in array.strides)
        name = array.dtype.name
        return ArrayView(
            int(array.data.ptr), array.shape, strides, name, "cuda", int(array.device.id), array
        )

    def stream(self, view: ArrayView) -> int:
        """See :class:`Library`."""
        cupy = sys.modules["cupy"]
        with cupy.cuda.Device(view.ordinal):
            return int(cupy.cuda.get_current_stream().ptr)

    def empty(self, like: Any, shape: tuple[int, ...], dtype: str) -> Any:
        """See :class:`Library`."""
        cupy = sys.modules["cupy"]
        with cupy.cuda.Device(like.device.id):
            return cupy.empty(shape, dtype=numpy_dtype(dtype))

    def contiguous(self, array: Any) -> Any:
        """See :class:`Library`."""
        with sys.modules["cupy"].cuda.Device(array.device.id):
            return array.copy(order="C")


class _Foreign:
    """A library of which nothing is known but how its arrays lie."""

    def stream(self, view: ArrayView) -> int:
        """See :class:`Library`; the default stream, for which DLPack made the array ready."""
        del view
        return 0

    def empty(self, like: Any, shape: tuple[int, ...], dtype: str) -> Any:
        """See :class:`Library`."""
        raise LaunchError(
            f"cannot make a {dtype}{list(shape)} like a {type(like).__qualname__}",
            at="out",
            hint="give out=, an array of that shape and type on the same device",
        )

    def contiguous(self, array: Any) -> Any:
        """See :class:`Library`."""
        raise LaunchError(
            f"the strides of a {type(array).__qualname__} do not fit the kernel",
            at=str(view(array)),
            hint="make it contiguous first",
        )


class Interface(_Foreign):
    """Arrays with ``__cuda_array_interface__`` alone."""

    def view(self, array: Any) -> ArrayView:
        """See :class:`Library`."""
        facts = array.__cuda_array_interface__
        dtype = np.dtype(facts["typestr"])
        shape = tuple(facts["shape"])
        check_bytes(dtype, shape)
        given = facts.get("strides")
        strides = (
            natural_strides(shape) if given is None else tuple(s // dtype.itemsize for s in given)
        )
        pointer = int(facts["data"][0])
        index = _device_of(pointer) if pointer else 0
        return ArrayView(pointer, shape, strides, dtype.name, "cuda", index, array)

    def stream(self, view: ArrayView) -> int:
        """See :class:`Library`; the interface may name the stream to follow."""
        return int(view.owner.__cuda_array_interface__.get("stream") or 0)


def _device_of(pointer: int) -> int:
    from ladder.runtime.driver import cuda_driver

    return cuda_driver().device_of(pointer)


class _DlTensor(ctypes.Structure):
    """``DLTensor`` of dlpack.h."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


#: DLDeviceType of dlpack.h -> kind; managed and pinned host memory is reached from the device that it names
DLPACK_DEVICES = {1: "cpu", 2: "cuda", 3: "cpu", 13: "cuda"}
#: (DLDataTypeCode, bits) of dlpack.h -> dtype
DLPACK_DTYPES = {
    **{(0, bits): f"int{bits}" for bits in (8, 16, 32, 64)},
    **{(1, bits): f"uint{bits}" for bits in (8, 16, 32, 64)},
    **{(2, bits): f"float{bits}" for bits in (16, 32, 64)},
    (4, 16): "bfloat16",
    (10, 8): "float8_e4m3fn",
    (12, 8): "float8_e5m2",
    (14, 8): "float8_e8m0fnu",
}


class Dlpack(_Foreign):
    """Arrays that speak DLPack; the capsule is kept and never consumed, so that its maker frees it."""

    def view(self, array: Any) -> ArrayView:
        """See :class:`Library`."""
        kind, _ = array.__dlpack_device__()
        # 1 is CUDA's default stream: the maker lets it wait for the array (array API, __dlpack__)
        capsule = array.__dlpack__(stream=1) if int(kind) == 2 else array.__dlpack__()
        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        tensor = _DlTensor.from_address(get(capsule, b"dltensor"))
        shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
        strides = (
            tuple(tensor.strides[i] for i in range(tensor.ndim))
            if tensor.strides
            else natural_strides(shape)
        )
        dtype = DLPACK_DTYPES.get((tensor.code, tensor.bits))
        device = DLPACK_DEVICES.get(tensor.device_type)
        if dtype is None or tensor.lanes != 1 or device is None:
            raise LaunchError(
                f"type code {tensor.code} of {tensor.bits} bits x {tensor.lanes} on device type {tensor.device_type}",
                at=f"DLPack array of {type(array).__qualname__}",
                hint="give a plain array on the CPU or a CUDA device",
            )
        pointer = (tensor.data or 0) + tensor.byte_offset
        return ArrayView(pointer, shape, strides, dtype, device, tensor.device_id, (array, capsule))


def as_numpy(view: ArrayView) -> np.ndarray[Any, np.dtype[Any]]:
    """Return a CPU view as a NumPy array over the same memory.

    Raises:
        LaunchError: the array lies on a device.
    """
    if isinstance(view.owner, np.ndarray):
        return view.owner
    if view.device != "cpu":
        raise LaunchError(
            f"the array lies on {view.place}", at="NumPy view", hint="copy it to the CPU"
        )
    dtype = numpy_dtype(view.dtype)
    if 0 in view.shape:
        return np.empty(view.shape, dtype)
    last = sum((n - 1) * s for n, s in zip(view.shape, view.strides, strict=True))
    memory = (ctypes.c_uint8 * ((last + 1) * dtype.itemsize)).from_address(view.pointer)
    strides = tuple(stride * dtype.itemsize for stride in view.strides)
    array: np.ndarray[Any, np.dtype[Any]] = np.ndarray(
        view.shape, dtype, cast("Any", memory), 0, strides
    )
    return array


LIBRARIES: dict[str, Library] = {"numpy": Numpy(), "torch": Torch(), "cupy": Cupy()}
