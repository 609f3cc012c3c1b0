"""Draw docs/pathfinder.png: samples of the Pathfinder and Path-X generator, for visual inspection.

    python -m benchmarks.pathfinder_picture [FILE]

In each pair of rows, the upper has label 1 (the two discs lie on one dashed line) and the lower label 0. The
first pair is 32 x 32 pixels, enlarged four times; the second is 128 x 128 pixels, at original size.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from PIL import Image

from trainables.tasks.pathfinder.rule import CONTOURS
from trainables.tasks.pathfinder.snakes import Drawing, drawn

COLUMNS = 8
GREY = 96


def panel(drawing: Drawing, times: int) -> np.ndarray:
    """Return one row of each label (2 (S times + 4), COLUMNS (S times + 4)) uint8."""
    rows = []
    for label in (1, 0):
        chosen = drawing.images[drawing.labels == label][:COLUMNS]
        large = chosen.repeat(times, axis=1).repeat(times, axis=2)
        framed = np.pad(large, ((0, 0), (2, 2), (2, 2)), constant_values=GREY)
        rows.append(np.concatenate(framed, axis=1))
    return np.concatenate(rows)


def main() -> None:
    """Write the image file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = Path(__file__).parents[1] / "docs" / "pathfinder.png"
    parser.add_argument("file", type=Path, nargs="?", default=default)
    file = parser.parse_args().file
    small = panel(drawn(np.random.default_rng(0), 32, CONTOURS["hard"], 40), 4)
    large = panel(drawn(np.random.default_rng(0), 128, CONTOURS["hard"], 40), 1)
    whole = Image.fromarray(np.concatenate([small, large]))
    whole.save(file, optimize=True)


if __name__ == "__main__":
    main()
