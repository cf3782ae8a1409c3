"""Cosines of whole models on the CPU: the place that rounds outputs only is between the meaning and the kernels."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from benchmarks.model_cases import PROMPT, cases  # noqa: E402
from benchmarks.model_cosine import Exactly, cosine_of  # noqa: E402
from ladder.torch.places import ProductCall  # noqa: E402


@pytest.mark.parametrize("rule, least", [("int4-g128", 0.999999), ("int8-int8", 0.9998)])
def test_a_small_model_is_near_its_meaning(rule, least):
    found = cosine_of(cases()["llama-3-8b"], PROMPT, rule, small=True)
    assert least <= found < 1


def test_a_product_that_rounds_more_is_seen(monkeypatch):
    case = cases()["mlp"]
    right = cosine_of(case, case.phases[0], "int4-g128")
    plain = Exactly.product

    def coarse(self, name, plan, weight):
        call = plain(self, name, plan, weight)
        return ProductCall(lambda *given: call.run(*given).bfloat16().half(), call.nbytes)

    monkeypatch.setattr(Exactly, "product", coarse)
    assert cosine_of(case, case.phases[0], "int4-g128") < right
