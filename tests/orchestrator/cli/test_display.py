"""The live display prints few lines into a log file."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from orchestrator.driver.log import Display, describe
from orchestrator.ledger.sweeps.standing import TimeLeft
from orchestrator.session.board import Progress


def progress(done: int, **changes: object) -> Progress:
    """Return the progress of a sweep of twelve trials."""
    fields = {
        "states": {"RUNNING": 2, "COMPLETE": done},
        "wanted": 12,
        "best_key": "x-3",
        "best_value": 0.61234,
    }
    return Progress(**{**fields, "time_left": TimeLeft(125.0, 125.0, 125.0, "from speed"), **changes})


def test_one_line_names_states_best_trial_and_time_left() -> None:
    assert describe(progress(3), "val/accuracy") == (
        "trials 3/12 (2 running, 3 complete) · best val/accuracy 0.6123 (x-3) · about 2.1 min left"
    )


@pytest.mark.parametrize("state", ["WAITING", "PAUSED"])
def test_one_line_names_the_state_of_a_sweep_that_launches_nothing(state: str) -> None:
    line = describe(progress(3, state=state, reason="a disk is full", time_left=None), "val/accuracy")
    assert line == (
        f"trials 3/12 (2 running, 3 complete) · {state}: a disk is full · best val/accuracy 0.6123 (x-3)"
    )


def test_a_log_file_gets_few_lines() -> None:
    out = io.StringIO()
    display = Display(Console(file=out, width=200), "val/accuracy")
    for done in range(12):
        for _ in range(50):
            display.show(progress(done))
    display.show(progress(12, states={"COMPLETE": 12}))
    assert len(out.getvalue().splitlines()) == 2


def test_the_first_value_is_printed_at_once() -> None:
    out = io.StringIO()
    display = Display(Console(file=out, width=200), "val/accuracy")
    for value in (None, None, 0.5, 0.6):
        display.show(progress(0, best_value=value))
    assert out.getvalue().splitlines() == [
        describe(progress(0, best_value=value), "val/accuracy") for value in (None, 0.5)
    ]


def test_quiet_prints_messages_alone() -> None:
    out = io.StringIO()
    display = Display(Console(file=out, width=200), "val/accuracy", quiet=True)
    display.show(progress(12))
    display.say("done")
    assert out.getvalue() == "done\n"
