"""Draws Pathfinder images in chunks with seeds of their own, the same for any number of processes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from trainables.data.parallel import in_order
from trainables.tasks.pathfinder.snakes import drawn

_PIXELS_A_CHUNK = 1_024_000
_CHUNKS_WORTH_A_PROCESS = 4


@dataclass(frozen=True)
class Work:
    """What to draw: `number` images of `side` x `side` pixels."""

    side: int
    difficulty: str
    seed: int
    number: int


def generated(work: Work, processes: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield images (n, L) uint8 and their labels (n,) int32, some at a time."""
    size = _PIXELS_A_CHUNK // work.side**2
    chunks = [
        (work, chunk, min(size, work.number - start))
        for chunk, start in enumerate(range(0, work.number, size))
    ]
    few = len(chunks) <= _CHUNKS_WORTH_A_PROCESS
    yield from in_order(_chunk, chunks, 1 if few else processes)


def _chunk(part: tuple[Work, int, int]) -> tuple[np.ndarray, np.ndarray]:
    work, chunk, number = part
    drawing = drawn(np.random.default_rng([work.seed, chunk]), work.side, work.difficulty, number)
    return drawing.images.reshape(number, -1), drawing.labels
