"""Sequential MNIST: a digit read pixel by pixel, row after row or in one fixed, shuffled order; ten classes.

Papers use different shuffled orders, so the name of the order is an option and part of the record:
`seed-92916` is `RandomState(92916).permutation(784)`, `bit-reversal` is the order of S4 and S5. LDStack used
a list of its own.

Source: LeCun et al. 1998; Le et al. 2015 for the sequence and its permutation. Validation is held out of the
60,000 by seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from trainables.data import idx
from trainables.data.cache import Writer
from trainables.data.evaluation_protocol import divided
from trainables.data.task import Encoding, Progress, Remote, Scale, Signature, Source, Task
from trainables.errors import BadData
from trainables.settings import LARGEST_SEED, Option

PIXELS = 784
_PERMUTATION_SEED = 92916
_PERMUTATION_BITS = 10
_CLASSES = 10
_PUBLISHED = (60_000, 10_000)
_FOLDERS = ("mnist", "MNIST/raw")
_FILES = {
    "train-images-idx3-ubyte": (
        9_912_422,
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    ),
    "train-labels-idx1-ubyte": (28_881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
    "t10k-images-idx3-ubyte": (
        1_648_877,
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    ),
    "t10k-labels-idx1-ubyte": (4542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
}
"""Files, with the size and the SHA-256 of their compressed form."""


class SequentialMnist(Task):
    """Digits pixel by pixel, in reading order."""

    name = "smnist"
    title = "Sequential MNIST: digits pixel by pixel (L = 784), 10 classes"
    remotes: ClassVar[tuple[Remote, ...]] = tuple(
        Remote(
            url=f"https://storage.googleapis.com/cvdf-datasets/mnist/{name}.gz",
            place=f"{_FOLDERS[0]}/{name}.gz",
            sha256=sha256,
            size=size,
        )
        for name, (size, sha256) in _FILES.items()
    )
    published: ClassVar[Mapping[str, Any]] = {"validation_share": 0.1}
    options: ClassVar[Mapping[str, Option]] = {
        "validation_share": Option(
            0.1, "Share of the training images held out for validation.", at_least=0.0
        ),
        "seed": Option(0, "Seed of the held-out images.", at_least=0, at_most=LARGEST_SEED),
    }

    def find(self, options: Mapping[str, Any], folder: Path) -> Source:
        """Return MNIST's four files, after checking their headers."""
        paths = tuple(_located(folder, name) for name in _FILES)
        counts = tuple(_checked(images, labels) for images, labels in (paths[:2], paths[2:]))
        note = (
            "" if counts == _PUBLISHED else f"{counts[0]:,} + {counts[1]:,} images instead of 60,000 + 10,000"
        )
        return Source(
            f"MNIST idx files, {self.order(options)}",
            comparable=not note,
            note=note,
            files=paths,
            kind="idx",
        )

    def order(self, options: Mapping[str, Any]) -> str:
        """Return the order in which pixels are read, in words."""
        return "pixels in reading order"

    def pixel_order(self, options: Mapping[str, Any]) -> np.ndarray:
        """Return the pixel that each step reads (784,)."""
        return np.arange(PIXELS)

    def outline(self, options: Mapping[str, Any]) -> Signature:
        """Return the signature of digits."""
        scale = Scale((0.0,), (1 / 255,))
        return Signature("class", _CLASSES, None, features=1, length=PIXELS, scale=scale)

    def encode(self, options: Mapping[str, Any], source: Source, out: Writer, progress: Progress) -> Encoding:
        """Write pixels 0 to 255, scaled to [0, 1] by the signature."""
        images, labels, test_images, test_labels = (idx.read(path) for path in source.files)
        _refuse_labels(source.files[1], labels)
        _refuse_labels(source.files[3], test_labels)
        train, validation = divided(self.name, len(images), options["validation_share"], options["seed"])
        pixels_read = self.pixel_order(options)
        parts = {
            "train": (images[train], labels[train]),
            "validation": (images[validation], labels[validation]),
            "test": (test_images, test_labels),
        }
        for number, (split, (pixels, classes)) in enumerate(parts.items(), 1):
            out.put(f"{split}.inputs", pixels.reshape(-1, PIXELS)[:, pixels_read, None])
            out.put(f"{split}.lengths", np.full(len(pixels), PIXELS, np.int32))
            out.put(f"{split}.targets", classes.astype(np.int32))
            progress("reading MNIST", number, len(parts))
        return Encoding(self.outline(options))


class PermutedMnist(SequentialMnist):
    """Digits pixel by pixel, in a fixed random order."""

    name = "psmnist"
    title = "Permuted sequential MNIST: pixels in a fixed random order (L = 784), 10 classes"
    options: ClassVar[Mapping[str, Option]] = {
        "permutation": Option("seed-92916", "Order of the pixels.", choices=("seed-92916", "bit-reversal")),
        **SequentialMnist.options,
    }

    def order(self, options: Mapping[str, Any]) -> str:
        """Return the name of the permutation, in words."""
        return f"pixels permuted by {options['permutation']}"

    def pixel_order(self, options: Mapping[str, Any]) -> np.ndarray:
        """Return the pixel that each step reads (784,)."""
        if options["permutation"] == "seed-92916":
            return np.random.RandomState(_PERMUTATION_SEED).permutation(PIXELS)
        bits = _PERMUTATION_BITS
        reversed_bits = [int(f"{step:0{bits}b}"[::-1], 2) for step in range(2**bits)]
        return np.array([pixel for pixel in reversed_bits if pixel < PIXELS])


def _located(folder: Path, name: str) -> Path:
    for inner in _FOLDERS:
        path = idx.located(folder / inner, name)
        if path:
            return path
    where = folder / _FOLDERS[0] / f"{name}.gz"
    raise BadData(str(where), "must be MNIST's idx file", "no such file", "Fetch it (`data fetch smnist`).")


def _checked(images: Path, labels: Path) -> int:
    """Return the number of images that both headers declare."""
    pictures, answers = idx.shape(images), idx.shape(labels)
    if pictures[1:] != (28, 28):
        must = "must hold images of 28 x 28 pixels"
        raise BadData(str(images), must, f"shape {pictures}", "Fetch the file again.")
    if pictures[:1] != answers:
        must = f"must hold one label for each of the {pictures[0]:,} images"
        raise BadData(str(labels), must, f"shape {answers}", "Fetch both files again.")
    if pictures[0] == 0:
        raise BadData(str(images), "must hold images", "zero rows", "Fetch the file again.")
    return pictures[0]


def _refuse_labels(path: Path, labels: np.ndarray) -> None:
    if labels.max() >= _CLASSES:
        row = int(np.argmax(labels >= _CLASSES))
        must = f"must hold labels 0 to {_CLASSES - 1}"
        raise BadData(f"{path}: row {row}", must, str(labels[row]), "Fetch the file again.")
    if len(np.unique(labels)) == 1:
        raise BadData(str(path), "must hold several classes", f"only {labels[0]}", "Fetch the file again.")
