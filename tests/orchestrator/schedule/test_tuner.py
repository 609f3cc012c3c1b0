"""Ray Tune's controller with an error of the ledger, and with wrong answers of workers."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ray.tune import TuneError
from ray.tune.result import RESULT_DUPLICATE, SHOULD_CHECKPOINT, TIME_THIS_ITER_S

from orchestrator.assignment import Outcome, shown_as
from orchestrator.errors import NoSpace
from orchestrator.schedule.adapters import registered
from orchestrator.schedule.engines import Engines
from orchestrator.schedule.tuner import _checked, refusal_behind
from tests.orchestrator.session.sessions import Sessions, launch, outcome


def tune(callback: Callable[[], None]) -> None:
    """Call a callback as Tune's controller does."""
    try:
        callback()
    except Exception:  # noqa: BLE001 - as Tune does, and so is the next line
        raise TuneError(traceback.format_exc())  # noqa: B904


def full() -> None:
    raise NoSpace("ledger", "needs space to write", "a full disk", "Free some.")


def broken() -> None:
    raise KeyError("a mistake in the callback")


def test_a_refusal_in_a_callback_is_raised_as_itself() -> None:
    with pytest.raises(TuneError) as met:
        tune(full)
    assert isinstance(refusal_behind(met.value), NoSpace)


def test_another_error_in_a_callback_is_no_refusal() -> None:
    with pytest.raises(TuneError) as met:
        tune(broken)
    assert refusal_behind(met.value) is None


class Lent:
    """Warm workers of which one has the attempt by a loan."""

    def loan_of(self, attempt_id: str) -> str:
        """Return the loan."""
        return "loan"


def test_only_an_answer_of_the_attempt_and_the_loan_that_were_asked_reaches_the_rule(tmp_path: Path) -> None:
    sessions = Sessions(tmp_path)
    session = sessions.open(sessions.sweep(2), capacity=2)
    mine, other = launch(session), launch(session)
    warm: Any = Lent()
    with registered(session, Engines(lambda: 0)):

        def checked(result: Any, pool: Any = warm) -> str:
            return str(_checked(pool, mine.attempt_id, result) or "")

        right = replace(outcome(mine, 10, 0.5), loan="loan")
        assert checked(right.to_result()) == ""
        assert checked(replace(right, loan="").to_result(), None) == "", "a process of Tune's own has no loan"
        assert session.running[mine.attempt_id].cause is None
        assert "by the loan none (got one by loan at step 10)" in checked(right.to_result(), None)
        assert "by the loan loan (got one by earlier at step 10)" in checked(
            replace(right, loan="earlier").to_result()
        )
        foreign = replace(outcome(other, 10, 0.5), loan="loan").to_result()
        assert f"must be about {mine.attempt_id} (got one of {other.attempt_id} at step" in checked(foreign)
        assert session.running[mine.attempt_id].cause == "foreign report"
        assert session.running[other.attempt_id].cause is None


def test_a_report_that_would_break_the_rule_never_reaches_it(tmp_path: Path) -> None:
    sessions = Sessions(tmp_path)
    session = sessions.open(sessions.sweep(1))
    mine = launch(session)
    with registered(session, Engines(lambda: 0)):
        for value in (None, "0.5"):
            report = replace(outcome(mine, 10, 0.5), metrics={"val/accuracy": value})
            assert "must hold a number" in str(_checked(None, mine.attempt_id, report.to_result()))
        for changes in ({"queued": True}, {"training": True}, {"failure": "error"}):
            no_report = replace(outcome(mine, 0, 0.5), metrics={}, checkpoint=None, **changes)
            assert _checked(None, mine.attempt_id, no_report.to_result()) is None


def test_no_metric_of_a_script_is_an_order_to_tune(tmp_path: Path) -> None:
    """Tune would read the last result again, save, or count the seconds."""
    orders = dict.fromkeys((RESULT_DUPLICATE, SHOULD_CHECKPOINT, TIME_THIS_ITER_S), 1.0)
    sessions = Sessions(tmp_path)
    mine = launch(sessions.open(sessions.sweep(1)))
    report = replace(outcome(mine, 10, 0.5), metrics={"val/accuracy": 0.5, **orders})
    result = report.to_result()
    assert not orders.keys() & result.keys()
    assert result[shown_as("val/accuracy")] == 0.5
    assert Outcome.from_result(result) == report


@pytest.mark.parametrize("result", [None, {}, {"outcome": None}, {"outcome": {"step": 1}}, 3, [{}]])
def test_an_answer_that_is_no_outcome_is_an_error_of_the_attempt(tmp_path: Path, result: Any) -> None:
    sessions = Sessions(tmp_path)
    session = sessions.open(sessions.sweep(1))
    attempt_id = launch(session).attempt_id
    with registered(session, Engines(lambda: 0)):
        assert "must answer with an outcome" in str(_checked(None, attempt_id, result))
