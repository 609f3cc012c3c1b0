"""The Ray that the drivers of one user share on this machine: join it, start it, show it, end it.

A driver holds the lock `starting` until it has joined, so that one of several drivers starts the head and the
others join it. `machines/keeper.py` describes the locks of the users and of the keeper.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
from filelock import FileLock

from orchestrator.errors import Busy, NoCluster
from orchestrator.machines import devices, keeper
from orchestrator.machines.devices import Grant
from orchestrator.machines.hardware import VISIBLE_DEVICES, Hardware
from orchestrator.machines.head import INHERITED, RUNTIME, Head, Setup, running, runtime_folder
from orchestrator.process_secrets import is_secret

LINGER = "SWEEP_RAY_LINGER"
"""Environment variable: idle timeout of an unused Ray in seconds; 0 ends it with its last driver."""

LINGER_SECONDS = 300.0
ANSWER_SECONDS = 5.0
"""Timeout for a living head to accept a connection."""

OF_MACHINE = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"),
    *VISIBLE_DEVICES,
    *INHERITED,
    "PYTHONSAFEPATH",
    devices.LOCKS,
)
"""Variables that the head and its workers take from the driver that starts it, besides those of Ray.

Every other variable belongs to a sweep, whose workers set it themselves.
"""

_NOT_OF_HEAD = ("RAY_ADDRESS", "RAY_AUTH_TOKEN")


@contextmanager
def joined(hardware: Hardware, settings: Mapping[str, str], *, needs_gpu: bool = True) -> Iterator[Head]:
    """Join the shared Ray of this machine within a `with` block; start it if it does not run.

    Args:
        hardware: Hardware that this process may use.
        settings: Environment variables of a head that is started here.
        needs_gpu: Whether a Ray that found every GPU taken at its start cannot be used.

    Raises:
        NoCluster: Ray does not start or answer, the running Ray has another setup and is in use, or a GPU is
            needed and other users have all of them.
    """
    folder, setup = runtime_folder(), Setup.of(hardware)
    with ExitStack() as stack:
        with FileLock(folder / "starting.lock", mode=0o600):
            _end_unfit(folder, setup, hardware, needs_gpu)
            stack.enter_context(keeper.users(folder, fcntl.LOCK_SH))
            head = running(folder)
            if head is None:
                with devices.granted(hardware, needs_gpu=needs_gpu) as grant:
                    has_gpus = bool(grant.uuids) or not devices.has_locks(hardware)
                    head = _started(folder, setup if has_gpus else setup.without_gpus, settings, grant)
            elif not _fits(head, setup, needs_gpu):
                raise _unfit(head, setup, folder)
            else:
                _check_answers(head)
                _ensure_keeper(folder, settings)
        try:
            yield head
        finally:
            _ensure_keeper(folder, settings)


def _fits(head: Head, setup: Setup, needs_gpu: bool) -> bool:
    return head.setup == setup or (not needs_gpu and head.setup == setup.without_gpus)


def _end_unfit(folder: Path, setup: Setup, hardware: Hardware, needs_gpu: bool) -> None:
    """End a head without drivers that has another setup, or lacks a GPU that is free now."""
    head = running(folder)
    if head is None or (_fits(head, setup, needs_gpu) and not devices.has_more(head.devices, hardware)):
        return
    _ended_unused(folder, head)


def _ended_unused(folder: Path, head: Head) -> bool:
    """End a head that no driver uses; return False if a driver uses it."""
    deadline = time.monotonic() + 2 * keeper.POLL_SECONDS
    while time.monotonic() < deadline:
        # The keeper also takes the lock for a moment to check whether it is free.
        with keeper.users(folder, fcntl.LOCK_EX | fcntl.LOCK_NB) as alone:
            if alone:
                head.end(folder)
                return True
        time.sleep(0.05)
    return False


def _started(folder: Path, setup: Setup, settings: Mapping[str, str], grant: Grant) -> Head:
    """Start a keeper, which starts a head with the granted GPUs; return the head once it has started."""
    _start_keeper(folder, settings, setup, grant)
    if head := running(folder):
        return head
    lines = _log(folder).read_text(errors="replace").strip().splitlines()
    remedy = f"Run the same command again when the machine is less busy; {_log(folder)} says more."
    raise NoCluster("Ray", "does not start on this machine", lines[-1] if lines else "no answer", remedy)


def _ensure_keeper(folder: Path, settings: Mapping[str, str]) -> None:
    """Start a keeper of the running head, unless there is one."""
    if not folder.is_dir():
        # Systemd has deleted it at a logout. The keeper has its files open; the lock would create it again,
        # for other accounts to enter, and a new keeper would find no head.
        return
    lock = keeper.keeper_lock(folder)
    with suppress(TimeoutError):
        with lock.acquire(timeout=0):
            pass
        _start_keeper(folder, settings)


def _start_keeper(
    folder: Path, settings: Mapping[str, str], setup: Setup | None = None, grant: Grant = Grant()
) -> None:
    """Start a keeper in its own session; return when a head runs or the start has failed."""
    linger = os.environ.get(LINGER) or str(LINGER_SECONDS)
    start = [json.dumps(asdict(setup)), grant.text] if setup else []
    arguments = [str(folder), linger, *start]
    with _log(folder).open("wb") as log:
        subprocess.run(
            [sys.executable, "-m", keeper.__name__, *arguments],
            env=_environment(settings),
            cwd=Path(keeper.__file__).parents[2],  # Python finds this package there, installed or not
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
            pass_fds=grant.descriptors,
            check=False,
        )


def _environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a head: this process's variables that concern the machine and Ray."""
    of_ray = {name for name in os.environ if name.startswith("RAY_")} - {*_NOT_OF_HEAD}
    of_ray -= {name for name in of_ray if is_secret(name, os.environ[name])}
    own = {name: os.environ[name] for name in (*OF_MACHINE, *of_ray) if name in os.environ}
    return {**own, **settings}


