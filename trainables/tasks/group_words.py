"""Group words: the running product of a group's elements.

The symbols of a word are elements of a group, uniform; the target at each step is the product of all
elements so far, x_1 x_2 ... x_t. A permutation is a tuple p with i -> p[i]; the product of p and q applies p
first.
The groups of 60 elements differ in what they need: Z60 commutes, A4 x Z5 is solvable, A5 is neither.

Source: Merrill, Petty & Sabharwal 2024, "The Illusion of State in State-Space Models", section 5 and its code
(Z60, A4 x Z5, A5, S5; words of 2 to 20 elements); Grazzi et al. 2025 (arXiv 2411.12537), section 5.2 (S5 with
swaps only).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import permutations, product
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from trainables.data.task import IGNORED, Requirement
from trainables.errors import Refusal
from trainables.settings import Option
from trainables.tasks.lengths import OPTIONS, LengthTask

_MOST_MOVED = 2
"""Largest number of elements that a swap moves; the identity, which moves none, is a symbol too."""

Permutation = tuple[int, ...]


class GroupWords(LengthTask):
    """Words of group elements; the value of a step is the product so far."""

    name = "group_words"
    title = "Group words: the running product of elements of Z60, A4 x Z5, A5, S5 or S3; a class a step"
    options: ClassVar[Mapping[str, Option]] = {
        **OPTIONS,
        "group": Option("A5", "The group.", ("S3", "Z60", "A4xZ5", "A5", "S5")),
        "swaps": Option(
            default=False,
            summary="Whether words of S3 or S5 hold only permutations that move at most two elements.",
        ),
        "length": Option(20, "L, the elements of a word in training; published: 2 to 20.", at_least=2),
        "answer": Option("steps", OPTIONS["answer"].summary, OPTIONS["answer"].choices),
    }
    published: ClassVar[Mapping[str, Any]] = {"answer": "steps"}

    def validate(self, options: Mapping[str, Any]) -> None:
        """Refuse swaps in a group that has none."""
        super().validate(options)
        if options["swaps"] and not options["group"].startswith("S"):
            must, got = "must be false for a group without swaps", options["group"]
            raise Refusal(f"task {self.name}: options.swaps", must, got, "Swaps are in S3 and S5.")

    def phrase(self, options: Mapping[str, Any]) -> str:
        """Return a description of the generated data."""
        return f"words of {'swaps in ' if options['swaps'] else ''}{options['group']}"

    def sizes(self, options: Mapping[str, Any]) -> tuple[int, int]:
        """Return the numbers of tokens and classes: one an element, and a token for padding."""
        elements = len(multiplication(options["group"]))
        return elements + 1, elements

    def requires(self, options: Mapping[str, Any]) -> Requirement:
        """Return the requirement: memory of the whole length, and order unless the group is Z60 (abelian)."""
        return Requirement(options["length"] - 1, order=options["group"] != "Z60")

    def draw(
        self, options: Mapping[str, Any], rng: np.random.Generator, lengths: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Draw words; the target of each step is the product so far."""
        table = multiplication(options["group"])
        symbols = _swaps(options["group"]) if options["swaps"] else np.arange(len(table))
        words = rng.choice(symbols, size=(len(lengths), lengths.max()))
        values = np.empty(words.shape, np.int32)
        values[:, 0] = words[:, 0]
        for step in range(1, words.shape[1]):
            values[:, step] = table[values[:, step - 1], words[:, step]]
        inside = np.arange(words.shape[1]) < lengths[:, None]
        return np.where(inside, words + 1, 0), lengths, np.where(inside, values, IGNORED)


@cache
def multiplication(group: str) -> np.ndarray:
    """Return the multiplication table (G, G) of a group: the number of the product of two elements.

    Elements are numbered from the identity, 0: permutations in lexicographic order, pairs likewise.
    """
    tables = [_TABLES[factor[0]](int(factor[1:])) for factor in group.split("x")]
    table = tables[0]
    for other in tables[1:]:
        size = len(other)
        table = (table[:, None, :, None] * size + other[None, :, None, :]).reshape(len(table) * size, -1)
    return table


def _cyclic(order: int) -> np.ndarray:
    numbers = np.arange(order)
    return (numbers[:, None] + numbers) % order


def _symmetric(degree: int) -> np.ndarray:
    return _of_permutations(list(permutations(range(degree))))


def _alternating(degree: int) -> np.ndarray:
    return _of_permutations([p for p in permutations(range(degree)) if _is_even(p)])


_TABLES: Mapping[str, Callable[[int], np.ndarray]] = MappingProxyType(
    {"Z": _cyclic, "S": _symmetric, "A": _alternating}
)


def _of_permutations(elements: Sequence[Permutation]) -> np.ndarray:
    number = {element: index for index, element in enumerate(elements)}
    products = [number[tuple(q[i] for i in p)] for p, q in product(elements, elements)]
    return np.array(products).reshape(len(elements), len(elements))


def _is_even(p: Permutation) -> bool:
    inversions = sum(p[i] > p[j] for i in range(len(p)) for j in range(i + 1, len(p)))
    return inversions % 2 == 0


@cache
def _swaps(group: str) -> np.ndarray:
    """Return the numbers of the permutations of a symmetric group that move at most two elements."""
    elements = permutations(range(int(group[1:])))
    moved = [sum(place != image for place, image in enumerate(p)) for p in elements]
    return np.flatnonzero(np.array(moved) <= _MOST_MOVED)
