"""The instructions of NVIDIA GPUs as data, for device files to list; rates are the device's.

Weights are always the operand with 16 rows per warp (A of mma and wgmma), tokens the n operand, so an accumulator
holds the output transposed: [rows of the weight, tokens].
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import product

from ladder.errors import DeviceError
from ladder.ttile import fragments
from ladder.ttile.instruction import Instruction, Operand
from ladder.ttile.tile import Granule, Tile, type_bits

_SINCE_AMPERE = frozenset({"cp.async", "ldmatrix", "mma.f16", "mma.bf16", "mma.s8", "mma.u8"})
#: features by generation (PTX ISA, "Target ISA Notes" of the instructions); a device file may add to them
AMPERE = _SINCE_AMPERE | {"mma.s4", "mma.u4"}
ADA = AMPERE | {"mma.e4m3", "mma.e5m2", "cvt.e4m3x2", "cvt.e5m2x2"}
#: mma.sync on fp8 and on 4-bit integers is emulated there by products of other types, so that they are no features
HOPPER = _SINCE_AMPERE | {
    *("wgmma", "wgmma.f16", "wgmma.bf16", "wgmma.e4m3", "wgmma.e5m2", "wgmma.s8", "wgmma.u8"),
    *("tma", "mbarrier", "stmatrix", "cluster", "pdl", "setmaxnreg", "cvt.e4m3x2", "cvt.e5m2x2"),
}

#: PTX spelling of the operand types, and the type that they accumulate in
PTX_TYPE = {
    "float16": "f16",
    "bfloat16": "bf16",
    "fp8_e4m3fn": "e4m3",
    "fp8_e5m2": "e5m2",
    "int8": "s8",
    "uint8": "u8",
    "int4": "s4",
    "uint4": "u4",
}
#: integers of 4 bits, which every product takes with either sign on either side
NIBBLES = ("int4", "uint4")
ACCUMULATOR = {name: "int32" if "int" in name else "float32" for name in PTX_TYPE}
_PTX_ACCUMULATOR = {"int32": "s32", "float32": "f32"}
#: bytes of a row that one mma.sync or wgmma multiplies, whatever the type
STEP_BYTES = 32

#: cp.async, sm_80: global to shared without registers (PTX ISA, cp.async)
CP_ASYNC = Instruction(
    "cp.async.16",
    "load",
    (
        Operand("source", Tile((1,), Granule(16)), "dram"),
        Operand("target", Tile((1,), Granule(16)), "shared"),
    ),
    "copy",
    "cp.async.cg.shared.global",
    needs=frozenset({"cp.async"}),
)

#: plain 16-byte load of a lane (PTX ISA, ld)
LDG = Instruction(
    "ld.global.16",
    "load",
    (
        Operand("source", Tile((32,), Granule(16)), "dram"),
        Operand("target", Tile((32,), Granule(16)), "register"),
    ),
    "copy",
    "ld.global.nc.v4.u32",
)

#: plain 16-byte store of a lane (PTX ISA, st)
STG = Instruction(
    "st.global.16",
    "store",
    (
        Operand("source", Tile((32,), Granule(16)), "register"),
        Operand("target", Tile((32,), Granule(16)), "dram"),
    ),
    "copy",
    "st.global.v4.u32",
)

#: bulk copy of contiguous bytes, global to shared, sm_90 (PTX ISA, cp.async.bulk)
CP_ASYNC_BULK = Instruction(
    "cp.async.bulk",
    "load",
    (
        Operand("source", Tile((1,), Granule(16)), "dram"),
        Operand("target", Tile((1,), Granule(16)), "shared"),
    ),
    "copy",
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes",
    needs=frozenset({"tma"}),
)

#: tensor-map copy, global to swizzled shared, sm_90 (PTX ISA, cp.async.bulk.tensor)
TMA_2D = Instruction(
    "cp.async.bulk.tensor.2d",
    "load",
    (
        Operand("source", Tile((8, 8), Granule(16)), "dram"),
        Operand("target", Tile((8, 8), Granule(16)), "shared"),
    ),
    "tensor_copy",
    "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes",
    needs=frozenset({"tma"}),
)


def ldmatrix(count: int = 4) -> Instruction:
    """``ldmatrix.x{count}``: the paper's [16, 2] granules of 16 bytes for x4, [8, 2] for x2, [8, 1] for x1."""
    shape = {4: (16, 2), 2: (8, 2), 1: (8, 1)}
    fragment = fragments.ldmatrix(count)
    return Instruction(
        f"ldmatrix.x{count}",
        "load",
        (
            Operand("source", Tile(shape[count], Granule(16)), "shared"),
            Operand("target", Tile(shape[count], Granule(16)), "register", fragment),
        ),
        "ldmatrix",
        f"ldmatrix.sync.aligned.m8n8.x{count}.shared.b16",
        needs=frozenset({"ldmatrix"}),
    )


#: tokens by which products of a warpgroup grow in every operand type (PTX ISA, wgmma.mma_async, shape)
WGMMA_STEP = 16

_MMA = {
    16: (fragments.MMA_M16N8K16_A, fragments.MMA_M16N8K16_B),
    32: (fragments.MMA_M16N8K32_A, fragments.MMA_M16N8K32_B),
    64: (fragments.MMA_M16N8K64_A, fragments.MMA_M16N8K64_B),
}
_WGMMA = {16: fragments.WGMMA_M64K16_A, 32: fragments.WGMMA_M64K32_A}


