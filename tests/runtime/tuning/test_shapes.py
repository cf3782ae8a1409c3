"""Shapes that are tuned: those of the models that are promised, spelled in several ways."""

from __future__ import annotations

import json

import pytest

from ladder.errors import TuningError
from ladder.runtime.tuning.shapes import models, shapes

#: hidden size, intermediate size, heads, key-value heads (head size 128), from each model's config.json
DENSE = {
    "llama-2-7b": (4096, 11008, 32, 32),
    "llama-2-70b": (8192, 28672, 64, 8),
    "llama-3-8b": (4096, 14336, 32, 8),
    "llama-3-70b": (8192, 28672, 64, 8),
    "mistral-7b": (4096, 14336, 32, 8),
    "qwen2.5-7b": (3584, 18944, 28, 4),
    "qwen2.5-14b": (5120, 13824, 40, 8),
    "qwen2.5-32b": (5120, 27648, 40, 8),
    "qwen2.5-72b": (8192, 29568, 64, 8),
    "deepseek-67b": (8192, 22016, 64, 8),
}


@pytest.mark.parametrize("name", DENSE)
def test_layers_follow_from_the_models_sizes(name):
    hidden, inner, heads, kv = DENSE[name]
    layers = models()[name].layers
    assert layers["q_proj"] == (128 * heads, hidden)
    assert layers["kv_proj"] == (128 * kv, hidden)
    assert layers["qkv_proj"] == (128 * (heads + 2 * kv), hidden)
    assert layers["o_proj"] == (hidden, 128 * heads)
    assert layers["gate_proj"] == (inner, hidden)
    assert layers["gate_up_proj"] == (2 * inner, hidden)
    assert layers["down_proj"] == (hidden, inner)


def test_the_dense_parts_of_deepseek_v2_lite():
    """hidden 2048, 16 heads of 128 + 64, latent 512 + 64, dense 10944, two shared experts of 1408."""
    layers = models()["deepseek-v2-lite"].layers
    assert layers["q_proj"] == (16 * (128 + 64), 2048)
    assert layers["kv_a_proj_with_mqa"] == (512 + 64, 2048)
    assert layers["kv_b_proj"] == (16 * (128 + 128), 512)
    assert layers["o_proj"] == (2048, 16 * 128)
    assert layers["gate_up_proj"] == (2 * 10944, 2048)
    assert layers["shared_down_proj"] == (2048, 2 * 1408)


def test_all_promised_models_are_there():
    assert set(models()) == {*DENSE, "deepseek-v2-lite"}


def test_the_catalog_is_every_shape_once():
    found = shapes(["catalog"])
    assert len(found) == len(set(found))
    assert set(found) == {shape for model in models().values() for shape in model.layers.values()}


def test_shapes_are_spelled(tmp_path):
    assert shapes(["64x256", "64x256", "1x2"]) == ((64, 256), (1, 2))
    assert shapes(["mistral-7b"]) == shapes(["llama-3-8b"])
    own = tmp_path / "own.json"
    own.write_text(json.dumps({"models": {"a": {"source": "me", "layers": {"x": [3, 5]}}}}))
    assert shapes([str(own)]) == ((3, 5),)


@pytest.mark.parametrize("word", ["", "lama-2-7b", "64x", "x64", "64x64x64", "-1x4"])
def test_an_unknown_word_is_refused(word):
    with pytest.raises(TuningError, match="no shapes are called"):
        shapes([word])


def test_a_wrong_name_gets_a_suggestion():
    with pytest.raises(TuningError) as caught:
        shapes(["lama-2-7b"])
    assert "llama-2-7b" in caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "{}",
        '{"models": {"a": {"layers": {}}}}',
        '{"models": {"a": {"source": "", "layers": {"x": [3]}}}}',
        '{"models": {"a": {"source": "", "layers": {"x": [3, true]}}}}',
        '{"models": {"a": {"source": "", "layers": {"x": [0, 5]}}}}',
    ],
)
def test_a_damaged_file_is_refused(text, tmp_path):
    path = tmp_path / "own.json"
    path.write_text(text)
    with pytest.raises(TuningError, match="cannot be read"):
        shapes([str(path)])


def test_a_missing_file_is_refused():
    with pytest.raises(TuningError, match="cannot be read"):
        shapes(["nowhere.json"])
