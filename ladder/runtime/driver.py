"""The CUDA driver, as little of it as a launch needs, behind a protocol that a test can stand in for.

The driver library and its bindings are looked for when a launch is asked for, never at import. A prepared launch holds
everything that does not change from call to call (argument block, launch configuration), so that repeating it costs two
driver calls and no allocation, and may be captured into a CUDA graph.
"""

from __future__ import annotations

import threading
from functools import lru_cache
from types import ModuleType
from typing import Any, Protocol, cast

from ladder.checks import Expected
from ladder.errors import LaunchError
from ladder.runtime.argument_block import Arguments, TensorMap
from ladder.runtime.tensor_map import encode_tensor_map, library
from ladder.ttile.device import GRID_LIMITS

#: dynamic shared memory that a kernel may use without asking, in bytes (CUDA C++ guide, "Compute Capabilities")
SHARED_WITHOUT_OPT_IN = 48 * 1024
INSTALL = (
    "install NVIDIA's display driver (libcuda.so.1 must be found by the loader, see LD_LIBRARY_PATH) and "
    "pip install 'ladder[cuda]'; without a GPU, plan.run(x, q) computes in NumPy and kernel(x, packed, device='emulator')"
    " runs the kernel"
)
Three = tuple[int, int, int]


class Prepared(Protocol):
    """A launch that waits for its stream and arguments; belongs to one thread."""

    def __call__(self, stream: int, arguments: Arguments, *, pdl: bool) -> None:
        """Launch on ``stream``; ``pdl`` lets it overlap the end of the kernel before it."""


class Driver(Protocol):
    """What the runtime asks of a CUDA driver. Devices are numbers, handles are opaque, sizes are bytes."""

    def version(self) -> str:
        """Return the driver's CUDA version, for example ``13.0``."""

    def device_count(self) -> int:
        """Return the number of devices."""

    def device_name(self, device: int) -> str:
        """Return the marketing name."""

    def compute_capability(self, device: int) -> tuple[int, int]:
        """Return (major, minor)."""

    def load(self, device: int, code: bytes, name: str, shared_bytes: int) -> object:
        """Load a cubin on a device and return its kernel ``name``, allowed ``shared_bytes`` of dynamic shared memory."""

    def prepare(
        self,
        device: int,
        function: object,
        geometry: tuple[Three, Three, int, Three | None],
    ) -> Prepared:
        """Prepare a launch; ``geometry`` is (grid, block, shared bytes, cluster)."""

    def tensor_map(
        self, pointer: int, extents: tuple[int, int], stride: int, box: tuple[int, ...]
    ) -> TensorMap:
        """Describe a matrix for tensor copies.

        Args:
            pointer: address of its first element, a multiple of 16.
            extents: rows and columns.
            stride: bytes from one row to the next, a multiple of 16.
            box: rows and columns that one copy brings; its rows have 128 bytes, which tells the size of an element, and are swizzled, what lies outside is zero.
        """

    def device_of(self, pointer: int) -> int:
        """Return the device on which an address lies."""

    def allocate(self, device: int, nbytes: int) -> int:
        """Return the address of fresh device memory."""

    def free(self, device: int, pointer: int) -> None:
        """Give memory back."""

    def to_device(self, device: int, target: int, source: int, nbytes: int) -> None:
        """Copy host memory to the device, done when this returns."""

    def to_host(self, device: int, target: int, source: int, nbytes: int) -> None:
        """Copy device memory to the host, done when this returns."""


#: whatever has the methods of a driver
DRIVER: Expected[Driver] = Expected(
    "a driver",
    lambda value: (
        not isinstance(value, type)
        and all(callable(getattr(value, name, None)) for name in ("prepare", "load"))
    ),
    lambda value: value,
    "leave it out for this machine's",
)


def check_grid(grid: Three) -> None:
    """Refuse a grid that no device launches.

    Raises:
        LaunchError: an extent is past its limit.
    """
    for axis, extent, limit in zip("xyz", grid, GRID_LIMITS, strict=True):
        if extent > limit:
            raise LaunchError(
                f"{extent} blocks along {axis}, at most {limit}",
                at="grid",
                hint="split the rows of x",
            )


@lru_cache(maxsize=1)
def cuda_driver() -> Driver:
    """Return the driver of this machine.

    Raises:
        LaunchError: bindings, driver or device are missing; the text says which, and what to do.
    """
    try:
        from cuda.bindings import driver as bindings
    except ImportError as error:
        raise LaunchError(
            f"the CUDA bindings for Python are missing: {error}",
            at="import cuda.bindings",
            hint=INSTALL,
        ) from error
    try:
        (status,) = bindings.cuInit(0)
    except (RuntimeError, OSError) as error:
        # the loader lists every folder it looked in; the first line says what is missing
        first = str(error).strip().splitlines()[0]
        raise LaunchError(
            f"NVIDIA's driver library cannot be loaded: {first}", at="libcuda.so.1", hint=INSTALL
        ) from error
    cuda = cast("ModuleType", bindings)
    if status != cuda.CUresult.CUDA_SUCCESS:
        raise LaunchError(f"the driver does not start: {status.name}", at="cuInit", hint=INSTALL)
    return CudaDriver(cuda)


