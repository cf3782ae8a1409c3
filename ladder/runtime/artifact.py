"""The artifact: a folder from which a kernel is launched with the CUDA driver alone.

    manifest.json            format, versions, plan, packing, and for every kernel its arguments and launch geometry
    <kernel>.cu              CUDA text
    <kernel>.<arch>.cubin    machine code; none where no CUDA compiler was there (``"cubins": {}`` in the manifest)
    <kernel>.listing.json    what the emulator runs, where there is one

Every file's sha256 stands in the manifest, and the manifest's own in its last line: what a kernel takes and how it is
launched cannot be checked otherwise. A folder is written whole or not at all (:func:`ladder.files.replacing`).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from typing import Any

from ladder.checks import PATH, accept
from ladder.codegen.kernel import Launch, LoweredKernel, Parameter
from ladder.codegen.toolchain import Cubin
from ladder.errors import ArtifactError
from ladder.files import (
    DIGEST,
    Contents,
    check_digest,
    check_document,
    document_digest,
    replacing,
    write_files,
)
from ladder.runtime.versions import package_version
from ladder.scheduler.members import members

FORMAT = 3
#: formats that are read, too: in the first every kernel's plan was written out, in the second that of a kernel alone
OLDER = (1, 2)
MANIFEST = "manifest.json"
CONTENTS = Contents("artifact", MANIFEST, ("*.cu", "*.cubin", "*.listing.json"))
AGAIN = "compile the plan again and save it"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")

Json = dict[str, Any]


class Listing(Mapping[str, Any]):
    """An instruction listing as it lies in a file; only an emulator reads it, and then it is parsed.

    Args:
        text: JSON of an object.
    """

    def __init__(self, text: bytes) -> None:
        self._text = text

    @cached_property
    def _parsed(self) -> Json:
        return dict(json.loads(self._text))

    def __getitem__(self, name: str) -> Any:
        return self._parsed[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parsed)

    def __len__(self) -> int:
        return len(self._parsed)


@dataclass(frozen=True)
class Part:
    """One kernel of an artifact.

    Args:
        plan: the plan that it was lowered from, as JSON.
        lowered: text, arguments and launch.
        cubins: architecture -> machine code; may be empty.
    """

    plan: Json
    lowered: LoweredKernel
    cubins: Mapping[str, Cubin] = field(default_factory=dict)


@dataclass(frozen=True)
class Artifact:
    """A compiled operator as values; see the module's docstring.

    Args:
        parts: kernels, each for its own range of m.
        plan: the whole plan (of one kernel, or the set) as JSON.
        packing: as JSON, of ``packing_version``.
        packing_version: of the packing.
        toolchain: name and version of the compiler, or ``none``.
        created: time in UTC, ISO 8601.
        ladder: version of this package.
    """

    parts: tuple[Part, ...]
    plan: Json
    packing: Json
    packing_version: int
    toolchain: str = "none"
    created: str = field(
        default_factory=lambda: datetime.now(timezone.utc).isoformat(timespec="seconds")
    )
    ladder: str = field(default_factory=package_version)

    def __post_init__(self) -> None:
        """Refuse kernels whose names cannot be told apart as files."""
        names = [part.lowered.name for part in self.parts]
        bad = [name for name in names if not _NAME.fullmatch(name) or names.count(name) > 1]
        if bad or not names:
            raise ArtifactError(
                f"kernel names {names}",
                at="Artifact",
                hint="one kernel or more, by different C names",
            )

    def __str__(self) -> str:
        kernels = ", ".join(
            f"{part.lowered.name} ({', '.join(part.cubins) or 'text only'})" for part in self.parts
        )
        return f"artifact of ladder {self.ladder}, {self.toolchain}, {self.created}: {kernels}"

    def files(self) -> dict[str, bytes]:
        """Return file name -> content, the manifest included."""
        files: dict[str, bytes] = {}
        own = _own_plans(self.plan)
        kernels = [_part_files(part, files, own) for part in self.parts]
        manifest = {
            "format": FORMAT,
            "ladder": self.ladder,
            "created": self.created,
            "toolchain": self.toolchain,
            "plan": self.plan,
            "packing": self.packing,
            "packing_version": self.packing_version,
            "kernels": kernels,
        }
        manifest[DIGEST] = document_digest(manifest)
        return {MANIFEST: (json.dumps(manifest, indent=2) + "\n").encode(), **files}

    @classmethod
    def from_files(cls, read: Callable[[str], bytes], *, at: str) -> Artifact:
        """Read an artifact file by file; ``read`` raises OSError or KeyError for one that is not there.

        Raises:
            ArtifactError: a file is missing, damaged, foreign or of another format.
        """
        manifest = _manifest(read, at)
        try:
            own = _own_plans(manifest["plan"])
            parts = tuple(_read_part(record, read, own, at) for record in manifest["kernels"])
            return cls(
                parts=parts,
                plan=manifest["plan"],
                packing=manifest["packing"],
                packing_version=manifest["packing_version"],
                toolchain=manifest["toolchain"],
                created=manifest["created"],
                ladder=manifest["ladder"],
            )
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise ArtifactError(
                f"{MANIFEST} lacks or misspells {error}", at=at, hint=AGAIN
            ) from error

    def save(self, folder: str | Path) -> Path:
        """Write the folder, whole or not at all; an artifact that stands there is replaced.

        Raises:
            ArtifactError: the folder holds something else, or cannot be written.
        """
        target = accept(folder, PATH, "folder", at="save", error=ArtifactError)
        with replacing(target, CONTENTS, at="save", error=ArtifactError) as new:
            write_files(new, self.files())
        return target

    @classmethod
    def load(cls, folder: str | Path) -> Artifact:
        """Read what :meth:`save` wrote.

        Raises:
            ArtifactError: a file is missing, damaged, foreign or of another format.
        """
        root = accept(folder, PATH, "folder", at="ladder.load", error=ArtifactError)
        return cls.from_files(lambda name: (root / name).read_bytes(), at=str(root))


def _part_files(part: Part, files: dict[str, bytes], own: list[Json]) -> Json:
    lowered = part.lowered

    def put(name: str, content: bytes) -> Json:
        files[name] = content
        return {"file": name, "sha256": hashlib.sha256(content).hexdigest()}

    listing = None
    if lowered.listing is not None:
        text = json.dumps(dict(lowered.listing), separators=(",", ":"))
        listing = put(f"{lowered.name}.listing.json", text.encode())
    cubins = {
        arch: {
            **put(f"{lowered.name}.{arch}.cubin", cubin.code),
            "registers": cubin.registers,
            "spill_bytes": cubin.spill_bytes,
            "stack_bytes": cubin.stack_bytes,
            "compiler": cubin.compiler,
        }
        for arch, cubin in part.cubins.items()
    }
    return {
        "name": lowered.name,
        "device_arch": lowered.device_arch,
        # only the number among the artifact's own plans: each spells out every bit of the packing
        "plan": own.index(part.plan) if part.plan in own else part.plan,
        "source": put(f"{lowered.name}.cu", lowered.source.encode()),
        "listing": listing,
        "parameters": [parameter.to_json() for parameter in lowered.parameters],
        "launch": lowered.launch.to_json(),
        "cubins": cubins,
    }


def _manifest(read: Callable[[str], bytes], at: str) -> Json:
    try:
        manifest = json.loads(read(MANIFEST))
    except (OSError, KeyError) as error:
        raise ArtifactError(
            f"there is no {MANIFEST}", at=at, hint="give a folder that kernel.save wrote"
        ) from error
    except ValueError as error:
        raise ArtifactError(f"{MANIFEST} is no JSON: {error}", at=at, hint=AGAIN) from error
    found = manifest.get("format") if isinstance(manifest, dict) else None
    if found not in (*OLDER, FORMAT):
        raise ArtifactError(f"format {found}, this version reads {FORMAT}", at=at, hint=AGAIN)
    check_document(MANIFEST, manifest, at=at, hint=AGAIN)
    return dict(manifest)


def _read_part(record: Json, read: Callable[[str], bytes], own: list[Json], at: str) -> Part:
    listing = record["listing"]
    lowered = LoweredKernel(
        name=record["name"],
        source=_content(record["source"], read, at).decode(),
        parameters=tuple(Parameter.from_json(p) for p in record["parameters"]),
        launch=Launch.from_json(record["launch"]),
        listing=None if listing is None else Listing(_content(listing, read, at)),
        device_arch=record["device_arch"],
    )
    cubins = {
        arch: Cubin(
            code=_content(cubin, read, at),
            log="",
            registers=cubin["registers"],
            spill_bytes=cubin["spill_bytes"],
            stack_bytes=cubin["stack_bytes"],
            seconds=0.0,
            compiler=cubin["compiler"],
        )
        for arch, cubin in record["cubins"].items()
    }
    plan = record["plan"]
    # a set of another version has no plans that are known here: whoever reads it says so
    known = isinstance(plan, int) and plan < len(own)
    return Part(own[plan] if known else plan, lowered, cubins)


def _own_plans(plan: Json) -> list[Json]:
    """The documents of an artifact's plans: those of a set, or the one that it is."""
    return members(plan) or [plan]


def _content(record: Json, read: Callable[[str], bytes], at: str) -> bytes:
    name = record["file"]
    if not _FILE.fullmatch(name):
        raise ArtifactError(f"the manifest names a file {name!r}", at=at, hint=AGAIN)
    try:
        content = read(name)
    except (OSError, KeyError) as error:
        raise ArtifactError(f"{name} is missing", at=at, hint=AGAIN) from error
    check_digest(name, hashlib.sha256(content).hexdigest(), record["sha256"], at=at, hint=AGAIN)
    return content
