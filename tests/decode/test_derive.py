from __future__ import annotations

import time
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ladder
from ladder.decode import derive as module
from ladder.decode.cost import cycles
from ladder.decode.derive import derive, search_program
from ladder.decode.lanes import LANE_FORMATS
from ladder.decode.prove import prove
from ladder.decode.values import ValueSet
from ladder.errors import DecodeError, LosslessError
from ladder.ttype import TType


def small_float(name, exponent, mantissa):
    """A finite float with subnormals, written down by its definition."""
    bias = (1 << (exponent - 1)) - 1
    values = []
    for code in range(1 << (1 + exponent + mantissa)):
        e = code >> mantissa & ((1 << exponent) - 1)
        m = code & ((1 << mantissa) - 1)
        size = (
            m * 2.0 ** (1 - bias - mantissa)
            if e == 0
            else (1 + m / 2**mantissa) * 2.0 ** (e - bias)
        )
        values.append(-size if code >> (exponent + mantissa) else size)
    return TType(name, 1 + exponent + mantissa, values=values)


def fresh_types():
    """Formats that are not in the catalogue."""
    rng = np.random.default_rng(7)
    return [
        small_float("fp3_e2m0", 2, 0),
        small_float("fp4_e3m0", 3, 0),
        small_float("fp5_e2m2", 2, 2),
        small_float("fp5_e3m1", 3, 1),
        small_float("fp7_e3m3", 3, 3),
        TType("powers3", 3, values=[s * 2.0**k for s in (1, -1) for k in range(4)]),
        TType("powers4", 4, values=[0, *(2.0**k for k in range(15))]),
        TType("levels_up", 2, values=[-3, -1, 1, 5]),
        TType("levels_down", 2, values=[3, 1, -1, -5]),
        TType("squares", 2, values=[0, 1, 4, 16]),
        TType("threes", 3, values=[3 * c + 5 for c in range(8)]),
        TType("shuffled5", 5, values=rng.permutation(32)),
        TType("holes4", 4, values=[None if c in (3, 9, 10) else c - 8 for c in range(16)]),
        TType("nine", 4, values=[c - 4 if c < 9 else None for c in range(16)]),
        TType("lonely", 3, values=[None, 5, *[None] * 6]),
        TType("constant", 2, values=[7, 7, 7, 7]),
        TType("zeros", 1, values=[0.0, -0.0]),
        TType("infinite", 2, values=[0, np.inf, -np.inf, np.nan]),
        TType("large", 2, values=[0, 65536, 131072, 196608]),
        TType("tiny", 4, values=[c * 2.0**-40 for c in range(16)]),
        TType("codebook2", 2, values=[-0.9, -0.2, 0.3, 1]),
        TType("codebook3", 3, values=sorted(rng.normal(size=8))),
        TType("codebook4", 4, values=sorted(rng.normal(size=16))),
        TType("codebook6", 6, values=rng.normal(size=64)),
        TType("codebook8", 8, values=rng.normal(size=256)),
    ]


CATALOG = [name for name, t in ladder.types.items() if isinstance(t, TType)]


@pytest.mark.parametrize("compute", LANE_FORMATS)
@pytest.mark.parametrize("name", CATALOG)
def test_every_shipped_type_is_proven(catalog, name, compute):
    element = catalog[name]
    if (name, compute) == ("e8m0", "float16"):
        with pytest.raises(LosslessError, match=r"e8m0 means 65536\.0, beyond the largest float16"):
            derive(element, compute)
        return
    program = derive(element, compute)
    assert program.element == name
    assert prove(program, element) == program.steps * 8 * (2**element.bits - len(program.undefined))
    exact = np.isin(element.values, LANE_FORMATS[compute].table) | ~np.isfinite(element.values)
    assert program.lossless == bool(exact.all())
    assert len({a.beta for pair in program.affine for a in pair}) == 1


@pytest.mark.parametrize("element", fresh_types(), ids=str)
@pytest.mark.parametrize("compute", LANE_FORMATS)
def test_types_never_seen_are_derived_and_proven(element, compute):
    started = time.process_time()
    program = search_program(ValueSet.of(element), compute)
    assert time.process_time() - started < 20
    assert prove(program, element)


@settings(max_examples=16)
@given(data=st.data())
def test_any_table_decodes(data):
    bits = data.draw(st.integers(1, 8))
    number = (
        st.floats(-60000, 60000)
        | st.floats(-1, 1)
        | st.integers(-300, 300)
        | st.sampled_from([0.0, -0.0])
    )
    rare = st.none() | st.sampled_from([np.nan, np.inf, -np.inf])
    few = data.draw(st.lists(number, min_size=1, max_size=2**bits))
    others = data.draw(
        st.lists(number | rare, min_size=2**bits - len(few), max_size=2**bits - len(few))
    )
    element = TType("drawn", bits, values=data.draw(st.permutations(few + others)))
    compute = data.draw(st.sampled_from(list(LANE_FORMATS)))
    program = derive(element, compute)
    assert prove(program, element) == program.steps * 8 * (2**bits - len(program.undefined))