def mma(
    dtype: str, *, tera_ops: float, measured: bool = False, activation: str | None = None
) -> Instruction:
    """``mma.sync.m16n8k16`` (16-bit types), ``m16n8k32`` (8-bit types) or ``m16n8k64`` (4-bit types).

    Args:
        dtype: type of the weight operand, a key of :data:`PTX_TYPE`.
        tera_ops: multiply and add operations per second of the device, in 10**12.
        measured: whether that rate was measured.
        activation: type of the other operand where it differs (two fp8, two 8-bit or two 4-bit integer kinds).
    """
    other = activation or dtype
    k, total = _product_types(dtype, other)
    weight, token = _MMA[k]
    spelled = f"{PTX_TYPE[dtype]}.{PTX_TYPE[other]}"
    end = _PTX_ACCUMULATOR[total]
    return Instruction(
        f"mma.m16n8k{k}.{pair(dtype, other)}",
        "compute",
        (
            Operand("weight", Tile((16, k), dtype), fragment=weight),
            Operand("activation", Tile((8, k), other), fragment=token),
            Operand("accumulator", Tile((16, 8), total), fragment=fragments.MMA_M16N8_C),
        ),
        "mma",
        f"mma.sync.aligned.m16n8k{k}.row.col.{end}.{spelled}.{end}",
        per_second=tera_ops * 1e12,
        measured=measured,
        needs=frozenset({f"mma.{PTX_TYPE[dtype]}", f"mma.{PTX_TYPE[other]}"}),
    )


def nibble_mmas(*, tera_ops: float, measured: bool = False) -> Iterator[Instruction]:
    """The four forms of :func:`mma` on integers of 4 bits, each operand with or without a sign."""
    for weight, activation in product(NIBBLES, NIBBLES):
        yield mma(weight, activation=activation, tera_ops=tera_ops, measured=measured)


def wgmma(
    dtype: str,
    n: int,
    *,
    tera_ops: float,
    measured: bool = False,
    weight_level: str = "register",
) -> Instruction:
    """``wgmma.m64n{n}``: weights from registers (RS) or shared memory (SS), tokens from shared memory.

    Args:
        dtype: type of both operands, a key of :data:`PTX_TYPE` of 8 or 16 bits.
        n: tokens, 8 or a multiple of 16 up to 256 (what every operand type takes).
        tera_ops: multiply and add operations per second of the device, in 10**12.
        measured: whether that rate was measured.
        weight_level: ``register`` or ``shared``.

    Raises:
        DeviceError: the instruction has no form for the type.
    """
    k, total = _product_types(dtype, dtype)
    if k not in _WGMMA:
        raise DeviceError(f"no wgmma of {dtype}", at="isa", hint="mma has a form for it")
    form = {"register": "rs", "shared": "ss"}[weight_level]
    spelled = f"{PTX_TYPE[dtype]}.{PTX_TYPE[dtype]}"
    # A layout over F2 has powers of two; accumulators of other extents are n/8 blocks of n = 8.
    total_fragment = fragments.wgmma_accumulator(n) if n & (n - 1) == 0 else None
    return Instruction(
        f"wgmma.m64n{n}k{k}.{dtype}.{form}",
        "compute",
        (
            Operand(
                "weight",
                Tile((64, k), dtype),
                weight_level,
                _WGMMA[k] if form == "rs" else None,
            ),
            Operand("activation", Tile((n, k), dtype), "shared"),
            Operand("accumulator", Tile((64, n), total), fragment=total_fragment),
        ),
        "wgmma",
        f"wgmma.mma_async.sync.aligned.m64n{n}k{k}.{_PTX_ACCUMULATOR[total]}.{spelled}",
        threads=128,
        per_second=tera_ops * 1e12,
        measured=measured,
        needs=frozenset({"wgmma", f"wgmma.{PTX_TYPE[dtype]}"}),
    )


def wgmmas(
    dtype: str, rates: Mapping[int, float], *, measured: Collection[int] = ()
) -> Iterator[Instruction]:
    """The RS forms of :func:`wgmma` for every number of tokens that ``rates`` spans.

    Args:
        dtype: type of both operands.
        rates: tokens -> operations per second of the device, in 10**12. Between two of them time grows evenly with the
            tokens, which makes a rate that is derived, not measured.
        measured: tokens whose rate was measured.
    """
    known = sorted(rates)
    for n in (*(n for n in known if n % WGMMA_STEP), *range(WGMMA_STEP, known[-1] + 1, WGMMA_STEP)):
        if n in rates:
            yield wgmma(dtype, n, tera_ops=rates[n], measured=n in measured)
            continue
        above = next(k for k in known if k > n)
        below = max(k for k in known if k < n)
        share = (n - below) / (above - below)
        time = (1 - share) * below / rates[below] + share * above / rates[above]
        yield wgmma(dtype, n, tera_ops=n / time)


def product_k(dtype: str) -> int:
    """K of one product of an operand type, in elements."""
    return 8 * STEP_BYTES // type_bits(dtype)


def pair(weight: str, activation: str) -> str:
    """The operand types in the name of a product: one word where they are alike."""
    return weight if weight == activation else f"{weight}.{activation}"


def _product_types(weight: str, activation: str) -> tuple[int, str]:
    """K and accumulator type of a product of two operand types."""
    for name in (weight, activation):
        if name not in PTX_TYPE:
            raise DeviceError(
                f"no tensor-core operand type {name!r}", at="isa", hint=", ".join(PTX_TYPE)
            )
    if product_k(weight) != product_k(activation) or ACCUMULATOR[weight] != ACCUMULATOR[activation]:
        raise DeviceError(f"no product of {weight} and {activation}", at="isa")
    return product_k(weight), ACCUMULATOR[weight]
