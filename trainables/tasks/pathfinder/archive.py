"""Reads the published Pathfinder of Long Range Arena: PNG images, and text files of metadata named `.npy`.

Source: Long Range Arena's release; a metadata line is image folder, file, index, label, continuity, contour
length, distractor length, paddle length, thickness, margin, number of contrasts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from trainables.data.parallel import cores, in_order
from trainables.data.task import Progress
from trainables.errors import BadData

FOLDERS = {"easy": "curv_baseline", "intermediate": "curv_contour_length_9", "hard": "curv_contour_length_14"}
"""The folder of each difficulty."""

EMPTY = Path("curv_baseline/imgs/0/sample_172.png")
"""The image of the release that is an empty file. Public loaders also leave it out."""

_ROOTS = ("", "lra_release/lra_release", "lra_release")
_FIELDS = 11
_AGAIN = "Unpack the archive again (`data fetch pathfinder`)."
_ROWS_A_CHUNK = 500


@dataclass(frozen=True)
class Row:
    """One line of metadata: its file and line number, its image, its label."""

    where: str
    image: Path
    label: int


def located(folder: Path, side: int, difficulty: str) -> Path | None:
    """Return the folder of a difficulty's images, or None."""
    paths = (folder / root / f"pathfinder{side}" / FOLDERS[difficulty] for root in _ROOTS)
    return next((path for path in paths if path.is_dir()), None)


def metadata(folder: Path) -> tuple[Path, ...]:
    """Return the metadata files in the order of their numbers, after checking the first line.

    Raises:
        BadData: The folder has no metadata, or the first line is not in the published format.
    """
    inner = folder / "metadata"
    paths = sorted(inner.glob("*.npy"), key=lambda path: (len(path.stem), path.stem))
    if not paths:
        raise BadData(str(inner), "must hold metadata files <k>.npy", "", _AGAIN)
    next(_rows(folder, paths[0]), None)
    return tuple(paths)


def rows(folder: Path, paths: tuple[Path, ...]) -> list[Row]:
    """Read all metadata, without the line of the empty image.

    Raises:
        BadData: A line is not in the published format, or the lines do not name images of both classes.
    """
    entries = [row for path in paths for row in _rows(folder, path) if not is_empty(row)]
    labels = {row.label for row in entries}
    if len(labels) < 2:
        got = f"only {labels.pop()}" if labels else "zero rows"
        raise BadData(str(folder / "metadata"), "must hold images of both classes", got, _AGAIN)
    return entries


def is_empty(row: Row) -> bool:
    """Return True for the image that is an empty file in the release, if it is still empty."""
    is_known = row.image.parts[-len(EMPTY.parts) :] == EMPTY.parts
    return is_known and row.image.is_file() and row.image.stat().st_size == 0


def images(entries: list[Row], side: int, progress: Progress) -> Iterator[np.ndarray]:
    """Yield the images (S, S) uint8 in the order of the rows.

    Raises:
        BadData: An image is missing, damaged, or of another size.
    """
    starts = range(0, len(entries), _ROWS_A_CHUNK)
    chunks = ((side, entries[start : start + _ROWS_A_CHUNK]) for start in starts)
    processes = cores() if len(entries) > 10 * _ROWS_A_CHUNK else 1
    done = 0
    for part in in_order(_read, chunks, processes):
        done += len(part)
        progress("reading Pathfinder images", done, len(entries))
        yield from part


def _rows(folder: Path, path: Path) -> Iterator[Row]:
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines, 1):
        where, fields = f"{path}:{number}", line.split()
        if len(fields) != _FIELDS:
            must = f"must be text of {_FIELDS} fields, the folder of the image first"
            raise BadData(where, must, f"{len(fields)} fields", _AGAIN)
        if fields[3] not in ("0", "1"):
            raise BadData(
                where, "must have a label of 0 or 1 as its fourth field", repr(fields[3][:20]), _AGAIN
            )
        yield Row(where, folder / fields[0] / fields[1], int(fields[3]))


def _read(chunk: tuple[int, list[Row]]) -> np.ndarray:
    side, part = chunk
    return np.array([_image(row, side) for row in part])


def _image(row: Row, side: int) -> np.ndarray:
    try:
        with Image.open(row.image) as image:
            pixels = np.asarray(image)
    except (FileNotFoundError, UnidentifiedImageError, OSError, SyntaxError) as error:
        got = "no such file" if isinstance(error, FileNotFoundError) else "an empty or damaged file"
        raise BadData(str(row.image), f"must be the image that {row.where} names", got, _AGAIN) from error
    if pixels.shape != (side, side) or pixels.dtype != np.uint8:
        got = f"shape {pixels.shape}, {pixels.dtype}"
        raise BadData(str(row.image), f"must be a grey image of {side} x {side} pixels", got, _AGAIN)
    return pixels
