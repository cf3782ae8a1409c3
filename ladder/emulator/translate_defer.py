"""Work that may wait: register operations are put off and done together, which NumPy does many times faster.

Two kinds are put off: device functions that cost several NumPy operations, and mma.sync whose accumulators are updated in place.
Operands are taken at once (registers are values, so taking one is keeping a reference); only the results come later, before
anything reads or overwrites their registers, and at each branch of the control flow.

    r1[0] = fma(r0[0], K, c); r1[1] = fma(r0[1], K, c); use(r1[0])
    -->  x = r0[0]; y = r0[1]; (r1[0], r1[1]) = fma(np.array((x, y)), K, c); use(r1[0])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ladder.codegen import semantics as s
from ladder.emulator.mma import Batch, Shape

#: functions worth doing together: several NumPy operations each, element by element
COSTLY = frozenset(
    {
        s.fma_f16x2,
        s.fma_bf16x2,
        s.prmt,
        s.add_f16x2,
        s.sub_f16x2,
        s.mul_f16x2,
        s.add_bf16x2,
        s.sub_bf16x2,
        s.mul_bf16x2,
        s.e4m3x2_to_f16x2,
        s.e5m2x2_to_f16x2,
        s.f32x2_to_f16x2,
        s.f32x2_to_bf16x2,
    }
)
Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Call:
    """A device function whose result register ``place`` waits; an argument is (text, whether it is a vector)."""

    place: Place
    arguments: tuple[tuple[str, bool], ...]


@dataclass
class Products:
    """mma.sync of one shape whose accumulators wait.

    Attributes:
        shape: of all of them.
        fragments: for A and for B, key of the registers' values -> number.
        names: for A and for B, names of the taken fragments.
        pairs: (fragment of A, fragment of B, target) of each instruction.
        targets: accumulators -> number.
    """

    shape: Shape
    fragments: tuple[dict[object, int], dict[object, int]] = field(default_factory=lambda: ({}, {}))
    names: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))
    pairs: list[tuple[int, int, int]] = field(default_factory=list)
    targets: dict[tuple[Place, ...], int] = field(default_factory=dict)


class Deferred:
    """What waits at one point of a translation.

    Args:
        emit: appends a line.
        name: makes a fresh name.
        constant: names a value.
    """

    def __init__(
        self,
        emit: Callable[[str], None],
        name: Callable[[str], str],
        constant: Callable[[str, Any, str], str],
    ) -> None:
        self._emit, self._name, self._constant = emit, name, constant
        self._calls: dict[str, list[Call]] = {}
        self._products: Products | None = None
        self._waiting: set[Place] = set()
        self._accumulators: set[Place] = set()
        self._versions: dict[Place, int] = {}
        self._clock = 0

    # ---- registers ----------------------------------------------------------------------------------------------

    def touch(self, number: int, index: str) -> None:
        """Somebody reads or overwrites a register (any of the buffer when the index is no number): what waits for it is done."""
        if not (self._waiting or self._accumulators):
            return
        if index.isdigit():
            place = (number, int(index))
            calls, products = place in self._waiting, place in self._accumulators
        else:
            calls = any(n == number for n, _ in self._waiting)
            products = any(n == number for n, _ in self._accumulators)
        if calls:
            self._settle_calls()
        if products:
            self._settle_products()

    def written(self, number: int, index: str) -> None:
        """A register has a new value."""
        self._clock += 1
        if index.isdigit():
            self._versions[number, int(index)] = self._clock
        else:
            for place in [p for p in self._versions if p[0] == number]:
                self._versions[place] = self._clock

    def version(self, place: Place) -> tuple[Place, int]:
        """A key of the value that a register holds now."""
        return place, self._versions.get(place, 0)

    def settle(self) -> None:
        """Do all that waits."""
        self._settle_calls()
        self._settle_products()

    # ---- device functions ---------------------------------------------------------------------------------------

    def call(self, held: str, place: Place, arguments: Sequence[tuple[str, bool]]) -> None:
        """Put a device function off; vectors among its arguments are taken now."""
        self.touch(*_text(place))
        taken = []
        for code, vector in arguments:
            name = self._name("x") if vector else code
            if vector:
                self._emit(f"{name} = {code}")
            taken.append((name, vector))
        self._calls.setdefault(held, []).append(Call(place, tuple(taken)))
        self._waiting.add(place)
        self.written(*_text(place))

    def _settle_calls(self) -> None:
        calls, self._calls = self._calls, {}
        self._waiting.clear()
        for held, group in calls.items():
            columns = list(zip(*(call.arguments for call in group), strict=True))
            together = all(len({vector for _, vector in column}) == 1 for column in columns)
            scalars = all(len(set(column)) == 1 for column in columns if not column[0][1])
            if len(group) == 1 or not (together and scalars):
                for call in group:
                    texts = ", ".join(text for text, _ in call.arguments)
                    self._emit(f"r{call.place[0]}[{call.place[1]}] = {held}({texts})")
                continue
            texts = ", ".join(_column(column) for column in columns)
            targets = ", ".join(f"r{n}[{i}]" for n, i in (call.place for call in group))
            self._emit(f"{targets} = {held}({texts})")

    # ---- tensor cores -------------------------------------------------------------------------------------------

    def accepts(self, shape: Shape) -> None:
        """Make room for products of a shape: others are done first."""
        if self._products is not None and self._products.shape != shape:
            self._settle_products()
        if self._products is None:
            self._products = Products(shape)

    def fragment(self, side: int, key: object, registers: str) -> int:
        """Take a fragment of A (0) or B (1); one that was taken already is not taken again."""
        assert self._products is not None
        known = self._products.fragments[side]
        if key not in known:
            name = self._name("f")
            self._emit(f"{name} = {registers}")
            known[key] = len(known)
            self._products.names[side].append(name)
        return known[key]

    def product(self, a: int, b: int, target: tuple[Place, ...]) -> None:
        """Put one instruction off."""
        assert self._products is not None
        targets = self._products.targets
        number = targets.setdefault(target, len(targets))
        self._products.pairs.append((a, b, number))
        self._accumulators.update(target)
        for place in target:
            self.written(*_text(place))

    def joins(self, target: tuple[Place, ...]) -> bool:
        """Whether these accumulators wait as a whole, so that another product may add to them."""
        products = self._products
        return products is not None and target in products.targets

    def _settle_products(self) -> None:
        products, self._products = self._products, None
        self._accumulators.clear()
        if products is None or not products.pairs:
            return
        batch = Batch.of(products.shape, products.pairs)
        held = self._constant(f"{products.shape} {products.pairs}", batch, "B")
        a, b = (f"({', '.join(names)},)" for names in products.names)
        rows = [f"(r{t[0][0]}, {', '.join(str(i) for _, i in t)})" for t in products.targets]
        self._emit(f"mma_batch({held}, {a}, {b}, ({', '.join(rows)},))")


def _text(place: Place) -> tuple[int, str]:
    return place[0], str(place[1])


def _column(column: Sequence[tuple[str, bool]]) -> str:
    """One argument of all calls: the shared value, or the vectors stacked."""
    if len(set(column)) == 1:
        return column[0][0]
    return f"np.array(({', '.join(text for text, _ in column)}))"
