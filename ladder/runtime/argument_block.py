"""The arguments of a launch as they lie in memory."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

from ladder.codegen.kernel import Parameter
from ladder.errors import LaunchError

_CTYPES: dict[str, Any] = {"int32": ctypes.c_int32, "int64": ctypes.c_int64}


#: a tensor map is 128 bytes at a multiple of 64 (CUDA driver API, CUtensorMap)
MAP_BYTES = 128
MAP_ALIGN = 64


class ArgumentLayout:
    """How the arguments of one kernel lie in memory: one struct, and a pointer to each of its fields.

    ``cuLaunchKernelEx`` takes an array of pointers, one for each argument in the order of the signature (CUDA driver
    API, "Execution Control"), and copies the values before it returns. Tensor maps lie behind the struct.
    """

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        self.parameters = tuple(parameters)
        plain = [p for p in self.parameters if p.kind != "tensor map"]
        fields = [
            (f"a{i}", ctypes.c_void_p if p.kind == "buffer" else _CTYPES[p.dtype])
            for i, p in enumerate(plain)
        ]
        self._struct = type("_Arguments", (ctypes.Structure,), {"_fields_": fields})
        self._offsets = [getattr(self._struct, name).offset for name, _ in fields]
        self._pointers = ctypes.c_void_p * len(self.parameters)
        #: the argument that is a tensor map, if there is one
        self.tensor_map = next((p for p in self.parameters if p.kind == "tensor map"), None)

    def fill(self, values: Mapping[str, int], tensor_map: TensorMap | None = None) -> Arguments:
        """Return the argument block with ``values[role]`` in every field, and the tensor map where one is taken.

        Raises:
            LaunchError: a scalar does not fit its type.
        """
        plain = [p for p in self.parameters if p.kind != "tensor map"]
        struct = self._struct(*[_fitting(parameter, values) for parameter in plain])
        base = ctypes.addressof(struct)
        places = iter([base + offset for offset in self._offsets])
        pointers = [
            tensor_map.address
            if p.kind == "tensor map" and tensor_map is not None
            else next(places)
            for p in self.parameters
        ]
        return Arguments((struct, tensor_map), self._pointers(*pointers))


def _fitting(parameter: Parameter, values: Mapping[str, int]) -> int:
    value = values[parameter.role]
    is_int32 = parameter.dtype == "int32" and parameter.kind == "scalar"
    if is_int32 and not -(2**31) <= value < 2**31:
        raise LaunchError(
            f"{parameter.role} is {value}, the kernel takes an int32",
            at=parameter.name,
            hint="make the array contiguous, or split the rows",
        )
    return value


class TensorMap:
    """Memory for one tensor map, aligned as the driver asks for."""

    __slots__ = ("_memory", "address")

    def __init__(self) -> None:
        self._memory = ctypes.create_string_buffer(MAP_BYTES + MAP_ALIGN)
        self.address = -(-ctypes.addressof(self._memory) // MAP_ALIGN) * MAP_ALIGN


class Arguments:
    """A filled argument block; ``address`` is what the driver takes as ``kernelParams``."""

    __slots__ = ("_kept", "_pointers", "address")

    def __init__(self, kept: object, pointers: ctypes.Array[ctypes.c_void_p]) -> None:
        self._kept = kept
        self._pointers = pointers
        self.address = ctypes.addressof(pointers)
