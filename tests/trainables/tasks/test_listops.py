"""ListOps: the evaluator on published values, the generator on the published rule, LRA's own files."""

from __future__ import annotations

import gzip
import tarfile
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.data import shared_file
from trainables.data.task import END
from trainables.errors import BadData, Refusal
from trainables.tasks.listops import ListOps, parsed
from trainables.tasks.listops_rule import (
    CLOSE,
    CLOSE_TOKEN,
    FIRST_DIGIT,
    FIRST_OPERATOR,
    OPERATORS,
    Expressions,
    Rule,
    generated,
)

TASK = ListOps()
SMALL: dict[str, Any] = {"length": 64, "min_length": 8, "max_length": 60, "examples": 300, "held_out": 50}
HEADER = "Source\tTarget"


def written(tokens: np.ndarray) -> str:
    """Return tokens as text."""
    words = {FIRST_DIGIT + digit: str(digit) for digit in range(10)}
    words |= {FIRST_OPERATOR + code: operator for code, operator in enumerate(OPERATORS)}
    words[CLOSE_TOKEN] = CLOSE
    return " ".join(words[token] for token in tokens.tolist())


def some(rule: Rule, number: int, processes: int = 1) -> Expressions:
    """Return the first expressions of a rule."""
    batches = generated(rule, processes)
    taken: list[Expressions] = []
    while sum(len(batch.lengths) for batch in taken) < number:
        taken.append(next(batches))
    batches.close()
    parts = ((batch.tokens, batch.lengths, batch.values) for batch in taken)
    return Expressions(*(np.concatenate(part)[:number] for part in zip(*parts, strict=True)))


def test_the_evaluator_agrees_with_every_published_value() -> None:
    path = shared_file("listops/test_d20s.tsv.gz")
    with gzip.open(path, "rt") as file:
        rows = [line.rstrip("\n").split("\t") for line in file]
    assert len(rows) == 10_000
    assert sum(parsed(expression)[1] == int(value) for value, expression in rows) == 10_000


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("7", 7),
        ("[MAX 2 9 [MIN 4 7 ] 0 ]", 9),
        ("( ( ( [SM 6 ) 5 ) ] )", 1),
        ("[MED 1 2 ]", 1),
        ("[MED 9 0 4 X", 4),
        ("[MED 8 1 4 5 ]", 4),
    ],
)
def test_values_by_hand(expression: str, value: int) -> None:
    assert parsed(expression)[1] == value


@pytest.mark.parametrize("expression", ["", "[MAX ]", "[MAX 1 2", "1 ]", "1 2", "[FIRST 1 2 ]", "10"])
def test_other_text_has_no_value(expression: str) -> None:
    with pytest.raises(ValueError):
        parsed(expression)


def test_generated_values_are_what_the_evaluator_says() -> None:
    """The vectorised values against the stack machine, on the lengths and the depths published."""
    expressions = some(Rule(seed=3, min_length=500, max_length=2000), 400)
    for tokens, length, value in zip(
        expressions.tokens, expressions.lengths, expressions.values, strict=True
    ):
        assert parsed(written(tokens[:length]))[1] == value
        assert not tokens[length:].any()


def depth_and_children(tokens: np.ndarray) -> tuple[int, list[int], list[int]]:
    """Return the greatest depth of a node, the numbers of children, and the depths of the operators."""
    children, counts, depths, deepest = [0], [], [], 0
    for token in tokens.tolist():
        if token == CLOSE_TOKEN:
            counts.append(children.pop())
            continue
        deepest = max(deepest, len(children))
        children[-1] += 1
        if token >= FIRST_OPERATOR:
            depths.append(len(children))
            children.append(0)
    return deepest, counts, depths


