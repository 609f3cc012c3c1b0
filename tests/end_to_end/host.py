"""A machine of a test's own: namespaces with a sshd in them, so that Ray's commands meet no other Ray."""

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
# `ray stop` ends Ray processes by their names, all that it sees; and Ray notes under /tmp/ray what runs.
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
    """Return why there can be no such machine here, or None."""
    if not SSHD.exists() or shutil.which("rsync") is None:
        return "needs a sshd and rsync (Debian: openssh-server, rsync)"
    return None if possible(_SPACES) else "needs namespaces of its own (unshare)"


class Host(Machine):
    """A machine that answers SSH on its own loopback, with a home folder and keys of its own.

    Attributes:
        home: of whoever logs in.
        key: file with the private key that is let in.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.home, self.key = folder / "home", folder / "key"
        self.home.mkdir(parents=True)
        for key in ("key", "host-key"):
            generate = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)]
            subprocess.run(generate, check=True)
        own = {"HOME": str(self.home), **environment}
        told = " ".join(f'"{name}={value}"' for name, value in own.items())
        (folder / "sshd.conf").write_text(_CONFIG.format(folder=folder, environment=told))
        begin = _BEGIN.format(sshd=SSHD, config=folder / "sshd.conf")
        log = folder / "sshd.log"
        with log.open("wb") as output:
            super().__init__(_SPACES, begin, output.fileno())
        deadline = time.monotonic() + START_SECONDS
        while b"Server listening" not in log.read_bytes():
            assert self._process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, "sshd does not start"
            time.sleep(0.05)