def driver_version() -> str:
    """Return the CUDA version of this machine's driver, or ``none``; touches no device."""
    try:
        from cuda.bindings import driver as bindings

        status, version = bindings.cuDriverGetVersion()
    except (ImportError, RuntimeError, OSError):
        return "none"
    if status != bindings.CUresult.CUDA_SUCCESS:
        return "none"
    return f"{version // 1000}.{version % 1000 // 10}"


class CudaDriver:
    """:class:`Driver` by ``cuda.bindings.driver``, in the primary context of each device (which CUDA's runtime uses)."""

    def __init__(self, bindings: ModuleType) -> None:
        self._cuda = bindings
        self._contexts: dict[int, Any] = {}
        self._lock = threading.Lock()

    def version(self) -> str:
        """See :class:`Driver`."""
        version = self._call("cuDriverGetVersion")
        return f"{version // 1000}.{version % 1000 // 10}"

    def device_count(self) -> int:
        """See :class:`Driver`."""
        return int(self._call("cuDeviceGetCount"))

    def device_name(self, device: int) -> str:
        """See :class:`Driver`."""
        raw = self._call("cuDeviceGetName", 256, self._device(device))
        return bytes(raw).split(b"\0")[0].decode()

    def compute_capability(self, device: int) -> tuple[int, int]:
        """See :class:`Driver`."""
        kinds = self._cuda.CUdevice_attribute
        major, minor = (
            int(self._call("cuDeviceGetAttribute", kind, self._device(device)))
            for kind in (
                kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
            )
        )
        return major, minor

    def load(self, device: int, code: bytes, name: str, shared_bytes: int) -> object:
        """See :class:`Driver`."""
        with self._current(device):
            module = self._call("cuModuleLoadData", code)
            function = self._call("cuModuleGetFunction", module, name.encode())
            if shared_bytes > SHARED_WITHOUT_OPT_IN:
                attributes = self._cuda.CUfunction_attribute
                kind = attributes.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                self._call("cuFuncSetAttribute", function, kind, shared_bytes)
        return function

    def prepare(
        self,
        device: int,
        function: object,
        geometry: tuple[Three, Three, int, Three | None],
    ) -> Prepared:
        """See :class:`Driver`."""
        check_grid(geometry[0])
        context = self._context(device)
        return _CudaLaunch(self._cuda, context, function, geometry)

    def tensor_map(
        self, pointer: int, extents: tuple[int, int], stride: int, box: tuple[int, ...]
    ) -> TensorMap:
        """See :class:`Driver`. By ctypes: the bindings keep maps at addresses that the driver refuses."""
        return encode_tensor_map(library().cuTensorMapEncodeTiled, pointer, extents, stride, box)

    def device_of(self, pointer: int) -> int:
        """See :class:`Driver`."""
        kind = self._cuda.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
        return int(self._call("cuPointerGetAttribute", kind, pointer))

    def allocate(self, device: int, nbytes: int) -> int:
        """See :class:`Driver`."""
        with self._current(device):
            return int(self._call("cuMemAlloc", max(nbytes, 1)))

    def free(self, device: int, pointer: int) -> None:
        """See :class:`Driver`."""
        with self._current(device):
            self._call("cuMemFree", pointer)

    def to_device(self, device: int, target: int, source: int, nbytes: int) -> None:
        """See :class:`Driver`."""
        with self._current(device):
            self._call("cuMemcpyHtoD", target, source, nbytes)
            # a copy from pageable memory may return before its last transfer (CUDA driver API, "API
            # synchronization behavior"), and kernels may run on a stream that does not wait for it
            self._call("cuStreamSynchronize", 0)

    def to_host(self, device: int, target: int, source: int, nbytes: int) -> None:
        """See :class:`Driver`."""
        with self._current(device):
            self._call("cuMemcpyDtoH", target, source, nbytes)

    def _device(self, device: int) -> Any:
        count = self.device_count()
        if not 0 <= device < count:
            raise LaunchError(
                f"device {device} of {count}",
                at=f"cuda:{device}",
                hint="see nvidia-smi --list-gpus",
            )
        return self._call("cuDeviceGet", device)

    def _context(self, device: int) -> Any:
        with self._lock:
            if device not in self._contexts:
                handle = self._call("cuDevicePrimaryCtxRetain", self._device(device))
                self._contexts[device] = handle
            return self._contexts[device]

    def _current(self, device: int) -> _Current:
        return _Current(self, self._context(device))

    def _call(self, name: str, *arguments: object) -> Any:
        return checked(self._cuda, name, getattr(self._cuda, name)(*arguments))


