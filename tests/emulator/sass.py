"""Instruction counts from a disassembly: each basic block runs as often as the emulator's counts of what is in it say."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

#: opcodes of the integer and logic pipe
ALU = (
    *("LOP3", "PRMT", "SHF", "IADD3", "ISETP", "LEA", "SEL", "IMNMX", "VIMNMX", "PLOP3", "MOV"),
    *("IABS", "BMSK", "SGXT", "FSETP", "FMNMX", "FSEL", "P2R", "R2P", "VOTE", "LOP", "IADD"),
)
_LINE = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)\s*(.*?);")
_LABEL = re.compile(r"^(\.L_x_\d+):")
_TARGET = re.compile(r"\((\.L_x_\d+)\)")
#: weights of the equations: flow into a block is flow out of it; branches that skip are rare
FLOW, RARE = 100.0, 1e-3


@dataclass
class Block:
    """Instructions that run together.

    Attributes:
        static: how often each opcode stands in it.
        guarded: how often it stands there under a predicate, which may leave it out for a whole warp.
        follows: the blocks after it, by label or number, those that a taken branch leads to first; None is the end.
    """

    static: Counter[str] = field(default_factory=Counter)
    guarded: Counter[str] = field(default_factory=Counter)
    follows: list[str | int | None] = field(default_factory=list)


def disassemble(code: bytes) -> str:
    """Text of a cubin by nvdisasm, of PATH or of the pip package."""
    tool = shutil.which("nvdisasm")
    if tool is None:
        import nvidia

        tool = str(Path(next(iter(nvidia.__path__))) / "cu13" / "bin" / "nvdisasm")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(code)
        file.flush()
        done = subprocess.run([tool, "-c", file.name], capture_output=True, text=True, check=True)
        return done.stdout


def blocks(text: str) -> tuple[list[Block], dict[str, int]]:
    """Basic blocks in the order of the text, and which one a label begins."""
    found, labels = [Block()], {}
    for line in text.splitlines():
        if label := _LABEL.match(line):
            if found[-1].static:
                found[-1].follows.append(len(found))
                found.append(Block())
            labels[label[1]] = len(found) - 1
        elif parts := _LINE.match(line):
            guard, opcode, operands = parts[1], parts[2].split(".")[0], parts[3]
            found[-1].static[opcode] += 1
            found[-1].guarded[opcode] += bool(guard)
            if opcode in ("BRA", "EXIT"):
                target = _TARGET.search(operands) if opcode == "BRA" else None
                found[-1].follows.append(target[1] if target else None)
                if guard:
                    found[-1].follows.append(len(found))
                found.append(Block())
    return [block for block in found if block.static or block.follows], labels


def estimate(text: str, known: Mapping[str, int], warps: int) -> dict[str, int]:
    """Executed warp instructions by opcode.

    How often each edge between blocks is taken is the solution, not negative, in which as much flows into a block as out of it,
    opcodes with a known count and no predicate reach it, and branches that skip forward are as rare as those two allow.
    """
    found, labels = blocks(text)
    edges: list[tuple[int, int | None, bool]] = []
    for number, block in enumerate(found):
        for place, target in enumerate(block.follows):
            to = labels.get(target) if isinstance(target, str) else target
            to = to if to is not None and to < len(found) else None
            skips = len(block.follows) == 2 and place == 0 and (to is None or to > number)
            edges.append((number, to, skips))
    rows: list[Any] = []
    wanted: list[float] = []
    into = np.array([[to == b for _, to, _ in edges] for b in range(len(found))], float)
    out = np.array([[start == b for start, _, _ in edges] for b in range(len(found))], float)
    for b in range(len(found)):
        rows.append((into[b] - out[b]) * FLOW)
        wanted.append(-FLOW if b == 0 else 0.0)
    for name, count in known.items():
        static = np.array([block.static[name] for block in found], float)
        if static.any() and not any(block.guarded[name] for block in found):
            weight = warps / max(1, count)
            rows.append(static @ into * weight)
            wanted.append((count / warps - static[0]) * weight)
    rows += [
        RARE * row for row, (_, _, skips) in zip(np.eye(len(edges)), edges, strict=True) if skips
    ]
    wanted += [0.0] * (len(rows) - len(wanted))
    times = into @ not_negative(np.array(rows), np.array(wanted))
    times[0] += 1
    total: Counter[str] = Counter()
    for block, often in zip(found, times, strict=True):
        for name, count in block.static.items():
            total[name] += round(count * float(often) * warps)
    return dict(total)


def not_negative(matrix: Any, wanted: Any) -> Any:
    """Least squares with no negative unknown (Lawson and Hanson, "Solving Least Squares Problems", chapter 23)."""
    free = np.zeros(matrix.shape[1], bool)
    x = np.zeros(matrix.shape[1])
    for _ in range(20 * matrix.shape[1]):
        slope = matrix.T @ (wanted - matrix @ x)
        slope[free] = -np.inf
        if free.all() or slope.max() <= 1e-9:
            break
        free[int(slope.argmax())] = True
        while True:
            trial = np.zeros_like(x)
            trial[free] = np.linalg.lstsq(matrix[:, free], wanted, rcond=None)[0]
            bad = free & (trial <= 0)
            if not bad.any():
                break
            step = (x[bad] / np.maximum(x[bad] - trial[bad], 1e-300)).min()
            x = x + step * (trial - x)
            free &= x > 1e-12
        x = trial
    return x
