"""Do the emulator's counters agree with the profiler? ``record`` writes six kernels with their counts, ``compare`` profiles them.

    python tests/emulator/counters_hardware.py record build/counters                      # no GPU
    python tests/emulator/counters_hardware.py compare build/counters --out counters.json # a GPU, ncu, NumPy, cuda-bindings

``compare`` writes the table as JSON and, with the suffix ``.md``, for people; what ncu printed stays beside them as ``.csv``.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

#: kernel -> weight, group, (m, n, k), decisions
KERNELS: dict[str, tuple[str, int, tuple[int, int, int], dict[str, str]]] = {
    "skinny int4 m1": ("int4", 128, (1, 256, 4096), {"family": "skinny"}),
    "skinny nf4 m8": ("nf4", 64, (8, 256, 2048), {"family": "skinny"}),
    "ring mma": (
        "int4",
        128,
        (64, 64, 4096),
        {"family": "ring", "compute": "mma", "convert": "register"},
    ),
    "ring shared": (
        "int4",
        128,
        (32, 64, 4096),
        {"family": "ring", "compute": "mma", "convert": "shared"},
    ),
    "ring scalar": (
        "int4",
        128,
        (32, 64, 2044),
        {"family": "ring", "compute": "mma", "access": "scalar"},
    ),
    "wgmma": ("int4", 128, (64, 64, 4096), {"compute": "wgmma"}),
}
#: quantity -> emulator's counters that add up to it
EMULATED: dict[str, tuple[str, ...]] = {
    "mma": ("op.mma.sync", "op.wgmma.mma_async"),
    "ldmatrix": ("op.ldmatrix",),
    "barriers": ("op.bar.sync", "op.barrier.cta.sync"),
    "shared load instructions": ("op.ld.shared",),
    "shared store instructions": ("op.st.shared",),
    "shared load wavefronts": ("shared.load.wavefronts", "shared.ldmatrix.wavefronts"),
    "shared store wavefronts": ("shared.store.wavefronts",),
    "shared load conflicts": ("shared.load.conflicts", "shared.ldmatrix.conflicts"),
    "shared store conflicts": ("shared.store.conflicts",),
    "global load requests": ("global.load.requests",),
    "global load sectors": ("global.load.sectors",),
    "global store requests": ("global.store.requests",),
    "global store sectors": ("global.store.sectors",),
    "async copy requests": ("global.cp.async.requests",),
    "async copy sectors": ("global.cp.async.sectors",),
}
#: quantity -> opcodes of the profiler's list of executed instructions
OPCODES: dict[str, tuple[str, ...]] = {
    "mma": ("HMMA", "HGMMA"),
    "ldmatrix": ("LDSM",),
    "barriers": ("BAR",),
    "shared load instructions": ("LDS",),
    "shared store instructions": ("STS",),
}
PER_OPCODE = "sass__inst_executed_per_opcode"
_LSU = "l1tex__{}_pipe_lsu_{}.sum"
#: quantity -> metric
METRICS: dict[str, str] = {
    "shared load wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "shared store wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "shared load conflicts": _LSU.format("data_bank_conflicts", "mem_shared_op_ld"),
    "shared store conflicts": _LSU.format("data_bank_conflicts", "mem_shared_op_st"),
    "global load requests": _LSU.format("t_requests", "mem_global_op_ld"),
    "global load sectors": _LSU.format("t_sectors", "mem_global_op_ld"),
    "global store requests": _LSU.format("t_requests", "mem_global_op_st"),
    "global store sectors": _LSU.format("t_sectors", "mem_global_op_st"),
    "async copy requests": _LSU.format("t_requests", "mem_global_op_ldgsts"),
    "async copy sectors": _LSU.format("t_sectors", "mem_global_op_ldgsts"),
}
#: metrics that help to explain a deviation
OTHER = (
    PER_OPCODE,
    "smsp__inst_executed.sum",
    "smsp__inst_executed_op_ldsm.sum",
    "smsp__inst_executed_op_ldgsts.sum",
    "smsp__inst_executed_op_shared_ld.sum",
    "smsp__inst_executed_op_shared_st.sum",
    "sm__inst_executed_pipe_alu.sum",
    "sm__inst_executed_pipe_fma.sum",
    "sm__inst_executed_pipe_tensor_op_hmma.sum",
    "sm__inst_executed_pipe_tensor_op_gmma.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ldgsts.sum",
)
#: deviation that is still agreement; instructions of the integer pipe are estimated, and loads and stores count
#: on the GPU also where a predicate leaves them out for the whole warp
LIMITS = {
    "integer instructions": 0.15,
    "shared load instructions": float("inf"),
    "shared store instructions": float("inf"),
}
LIMIT = 0.05


# ---- record --------------------------------------------------------------------------------------------------------


def record(folder: Path) -> None:
    """Lower, compile, emulate and count every kernel."""
    folder.mkdir(parents=True, exist_ok=True)
    entries = []
    for name in KERNELS:
        entry = _recorded(name, folder)
        entries.append(entry)
        print(f"recorded {name}: {entry['plan']}", flush=True)
    (folder / "counters.json").write_text(json.dumps(entries, indent=1))


def _recorded(name: str, folder: Path) -> dict[str, Any]:
    import sass

    from ladder.codegen.toolchain import compile_cuda
    from ladder.emulator import run
    from ladder.emulator.matrix import Problem
    from ladder.registry import types

    weight, group, shape, decisions = KERNELS[name]
    problem = Problem.of(types[weight].grouped(group), "float16", decisions, shape)
    lowered, plan = problem.lowered, problem.plan
    values = {p.name: problem.values[p.role] for p in lowered.parameters}
    values = {
        k: np.ascontiguousarray(v).reshape(-1) if np.ndim(v) else v for k, v in values.items()
    }
    arrays = {k: _plain(v).copy() for k, v in values.items() if np.ndim(v)}
    grid, block = lowered.launch.grid_for(shape[0]), lowered.launch.block
    report = run(lowered.listing, values, grid, block, counters=True)
    cubin = compile_cuda(lowered.source, "sm_90a")
    stem = name.replace(" ", "_")
    (folder / f"{stem}.cubin").write_bytes(cubin.code)
    outputs = {f"out_{k}": _plain(v) for k, v in values.items() if np.ndim(v)}
    np.savez_compressed(
        folder / f"{stem}.npz", **{f"in_{k}": v for k, v in arrays.items()}, **outputs
    )
    emulated = {q: _sum(report.counters, parts) for q, parts in EMULATED.items()}
    warps = int(np.prod(grid)) * int(np.prod(block)) // 32
    known = {
        "HMMA": _sum(report.counters, ("op.mma.sync",)),
        "LDSM": emulated["ldmatrix"],
        "HGMMA": _sum(report.counters, ("op.wgmma.mma_async",)),
        "BAR": emulated["barriers"],
        "LDGSTS": emulated["async copy requests"],
        "LDG": emulated["global load requests"],
        "LDS": emulated["shared load instructions"],
        "STS": emulated["shared store instructions"],
        "STG": emulated["global store requests"],
    }
    estimated = sass.estimate(sass.disassemble(cubin.code), known, warps)
    emulated["integer instructions"] = sum(estimated.get(op, 0) for op in sass.ALU)
    parameters = [
        {"argument": p.name}
        if p.kind == "buffer"
        else {"value": int(values[p.name]), "dtype": p.dtype}
        for p in lowered.parameters
    ]
    return {
        "name": name,
        "stem": stem,
        "kernel": lowered.name,
        "parameters": parameters,
        "grid": grid,
        "threads": int(np.prod(block)),
        "cluster": 1,
        "shared": lowered.launch.shared_bytes,
        "plan": str(plan).splitlines()[0],
        "emulated": emulated,
        "counters": dict(report.counters),
        "estimated": estimated,
    }


def _plain(array: Any) -> Any:
    return array if array.dtype.kind != "V" else array.view(np.uint8)


def _sum(counters: Mapping[str, int], parts: tuple[str, ...]) -> int:
    return sum(count for name, count in counters.items() if name.startswith(parts))


# ---- compare -------------------------------------------------------------------------------------------------------


def launch(folder: Path) -> None:
    """Run every kernel once, in the order of the record; what the profiler watches."""
    from gpu import Gpu

    gpu = Gpu()
    for entry in json.loads((folder / "counters.json").read_text()):
        data = np.load(folder / f"{entry['stem']}.npz")
        given = {k[3:]: data[k] for k in data if k.startswith("in_")}
        found = gpu.launch(entry, (folder / f"{entry['stem']}.cubin").read_bytes(), given)
        same = all(
            np.array_equal(v.view(np.uint8), data[f"out_{k}"].view(np.uint8))
            for k, v in found.items()
        )
        print(
            json.dumps({"name": entry["name"], "device": gpu.name, "same bits": same}), flush=True
        )


def profile(folder: Path, report: Path) -> tuple[str, list[str]]:
    """Profile :func:`launch`; returns ncu's CSV and the metrics that this ncu does not have."""
    names = [*METRICS.values(), *OTHER]
    missing: list[str] = []
    target = [sys.executable, __file__, "launch", str(folder)]
    while True:
        wanted = ",".join(name for name in names if name not in missing)
        done = _ncu("-f", "-o", str(report), "--metrics", wanted, *target)
        unknown = [
            n
            for n in names
            if n not in missing and re.search(rf"metric\S* \S*{re.escape(n)}", done)
        ]
        if not unknown:
            break
        missing += unknown
    if not report.with_suffix(".ncu-rep").exists():
        raise SystemExit(f"ncu wrote no report:\n{done[-4000:]}")
    show = (
        "-i",
        str(report.with_suffix(".ncu-rep")),
        "--csv",
        "--page",
        "raw",
        "--print-units",
        "base",
    )
    text = _ncu(*show, "--print-metric-instances", "details")
    return (text if '"ID"' in text else _ncu(*show)), missing


