"""The summary says what the ledger says, and chooses by validation alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.report.summary import choose, summarise
from tests import sweeps


def test_the_answer_of_a_sweep() -> None:
    summary = summarise(sweeps.history())
    best = sweeps.trials()[7]
    assert summary.chosen is not None
    assert summary.chosen.row.key == best.key
    assert summary.chosen.row.value == best.value
    assert summary.chosen.test == sweeps.reading(best).metrics
    assert summary.chosen.validation == sweeps.reports(best)[-1].metrics
    assert summary.chosen.checkpoint == f"checkpoints/{best.key}"
    assert (summary.metric, summary.test_metric) == ("val/accuracy", "test/accuracy")
    assert summary.published == {"test/accuracy": 0.899}
    assert summary.published_source == "RotRNN, Tables 1 and 3"
    assert summary.chance == {"validation": 0.502, "test": 0.504}
    assert summary.states == {"COMPLETE": 5, "PRUNED": 2, "FAILED": 1}
    assert summary.failures == {"non-finite": 1}
    assert not summary.comparable


def test_the_leaderboard_ranks_complete_trials_alone() -> None:
    rows = summarise(sweeps.history()).rows
    assert [row.number for row in rows] == [7, 6, 4, 2, 0, 5, 1, 3]
    assert [row.rank for row in rows] == [1, 2, 3, 4, 5, None, None, None]
    assert [row.test is not None for row in rows] == [True, *[False] * 7]
    assert rows[0].params == sweeps.trial(7).params


def test_less_is_better_when_minimising() -> None:
    facts = {**sweeps.sweep_record().facts, "direction": "minimize"}
    summary = summarise(sweeps.history(facts=facts))
    assert [row.number for row in summary.rows if row.rank] == [0, 2, 4, 6, 7]
    assert summary.chosen is not None
    assert summary.chosen.row.number == 0


def test_a_pruned_or_confirming_or_lost_trial_is_never_chosen() -> None:
    trials = [
        sweeps.trial(0, value=0.6),
        sweeps.trial(1, "PRUNED", value=0.9),
        sweeps.trial(2, value=0.9, role="confirmation"),
        sweeps.trial(3, value=0.9),
    ]
    kept = {each.key: [sweeps.checkpoint(each, "x")] for each in trials[:3]}
    chosen = choose(trials, kept, maximize=True)
    assert chosen is not None
    assert chosen.number == 0
    assert choose(trials, {}, maximize=True) is None


def test_the_checkpoint_is_the_one_of_the_best_step() -> None:
    history = sweeps.history()
    best = sweeps.trial(7)
    (kept,) = history.checkpoints[best.key]
    older, last = replace(kept, step=160, path="older"), replace(kept, kind="last", path="last")
    summary = summarise(replace(history, checkpoints={**history.checkpoints, best.key: [older, last, kept]}))
    assert summary.chosen is not None
    assert summary.chosen.checkpoint == kept.path


def test_the_first_wins_a_tie() -> None:
    trials = [sweeps.trial(number, value=0.7) for number in (5, 3, 4)]
    kept = {each.key: [sweeps.checkpoint(each, "x")] for each in trials}
    chosen = choose(trials, kept, maximize=True)
    assert chosen is not None
    assert chosen.number == 3


@pytest.mark.parametrize("cause", [None, "hung: no report for 600 s", "hung"])
def test_failures_are_counted_by_their_kind(cause: str | None) -> None:
    history = sweeps.history()
    trials = [replace(trial, cause=cause) if trial.state == "FAILED" else trial for trial in history.trials]
    assert summarise(replace(history, trials=tuple(trials))).failures == {"hung" if cause else "unknown": 1}


def test_a_sweep_without_a_complete_trial_has_no_answer() -> None:
    history = sweeps.history()
    running = tuple(sweeps.trial(n, "RUNNING", value=None, best_step=None) for n in range(2))
    summary = summarise(replace(history, trials=running))
    assert summary.chosen is None
    assert [row.rank for row in summary.rows] == [None, None]
