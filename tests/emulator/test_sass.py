"""Counts from a disassembly, and what is read from the profiler's pages."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest


def module(name):
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[name] = loaded
    spec.loader.exec_module(loaded)
    return loaded


sass, counters = module("sass"), module("counters_hardware")

TEXT = """
        /*0000*/                   MOV R1, c[0x0][0x28] ;
.L_x_1:
        /*0010*/                   LDSM.16.M88.4 R4, [R2] ;
        /*0020*/                   LOP3.LUT R5, R4, 0xf, RZ, 0xc0, !PT ;
        /*0030*/              @!P1 BRA `(.L_x_2) ;
        /*0040*/                   STS [R2], R5 ;
        /*0050*/                   PRMT R5, R5, R6, R7 ;
.L_x_2:
        /*0060*/              @!P2 LDG.E R8, [R2.64] ;
        /*0070*/               @P0 BRA `(.L_x_1) ;
        /*0080*/               @P3 EXIT ;
        /*0090*/                   STG.E [R2.64], R5 ;
        /*00a0*/                   EXIT ;
.L_x_3:
        /*00b0*/                   BRA `(.L_x_3);
        /*00c0*/                   NOP ;
"""


def test_blocks_run_as_often_as_their_anchors_say():
    """4 warps: 10 turns each, of which half store; one warp of four stores the result."""
    known = {"LDSM": 40, "STS": 20, "STG": 1, "LDG": 7}
    counted = sass.estimate(TEXT, known, 4)
    assert counted["MOV"] == 4
    assert counted["LOP3"] == 40
    assert counted["PRMT"] == 20
    assert counted["STG"] == 1
    assert counted["LDG"] == 40  # it is issued, whatever its predicate


def test_least_squares_without_negative_unknowns():
    rng = np.random.default_rng(0)
    for _ in range(20):
        a, b = rng.standard_normal((12, 6)), rng.standard_normal(12)
        x = sass.not_negative(a, b)
        slope = a.T @ (b - a @ x)
        assert (x >= 0).all()
        assert (slope < 1e-6).all()  # no unknown wants to grow, none that is free wants to move
        assert np.abs(slope[x > 0]).max(initial=0) < 1e-6


@pytest.mark.parametrize(
    "cell, expected",
    [("1,234 (HMMA: 512; LDSM: 1,000)", 1234), ("7", 7), ("2.5", 2.5), ("", None), (None, None)],
)
def test_numbers_of_a_cell(cell, expected):
    assert counters.number(cell) == expected


def test_instances_of_a_cell():
    assert counters.instances("9 (HMMA: 512; LDSM: 1,000)") == {"HMMA": 512, "LDSM": 1000}


def test_rows_of_a_raw_page():
    page = '==PROF== Connected\n"ID","Kernel Name","a.sum"\n"","","inst"\n"0","k","1,024"\n"1","k","3"\n'
    assert [counters.number(row["a.sum"]) for row in counters.profiled(page)] == [1024, 3]
