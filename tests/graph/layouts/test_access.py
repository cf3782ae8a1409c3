"""What operators ask of memory: every one of them is in the table, and one from outside is refused by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest

from ladder.errors import GraphError
from ladder.graph.draft import Draft
from ladder.graph.layouts.access import ACCESS, VIEWS, access_of
from ladder.graph.operators import OPERATORS, Concat, Operator, Unary
from ladder.graph.tensor import TensorType


@dataclass(frozen=True)
class Sorted(Operator):
    """Not one of the package's."""

    kind: ClassVar[str] = "sorted"

    def infer(self, *given):
        return given[0]


def test_every_operator_has_an_access_or_is_a_view():
    assert set(ACCESS) | {*VIEWS, Concat} == set(OPERATORS.values())
    assert not set(ACCESS) & {*VIEWS, Concat}


def test_an_operator_from_outside_is_refused_with_its_node_and_the_table():
    assert access_of(Unary("relu"), "y") is ACCESS[Unary]
    draft = Draft()
    x = draft.input("x", TensorType((4, 8), "float16"))
    draft.outputs = [draft.add(Sorted(), (x,), "in_order")]
    with pytest.raises(GraphError, match="how sorted reads and writes") as caught:
        draft.graph().propagate("h200")
    assert caught.value.at == "in_order"
    assert "add Sorted to ACCESS in ladder/graph/layouts/access.py" in caught.value.hint
