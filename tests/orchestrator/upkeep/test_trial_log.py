"""The lines of a log are read as workers write them; any bytes and any kind of file are."""

from __future__ import annotations

import os
import socket
import time
import tracemalloc
from pathlib import Path

import pytest

from orchestrator.training.attempt import TrialLog
from orchestrator.upkeep.log_check import is_of_worker, named, shows
from orchestrator.upkeep.trial_log import LONGEST_LINE, Damage, ReportLine, Started, entries, lines_of


def test_what_a_worker_writes_is_read(tmp_path: Path) -> None:
    """The format is that of `TrialLog`, and of the reports of both kinds of attempts."""
    file = tmp_path / "logs" / "a-0.log"
    log = TrialLog(file, "a-0.3")
    before = int(time.time())
    log.started(0)
    log.write("step 20: val/loss 0.5, echo nan\nprinted")
    log.write("")
    started, stepped = entries(lines_of(file))
    assert isinstance(started, Started)
    assert isinstance(stepped, ReportLine)
    assert (started.attempt, started.host, started.process) == (3, socket.gethostname(), os.getpid())
    assert (stepped.attempt, stepped.step, stepped.shown) == (3, 20, "val/loss 0.5, echo nan")
    assert before <= started.at <= stepped.at <= time.time()


@pytest.mark.parametrize("content", [b"", b"\x00" * 100, os.urandom(100_000), b"\n\n", b"a" * 100])
def test_any_bytes_are_read(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "log").write_bytes(content)
    assert all(isinstance(entry, Damage) for entry in entries(lines_of(tmp_path / "log")))


def test_what_is_no_file_has_no_lines(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name in (".", "gone", "pipe", "loop", "gone/log"):
        assert list(lines_of(tmp_path / name)) == []


@pytest.mark.slow
def test_a_long_log_is_not_held_in_memory(tmp_path: Path) -> None:
    """Nor is a line that never ends."""
    line = b"2026-11-28 12:00:00Z attempt 1: step 3: val/loss 0.333333, echo 0.5\n"
    with (tmp_path / "log").open("wb") as log:
        log.write(line * 50_000)
        log.write(b"x" * 4 * LONGEST_LINE)
    tracemalloc.start()
    try:
        count = sum(1 for _ in entries(lines_of(tmp_path / "log")))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count >= 50_001
    assert peak < 4 * LONGEST_LINE


def test_a_line_shows_a_report_by_all_its_metrics() -> None:
    report = {"a, b": 0.25, "c: d 1": -0.0, "seconds/train": 3.0}
    assert shows("c: d 1 -0, a, b 0.25", report)
    assert not shows("c: d 1 -0, a, b 0.250001", report)
    assert not shows("c: d 1 -0, a, b 0.2", report)
    assert not shows("c: d 1 0, a, b 0.25", report)
    assert not shows("", report)
    assert shows("hidden ***", report), "cannot be compared"
    assert shows("a", {"a\nb": 1.0}), "nor can this"


def test_lines_of_workers_are_told_from_those_of_scripts() -> None:
    names = frozenset({"loss", "a, b"})
    for shown in ("loss 0.5, a, b nan", "a, b inf, loss 1e-05", "loss 1, seconds/train 0.25, a, b 2"):
        assert is_of_worker(shown, names)
    for shown in (
        "",
        "loss 0.5",
        "loss 0.50, a, b 1",
        "loss 0.5 a, b 1",
        "loss 1, a, b 1, c 2",
        "loss x, a, b 1",
    ):
        assert not is_of_worker(shown, names)


def test_steps_are_named_in_order() -> None:
    assert named({7}) == "step 7"
    assert named({500, 1000, 9}) == "steps 9, 500, 1000"
    assert named(range(1, 21)) == f"steps {', '.join(map(str, range(1, 13)))} and 8 more"
