"""The table of trials: ranks with running and pruned trials, filters, and sort orders by any column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from orchestrator.errors import BadInput
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.people.audit import Asked
from orchestrator.ledger.people.notes import NoteChange, change_note
from orchestrator.ledger.sweeps.records import CurvePoint, TrialRecord
from orchestrator.ledger.sweeps.standing import ValueSoFar
from orchestrator.web.trial_table import TrialTable, columns_of, rows_of
from tests import sweeps
from tests.end_to_end import browser
from tests.end_to_end.page import running
from tests.orchestrator.web.server import Client

SWEEP = f"/api/v1/sweeps/{sweeps.SWEEP_ID}"
METRICS = ["val/accuracy", "val/loss"]


def table(*changes: dict[str, Any], maximize: bool = True) -> TrialTable:
    """Return the table of the eight trials, the first ones with changes."""
    records = sweeps.trials()
    trials = [
        sweeps.trial(one.number, one.state, **change) for one, change in zip(records, changes, strict=False)
    ]
    trials += records[len(changes) :]
    metrics = {one.key: {"val/loss": one.number / 10} for one in trials}
    rows = rows_of(trials, so_far(trials), maximize=maximize, metrics=metrics)
    return TrialTable(rows, columns_of(sweeps.sweep_record().document, trials, METRICS))


def so_far(trials: Sequence[TrialRecord]) -> dict[str, ValueSoFar]:
    """Return the values of the ended trials that have one."""
    return {one.key: ValueSoFar(one.value, one.step) for one in trials if one.value is not None}


def numbers(rows: Sequence[Any]) -> list[int]:
    return [row.trial.number for row in rows]


def ordered(found: TrialTable, sort: str, *, descending: bool = False) -> list[int]:
    return numbers(found.sorted_by(sort, descending=descending).sorted(found.rows))


def test_pruned_trials_have_a_rank_and_failed_ones_have_none() -> None:
    assert ordered(table(), "rank") == [7, 6, 4, 5, 2, 1, 0, 3], "the best first, the failed one last"
    assert ordered(table(maximize=False), "rank")[0] == 0
    assert [row.rank for row in table().rows if row.trial.state == "FAILED"] == [None]


def test_an_unfinished_trial_has_the_rank_of_its_value_so_far() -> None:
    trial = sweeps.trial(8, "RUNNING", value=None, best_step=None)
    trials = [*sweeps.trials(), trial]
    values = {**so_far(trials), trial.key: ValueSoFar(0.9, 40)}
    rows = rows_of(trials, values, maximize=True, metrics={})
    assert (rows[-1].rank, rows[-1].value, rows[-1].best_step) == (1, 0.9, 40)
    worst = rows_of(trials, {**values, trial.key: ValueSoFar(0.9, 40, 0.1)}, maximize=True, metrics={})
    assert worst[-1].rank == len(values), "a feasible trial is better"


def test_the_api_ranks_a_running_trial_by_its_best_checkpoint(client: Client) -> None:
    with running(client, 8) as report:
        report(40, 0.9)
        report(80, 0.7)
        page = client.get(f"{SWEEP.removeprefix('/api/v1')}/trials?sort=rank&limit=1&metric=val/accuracy")
    [row] = page["trials"]
    assert (row["number"], row["so_far"], row["so_far_step"], row["last"]) == (8, 0.9, 40, 0.7)
    assert (row["value"], row["metrics"]) == (None, {"val/accuracy": 0.9})


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("", [0, 1, 2, 3, 4, 5, 6, 7]),
        ("learning_rate < 3e-3", [0, 1]),
        ("learning_rate<=3e-3 and state = pruned", [1]),
        ("number >= 5, state = COMPLETE", [6, 7]),
        ("number = 1 or number = 7 and state = complete", [1, 7]),
        ("val/loss > 0.55", [6, 7]),
        ("theta_init.max = 1.0", [1, 4, 7]),
        ("state != 'complete'", [1, 3, 5]),
        ("value > 0 and params.learning_rate > 7e-3", [7]),
        ("params.unknown = 1", []),
    ],
)
def test_a_filter_leaves_the_trials_that_match(where: str, expected: list[int]) -> None:
    assert numbers(table().matching(where)) == expected


def test_states_are_chosen_beside_a_filter() -> None:
    assert numbers(table().matching("number > 1", ["PRUNED", "FAILED"])) == [3, 5]


@pytest.mark.parametrize(
    ("where", "part"),
    [
        ("learning_rate", "must be at most"),
        ("learning_rate <", "must be at most"),
        ("number < 1 number > 2", "must be at most"),
        ("number < 1 and", "must be at most"),
        ("speed > 2", "must name a column"),
        (" and ".join(["number > 0"] * 21), "must be at most"),
    ],
)
def test_a_filter_that_cannot_be_read_is_refused_with_the_columns(where: str, part: str) -> None:
    with pytest.raises(BadInput, match=part):
        table().matching(where)


def test_trials_are_sorted_by_hyperparameters_and_metrics() -> None:
    assert ordered(table(), "learning_rate", descending=True)[:2] == [7, 6]
    assert ordered(table(), "val/loss")[:2] == [0, 1]
    mixed = table({"params": {"rule": "adamw"}}, {"params": {"rule": None}}, {"params": {"rule": [1, 2]}})
    assert ordered(mixed, "rule")[:2] == [2, 0], "as text, trials without a value last"
    with pytest.raises(BadInput, match="must name a column"):
        table().sorted_by("speed", descending=False)


def test_columns_have_the_scales_of_the_file() -> None:
    found = {column.name: (column.kind, column.scale) for column in table().columns}
    assert found["learning_rate"] == ("parameter", "log")
    assert found["gamma_init.min"] == ("parameter", "linear")
    assert found["val/loss"] == ("metric", "linear")
    named = columns_of({"search": {"rule": {"choice": ["adamw", "lion"]}}}, (), ())
    assert [column.scale for column in named] == ["choice"]


def test_the_api_filters_sorts_and_shows_metrics(reader: Client) -> None:
    query = "where=learning_rate%20%3C%205e-3&sort=rank&metric=val/loss&limit=2"
    page = reader.get(f"{SWEEP.removeprefix('/api/v1')}/trials?{query}")
    assert page["total"] == 4
    assert [(row["number"], row["rank"]) for row in page["trials"]] == [(2, 5), (1, 6)]
    first = page["trials"][0]
    assert first["metrics"] == {"val/loss": pytest.approx(1.25 - first["value"])}
    assert first["so_far"] == first["last"] == first["value"]
    following = reader.get(f"{SWEEP.removeprefix('/api/v1')}/trials?{query}&after={page['next']}")
    assert [row["number"] for row in following["trials"]] == [0, 3]
    refused = reader.send("GET", f"{SWEEP}/trials?where=speed%3E1", "vera")
    assert (refused.status, refused.document["where"]) == (422, "where")


def test_the_api_shows_the_curves_of_named_trials(reader: Client) -> None:
    found = reader.get(f"{SWEEP.removeprefix('/api/v1')}/curves?trial=1&trial=4")
    assert [curve["number"] for curve in found["curves"]] == [4, 1]
    assert (found["total"], found["band"]["trials"]) == (8, 8)
    last = found["curves"][0]
    assert (last["seconds"][-1], last["batch_size"]) == (pytest.approx(0.1 * sweeps.STEPS), 32)
    references = {(each["name"], each["value"]) for each in found["references"]}
    assert references == {("chance", 0.502)}  # the published figure is of another size
    assert reader.get(f"{SWEEP.removeprefix('/api/v1')}/curves?metric=train/loss")["references"] == []


def test_another_choice_of_trials_reads_their_reports_alone(
    reader: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A filter of a large table would otherwise wait for the reports of all trials, after each change."""
    path = f"{SWEEP.removeprefix('/api/v1')}/curves"
    band = reader.get(f"{path}?trial=1")["band"]
    read: list[str] = []
    whole = Ledger.curves

    def curves(self: Ledger, sweep_id: str, metrics: Sequence[str]) -> list[CurvePoint]:
        read.append(sweep_id)
        return whole(self, sweep_id, metrics)

    monkeypatch.setattr(Ledger, "curves", curves)
    found = reader.get(f"{path}?trial=2&trial=99")
    assert ([curve["number"] for curve in found["curves"]], found["band"]) == ([2], band)
    assert read == []


