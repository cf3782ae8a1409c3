"""``ladder graph`` and ``ladder verify``: a model as a graph, and the graph beside the model."""

from __future__ import annotations

import json as json_module
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ladder.checks import shown
from ladder.cli.options import Json
from ladder.cli.show import Screen
from ladder.errors import GraphError

if TYPE_CHECKING:
    from ladder.graph.graph import Graph

ModelPath = Annotated[
    str, typer.Argument(help="an .onnx file, a .pt2 file of torch.export, or a saved graph")
]
Rules = Annotated[
    str | None,
    typer.Option("--rules", "-r", help="a .toml file of rules, or a type for every layer"),
]
Fused = Annotated[bool, typer.Option("--fuse/--no-fuse", help="join epilogues, gates and layers")]
Seed = Annotated[int, typer.Option("--seed", help="of the inputs", min=0)]
Sizes = Annotated[
    list[str] | None, typer.Option("--size", "-s", help="a symbolic extent, such as tokens=7")
]


def graph(  # noqa: PLR0913 - one argument to each option
    model: ModelPath,
    *,
    rules: Rules = None,
    fuse: Fused = True,
    device: Annotated[
        str, typer.Option("--device", "-d", help="whose memory decides layouts")
    ] = "h200",
    size: Sizes = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="say what was decided and why")
    ] = False,
    svg: Annotated[str | None, typer.Option("--svg", help="write a picture to this file")] = None,
    save: Annotated[
        str | None, typer.Option("--save", help="write the graph to this folder")
    ] = None,
    json: Json = False,
) -> None:
    """Print a model as a graph: imported, given types, fused, laid out for a device."""
    screen = Screen(as_json=json)
    found = _prepared(_read(model)[0], rules, fuse=fuse)
    found = found.propagate(device, sizes=_sizes(size))
    if svg is not None:
        _write(svg, found.svg())
    if save is not None:
        found.save(save)
    screen.data(json_module.loads(found.to_json()))
    screen.text(str(found))
    if explain:
        screen.text(f"\n{found.explain()}")


def verify(
    model: ModelPath,
    *,
    rules: Rules = None,
    fuse: Fused = True,
    seed: Seed = 0,
    size: Sizes = None,
    json: Json = False,
) -> None:
    """Compare a model's graph with the model itself, layer by layer; the exit code is 1 where a layer is wrong."""
    from ladder.graph.verify import example_inputs
    from ladder.graph.verify import verify as verify_graph

    screen = Screen(as_json=json)
    imported, source = _read(model)
    if source is None:
        raise GraphError(
            "a saved graph has no model to be compared with",
            at=f"ladder verify {model}",
            hint="give the .onnx or .pt2 file that it was made of, with --rules",
        )
    found = _prepared(imported, rules, fuse=fuse)
    inputs = example_inputs(imported, seed, **_sizes(size))
    report = verify_graph(found, source, inputs)
    screen.data(
        {
            "ok": report.ok,
            "cosine": report.cosine,
            "layers": [{**asdict(row), "ok": row.ok} for row in report.rows],
        }
    )
    screen.text(str(report))
    if not report.ok:
        raise typer.Exit(1)


def _read(model: str) -> tuple[Graph, Any]:
    """A graph and the model that it came from; None for one that was saved."""
    from ladder.graph.importers.onnx import from_onnx, loaded
    from ladder.graph.importers.torch_export import from_torch
    from ladder.graph.importers.torch_run import read_program
    from ladder.graph.serial import load

    path = Path(model)
    if path.is_dir():
        return load(path), None
    if path.suffix == ".onnx":
        proto = loaded(path)
        return from_onnx(proto), proto
    if path.suffix == ".pt2":
        program = read_program(path)
        return from_torch(program), program
    raise GraphError(
        f"{shown(model)} is no model",
        at="MODEL",
        hint="give an .onnx file, a .pt2 file (torch.export.save), or the folder of a saved graph",
    )


def _prepared(found: Graph, rules: str | None, *, fuse: bool) -> Graph:
    if rules is not None:
        found = found.assign(rules)
    return found.fuse() if fuse else found


def _sizes(given: list[str] | None) -> dict[str, int]:
    sizes = {}
    for one in given or []:
        name, _, number = one.partition("=")
        if not name or not number.isdecimal() or len(number) > 9:
            raise GraphError(
                f"a size is spelled name=number, found {shown(one)}",
                at="--size",
                hint="for example --size tokens=7",
            )
        sizes[name] = int(number)
    return sizes


def _write(file: str, text: str) -> None:
    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise GraphError(
            f"the picture cannot be written: {error}", at="--svg", hint="choose another file"
        ) from error
