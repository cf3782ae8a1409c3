"""Launches recorded kernels on a GPU with the driver alone: cuda-bindings, and ctypes for tensor maps."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np

#: CU_TENSOR_MAP_DATA_TYPE_FLOAT16
FLOAT16 = 6


class CudaError(RuntimeError):
    """A call of the driver failed."""


def check(result: tuple[Any, ...], what: str) -> Any:
    """What a call of cuda-bindings returned, without its code."""
    code, *rest = result
    if int(code):
        raise CudaError(f"{what}: {code.name}")
    return rest[0] if len(rest) == 1 else rest


class Gpu:
    """The first GPU with its primary context."""

    def __init__(self) -> None:
        from cuda.bindings import driver

        self.cu = driver
        check(driver.cuInit(0), "cuInit")
        device = check(driver.cuDeviceGet(0), "cuDeviceGet")
        context = check(driver.cuDevicePrimaryCtxRetain(device), "cuDevicePrimaryCtxRetain")
        check(driver.cuCtxSetCurrent(context), "cuCtxSetCurrent")
        raw = check(driver.cuDeviceGetName(128, device), "cuDeviceGetName")
        self.name = raw.split(b"\0")[0].decode()

    def launch(
        self, entry: Mapping[str, Any], code: bytes, arrays: Mapping[str, Any]
    ) -> dict[str, np.ndarray[Any, Any]]:
        """Run a kernel once on copies of arrays, and return what is in them then.

        ``entry`` holds kernel, parameters (an argument, with a box a tensor map of it, or a value), grid, threads, cluster and
        shared, the bytes of dynamic shared memory.
        """
        cu = self.cu
        module = check(cu.cuModuleLoadData(code), "cuModuleLoadData")
        function = check(cu.cuModuleGetFunction(module, entry["kernel"].encode()), entry["kernel"])
        if entry["shared"] > 48 * 1024:
            attribute = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            check(cu.cuFuncSetAttribute(function, attribute, entry["shared"]), "shared memory")
        memory = {}
        for name, array in arrays.items():
            host = np.ascontiguousarray(array)
            memory[name] = check(cu.cuMemAlloc(max(host.nbytes, 16)), "cuMemAlloc")
            check(cu.cuMemcpyHtoD(memory[name], host.ctypes.data, host.nbytes), "cuMemcpyHtoD")
        kept = [self._value(parameter, memory) for parameter in entry["parameters"]]
        table = (ctypes.c_void_p * len(kept))(*[address for address, _ in kept])
        config = self._config(entry)
        check(cu.cuLaunchKernelEx(config, function, ctypes.addressof(table), 0), "launch")
        check(cu.cuCtxSynchronize(), "kernel")
        found = {}
        for name, array in arrays.items():
            host = np.empty_like(np.ascontiguousarray(array))
            check(cu.cuMemcpyDtoH(host.ctypes.data, memory[name], host.nbytes), "cuMemcpyDtoH")
            check(cu.cuMemFree(memory[name]), "cuMemFree")
            found[name] = host
        return found

    def _config(self, entry: Mapping[str, Any]) -> Any:
        cu = self.cu
        config = cu.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = entry["grid"]
        config.blockDimX, config.blockDimY, config.blockDimZ = entry["threads"], 1, 1
        config.sharedMemBytes = entry["shared"]
        if entry["cluster"] > 1:
            attribute = cu.CUlaunchAttribute()
            attribute.id = cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            attribute.value.clusterDim.x = entry["cluster"]
            attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1
            config.attrs, config.numAttrs = [attribute], 1
        return config

    def _value(self, parameter: Mapping[str, Any], memory: Mapping[str, Any]) -> tuple[int, Any]:
        """Address of a parameter's bytes, and what keeps them alive."""
        if "value" in parameter:
            kind = {"int32": ctypes.c_int32, "int64": ctypes.c_int64}[parameter["dtype"]]
            scalar = kind(parameter["value"])
            return ctypes.addressof(scalar), scalar
        pointer = int(memory[parameter["argument"]])
        if "box" in parameter:
            return tensor_map(parameter, pointer)
        value = ctypes.c_uint64(pointer)
        return ctypes.addressof(value), value


def tensor_map(parameter: Mapping[str, Any], pointer: int) -> tuple[int, Any]:
    """Encode a tiled tensor map (CUDA driver API, cuTensorMapEncodeTiled); its address is a multiple of 64, as that asks for.

    cuda-bindings keep the map inside a Python object, which lies at multiples of 16: the driver answers CUDA_ERROR_INVALID_VALUE.
    Of rank 1 there is no stride; the array still holds one number, since not every driver takes a null pointer.
    """
    rank, shape = len(parameter["shape"]), parameter["shape"]
    if parameter["itemsize"] != 2:
        raise CudaError(f"a tensor map of {parameter['itemsize']} byte elements")
    memory = ctypes.create_string_buffer(128 + 64)
    address = -(-ctypes.addressof(memory) // 64) * 64
    strides = parameter["strides"] or [-(-shape[0] * parameter["itemsize"] // 16) * 16]
    encode = ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled
    encode.restype = ctypes.c_int
    code = encode(
        ctypes.c_void_p(address),
        ctypes.c_int(FLOAT16),
        ctypes.c_uint32(rank),
        ctypes.c_void_p(pointer),
        (ctypes.c_uint64 * rank)(*shape),
        (ctypes.c_uint64 * len(strides))(*strides),
        (ctypes.c_uint32 * rank)(*parameter["box"]),
        (ctypes.c_uint32 * rank)(*[1] * rank),
        ctypes.c_int(0),  # CU_TENSOR_MAP_INTERLEAVE_NONE
        ctypes.c_int(parameter["swizzle"]),
        ctypes.c_int(0),  # CU_TENSOR_MAP_L2_PROMOTION_NONE
        ctypes.c_int(0),  # CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE: zeros
    )
    if code:
        raise CudaError(f"cuTensorMapEncodeTiled: error {code} for {dict(parameter)}")
    return address, memory
