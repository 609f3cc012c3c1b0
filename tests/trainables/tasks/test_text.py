"""Text: all labelled IMDB reviews where they are, a tree made to the format, and trees that are not in it."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from random import Random

import pytest

from orchestrator.data.unpacking import unpack
from tests.data import shared_file
from tests.published import imdb
from trainables.data.contract import violations
from trainables.data.task import END, PAD, UNKNOWN
from trainables.errors import BadData
from trainables.tasks.text import Text

TASK = Text()
LABELS = ("neg", "pos")


@pytest.mark.slow
def test_a_sample_of_the_published_reviews_is_read(tmp_path: Path) -> None:
    """One review in fifty is what the archive holds, byte for byte, in test."""
    random, texts = Random(0), dict[str, str]()
    with tarfile.open(shared_file("imdb/aclImdb_v1_labelled.tar.xz"), "r|xz") as archive:
        for member in archive:
            if member.name.endswith(".txt") and random.random() < 0.02:
                content = archive.extractfile(member)
                assert content is not None
                texts[member.name] = content.read().decode()
    for name, text in texts.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    tests = [sorted(name for name in texts if name.startswith(f"aclImdb/test/{label}/")) for label in LABELS]
    negative, positive = map(len, tests)
    assert 450 < negative + positive < 550
    data = TASK.load({}, tmp_path)
    read = len(texts) - negative - positive
    assert (len(data.train) + len(data.validation), len(data.validation)) == (read, round(read / 10))
    assert f"{read:,} + {negative + positive:,} reviews instead of 25,000 + 25,000" in data.note
    assert data.test.targets.tolist() == [0] * negative + [1] * positive
    numbers: dict[str, int] = {}
    for name, row, length in zip(chain(*tests), data.test.inputs, data.test.lengths, strict=True):
        assert length == min(len(texts[name]), 4095) + 1
        assert row[length - 1] == END
        assert (row[length:] == PAD).all()
        for character, token in zip(texts[name][: length - 1], row.tolist(), strict=False):
            assert numbers.setdefault(character, token) == token
    known = [token for token in numbers.values() if token != UNKNOWN]
    assert len(set(known)) == len(known) > 80


@pytest.mark.slow
def test_all_published_reviews_are_read(tmp_path: Path) -> None:
    archive = shared_file("imdb/aclImdb_v1_labelled.tar.xz")
    caps = {"most_bytes": 10**9, "most_members": 60_000}
    unpack(archive, "aclImdb", tmp_path / "aclImdb", lambda *_: None, **caps)
    data = TASK.load({}, tmp_path)
    assert (len(data.train), len(data.validation), len(data.test)) == (22_303, 2478, 25_000)
    assert not data.comparable
    assert "held out of the 25,000 training reviews by seed" in data.note
    assert "219 training reviews that are repeated, or also in test, are left out" in data.note
    rows = [{row.tobytes() for row in split.inputs} for split in (data.train, data.validation, data.test)]
    assert len(set().union(*rows)) == sum(map(len, rows))
    assert data.chance["test"] == 0.5
    # The published counts of characters seen 15 times or more are 129 to 135, special tokens included.
    assert 129 <= (data.signature.vocabulary or 0) <= 135
    assert 0.02 < (data.train.lengths == 4096).mean() < 0.03


def test_held_out_reviews_do_not_compare_with_the_papers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The papers train on all training reviews, of which validation takes some here."""
    imdb(tmp_path)
    monkeypatch.setattr("trainables.tasks.text._PUBLISHED", 24)
    found = TASK.check({}, tmp_path)
    assert not found.comparable
    assert "accuracy does not compare with the papers'" in found.note


