"""A stopping rule sees trials, not attempts, and a rebuilt one remembers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ray.tune.schedulers import AsyncHyperBandScheduler, MedianStoppingRule, TrialScheduler

from orchestrator.ledger.records import ReportRecord
from orchestrator.schedule.keyed import KeyedScheduler, histories


def asha() -> TrialScheduler:
    return AsyncHyperBandScheduler(
        time_attr="step", metric="val/accuracy", mode="max", max_t=400, grace_period=100, reduction_factor=2
    )


def median() -> TrialScheduler:
    return MedianStoppingRule(
        time_attr="step",
        metric="val/accuracy",
        mode="max",
        grace_period=100,
        min_samples_required=2,
    )


def attempt(name: str) -> SimpleNamespace:
    return SimpleNamespace(trial_id=name)


def result(step: int, value: float) -> dict[str, Any]:
    return {"step": step, "val/accuracy": value, "queued": False}


GOOD = [(f"s-{number}", result(step, 0.9)) for number in range(4) for step in (100, 200)]


@pytest.mark.parametrize("rule", [asha, median])
def test_an_empty_rule_lets_the_worst_trial_go_on(rule) -> None:
    """The reason for the replay."""
    scheduler = KeyedScheduler(rule())
    scheduler.on_trial_add(None, attempt("s-9.1"))
    assert scheduler.on_trial_result(None, attempt("s-9.1"), result(100, 0.1)) == TrialScheduler.CONTINUE


@pytest.mark.parametrize("rule", [asha, median])
def test_a_rule_that_has_seen_the_ledger_stops_the_worst_trial(rule) -> None:
    """Reports of an earlier run count in a new one."""
    scheduler = KeyedScheduler(rule(), GOOD)
    scheduler.on_trial_add(None, attempt("s-9.1"))
    assert scheduler.on_trial_result(None, attempt("s-9.1"), result(100, 0.1)) == TrialScheduler.STOP


def test_a_decision_is_repeated_whatever_came_after_it() -> None:
    """Reports are replayed in the order of arrival, so later ones change no earlier decision."""
    arrivals = [("s-0", 0.5), ("s-1", 0.4), ("s-2", 0.9), ("s-3", 0.1), ("s-4", 0.95)]
    reports = [
        ReportRecord(key, 100, f"{key}.1", {"val/accuracy": value}, at)
        for at, (key, value) in enumerate(arrivals)
    ]
    live, decisions = KeyedScheduler(asha()), {}
    for key, value in arrivals:
        live.on_trial_add(None, attempt(f"{key}.1"))
        decisions[key] = live.on_trial_result(None, attempt(f"{key}.1"), result(100, value))
    again = KeyedScheduler(asha(), histories(reversed(reports)))
    assert again.stopped == {key for key, decision in decisions.items() if decision == TrialScheduler.STOP}
    assert again.stopped


def test_a_retry_is_the_same_trial() -> None:
    """A second attempt that repeats an interval is not compared a second time."""
    inner = asha()
    scheduler = KeyedScheduler(inner)
    for name, value in (("s-0.1", 0.5), ("s-0.2", 0.6), ("s-1.1", 0.7)):
        scheduler.on_trial_add(None, attempt(name))
        scheduler.on_trial_result(None, attempt(name), result(100, value))
    recorded = {key: value for _, rung in inner._brackets[0]._rungs for key, value in rung.items()}
    assert recorded == {"s-0": 0.5, "s-1": 0.7}


def test_a_sign_of_life_is_not_compared() -> None:
    """It has no metric, and the trial goes on."""
    scheduler = KeyedScheduler(asha(), GOOD)
    scheduler.on_trial_add(None, attempt("s-9.1"))
    alive = {"step": 0, "queued": True}
    assert scheduler.on_trial_result(None, attempt("s-9.1"), alive) == TrialScheduler.CONTINUE
