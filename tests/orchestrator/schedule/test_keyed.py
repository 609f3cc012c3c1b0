"""A stopping rule sees trials, not attempts, and a rebuilt rule knows the earlier reports."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.tune.schedulers import AsyncHyperBandScheduler, MedianStoppingRule, TrialScheduler

from orchestrator.assignment import shown_as
from orchestrator.config import load
from orchestrator.config.strategy import SCHEDULERS
from orchestrator.config.sweep_config import SweepConfig
from orchestrator.ledger.sweeps.records import CurvePoint, ReportRecord
from orchestrator.schedule import schedulers
from orchestrator.schedule.keyed import KeyedScheduler, TrialReport, decisive, histories

OBJECTIVE = shown_as("val/accuracy")


def asha() -> TrialScheduler:
    return AsyncHyperBandScheduler(
        time_attr="step", metric=OBJECTIVE, mode="max", max_t=400, grace_period=100, reduction_factor=2
    )


def median() -> TrialScheduler:
    return MedianStoppingRule(
        time_attr="step",
        metric=OBJECTIVE,
        mode="max",
        grace_period=100,
        min_samples_required=2,
    )


def attempt(name: str) -> SimpleNamespace:
    return SimpleNamespace(trial_id=name)


def result(step: int, value: float) -> dict[str, Any]:
    return {"step": step, OBJECTIVE: value, "queued": False, "training": False}


GOOD = [TrialReport(f"s-{number}", result(step, 0.9)) for number in range(4) for step in (100, 200)]


@pytest.mark.parametrize("rule", [asha, median])
def test_an_empty_rule_lets_the_worst_trial_continue(rule) -> None:
    """This is why reports are replayed."""
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


def test_a_stop_has_its_rung_its_rank_and_the_value_that_goes_on() -> None:
    """The cutoff of Ray Tune is the percentile of the other trials at the rung."""
    rule = schedulers.HyperbandRule(
        (100, 200, 400),
        0,
        time_attr="step",
        metric=OBJECTIVE,
        mode="max",
        max_t=400,
        grace_period=100,
        reduction_factor=2,
    )
    scheduler = KeyedScheduler(rule)
    for key, value in (("s-0", 0.5), ("s-1", 0.4), ("s-2", 0.9), ("s-3", 0.1)):
        scheduler.on_trial_add(None, attempt(f"{key}.1"))
        scheduler.on_trial_result(None, attempt(f"{key}.1"), result(100, value))
    assert scheduler.reasons["s-3"] == (
        "stopped at step 100: val/accuracy 0.1 is rank 4 of 4 at this rung; one in 2 goes on (0.5 or better)"
    )
    assert scheduler.reasons.keys() == {"s-1", "s-3"}


def test_a_stop_by_the_median_has_the_median() -> None:
    scheduler = KeyedScheduler(schedulers.MedianRule(OBJECTIVE, sign=-1, grace=100, least=2))
    for key, value in (("s-0", 0.5), ("s-1", 0.7), ("s-2", 0.9)):
        scheduler.on_trial_add(None, attempt(f"{key}.1"))
        scheduler.on_trial_result(None, attempt(f"{key}.1"), result(100, value))
    assert scheduler.reasons == {
        "s-2": "stopped at step 100: its best val/accuracy 0.9 is behind the median 0.6 of the means of 2 "
        "other trials up to this step"
    }


def test_a_retry_is_the_same_trial() -> None:
    """A second attempt that repeats an interval is not compared a second time."""
    inner = asha()
    scheduler = KeyedScheduler(inner)
    for name, value in (("s-0.1", 0.5), ("s-0.2", 0.6), ("s-1.1", 0.7)):
        scheduler.on_trial_add(None, attempt(name))
        scheduler.on_trial_result(None, attempt(name), result(100, value))
    recorded = {key: value for _, rung in inner._brackets[0]._rungs for key, value in rung.items()}
    assert recorded == {"s-0": 0.5, "s-1": 0.7}


def test_the_report_at_which_a_trial_gives_its_place_up_is_compared() -> None:
    """Tune shows it to the stopper alone; a resumed sweep finds it in the ledger like any other."""
    arrivals = [("s-0.1", 100, 0.9), ("s-1.1", 100, 0.1), ("s-1.2", 200, 0.2), ("s-0.1", 200, 0.95)]
    live = KeyedScheduler(asha())
    for name, step, value in arrivals:
        live.on_trial_add(None, attempt(name))
        if name == "s-1.1":
            live.on_trial_complete(None, attempt(name), result(step, value))
        else:
            live.on_trial_result(None, attempt(name), result(step, value))
    reports = [
        ReportRecord(name[:-2], step, name, {"val/accuracy": value}, at)
        for at, (name, step, value) in enumerate(arrivals)
    ]
    assert _recorded(live) == _recorded(KeyedScheduler(asha(), histories(reports)))


@pytest.mark.parametrize(
    "last",
    [
        {},
        {**result(200, 0.1), "training": True},
        {"step": 200, "queued": False, "training": False},
        result(200, float("nan")),
        result(100, 0.9),
    ],
    ids=["none", "a sign of life", "a failure", "not a number", "shown before"],
)
def test_nothing_else_is_compared_at_the_end_of_an_attempt(last: dict[str, Any]) -> None:
    scheduler = KeyedScheduler(asha())
    scheduler.on_trial_add(None, attempt("s-9.1"))
    scheduler.on_trial_result(None, attempt("s-9.1"), result(100, 0.9))
    before = _recorded(scheduler)
    scheduler.on_trial_complete(None, attempt("s-9.1"), last)
    assert _recorded(scheduler) == before


@pytest.mark.parametrize("sign", ["queued", "training"])
def test_a_sign_of_life_is_not_compared(sign: str) -> None:
    """It has no metric, and the trial continues."""
    scheduler = KeyedScheduler(asha(), GOOD)
    scheduler.on_trial_add(None, attempt("s-9.1"))
    alive = {"step": 0, "queued": False, "training": False, sign: True}
    assert scheduler.on_trial_result(None, attempt("s-9.1"), alive) == TrialScheduler.CONTINUE


def _sweep(folder: Path, scheduler: str, steps: int, interval: int) -> SweepConfig:
    file = folder / "space.yaml"
    file.write_text(
        "task: adding\nmodel: {layer: lru, depth: 1, d_model: 8, d_state: 8}\n"
        f"training: {{steps: {steps}, interval: {interval}, batch_size: 4, recurrent_learning_rate: 1e-3}}\n"
        "search: {learning_rate: {log_uniform: [1e-4, 1e-2]}}\nobjective: {minimize: val/loss}\n"
        f"scheduler: {scheduler}\nbudget: {{trials: 9}}\n"
    )
    return load(file, profile=None, gpus=0)


@pytest.mark.parametrize(
    "scheduler",
    [
        "{asha: {reduction: 2, grace: 0.05}}",
        "{asha: {reduction: 3.5, grace: 0.3}}",
        "{hyperband: {reduction: 2, grace: 0.02, brackets: 4}}",
        "none",
    ],
)
@pytest.mark.parametrize("seed", range(20))
def test_reports_that_decide_nothing_need_no_replay(tmp_path: Path, scheduler: str, seed: int) -> None:
    """The rule's records and the stopped trials equal those of a replay of every report, ties included."""
    draw = random.Random(seed)
    steps, interval = draw.choice([(100, 1), (64, 8), (1000, 300), (90, 7)])
    sweep = _sweep(tmp_path, scheduler, steps, interval)
    reports, at = [], 0.0
    reached = dict.fromkeys([f"s-{number}" for number in range(9)] + ["s-c0"], 0)
    while going := [key for key, step in reached.items() if step < steps]:
        key, at = draw.choice(going), at + 1
        reached[key] = min(reached[key] + interval, steps)
        metrics = {"val/loss": draw.choice([0.1, 0.2, draw.random()])}
        reports.append(CurvePoint(key, reached[key], metrics, at))
        if draw.random() < 0.02:
            reached[key] = steps  # it ends here
    shuffled = draw.sample(reports, len(reports))
    adapter = SCHEDULERS[sweep.scheduler.name]
    whole = KeyedScheduler(adapter.build(sweep, sweep.scheduler.options), histories(reports))
    part = schedulers.build(sweep, shuffled)
    assert part.stopped == whole.stopped
    assert _recorded(part) == _recorded(whole)
    kept = len(decisive(reports, adapter.milestones(sweep, sweep.scheduler.options)))
    assert kept < len(reports) or interval > 100


def _recorded(scheduler: KeyedScheduler) -> list[dict[str, float]]:
    brackets = getattr(scheduler._rule, "_brackets", [])
    return [dict(recorded) for bracket in brackets for _, recorded in bracket._rungs]
