"""What the machines of a test have in common: namespaces, and commands that are entered into them."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

START = ["unshare", "--fork", "--kill-child", "--mount-proc"]


class Machine:
    """Namespaces that a process holds open; whatever runs in them ends with it.

    Args:
        spaces: options of `unshare` and `nsenter`: what it has to itself.
        begin: script that its first process, bash, runs; bash buries whoever has lost its parent.
        output: where the script prints to.
    """

    def __init__(self, spaces: Sequence[str], begin: str, output: int) -> None:
        self._spaces = spaces
        self._process = subprocess.Popen(
            [*START, *spaces, "bash", "-c", begin],
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def run(
        self, command: Sequence[str], *, quiet: bool = False, **environment: str
    ) -> subprocess.Popen[str]:
        """Start a command on this machine, in a session of its own, as a person at its keyboard would."""
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        (inside,) = children.read_text().split()
        enter = ["nsenter", "--target", inside, *self._spaces, f"--wdns={Path.cwd()}"]
        return subprocess.Popen(
            [*enter, *command],
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if quiet else subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def end(self) -> None:
        """End the machine with all that runs on it, as a plug that is pulled does."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def possible(spaces: Sequence[str]) -> bool:
    """Tell whether this user may have machines with these namespaces."""
    tried = subprocess.run(
        [*START, *spaces, "ip", "link", "set", "lo", "up"], capture_output=True, check=False
    )
    return tried.returncode == 0
