"""Packed weights: the buffers that a kernel reads, with the packing that says what their bytes mean."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tempfile
import tokenize
import zipfile
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ladder.checks import MAPPING, PATH, accept, shown
from ladder.errors import LaunchError, PackingError
from ladder.runtime.arrays import ArrayView, Torch, as_numpy, library_of, numpy_dtype, view
from ladder.runtime.buffer import DeviceBuffer
from ladder.runtime.driver import Driver, cuda_driver

#: kernels read packed buffers with loads of up to 16 bytes
ALIGNMENT = 16
FORMAT = 1

#: what NumPy raises for a file that is cut, changed or of another kind
UNREADABLE = (
    OSError,
    ValueError,
    KeyError,
    EOFError,
    TypeError,
    AttributeError,
    SyntaxError,
    NotImplementedError,
    tokenize.TokenError,
    zipfile.BadZipFile,
)

_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


class PackingLike(Protocol):
    """What the runtime asks of :class:`ladder.scheduler.packing.Packing`."""

    @property
    def version(self) -> int:
        """Raised whenever the same weights would get other bytes."""

    def pack(self, weights: Any) -> Mapping[str, Any]:
        """Return the packed arrays by name."""

    def unpack(self, arrays: Mapping[str, Any]) -> Any:
        """Invert :meth:`pack`."""

    def pack_arrays(self, codes: Any, **metadata: Any) -> Mapping[str, Any]:
        """Pack like :meth:`pack`, with the library of the arrays, where they lie."""

    def unpack_arrays(self, arrays: Mapping[str, Any]) -> Mapping[str, Any]:
        """Invert :meth:`pack_arrays`."""

    def shapes(self) -> Mapping[str, tuple[tuple[int, ...], str]]:
        """Return (shape, dtype name) of every packed array."""

    def to_json(self) -> Any:
        """Return the packing as JSON."""


def check_packing(packing: object, at: str) -> None:
    """Refuse what is no packing.

    Raises:
        PackingError: it lacks what the runtime asks of one.
    """
    if (
        isinstance(packing, type)
        or not hasattr(packing, "to_json")
        or not hasattr(packing, "shapes")
    ):
        raise PackingError(
            f"packing is {shown(packing)}, not a Packing",
            at=at,
            hint="plan.packing, kernel.packing",
        )


def packing_key(packing: PackingLike) -> str:
    """Return a digest of a packing: equal digests mean that equal weights get equal bytes."""
    return hashlib.sha256(canonical(as_json(packing.to_json())).encode()).hexdigest()


def as_json(value: Any) -> Any:
    """Return a JSON value, whether it was given as one or as its text."""
    return json.loads(value) if isinstance(value, str) else value


def canonical(value: Any) -> str:
    """Return the one JSON text of a value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


