"""The parts of a Pathfinder image: the published sizes, and precomputed tables of paddles.

A snake is a row of short lines ("paddles"). The first paddle of a snake is its seed. Seeds have a heading of
whole degrees; every further paddle ends on one of the few pixels of a circle, so that headings, weights and
the drawn paddles come from tables.

Source: Linsley et al. 2018, and its generator as Long Range Arena configured it (contour length 14: hard).

Letters: S side of the image, h headings (360 of seeds, then n of the circle's pixels), k pixels of a paddle.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from PIL import Image, ImageDraw

ANTIALIAS = 2
BORDER = 1
SEED_HEADINGS = 360

TAKEN = 77
"""Smallest occupancy that prevents a seed, just above 0.3."""

CROSSING = 459
"""Two paddles cross where their occupancies add up to 1.8."""

CONTOURS = {"easy": 6, "intermediate": 9, "hard": 14}
"""Number of paddles of each of the two long snakes, by difficulty."""


@dataclass(frozen=True)
class Scene:
    """The sizes of an image, in pixels; those of 16 pixels are not published.

    Attributes:
        side: S.
        margins: Free space around a paddle, of which one is drawn for each image.
        seed_distance: Distance between the origins of the two long snakes.
        marker_radius: Radius of the two discs.
        paddle: Length of a paddle.
        thickness: Thickness of a paddle.
        continuity: How strongly a snake keeps its heading.
        distractor_paddles: Total number of paddles of all distractors.
        distractor_contrast: Brightness of distractors before the stretch to 0..255; markers have 1.
        target_contrast: Brightness of the two long snakes before the stretch.
    """

    side: int
    margins: tuple[int, ...]
    seed_distance: int
    marker_radius: float
    paddle: int
    thickness: float
    continuity: float
    distractor_paddles: int
    distractor_contrast: float
    target_contrast: float


SCENES = {
    16: Scene(16, (1,), 3, 1.0, 2, 0.5, 1.0, 0, 2.0, 1.5),
    32: Scene(32, (1,), 7, 1.5, 2, 0.5, 1.0, 20, 2.0, 1.5),
    128: Scene(128, (2, 3), 20, 3.0, 5, 1.5, 1.8, 35, 0.9, 0.9),
}


@dataclass(frozen=True)
class Stamps:
    """The pixels above some value that a paddle of each heading writes.

    Attributes:
        offsets: (h, k, 2) from the start of the paddle; shorter lists are padded by repetition.
        values: (h, k) uint8.
    """

    offsets: np.ndarray
    values: np.ndarray


@dataclass(frozen=True)
class Tables:
    """Tables of the paddles of one scene and margin; values are uint8, with 255 for 1.

    Seeds are drawn from their tail along the heading, all other paddles from their head backwards.

    Attributes:
        circle: (n, 2) offsets of the candidates from the pivot, row and column.
        weights: (h, n) relative probability of each candidate after a paddle of each heading, if it is free.
        advance: (h, 2) from one pivot to the next.
        seed_pivot: (360, 2) from a seed's tail to its pivot.
        seed_head: (360, 2) from a seed's tail to its head.
        seed_space: (360, k, 2) offsets from a seed's tail that must be free.
        lines: Drawn paddles.
        solid: Occupied space of paddles that is enough to prevent a seed.
        core: Occupied space of paddles that is enough for a crossing.
        wide: Occupied space of paddles, widened by the margin.
        radius: Largest offset of these stamps.
        margin: Margin m.
    """

    circle: np.ndarray
    weights: np.ndarray
    advance: np.ndarray
    seed_pivot: np.ndarray
    seed_head: np.ndarray
    seed_space: np.ndarray
    lines: Stamps
    solid: Stamps
    core: Stamps
    wide: Stamps
    radius: int
    margin: int


@cache
def tables(side: int, margin: int) -> Tables:
    """Return the tables of a scene's paddles for one margin."""
    scene = SCENES[side]
    reach = scene.paddle + margin
    circle = _circle(reach)
    seeds = np.radians(np.arange(-180, 180))
    turns = np.arctan2(circle[:, 0], circle[:, 1])
    headings = np.concatenate([seeds, turns])
    drawn = [_paddle(scene, margin, heading) for heading in (*seeds, *_reversed(turns))]
    masks = [mask for _, mask in drawn]
    wide = [dilated(np.pad(mask, margin), margin) for mask in masks]
    head = _moved(seeds, scene.paddle)
    return Tables(
        circle=circle,
        weights=_weights(headings, turns, scene.continuity),
        advance=_moved(headings, scene.paddle + 2 * margin),
        seed_pivot=head + _moved(_reversed(seeds), reach),
        seed_head=head,
        seed_space=_seed_space(masks[:SEED_HEADINGS], reach),
        lines=_stamps([line for line, _ in drawn], 1),
        solid=_stamps(masks, TAKEN),
        core=_stamps(masks, CROSSING - 255),
        wide=_stamps(wide, 1),
        radius=wide[0].shape[0] // 2,
        margin=margin,
    )


