"""Image: CIFAR-10 read pixel by pixel, grey (RotRNN, S5, S4) or in colour (LRU); ten classes.

Source: Krizhevsky 2009; Long Range Arena (Tay et al. 2021), section 2.2.4. Validation is held out of the
50,000 by seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from trainables.data import cifar
from trainables.data.cache import Writer
from trainables.data.evaluation_protocol import divided
from trainables.data.task import Encoding, Progress, Remote, Scale, Signature, Source, Task
from trainables.errors import BadData
from trainables.settings import LARGEST_SEED, Option

_LENGTH = 1024
_PUBLISHED_BYTES = 6 * 10_000 * (1 + cifar.IMAGE_BYTES)
_GREY = Scale((122.6,), (1 / 61.0,))
_COLOUR = Scale(
    (0.4914 * 255, 0.4822 * 255, 0.4465 * 255), (1 / (0.247 * 255), 1 / (0.243 * 255), 1 / (0.261 * 255))
)


class Image(Task):
    """CIFAR-10 as sequences of pixels."""

    name = "image"
    title = "Image: CIFAR-10 pixel by pixel (L = 1,024), grey or colour, 10 classes"
    remotes: ClassVar[tuple[Remote, ...]] = (
        Remote(
            url="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            place="cifar-10-batches-bin",
            sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            size=170_052_171,
            inside="cifar-10-batches-bin",
            unpacked=200_000_000,
            members=20,
        ),
    )
    published: ClassVar[Mapping[str, Any]] = {"validation_share": 0.1}
    options: ClassVar[Mapping[str, Option]] = {
        "colour": Option(
            False, "Read three features a pixel (as LRU does), not their luma (as RotRNN, S5 and S4 do)."
        ),
        "validation_share": Option(
            0.1, "Share of the training images held out for validation.", at_least=0.0
        ),
        "seed": Option(42, "Seed of the held-out images.", at_least=0, at_most=LARGEST_SEED),
    }

    def find(self, options: Mapping[str, Any], folder: Path) -> Source:
        """Return the format of CIFAR-10 that the data folder has."""
        paths = cifar.batches(folder)
        if paths is None:
            must = "must be the folder of CIFAR-10, binary or Python version"
            remedy = "Fetch it (`data fetch image`)."
            raise BadData(str(folder / next(iter(cifar.FORMATS))), must, "no such folder", remedy)
        mode = "colour" if options["colour"] else "grey"
        # The two published formats differ in size by a few bytes; a subset is far smaller.
        whole = sum(path.stat().st_size for path in paths) >= _PUBLISHED_BYTES
        return Source(
            f"CIFAR-10 in {paths[0].parent.name}, {mode}",
            comparable=whole,
            note="" if whole else "a subset of CIFAR-10: accuracy does not compare with the papers'",
            files=paths,
            kind=mode,
        )

    def published_rows(self, source: Source) -> tuple[int, int, int] | None:
        """Return the images of the published splits."""
        return 45_000, 5_000, 10_000

    def outline(self, options: Mapping[str, Any]) -> Signature:
        """Return the signature of images in grey or in colour."""
        features, scale = (3, _COLOUR) if options["colour"] else (1, _GREY)
        return Signature("class", cifar.CLASSES, None, features, _LENGTH, scale=scale)

    def encode(self, options: Mapping[str, Any], source: Source, out: Writer, progress: Progress) -> Encoding:
        """Write pixels 0 to 255, standardised by the signature."""
        read = []
        for number, path in enumerate(source.files, 1):
            pixels, labels = cifar.read(path)
            read.append((pixels if options["colour"] else cifar.grey(pixels), labels))
            progress("reading CIFAR-10", number, len(source.files))
        images = np.concatenate([pixels for pixels, _ in read[:-1]])
        labels = np.concatenate([classes for _, classes in read[:-1]])
        if len(np.unique(labels)) == 1:
            where = str(source.files[0].parent)
            raise BadData(where, "must hold several classes", f"only {labels[0]}", "Fetch it again.")
        train, validation = divided(self.name, len(images), options["validation_share"], options["seed"])
        parts = {
            "train": (images[train], labels[train]),
            "validation": (images[validation], labels[validation]),
            "test": read[-1],
        }
        for split, (pixels, classes) in parts.items():
            out.put(f"{split}.inputs", pixels)
            out.put(f"{split}.lengths", np.full(len(pixels), _LENGTH, np.int32))
            out.put(f"{split}.targets", classes)
        return Encoding(self.outline(options))
