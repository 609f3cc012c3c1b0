"""Where a sweep stands, from the trials that its ledger remembers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.ledger.records import TrialRecord, TrialState
from orchestrator.session.board import Standing
from tests import sweeps
from tests.orchestrator.session.desk import Desk


def trials(*of: tuple[TrialState, float | None]) -> list[TrialRecord]:
    return [sweeps.trial(number, state, value=value) for number, (state, value) in enumerate(of)]


def test_what_an_earlier_driver_left_unfinished_waits(desk: Desk) -> None:
    left = trials(("COMPLETE", 0.5), ("RUNNING", None), ("PREEMPTED", None), ("FAILED", None))
    standing = Standing(desk.sweep(6), left)
    assert list(standing.states.values()) == ["COMPLETE", "WAITING", "WAITING", "FAILED"]
    assert standing.waiting.in_turn() == [left[1].key, left[2].key]
    assert standing.unsettled == 4


def test_the_best_is_a_complete_trial_of_the_search(desk: Desk) -> None:
    good, better, pruned, confirmation = trials(
        ("COMPLETE", 0.5), ("COMPLETE", 0.7), ("PRUNED", 0.8), ("COMPLETE", 0.9)
    )
    standing = Standing(desk.sweep(6), [good, better, pruned, replace(confirmation, role="confirmation")])
    assert standing.best == (better.key, 0.7)


@pytest.mark.parametrize(("aim", "best"), [("maximize: val/accuracy", 0.7), ("minimize: val/loss", 0.5)])
def test_what_is_better_depends_on_the_objective(desk: Desk, aim: str, best: float) -> None:
    sweep = desk.sweep(6, aim=aim)
    standing = Standing(sweep, trials(("COMPLETE", 0.7), ("COMPLETE", 0.5), ("COMPLETE", 0.6)))
    assert standing.progress(1.0, None).best_value == best


def test_the_time_left_is_estimated_from_what_this_run_settled(desk: Desk) -> None:
    standing = Standing(desk.sweep(5), trials(("COMPLETE", 0.5), ("RUNNING", None)))
    assert standing.progress(30.0, None).seconds_left is None
    standing.states["retrieval-1"] = "PRUNED"
    assert standing.progress(30.0, None).seconds_left == 90.0