def _ncu(*arguments: str) -> str:
    places = [*Path("/").glob("usr/local/cuda*/bin/ncu")]
    places += Path("/").glob("opt/nvidia/nsight-compute/*/ncu")
    tool = shutil.which("ncu") or (str(max(places)) if places else None)
    if tool is None:
        raise SystemExit("there is no ncu")
    done = subprocess.run([tool, *arguments], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def profiled(text: str) -> list[dict[str, str]]:
    """Rows of ncu's raw page, one of each launch, by column."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith('"ID"'))
    rows = list(csv.DictReader(line for line in lines[start:] if line.startswith('"')))
    return [row for row in rows if row["ID"].strip().isdigit()]


def number(cell: str | None) -> float | None:
    """The first number of a cell; None for none."""
    found = re.match(r"\s*([\d,]+(?:\.\d+)?)", cell or "")
    return float(found[1].replace(",", "")) if found else None


def instances(cell: str | None) -> dict[str, int]:
    """Counts by opcode of a cell like ``4,096 (HMMA: 512; LDSM: 128)``."""
    pairs = re.findall(r"([A-Z][A-Z0-9_.]*)\s*[:=]\s*([\d,]+)", cell or "")
    return {name: int(count.replace(",", "")) for name, count in pairs}


def compare(folder: Path, out: Path) -> int:
    """Profile and tabulate; returns how many quantities deviate more than they may."""
    import sass

    text, missing = profile(folder, out.with_suffix(""))
    out.with_suffix(".csv").write_text(text)
    entries = json.loads((folder / "counters.json").read_text())
    table = []
    for entry, row in zip(entries, profiled(text), strict=True):
        opcodes = instances(row.get(PER_OPCODE))
        found: dict[str, float | None] = {
            q: number(row.get(metric)) for q, metric in METRICS.items()
        }
        if opcodes:
            found |= {q: float(sum(opcodes.get(o, 0) for o in ops)) for q, ops in OPCODES.items()}
            found["integer instructions"] = float(sum(opcodes.get(o, 0) for o in sass.ALU))
        products = [
            number(row.get(f"sm__inst_executed_pipe_tensor_op_{p}.sum")) for p in ("hmma", "gmma")
        ]
        if any(products):
            found.setdefault("mma", sum(p or 0.0 for p in products))
        found.setdefault("ldmatrix", number(row.get("smsp__inst_executed_op_ldsm.sum")))
        found.setdefault("integer instructions", number(row.get("sm__inst_executed_pipe_alu.sum")))
        for quantity, emulated in entry["emulated"].items():
            table.append(_line(entry["name"], quantity, emulated, found.get(quantity)))
        for kind in ("global load", "global store", "async copy"):
            pair = [
                (x.get(f"{kind} sectors"), x.get(f"{kind} requests"))
                for x in (entry["emulated"], found)
            ]
            ratios = [s / r if s and r else None for s, r in pair]
            table.append(_line(entry["name"], f"{kind} sectors per request", *ratios))
    wrong = [line for line in table if line["agrees"] is False]
    date = datetime.now(timezone.utc).isoformat(timespec="seconds")
    record = {"date": date, "metrics missing": missing, "table": table, "rows": profiled(text)}
    out.write_text(json.dumps(record, indent=1) + "\n")
    out.with_suffix(".md").write_text(_page(table, missing))
    print(out.with_suffix(".md").read_text())
    return len(wrong)


def _line(
    kernel: str, quantity: str, emulated: float | None, found: float | None
) -> dict[str, Any]:
    deviation = None
    if emulated is not None and found is not None:
        deviation = abs(emulated - found) / max(found, 1)
    agrees = None if deviation is None else deviation <= LIMITS.get(quantity, LIMIT)
    return {
        "kernel": kernel,
        "quantity": quantity,
        "emulator": emulated,
        "profiler": found,
        "deviation": deviation,
        "agrees": agrees,
    }


def _page(table: list[dict[str, Any]], missing: list[str]) -> str:
    rows = [
        "| kernel | quantity | emulator | profiler | deviation | |",
        "|---|---|---|---|---|---|",
    ]
    for line in table:
        if not line["emulator"] and not line["profiler"]:
            continue
        numbers = [f"{line[k]:g}" if line[k] is not None else "-" for k in ("emulator", "profiler")]
        deviation = "-" if line["deviation"] is None else f"{100 * line['deviation']:.1f} %"
        verdict = {True: "", False: "deviates", None: "not measured"}[line["agrees"]]
        rows.append(
            " | ".join(
                ["", line["kernel"], line["quantity"], *numbers, deviation, verdict, ""]
            ).strip()
        )
    tail = [f"\nNot known to this ncu: {', '.join(missing)}."] if missing else []
    return "\n".join(["# The emulator's counters beside the profiler's", "", *rows, *tail]) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=["record", "compare", "launch"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=Path("counters.json"))
    given = parser.parse_args()
    if given.step == "compare":
        raise SystemExit(compare(given.folder, given.out))
    record(given.folder) if given.step == "record" else launch(given.folder)
