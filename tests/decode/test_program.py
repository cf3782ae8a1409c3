"""What a decode program says about itself."""

from __future__ import annotations

import pytest

from ladder.decode.derive import derive


@pytest.mark.parametrize("compute", ["float16", "bfloat16"])
def test_only_a_type_of_one_value_decodes_to_a_constant(catalog, compute):
    """0 and -0 are one value: no register of signmag1 depends on the words, every other type's do."""
    constant = {n for n, t in catalog.items() if n != "e8m0" and derive(t, compute).is_constant}
    assert constant == {"signmag1"}
