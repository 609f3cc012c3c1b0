"""The Ray that the drivers of one user share on this machine: the record of its head, and its end.

The runtime folder holds the record (`ray.json`), the token (`ray-token`) that each head writes, the output of
the keeper (`keeper.log`) and three locks, which `joining` and `keeper` describe. An account that can write
there or to Ray's own folder could run code as this user. Both folders are therefore closed to other accounts,
and an address in a file that another account may have written is refused. This module imports neither Ray nor
JAX.

`python -m orchestrator.machines.head FOLDER ray start ...` starts a node of a cluster in the same way: Ray's
own folder is in FOLDER, which is created.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import signal
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from orchestrator.errors import BadInput
from orchestrator.machines.hardware import VISIBLE_DEVICES, Hardware
from orchestrator.system import System

RUNTIME = "SWEEP_RUNTIME"
"""Environment variable: folder of the shared Ray's record. Drivers with different folders use different
Rays."""

INHERITED = ("GLIBC_TUNABLES", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH")
"""Variables that take effect only when a process starts."""

LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Undocumented setting: a Ray of one machine, and its drivers, use only the loopback address, as by default
on macOS and Windows. Other machines could reach any other address."""

END_SECONDS = 10.0
"""Time limit for a head to end after SIGTERM; then it is killed."""

_LONGEST_FOLDER = 29
"""Maximum length of a folder's path that keeps Ray's Unix sockets below the limit of 107 bytes."""


@dataclass(frozen=True)
class Setup:
    """Properties that drivers must have in common to share a Ray.

    Attributes:
        ray: Version of Ray.
        python: Version of Python.
        cpus: Processors.
        gpus: GPUs or host devices.
        devices: Environment variables that select the visible GPUs, such as `CUDA_VISIBLE_DEVICES=0`.
    """

    ray: str
    python: str
    cpus: int
    gpus: int
    devices: str

    @classmethod
    def of(cls, hardware: Hardware) -> Setup:
        """Return the setup of this process, which may use `hardware`."""
        devices = " ".join(f"{name}={os.environ[name]}" for name in VISIBLE_DEVICES if name in os.environ)
        return cls(version("ray"), platform.python_version(), hardware.cpus, hardware.gpus, devices)

    @property
    def without_gpus(self) -> Setup:
        """Setup of a Ray without GPUs, because others use all of them."""
        return replace(self, gpus=0)

    def differences(self, other: Setup) -> str:
        """Return the fields that differ from another setup, with their values in this one."""
        names = [field.name for field in fields(self)]
        own, others = asdict(self), asdict(other)
        return ", ".join(
            f"{name} {'unset' if own[name] == '' else own[name]}"
            for name in names
            if own[name] != others[name]
        )


@dataclass(frozen=True)
class Head:
    """The head of a shared Ray: the process `ray start --head --block`.

    Attributes:
        pid: Id of the process, of its session and of its process group.
        start: Start of the process, as `System.start_of` counts it.
        place: Place of the process, as `System.place` returns it.
        temporary: Folder, closed to other accounts, that contains Ray's own folder with its sockets and logs.
        setup: Setup that a driver must have to join.
        executable: Python interpreter of workers, unless a driver sets its own.
        inherited: Variables of `INHERITED`, as the head and its workers have them.
        address: Address `host:port`; empty while Ray starts.
        devices: UUIDs of the GPUs that it has locked; empty if GPUs are not locked.
    """

    pid: int
    start: int
    place: str
    temporary: str
    setup: Setup
    executable: str
    inherited: Mapping[str, str]
    address: str = ""
    devices: tuple[str, ...] = ()

    @property
    def of_ray(self) -> Path:
        """Return Ray's own folder, which is open to every account that can enter `temporary`."""
        return Path(self.temporary, "r")

    @property
    def published(self) -> Path:
        """Return the file to which Ray writes its address when it has started."""
        return self.of_ray / "ray_current_cluster"

    @classmethod
    def read(cls, folder: Path) -> Head | None:
        """Return the head that the runtime folder records, or None.

        Raises:
            BadInput: Another account may have written the record.
        """
        try:
            facts: dict[str, Any] = json.loads(own_text(_record(folder)))
            own = {"setup": Setup(**facts["setup"]), "devices": tuple(facts.get("devices", ()))}
            return cls(**{**facts, **own})
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def write(self, folder: Path) -> None:
        """Record this head in the runtime folder, readable by its owner alone."""
        descriptor, hidden = tempfile.mkstemp(prefix=".ray.", dir=folder)  # of mode 0600
        with os.fdopen(descriptor, "w") as file:
            json.dump(asdict(self), file, indent=1)
        Path(hidden).replace(_record(folder))

    def lives(self) -> bool:
        """Return True if the process of the head has not ended."""
        system = System()
        return self.place == system.place() and self.start == system.start_of(self.pid)

    def answers(self, seconds: float) -> bool:
        """Return True if the head accepts a connection within `seconds`."""
        host, _, port = self.address.rpartition(":")
        with suppress(OSError, ValueError):
            socket.create_connection((host, int(port)), seconds).close()
            return True
        return False

    def end(self, folder: Path) -> None:
        """End the head and all its processes; remove its files and its record."""
        if self.lives():
            family = _family(self.pid)
            # Workers, which may use a GPU, must end before the head, whose end releases the lock on that GPU.
            workers = [process for process in family if _is_worker(process)]
            _kill(workers)
            psutil.wait_procs(workers, timeout=END_SECONDS)
            os.kill(self.pid, signal.SIGTERM)
            _wait_for(self, END_SECONDS)
            _kill(family)
        recorded = Head.read(folder)
        if recorded is None or (recorded.pid, recorded.start) == (self.pid, self.start):
            _record(folder).unlink(missing_ok=True)
        shutil.rmtree(self.temporary, ignore_errors=True)


