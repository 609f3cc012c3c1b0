"""Hosts on a private network: namespaces, connected by virtual cables to a switch.

The network is invisible from outside; the processes of a host end with the host.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.end_to_end.machine import Machine, possible

START_SECONDS = 60.0
_SPACES = ["--pid", "--mount", "--net", "--uts"]
# Ray lists its running processes under /tmp/ray.
_BEGIN = """
hostname {name} && ip link set lo up && mkdir -p /tmp/ray && mount -t tmpfs none /tmp/ray || exit 1
for folder in {disks}; do mount -t tmpfs none $folder || exit 1; done
echo up
sleep infinity & wait
"""

_BRIDGE = "ip link add bridge type bridge && ip link set bridge up && echo up && exec sleep infinity"


def available() -> str | None:
    """Return why such hosts cannot be started here, or None if they can."""
    return None if possible(_SPACES) else "needs the permission to create namespaces (unshare, ip)"


def marks(timeout: float) -> list[pytest.MarkDecorator]:
    """Return the marks of slow tests that need such hosts.

    Args:
        timeout: of each test, in seconds.
    """
    why_not = available()
    needs = pytest.mark.skipif(why_not is not None, reason=str(why_not))
    return [pytest.mark.end_to_end, pytest.mark.slow, pytest.mark.timeout(timeout), needs]


class Switch:
    """A private network, 10.9.0.0/24."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", _BRIDGE], stdout=subprocess.PIPE, start_new_session=True
        )
        _wait_until_up(self._process)

    def plug(self, number: int, host: int) -> None:
        """Connect a host by a cable, and give it the address 10.9.0.<number>.

        Args:
            number: of the port.
            host: id of a process in the network namespace of the host.
        """
        self._do(f"ip link add port{number} type veth peer name eth0 netns {host}")
        self._do(f"ip link set port{number} master bridge up")
        inside = f"ip address add 10.9.0.{number}/24 dev eth0 && ip link set eth0 up"
        subprocess.run(["nsenter", "--target", str(host), "--net", "sh", "-c", inside], check=True)

    def unplug(self, number: int) -> None:
        """Remove the cable of a host that has ended, unless the kernel has removed it already."""
        self._do(f"ip link delete port{number}", check=False)

    def cut(self, number: int) -> None:
        """Drop all packets of a port silently: neither side receives an error."""
        self._do(f"ip link set port{number} nomaster")

    def mend(self, number: int) -> None:
        """Undo `cut`."""
        self._do(f"ip link set port{number} master bridge")

    def remove(self) -> None:
        """Remove the network."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()  # and close the pipe

    def _do(self, command: str, *, check: bool = True) -> None:
        enter = ["nsenter", "--target", str(self._process.pid), "--net"]
        subprocess.run([*enter, *command.split()], check=check, capture_output=not check)


class NetworkHost(Machine):
    """A host on a switch.

    Args:
        switch: switch that its cable is connected to.
        number: of its port; also the last part of its address.
        disks: folders on which it sees its own, initially empty disks.
    """

    def __init__(self, switch: Switch, number: int, disks: Sequence[Path] = ()) -> None:
        self.number, self.address = number, f"10.9.0.{number}"
        begin = _BEGIN.format(name=f"host-{number}", disks=" ".join(map(str, disks)))
        super().__init__(_SPACES, begin, subprocess.PIPE)
        _wait_until_up(self._process)
        self._switch = switch
        switch.plug(number, self._process.pid)

    def end(self) -> None:
        """Kill the host, and remove its cable."""
        super().end()
        self._switch.unplug(self.number)


def _wait_until_up(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    began = time.monotonic()
    assert process.stdout.readline() == b"up\n", "the namespaces cannot be created (unshare)"
    assert time.monotonic() - began < START_SECONDS