@pytest.mark.slow
def test_statistics_of_the_published_rule() -> None:
    """Lengths, labels, operators and depths as an independent simulation of the rule gives."""
    expressions = some(Rule(seed=0, min_length=500, max_length=2000), 6000)
    assert expressions.lengths.min() > 500
    assert expressions.lengths.max() < 2000
    # Three standard errors: of a mean (deviation 400), of quantiles, of rates.
    assert abs(expressions.lengths.mean() - 1036) < 16
    assert abs(np.median(expressions.lengths) - 956) < 24
    assert abs(np.percentile(expressions.lengths, 95) - 1805) < 24
    rates = np.bincount(expressions.values, minlength=10) / 6000
    assert abs(rates[0] - 0.168) < 0.015
    assert abs(rates[9] - 0.169) < 0.015
    assert (rates[1:9] > 0.06).all()
    assert (rates[1:9] < 0.10).all()
    tokens = expressions.tokens
    operators = np.bincount(tokens[tokens >= FIRST_OPERATOR], minlength=CLOSE_TOKEN + 1)
    share = operators[FIRST_OPERATOR:CLOSE_TOKEN] / operators[CLOSE_TOKEN]
    assert np.abs(share - 0.25).max() < 0.005
    digits = np.bincount(tokens[(tokens >= FIRST_DIGIT) & (tokens < FIRST_OPERATOR)])
    assert np.abs(digits[FIRST_DIGIT:] / digits.sum() - 0.1).max() < 0.002
    shapes = [
        depth_and_children(row[:n]) for row, n in zip(tokens[:200], expressions.lengths[:200], strict=True)
    ]
    assert max(deepest for deepest, _, _ in shapes) == 10
    assert max(max(depths) for _, _, depths in shapes) == 9
    counts = np.bincount([count for _, counts, _ in shapes for count in counts], minlength=11)
    assert not counts[:2].any()
    assert len(counts) == 11
    assert (counts[2:] > 0).all()


def test_the_rate_of_acceptance_is_the_rules() -> None:
    """8.3 % of all trees have a published length; three quarters are single digits."""
    from trainables.tasks.listops_rule import _shapes

    _, lengths = _shapes(np.random.default_rng(0), Rule(0, 500, 2000))
    assert abs(((lengths > 500) & (lengths < 2000)).mean() - 0.083) < 0.01
    assert abs((lengths == 1).mean() - 0.75) < 0.015


@pytest.mark.slow
def test_expressions_do_not_depend_on_the_number_of_processes() -> None:
    rule = Rule(seed=5, min_length=100, max_length=400)
    alone, together = some(rule, 2000), some(rule, 2000, processes=2)
    assert (alone.tokens == together.tokens).all()
    assert (alone.values == together.values).all()
    assert not (alone.tokens == some(Rule(6, 100, 400), 2000).tokens).all()


def test_expressions_are_distinct() -> None:
    expressions = some(Rule(seed=0, min_length=3, max_length=8), 3000)
    assert len({row.tobytes() for row in expressions.tokens}) == 3000


def test_lengths_that_run_out_are_refused() -> None:
    with pytest.raises(Refusal, match="enough expressions"):
        list(islice(generated(Rule(0, 3, 5), 1), 500))


def test_generated_splits_end_with_the_end_token(tmp_path: Path) -> None:
    data = TASK.load(SMALL, tmp_path)
    assert data.train.inputs.shape == (300, 64)
    assert len(data.validation) == len(data.test) == 50
    for split in (data.train, data.validation, data.test):
        last = split.inputs[np.arange(len(split)), split.lengths - 1]
        assert (last == END).all()
        assert split.lengths.min() > 9
        assert split.lengths.max() <= 60
        for row, length, value in zip(split.inputs, split.lengths, split.targets, strict=True):
            assert parsed(written(row[: length - 1]))[1] == value
    assert not data.comparable
    assert "min_length 8 instead of 500" in data.note


def published(folder: Path, rows: list[str], *, header: str = HEADER, end: str = "\n") -> Path:
    """Write LRA's three files with the given rows each; return the training file."""
    inner = folder / "lra_release" / "lra_release" / "listops-1000"
    inner.mkdir(parents=True)
    for name in ("basic_train.tsv", "basic_val.tsv", "basic_test.tsv"):
        (inner / name).write_bytes("".join(line + end for line in (header, *rows)).encode())
    return inner / "basic_train.tsv"


