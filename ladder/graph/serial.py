"""Graphs as text and folders: ``load`` of what ``save`` wrote is an equal graph.

A folder holds ``graph.json`` (inputs, nodes, outputs, types of constants, decisions, layouts, digests) and a file for each array
of a constant, bit by bit. When a graph is loaded, every file is compared with its digest, so that codes need not be looked at
again; large arrays are mapped. Nothing in it needs the framework that the model came from.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ladder.checks import PATH, accept
from ladder.errors import GraphError, LadderError
from ladder.files import (
    Contents,
    load_array,
    load_document,
    replacing,
    save_array,
    save_document,
)
from ladder.graph.constant import Constant
from ladder.graph.extent import Symbolic
from ladder.graph.graph import Decision, Graph, Input, Node, Value
from ladder.graph.layouts.serial import layouts_from_json, layouts_to_json
from ladder.graph.operators import OPERATORS, STEPS, Operator
from ladder.graph.tensor import DTYPES, TensorType, dtype_name
from ladder.parallel import each
from ladder.ttype import DENSE, Dense, GroupedType, Quantized, TType

FORMAT = "ladder.graph/3"
GRAPH, ARRAYS = "graph.json", "constants"
CONTENTS = Contents("graph", GRAPH, (ARRAYS,))
DAMAGED = "it was changed or damaged: write it again"

Json = Any

#: what Python and NumPy raise where a file is of another kind than it should be
_MISREAD = (
    OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, EOFError, OverflowError,
)  # fmt: skip

#: arrays of a quantised weight, in the order of Quantized's arguments
PARTS = ("codes", "scales", "zeros", "global_scale")

_CLASSES: Mapping[str, type] = {
    **{cls.__name__: cls for cls in (*OPERATORS.values(), *STEPS)},
    "TensorType": TensorType,
}


def to_json(graph: Graph) -> str:
    """Stable text of everything but the contents of constants."""
    return json.dumps(_document(graph), indent=1)


def _document(graph: Graph) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "inputs": [{"name": one.name, "type": encode(one.type)} for one in graph.inputs],
        "constants": [_constant_record(one) for one in graph.constants],
        "nodes": [
            {
                "name": one.name,
                "op": encode(one.op),
                "inputs": list(one.inputs),
                "origin": one.origin,
            }
            for one in graph.nodes
        ],
        "outputs": list(graph.outputs),
        "decisions": [[one.stage, one.at, one.what, one.why] for one in graph.decisions],
        "layouts": layouts_to_json(graph.layouts),
    }


def save(graph: Graph, folder: Any) -> None:
    """Write a graph to a folder, whole or not at all; a graph that stands there is replaced.

    Raises:
        GraphError: the folder holds something else, or cannot be written.
    """
    path = accept(folder, PATH, "folder", at="Graph.save", error=GraphError)
    with replacing(path, CONTENTS, at="Graph.save", error=GraphError) as new:
        write(graph, new)


def write(graph: Graph, folder: Path) -> None:
    """Write a graph's files into an empty folder.

    Raises:
        OSError: one cannot be written.
    """
    (folder / ARRAYS).mkdir()
    digests = {
        name: save_array(folder / ARRAYS, name, array)
        for place, constant in enumerate(graph.constants)
        for name, array in _arrays(constant, place).items()
    }
    save_document(folder / GRAPH, {**_document(graph), "digests": digests}, indent=1)


def _arrays(constant: Constant, place: int) -> dict[str, Any]:
    """The arrays of a constant by the names of their files."""
    value = constant.value
    if not isinstance(value, Quantized):
        return {f"{place}.value": value}
    parts = {f"{place}.{name}": getattr(value, name) for name in PARTS}
    return {name: array for name, array in parts.items() if array is not None}


def load(folder: Any) -> Graph:
    """Read what :func:`save` wrote.

    Raises:
        GraphError: the folder holds no graph, or one that cannot be read.
        ArtifactError: it is of another version, or a file is not as it was written.
    """
    path = accept(folder, PATH, "folder", at="Graph.load", error=GraphError)
    try:
        return _graph(load_document(path / GRAPH, FORMAT), path / ARRAYS)
    except LadderError:
        raise
    except _MISREAD as error:
        raise GraphError(f"the graph cannot be read: {error}", at=path, hint=DAMAGED) from error


def _graph(document: Json, folder: Path) -> Graph:
    digests = document["digests"]

    def constant(numbered: tuple[int, Json]) -> Constant:
        place, record = numbered
        return _constant(record, lambda name: load_array(folder, name, digests[name]), place)

    constants = tuple(each(constant, list(enumerate(document["constants"]))))
    inputs = tuple(Input(one["name"], decode(one["type"])) for one in document["inputs"])
    values: tuple[Value, ...] = (*inputs, *constants)
    types = {one.name: one.type for one in values}
    nodes = []
    for one in document["nodes"]:
        op: Operator = decode(one["op"])
        names = tuple(one["inputs"])
        found = op.infer(*(types[name] for name in names))
        types[one["name"]] = found
        nodes.append(Node(one["name"], op, names, found, one["origin"]))
    return Graph(
        inputs,
        constants,
        tuple(nodes),
        tuple(document["outputs"]),
        tuple(Decision(*one) for one in document["decisions"]),
        layouts_from_json(document["layouts"]),
    )


# -- constants -------------------------------------------------------------------------------------


def _constant_record(constant: Constant) -> Json:
    value = constant.value
    record = {"name": constant.name, "sources": list(constant.sources)}
    if isinstance(value, Quantized):
        return {**record, "weight": _weight_type(value.type)}
    return {**record, "dtype": dtype_name(value.dtype), "shape": list(value.shape)}


def _constant(record: Json, read: Callable[[str], np.ndarray[Any, Any]], place: int) -> Constant:
    sources = tuple(record["sources"])
    if "weight" not in record:
        dtype = DTYPES[record["dtype"]][0]
        value = read(f"{place}.value").view(dtype).reshape(record["shape"])
        return Constant(record["name"], value, sources)
    wt = _read_weight_type(record["weight"])
    dtypes = {
        "codes": wt.element.code_dtype,
        "scales": wt.scale_dtype,
        "zeros": wt.zero_dtype,
        "global_scale": None if wt.second is None else np.dtype(np.float32),
    }
    parts = {
        name: None if dtype is None else read(f"{place}.{name}").view(dtype)
        for name, dtype in dtypes.items()
    }
    return Constant(
        record["name"], Quantized.restored(wt, *(parts[name] for name in PARTS)), sources
    )


def _weight_type(wt: GroupedType) -> Json:
    return {
        "element": _element(wt.element),
        "group": list(wt.group),
        "scale": wt.scale,
        "zero": wt.zero,
        "second": wt.second,
        "label": wt.label,
    }


def _element(element: TType) -> Json:
    if isinstance(element, Dense):
        return {"dense": element.name}
    # the bits of each value: a NaN has a sign and a payload that its text would lose
    bits = element.values.view(np.uint64)
    values = [None if code in element.unused else int(v) for code, v in enumerate(bits)]
    return {"name": element.name, "bits": element.bits, "values": values}


def _read_element(record: Json) -> TType:
    if "dense" in record:
        return DENSE[record["dense"]]
    values = [None if v is None else float(np.uint64(v).view(np.float64)) for v in record["values"]]
    return TType(record["name"], record["bits"], values)


def _read_weight_type(record: Json) -> GroupedType:
    group = record["group"]
    return GroupedType(
        _read_element(record["element"]),
        (group[0], group[1]),
        record["scale"],
        record["zero"],
        record["second"],
        record["label"],
    )


# -- operators -------------------------------------------------------------------------------------


def encode(value: Any) -> Json:
    """An operator, and what it holds, as JSON's own types.

    Raises:
        GraphError: a part has no form in JSON.
    """
    match value:
        case None | bool() | int() | float() | str():
            return value
        case tuple():
            return [encode(one) for one in value]
        case Symbolic():
            return {
                "$": "extent",
                "terms": [[list(names), factor] for names, factor in value.terms],
            }
    name = type(value).__name__
    if _CLASSES.get(name) is type(value) and is_dataclass(value):
        return {
            "$": name,
            **{f.name: encode(getattr(value, f.name)) for f in fields(value) if f.name != "weight"},
        }
    raise GraphError(
        f"{name} has no form in JSON",
        at=str(value),
        hint="operators of a graph are those of ladder.graph.operators",
    )


def decode(node: Json) -> Any:
    """The inverse of :func:`encode`.

    Raises:
        GraphError: a tag is unknown, or a class does not have the fields that were written.
    """
    if isinstance(node, list):
        return tuple(decode(one) for one in node)
    if not isinstance(node, dict):
        return node
    tag = node.get("$")
    if tag == "extent":
        return Symbolic(tuple((tuple(names), factor) for names, factor in node["terms"]))
    cls = _CLASSES.get(str(tag))
    if cls is None:
        raise GraphError(f"unknown tag {tag!r}", at="graph JSON", hint=DAMAGED)
    try:
        return cls(**{name: decode(part) for name, part in node.items() if name != "$"})
    except TypeError as error:
        raise GraphError(f"{tag} cannot be made: {error}", at="graph JSON", hint=DAMAGED) from error


__all__ = ["decode", "encode", "load", "save", "to_json"]
