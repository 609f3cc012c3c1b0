"""Grows the snakes of Pathfinder images and draws them.

Two long snakes start a set distance apart and grow in turn; where one is stuck, both start again. Short
snakes, the distractors, fill the remaining space. Two discs mark an origin and an end: of one long snake
(label 1) or of both (label 0). Images are drawn in chunks with seeds of their own, so that any number of
processes draws the same images.

Source: Linsley et al. 2018; the order of steps is that of its generator. Its stop at 1 % of free space is
left out, since the paddles of no published scene fill an image.

Letters: b images, c paddles of a long snake, k paddles in all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from trainables.data.parallel import in_order
from trainables.tasks.pathfinder.field import Ends, Fields, seed
from trainables.tasks.pathfinder.rule import SCENES, SEED_HEADINGS, Scene, Tables, marker, tables

_SEED_TRIES = 3
_SNAKE_TRIES = 5
_TRIALS_A_FIELD = 32
_MOST_FIELDS = 2048
_MOST_PIXELS = 8_000_000
_PIXELS_A_CHUNK = 1_024_000
_CHUNKS_WORTH_A_PROCESS = 4


@dataclass(frozen=True)
class Paddles:
    """The paddles of b images, in the order they were grown.

    Attributes:
        head: (b, k, 2) the pixel that each paddle is drawn from.
        heading: (b, k) index in the tables' headings, -1 for no paddle.
    """

    head: np.ndarray
    heading: np.ndarray


@dataclass(frozen=True)
class Drawing:
    """Finished images.

    Attributes:
        images: (b, S, S) uint8.
        labels: (b,) int32, 1 where the two discs mark one snake.
        discs: (b, 2, 2) the pixels that are marked.
        snakes: Paddles of the two long snakes, (b, 2, c) flattened to (b, 2c).
        distractors: Paddles of the short snakes.
    """

    images: np.ndarray
    labels: np.ndarray
    discs: np.ndarray
    snakes: Paddles
    distractors: Paddles


def drawn(rng: np.random.Generator, side: int, contour: int, number: int) -> Drawing:
    """Draw `number` images, half of them with label 1 on average.

    Args:
        rng: Source of randomness.
        side: S, of `SCENES`.
        contour: c, paddles of each of the two long snakes.
        number: b.
    """
    scene = SCENES[side]
    margins = rng.choice(scene.margins, number)
    labels = rng.integers(2, size=number).astype(np.int32)
    parts, drawn_rows = [], []
    for margin in scene.margins:
        rows = np.flatnonzero(margins == margin)
        if not rows.size:  # few images: none has this margin
            continue
        for part in np.array_split(rows, -(-len(rows) // _at_once(scene))):
            parts.append(_drawn(rng, scene, tables(side, margin), contour, labels[part]))
            drawn_rows.append(part)
    order = np.argsort(np.concatenate(drawn_rows))
    return _joined(parts, order)


def _at_once(scene: Scene) -> int:
    return min(_MOST_FIELDS, _MOST_PIXELS // (scene.side + 20) ** 2)


def _joined(parts: list[Drawing], order: np.ndarray) -> Drawing:
    def all_of(arrays: list[np.ndarray]) -> np.ndarray:
        return np.concatenate(arrays)[order]

    return Drawing(
        all_of([part.images for part in parts]),
        all_of([part.labels for part in parts]),
        all_of([part.discs for part in parts]),
        Paddles(all_of([p.snakes.head for p in parts]), all_of([p.snakes.heading for p in parts])),
        Paddles(all_of([p.distractors.head for p in parts]), all_of([p.distractors.heading for p in parts])),
    )


def _drawn(
    rng: np.random.Generator, scene: Scene, table: Tables, contour: int, labels: np.ndarray
) -> Drawing:
    fields = Fields(scene, table, len(labels))
    snakes = _long_snakes(rng, fields, contour)
    distractors = _distractors(rng, fields, contour // 3)
    discs = _discs(rng, snakes, contour, labels)
    image = np.zeros((len(labels), fields.width, fields.width), np.float32)
    _draw(image, fields, snakes, scene.target_contrast)
    _draw(image, fields, distractors, scene.distractor_contrast)
    inner = slice(fields.rim, fields.rim + scene.side)
    shown = _marked(image[:, inner, inner], discs, scene)
    return Drawing(_stretched(shown), labels, discs, snakes, distractors)


def _long_snakes(rng: np.random.Generator, fields: Fields, contour: int) -> Paddles:
    """Grow the two long snakes of every field, and mark their space in the fields as occupied.

    Few attempts succeed. They run in parallel, and each ended attempt is replaced by a new one. A success
    fills the next field without snakes. All successes take the same number of rounds, so the selection has no
    bias.
    """
    number = len(fields.taken)
    heads = np.zeros((number, 2, contour, 2), np.int64)
    headings = np.zeros((number, 2, contour), np.int64)
    pairs = _Pairs(fields, min(_TRIALS_A_FIELD * number, _at_once(fields.scene)), contour)
    done = 0
    while done < number:
        grown = pairs.grown(rng)[: number - done]
        rows = np.arange(done, done + len(grown))
        heads[rows], headings[rows] = pairs.heads[grown], pairs.headings[grown]
        fields.replace(rows, pairs.fields, grown)
        done += len(grown)
    return Paddles(heads.reshape(number, -1, 2), headings.reshape(number, -1))


class _Pairs:
    """Attempts to grow two snakes, at different stages and each in a separate field.

    Attributes:
        fields: Fields of the attempts.
        heads: (b, 2, c, 2) start pixels of the paddles drawn so far.
        headings: (b, 2, c) index in the tables' headings.
    """

    def __init__(self, like: Fields, number: int, contour: int) -> None:
        self.fields = Fields(like.scene, like.table, number)
        self.heads = np.zeros((number, 2, contour, 2), np.int64)
        self.headings = np.zeros((number, 2, contour), np.int64)
        self._ends = [seed(like.table, *_nowhere(number)) for _ in range(2)]
        self._paddles = np.zeros(number, np.int64)
        self._contour = contour

    def grown(self, rng: np.random.Generator) -> np.ndarray:
        """Add a paddle to each snake of each trial; return the trials (a,) that are now complete."""
        self._begin(rng, np.flatnonzero((self._paddles == 0) | (self._paddles == self._contour)))
        rows = np.flatnonzero(self._paddles)
        for snake in range(2):
            rows = self._extend(rng, rows, snake)
        self._paddles[rows] += 1
        whole = rows[self._paddles[rows] == self._contour]
        self.fields.occupy(whole, self._ends[1].of(whole))
        return whole

    def _begin(self, rng: np.random.Generator, rows: np.ndarray) -> None:
        """Restart some fields; where the seeds do not fit, the next round tries again."""
        scene, table = self.fields.scene, self.fields.table
        self.fields.clear(rows)
        self._paddles[rows] = 0

        def beside(rows: np.ndarray, heading: np.ndarray) -> np.ndarray:
            angle = np.radians(rng.integers(SEED_HEADINGS, size=len(rows)))
            away = scene.seed_distance * np.stack([np.sin(angle), np.cos(angle)], axis=1)
            return np.rint(self._ends[0].head[rows] + away).astype(np.int64)

        rows = self._seed(rng, rows, 0, lambda _, heading: _middle(rng, scene, table, heading))
        rows = self._seed(rng, rows, 1, beside)
        self._paddles[rows] = 1

    def _seed(
        self,
        rng: np.random.Generator,
        rows: np.ndarray,
        snake: int,
        choose: Callable[[np.ndarray, np.ndarray], np.ndarray],
    ) -> np.ndarray:
        """Try a few times to place the first paddle of a snake; return the rows that have one."""
        placed = []
        for _ in range(_SEED_TRIES):
            heading = rng.integers(SEED_HEADINGS, size=len(rows))
            tail = choose(rows, heading)
            fits = self.fields.fits(tail, heading)
            self._record(rows[fits], snake, 0, seed(self.fields.table, tail[fits], heading[fits]))
            placed.append(rows[fits])
            rows = rows[~fits]
        return np.concatenate(placed)

    def _extend(self, rng: np.random.Generator, rows: np.ndarray, snake: int) -> np.ndarray:
        """Add a paddle to one snake of each row; return the rows where a paddle fits."""
        old = self._ends[snake].of(rows)
        grown, new = self.fields.extended(rng, rows, old)
        self._paddles[rows[~grown]] = 0
        rows = rows[grown]
        # A paddle's space counts as taken only when the next paddle of its snake has been placed.
        self.fields.occupy(rows, old.of(grown))
        self._record(rows, snake, self._paddles[rows], new.of(grown))
        return rows

    def _record(self, rows: np.ndarray, snake: int, paddle: np.ndarray | int, new: Ends) -> None:
        self._ends[snake].put(rows, new)
        self.heads[rows, snake, paddle], self.headings[rows, snake, paddle] = new.head, new.heading


def _nowhere(number: int) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros((number, 2), np.int64), np.zeros(number, np.int64)


def _middle(rng: np.random.Generator, scene: Scene, table: Tables, heading: np.ndarray) -> np.ndarray:
    """Draw the tails (a, 2) of first seeds: their space keeps twice the seed distance from every side."""
    space = table.seed_space[heading]
    low = 2 * scene.seed_distance - space.min(axis=1)
    high = scene.side - 2 * scene.seed_distance - space.max(axis=1)
    return rng.integers(low, high)


def _distractors(rng: np.random.Generator, fields: Fields, contour: int) -> Paddles:
    """Grow short snakes in the remaining space; leave out a snake that finds none in a few tries."""
    number, snakes = len(fields.taken), fields.scene.distractor_paddles // contour
    heads = np.zeros((number, snakes, contour, 2), np.int64)
    headings = np.full((number, snakes, contour), -1)
    for snake in range(snakes):
        missing = np.arange(number)
        for _ in range(_SNAKE_TRIES):
            trial = fields.copied(missing)
            grown, head, heading = _single(rng, trial, contour)
            done = missing[grown]
            heads[done, snake], headings[done, snake] = head[grown], heading[grown]
            fields.replace(done, trial, grown)
            missing = np.delete(missing, grown)
    return Paddles(heads.reshape(number, -1, 2), headings.reshape(number, -1))


def _single(
    rng: np.random.Generator, fields: Fields, contour: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Try to grow one snake in every field.

    Returns:
        The rows that succeeded, and heads (b, c, 2) and headings (b, c) of all.
    """
    number = len(fields.taken)
    heads = np.zeros((number, contour, 2), np.int64)
    headings = np.full((number, contour), -1)
    rows = np.arange(number)
    grown, ends = fields.seeded(rng, rows)
    for paddle in range(contour):
        if paddle:
            grown, new = fields.extended(rng, rows, ends)
            fields.occupy(rows[grown], ends.of(grown))
            ends = new
        rows, ends = rows[grown], ends.of(grown)
        heads[rows, paddle], headings[rows, paddle] = ends.head, ends.heading
    fields.occupy(rows, ends)
    return rows, heads, headings