def _check_answers(head: Head) -> None:
    if not head.answers(ANSWER_SECONDS):
        must, got = "does not accept connections", f"process {head.pid} at {head.address}"
        raise NoCluster("the Ray of this machine", must, got, "End it with `cluster ray --end`.")


def _unfit(head: Head, setup: Setup, folder: Path) -> NoCluster:
    using = ", ".join(str(pid) for pid in users_of(folder) if pid != os.getpid())
    return NoCluster(
        "the Ray of this machine",
        f"must match this driver: {setup.differences(head.setup)}",
        f"{head.setup.differences(setup)} in process {head.pid}, used by process {using or 'unknown'}",
        "Wait until that process has ended, end Ray with `cluster ray --end`, or set"
        f" {RUNTIME} to another folder for another Ray: it counts processors again and takes free GPUs.",
    )


def _log(folder: Path) -> Path:
    return folder / "keeper.log"


# ------------------------------------------------------------------ for people


@dataclass(frozen=True)
class SharedRay:
    """The shared Ray of this machine.

    Attributes:
        head: Head of this Ray.
        users: Ids of the processes that use it.
    """

    head: Head
    users: tuple[int, ...]


def shared_ray() -> SharedRay | None:
    """Return the shared Ray of this machine, or None if none runs."""
    folder = runtime_folder()
    head = running(folder)
    return SharedRay(head, users_of(folder)) if head else None


def end_shared_ray() -> Head | None:
    """End the shared Ray of this machine; return its head, or None if none runs.

    Raises:
        Busy: A process uses it.
    """
    folder = runtime_folder()
    with FileLock(folder / "starting.lock", mode=0o600):
        head = running(folder)
        if head is None or _ended_unused(folder, head):
            return head
    users = ", ".join(f"process {pid}" for pid in users_of(folder)) or "another process"
    remedy = "`stop` the sweeps that use it, or wait for them."
    raise Busy("the Ray of this machine", f"is in use by {users}", "", remedy)


def users_of(folder: Path) -> tuple[int, ...]:
    """Return the ids of the processes that have the users' lock open, except for the keeper."""
    users, keepers = (str((folder / name).resolve()) for name in ("users.lock", "keeper.lock"))
    opened = {process.pid: _opened(process) for process in psutil.process_iter()}
    return tuple(pid for pid, files in opened.items() if users in files and keepers not in files)


def _opened(process: psutil.Process) -> set[str]:
    try:
        return {file.path for file in process.open_files()}
    except psutil.Error:
        return set()  # another user's process, or one that has ended
