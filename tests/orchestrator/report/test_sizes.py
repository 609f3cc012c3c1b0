"""The size of each trial's network in summary, report, comparison and CSV."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

from orchestrator.assignment import SIZE
from orchestrator.ledger.sweeps.records import STEP_WORK
from orchestrator.report import comparison, words
from orchestrator.report.answer import notes
from orchestrator.report.comparison import side_by_side
from orchestrator.report.history import History
from orchestrator.report.leaderboard import leaderboard_csv
from orchestrator.report.markdown import markdown
from orchestrator.report.summary import summarise
from tests import sweeps
from trainables.cost import Cost

COST = Cost(14_650, 9_360, 5_200, 128, flops=83_733_130.0, bytes=34_379_296.0)
UNCOUNTED = replace(COST, flops=None, bytes=None)


def _history(*, counted: bool = True) -> History:
    """Return a sweep whose trials report their sizes; the work of the best one's choice may be counted."""
    history = sweeps.history()
    sizes = {f"{SIZE}{name}": float(value) for name, value in UNCOUNTED.document().items()}
    reports = {
        key: [replace(rows[0], metrics={**rows[0].metrics, **sizes}), *rows[1:]]
        for key, rows in history.reports.items()
    }
    entry = {**COST.document(), "trials": [sweeps.trial(7).key, sweeps.trial(6).key]}
    facts = {**history.sweep.facts, **({STEP_WORK: [entry]} if counted else {})}
    return replace(history, reports=reports, sweep=replace(history.sweep, facts=facts))


def test_every_trial_that_reported_has_a_size() -> None:
    """The work of a step belongs to the trials of the counted static choice."""
    rows = {row.number: row for row in summarise(_history()).rows}
    assert rows[7].cost == rows[6].cost == COST
    assert rows[4].cost == rows[1].cost == rows[3].cost == UNCOUNTED
    assert {row.cost for row in summarise(_history(counted=False)).rows} == {UNCOUNTED}


def test_trials_of_earlier_versions_have_no_size() -> None:
    summary = summarise(sweeps.history())
    assert {row.cost for row in summary.rows} == {None}
    assert not any(line.startswith("Size:") for line in notes(summary))
    assert "| parameters |" not in markdown(summary)


def test_the_chosen_network_is_described() -> None:
    expected = "Size: 14,650 parameters (9,360 in the layers, 5,200 recurrent), a state of 128 numbers"
    assert f"{expected}, 83.7 MFLOP and 34.4 MB a training step." in notes(summarise(_history()))
    assert f"{expected}." in notes(summarise(_history(counted=False)))


def test_sizes_are_columns_of_the_leaderboard_and_of_the_comparison() -> None:
    summary = summarise(_history())
    assert "| complete | 14,650 | 128 | 83.7 M |" in markdown(summary)
    assert "| complete | 14,650 | 128 | – |" in markdown(summary)
    compared = side_by_side([summary])
    assert "| 14,650 | 128 | 83.7 M | 8 (2 pruned, 1 failed) |" in comparison.markdown(compared)
    assert compared.document()["results"][0]["cost"] == COST.document()
    best, *_, last = csv.DictReader(io.StringIO(leaderboard_csv(summary)))
    assert (best["parameters"], best["bytes"], last["flops"]) == ("14650", "34379296.0", "")


def test_large_numbers_are_short() -> None:
    assert [words.amount(value) for value in (None, 12, 999.4, 999.6, 83_733_130.0, 5e18)] == [
        *("–", "12", "999", "1 k", "83.7 M", "5e+03 P")
    ]
    assert words.amount(512, "FLOP") == "512 FLOP"
    assert words.count(14_650) == "14,650"