class Packed(Mapping[str, Any]):
    """The packed arrays of one weight, by name; not to be written to.

    Args:
        packing: how they were packed.
        arrays: name -> array; all on one device.

    Raises:
        PackingError: an array is missing, has another shape or type than the packing says, or lies elsewhere.

    NumPy arrays are kept as read-only views, and copied where they are not aligned to 16 bytes.
    """

    def __init__(self, packing: PackingLike, arrays: Mapping[str, Any]) -> None:
        check_packing(packing, "Packed")
        accept(arrays, MAPPING, "arrays", at="Packed", error=PackingError)
        self.packing = packing
        self._arrays = MappingProxyType({name: _kept(array) for name, array in arrays.items()})
        self._copies: dict[int, Packed] = {}
        #: whether weights may still be on their way to the device: the next launch must not run ahead of them
        self.fresh = True
        self._check()

    @cached_property
    def key(self) -> str:
        """Identity of the packing; see :func:`packing_key`."""
        return packing_key(self.packing)

    @cached_property
    def views(self) -> dict[str, ArrayView]:
        """Where every array lies."""
        return {name: view(array) for name, array in self._arrays.items()}

    @cached_property
    def pointers(self) -> dict[str, int]:
        """Address of every array."""
        return {name: found.pointer for name, found in self.views.items()}

    @cached_property
    def place(self) -> str:
        """``cpu`` or ``cuda:0``."""
        return next(iter(self.views.values())).place

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(found.nbytes for found in self.views.values())

    def __getitem__(self, name: str) -> Any:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Packed):
            return NotImplemented
        if self.key != other.key or set(self) != set(other):
            return False
        mine, theirs = self.numpy(), other.numpy()
        return all(_bits(mine[name]).tobytes() == _bits(theirs[name]).tobytes() for name in mine)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the arrays on the CPU, where they come back; :meth:`to` moves them."""
        return (Packed, (self.packing, self.numpy()))

    __hash__ = None  # type: ignore[assignment]  # equal by content, which lies in arrays

    def __str__(self) -> str:
        lines = [f"packed v{self.packing.version}, {self.nbytes} B on {self.place}"]
        lines += [f"  {name:<12} {v.dtype}{list(v.shape)}" for name, v in self.views.items()]
        return "\n".join(lines)

    __repr__ = __str__

    def numpy(self) -> dict[str, NDArray[Any]]:
        """Return the arrays on the CPU, without a copy where they already are there."""
        return {name: _to_numpy(array) for name, array in self._arrays.items()}

    def to(self, device: Any, *, driver: Driver | None = None) -> Packed:
        """Return a copy on ``device``; itself where it already is there.

        Args:
            device: ``"cpu"`` (NumPy), ``"cuda"`` or ``"cuda:1"`` (memory of our own), a ``torch.device``, or any torch
                tensor, whose device is meant (torch tensors).
            driver: whose memory to use; None for this machine's.

        Raises:
            LaunchError: there is no such device.
        """
        torch_device = _torch_device(device)
        if torch_device is not None:
            arrays = {name: to_torch(array, torch_device) for name, array in self._arrays.items()}
            return Packed(self.packing, arrays)
        place = str(device)
        if place == self.place or (place == "cuda" and self.place == "cuda:0"):
            return self
        if place == "cpu":
            return Packed(self.packing, self.numpy())
        ordinal = _ordinal(place)
        if ordinal not in self._copies:
            used = driver or cuda_driver()
            host = self.numpy()
            arrays = {name: DeviceBuffer.of(used, ordinal, host[name]) for name in host}
            self._copies[ordinal] = Packed(self.packing, arrays)
        return self._copies[ordinal]

    def save(self, file: str | Path) -> None:
        """Write the arrays and the packing to one ``.npz`` file, whole or not at all.

        Raises:
            PackingError: the file cannot be written.
        """
        header = {
            "format": FORMAT,
            "packing": as_json(self.packing.to_json()),
            "version": self.packing.version,
            "dtypes": {name: found.dtype for name, found in self.views.items()},
        }
        text = np.frombuffer(canonical(header).encode(), np.uint8)
        stream = io.BytesIO()
        # NumPy's format has no name for bfloat16 and the like: bits are stored, names stand in the header
        bits = {f"array.{name}": _bits(array) for name, array in self.numpy().items()}
        np.savez(stream, allow_pickle=False, header=text, **bits)
        target = accept(file, PATH, "file", at="Packed.save", error=PackingError)
        try:
            write_atomically(target, stream.getvalue())
        except OSError as error:
            raise PackingError(
                f"cannot write packed weights: {error}",
                at=str(file),
                hint="check that the folder is there, its rights, and the disk",
            ) from error

    @classmethod
    def load(cls, file: str | Path, packing: PackingLike) -> Packed:
        """Read what :meth:`save` wrote, for the packing that it was written with.

        Raises:
            PackingError: the file is no packed weight, damaged, or of another packing.
        """
        source = accept(file, PATH, "file", at="Packed.load", error=PackingError)
        check_packing(packing, "Packed.load")
        try:
            content = io.BytesIO(source.read_bytes())
            with np.load(content, allow_pickle=False) as stored:
                header = json.loads(bytes(stored["header"]))
                bits = {name: stored[f"array.{name}"] for name in header["dtypes"]}
        except UNREADABLE as error:
            raise PackingError(
                f"cannot read packed weights: {type(error).__name__}: {error}",
                at=str(file),
                hint="pack the weights again and save them",
            ) from error
        if header["format"] != FORMAT or header["packing"] != as_json(packing.to_json()):
            raise PackingError(
                f"packed by format {header['format']}, packing version {header['version']}; "
                f"wanted format {FORMAT}, packing version {packing.version} of the same weight",
                at=str(file),
                hint="pack the weights again for this kernel",
            )
        dtypes = header["dtypes"]
        return cls(packing, {name: bits[name].view(numpy_dtype(dtypes[name])) for name in bits})

    def _check(self) -> None:
        for name, (shape, dtype) in self.packing.shapes().items():
            found = self.views.get(name)
            if (
                found is None
                or tuple(found.shape) != tuple(shape)
                or not same_bits(found.dtype, dtype)
            ):
                what = "missing" if found is None else f"{found.dtype}{list(found.shape)}"
                raise PackingError(
                    f"packed {name} is {what}, expected {dtype}{list(shape)}",
                    at=f"packing v{self.packing.version}",
                    hint="kernel.pack(q) makes the arrays",
                )
        first = next(iter(self.views), "")
        for name, found in self.views.items():
            if found.place != self.place:
                raise PackingError(
                    f"{name} is on {found.place}, {first} on {self.place}",
                    at="Packed",
                    hint="move all arrays to one device",
                )
            if not found.contiguous or found.pointer % ALIGNMENT:
                raise PackingError(
                    f"{name} lies at address {found.pointer:#x} with strides {list(found.strides)}",
                    at="Packed",
                    hint=f"packed arrays are contiguous and aligned to {ALIGNMENT} bytes: copy the array",
                )


def same_bits(found: str, wanted: str) -> bool:
    """Whether an array of dtype ``found`` holds what a kernel reads as ``wanted``: the same, or raw integers as wide."""
    if found == wanted:
        return True
    raw = {"int8", "uint8", "int16", "uint16", "int32", "uint32"}
    return found in raw and numpy_dtype(found).itemsize == numpy_dtype(wanted).itemsize


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that a reader finds the old content or the new, never a part."""
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _kept(array: Any) -> Any:
    if not isinstance(array, np.ndarray):
        return array
    if not array.flags.c_contiguous or array.ctypes.data % ALIGNMENT:
        array = _aligned_copy(array)
    kept = array.view()
    kept.setflags(write=False)
    return kept


