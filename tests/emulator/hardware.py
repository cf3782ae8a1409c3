"""Does the hardware agree with the emulator? ``record`` writes probes with what the emulator says, ``compare`` runs them on a GPU.

    python tests/emulator/hardware.py record build/probes        # needs the compile extra and a CUDA compiler, no GPU
    python tests/emulator/hardware.py compare build/probes       # needs a GPU, NumPy and cuda-bindings

A probe is exact where arithmetic is integer or independent of order; elsewhere the largest difference is reported in units of the
largest output. ``compare`` writes ``hardware.json`` beside the probes, or where ``--out`` says; a probe that fails or hangs is recorded
there and the next one runs in a new process, because a fault of a kernel takes its context with it.
"""

from __future__ import annotations

import argparse
import json
import select
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

SEED = 7
ARCH = "sm_90a"


def probes() -> Iterator[tuple[str, Any, dict[str, Any], tuple[int, ...], int, int, bool]]:
    """(name, PrimFunc, arguments, grid, threads, cluster, exact) of every probe."""
    sys.path.insert(0, str(Path(__file__).parent))
    import hopper
    import kernels
    import probes as p
    import probes_copies as c
    import probes_hopper as h

    rng = np.random.default_rng(SEED)
    words = p.bits(rng, (3, p.ROWS, 32))
    count = len(p.REGISTER_OPS) + 3
    yield (
        "registers",
        p.registers(),
        {"I": words, "O": np.zeros((count, p.ROWS, 32), np.uint32)},
        (p.ROWS, 1, 1),
        32,
        1,
        True,
    )
    f = rng.integers(0, 1 << 32, (2, 2048, 32), dtype=np.uint64).astype(np.uint32).view(np.float32)
    yield (
        "conversions",
        p.conversions(),
        {"F": f, "O": np.zeros((6, 2048, 32), np.uint32)},
        (2048, 1, 1),
        32,
        1,
        True,
    )
    i = rng.integers(0, 1 << 32, (8, 32), dtype=np.uint64).astype(np.uint32)
    yield (
        "exchanges",
        p.exchanges(),
        {"I": i, "O": np.zeros((27, 32), np.uint32)},
        (1, 1, 1),
        32,
        1,
        True,
    )
    for kind in p.MMA:
        yield f"mma {kind}", p.product(kind)(), p.operands(kind)(rng), (p.ROWS, 1, 1), 32, 1, True
        if kind in ("f16", "bf16", "e4m3"):
            yield (
                f"mma {kind} random",
                p.product(kind)(),
                random_operands(kind, p, rng),
                (p.ROWS, 1, 1),
                32,
                1,
                False,
            )
    i = rng.integers(0, 1 << 32, 512, dtype=np.uint64).astype(np.uint32)
    yield (
        "cp.async",
        c.partial_copies(),
        {"I": i, "O": np.zeros((3, 128), np.uint32)},
        (1, 1, 1),
        32,
        1,
        True,
    )
    i = rng.integers(0, 1000, (4, 256)).astype(np.uint32)
    given = {"I": i, "O": np.zeros_like(i), "R": np.full(256, 5, np.uint32)}
    yield "bulk", c.bulk_copies(), given, (4, 1, 1), 64, 1, True
    for rank in (1, 2, 3):
        for swizzle in c.SPANS:
            arguments = c.tensor_arguments(swizzle, rank)(rng)
            yield (
                f"tma {rank}d {swizzle}",
                c.tensor_copies(swizzle, rank)(),
                arguments,
                (1, 1, 1),
                32,
                1,
                True,
            )
    for kind in h.WGMMA:
        for swizzle in h.ROWS:
            for registers in (True, False):
                name = f"wgmma {kind} {swizzle} {'rs' if registers else 'ss'}"
                build = h.products(kind, swizzle, registers=registers)
                yield name, build(), h.operands(kind, swizzle, rng), (1, 1, 1), 128, 1, True
    yield (
        "neighbours",
        h.neighbours(),
        {"O": np.zeros((4, 64, 4), np.uint32)},
        (4, 1, 1),
        64,
        2,
        True,
    )
    yield "multicast", h.multicast(), h.multicast_arguments(rng), (2, 1, 1), 128, 2, True
    zeros = {
        "C": np.zeros((32, 4), np.float32),
        "H": np.zeros((32, 8), np.float16),
        "N": np.zeros(4, np.uint32),
    }
    yield "reductions", h.reductions(), zeros, (8, 1, 1), 32, 1, True
    m, n, k = 64, 128, 512
    a = rng.standard_normal((m, k)).astype(np.float16)
    codes = rng.integers(0, 16, (n, k))
    given = {"A": a, "W": kernels.pack(codes), "C": np.zeros((m, n), np.float32)}
    yield (
        "ring kernel",
        kernels.build(m, n, k),
        given,
        (m // 32, n // 64, 1),
        kernels.THREADS,
        1,
        False,
    )
    from ladder.emulator import TensorMap

    given = {
        "X_map": TensorMap(a, (k, m), (2 * k,), (64, 32), "128B"),
        "W": hopper.pack(codes),
        "C": np.zeros((m, n), np.float32),
    }
    yield (
        "hopper kernel",
        hopper.build(m, n, k),
        given,
        (n // 64, m // 32, 1),
        hopper.THREADS,
        1,
        False,
    )


def random_operands(kind: str, p: Any, rng: np.random.Generator) -> dict[str, Any]:
    """Operands whose sums round, so that the order of addition shows."""
    import ml_dtypes

    dtype = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "e4m3": ml_dtypes.float8_e4m3fn}[kind]
    per = 4 // np.dtype(dtype).itemsize
    values = rng.standard_normal((p.ROWS, 6, 32, per)).astype(dtype)
    a = np.ascontiguousarray(values).view(np.uint32)[..., 0]
    c = rng.standard_normal((p.ROWS, 4, 32)).astype(np.float32)
    return {"A": a, "C": c, "O": np.zeros_like(c)}


# ---- record --------------------------------------------------------------------------------------------------------


def record(folder: Path) -> None:
    """Lower, compile and emulate every probe."""
    from ladder.codegen.listing import listing
    from ladder.codegen.toolchain import compile_cuda
    from ladder.codegen.tvm_api import lower_to_cuda
    from ladder.emulator import run, translate

    folder.mkdir(parents=True, exist_ok=True)
    entries = []
    for name, function, arguments, grid, threads, cluster, exact in probes():
        device = lower_to_cuda(function, ARCH)
        kernel = translate(listing(device.function))
        stem = name.replace(" ", "_").replace(".", "_")
        inputs = {f"in_{k}": _array(v).copy() for k, v in arguments.items()}
        run(kernel, arguments, grid, threads, cluster=(cluster, 1, 1))
        outputs = {f"out_{k}": _array(v) for k, v in arguments.items()}
        np.savez_compressed(folder / f"{stem}.npz", **inputs, **outputs)
        cubin = compile_cuda(device.source, ARCH)
        (folder / f"{stem}.cubin").write_bytes(cubin.code)
        entries.append(
            {
                "name": name,
                "stem": stem,
                "kernel": device.name,
                "parameters": [_parameter(q, arguments) for q in device.parameters],
                "grid": grid,
                "threads": threads,
                "cluster": cluster,
                "shared": _shared(device),
                "exact": exact,
            }
        )
        print(f"recorded {name}: {cubin.registers} registers", flush=True)
    (folder / "probes.json").write_text(json.dumps(entries, indent=1))


def _array(value: Any) -> Any:
    array = getattr(value, "array", value)
    return array if array.dtype.kind != "V" else array.view(np.uint8)


def _parameter(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """How a parameter is made of an argument: a pointer, or a tensor map of one."""
    argument = name.removesuffix("_ptr") if name.removesuffix("_ptr") in arguments else name
    value = arguments[argument]
    if not hasattr(value, "box"):
        return {"argument": argument}
    return {
        "argument": argument,
        "itemsize": value.array.itemsize,
        "shape": list(value.shape),
        "strides": list(value.strides),
        "box": list(value.box),
        "swizzle": {"none": 0, "32B": 1, "64B": 2, "128B": 3}[value.swizzle],
    }


def _shared(device: Any) -> int:
    """Bytes of dynamic shared memory: buffers of scope shared.dyn."""
    from ladder.codegen.listing import listing

    dump = listing(device.function)
    size = {"uint8": 1, "float16": 2, "uint32": 4, "float32": 4, "uint64": 8}
    dynamic = [
        b for b in dump["buffers"] if b["scope"] == "shared.dyn" and isinstance(b["size"], int)
    ]
    return max((b["size"] * size[b["dtype"]] for b in dynamic), default=0)


# ---- compare -------------------------------------------------------------------------------------------------------

#: seconds after which a probe hangs
PATIENCE = 15


def compare(folder: Path, out: Path | None = None) -> int:
    """Run every probe on the first GPU and compare its outputs with the recorded ones; returns how many do not agree."""
    entries = json.loads((folder / "probes.json").read_text())
    rows: list[dict[str, Any]] = []
    device = ""
    while len(rows) < len(entries):
        for line in _worker(folder, len(rows)):
            if "device" in line:
                device = line["device"]
                continue
            rows.append(line)
            print(line, flush=True)
    wrong = [row["name"] for row in rows if not row["agrees"]]
    date = datetime.now(timezone.utc).isoformat(timespec="seconds")
    record = {"device": device, "date": date, "agree": len(rows) - len(wrong), "probes": rows}
    (out or folder / "hardware.json").write_text(json.dumps(record, indent=1) + "\n")
    print(f"{len(rows) - len(wrong)} of {len(rows)} probes agree on {device}; not: {wrong}")
    return len(wrong)


def _worker(folder: Path, first: int) -> Iterator[dict[str, Any]]:
    """The device, and rows of the probes from ``first`` on, up to one that fails; at least one."""
    name = json.loads((folder / "probes.json").read_text())[first]["name"]
    command = [sys.executable, __file__, "work", str(folder), "--first", str(first)]
    lines, reason = 0, f"no answer in {PATIENCE} s"
    # no buffer of this process, in which select would not see a line
    with subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0) as process:
        assert process.stdout is not None
        while select.select([process.stdout], [], [], PATIENCE)[0]:
            line = process.stdout.readline()
            if not line:
                reason = f"exit code {process.wait()}"
                break
            yield json.loads(line)
            lines += 1
        process.kill()
    if not lines:
        raise SystemExit("there is no GPU to compare with, or cuda-bindings are missing")
    if lines == 1:
        yield {"name": name, "agrees": False, "failed": reason}


def work(folder: Path, first: int) -> None:
    """Run probes and write one line of JSON each; stop after one that fails."""
    from gpu import CudaError, Gpu

    gpu = Gpu()
    print(json.dumps({"device": gpu.name}), flush=True)
    for entry in json.loads((folder / "probes.json").read_text())[first:]:
        data = np.load(folder / f"{entry['stem']}.npz")
        code = (folder / f"{entry['stem']}.cubin").read_bytes()
        try:
            found = gpu.launch(entry, code, {k[3:]: data[k] for k in data if k.startswith("in_")})
            row = _judge(entry, data, found)
        except CudaError as error:
            row = {"name": entry["name"], "agrees": False, "failed": str(error)}
        print(json.dumps(row), flush=True)
        if "failed" in row:
            return


def _judge(entry: Any, data: Any, found: dict[str, Any]) -> dict[str, Any]:
    worst, different, total, where = 0.0, 0, 0, []
    for name, got in found.items():
        want = data[f"out_{name}"]
        raw = got.view(np.uint8) != want.view(np.uint8)
        different += int(raw.reshape(*got.shape, -1).any(-1).sum()) if got.ndim else int(raw.any())
        total += got.size
        if got.dtype.kind == "f":
            with np.errstate(all="ignore"):
                a, b = got.astype(np.float64), want.astype(np.float64)
                scale = np.nanmax(np.abs(np.where(np.isfinite(b), b, 0))) or 1.0
                worst = max(
                    worst, float(np.nanmax(np.where(np.isfinite(a - b), np.abs(a - b), 0)) / scale)
                )
        elif raw.any():
            bad = np.argwhere(got != want)
            where += [
                [name, *place, int(got[tuple(place)]), int(want[tuple(place)])]
                for place in bad[:4].tolist()
            ]
    agrees = different == 0 if entry["exact"] else worst < 2e-6
    return {
        "name": entry["name"],
        "agrees": agrees,
        "different": different,
        "elements": total,
        "worst": worst,
        "first": where[:4],
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=["record", "compare", "work"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, help="where compare writes, if not beside the probes")
    parser.add_argument("--first", type=int, default=0, help="number of the first probe of work")
    given = parser.parse_args()
    if given.step == "compare":
        raise SystemExit(compare(given.folder, given.out))
    if given.step == "work":
        work(given.folder, given.first)
    else:
        record(given.folder)
