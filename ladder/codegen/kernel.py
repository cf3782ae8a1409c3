"""What lowering hands over: CUDA text, the kernel's arguments in order, and how to launch it.

Every value here is frozen, compares, prints and goes to JSON and back, so that a saved kernel can be launched without
the compiler that made it.

    LoweredKernel("k", source, (Parameter("x", "buffer", "float16", "x"), ...), Launch((CeilDiv(16), 64, 1), (128, 1, 1)))
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from ladder.errors import ArtifactError, LaunchError
from ladder.ttile.device import GRID_LIMITS

#: what a buffer argument of a kernel stands for
BUFFER_ROLES = (
    *("x", "weight", "scales", "zeros", "unit", "global_scale", "table", "bias", "y"),
    *("x_scale", "residual"),
)
#: what a tensor map describes
MAP_ROLES = ("x_map",)
#: what a scalar argument stands for: the rows of x, strides in elements, and whether rows of y or of the residual start at
#: multiples of 16 bytes
SCALAR_ROLES = (
    *("m", "y_pieces", "x_stride_m", "x_stride_k", "y_stride_m"),
    *("residual_pieces", "residual_stride_m"),
)
SCALAR_DTYPES = ("int32", "int64")
#: launch attributes that a kernel may ask for; "pdl" is programmatic dependent launch
ATTRIBUTES = ("pdl",)

#: rows of a box come in tiles of this many: tokens that one product column tile has
BOX_TILE = 8


def box_rows(most: int, m: int) -> int:
    """Rows that a box of at most ``most`` rows brings of an array of ``m``: whole tiles of 8, at least one.

    The host makes the tensor map of it, and :class:`ladder.codegen.stages.pipeline.PipelineEmitter` has the kernel wait for
    as many bytes: the two have to agree, or the kernel never ends. Nothing is launched for ``m = 0``.
    """
    return min(most, max(1, -(-m // BOX_TILE)) * BOX_TILE)


Kind = Literal["buffer", "scalar", "tensor map"]

_ROLES: dict[str, tuple[str, ...]] = {
    "buffer": BUFFER_ROLES,
    "scalar": SCALAR_ROLES,
    "tensor map": MAP_ROLES,
}


@dataclass(frozen=True, slots=True)
class CeilDiv:
    """A grid extent that grows with the rows of x: ``ceil(m / by)`` blocks."""

    by: int

    def __post_init__(self) -> None:
        """Refuse a divisor that counts nothing."""
        if self.by < 1:
            raise LaunchError(f"a grid extent divides by {self.by}", at=self, hint="by >= 1")

    def __call__(self, m: int) -> int:
        """Return ``ceil(m / by)``."""
        return -(-m // self.by)

    def __str__(self) -> str:
        return f"ceil(m / {self.by})"


Extent = int | CeilDiv


@dataclass(frozen=True, slots=True)
class Parameter:
    """One kernel argument; their order in :class:`LoweredKernel` is the order of the kernel's signature.

    Args:
        name: the name in the CUDA text.
        kind: ``buffer`` (a device pointer), ``scalar`` or ``tensor map`` (encoded by the host from an array and its strides).
        dtype: of the elements, or ``int32``/``int64`` for a scalar.
        role: what it stands for, one of ``BUFFER_ROLES``, ``SCALAR_ROLES`` or ``MAP_ROLES``.
        box: of a tensor map, the extents that one copy brings, outermost first, in elements; rows of 128 bytes, swizzled.
    """

    name: str
    kind: Kind
    dtype: str
    role: str
    box: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a role that the launcher would not know how to fill."""
        roles = _ROLES.get(self.kind)
        if roles is None:
            raise LaunchError(f"a kernel argument of kind {self.kind!r}", at=self.name)
        if self.role not in roles:
            raise LaunchError(
                f"{self.kind} {self.name!r} has role {self.role!r}",
                at=self.name,
                hint=f"one of {', '.join(roles)}",
            )
        if self.kind == "scalar" and self.dtype not in SCALAR_DTYPES:
            raise LaunchError(
                f"scalar {self.name!r} has dtype {self.dtype!r}",
                at=self.name,
                hint=f"one of {', '.join(SCALAR_DTYPES)}",
            )

    def __str__(self) -> str:
        star = {"buffer": "*", "tensor map": f" boxes {list(self.box)}"}.get(self.kind, "")
        return f"{self.name}: {self.dtype}{star} = {self.role}"

    def to_json(self) -> dict[str, Any]:
        """Return a dictionary that :meth:`from_json` reads back."""
        record = {"name": self.name, "kind": self.kind, "dtype": self.dtype, "role": self.role}
        return {**record, "box": list(self.box)} if self.box else record

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Parameter:
        """Read what :meth:`to_json` wrote."""
        box = tuple(int(extent) for extent in data.get("box", ()))
        return cls(data["name"], data["kind"], data["dtype"], data["role"], box)