ROWS = ["( ( ( [MAX 3 ) 9 ) ] )\t9", "( ( ( [SM 6 ) 5 ) ] )\t1"]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_published_files_are_read(tmp_path: Path, end: str) -> None:
    published(tmp_path, ROWS, end=end)
    data = TASK.load({}, tmp_path)
    assert TASK.check({}, tmp_path).comparable
    assert not data.comparable
    assert "2 train examples instead of 96,000" in data.note
    assert data.train.inputs.shape == (2, 2048)
    assert data.train.inputs[0, :6].tolist() == [14, 6, 12, 17, END, 0]
    assert data.train.lengths.tolist() == [5, 5]
    assert data.test.targets.tolist() == [9, 1]
    assert data.signature.vocabulary == 18


def test_published_rows_longer_than_the_padded_length_are_cut(tmp_path: Path) -> None:
    row = f"[SM {'1 ' * 20}]\t0"
    published(tmp_path, [row, ROWS[0]])
    data = TASK.load({"source": "published", "length": 10}, tmp_path)
    assert data.train.lengths.tolist() == [10, 5]
    assert data.train.inputs[0, -1] == END


def test_other_lengths_than_published_are_generated_even_beside_the_files(tmp_path: Path) -> None:
    published(tmp_path, ROWS)
    assert "generated" in TASK.check(SMALL, tmp_path).phrase
    assert "LRA's ListOps files" in TASK.check({}, tmp_path).phrase
    assert "LRA's ListOps files" in TASK.check({**SMALL, "source": "published"}, tmp_path).phrase


@pytest.mark.parametrize(
    ("row", "must"),
    [
        ("[MAX 1 2 ]", "an expression TAB its value"),
        ("[MAX 1 2 ]\t3", "must have the value 2"),
        ("[MAX 1 2 ]\tten", "must have the value 2"),
        ("[MAX 1 12 ]\t2", r"must be a ListOps expression \(got unknown token '12'\)"),
        ("[MAX 1 2\t2", "brackets that do not match"),
        ("", "an expression TAB its value"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, row: str, must: str) -> None:
    path = published(tmp_path, [ROWS[0], row])
    with pytest.raises(BadData, match=must) as refused:
        TASK.load({}, tmp_path)
    assert str(refused.value).startswith(f"{path}:3: ")


def test_files_that_are_not_lras_are_refused_by_check(tmp_path: Path) -> None:
    path = published(tmp_path, ROWS, header="Expression\tValue")
    with pytest.raises(BadData, match="header Source TAB Target"):
        TASK.check({}, tmp_path)
    path.unlink()
    with pytest.raises(BadData, match=r"data fetch listops.*source: generated"):
        TASK.check({}, tmp_path)
    published(tmp_path / "empty", [])
    with pytest.raises(BadData, match="zero rows"):
        TASK.load({}, tmp_path / "empty")


def test_the_sample_in_lras_layout_is_read_whole(tmp_path: Path) -> None:
    with tarfile.open(shared_file("listops/nyu_d20s_in_lra_layout.tar.gz")) as archive:
        archive.extractall(tmp_path, filter="data")
    (tmp_path / "lra_layout").rename(tmp_path / "listops-1000")
    data = TASK.load({"source": "published", "length": 1024}, tmp_path)
    assert (len(data.train), len(data.validation), len(data.test)) == (8000, 1000, 1000)
    assert data.train.lengths.max() == 940


@pytest.mark.parametrize(
    ("options", "must"),
    [
        ({"length": 100_000, "examples": 2**32 - 1}, "must be at most 100000000"),
        ({"length": 2**32 - 1}, "must be at most 1048576"),
        ({"length": 100_000, "examples": 10**7}, "may request at most 4,294,967,296 numbers"),
    ],
)
def test_more_than_any_data_set_has_is_refused(tmp_path: Path, options: dict[str, int], must: str) -> None:
    """Hundreds of terabytes are refused in a sentence, before anything is allocated or written."""
    with pytest.raises(Refusal, match=must):
        TASK.load(options, tmp_path)
    assert not (tmp_path / ".cache").exists()


def test_lengths_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"min_length \+ 1 < max_length <= length"):
        TASK.check({"length": 100}, tmp_path)
