"""The printed steps mean what the kernel does: evaluated, they give the decoder's and the instruction's order."""

from __future__ import annotations

import numpy as np
import pytest

from ladder.decode.reference import decode_atom, pack_atom
from ladder.graph.matmul import matmul
from ladder.registry import types
from ladder.scheduler import schedule
from ladder.scheduler.interpret import load_activations
from ladder.scheduler.steps import (
    activation_padding,
    band_order,
    fragment_order,
    load_steps,
    pack_steps,
    store_steps,
)
from ladder.ttile.fragments import MMA_M16N8K16_A, MMA_M16N8K64_A
from ladder.ttype import Quantized

INT4 = types["int4"]


def a_plan(m=3, n=40, k=200, group=40, **fixed):
    op = matmul(m, n, k, activation="float16", weight=INT4.grouped(group))
    return schedule(op, **fixed)


def run(steps, array):
    for step in steps:
        assert array.shape == step.source.shape
        array = step.evaluate(array)
    assert array.shape == steps[-1].result.shape
    return array


def test_fragment_order_is_the_a_operand_of_the_instruction():
    order = fragment_order(1, 1, 2)
    places = order.evaluate(np.arange(16 * 32).reshape(16, 32))[
        0, 0
    ]  # [lane, step, register, half]
    for lane in range(32):
        for step in range(2):
            for register in range(4):
                for half in range(2):
                    at = MMA_M16N8K16_A.layout.apply(register=register, lane=lane, half=half)
                    want = at["row"] * 32 + 16 * step + at["k"]
                    assert places[lane, step * 8 + register * 2 + half] == want


def test_fragment_order_of_4_bits_is_the_a_operand_of_its_instruction():
    places = fragment_order(1, 1, 1, 8).evaluate(np.arange(16 * 64).reshape(16, 64))[0, 0]
    for lane in range(32):
        for register in range(4):
            for nibble in range(8):
                at = MMA_M16N8K64_A.layout.apply(register=register, lane=lane, nibble=nibble)
                assert places[lane, register * 8 + nibble] == at["row"] * 64 + at["k"]


def test_pack_steps_give_the_codes_that_the_packer_packs():
    plan = a_plan()
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 16, (40, 200)).astype(np.uint8)
    fragment = run(pack_steps(plan).steps, codes)
    packing = plan.packing
    natural = fragment_order(packing.stored_tiles, packing.atoms, packing.program.steps).inverse()
    padded = natural.evaluate(band_order(packing).inverse().evaluate(fragment))
    assert padded.shape == (64, packing.geometry.padded_k)
    assert (padded[40:] == packing.pad_code).all()
    weights = Quantized(plan.op.weight, codes, scales=np.ones((40, 5)))
    atoms = padded.reshape(4, 16, packing.atoms, -1).transpose(0, 2, 1, 3)
    words = pack_atom(packing.program, np.ascontiguousarray(atoms))
    by_tile = packing.weight_by_tile(packing.pack(weights)["weight"])
    assert np.array_equal(packing.words_of(by_tile), words)


@pytest.mark.parametrize("placement", ["register", "shared"])
def test_weight_reaches_the_instruction_as_decoded_values(placement):
    plan = a_plan(group="channel", k=128, placement=placement)
    codes = np.random.default_rng(0).integers(0, 16, (40, 128)).astype(np.uint8)
    to_shared, _, to_register, _ = load_steps(plan)
    fragment = run(pack_steps(plan).steps, codes)
    values = run(to_register.steps, run(to_shared.steps, fragment))
    program = plan.packing.program
    atom = np.ascontiguousarray(codes[:16, : program.atom_k])
    want = decode_atom(program, pack_atom(program, atom))
    assert np.array_equal(values.astype(np.float64), want)


@pytest.mark.parametrize("group", ["channel", 40, 64])
def test_activation_steps_show_the_last_block(group):
    plan = a_plan(m=3, k=200, group=group)
    x = np.random.default_rng(0).standard_normal((3, 200)).astype(np.float16)
    _, to_shared, _, to_register = load_steps(plan)
    block = plan.packing.geometry.block_k
    slot = run(to_shared.steps, x).reshape(-1, block)
    assert np.array_equal(slot.astype(np.float32), load_activations(plan, x)[:, -block:])
    step = run(to_register.steps, run(to_shared.steps, x))
    assert np.array_equal(step[:3], slot[:3, :16])


@pytest.mark.parametrize("name", ["int2", "int4", "uint4"])
def test_operands_of_4_bits_reach_the_instruction(name):
    element = types[name]
    op = matmul(3, 40, 300, activation="int4", weight=element)
    plan = schedule(op, "a100")
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 1 << element.bits, (40, 300)).astype(np.uint8)
    to_shared, x_to_shared, to_register, x_to_register = load_steps(plan)
    fragment = run(pack_steps(plan).steps, codes)
    values = run(to_register.steps, run(to_shared.steps, fragment))
    assert values.dtype == op.weight_compute.dtype
    want = element.values[codes[:16, : plan.program.atom_k]]
    assert np.array_equal(values.astype(np.float64), want)
    x = rng.integers(-8, 8, (3, 300)).astype(op.activation.dtype)
    block = plan.packing.geometry.block_k
    slot = run(x_to_shared.steps, x).reshape(-1, block)
    loaded = load_activations(plan, op.activation.pack(x))
    assert np.array_equal(slot.astype(np.float32), loaded[:, -block:])
    step = run(x_to_register.steps, run(x_to_shared.steps, x))
    assert np.array_equal(step[:3].astype(np.int64), slot[:3, :64].astype(np.int64))


def test_store_steps_cut_the_edges():
    plan = a_plan(m=3, n=40)
    steps = store_steps(plan).steps
    channels, tokens = steps[0].source.shape
    y = run(steps, np.arange(channels * tokens, dtype=np.float32).reshape(channels, tokens))
    assert y.dtype == np.float16
    assert y.shape == (3, 40 % channels or channels)


def test_nothing_to_pad_leaves_no_pad():
    assert activation_padding(a_plan(k=256, group=128), 3) == ()


def test_transfers_print_before_and_after():
    text = str(pack_steps(a_plan()))
    assert text.splitlines()[0] == "pack weight offline"
    assert "  pad(after=(0, 0, 24), value=" not in text  # int4's zero is code 0
    assert "int4[40, 5, 40] -> int4[40, 5, 64]" in text