def test_favourites_are_shown_filtered_and_sorted_by(client: Client) -> None:
    path = f"{SWEEP.removeprefix('/api/v1')}/trials"

    def numbers_of(where: str) -> list[int]:
        return [row["number"] for row in client.get(f"{path}?where={where}")["trials"]]

    assert not any(row["favourite"] for row in client.get(path)["trials"])
    for number in (2, 5):
        url = f"{SWEEP}/trials/{number}/note"
        assert client.send("PATCH", url, "ada", body={"favourite": True}).status == 200
    marked = client.get(f"{path}?where=favourite%20%3D%20true")
    assert [row["number"] for row in marked["trials"]] == [2, 5]
    assert all(row["favourite"] for row in marked["trials"])
    assert numbers_of("favourite%20%3D%20true%20and%20state%20%3D%20pruned") == [5]
    first = client.get(f"{path}?sort=favourite&descending=true&limit=2")["trials"]
    assert {row["number"] for row in first} == {2, 5}
    with client.workspace.ledger() as ledger:  # as by the command line, beside the service
        asked = Asked("ada", "note", sweeps.SWEEP_ID, {})
        change_note(ledger, sweeps.SWEEP_ID, marked["trials"][0]["key"], NoteChange(favourite=False), asked)
    browser.until("the other one alone", lambda: numbers_of("favourite%20%3D%20true") == [5])
