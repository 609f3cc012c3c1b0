"""Every second of an attempt is spent on exactly one thing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.report.spending import Spending, spending
from tests import sweeps


def test_parts_of_one_trial_add_up_to_its_attempt() -> None:
    history = sweeps.history()
    key = sweeps.trial(0).key
    spent = spending(history, key)
    assert spent == Spending(train=15.0, compile=4.0, evaluate=2.5, other=0.0, lost=0.0)
    spent = spending(history, sweeps.trial(2).key)
    assert spent.total == pytest.approx(20.0)
    assert spent.other == pytest.approx(2.5)


def test_what_came_after_the_last_report_of_a_lost_attempt_is_lost() -> None:
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
