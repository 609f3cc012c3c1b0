"""A machine of a test's own: namespaces with a sshd in them, so that Ray's commands meet no other Ray."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

SSHD = Path("/usr/sbin/sshd")
START_SECONDS = 20.0

_OWN = ["--pid", "--fork", "--mount-proc", "--mount", "--net", "--kill-child"]
# `ray stop` ends Ray processes by their names, all that it sees; and Ray notes under /tmp/ray what runs.
_BEGIN = """
ip link set lo up
mkdir -p /tmp/ray /run/sshd
mount -t tmpfs none /tmp/ray
exec {sshd} -D -e -f {config}
"""
_CONFIG = """
Port 22
ListenAddress 127.0.0.1
HostKey {folder}/host-key
AuthorizedKeysFile {folder}/key.pub
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
PidFile none
SetEnv {environment}
"""


def available() -> str | None:
    """Return why there can be no such machine here, or None."""
    if not SSHD.exists() or shutil.which("rsync") is None:
        return "needs a sshd and rsync (Debian: openssh-server, rsync)"
    tried = subprocess.run(
        ["unshare", *_OWN, "ip", "link", "set", "lo", "up"], capture_output=True, check=False
    )
    return None if tried.returncode == 0 else "needs namespaces of its own (unshare)"


class Host:
    """A machine that answers SSH on its own loopback, with a home folder and keys of its own.

    Attributes:
        home: of whoever logs in.
        key: file with the private key that is let in.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder, self.home, self.key = folder, folder / "home", folder / "key"
        self.home.mkdir(parents=True)
        for key in ("key", "host-key"):
            generate = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)]
            subprocess.run(generate, check=True)
        own = {"HOME": str(self.home), **environment}
        told = " ".join(f'"{name}={value}"' for name, value in own.items())
        (folder / "sshd.conf").write_text(_CONFIG.format(folder=folder, environment=told))
        self._process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        begin = _BEGIN.format(sshd=SSHD, config=self._folder / "sshd.conf")
        with (self._folder / "sshd.log").open("wb") as log:
            process = subprocess.Popen(
                # bash is the first process of the machine, and buries whoever has lost its parent.
                ["unshare", *_OWN, "bash", "-c", f"({begin}) & wait $!"],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_SECONDS
        while b"Server listening" not in (self._folder / "sshd.log").read_bytes():
            assert process.poll() is None, (self._folder / "sshd.log").read_text()
            assert time.monotonic() < deadline, "sshd does not start"
            time.sleep(0.05)
        return process

    def run(self, command: Sequence[str], **environment: str) -> subprocess.Popen[str]:
        """Start a command on this machine, in a session of its own, as a person at its keyboard would."""
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        (inside,) = children.read_text().split()
        enter = ["nsenter", "--target", inside, "--pid", "--mount", "--net", f"--wdns={Path.cwd()}"]
        return subprocess.Popen(
            [*enter, *command],
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def end(self) -> None:
        """End the machine with all that runs on it."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
