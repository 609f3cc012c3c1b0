"""Pathfinder and Path-X: do the two discs lie on one dashed line? Two classes.

Pathfinder's images have 32 x 32 pixels, those of Path-X 128 x 128. `pathfinder16` is not published.

The images are Long Range Arena's if the data folder has them, else drawn by their rule.

Source: Linsley et al. 2018; Long Range Arena (Tay et al. 2021), sections 2.2.5 and 2.2.6 (Path-X).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from trainables.data.cache import Writer
from trainables.data.parallel import cores
from trainables.data.task import (
    SPLITS,
    Encoding,
    Progress,
    Remote,
    Scale,
    Signature,
    Source,
    Task,
    long_range_arena,
)
from trainables.errors import BadData
from trainables.settings import Option
from trainables.tasks.pathfinder import archive as pathfinder_archive
from trainables.tasks.pathfinder.rule import CONTOURS
from trainables.tasks.pathfinder.snakes import SnakeJob, generated

_PUBLISHED = 200_000
_HELD_OUT = 10
"""One of so many published images belongs to validation, and as many belong to test."""

_FOLDERS = {32: "lra_release/lra_release/pathfinder32", 128: "lra_release/lra_release/pathfinder128"}
"""The published folder of each side."""

_SEED_OF_THE_SPLIT = 42
_NOTE = "drawn by LRA's rule, not LRA's own images"


class Pathfinder(Task):
    """Pathfinder's images, read row after row."""

    name = "pathfinder"
    title = "Pathfinder: are two discs joined by a dashed line? (L = 1,024), 2 classes"
    side: ClassVar[int] = 32
    remotes: ClassVar[tuple[Remote, ...]] = (
        long_range_arena(_FOLDERS[32], _FOLDERS[32], unpacked=6_000_000_000, members=800_000),
    )
    published: ClassVar[Mapping[str, Any]] = {"difficulty": "hard", "examples": 160_000, "held_out": 20_000}
    of_generator: ClassVar[frozenset[str]] = frozenset({"examples", "held_out"})
    options: ClassVar[Mapping[str, Option]] = {
        "source": Option(
            "auto",
            "`auto` reads LRA's images if the data folder has them and the sizes are LRA's, else draws.",
            choices=("auto", "published", "generated"),
        ),
        "difficulty": Option("hard", "Length of the dashed lines.", choices=tuple(CONTOURS)),
        "examples": Option(160_000, "Generated training images.", at_least=1),
        "held_out": Option(20_000, "Generated images of validation, and of test.", at_least=1),
        "seed": Option(0, "Seed of the generator.", at_least=0),
    }

    def contour(self, options: Mapping[str, Any]) -> int:
        """Return the number of dashes of each of the two lines."""
        return CONTOURS[options["difficulty"]]

    def find(self, options: Mapping[str, Any], folder: Path) -> Source:
        """Return LRA's images or the generator."""
        published = pathfinder_archive.located(folder, self.side, options["difficulty"])
        whole = all(options[name] == self.published[name] for name in ("examples", "held_out"))
        if options["source"] == "published" or (options["source"] == "auto" and whole and published):
            return self._published(published, options["difficulty"])
        sizes = f"{options['examples']:,}/{options['held_out']:,}/{options['held_out']:,}"
        return Source(
            f"Pathfinder ({options['difficulty']}) drawn by LRA's rule (seed {options['seed']}), "
            f"{sizes} images of {self.side} x {self.side}",
            comparable=False,
            note=f"{_NOTE}: accuracy does not compare with the papers'",
        )

    def _published(self, published: Path | None, difficulty: str) -> Source:
        name = f"pathfinder{self.side}/{pathfinder_archive.FOLDERS[difficulty]}"
        if published is None:
            remedy = f"Fetch it (`data fetch {self.name}`), or set `data: {{source: generated}}`."
            raise BadData(
                name, "must be a folder of LRA's images in the data folder", "no such folder", remedy
            )
        pathfinder_archive.metadata(published)
        phrase = f"LRA's Pathfinder images in {name}"
        return Source(phrase, comparable=True, files=(published,), kind="published")

    def outline(self, options: Mapping[str, Any]) -> Signature:
        """Return the signature of images."""
        scale = Scale((127.5,), (1 / 127.5,))
        return Signature("class", 2, None, features=1, length=self.side**2, scale=scale)

    def encode(self, options: Mapping[str, Any], source: Source, out: Writer, progress: Progress) -> Encoding:
        """Write pixels 0 to 255, scaled to [-1, 1] by the signature."""
        if source.kind == "published":
            targets, note = self._read(source.files[0], out, progress)
        else:
            targets, note = self._draw(options, out, progress), ""
        for split, labels in targets.items():
            out.put(f"{split}.targets", labels)
            out.put(f"{split}.lengths", np.full(len(labels), self.side**2, np.int32))
        return Encoding(self.outline(options), note, comparable=not note)

    def _read(self, folder: Path, out: Writer, progress: Progress) -> tuple[dict[str, np.ndarray], str]:
        rows = pathfinder_archive.rows(folder, pathfinder_archive.metadata(folder))
        order = np.random.default_rng(_SEED_OF_THE_SPLIT).permutation(len(rows))
        held_out = max(len(rows) // _HELD_OUT, 1)
        sizes = (len(rows) - 2 * held_out, held_out, held_out)
        parts = np.split(order, np.cumsum(sizes[:-1]))
        for split, part in zip(SPLITS, parts, strict=True):
            inputs = self._inputs(out, split, len(part))
            images = pathfinder_archive.images([rows[index] for index in part.tolist()], self.side, progress)
            for row, image in enumerate(images):
                inputs[row, :, 0] = image.ravel()
        labels = np.array([row.label for row in rows], np.int32)
        published = _PUBLISHED - (folder.name == pathfinder_archive.EMPTY.parts[0])
        note = (
            "" if len(rows) in {published, _PUBLISHED} else f"{len(rows):,} images instead of {published:,}"
        )
        return {split: labels[part] for split, part in zip(SPLITS, parts, strict=True)}, note

    def _draw(self, options: Mapping[str, Any], out: Writer, progress: Progress) -> dict[str, np.ndarray]:
        sizes = (options["examples"], options["held_out"], options["held_out"])
        inputs = [self._inputs(out, split, size) for split, size in zip(SPLITS, sizes, strict=True)]
        labels = [np.zeros(size, np.int32) for size in sizes]
        work = SnakeJob(self.side, self.contour(options), options["seed"], sum(sizes))
        done = 0
        for images, classes in generated(work, cores()):
            _spread(inputs, done, images[:, :, None])
            _spread(labels, done, classes)
            done += len(images)
            progress("drawing Pathfinder images", done, sum(sizes))
        return dict(zip(SPLITS, labels, strict=True))

    def _inputs(self, out: Writer, split: str, number: int) -> np.ndarray:
        return out.array(f"{split}.inputs", (number, self.side**2, 1), np.uint8)


class Pathfinder16(Pathfinder):
    """Pathfinder's rule on small images: short lines, no distractors."""

    name = "pathfinder16"
    title = "Pathfinder on 16 x 16 pixels (L = 256), 2 classes"
    side: ClassVar[int] = 16
    remotes: ClassVar[tuple[Remote, ...]] = ()
    published: ClassVar[Mapping[str, Any]] = {}
    options: ClassVar[Mapping[str, Option]] = {
        "dashes": Option(4, "Dashes of each of the two lines.", choices=(3, 4, 5, 6)),
        "examples": Option(100_000, "Training images.", at_least=1),
        "held_out": Option(5_000, "Images of validation, and of test.", at_least=1),
        "seed": Option(0, "Seed of the generator.", at_least=0),
    }

    def contour(self, options: Mapping[str, Any]) -> int:
        """Return the number of dashes of each of the two lines."""
        return int(options["dashes"])

    def find(self, options: Mapping[str, Any], folder: Path) -> Source:
        """Return the generator: no images of this size are published."""
        sizes = f"{options['examples']:,}/{options['held_out']:,}/{options['held_out']:,}"
        return Source(
            f"Pathfinder with lines of {options['dashes']} dashes (seed {options['seed']}), "
            f"{sizes} images of 16 x 16",
            comparable=False,
            note="no published task: shorter lines on smaller images, without distractors",
        )


class PathX(Pathfinder):
    """Pathfinder's images at sixteen times the length."""

    name = "pathx"
    title = "Path-X: Pathfinder on 128 x 128 pixels (L = 16,384), 2 classes"
    side: ClassVar[int] = 128
    remotes: ClassVar[tuple[Remote, ...]] = (
        long_range_arena(_FOLDERS[128], _FOLDERS[128], unpacked=16_000_000_000, members=800_000),
    )


def _spread(arrays: Sequence[np.ndarray], start: int, rows: np.ndarray) -> None:
    """Write rows into arrays that follow one another, from row `start` on."""
    for array, first in zip(arrays, _starts(arrays), strict=True):
        low, high = max(start, first), min(start + len(rows), first + len(array))
        if low < high:
            array[low - first : high - first] = rows[low - start : high - start]


def _starts(arrays: Sequence[np.ndarray]) -> Iterator[int]:
    start = 0
    for array in arrays:
        yield start
        start += len(array)