@dataclass(frozen=True, slots=True)
class Launch:
    """The geometry of a launch.

    Args:
        grid: blocks along x, y, z; an extent may depend on m.
        block: threads along x, y, z.
        shared_bytes: dynamic shared memory of one block, in bytes.
        attributes: of ``ATTRIBUTES``.
        cluster: blocks of one cluster along x, y, z, or None.
    """

    grid: tuple[Extent, Extent, Extent]
    block: tuple[int, int, int]
    shared_bytes: int = 0
    attributes: tuple[str, ...] = ()
    cluster: tuple[int, int, int] | None = None

    def __post_init__(self) -> None:
        """Refuse a geometry that no device takes (CUDA C++ guide, "Compute Capabilities")."""
        for name, extents in (
            ("grid", self.grid),
            ("block", self.block),
            ("cluster", self.cluster),
        ):
            if extents is not None and any(isinstance(e, int) and e < 1 for e in extents):
                raise LaunchError(f"{name} is {extents}", at="Launch", hint="extents are >= 1")
        threads = self.block[0] * self.block[1] * self.block[2]
        if threads > 1024:
            raise LaunchError(f"a block of {threads} threads", at="Launch", hint="at most 1024")
        unknown = [name for name in self.attributes if name not in ATTRIBUTES]
        if unknown:
            raise LaunchError(
                f"unknown launch attributes {unknown}", at="Launch", hint=f"of {ATTRIBUTES}"
            )

    def grid_for(self, m: int) -> tuple[int, int, int]:
        """Return the blocks along x, y, z for ``m`` rows."""
        x, y, z = (extent if isinstance(extent, int) else extent(m) for extent in self.grid)
        return x, y, z

    @property
    def most_rows(self) -> int | None:
        """Most rows of x that the grid covers within the limits of devices; None where m has no say."""
        covered = [
            limit * extent.by
            for extent, limit in zip(self.grid, GRID_LIMITS, strict=True)
            if isinstance(extent, CeilDiv)
        ]
        return min(covered, default=None)

    def __str__(self) -> str:
        parts = [
            f"grid ({', '.join(map(str, self.grid))})",
            f"block {self.block}",
            f"shared {self.shared_bytes} B",
        ]
        if self.cluster is not None:
            parts.append(f"cluster {self.cluster}")
        return ", ".join([*parts, *self.attributes])

    def to_json(self) -> dict[str, Any]:
        """Return a dictionary that :meth:`from_json` reads back; ``ceil(m / 16)`` is ``{"ceil_div": 16}``."""
        grid = [
            extent if isinstance(extent, int) else {"ceil_div": extent.by} for extent in self.grid
        ]
        return {
            "grid": grid,
            "block": list(self.block),
            "shared_bytes": self.shared_bytes,
            "attributes": list(self.attributes),
            "cluster": None if self.cluster is None else list(self.cluster),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Launch:
        """Read what :meth:`to_json` wrote."""
        x, y, z = (e if isinstance(e, int) else CeilDiv(e["ceil_div"]) for e in data["grid"])
        cluster = data["cluster"]
        return cls(
            grid=(x, y, z),
            block=_three(data["block"]),
            shared_bytes=data["shared_bytes"],
            attributes=tuple(data["attributes"]),
            cluster=None if cluster is None else _three(cluster),
        )


def _three(values: object) -> tuple[int, int, int]:
    x, y, z = cast("list[int]", values)
    return x, y, z


@dataclass(frozen=True, slots=True)
class LoweredKernel:
    """A kernel as text, with all that a launch needs to know.

    Args:
        name: of the ``extern "C"`` entry in ``source``.
        source: CUDA C++ text.
        parameters: in the order of the kernel's signature.
        launch: geometry and attributes.
        listing: what an emulator runs, as JSON (opaque here), or None.
        device_arch: with its feature suffix, for example ``sm_90a``.
    """

    name: str
    source: str
    parameters: tuple[Parameter, ...]
    launch: Launch
    listing: Mapping[str, Any] | None = field(default=None, hash=False, repr=False)
    device_arch: str = "sm_90a"

    def __post_init__(self) -> None:
        """Refuse two arguments with one role: the launcher fills arguments by role."""
        roles = [parameter.role for parameter in self.parameters]
        twice = sorted({role for role in roles if roles.count(role) > 1})
        if twice:
            raise LaunchError(f"roles given twice: {', '.join(twice)}", at=self.name)

    def parameter(self, role: str) -> Parameter | None:
        """Return the argument with this role, or None."""
        return next((p for p in self.parameters if p.role == role), None)

    def __str__(self) -> str:
        arguments = ", ".join(map(str, self.parameters))
        return f"{self.name}({arguments}) on {self.device_arch}: {self.launch}"

    def to_json(self) -> dict[str, Any]:
        """Return a dictionary that :meth:`from_json` reads back."""
        return {
            "name": self.name,
            "source": self.source,
            "parameters": [parameter.to_json() for parameter in self.parameters],
            "launch": self.launch.to_json(),
            "listing": None if self.listing is None else dict(self.listing),
            "device_arch": self.device_arch,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> LoweredKernel:
        """Read what :meth:`to_json` wrote.

        Raises:
            ArtifactError: when a field is missing or of the wrong shape.
        """
        try:
            return cls(
                name=data["name"],
                source=data["source"],
                parameters=tuple(Parameter.from_json(p) for p in data["parameters"]),
                launch=Launch.from_json(data["launch"]),
                listing=data["listing"],
                device_arch=data["device_arch"],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ArtifactError(
                f"a kernel record cannot be read: {type(error).__name__}: {error}",
                at=data.get("name", "?"),
                hint="it was written by another version: compile the plan again",
            ) from error