def test_reviews_are_characters(tmp_path: Path) -> None:
    root = imdb(tmp_path)
    data = TASK.load({"length": 40}, tmp_path)
    assert (len(data.train), len(data.validation), len(data.test)) == (22, 2, 24)
    assert "24 + 24 reviews instead of 25,000 + 25,000" in data.note
    # Negative reviews come first, in the order of their names.
    texts = [path.read_text() for path in sorted((root / "test" / "neg").iterdir())]
    assert data.test.targets.tolist() == [0] * 12 + [1] * 12
    for text, row, length in zip(texts, data.test.inputs[:12], data.test.lengths[:12], strict=True):
        assert length == min(len(text), 39) + 1
        assert row[length - 1] == END
        assert (row[length:] == PAD).all()
        # One character is one number, and only rare characters are unknown.
        numbers: dict[str, int] = {}
        for character, token in zip(text[: length - 1], row.tolist(), strict=False):
            assert numbers.setdefault(character, token) == token
        known = [token for token in numbers.values() if token != UNKNOWN]
        assert len(set(known)) == len(known) > 10


def test_the_vocabulary_is_of_the_reviews_kept_for_training(tmp_path: Path) -> None:
    """Characters of validation and test alone are unknown, and so are rare ones."""
    root = imdb(tmp_path)
    for path in (root / "test" / "pos").iterdir():
        path.write_text("ZZZZ" * 20)
    (root / "train" / "pos" / "0_9.txt").write_text("QQQQ good")
    data = TASK.load({"length": 64}, tmp_path)
    assert (data.test.inputs[12:, :63] == UNKNOWN).all()
    assert data.signature.vocabulary == data.train.inputs.max() + 1


def test_a_review_is_in_one_split(tmp_path: Path) -> None:
    """Training leaves out repeated reviews and reviews of test."""
    root = imdb(tmp_path)
    tests = sorted((root / "test" / "pos").iterdir())
    trains = sorted((root / "train" / "pos").iterdir())
    trains[0].write_bytes(tests[0].read_bytes())
    trains[1].write_bytes(trains[2].read_bytes())
    data = TASK.load({"length": 128}, tmp_path)
    assert (len(data.train) + len(data.validation), len(data.test)) == (22, 24)
    assert "2 training reviews that are repeated" in data.note
    assert violations(TASK, {"length": 128}, tmp_path) == []


def test_validation_is_not_class_after_class(tmp_path: Path) -> None:
    """A report evaluates the first examples only, so they must be of both classes."""
    imdb(tmp_path)
    targets = TASK.load({"length": 128, "validation_share": 0.8}, tmp_path).validation.targets
    assert len(targets) == 19
    assert 2 <= targets[:10].sum() <= 8


def first(root: Path) -> Path:
    return root / "train" / "neg" / "0_2.txt"


@pytest.mark.parametrize(
    ("damage", "must"),
    [
        (lambda root: first(root).write_text(" \n"), r"0_2.txt must hold a review \(got an empty file\)"),
        (lambda root: first(root).write_bytes(b"caf\xe9 \xff"), "0_2.txt must be UTF-8"),
        (
            lambda root: first(root).rename(root / "train" / "neg" / "0.txt"),
            "must be named <id>_<rating>.txt",
        ),
        (lambda root: first(root).rename(root / "train" / "neg" / "0_2.bak"), "must be named <id>_<rating>"),
        (
            lambda root: first(root).rename(root / "train" / "neg" / "0_8.txt"),
            r"a rating of 1 to 4.* \(got 8\)",
        ),
        (
            lambda root: [path.unlink() for path in (root / "test" / "pos").iterdir()],
            "test/pos .*zero files",
        ),
    ],
)
def test_bad_reviews_are_refused(tmp_path: Path, damage: Callable[[Path], object], must: str) -> None:
    damage(imdb(tmp_path))
    with pytest.raises(BadData, match=must):
        TASK.load({}, tmp_path)


def test_a_tree_without_a_folder_is_refused_by_check(tmp_path: Path) -> None:
    root = imdb(tmp_path)
    for path in (root / "test" / "neg").iterdir():
        path.unlink()
    (root / "test" / "neg").rmdir()
    with pytest.raises(BadData, match=r"test/neg must be a folder of IMDB reviews.*data fetch text"):
        TASK.check({}, tmp_path)
