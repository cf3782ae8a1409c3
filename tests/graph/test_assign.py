"""Rules, and what they do to a graph."""

from __future__ import annotations

import numpy as np
import pytest

from ladder.errors import GraphError, TypeDeclarationError
from ladder.graph.draft import Draft
from ladder.graph.extent import symbol
from ladder.graph.operators import LayerNorm, Linear, QuantizeTokens, RMSNorm
from ladder.graph.rules import Rule, read_rules, rules_of
from ladder.graph.tensor import DTYPES, TensorType
from ladder.registry import types
from ladder.ttype import Quantized, quantize

RNG = np.random.default_rng(0)
W = {name: RNG.normal(size=shape) for name, shape in (("q", (8, 16)), ("k", (4, 16)), ("head", (32, 16)))}  # fmt: skip


def graph(weights=None):
    draft = Draft()
    x = draft.input("x", TensorType((symbol("b"), 16), "float32"))
    for name, array in (weights or W).items():
        value = array if isinstance(array, Quantized) else array.astype(np.float32)
        w = draft.constant(f"{name}.weight", value)
        draft.outputs.append(draft.add(Linear(), (x, w), f"block.{name}"))
    return draft.graph()


def test_the_first_rule_that_fits_decides():
    low = graph().assign(
        [Rule(weight=None, name="*head"), Rule(weight="nf4", group=8, max_size=64), Rule(weight="int4", group=4)]
    )  # fmt: skip
    kinds = {node.name: str(low.types[node.inputs[1]].dtype) for node in low.nodes}
    assert kinds == {
        "block.q": "int4 g4 scale=float16",
        "block.k": "nf4 g8 scale=float16",
        "block.head": "float32",
    }
    assert "kept" in low.explain()


def test_weights_are_quantised_by_the_rule_of_their_group():
    low = graph().assign(Rule(weight="int4", group=8, zero="integer"))
    wt = types["int4"].grouped(8, zero="integer")
    x = RNG.normal(size=(3, 16))
    for got, name in zip(low.run(x), W, strict=True):
        want = quantize(W[name].astype(np.float32), wt).dequantize()
        np.testing.assert_array_equal(got, x @ want.T)
    assert low.constants[0].sources == ("q.weight",)


def test_layers_that_read_one_input_share_its_quantised_rows():
    low = graph().assign(Rule(weight="int8", group="channel", activation="int8"))
    assert [node.name for node in low.of(QuantizeTokens)] == ["x.int8"]
    assert all(node.inputs[0] == "x.int8" for node in low.of(Linear))
    assert low.types["block.q"].dtype == "float32", "the type of y is that of the model"


@pytest.mark.parametrize("norm", [RMSNorm(), LayerNorm()])
@pytest.mark.parametrize("dtype, also_read, wanted", [
    ("float16", False, "float32"), ("bfloat16", False, "float32"), ("float64", False, "float64"), ("float16", True, "float16"),
])  # fmt: skip
def test_a_norm_that_only_a_quantisation_reads_is_not_rounded(norm, dtype, also_read, wanted):
    draft = Draft()
    x = draft.input("x", TensorType((symbol("b"), 16), dtype))
    y = draft.add(norm, (x,), "norm")
    for name in ("q", "k"):
        w = draft.constant(f"{name}.weight", W[name].astype(DTYPES[dtype][0]))
        draft.outputs.append(draft.add(Linear(), (y, w), name))
    draft.outputs += ["norm"] * also_read
    plain = draft.graph()
    low = plain.assign(Rule(weight="int8", group="channel", activation="int8")).fuse()
    assert low.types["norm"].dtype == wanted
    assert ("norm: y float32" in low.explain()) == (wanted == "float32")
    assert low.types["q"].dtype == plain.types["q"].dtype


def test_one_constant_at_two_scales_becomes_two():
    draft = Draft()
    x = draft.input("x", TensorType((symbol("b"), 16), "float32"))
    w = draft.constant("w", RNG.normal(size=(16, 16)).astype(np.float32))
    one = draft.add(Linear(), (x, w), "one")
    two = draft.add(Linear(), (one, w), "two")
    draft.outputs = [draft.add(Linear(), (two, w), "three")]
    rules = [Rule(weight="int4", group=8, name="two"), Rule(weight="int4", group=4)]
    low = draft.graph().assign(rules)
    assert [one.type.weight.group for one in low.constants] == [(1, 4), (1, 8)]
    assert low.node("one").inputs[1] == low.node("three").inputs[1]


def test_what_came_quantised_keeps_its_codes():
    q = quantize(W["q"], types["int3"].grouped(16))
    low = graph({"q": q, "k": W["k"]}).assign(Rule(weight="int4", group=8, activation="bfloat16"))
    assert low.constant("q.weight").value == q
    assert low.node("block.q").op.activation == "bfloat16"
    assert "taken as it is in the model" in low.explain()


def test_rules_that_fit_nothing():
    with pytest.raises(GraphError, match="none of 3 linear layers fits a rule"):
        graph().assign(Rule(weight="int4", name="nobody"))
    low = graph().assign([Rule(weight="int4", group=8), Rule(weight="nf4", group=8)])
    assert "unused" in low.explain()


def test_rules_from_a_file(tmp_path):
    path = tmp_path / "rules.toml"
    path.write_text(
        '[[rule]]\nname = "*head"\nweight = "keep"\n\n'
        '[[rule]]\nweight = "int4"\ngroup = [8, 8]\nzero = "integer"\nmin_size = 10\n'
    )
    rules = read_rules(path)
    assert rules == rules_of(str(path))
    assert rules[0].type is None
    assert rules[1].type == types["int4"].grouped((8, 8), zero="integer")
    assert graph().assign(path) == graph().assign(rules)


@pytest.mark.parametrize(
    "text, match",
    [
        ("[[rule]]\nwt = 'int4'", "a rule has no field wt"),
        ("", "holds no rules"),
        ("[[rule", "cannot be read"),
        ("[[rule]]\nname = '*'", "says no weight"),
        ("[rule]\nweight = 'int4'", "not a list of tables"),
        ("rule = 3", "not a list of tables"),
        ("rule = ['int4']", "not a list of tables"),
    ],
)
def test_files_that_say_no_rules(tmp_path, text, match):
    path = tmp_path / "rules.toml"
    path.write_text(text)
    with pytest.raises(GraphError, match=match):
        read_rules(path)
    with pytest.raises(GraphError, match="cannot be read"):
        read_rules(tmp_path / "none.toml")


@pytest.mark.parametrize("given", [None, 3, [], ["int4", 3], object()])
def test_what_says_no_rules(given):
    with pytest.raises(GraphError, match="says no rules"):
        rules_of(given)


def test_a_type_alone_is_a_rule_for_every_layer():
    wt = types["int4"].grouped(8)
    assert rules_of(wt) == (Rule(weight=wt),)
    assert rules_of("mxfp4") == (Rule(weight="mxfp4"),)


@pytest.mark.parametrize(
    "change",
    [
        {"weight": "int44"},
        {"activation": "int3"},
        {"name": 3},
        {"min_size": -1},
        {"zero": "integer"},  # of which group?
        {"scale": "float32"},
        {"weight": "mxfp4", "zero": "integer"},
    ],
)
def test_a_rule_that_contradicts_itself_is_refused_where_it_is_written(change):
    with pytest.raises(TypeDeclarationError):
        Rule(**{"weight": "int4", **change})
