"""Progress floods no log file."""

from __future__ import annotations

import io

from rich.console import Console

from orchestrator.cli.progress import Watch, describe
from orchestrator.session.board import Progress


def progress(done: int, **changes: object) -> Progress:
    fields = {
        "states": {"RUNNING": 2, "COMPLETE": done},
        "wanted": 12,
        "best_key": "x-3",
        "best_value": 0.61234,
    }
    return Progress(**{**fields, "seconds_left": 125.0, **changes})


def test_one_line_says_states_best_and_time() -> None:
    assert describe(progress(3), "val/accuracy") == (
        "trials 3/12 (2 running, 3 complete) · best val/accuracy 0.6123 (x-3) · about 2 min left"
    )


def test_a_log_file_gets_few_lines() -> None:
    out = io.StringIO()
    watch = Watch(Console(file=out, width=200), "val/accuracy")
    for done in range(12):
        for _ in range(50):
            watch.show(progress(done))
    watch.show(progress(12, states={"COMPLETE": 12}))
    assert len(out.getvalue().splitlines()) == 2


def test_quiet_says_only_what_stays() -> None:
    out = io.StringIO()
    watch = Watch(Console(file=out, width=200), "val/accuracy", quiet=True)
    watch.show(progress(12))
    watch.say("done")
    assert out.getvalue() == "done\n"
