"""Kernels of the peer are compiled before the first timing: each once, those of one layer beside each other."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from benchmarks.grid import Case

pytest.importorskip("torch")
peers = pytest.importorskip("benchmarks.peers")


class Kernels:
    """Compiles nothing; the kernels of a layer wait for each other."""

    def __init__(self, together: int) -> None:
        self.made: list[tuple[str, str]] = []
        self.gate = threading.Barrier(together)

    def prepare_kernels(self, config: str, _: None, tuning: str, device: str) -> None:
        assert device == "cuda:0"
        self.made.append((config, tuning))
        self.gate.wait(timeout=30)


def humming(kernels: Kernels) -> peers.Humming:
    made = object.__new__(peers.Humming)
    made._device, made._kernels = "cuda:0", kernels
    made._tune = lambda layer_config, shape_m: {"block_m": 16 if shape_m <= 16 else 64}

    def layer(key):
        if key[0] == "int3":
            raise peers.WrongNumbersError("weights are off")
        config = SimpleNamespace(to_str=lambda: "-".join(map(str, key)))
        return SimpleNamespace(config=config)

    made.layer = layer
    return made


def test_kernels_are_compiled_once_each_and_together():
    kernels = Kernels(together=2)
    cases = [Case("int4", 64, 256, m, "float16", launch) for m in (1, 16, 64) for launch in "ab"]
    humming(kernels).prepare([*cases, Case("nf4", 64, 256, 1, "float16")], 2, pytest.fail)
    wanted = [("int4-64-256-float16", f'{{"block_m": {m}}}') for m in (16, 64)]
    assert sorted(kernels.made) == wanted


def test_a_layer_that_fails_is_reported_and_the_others_are_compiled():
    kernels, said = Kernels(together=1), []
    cases = [Case(weight, 64, 256, 1, "float16") for weight in ("int3", "int4")]
    humming(kernels).prepare(cases, 2, said.append)
    assert said == ["humming int3-64-256-float16: WrongNumbersError: weights are off"]
    assert len(kernels.made) == 1
