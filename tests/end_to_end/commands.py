"""Start real commands, each in its own session, and find the processes that they have started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from orchestrator.ledger.ledger import Ledger
from orchestrator.machines.head import running, runtime_folder

ROOT = Path(__file__).parents[2]
LEAVE_SECONDS = 15.0
SMALL = [
    str(ROOT / "search_spaces" / "retrieval.yaml"),
    *("--set", "training.steps=40", "--set", "training.interval=10", "--set", "training.batch_size=8"),
    *("--set", "model.depth=1", "--set", "data.passage=64", "--set", "evaluate.examples=80"),
    *("--set", "data.pairs=400", "--set", "data.held_out=80"),
]
"""Arguments of a real sweep that compiles little and trains each trial for about a second."""


@dataclass
class Commands:
    """Starts `python -m orchestrator.sweep ...` with its own root folder.

    Attributes:
        folder: folder that everything is written to.
        shared: folder of data sets, shared by all tests of a session.
        mark: value of an environment variable that all descendants inherit, in other sessions too.
        project: folder of the code that is run.
        processes: the commands that were started.
    """

    folder: Path
    shared: Path
    mark: str
    project: Path = ROOT
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def root(self) -> Path:
        """Return the folder that sweeps write to."""
        return self.folder / "mlruns"

    @property
    def ledger(self) -> Ledger:
        """Open the ledger that the commands write."""
        return Ledger.open(f"sqlite:///{self.root}/sweeps.db")

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """Start a command, and return its process, whose output goes to a pipe."""
        return self.start_python("-m", "orchestrator.sweep", *arguments, **environment)

    def start_python(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """Start a Python program, and return its process, whose output goes to a pipe."""
        own = {
            "SWEEP_ROOT": str(self.root),
            "SWEEP_DATA": str(self.shared / "data"),
            "SWEEP_TEST_MARK": self.mark,
            "SWEEP_WARM": "0",  # no process is to be left
        }
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=self.project,
            env={**os.environ, **own, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.processes.append(process)
        return process

    def run(self, *arguments: str, timeout: float = 280, **environment: str) -> tuple[int, str]:
        """Run a command to its end; return its exit code and its output."""
        return finish(self.start(*arguments, **environment), timeout)

    def alive(self) -> list[psutil.Process]:
        """Return the living processes of this test's commands: those they have started, and Ray's workers.

        The head that all tests of this process share may outlive the commands; its workers may not.
        """
        started = [process for process in psutil.process_iter() if _marked(process, self.mark)]
        return [*started, *(process for process in _of_head() if _is_worker(process))]

    def titled(self, beginning: str) -> list[psutil.Process]:
        """Return the living processes whose command line begins with a text, such as `ray::Worker`."""
        return [process for process in self.alive() if _title(process).startswith(beginning)]

    def wait_until_gone(self, seconds: float = LEAVE_SECONDS) -> list[psutil.Process]:
        """Wait for all processes to end; return those that are still alive."""
        deadline = time.monotonic() + seconds
        while self.alive() and time.monotonic() < deadline:
            time.sleep(0.25)
        return self.alive()


def finish(process: subprocess.Popen[str], timeout: float = 280) -> tuple[int, str]:
    """Wait for a command to end; return its exit code and its output."""
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()  # until then it uses the Ray that the caller ends
        raise
    return process.returncode, output


def wait_for(condition: Callable[[], bool], seconds: float = 180.0) -> None:
    """Wait until a condition holds; fail after a timeout."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"the condition did not hold within {seconds:g} s"
        time.sleep(0.1)


def _of_head() -> list[psutil.Process]:
    """Return the processes of the Ray that the tests of this process share."""
    head = running(runtime_folder())
    try:
        return psutil.Process(head.pid).children(recursive=True) if head else []
    except psutil.NoSuchProcess:
        return []


def _is_worker(process: psutil.Process) -> bool:
    return _title(process).startswith("ray::") and not _title(process).endswith("Agent")


def _title(process: psutil.Process) -> str:
    try:
        return "".join(process.cmdline())
    except psutil.Error:
        return ""  # the process has ended since it was listed


def _marked(process: psutil.Process, mark: str) -> bool:
    try:
        running = process.status() != psutil.STATUS_ZOMBIE
        return running and process.environ().get("SWEEP_TEST_MARK") == mark
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False
