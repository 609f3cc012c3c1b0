"""The table of the verb `list`."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from orchestrator.cli.printing import print_sweeps
from orchestrator.client.answers import Status
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


def test_a_long_name_is_folded_and_not_cut() -> None:
    lines = printed([listed(id="x" * 90, state="COMPLETE")], terminal=True)
    assert max(map(len, lines)) <= 80
    assert "".join(lines).count("x") == 90
    assert "COMPLETE" in " ".join(lines)


def test_a_program_reads_a_sweep_a_line() -> None:
    lines = printed(SWEEPS, terminal=False)
    assert len(lines) == 1 + len(SWEEPS)
    assert lines[1].split()[:4] == ["who-can-count-quick-0a1b2c3d", "INTERRUPTED", "margarethe", "modular"]


def test_sweeps_without_owners_have_no_empty_column() -> None:
    [heading] = printed([], terminal=True)
    assert heading.split() == ["sweep", "state", "trials", "started"]
