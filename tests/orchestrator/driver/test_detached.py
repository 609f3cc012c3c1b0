"""A driver in its own session, and the output of a terminal that follows it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from orchestrator.api.status import _exit_code
from orchestrator.driver import detached
from orchestrator.errors import Exit

ECHO = """#!/bin/sh
echo "$@"
echo "detach=$SWEEP_DETACH"
echo "session=$(ps -o sid= -p $$ | tr -d ' ')"
exit 7
"""


def test_the_driver_has_its_own_session_and_prints_to_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its command line is the same, but it does not detach again."""
    monkeypatch.setenv(detached.DETACH, "1")
    monkeypatch.setattr(sys, "executable", str(_echo(tmp_path)))
    log = tmp_path / "logs" / "driver.log"
    driver = detached.begin(["-m", "orchestrator.sweep", "run", "a.yaml", "--detach"], log)
    assert driver.wait(30) == 7
    printed = log.read_text()
    assert "-m orchestrator.sweep run a.yaml\n" in printed
    assert "detach=\n" in printed
    assert f"session={driver.pid}\n" in printed
    assert driver.pid != os.getsid(0)


def _echo(folder: Path) -> Path:
    script = folder / "python"
    script.write_text(ECHO)
    script.chmod(0o755)
    return script


def test_the_last_output_is_not_missed(tmp_path: Path) -> None:
    """Output between the last check and the end is shown too."""
    log, shown = tmp_path / "log", []
    log.write_text("before\n")
    start = detached.end_of(log)

    def over() -> bool:
        with log.open("a") as file:
            file.write("at the end\n")
        return True

    detached.follow(log, start, over, shown.append)
    assert "".join(shown) == "at the end\n"


def test_a_character_that_is_written_in_two_pieces_is_shown_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detached, "POLL_SECONDS", 0.0)
    log, shown, pieces = tmp_path / "log", [], ["\u20ac".encode()[:1], "\u20ac".encode()[1:]]
    log.touch()

    def over() -> bool:
        with log.open("ab") as file:
            file.write(pieces.pop(0))
        return not pieces

    detached.follow(log, 0, over, shown.append)
    assert "".join(shown) == "\u20ac"


def test_a_later_follower_sees_the_last_whole_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"line {number}\n" for number in range(2000)))
    shown = log.read_text()[detached.last_lines(log) :]
    assert shown.startswith("line ")
    assert shown.endswith("line 1999\n")
    assert len(shown) <= detached.LAST_BYTES
    log.write_text("one\n")
    assert detached.last_lines(log) == 0


@pytest.mark.parametrize(
    ("state", "failed", "code"),
    [
        ("COMPLETE", False, Exit.COMPLETE),
        ("COMPLETE", True, Exit.SOME_FAILED),
        ("FAILED", True, Exit.SOME_FAILED),
        ("FAILED", False, Exit.SOME_FAILED),
        ("INTERRUPTED", False, Exit.RESUMABLE),
        ("RUNNING", True, Exit.RESUMABLE),
    ],
)
def test_the_exit_code_of_a_sweep_without_a_driver(state: str, failed: bool, code: Exit) -> None:
    assert _exit_code({"state": state, "driver": None}, None, failed=failed) == code
