"""The fields that snakes grow in: many images at once, one paddle of each at a time.

A field holds the occupied space, and the same space widened by the margin, as uint8 with 255 for 1. Both
arrays have a rim that is wide enough for all paddles; the values in the rim are never read.

Letters: b fields, a of them in use, S side, W side with both rims, n candidates.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass

import numpy as np

from trainables.tasks.pathfinder.rule import BORDER, CROSSING, SEED_HEADINGS, TAKEN, Scene, Tables, dilated

_TRIES = 3
_PROPOSALS = 32


@dataclass
class Ends:
    """The ends of the last paddle of each snake, one row a snake.

    Attributes:
        pivot: (a, 2) the point that the paddle turned about.
        head: (a, 2) the far end of the paddle; the tail of a seed.
        heading: (a,) index in the tables' headings.
    """

    pivot: np.ndarray
    head: np.ndarray
    heading: np.ndarray

    def of(self, rows: np.ndarray) -> Ends:
        """Return the ends of some snakes."""
        return Ends(self.pivot[rows], self.head[rows], self.heading[rows])

    def put(self, rows: np.ndarray, new: Ends) -> None:
        """Replace the ends of some snakes."""
        self.pivot[rows], self.head[rows], self.heading[rows] = new.pivot, new.head, new.heading


class Fields:
    """The occupied space of b images of one scene and margin.

    Args:
        scene: Sizes of the image.
        table: Tables of the paddles.
        number: Number of fields b.
    """

    def __init__(self, scene: Scene, table: Tables, number: int) -> None:
        self.scene, self.table = scene, table
        self.rim = table.radius
        self.width = scene.side + 2 * self.rim
        frame = np.full((scene.side, scene.side), 255, np.uint8)
        frame[BORDER:-BORDER, BORDER:-BORDER] = 0
        self._blank = [np.pad(image, self.rim).ravel() for image in (frame, dilated(frame, table.margin))]
        self.taken, self.widened = (np.tile(blank, (number, 1)) for blank in self._blank)

    def clear(self, rows: np.ndarray) -> None:
        """Empty some of the fields."""
        self.taken[rows], self.widened[rows] = self._blank

    def copied(self, rows: np.ndarray) -> Fields:
        """Return a copy of some of the fields."""
        other = copy(self)
        other.taken, other.widened = self.taken[rows], self.widened[rows]
        return other

    def replace(self, rows: np.ndarray, other: Fields, others: np.ndarray) -> None:
        """Replace some fields by fields of a copy."""
        self.taken[rows], self.widened[rows] = other.taken[others], other.widened[others]

    def occupy(self, rows: np.ndarray, ends: Ends) -> None:
        """Mark the space of the last paddle of each snake as occupied."""
        for field, stamps in ((self.taken, self.table.solid), (self.widened, self.table.wide)):
            at = self._flat(ends.head[:, None] + stamps.offsets[ends.heading])
            indices = rows[:, None] * field.shape[1] + at
            flat = field.reshape(-1)
            flat[indices] = np.maximum(flat[indices], stamps.values[ends.heading])

    def extended(self, rng: np.random.Generator, rows: np.ndarray, ends: Ends) -> tuple[np.ndarray, Ends]:
        """Choose the next paddle of each snake.

        Returns:
            Booleans (a,), true where a paddle fits, and the ends of the new paddles; the ends are undefined
            where none fits.
        """
        table = self.table
        pivot = ends.pivot + table.advance[ends.heading]
        spots = pivot[:, None] + table.circle
        inside = self._inside(spots)
        flat = np.where(inside, self._flat(spots), 0)
        free = (255 - self.widened[rows[:, None], flat].astype(np.float64)) / 255
        weights = np.cumsum(table.weights[ends.heading] * free * inside, axis=1)
        total = weights[:, -1]
        open_rows = np.flatnonzero(total >= 1e-4)
        grown = np.zeros(len(rows), bool)
        chosen = np.zeros(len(rows), np.int64)
        for _ in range(_TRIES):
            drawn = rng.random(len(open_rows))[:, None] * total[open_rows, None]
            chosen[open_rows] = np.argmax(weights[open_rows] > drawn, axis=1)
            clear = self._clear(rows[open_rows], spots[open_rows, chosen[open_rows]], chosen[open_rows])
            grown[open_rows[clear]] = True
            open_rows = open_rows[~clear]
        heads = spots[np.arange(len(rows)), chosen]
        return grown, Ends(pivot, heads, SEED_HEADINGS + chosen)

    def seeded(self, rng: np.random.Generator, rows: np.ndarray) -> tuple[np.ndarray, Ends]:
        """Choose a free position and heading for the first paddle of a new snake in each field.

        Returns:
            As `extended`.
        """
        grown = np.zeros(len(rows), bool)
        heading, tail = np.zeros(len(rows), np.int64), np.zeros((len(rows), 2), np.int64)
        open_rows = np.arange(len(rows))
        for _ in range(_TRIES):
            heading[open_rows] = rng.integers(SEED_HEADINGS, size=len(open_rows))
            free, tail[open_rows] = self._free_tails(rng, rows[open_rows], heading[open_rows])
            # A field without a free position for this heading is given up at once.
            open_rows = open_rows[free]
            fits = self.fits(tail[open_rows], heading[open_rows])
            grown[open_rows[fits]] = True
            open_rows = open_rows[~fits]
        return grown, seed(self.table, tail, heading)

    def fits(self, tail: np.ndarray, heading: np.ndarray) -> np.ndarray:
        """Return booleans (a,), true where the head and the pivot of a seed lie in the image."""
        head, pivot = tail + self.table.seed_head[heading], tail + self.table.seed_pivot[heading]
        return self._inside(head) & self._inside(pivot)

    def _clear(self, rows: np.ndarray, heads: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        """Return booleans (a,), true where a paddle that ends at `heads` crosses no other."""
        core, heading = self.table.core, SEED_HEADINGS + chosen
        spots = heads[:, None] + core.offsets[heading]
        taken = self.taken[rows[:, None], self._flat(spots)].astype(np.int64)
        crossing = (taken + core.values[heading] >= CROSSING) & self._inside(spots)
        return ~crossing.any(axis=1)

    def _free_tails(
        self, rng: np.random.Generator, rows: np.ndarray, heading: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw a free tail for each heading; return booleans (a,), false where none is free, and tails."""
        tails = rng.integers(self.scene.side, size=(len(rows), _PROPOSALS, 2))
        free = self._free(rows, heading, tails)
        first = np.argmax(free, axis=1)
        tail: np.ndarray = tails[np.arange(len(rows)), first]
        any_free: np.ndarray = free[np.arange(len(rows)), first]
        every = np.argwhere(np.ones((self.scene.side, self.scene.side), bool))[None]
        for row in np.flatnonzero(~any_free).tolist():
            tails_free = every[0, self._free(rows[row : row + 1], heading[row : row + 1], every)[0]]
            if len(tails_free):
                tail[row], any_free[row] = tails_free[rng.integers(len(tails_free))], True
        return any_free, tail

    def _free(self, rows: np.ndarray, heading: np.ndarray, tails: np.ndarray) -> np.ndarray:
        """Return booleans (a, p), true where a seed at a tail (a, p, 2) would meet no taken space."""
        spots = tails[:, :, None] + self.table.seed_space[heading][:, None]
        inside = self._inside(spots)
        taken = self.taken[rows[:, None, None], np.where(inside, self._flat(spots), 0)]
        return (inside & (taken < TAKEN)).all(axis=2)

    def _inside(self, spots: np.ndarray) -> np.ndarray:
        """Return booleans (...,), true where a pixel (..., 2) lies in the image."""
        row, column = spots[..., 0], spots[..., 1]
        return (row >= 0) & (row < self.scene.side) & (column >= 0) & (column < self.scene.side)

    def _flat(self, spots: np.ndarray) -> np.ndarray:
        """Return the flat index of pixels (..., 2) of the image."""
        return (spots[..., 0] + self.rim) * self.width + spots[..., 1] + self.rim


def seed(table: Tables, tail: np.ndarray, heading: np.ndarray) -> Ends:
    """Return the ends of first paddles; `head` is the tail, where a seed is drawn from."""
    return Ends(tail + table.seed_pivot[heading], tail, heading)
