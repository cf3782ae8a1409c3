"""The shapes ``[n, k]`` that are tuned: those of known models' linear layers, or any others."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import ladder
from ladder.errors import TuningError
from ladder.registry import suggestion

FILE = Path(ladder.__path__[0]) / "catalog" / "layer_shapes.json"
CATALOG = "catalog"

Shape = tuple[int, int]


@dataclass(frozen=True)
class Model:
    """A model's linear layers.

    Attributes:
        name: for people, and for the command line.
        source: whose config.json the extents are from.
        layers: layer -> (n, k), output channels first.
    """

    name: str
    source: str
    layers: Mapping[str, Shape]


def models(file: Path = FILE) -> Mapping[str, Model]:
    """The models of a file of layer shapes, by name.

    Raises:
        TuningError: the file cannot be read, or holds something else.
    """
    try:
        found = json.loads(file.read_text(encoding="utf-8"))["models"]
        return {
            name: Model(
                name,
                str(node["source"]),
                {layer: _shape(extents) for layer, extents in node["layers"].items()},
            )
            for name, node in found.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise TuningError(
            f"layer shapes cannot be read: {type(error).__name__}: {error}",
            at=str(file),
            hint='{"models": {"NAME": {"source": "...", "layers": {"q_proj": [4096, 4096], ...}}}}',
        ) from error


def shapes(words: Iterable[str]) -> tuple[Shape, ...]:
    """The shapes that words name, each once, in order: ``catalog``, a model, ``4096x11008`` (N x K), or a file.

    Raises:
        TuningError: a word is none of these, or a file holds something else.
    """
    found: dict[Shape, None] = {}
    for word in words:
        found.update(dict.fromkeys(_named(word)))
    return tuple(found)


def _named(word: str) -> list[Shape]:
    extents = re.fullmatch(r"(\d+)x(\d+)", word)
    if extents:
        return [(int(extents[1]), int(extents[2]))]
    if word.endswith(".json"):
        return _all(models(Path(word)).values())
    known = models()
    if word == CATALOG:
        return _all(known.values())
    if word not in known:
        raise TuningError(
            f"no shapes are called {word!r}",
            at="--shapes",
            hint=f"NxK, a .json file, or a name: {suggestion(word, (CATALOG, *known))}",
        )
    return _all([known[word]])


def _all(chosen: Iterable[Model]) -> list[Shape]:
    return [shape for model in chosen for shape in model.layers.values()]


def _shape(extents: object) -> Shape:
    if (
        isinstance(extents, list)
        and len(extents) == 2
        and all(type(extent) is int and extent > 0 for extent in extents)
    ):
        return extents[0], extents[1]
    raise ValueError(f"{extents!r} is no [n, k]")
