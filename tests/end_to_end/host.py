"""A machine for one test: namespaces that run sshd and hide every other Ray from Ray's commands."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from tests.end_to_end.machine import Machine, possible

SSHD = Path("/usr/sbin/sshd")
START_SECONDS = 20.0

_SPACES = ["--pid", "--mount", "--net"]
# `ray stop` ends all Ray processes that it sees, and Ray lists the running ones under /tmp/ray.
_BEGIN = """
ip link set lo up
mkdir -p /tmp/ray /run/sshd
mount -t tmpfs none /tmp/ray
{sshd} -D -e -f {config} &
wait $!
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
    """Return why such a machine cannot be started here, or None if it can."""
    if not SSHD.exists() or shutil.which("rsync") is None:
        return "needs sshd and rsync (Debian: openssh-server, rsync)"
    return None if possible(_SPACES) else "needs the permission to create namespaces (unshare)"


class Host(Machine):
    """A machine that accepts SSH on its own loopback interface.

    Attributes:
        home: home folder of the user who logs in.
        key: file of the private key that the machine accepts.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.home, self.key = folder / "home", folder / "key"
        self.home.mkdir(parents=True)
        for key in ("key", "host-key"):
            generate = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)]
            subprocess.run(generate, check=True)
        own = {"HOME": str(self.home), **environment}
        variables = " ".join(f'"{name}={value}"' for name, value in own.items())
        (folder / "sshd.conf").write_text(_CONFIG.format(folder=folder, environment=variables))
        begin = _BEGIN.format(sshd=SSHD, config=folder / "sshd.conf")
        log = folder / "sshd.log"
        with log.open("wb") as output:
            super().__init__(_SPACES, begin, output.fileno())
        deadline = time.monotonic() + START_SECONDS
        while b"Server listening" not in log.read_bytes():
            assert self._process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, "sshd does not start"
            time.sleep(0.05)
