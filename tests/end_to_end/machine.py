"""Machines of a test: namespaces, in which commands are run."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

START = ["unshare", "--fork", "--kill-child", "--mount-proc"]


class Machine:
    """Namespaces that a process holds open; all processes in them end with that process.

    Args:
        spaces: options of `unshare` and `nsenter` that name the namespaces.
        begin: script of the first process, bash, which also reaps orphaned processes.
        output: file descriptor of the output of the script.
    """

    def __init__(self, spaces: Sequence[str], begin: str, output: int) -> None:
        self._spaces = spaces
        self._started: list[subprocess.Popen[str]] = []
        self._process = subprocess.Popen(
            [*START, *spaces, "bash", "-c", begin],
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def run(
        self, command: Sequence[str], *, quiet: bool = False, **environment: str
    ) -> subprocess.Popen[str]:
        """Start a command on this machine, in its own session, as a user at its terminal would."""
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        (inside,) = children.read_text().split()
        enter = ["nsenter", "--target", inside, *self._spaces, f"--wdns={Path.cwd()}"]
        process = subprocess.Popen(
            [*enter, *command],
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if quiet else subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._started.append(process)
        return process

    def end(self) -> None:
        """Kill all processes of the machine at once, as a power failure does."""
        os.killpg(self._process.pid, signal.SIGKILL)
        processes: list[subprocess.Popen[Any]] = [self._process, *self._started]
        for process in processes:
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


def possible(spaces: Sequence[str]) -> bool:
    """Return True if this user may create machines with these namespaces."""
    tried = subprocess.run(
        [*START, *spaces, "ip", "link", "set", "lo", "up"], capture_output=True, check=False
    )
    return tried.returncode == 0