class _Current:
    """Make a context current for a while."""

    def __init__(self, driver: CudaDriver, context: object) -> None:
        self._driver = driver
        self._context = context

    def __enter__(self) -> None:
        self._driver._call("cuCtxPushCurrent", self._context)  # noqa: SLF001  two halves of one class

    def __exit__(self, *_: object) -> None:
        self._driver._call("cuCtxPopCurrent")  # noqa: SLF001


class _CudaLaunch:
    """:class:`Prepared` by ``cuLaunchKernelEx``: one or two driver calls, no allocation, no synchronisation."""

    __slots__ = (
        "_context",
        "_cuda",
        "_function",
        "_handle",
        "_launch",
        "_pdl",
        "_plain",
        "_success",
    )

    def __init__(
        self,
        cuda: ModuleType,
        context: Any,
        function: object,
        geometry: tuple[Three, Three, int, Three | None],
    ) -> None:
        self._cuda = cuda
        self._context = context
        self._handle = int(context)
        self._function = function
        self._launch = cuda.cuLaunchKernelEx
        self._success = cuda.CUresult.CUDA_SUCCESS
        self._plain = _Config(cuda, geometry, pdl=False)
        self._pdl = _Config(cuda, geometry, pdl=True)

    def __call__(self, stream: int, arguments: Arguments, *, pdl: bool) -> None:
        config = (self._pdl if pdl else self._plain).on(stream)
        cuda = self._cuda
        _, current = cuda.cuCtxGetCurrent()
        if int(current) == self._handle:
            result = self._launch(config, self._function, arguments.address, 0)
        else:
            checked(cuda, "cuCtxPushCurrent", cuda.cuCtxPushCurrent(self._context))
            try:
                result = self._launch(config, self._function, arguments.address, 0)
            finally:
                checked(cuda, "cuCtxPopCurrent", cuda.cuCtxPopCurrent())
        if result[0] != self._success:
            checked(cuda, "cuLaunchKernelEx", result)


class _Config:
    """A launch configuration whose stream is written only when it changes."""

    __slots__ = ("_config", "_cuda", "_stream")

    def __init__(
        self, cuda: ModuleType, geometry: tuple[Three, Three, int, Three | None], *, pdl: bool
    ) -> None:
        grid, block, shared_bytes, cluster = geometry
        config = cuda.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = grid
        config.blockDimX, config.blockDimY, config.blockDimZ = block
        config.sharedMemBytes = shared_bytes
        config.hStream = 0
        attributes = _attributes(cuda, cluster, pdl=pdl)
        config.attrs = attributes
        config.numAttrs = len(attributes)
        self._cuda = cuda
        self._config = config
        self._stream = 0

    def on(self, stream: int) -> Any:
        if stream != self._stream:
            self._config.hStream = stream
            self._stream = stream
        return self._config


def _attributes(cuda: ModuleType, cluster: Three | None, *, pdl: bool) -> list[Any]:
    kinds = cuda.CUlaunchAttributeID
    attributes = []
    if pdl:
        attribute = cuda.CUlaunchAttribute()
        attribute.id = kinds.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        attribute.value.programmaticStreamSerializationAllowed = 1
        attributes.append(attribute)
    if cluster is not None:
        attribute = cuda.CUlaunchAttribute()
        attribute.id = kinds.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        dims = attribute.value.clusterDim
        dims.x, dims.y, dims.z = cluster
        attributes.append(attribute)
    return attributes


def checked(cuda: ModuleType, name: str, result: tuple[Any, ...]) -> Any:
    """Return the values of a driver call.

    Raises:
        LaunchError: the call failed; the text holds the driver's own name and words for it.
    """
    status, *values = result
    if status != cuda.CUresult.CUDA_SUCCESS:
        _, words = cuda.cuGetErrorString(status)
        text = words.decode() if isinstance(words, bytes) else str(words)
        raise LaunchError(f"{status.name}: {text}", at=name, hint=HINTS.get(status.name, ""))
    return values[0] if values else None


HINTS = {
    "CUDA_ERROR_NO_BINARY_FOR_GPU": "compile the plan for this device",
    "CUDA_ERROR_INVALID_IMAGE": "the driver is older than the compiler: update it, or compile with an older toolkit",
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": "update the driver, or compile with an older toolkit",
    "CUDA_ERROR_OUT_OF_MEMORY": "free device memory; the packed weights and outputs must fit",
    "CUDA_ERROR_ILLEGAL_ADDRESS": "an array was freed or is too small; run under compute-sanitizer to see which",
}
