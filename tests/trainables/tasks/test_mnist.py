"""Sequential MNIST: the real files, files made to the format, and files that are not in it."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.data import shared_file
from tests.published import idx, mnist
from trainables.errors import BadData, Refusal
from trainables.tasks.mnist import PermutedMnist, SequentialMnist

SMNIST, PSMNIST = SequentialMnist(), PermutedMnist()


@pytest.fixture
def real(tmp_path: Path) -> Path:
    """Return a data folder with the published MNIST."""
    (tmp_path / "mnist").symlink_to(shared_file("mnist/train-images-idx3-ubyte.gz").parent)
    return tmp_path


@pytest.mark.slow
def test_the_published_files_are_read_whole(real: Path) -> None:
    data = SMNIST.load({}, real)
    assert (len(data.train), len(data.validation), len(data.test)) == (54_000, 6000, 10_000)
    assert data.comparable
    # The classes of the test set are known, and the mean of the training pixels is 0.1307.
    assert np.bincount(data.test.targets).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert data.chance["test"] == pytest.approx(0.1135)
    shift, factor = data.signature.scale
    pixels = np.concatenate([data.train.inputs, data.validation.inputs]).mean()
    assert (pixels - shift[0]) * factor[0] == pytest.approx(0.1307, abs=1e-4)
    # The first digit of the test set is a 7: its top bar is bright, its lower left corner is not.
    first = np.array(data.test.inputs[0]).reshape(28, 28)
    assert data.test.targets[0] == 7
    assert first[8, 8:20].min() > 0
    assert not first[20:, :10].any()


@pytest.mark.parametrize("name", PermutedMnist.options["permutation"].choices or ())
def test_a_permutation_reads_every_pixel_once(tmp_path: Path, name: str) -> None:
    mnist(tmp_path)
    plain, permuted = SMNIST.load({}, tmp_path), PSMNIST.load({"permutation": name}, tmp_path)
    places = PSMNIST.pixel_order({"permutation": name})
    assert sorted(places.tolist()) == list(range(784))
    assert places.tolist() != list(range(784))
    assert (permuted.train.inputs == np.array(plain.train.inputs)[:, places]).all()
    assert name in permuted.source


def test_permutations_are_the_named_ones() -> None:
    places = PSMNIST.pixel_order({"permutation": "bit-reversal"})
    assert places[:4].tolist() == [0, 512, 256, 768]
    expected = np.random.RandomState(92916).permutation(784)
    assert (PSMNIST.pixel_order({"permutation": "seed-92916"}) == expected).all()


def test_packed_and_plain_files_are_one(tmp_path: Path) -> None:
    inner = mnist(tmp_path)
    digest = SMNIST.load({}, tmp_path).digest
    for path in list(inner.iterdir()):
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    data = SMNIST.load({}, tmp_path)
    assert data.digest == digest
    assert not data.comparable
    assert "40 + 20 images instead of" in data.note


LABELS, IMAGES = "train-labels-idx1-ubyte", "train-images-idx3-ubyte"


def labelled(inner: Path, labels: np.ndarray) -> None:
    idx(inner / LABELS, labels)


@pytest.mark.parametrize(
    ("damage", "must"),
    [
        (lambda inner: (inner / LABELS).unlink(), r"must be MNIST's idx file \(got no such file\)"),
        (lambda inner: (inner / LABELS).write_bytes(b""), "must start as an idx file"),
        (
            lambda inner: (inner / LABELS).write_bytes(b"\0\0\x0d\1\0\0\0\1\0\0\0\0"),
            "must start as an idx file",
        ),
        (lambda inner: (inner / LABELS).write_bytes(b"\0\0\x08\1\0\0"), "must have a complete header"),
        (lambda inner: labelled(inner, np.arange(39) % 10), "one label for each of the 40 images"),
        (lambda inner: labelled(inner, np.arange(40)), r"row 10 must hold labels 0 to 9 \(got 10\)"),
        (lambda inner: labelled(inner, np.full(40, 3)), r"must hold several classes \(got only 3\)"),
        (lambda inner: idx(inner / IMAGES, np.zeros((40, 32, 32))), "images of 28 x 28 pixels"),
        (
            lambda inner: (idx(inner / IMAGES, np.zeros((0, 28, 28))), labelled(inner, np.zeros(0))),
            "got zero rows",
        ),
        (
            lambda inner: (inner / IMAGES).write_bytes((inner / IMAGES).read_bytes()[:-5]),
            r"must hold the 31,360 bytes its header declares \(got 31,355\)",
        ),
        (
            lambda inner: (inner / IMAGES).write_bytes((inner / IMAGES).read_bytes() + b"!"),
            r"must hold the 31,360 bytes its header declares \(got more\)",
        ),
        (
            lambda inner: (
                (inner / f"{IMAGES}.gz").write_bytes(gzip.compress((inner / IMAGES).read_bytes())[:-2000]),
                (inner / IMAGES).unlink(),
            ),
            "must be a complete gzip file",
        ),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, damage: Callable[[Path], object], must: str) -> None:
    damage(mnist(tmp_path))
    with pytest.raises(BadData, match=must) as refused:
        SMNIST.load({}, tmp_path)
    assert str(tmp_path) in str(refused.value)
    assert refused.value.remedy


def test_a_validation_share_that_leaves_nothing_is_refused(tmp_path: Path) -> None:
    mnist(tmp_path)
    with pytest.raises(Refusal, match="validation_share must leave examples for training and for validation"):
        SMNIST.load({"validation_share": 1.0}, tmp_path)
