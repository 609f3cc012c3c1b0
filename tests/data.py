"""Real data in its published formats; tests that use it are skipped where it is missing."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

_BESIDE_THE_REPOSITORY = Path(__file__).parents[2] / "shared" / "data"


def shared_file(name: str) -> Path:
    """Return the path of a real data file, such as `mnist/train-labels-idx1-ubyte.gz`, or skip the test.

    Its folder is SWEEP_TEST_DATA, or `../shared/data` beside the repository if that is not set.
    """
    path = Path(os.environ.get("SWEEP_TEST_DATA", _BESIDE_THE_REPOSITORY)) / name
    if not path.exists():
        pytest.skip(f"{path} is missing: real data is optional, SWEEP_TEST_DATA names its folder")
    return path


def cifar_subset(folder: Path) -> Path:
    """Unpack the first 1,000 images of each original Python batch of CIFAR-10; return the data folder."""
    with tarfile.open(shared_file("cifar10/cifar-10-python.subset-1000-per-batch.tar.gz")) as members:
        members.extractall(folder, filter="data")
    return folder
