"""The table of the verb `list`."""

from __future__ import annotations

import io
import json
import sys

import pytest
from rich.console import Console

from orchestrator.cli.printing import print_json, print_sweeps
from orchestrator.client.statuses import Status
from orchestrator.ledger.sweeps.standing import BestTrial, TimeLeft
from tests.orchestrator.client.examples import listed

SWEEPS = [
    listed(
        id="who-can-count-quick-0a1b2c3d",
        state="INTERRUPTED",
        owner="margarethe",
        task="modular",
        trials={"COMPLETE": 112, "PRUNED": 31, "FAILED": 1},
        created_at=1_800_014_400.0,
    ),
    listed(
        id="listops-laptop-0a1b2c3d",
        owner="ada",
        task="listops",
        trials={"RUNNING": 2},
        created_at=1_800_014_400.0,
    ),
]


def printed(sweeps: list[Status], *, terminal: bool, width: int = 80) -> list[str]:
    out = io.StringIO()
    print_sweeps(sweeps, Console(file=out, force_terminal=terminal, width=width, color_system=None))
    return [line.rstrip() for line in out.getvalue().splitlines()]


@pytest.mark.parametrize("width", [80, 120, 200])
def test_a_terminal_shows_every_word_whole(width: int) -> None:
    lines = printed(SWEEPS, terminal=True, width=width)
    assert max(map(len, lines)) <= width
    shown = " ".join(lines)
    for word in ("who-can-count-quick-0a1b2c3d", "INTERRUPTED", "112 complete,", "31 pruned,", "2027-01-15"):
        assert word in shown
    assert "…" not in shown
    assert "margarethe" in shown
    assert ("modular" in shown) == (width >= 120)


def test_a_long_name_is_shortened_in_its_middle() -> None:
    """The beginning names a sweep to every verb, and the end distinguishes it."""
    name = f"a-{'x' * 90}-0a1b2c3d"
    [_, line] = printed([listed(id=name, state="COMPLETE")], terminal=True)
    assert line.split()[:2] == [f"a-{'x' * 24}…xxxx-0a1b2c3d", "COMPLETE"]
    assert name in printed([listed(id=name, state="COMPLETE")], terminal=False)[1]


def test_the_best_value_and_the_time_left_are_shown() -> None:
    best = BestTrial("x-2", "2", "RUNNING", 0.6805, 30, 35, 40, {"dropout": 0.0382})
    running = listed(best=best, time_left=TimeLeft(120.0, 190.0, 300.0, "from speed"))
    for width in (80, 120):
        [heading, line, _] = printed([running, listed()], terminal=True, width=width)
        assert heading.split()[2:5] == (
            ["trials", "best", "left"] if width < 120 else ["task", "trials", "best"]
        )
        assert "0.6805" in line
        assert "3.2 min" in line


def test_a_program_reads_a_sweep_a_line() -> None:
    lines = printed(SWEEPS, terminal=False)
    assert len(lines) == 1 + len(SWEEPS)
    assert lines[1].split()[:4] == ["who-can-count-quick-0a1b2c3d", "INTERRUPTED", "margarethe", "modular"]


def test_sweeps_without_owners_have_no_empty_column() -> None:
    [heading] = printed([], terminal=True)
    assert heading.split() == ["sweep", "state", "trials", "started"]


def test_json_is_the_same_on_a_terminal_and_in_a_pipe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    value = {"name": "caf\u00e9 \x1b[31m\u202e\x7f\n", "empty": {}, "values": [1, 0.5, None, True], "no": []}
    print_json(value)
    piped = capsys.readouterr().out
    assert json.loads(piped) == value
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    print_json({**value, "name": "caf\u00e9 \x1b[31m\u202e\n"})
    assert capsys.readouterr().out == piped.replace("\\u007f", "")