@settings(max_examples=10)
@given(
    bits=st.integers(1, 8),
    start=st.integers(-40, 40),
    step=st.sampled_from([1, 2, -1, 0.5, 3]),
    compute=st.sampled_from(list(LANE_FORMATS)),
)
def test_integers_with_any_offset_need_no_table(bits, start, step, compute):
    element = TType("line", bits, values=[start + step * c for c in range(2**bits)])
    program = derive(element, compute)
    assert prove(program, element)
    if abs(start) <= 2**bits and compute == "float16":
        assert program.table is None
        assert program.form.startswith("mask")


#: operations per 8 codes that the programs must not exceed: ALU, FMA, LDS, classes
BOUNDS = {
    ("int4", "float16"): (5, 0, 0, 1),
    ("uint4", "float16"): (5, 0, 0, 1),
    ("uint8", "float16"): (4, 0, 0, 1),
    ("int8", "float16"): (4, 0, 0, 1),
    ("uint2", "float16"): (4.5, 0, 0, 2),
    ("uint1", "float16"): (4.75, 0, 0, 2),
    ("uint3", "float16"): (5.75, 0, 0, 2),
    ("int4", "bfloat16"): (7, 4, 0, 1),
    ("int8", "bfloat16"): (10, 4, 0, 1),
    ("signmag8", "bfloat16"): (10, 4, 0, 1),
    ("fp4_e2m1", "float16"): (10, 0, 0, 1),
    ("fp4_e2m1", "bfloat16"): (9, 4, 0, 1),
    ("fp6_e3m2", "float16"): (11, 0, 0, 1),
    ("fp8_e4m3fn", "float16"): (10, 0, 0, 1),
    ("fp8_e4m3fn", "bfloat16"): (10, 4, 0, 1),
    ("fp8_e5m2", "float16"): (4, 0, 0, 1),
    ("e8m0", "bfloat16"): (10, 4, 0, 1),
    ("nf4", "float16"): (7, 0, 4, 1),
    ("nf3", "float16"): (7.5, 0, 3, 1),
}


@pytest.mark.parametrize("name, compute", BOUNDS)
def test_programs_stay_cheap(catalog, name, compute):
    program = derive(catalog[name], compute)
    alu, fma, lsu, classes = BOUNDS[name, compute]
    pipes = program.pipes()
    assert pipes["alu"] <= alu
    assert pipes["fma"] <= fma
    assert pipes["lsu"] <= lsu
    assert program.classes <= classes


def test_int4_means_twos_complement(catalog):
    """C09: int4 and offset4 have the same values in another order of codes, uint4 has others."""
    int4, offset4 = catalog["int4"], catalog["offset4"]
    assert int4.values[8] == -8
    assert offset4.values[0] == -8
    one, other = derive(int4, "float16"), derive(offset4, "float16")
    assert one.ops == other.ops
    assert one.relabels != other.relabels


def test_values_decide_not_names(catalog):
    mine = TType("mine", 4, values=catalog["int4"].values)
    program = derive(mine, "float16")
    assert program.element == "mine"
    assert program.ops == derive(catalog["int4"], "float16").ops


def test_known_types_are_not_searched(catalog, monkeypatch):
    monkeypatch.setattr(module, "search_program", lambda *_: pytest.fail("searched"))
    module._derived.cache_clear()
    started = time.process_time()
    for name in ("int4", "nf4", "fp8_e4m3fn"):
        derive(catalog[name], "float16", features=frozenset({"cvt.e4m3x2", "wgmma"}))
    assert time.process_time() - started < 3 * 0.1


def test_features_choose_cheaper_programs(catalog):
    element = catalog["fp8_e4m3fn"]
    plain, converted = (
        derive(element, "float16", features=frozenset(f)) for f in ((), ("cvt.e4m3x2", "pdl"))
    )
    assert (plain.form, converted.form) == ("mask", "cvt")
    assert cycles(converted) < cycles(plain)
    wide = derive(catalog["nf4"], "float16", features=frozenset({"table.stride256"}))
    assert wide.table.stride == 256
    assert derive(catalog["int4"], "float16", features=frozenset({"cvt.e4m3x2"})) == derive(
        catalog["int4"], "float16"
    )


def test_an_overflow_is_refused_with_a_hint():
    element = TType("wide", 4, values=[0.1, *(2.0**k for k in range(3, 18))])
    with pytest.raises(LosslessError) as error:
        derive(element, "float16")
    assert "beyond the largest float16" in str(error.value)
    assert "hint: compute in bfloat16" in str(error.value)
    assert prove(derive(element, "bfloat16"), element)


def test_large_values_are_kept_by_a_factor():
    element = TType("large", 2, values=[0, 2.0**20, 2.0**21, 3 * 2.0**20])
    program = derive(element, "float16")
    assert program.lossless
    assert prove(program, element)


def test_what_cannot_be_decoded_is_refused(catalog):
    with pytest.raises(DecodeError) as error:
        derive(catalog["int4"], "float32")
    assert str(error.value) == (
        "no decode to float32\n  at: int4\n"
        "  hint: compute types with a decode: float16, bfloat16, int8, fp8_e4m3fn, fp8_e5m2, int4, uint4"
    )
    wide = SimpleNamespace(name="wide", bits=16, values=np.arange(65536.0), unused=())
    with pytest.raises(DecodeError, match="16-bit codes have no decode"):
        derive(wide, "float16")


def test_a_type_without_lookup_candidates_has_a_program_where_the_device_converts():
    odd = TType("odd_pair", 1, [1, 257])
    assert derive(odd, "bfloat16", features=ladder.devices["h200"].features).compute == "bfloat16"
