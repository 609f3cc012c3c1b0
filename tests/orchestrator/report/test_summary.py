"""The summary agrees with the ledger, and chooses by validation only."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.report.summary import TimeSpent, spending, summarise
from tests import sweeps


def test_the_answer_of_a_sweep() -> None:
    summary = summarise(sweeps.history())
    best = sweeps.trials()[7]
    assert summary.chosen is not None
    assert summary.chosen.row.key == best.key
    assert summary.chosen.row.value == best.value
    assert summary.chosen.test == sweeps.evaluation(best).metrics
    assert summary.chosen.validation == sweeps.reports(best)[-1].metrics
    assert summary.chosen.checkpoint == f"checkpoints/{best.key}"
    assert (summary.metric, summary.test_metric) == ("val/accuracy", "test/accuracy")
    assert summary.published == {}
    assert summary.published_source == "RotRNN, Tables 1 and 3"
    assert summary.chance == {"validation": 0.502, "test": 0.504}
    assert summary.states == {"COMPLETE": 5, "PRUNED": 2, "FAILED": 1}
    assert summary.failures == {"non-finite": 1}
    assert not summary.comparable


def test_the_leaderboard_ranks_complete_trials_only() -> None:
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


def test_the_checkpoint_is_the_one_of_the_best_step() -> None:
    history = sweeps.history()
    best = sweeps.trial(7)
    (kept,) = history.checkpoints[best.key]
    older, last = replace(kept, step=160, path="older"), replace(kept, kind="last", path="last")
    summary = summarise(replace(history, checkpoints={**history.checkpoints, best.key: [older, last, kept]}))
    assert summary.chosen is not None
    assert summary.chosen.checkpoint == kept.path


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


def test_parts_of_one_trial_add_up_to_its_attempt() -> None:
    history = sweeps.history()
    key = sweeps.trial(0).key
    spent = spending(history, key)
    assert spent == TimeSpent(train=15.0, compile=4.0, evaluate=2.5, other=0.0, lost=0.0)
    spent = spending(history, sweeps.trial(2).key)
    assert spent.total == pytest.approx(20.0)
    assert spent.other == pytest.approx(2.5)


def test_time_after_the_last_report_of_a_lost_attempt_is_lost() -> None:
    trial = sweeps.trial(2)
    history = sweeps.history([trial])
    (attempt,) = history.attempts[trial.key]
    assert attempt.ended_at is not None
    lost = replace(attempt, state="LOST", ended_at=attempt.ended_at + 7.0)
    again = replace(
        attempt, id=f"{trial.key}.2", number=2, started_at=lost.ended_at, ended_at=lost.ended_at + 1.0
    )
    spent = spending(replace(history, attempts={trial.key: [lost, again]}), trial.key)
    assert spent.lost == pytest.approx(7.0)
    assert spent.other == pytest.approx(3.5)


def test_a_running_attempt_counts_up_to_its_last_report() -> None:
    trial = sweeps.trial(2)
    history = sweeps.history([trial])
    (attempt,) = history.attempts[trial.key]
    running = replace(attempt, state="RUNNING", ended_at=None)
    spent = spending(replace(history, attempts={trial.key: [running]}), trial.key)
    assert spent.total == pytest.approx(20.0)


def test_the_sweep_is_the_sum_of_its_trials() -> None:
    history = sweeps.history()
    parts = [spending(history, trial.key) for trial in history.trials]
    assert spending(history).total == pytest.approx(sum(part.total for part in parts))
    assert spending(history).train == pytest.approx(sum(part.train for part in parts))
