"""Real commands, each in a session of its own, none of whose processes may be left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]
LEAVE_SECONDS = 15.0


@dataclass
class Commands:
    """Starts `python -m orchestrator.sweep ...` in a folder of its own.

    Attributes:
        folder: where everything is written.
        mark: value of an environment variable that every descendant inherits, whatever session it is in.
    """

    folder: Path
    mark: str

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """Start a command and return its process; output goes to the pipe."""
        own = {"SWEEP_ROOT": str(self.folder / "mlruns"), "SWEEP_DATA": str(self.folder / "data")}
        return subprocess.Popen(
            [sys.executable, "-m", "orchestrator.sweep", *arguments],
            cwd=ROOT,
            env={**os.environ, **own, "SWEEP_TEST_MARK": self.mark, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str, timeout: float = 280, **environment: str) -> tuple[int, str]:
        """Run a command to its end; return its exit code and all it printed."""
        process = self.start(*arguments, **environment)
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        return process.returncode, output

    def alive(self) -> list[psutil.Process]:
        """Return every living process that a command of this test has started."""
        return [process for process in psutil.process_iter() if _marked(process, self.mark)]


def _marked(process: psutil.Process, mark: str) -> bool:
    try:
        running = process.status() != psutil.STATUS_ZOMBIE
        return running and process.environ().get("SWEEP_TEST_MARK") == mark
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[Commands]:
    """Give commands a folder, and check afterwards that none of their processes is left."""
    started = Commands(tmp_path, mark=f"{os.getpid()}-{time.monotonic_ns()}")
    yield started
    deadline = time.monotonic() + LEAVE_SECONDS
    while started.alive() and time.monotonic() < deadline:
        time.sleep(0.25)
    left = started.alive()
    described = [" ".join(process.cmdline())[:120] for process in left]
    for process in left:
        process.kill()
    assert not left, f"left running after {LEAVE_SECONDS:g} s: {described}"
