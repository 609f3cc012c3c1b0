"""The lines that a terminal shows of a running sweep."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from orchestrator import Progress
from orchestrator.cli.frame import bar, frame, sparkline
from orchestrator.client.answers import LiveSweep, QueuedSweep, RunningTrial
from orchestrator.ledger.sweeps.standing import BestTrial, TimeLeft
from tests.orchestrator.client.examples import detailed

STATUS = detailed(
    progress=Progress({"RUNNING": 3, "COMPLETE": 5, "FAILED": 1}, 12),
    best=BestTrial("retrieval-laptop-0123abcd-3", "3", "RUNNING", 0.61234, 40, 80, 200, {"rate": 5.458e-5}),
    time_left=TimeLeft(100.0, 125.0, 190.0, "from 6 ended trials"),
    failures={"non-finite: val/accuracy is nan": 1},
)
PLACE = QueuedSweep("retrieval-laptop-0123abcd", "ada", "normal", "pool", None, 3, 3, 6, None, None)
SWEEP = LiveSweep(
    STATUS,
    (
        RunningTrial("7", 40, 200, 0.5123, 12.5, 12.8),
        RunningTrial("11", 1_000, 20_000, None, None, None),
        RunningTrial("c0", 200, 200, 0.6001, 2_500.0, 0.0),
    ),
    (0.4, 0.5, 0.5, 0.61234),
    PLACE,
)


def printed(sweep: LiveSweep, width: int, height: int = 24) -> list[str]:
    """Return what a terminal of some size shows."""
    console = Console(width=width, height=height, record=True, file=io.StringIO())
    for line in frame(sweep, width, height):
        console.print(line, soft_wrap=True)
    return console.export_text().splitlines()


def test_a_terminal_of_80_columns_shows_bars_speed_value_and_time_left() -> None:
    assert printed(SWEEP, 80) == [
        "retrieval-laptop-0123abcd · RUNNING",
        "━━━━━━━━━━╌╌╌╌╌╌╌╌╌╌ 6/12 trials · 3 running, 5 complete, 1 failed",
        "about 2.1 min left (1.7 to 3.2 min)",
        "best val/accuracy 0.6123 (trial 3, running, step 80 of 200) ▁▄▄█",
        "  rate 5.458e-5",
        "trial                                                step   value  steps/s  left",
        "    7  ━━━━━━━╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌        40/200  0.5123     12.5  13 s",
        "   11  ━━╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌  1,000/20,000       –        –     –",
        "   c0  ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━       200/200  0.6001    2,500   0 s",
        "3 more could run, but its share is 3 (class normal)",
        "failed 1 time: non-finite: val/accuracy is nan",
    ]


@pytest.mark.parametrize("width", [1, 10, 20, 40, 80, 120])
@pytest.mark.parametrize("height", [2, 6, 24])
def test_a_frame_fits_every_terminal(width: int, height: int) -> None:
    lines = frame(SWEEP, width, height)
    assert 1 <= len(lines) <= max(1, height - 1)
    assert max(line.cell_len for line in lines) <= width


def test_a_wide_terminal_shows_every_state() -> None:
    assert printed(SWEEP, 120)[1].endswith("3 running, 5 complete, 1 failed")


def test_running_trials_that_do_not_fit_are_counted() -> None:
    lines = printed(SWEEP, 80, height=11)
    assert "… and 2 more running" in lines
    assert len(lines) == 10


def test_a_sweep_that_waits_says_why() -> None:
    status = replace(
        STATUS,
        state="WAITING",
        reason="a disk is full",
        progress=Progress({}, 12),
        failures={},
        best=None,
        time_left=None,
    )
    waiting = LiveSweep(
        status, (), (), replace(PLACE, running=0, position=2, why="the pool has no share for it yet")
    )
    assert printed(waiting, 80) == [
        "retrieval-laptop-0123abcd · WAITING: a disk is full",
        "╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌ 0/12 trials",
        "waits (number 2 in the queue): the pool has no share for it yet",
    ]


def test_a_sweep_that_waits_for_a_driver_has_a_number() -> None:
    status = replace(STATUS, state="QUEUED", progress=Progress({}, 12), failures={})
    place = replace(PLACE, pool=None, running=0, position=2, why="QUEUED")
    assert printed(LiveSweep(status, (), (), place), 80)[-1] == "waits (number 2 in the queue): QUEUED"


@pytest.mark.parametrize(
    ("values", "bars"),
    [((), ""), ((0.5,), "▁"), ((0.5, 0.5), "▁▁"), ((0.0, 0.5, 1.0), "▁▅█"), ((2.0, 1.0), "█▁")],
)
def test_a_sparkline_runs_from_the_smallest_value_to_the_largest(
    values: tuple[float, ...], bars: str
) -> None:
    assert sparkline(values) == bars


def test_a_long_sparkline_keeps_the_first_and_the_last_value() -> None:
    bars = sparkline([float(value) for value in range(1000)], most=8)
    assert bars == "▁▂▃▄▅▆▇█"


def test_a_bar_is_never_longer_than_its_columns() -> None:
    assert bar(3, 2, 4).plain == "━━━━"
    assert bar(1, 4, 4).plain == "━╌╌╌"
    assert bar(0, 0, 4).plain == "╌╌╌╌"
