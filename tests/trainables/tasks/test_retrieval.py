"""Retrieval: AAN pairs in their published format, and the embedded passages that replace them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainables.data.task import END, PAD, UNKNOWN
from trainables.errors import BadData, Refusal
from trainables.tasks import pydoc_passages
from trainables.tasks.pydoc_passages import Pairs, drawn
from trainables.tasks.retrieval import Retrieval

TASK = Retrieval()
SIZES = {"train": 2000, "validation": 400, "test": 400}
FILES = ("new_aan_pairs.train.tsv", "new_aan_pairs.eval.tsv", "new_aan_pairs.test.tsv")
ROWS = ['1.0\tP05-1\tP06-1\tneural "nets\tdeep nets', "0.0\tP05-1\tW01-2\tneural nets\tparsing"]


def aan(folder: Path, rows: list[str], *, test: list[str] | None = None) -> Path:
    """Write the three published files; return the training file."""
    inner = folder / "lra_release" / "lra_release" / "tsv_data"
    inner.mkdir(parents=True)
    for name in FILES:
        lines = test if test is not None and "test" in name else rows
        (inner / name).write_bytes("".join(f"{line}\n" for line in lines).encode())
    return inner / FILES[0]


@pytest.fixture(scope="module")
def pairs() -> dict[str, Pairs]:
    return drawn(255, SIZES, seed=0)


def test_passages_of_the_splits_are_disjoint(pairs: dict[str, Pairs]) -> None:
    passages = {split: {text for pair in pairs[split].texts for text in pair} for split in SIZES}
    assert all(len(text) == 255 for texts in passages.values() for text in texts)
    assert not passages["train"] & passages["validation"]
    assert not passages["train"] & passages["test"]
    assert not passages["validation"] & passages["test"]


def test_pairs_are_distinct_balanced_and_of_two_passages(pairs: dict[str, Pairs]) -> None:
    for split, size in SIZES.items():
        assert len(pairs[split].texts) == size
        assert pairs[split].same.sum() == size // 2
        assert all(first != second for first, second in pairs[split].texts)
        assert len({frozenset(pair) for pair in pairs[split].texts}) == size


def test_no_topic_gives_the_answer_away(pairs: dict[str, Pairs]) -> None:
    """Pairs of one topic come from one topic, and each topic is as frequent in both classes."""
    topic_of = {
        passage: topic for topic, passages in enumerate(pydoc_passages._passages(255)) for passage in passages
    }
    for split in SIZES:
        counts: dict[int, Counter[int]] = {0: Counter(), 1: Counter()}
        for (first, second), same in zip(pairs[split].texts, pairs[split].same.tolist(), strict=True):
            assert (topic_of[first] == topic_of[second]) == bool(same)
            counts[same].update((topic_of[first], topic_of[second]))
        assert counts[0] == counts[1]
        assert len(counts[0]) >= 8


def test_pairs_follow_the_seed() -> None:
    sizes = {"train": 100, "validation": 50, "test": 50}
    first, again, other = (drawn(100, sizes, seed) for seed in (1, 1, 2))
    assert first["train"].texts == again["train"].texts
    assert first["train"].texts != other["train"].texts


def test_more_pairs_than_exist_are_refused() -> None:
    with pytest.raises(Refusal, match="the validation passages must have that many distinct pairs"):
        drawn(255, {"train": 10, "validation": 10_000, "test": 10}, seed=0)


@pytest.mark.parametrize("size", [2, 6])
def test_pairs_of_one_topic_alone_are_refused(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic with more than half of the unlike pairs would have to be its own partner."""
    topics = [[f"{topic} {number}" for number in range(60)] for topic in "ab"]
    monkeypatch.setattr(pydoc_passages, "_passages", lambda length: topics)
    assert len(drawn(255, {"train": 4, "validation": 4, "test": 4}, seed=0)["train"].texts) == 4
    with pytest.raises(Refusal, match="no topic of the validation passages may have more than half"):
        drawn(255, {"train": 4, "validation": size, "test": 4}, seed=0)


def test_the_embedded_source_is_loud(tmp_path: Path) -> None:
    data = TASK.load({"length": 64, "pairs": 200, "held_out": 40}, tmp_path)
    assert "documentation of Python" in data.source
    assert not data.comparable
    assert "does not compare with the paper's" in data.note
    assert data.signature.towers == 2
    assert data.train.inputs.shape == (200, 2, 64)
    assert (data.train.inputs[:, :, -1] == END).all()
    assert (data.train.lengths == 64).all()
    assert data.chance == {"validation": 0.5, "test": 0.5}


