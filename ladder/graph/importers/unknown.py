"""What an importer does not know: collected over a whole model and told at once."""

from __future__ import annotations

from dataclasses import dataclass

from ladder.checks import accept, one_of
from ladder.errors import ModelImportError

#: what an importer does with operators that it does not know
WAYS = one_of(("refuse", "foreign"))


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


def is_foreign(unknown: object, at: str) -> bool:
    """Whether unknown operators are left to the caller's framework.

    Raises:
        ModelImportError: ``unknown`` is neither "refuse" nor "foreign".
    """
    return accept(unknown, WAYS, "unknown", at=at, error=ModelImportError) == "foreign"


def first_line(error: Exception) -> str:
    """What an error says, without what follows."""
    return (str(error).splitlines() or [type(error).__name__])[0]


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
        f"{count} operator{'s' if count > 1 else ''} of the model {'are' if count > 1 else 'is'} not known:\n"
        + "\n".join(lines),
        at=source,
        hint="unknown='foreign' leaves them to the caller's framework, or add a converter to the importer's table",
    )
