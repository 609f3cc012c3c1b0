"""A replay makes the decisions of the real scheduler, and says what is not known."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.config import from_dict
from orchestrator.config.sweep_config import SweepConfig
from orchestrator.ledger.sweeps.records import CurvePoint, TrialRecord
from orchestrator.schedule.scheduler_replay import LearningCurve, Replay, recorded_curves, repeated, worth
from tests.orchestrator.session.sessions import Sessions
from tests.orchestrator.session.test_promotion import Driver, promoting

STEPS = list(range(10, 101, 10))


def sweep(scheduler: Any) -> SweepConfig:
    document = {
        "trainable": {"command": ["true"]},
        "training": {"steps": 100, "interval": 10},
        "search": {"x": {"uniform": [0.0, 1.0]}},
        "objective": {"maximize": "value"},
        "scheduler": scheduler,
        "budget": {"trials": 64},
    }
    return from_dict(document, name="space", profile=None, gpus=0)


def curve(final: float) -> LearningCurve:
    return LearningCurve(STEPS, [final * (0.5 + step / 200) for step in STEPS], "COMPLETE")


def curves(count: int) -> list[LearningCurve]:
    draws = random.Random(0)
    return [curve(draws.random()) for _ in range(count)]


def run(scheduler: Any, drawn: list[LearningCurve], workers: int = 1, tail: Any = "runs"):
    launch = drawn.__getitem__
    return Replay(
        sweep(scheduler), lambda number: launch(number) if number < len(drawn) else None, workers, tail
    ).run()


def test_without_a_scheduler_each_trial_is_complete() -> None:
    replayed = run("none", curves(8), workers=4)
    assert replayed.cost == pytest.approx(8)
    assert replayed.time == pytest.approx(2)
    assert set(replayed.endings.values()) == {("COMPLETE", 100)}


def test_asha_stops_the_second_of_two_if_it_is_worse() -> None:
    replayed = run({"asha": {"grace": 0.1}}, [curve(0.9), curve(0.1)])
    assert replayed.endings == {0: ("COMPLETE", 100), 1: ("PRUNED", 10)}
    assert replayed.cost == pytest.approx(1.1)
    assert replayed.best == 0


def test_promotion_pauses_both_and_completes_the_better_one() -> None:
    replayed = run({"asha": {"grace": 0.1, "mode": "promote"}}, [curve(0.1), curve(0.9)])
    assert replayed.endings == {0: ("PRUNED", 10), 1: ("COMPLETE", 100)}
    assert replayed.cost == pytest.approx(1.1)


@pytest.mark.parametrize("workers", [1, 8, 64])
@pytest.mark.parametrize("count", [1, 2, 5, 64])
def test_promotion_ends_with_a_complete_trial(count: int, workers: int) -> None:
    replayed = run({"asha": {"mode": "promote"}}, curves(count), workers)
    assert replayed.best is not None
    assert len(replayed.endings) == count


def test_a_trial_that_fails_counts_at_its_rung() -> None:
    """One in four of eight is promoted, although four of them diverge before the rung."""
    diverged = LearningCurve([], [], "FAILED")
    drawn = [*(curve(value) for value in (0.9, 0.8, 0.2, 0.1)), *[diverged] * 4]
    replayed = run({"asha": {"grace": 0.5, "mode": "promote"}}, drawn)
    assert [number for number, ending in replayed.endings.items() if ending[0] == "COMPLETE"] == [0, 1]


def test_a_truncated_curve_gives_the_two_ends_of_the_cost() -> None:
    stopped = LearningCurve(STEPS[:1], [0.05], "PRUNED")
    of_pilot = worth(sweep("none"), [[curve(0.9), curve(0.5)]], 1)
    assert of_pilot.cost == (1.0, 1.0)
    assert of_pilot.unknown == 0
    bounds = worth(sweep("none"), [[curve(0.9), stopped]], 1)
    assert bounds.cost == pytest.approx((0.55, 1.0))
    assert (bounds.unknown, bounds.found) == (1, pytest.approx(0.9))
    assert worth(sweep({"asha": {"grace": 0.1}}), [[curve(0.9), stopped]], 1).unknown == 0


def test_regret_is_the_distance_to_the_best_complete_trial() -> None:
    """The better trial begins slowly, and is stopped."""
    slow = LearningCurve(STEPS, [0.0] * 9 + [1.0], "COMPLETE")
    found = worth(sweep({"asha": {"grace": 0.1}}), [[curve(0.9), slow], [slow, curve(0.9)]], 1)
    assert found.regret == pytest.approx(0.05)
    assert found.same == 0.5


def test_replaying_the_recorded_scheduler_repeats_its_decisions(sessions: Sessions) -> None:
    """A real session promotes trials; a decision that was changed is noticed."""
    specification = promoting(sessions, 8)
    driver, values = Driver(sessions, specification), random.Random(1)
    while not driver.session.finished:
        if driver.session.next_assignment is not None and not driver.session.running:
            assignment = driver.session.next_assignment()
            if assignment is None:
                break
            driver.session.started(assignment.attempt_id)
            value = values.random()
            first = assignment.resume.step if assignment.resume else 0
            any(driver.report(assignment, step, value) for step in range(first + 5, 20, 5))
    trials, points = _recorded(sessions, specification)
    again = repeated(specification, trials, points)
    assert (again.decisions > 8, again.differing) == (True, [])
    pruned = next(trial for trial in trials if trial.state == "PRUNED")
    others = [replace(trial, state="COMPLETE") if trial == pruned else trial for trial in trials]
    assert repeated(specification, others, points).differing == [pruned.key]
    endings = [each.ending for each in recorded_curves(specification, trials, points)]
    assert endings == [trial.state for trial in trials]


def _recorded(sessions: Sessions, specification: SweepConfig) -> tuple[list[TrialRecord], list[CurvePoint]]:
    ledger = sessions.ledger
    return ledger.trials(specification.id), ledger.curves(specification.id, (specification.metric,))


@pytest.fixture
def sessions(tmp_path: Path) -> Sessions:
    """Return a factory of sessions."""
    return Sessions(tmp_path)
