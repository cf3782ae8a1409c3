"""The cheapest moves of packed words that serve given registers: which words to rotate by what, and where an fma is dearer.

Registers that read a single word meet only in its moves, so words are chosen one by one; the few registers whose bits come
from several words are tried in every way first, and what they read is then there for the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations, product
from math import comb

from ladder.decode.cost import CYCLES
from ladder.decode.form import Form, Piece

#: ``(word, distance)``: a word rotated left, in the width of a word
Move = tuple[int, int]
#: a register's form with its fma, and the pieces that it is gathered from
Made = tuple[Form, tuple[Piece, ...]]
#: the ways to make one register, by the moved words that it reads
Options = dict[frozenset[Move], Made]

#: sets of distances of one size that are tried for a word; larger ones only by growing
MOST_SETS = 600
#: ways that are tried for all registers of several words together
MOST_JOINT = 64


def cheapest(options: Sequence[Options], below: float) -> tuple[float, list[Made]] | None:
    """The ways with the fewest cycles of moves and fmas together, if that is less than ``below``; one for each register."""
    if not all(options):
        return None
    joint = [i for i, ways in enumerate(options) if any(_words(made) > 1 for made in ways.values())]
    words: dict[int, list[int]] = {}
    for i, ways in enumerate(options):
        if i not in joint:
            words.setdefault(next(iter(ways.values()))[1][0].word, []).append(i)
    single = {word: [_distances(options[i]) for i in mine] for word, mine in words.items()}
    best: list[Made] | None = None
    for chosen in _joint([options[i] for i in joint]):
        given: frozenset[Move] = frozenset().union(*chosen)
        taken = {w: _word(tuple(ways), _turns(given, w)) for w, ways in single.items()}
        cost = sum(_fma(options[i][way]) for i, way in zip(joint, chosen, strict=True))
        cost += sum(part for part, _ in taken.values())
        cost += CYCLES["alu"] * len([word for word, _ in given if word not in words])
        if cost < below:
            at_hand = given | {(w, d) for w, (_, turns) in taken.items() for d in _bits(turns) if d}
            made = [_least(ways, at_hand) for ways in options]
            below, best = cost, made
    return None if best is None else (below, best)


def _words(made: Made) -> int:
    return len({piece.word for piece in made[1]})


def _fma(made: Made) -> float:
    return CYCLES["fma"] if made[0].fma else 0.0


def _joint(options: Sequence[Options]) -> Iterator[tuple[frozenset[Move], ...]]:
    """Every way to make the registers of several words, those with few moves first."""
    ordered = [sorted(ways, key=lambda way: (len(way), sorted(way))) for ways in options]
    for count, chosen in enumerate(product(*ordered)):
        if count == MOST_JOINT:
            return
        yield chosen


def _turns(moves: frozenset[Move], word: int) -> int:
    """The distances of one word as bits; 0, the word itself, is always among them."""
    return 1 | sum(1 << distance for other, distance in moves if other == word)


def _bits(mask: int) -> list[int]:
    return [i for i in range(mask.bit_length()) if mask >> i & 1]


def _distances(ways: Options) -> tuple[int, int]:
    """Of a register that reads one word: distances that make it without an fma, and those that make it at all, as bits."""
    free = every = 0
    for way, made in ways.items():
        bit = 1 << next((distance for _, distance in way), 0)
        every |= bit
        free |= 0 if made[0].fma else bit
    return free, every


@lru_cache(maxsize=4096)
def _word(registers: tuple[tuple[int, int], ...], given: int) -> tuple[float, int]:
    """Cycles of one word's registers with the cheapest distances, as bits, the given ones among them."""
    others = 0
    for _, every in registers:
        others |= every & ~given
    best, taken = _grown(registers, given, others)
    for size in range(others.bit_count() + 1):
        moving = CYCLES["alu"] * (given.bit_count() - 1 + size)
        if moving >= best or comb(others.bit_count(), size) > MOST_SETS:
            break
        for more in combinations(_bits(others), size):
            turns = given | sum(1 << distance for distance in more)
            cost = _cost(registers, turns)
            if cost < best:
                best, taken = cost, turns
    return best, taken


def _cost(registers: Sequence[tuple[int, int]], turns: int) -> float:
    """Cycles of one word's moves and of the fmas of its registers; infinite where one cannot be made."""
    cost = CYCLES["alu"] * (turns.bit_count() - 1)
    for free, every in registers:
        if not free & turns:
            cost += CYCLES["fma"] if every & turns else float("inf")
    return cost


def _grown(registers: Sequence[tuple[int, int]], given: int, others: int) -> tuple[float, int]:
    """Distances added one by one, each time the one that serves most: where to begin, and the answer for large sets."""
    best, taken, turns = _cost(registers, given), given, given
    for _ in range(others.bit_count()):
        turns |= max(
            (1 << d for d in _bits(others & ~turns)),
            key=lambda bit: _served(registers, turns | bit),
        )
        if _cost(registers, turns) < best:
            best, taken = _cost(registers, turns), turns
    return best, taken


def _served(registers: Sequence[tuple[int, int]], turns: int) -> tuple[int, int]:
    """Registers that can be made, and those without an fma."""
    made = sum(bool(every & turns) for _, every in registers)
    return made, sum(bool(free & turns) for free, _ in registers)


def _least(ways: Options, moves: frozenset[Move]) -> Made:
    """The cheapest way to make a register with these moves at hand."""
    open_ways = (way for way in ways if way <= moves)
    return ways[min(open_ways, key=lambda way: (_fma(ways[way]), sorted(way)))]