def test_aan_pairs_are_read_where_they_are(tmp_path: Path) -> None:
    aan(tmp_path, ROWS)
    data = TASK.load({"length": 16}, tmp_path)
    assert TASK.check({}, tmp_path).comparable
    assert not data.comparable
    assert "length 16 instead of 4,000; 2 train examples instead of 147,086" in data.note
    assert data.train.targets.tolist() == [1, 0]
    assert data.train.inputs.shape == (2, 2, 16)
    assert data.train.lengths.tolist() == [[13, 10], [12, 8]]
    assert data.train.inputs[0, 0, 12] == END
    assert "Python" in TASK.check({"source": "pydoc"}, tmp_path).phrase


def test_aan_texts_are_padded_and_unquoted(tmp_path: Path) -> None:
    """Quotes are characters; a character that training lacks is unknown."""
    aan(tmp_path, ['1\ta\tb\tx"x\tyy', "0\ta\tb\tx\ty"], test=["0\ta\tb\tzx\ty", "1\ta\tb\tx\ty"])
    data = TASK.load({"length": 16}, tmp_path)
    x, quote = int(data.train.inputs[0, 0, 0]), int(data.train.inputs[0, 0, 1])
    assert quote not in (PAD, UNKNOWN, END, x)
    assert data.train.lengths.tolist() == [[4, 3], [2, 2]]
    assert data.train.inputs[1, 0].tolist() == [x, END, *[PAD] * 14]
    assert data.test.inputs[0, 0, :3].tolist() == [UNKNOWN, x, END]
    assert data.signature.vocabulary == 6


@pytest.mark.parametrize(
    ("row", "must"),
    [
        ("1\ta\tb\ttext", r"must have 5 fields: label, id, id, text, text \(got 4\)"),
        ("1\ta\tb\ttext\tmore\tmore", "got 6"),
        ("2\ta\tb\ttext\tmore", r"must start with the label 0 or 1 \(got '2'\)"),
        ("1\ta\tb\t\tmore", r"must have two texts \(got an empty one\)"),
        ("", "got 1"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, row: str, must: str) -> None:
    path = aan(tmp_path, [*ROWS, row])
    with pytest.raises(BadData, match=must) as refused:
        TASK.load({}, tmp_path)
    assert str(refused.value).startswith((f"{path}:3: ", f"{path.parent / FILES[1]}:3: "))


def test_bad_files_are_refused(tmp_path: Path) -> None:
    path = aan(tmp_path, [ROWS[0]])
    with pytest.raises(BadData, match=r"must have both classes \(got only 1\)"):
        TASK.load({}, tmp_path)
    path.write_bytes(b"1\ta\tb\t\xff\xfe\tmore\n")
    with pytest.raises(BadData, match="must be UTF-8"):
        TASK.check({}, tmp_path)
    path.write_text("")
    with pytest.raises(BadData, match="zero rows"):
        TASK.check({}, tmp_path)
    path.unlink()
    with pytest.raises(BadData, match=r"data fetch retrieval.*source: pydoc"):
        TASK.check({}, tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lenght": 1}, "Did you mean length"),
        ({"length": "long"}, "must be a value of type int"),
        ({"length": True}, "must be a value of type int"),
        ({"length": 2}, "must be at least 16"),
        ({"source": "anna"}, "must be one of auto, aan, pydoc"),
        ({"pairs": 31}, "must be even"),
        ({"pairs": 10**30}, "must be at most 100000000"),
    ],
)
def test_bad_options_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(Refusal, match=message):
        TASK.check(options, tmp_path)


def test_the_embedded_pairs_are_learnable(tmp_path: Path) -> None:
    """A linear model on products of letter frequencies beats chance on validation (it gets 63 %)."""
    data = TASK.load({"length": 256, "pairs": 6000}, tmp_path)

    def frequencies(inputs: np.ndarray) -> np.ndarray:
        return np.sqrt([(inputs == token).mean(axis=2) for token in range(3, 70)]).transpose(1, 2, 0)

    train = frequencies(data.train.inputs)
    mean, deviation = train.mean((0, 1)), train.std((0, 1)) + 1e-6

    def features(values: np.ndarray) -> np.ndarray:
        z = np.clip((values - mean) / deviation, -3, 3)
        return np.concatenate([z[:, 0] * z[:, 1], np.abs(z[:, 0] - z[:, 1])], axis=1)

    x, y = features(train), data.train.targets * 2.0 - 1
    weights = np.linalg.solve(x.T @ x + 100 * np.eye(x.shape[1]), x.T @ y)
    answers = features(frequencies(data.validation.inputs)) @ weights
    guess = answers > np.median(features(train) @ weights)
    assert (guess == data.validation.targets).mean() > 0.58
