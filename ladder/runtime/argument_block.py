"""The arguments of a launch as they lie in memory."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

from ladder.codegen.kernel import Parameter
from ladder.errors import LaunchError

_CTYPES: dict[str, Any] = {"int32": ctypes.c_int32, "int64": ctypes.c_int64}


class ArgumentLayout:
    """How the arguments of one kernel lie in memory: one struct, and a pointer to each of its fields.

    ``cuLaunchKernelEx`` takes an array of pointers, one for each argument in the order of the signature (CUDA driver
    API, "Execution Control"), and copies the values before it returns.
    """

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        self.parameters = tuple(parameters)
        fields = [
            (f"a{i}", ctypes.c_void_p if p.kind == "buffer" else _CTYPES[p.dtype])
            for i, p in enumerate(self.parameters)
        ]
        self._struct = type("_Arguments", (ctypes.Structure,), {"_fields_": fields})
        self._offsets = [getattr(self._struct, name).offset for name, _ in fields]
        self._pointers = ctypes.c_void_p * len(fields)

    def fill(self, values: Mapping[str, int]) -> Arguments:
        """Return the argument block with ``values[role]`` in every field.

        Raises:
            LaunchError: a scalar does not fit its type.
        """
        ordered = []
        for parameter in self.parameters:
            value = values[parameter.role]
            if (
                parameter.dtype == "int32"
                and parameter.kind == "scalar"
                and not -(2**31) <= value < 2**31
            ):
                raise LaunchError(
                    f"{parameter.role} is {value}, the kernel takes an int32",
                    at=parameter.name,
                    hint="make the array contiguous, or split the rows",
                )
            ordered.append(value)
        struct = self._struct(*ordered)
        base = ctypes.addressof(struct)
        return Arguments(struct, self._pointers(*[base + offset for offset in self._offsets]))


class Arguments:
    """A filled argument block; ``address`` is what the driver takes as ``kernelParams``."""

    __slots__ = ("_pointers", "_struct", "address")

    def __init__(self, struct: ctypes.Structure, pointers: ctypes.Array[ctypes.c_void_p]) -> None:
        self._struct = struct
        self._pointers = pointers
        self.address = ctypes.addressof(pointers)