def _discs(rng: np.random.Generator, snakes: Paddles, contour: int, labels: np.ndarray) -> np.ndarray:
    """Choose the two ends to mark (b, 2, 2): an origin, and the end of the same snake or of the other."""
    number = len(labels)
    heads = snakes.head.reshape(number, 2, contour, 2)
    row, origin = np.arange(number), rng.integers(2, size=number)
    end = np.where(labels == 1, origin, 1 - origin)
    return np.stack([heads[row, origin, 0], heads[row, end, -1]], axis=1)


def _draw(image: np.ndarray, fields: Fields, paddles: Paddles, contrast: float) -> None:
    """Draw paddles into images with rims (b, W, W), the brighter value winning."""
    lines, flat = fields.table.lines, image.reshape(-1)
    for paddle in range(paddles.heading.shape[1]):
        rows = np.flatnonzero(paddles.heading[:, paddle] >= 0)
        heading = paddles.heading[rows, paddle]
        spots = paddles.head[rows, None, paddle] + lines.offsets[heading] + fields.rim
        indices = (rows[:, None] * fields.width + spots[..., 0]) * fields.width + spots[..., 1]
        flat[indices] = np.maximum(flat[indices], lines.values[heading] * np.float32(contrast / 255))


def _marked(image: np.ndarray, discs: np.ndarray, scene: Scene) -> np.ndarray:
    """Return images (b, S, S) with the two discs of each."""
    disc = marker(scene.marker_radius) / np.float32(255)
    around = disc.shape[0] // 2
    padded = np.pad(image, ((0, 0), (around, around), (around, around)))
    span = np.arange(disc.shape[0])
    for which in range(2):
        rows = discs[:, which, 0, None, None] + span[:, None]
        columns = discs[:, which, 1, None, None] + span
        indices = (np.arange(len(image))[:, None, None], rows, columns)
        padded[indices] = np.maximum(padded[indices], disc)
    return padded[:, around:-around, around:-around]