def _aligned_copy(array: NDArray[Any]) -> NDArray[Any]:
    memory = np.empty(array.nbytes + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def _bits(array: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(array).view(_UNSIGNED[array.dtype.itemsize])


def _to_numpy(array: Any) -> NDArray[Any]:
    if isinstance(array, np.ndarray | DeviceBuffer):
        host: NDArray[Any] = array if isinstance(array, np.ndarray) else array.numpy()
        return host
    if isinstance(library_of(array), Torch):
        array = array.detach().cpu()
    elif hasattr(array, "get"):  # CuPy's copy to the host
        array = array.get()
    copy: NDArray[Any] = as_numpy(view(array)).copy()
    return copy


def _torch_device(device: Any) -> Any:
    """Return the ``torch.device`` that is meant, or None."""
    if type(device).__module__.partition(".")[0] != "torch":
        return None
    return getattr(device, "device", device)


def to_torch(array: Any, device: Any) -> Any:
    """An array as a torch tensor on a device; of a type that torch lacks, its bits as signed integers."""
    if isinstance(library_of(array), Torch):
        return array.to(device)
    import torch

    host = _to_numpy(array)
    # as signed integers, which every torch has; where it lacks the type, the raw bits are what kernels read anyway
    signed = _bits(host).view(f"int{8 * host.dtype.itemsize}")
    tensor = torch.from_numpy(signed.copy())
    wanted = getattr(torch, host.dtype.name, None)
    tensor = tensor if wanted is None else tensor.view(wanted)
    return (tensor if host.ndim else tensor.reshape(())).to(
        device
    )  # one number's bits have an axis


def _ordinal(place: str) -> int:
    name, _, number = place.partition(":")
    if name != "cuda" or (number and not number.isdecimal()):
        raise LaunchError(
            f"no device is called {place!r}", at="Packed.to", hint="cpu, cuda or cuda:1"
        )
    return int(number or 0)


__all__ = ["Packed", "PackingLike", "as_json", "canonical", "packing_key", "same_bits", "to_torch"]
