"""Generator of ListOps expressions by the rule of Long Range Arena, thousands of trees at a time.

Trees grow level by level. One array holds all nodes of one depth of all trees of a chunk. The children of a
node are neighbours in the next array. A tree grows only while it can still be short enough. Only trees of an
accepted length get digits, a value and a text.

Source: Nangia & Bowman 2018, and Long Range Arena's `data/listops.py`. A node above depth 10 is an operator
with probability 1/4, of 2 to 10 children; an expression is kept when its length lies strictly between two
bounds.

Letters: t trees of a chunk, a accepted ones, m nodes of a level, L padded length.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import count

import numpy as np

from trainables.data.parallel import in_order
from trainables.errors import Refusal

OPERATORS = ("[MIN", "[MAX", "[MED", "[SM")
CLOSE = "]"

FIRST_DIGIT = 3
"""Token number of the digit 0: after padding, unknown and end."""

FIRST_OPERATOR = FIRST_DIGIT + 10
CLOSE_TOKEN = FIRST_OPERATOR + len(OPERATORS)
VOCABULARY = CLOSE_TOKEN + 1

_MAX_DEPTH = 10
_OPERATOR_RATE = 0.25
_MAX_CHILDREN = 10
_TREES_A_CHUNK = 8192
_BARREN_CHUNKS = 50
"""Number of consecutive chunks without a new expression after which the lengths count as impossible."""


@dataclass(frozen=True)
class Rule:
    """The rule: expressions with `min_length < length < max_length`, parentheses not counted."""

    seed: int
    min_length: int
    max_length: int


@dataclass(frozen=True)
class Expressions:
    """Generated expressions.

    Attributes:
        tokens: (a, max_length) uint8, zero-padded, without the end token.
        lengths: (a,) int32, strictly between the rule's bounds.
        values: (a,) int32, 0 to 9.
    """

    tokens: np.ndarray
    lengths: np.ndarray
    values: np.ndarray


@dataclass
class _Level:
    """The nodes of one depth.

    Attributes:
        tree: (m,) tree of each node, ascending.
        operator: (m,) whether the node is an operator.
        children: (operators,) number of children of each operator in the next level.
    """

    tree: np.ndarray
    operator: np.ndarray
    children: np.ndarray

    def of(self, kept: np.ndarray) -> _Level:
        """Return the nodes of the trees that are `kept` (t,) bool; trees are renumbered."""
        number = np.cumsum(kept) - 1
        nodes = kept[self.tree]
        return _Level(number[self.tree[nodes]], self.operator[nodes], self.children[nodes[self.operator]])


def generated(rule: Rule, processes: int) -> Generator[Expressions, None, None]:
    """Yield distinct expressions without end, in the same order for any number of processes.

    Raises:
        Refusal: No new expression of these lengths is drawn any more.
    """
    seen: set[bytes] = set()
    barren = 0
    for batch in in_order(_chunk, ((rule, index) for index in count()), processes):
        fresh = _unseen(batch, seen)
        barren = 0 if fresh.any() else barren + 1
        if barren == _BARREN_CHUNKS:
            bounds = f"min_length={rule.min_length}, max_length={rule.max_length}"
            raise Refusal(
                "task listops: options",
                "enough expressions of these lengths must exist",
                f"{bounds} after {len(seen)} distinct ones",
                "Ask for fewer examples or a wider range of lengths.",
            )
        yield Expressions(batch.tokens[fresh], batch.lengths[fresh], batch.values[fresh])


def _unseen(batch: Expressions, seen: set[bytes]) -> np.ndarray:
    fresh = np.zeros(len(batch.lengths), bool)
    for row, tokens in enumerate(batch.tokens):
        name = blake2b(tokens.tobytes(), digest_size=16).digest()
        fresh[row] = name not in seen
        seen.add(name)
    return fresh


def _chunk(work: tuple[Rule, int]) -> Expressions:
    rule, index = work
    rng = np.random.default_rng([rule.seed, index])
    levels, lengths = _shapes(rng, rule)
    kept = (lengths > rule.min_length) & (lengths < rule.max_length)
    return _filled(rng, [level.of(kept) for level in levels], lengths[kept], rule.max_length)


def _shapes(rng: np.random.Generator, rule: Rule) -> tuple[list[_Level], np.ndarray]:
    """Draw the shapes of a chunk of trees.

    Returns:
        The levels, and the length in tokens of each tree (t,); a tree that outgrew the bound stays cut off
        at a length that is already too long.
    """
    # The length of each tree so far; a node that is not yet opened counts as one digit.
    lengths = np.ones(_TREES_A_CHUNK, np.int64)
    tree = np.arange(_TREES_A_CHUNK)
    levels: list[_Level] = []
    for depth in range(1, _MAX_DEPTH + 1):
        operator = (rng.random(len(tree)) <= _OPERATOR_RATE) & (depth < _MAX_DEPTH)
        children = rng.integers(2, _MAX_CHILDREN, endpoint=True, size=int(operator.sum()))
        levels.append(_Level(tree, operator, children))
        # An operator, counted as one digit before, is two tokens and its children.
        lengths += np.bincount(tree[operator], children + 1, minlength=len(lengths)).astype(np.int64)
        tree = np.repeat(tree[operator], children)
        growing = lengths[tree] < rule.max_length
        if not growing.all():
            # The children of cut trees are dropped with their trees, below, by `_Level.of`.
            tree = tree[growing]
    return levels, lengths


def _filled(
    rng: np.random.Generator, levels: Sequence[_Level], lengths: np.ndarray, width: int
) -> Expressions:
    """Draw digits and operators, compute values from the leaves up, and write tokens from the root down."""
    sizes: list[np.ndarray] = []
    codes: list[np.ndarray] = []
    values = below = np.zeros(0, np.int64)
    for level in reversed(levels):
        size = np.ones(len(level.tree), np.int64)
        code = rng.integers(10, size=len(level.tree))
        operators = rng.integers(len(OPERATORS), size=len(level.children))
        if len(level.children):
            starts = np.cumsum(level.children) - level.children
            size[level.operator] = 2 + np.add.reduceat(below, starts)
            combined = _combined(operators, values, starts, level.children)
            values = code.copy()
            values[level.operator] = combined
        else:
            values = code
        below = size
        codes.append(np.where(level.operator, 0, code + FIRST_DIGIT))
        codes[-1][level.operator] = operators + FIRST_OPERATOR
        sizes.append(size)
    tokens = _written(levels, sizes[::-1], codes[::-1], (len(lengths), width))
    return Expressions(tokens, lengths.astype(np.int32), values.astype(np.int32))


def _combined(
    operators: np.ndarray, values: np.ndarray, starts: np.ndarray, children: np.ndarray
) -> np.ndarray:
    """Apply each operator (o,) to the values of its children, which are consecutive."""
    results = (
        np.minimum.reduceat(values, starts),
        np.maximum.reduceat(values, starts),
        np.zeros(len(starts), np.int64),
        np.add.reduceat(values, starts) % 10,
    )
    combined = np.choose(operators, results)
    median = operators == OPERATORS.index("[MED")
    combined[median] = _medians(values, starts[median], children[median])
    return combined


def _medians(values: np.ndarray, starts: np.ndarray, children: np.ndarray) -> np.ndarray:
    """Return the median of each run of values, rounded down."""
    column = np.arange(_MAX_CHILDREN)
    inside = column < children[:, None]
    indices = np.minimum(starts[:, None] + column, len(values) - 1)
    runs = np.sort(np.where(inside, values[indices], 10), axis=1)
    row = np.arange(len(starts))
    return (runs[row, (children - 1) // 2] + runs[row, children // 2]) // 2


def _written(
    levels: Sequence[_Level], sizes: Sequence[np.ndarray], codes: Sequence[np.ndarray], shape: tuple[int, int]
) -> np.ndarray:
    """Return the tokens (a, L): nodes in reading order, and the closing bracket of each operator."""
    tokens = np.zeros(shape, np.uint8)
    positions = np.zeros(shape[0], np.int64)
    for depth, (level, size, code) in enumerate(zip(levels, sizes, codes, strict=True)):
        tokens[level.tree, positions] = code
        opened = positions[level.operator]
        tokens[level.tree[level.operator], opened + size[level.operator] - 1] = CLOSE_TOKEN
        if len(level.children):
            before = np.cumsum(sizes[depth + 1]) - sizes[depth + 1]
            first = np.repeat(before[np.cumsum(level.children) - level.children], level.children)
            positions = np.repeat(opened + 1, level.children) + before - first
        else:
            positions = np.zeros(0, np.int64)
    return tokens
