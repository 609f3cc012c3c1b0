"""Replays of a recorded sweep and of tables of published curves."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import pytest

from orchestrator.api.local_sweep import Sweep
from orchestrator.api.replays import (
    ALTERNATIVES,
    LONGEST_LINE,
    read_alternative,
    read_table,
    replay_curves,
    replay_sweep,
    write_page,
)
from orchestrator.errors import BadInput
from tests import sweeps


def test_each_alternative_is_replayed_beside_the_recorded_scheduler(tmp_path: Path) -> None:
    sweeps.filled(tmp_path / "mlruns")
    report = replay_sweep(Sweep.find(sweeps.SWEEP_ID, root=tmp_path / "mlruns"), workers=(2, 4))
    assert {(row.scheduler, row.workers) for row in report.rows} == {
        (name, workers) for name in ("recorded", *ALTERNATIVES) for workers in (2, 4)
    }
    costs = [row.cost for row in report.rows]
    assert costs == sorted(costs)
    assert all(low <= high <= 1 for low, high in costs)


def test_a_table_of_objects_and_one_of_pairs_are_read(tmp_path: Path) -> None:
    """A list that ends before the whole length, and a value that is not finite, are failures."""
    objects = [
        {"log": [{"top": 0.1}, {"top": 0.2}], "epochs": 2},
        {"log": [{"top": 0.1}], "epochs": 2},
        {"log": [], "epochs": 2},
    ]
    pairs = [
        {"curves": {"own": [[10, 0.1], [40, 0.3]]}},
        {"curves": {"own": [[10, 0.1], [40, float("nan")]]}},
    ]
    (tmp_path / "objects.jsonl").write_text("\n".join(map(json.dumps, objects)))
    with lzma.open(tmp_path / "pairs.jsonl.xz", "wt") as file:
        file.write("\n".join(map(json.dumps, pairs)))
    read = read_table(tmp_path / "objects.jsonl", "log.top", "epochs")
    assert [(list(each.steps), each.ending) for each in read] == [
        ([500, 1000], "COMPLETE"),
        ([500], "FAILED"),
        ([], "FAILED"),
    ]
    read = read_table(tmp_path / "pairs.jsonl.xz", "curves.own")
    assert [(list(each.steps), each.ending) for each in read] == [
        ([250, 1000], "COMPLETE"),
        ([250], "FAILED"),
    ]


def test_a_table_without_the_field_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "table.jsonl").write_text('{"curve": [[1, 0.5]]}\n{"curves": []}\n')
    with pytest.raises(BadInput, match=r"table.jsonl:2"):
        replay_curves(tmp_path / "table.jsonl", "curve")


def test_draws_from_a_table_are_repeatable(tmp_path: Path) -> None:
    rows = [{"curve": [[step, number * step / 1000] for step in range(1, 11)]} for number in range(20)]
    (tmp_path / "table.jsonl").write_text("\n".join(map(json.dumps, rows)))
    reports = [
        replay_curves(tmp_path / "table.jsonl", "curve", named=("asha:mode=promote",), trials=8, draws=5)
        for _ in range(2)
    ]
    assert reports[0] == reports[1]
    (row,) = reports[0].rows
    assert row.regret == 0, "the curves do not cross"
    assert row.unfinished == 0
    write_page(reports[0], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "Cost against regret" in page
    assert "asha:mode=promote" in page


def test_a_page_without_any_complete_trial_is_refused(tmp_path: Path) -> None:
    (tmp_path / "table.jsonl").write_text('{"curve": [[1, 0.5]], "length": 2}\n')
    report = replay_curves(tmp_path / "table.jsonl", "curve", "length", draws=1)
    with pytest.raises(BadInput, match="scheduler: none"):
        write_page(report, tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("asah", "name a scheduler"),
        ("asha:reduction=1", "must be above 1"),
        ("pbt:mutations=[x]", "must not change the hyperparameters"),
    ],
)
def test_a_wrong_alternative_is_refused(text: str, part: str) -> None:
    with pytest.raises(BadInput, match=part):
        read_alternative(text)


def test_an_alternative_has_the_options_of_a_file() -> None:
    scheduler = read_alternative("asha:mode=promote,reduction=3")
    assert scheduler.name == "asha"
    given = {name: value for name, value in scheduler.options.items() if value is not None}
    assert given == {"mode": "promote", "reduction": 3.0, "grace": 0.1, "keep": 3}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "does not exist"),
        (b"", "has no learning curve"),
        (b"\n", "table.jsonl:1: must be JSON"),
        (b'{"curve": [[1, 0.5]]}\n{"curve": [[1, 0', "table.jsonl:2: must be JSON"),
        (b"\xff\xfe{}", "must be UTF-8 text"),
        (b'{"curve": [[0, 0.5]]}', "table.jsonl:1: must have a list of reports"),
        (b'{"curve": [[NaN, 0.5]]}', "table.jsonl:1: must have a list of reports"),
        (b'{"curve": [[-5, 0.5]]}', "table.jsonl:1: must have a list of reports"),
        (b'{"curve": [[2, 0.5], [1, 0.6]]}', "table.jsonl:1: must have a list of reports"),
        (b'{"curve": {"a": 1}}', "table.jsonl:1: must have a list of reports"),
        (b"[" * 100_000, "table.jsonl:1: must be JSON"),
    ],
)
def test_a_table_that_cannot_be_read_is_refused(content: bytes | None, message: str, tmp_path: Path) -> None:
    file = tmp_path / "table.jsonl"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(BadInput, match=message):
        replay_curves(file, "curve", draws=1)


def test_a_damaged_archive_and_an_endless_line_are_refused(tmp_path: Path) -> None:
    """An archive of a few kilobytes can hold gigabytes."""
    (tmp_path / "damaged.jsonl.xz").write_bytes(b"no archive")
    with pytest.raises(BadInput, match=r"damaged.jsonl.xz cannot be read"):
        read_table(tmp_path / "damaged.jsonl.xz", "curve")
    with lzma.open(tmp_path / "bomb.jsonl.xz", "wb") as file:
        file.write(b" " * (LONGEST_LINE + 2))
    with pytest.raises(BadInput, match=r"bomb.jsonl.xz:1: must be shorter"):
        read_table(tmp_path / "bomb.jsonl.xz", "curve")
