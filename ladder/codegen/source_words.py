"""Words of 32 bits of activations that are quantised: magnitudes and float32 values of the elements that one holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ladder.codegen import emit as e
from ladder.codegen.tvm_api import T
from ladder.codegen.widen import widen, widen_pair


@dataclass(frozen=True)
class Halves:
    """Words that hold two elements of a 16-bit source type.

    Attributes:
        dtype: of the elements.
        infinity: its bits; those of a NaN are above.
        suffix: of its instructions.
    """

    dtype: str
    infinity: int
    suffix: str

    def larger(self, most: Any, word: Any) -> Any:
        """The larger magnitudes of two words, a NaN wherever there is one."""
        return e.call(f"max_nan_{self.suffix}", most, e.call(f"abs_{self.suffix}", word))

    def largest(self, most: Any) -> Any:
        """The bits of the larger of a word's two magnitudes: without sign, floats are in the order of their bits."""
        return T.max(most & e.u32(0xFFFF), most >> e.u32(16))

    def bits(self, element: Any) -> Any:
        """A word that holds one element of x, and a zero."""
        return e.cast("uint32", element)

    def value(self, bits: Any) -> Any:
        """The float32 of an element's bits."""
        return widen(self.dtype, e.cast("uint16", bits))

    def values(self, word: Any) -> tuple[Any, ...]:
        """The float32 of the elements of a word, the lowest first."""
        pair = widen_pair(self.dtype, word)
        assert pair is not None
        return pair


@dataclass(frozen=True)
class Single:
    """Words that are a float32 each; see :class:`Halves`."""

    infinity: int = 0x7F800000

    def larger(self, most: Any, word: Any) -> Any:
        """The larger magnitude: without sign, floats are in the order of their bits, a NaN above all others."""
        return e.most(most, word & e.u32(0x7FFFFFFF))

    def largest(self, most: Any) -> Any:
        """The bits of the magnitude."""
        return most

    def bits(self, element: Any) -> Any:
        """The word of an element of x."""
        return e.f32_as_bits(element)

    def value(self, bits: Any) -> Any:
        """The float32 itself."""
        return e.bits_as_f32(bits)

    def values(self, word: Any) -> tuple[Any, ...]:
        """The float32 itself."""
        return (e.bits_as_f32(word),)


#: how words of x are handled, by source type
WORDS: Mapping[str, Halves | Single] = MappingProxyType(
    {
        "float16": Halves("float16", 0x7C00, "f16x2"),
        "bfloat16": Halves("bfloat16", 0x7F80, "bf16x2"),
        "float32": Single(),
    }
)