def _stretched(image: np.ndarray) -> np.ndarray:
    """Return images as uint8, each stretched from its least to its greatest value."""
    low, high = image.min(axis=(1, 2), keepdims=True), image.max(axis=(1, 2), keepdims=True)
    return ((image - low) * (255 / (high - low)) + 0.5).astype(np.uint8)


@dataclass(frozen=True)
class SnakeJob:
    """What to draw: `number` images of `side` x `side` pixels, with two long snakes of `contour` paddles."""

    side: int
    contour: int
    seed: int
    number: int


def generated(work: SnakeJob, processes: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield images (n, L) uint8 and their labels (n,) int32, some at a time."""
    size = _PIXELS_A_CHUNK // work.side**2
    chunks = [
        (work, chunk, min(size, work.number - start))
        for chunk, start in enumerate(range(0, work.number, size))
    ]
    few = len(chunks) <= _CHUNKS_WORTH_A_PROCESS
    yield from in_order(_chunk, chunks, 1 if few else processes)


def _chunk(part: tuple[SnakeJob, int, int]) -> tuple[np.ndarray, np.ndarray]:
    work, chunk, number = part
    drawing = drawn(np.random.default_rng([work.seed, chunk]), work.side, work.contour, number)
    return drawing.images.reshape(number, -1), drawing.labels
