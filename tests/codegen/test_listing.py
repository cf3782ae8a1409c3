"""Listings: equal functions give equal listings, made of plain values only; what has no form is refused."""

from __future__ import annotations

import json

import pytest

from ladder.errors import LoweringError

pytest.importorskip("tvm")

from ladder.codegen import emit as e
from ladder.codegen.listing import _Dump, listing
from ladder.codegen.tvm_api import IRBuilder, T, lower_to_cuda


def built(count=4, stage="load"):
    """``y[t] = x[t] * 2 + i`` summed over ``count``, by the builder."""
    with IRBuilder() as builder, T.prim_func():
        T.func_name("sums")
        x = T.match_buffer(T.arg("x", T.handle()), (64,), "float32")
        y = T.match_buffer(T.arg("y", T.handle()), (64,), "float32")
        IRBuilder.name("x", x)
        IRBuilder.name("y", y)
        T.device_entry()
        T.cta_id([1])
        tid = T.thread_id([64])
        r = e.registers("r", 1, "float32")
        e.store(r, 0, e.f32(0.0))
        with e.stage(stage), e.loop(count, "i") as i:
            e.store(r, 0, r[0] + x[tid] * e.f32(2.0) + T.Cast("float32", i))
        e.ptx("cp.async.commit_group")
        e.store(y, tid, r[0])
    return lower_to_cuda(builder.get(), "sm_80").function


def names(node):
    """Heads of all nodes of a listing."""
    if isinstance(node, list) and node:
        yield node[0] if isinstance(node[0], str) else ""
        for child in node:
            yield from names(child)


def test_a_listing_is_plain_and_deterministic():
    first, second = listing(built()), listing(built())
    assert first == second
    assert json.loads(json.dumps(first)) == first
    assert listing(built(count=5)) != first


def test_a_listing_keeps_names_stages_and_instructions():
    dump = listing(built(stage="a stage"))
    assert dump["kernel"] == "sums_kernel"
    assert dump["arch"] == "sm_80"
    assert [dump["vars"][p][0] for p in dump["params"]] == ["x_ptr", "y_ptr"]
    assert {b["name"]: (b["dtype"], b["scope"], b["size"]) for b in dump["buffers"]} == {
        "x": ("float32", "global", 64),
        "y": ("float32", "global", 64),
        "r": ("float32", "local", 1),
    }
    assert [o["text"] for o in dump["opcodes"]] == ["cp.async.commit_group"]
    assert {"for", "stage", "store", "launch", "ptx"} <= set(names(dump["body"]))
    assert "a stage" in json.dumps(dump)


def test_floats_are_exact():
    assert '["float", "0x1.0000000000000p+1", "float32"]' in json.dumps(listing(built()))


def test_operands_come_from_the_instruction_table():
    with IRBuilder() as builder, T.prim_func():
        T.func_name("loads")
        x = T.match_buffer(T.arg("x", T.handle()), (256,), "float32")
        T.device_entry()
        T.cta_id([1])
        tid = T.thread_id([32])
        r = e.registers("r", 4, "float32")
        e.ptx("ld.global.nc.v4.f32", *[r[i] for i in range(4)], x.ptr_to([tid * 4]))
        e.ptx("st.global.v4.f32", x.ptr_to([tid * 4]), *[r[i] for i in range(4)])
    dump = listing(lower_to_cuda(builder.get(), "sm_90a").function)
    load = dump["opcodes"][0]
    assert load["text"] == "ld.global.nc.v4.f32"
    assert load["operands"][0] == ["d", "w", "reg", 4, "f32", ""]
    assert load["operands"][1][1:3] == ["r", "addr"]


def test_one_device_function_name_has_one_text():
    dump = _Dump(built())
    dump._extern(list(_call("f", "a").args), "uint32")
    dump._extern(list(_call("f", "a").args), "uint32")
    with pytest.raises(LoweringError, match="two different texts"):
        dump._extern(list(_call("f", "b").args), "uint32")


def _call(name, text):
    return T.cuda.func_call(name, e.u32(1), source_code=text, return_type="uint32")


def test_a_node_without_a_form_is_refused():
    class Strange:
        def __str__(self):
            return "strange(1)"

    with pytest.raises(LoweringError, match="no form for statement Strange") as caught:
        _Dump(None).statement(Strange())
    assert caught.value.at == "strange(1)"