def running(folder: Path) -> Head | None:
    """Return the head of the runtime folder if it is alive and has started."""
    head = Head.read(folder)
    return head if head is not None and head.address and head.lives() else None


def runtime_folder() -> Path:
    """Return the folder of this user's shared Ray on this machine; create it if it is missing.

    Another machine, container or network namespace has another folder, even below the same home folder.

    Raises:
        BadInput: The folder belongs to another user, or others can enter it.
    """
    spaces = [socket.gethostname(), *(_link(f"/proc/self/ns/{kind}") for kind in ("pid", "net"))]
    folder = _base() / hashlib.sha256(" ".join(spaces).encode()).hexdigest()[:8]
    close_folder(folder)
    return folder


def close_folder(folder: Path) -> None:
    """Create a folder that no other account can enter; check the folder if it exists.

    Raises:
        BadInput: It belongs to another user, or others can enter it.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    facts = folder.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & 0o077:
        kind = "" if stat.S_ISDIR(facts.st_mode) else ", not a folder"
        got = f"user {facts.st_uid}, mode {stat.S_IMODE(facts.st_mode):04o}{kind}"
        must = f"must be a folder that belongs to user {os.geteuid()} and that no other user can enter"
        raise BadInput(str(folder), must, got, f"Remove it, or set {RUNTIME} to a folder of your own.")


def own_text(path: Path) -> str:
    """Return the text of a file that no other account can have written.

    Raises:
        BadInput: Another account owns the file or may write to it.
        OSError: The file cannot be read, or is a link.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, encoding="utf-8") as file:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & 0o022:
            got = f"user {facts.st_uid}, mode {stat.S_IMODE(facts.st_mode):04o}"
            must = f"must be a file that only user {os.geteuid()} can write"
            raise BadInput(str(path), must, got, "Remove it.")
        return file.read()


def temporary_folder() -> str:
    """Create a folder that no other account can enter, with a path short enough for Ray's sockets."""
    parent = os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()
    return tempfile.mkdtemp(prefix="ray-", dir=parent if len(parent) <= _LONGEST_FOLDER else "/tmp")


def token_file(folder: Path) -> Path:
    """Return the path of the shared Ray's token."""
    return folder / "ray-token"


def _base() -> Path:
    if named := os.environ.get(RUNTIME):
        return Path(named)
    session = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
    # `su` keeps the variable, which then names a folder of another user.
    if session.is_absolute() and session.is_dir() and session.stat().st_uid == os.geteuid():
        return session / "sweeps"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sweeps"


def _link(path: str) -> str:
    try:
        return os.readlink(path)  # noqa: PTH115 - the target is a name, not a path
    except OSError:
        return ""  # macOS has no namespaces


def _record(folder: Path) -> Path:
    return folder / "ray.json"


def _family(pid: int) -> list[psutil.Process]:
    try:
        head = psutil.Process(pid)
        return [head, *head.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _is_worker(process: psutil.Process) -> bool:
    """Return True if Ray has started a process to run actors or tasks."""
    try:
        return "".join(process.cmdline()[:1]).startswith("ray::")
    except psutil.Error:
        return False  # it has ended


def _kill(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.Error):
            process.kill()


def _wait_for(head: Head, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while head.lives() and time.monotonic() < deadline:
        time.sleep(0.05)


if __name__ == "__main__":
    close_folder(Path(sys.argv[1]))
    os.execvp(sys.argv[2], [*sys.argv[2:], f"--temp-dir={sys.argv[1]}/r"])
