"""What an importer does not know: collected over a whole model and told at once."""

from __future__ import annotations

from dataclasses import dataclass

from ladder.errors import ModelImportError


@dataclass(frozen=True, slots=True)
class Unknown:
    """An operator that no converter takes.

    Attributes:
        target: the framework's name.
        at: the node, with the module or line of the model that it comes from.
        why: what of it is unknown; "" for the operator itself.
    """

    target: str
    at: str
    why: str = ""

    def __str__(self) -> str:
        return f"{self.target} at {self.at}" + (f": {self.why}" if self.why else "")


def refuse(unknown: list[Unknown], source: str) -> None:
    """Raise one error that lists everything, each kind of operator with all its places.

    Raises:
        ModelImportError: something is unknown.
    """
    if not unknown:
        return
    grouped: dict[tuple[str, str], list[str]] = {}
    for one in unknown:
        grouped.setdefault((one.target, one.why), []).append(one.at)
    lines = [
        f"  {target}{f' ({why})' if why else ''}: {', '.join(places[:4])}"
        + (f" and {len(places) - 4} more" if len(places) > 4 else "")
        for (target, why), places in grouped.items()
    ]
    count = len(unknown)
    raise ModelImportError(
        f"{count} operator{'s' if count > 1 else ''} of the model are not known:\n"
        + "\n".join(lines),
        at=source,
        hint="unknown='foreign' leaves them to the caller's framework, or add a converter to the importer's table",
    )