def _stamps(patches: Sequence[np.ndarray], least: int) -> Stamps:
    """Return the pixels of patches (2a+1, 2a+1) whose value is at least `least`."""
    around = patches[0].shape[0] // 2
    kept = [np.argwhere(patch >= least) for patch in patches]
    most = max(map(len, kept))
    filled = [np.resize(pixels, (most, 2)) for pixels in kept]
    values = [patch[pixels[:, 0], pixels[:, 1]] for patch, pixels in zip(patches, filled, strict=True)]
    return Stamps(np.array(filled) - around, np.array(values))


def _reversed(headings: np.ndarray) -> np.ndarray:
    return np.where(headings < 0, headings + np.pi, headings - np.pi)


def _moved(headings: np.ndarray, distance: float) -> np.ndarray:
    """Return the pixels (h, 2) moved by `distance` along headings, rounded up."""
    exact = distance * np.stack([np.sin(headings), np.cos(headings)], axis=-1)
    # A sine that should be zero is 1e-16; the published code adds it to a coordinate, which rounds it away.
    return np.ceil(exact - 1e-9).astype(np.int64)


def _circle(reach: int) -> np.ndarray:
    """Return the distinct offsets (n, 2) of the pixels on a circle."""
    angles = np.radians(np.arange(0, 360, 360 / (2 * np.pi * reach)))
    exact = reach * np.stack([np.sin(angles), np.cos(angles)], axis=-1)
    return np.unique(np.floor(exact + 1e-9).astype(np.int64), axis=0)


def _weights(headings: np.ndarray, turns: np.ndarray, continuity: float) -> np.ndarray:
    """Return cos^2 of each turn stretched by the continuity, and 0 beyond a right angle; (h, n)."""
    gap = np.abs(headings[:, None] - turns)
    turn = np.minimum(continuity * np.minimum(gap, 2 * np.pi - gap), np.pi / 2)
    return np.maximum(np.cos(turn), 0) ** 2


def _paddle(scene: Scene, margin: int, heading: float) -> tuple[np.ndarray, np.ndarray]:
    """Draw a paddle from the centre of a patch along a heading; return it and its mask (2r+1, 2r+1)."""
    radius = scene.paddle + math.ceil(scene.thickness) + margin
    centre = radius * ANTIALIAS
    row, column = centre + _moved(np.array(heading), scene.paddle * ANTIALIAS)
    fine = Image.new("L", (2 * centre + 1, 2 * centre + 1))
    ImageDraw.Draw(fine).line(
        [(centre, centre), (int(column), int(row))], fill=255, width=round(scene.thickness * ANTIALIAS)
    )
    wide = dilated(np.asarray(fine), margin * ANTIALIAS)
    return _smaller(fine, 2 * radius + 1), _smaller(Image.fromarray(wide), 2 * radius + 1)


def _smaller(fine: Image.Image, side: int) -> np.ndarray:
    return np.asarray(fine.resize((side, side), Image.Resampling.LANCZOS))


def dilated(image: np.ndarray, radius: int) -> np.ndarray:
    """Return the greatest value within `radius` pixels of each pixel of an image (S, S) uint8."""
    result = image.copy()
    rows, columns = image.shape
    for row in range(-radius, radius + 1):
        for column in range(-radius, radius + 1):
            if row**2 + column**2 <= radius**2:
                target = (
                    slice(max(row, 0), rows + min(row, 0)),
                    slice(max(column, 0), columns + min(column, 0)),
                )
                source = (
                    slice(max(-row, 0), rows - max(row, 0)),
                    slice(max(-column, 0), columns - max(column, 0)),
                )
                np.maximum(result[target], image[source], out=result[target])
    return result


def _seed_space(masks: Sequence[np.ndarray], reach: int) -> np.ndarray:
    """Return the offsets (360, k, 2) that must be free for a seed: its mask's whole pixels, one step off."""
    # The published structuring element starts one pixel beside its anchor.
    offsets = _stamps(masks, 255).offsets + 1
    return np.clip(offsets, -reach, reach)


@cache
def marker(radius: float) -> np.ndarray:
    """Return the disc (2a+1, 2a+1) uint8 that marks the end of a snake; its centre is the end."""
    around = math.ceil(radius) + 3
    axis = np.arange(-ANTIALIAS * around, ANTIALIAS * (around + 1))
    disc = axis[:, None] ** 2 + axis**2 <= (radius * ANTIALIAS) ** 2
    return _smaller(Image.fromarray((255 * disc).astype(np.uint8)), 2 * around + 1)
