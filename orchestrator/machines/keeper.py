"""The keeper of a shared Ray: the process that starts the head, and ends it when no driver uses it.

`joining` runs it as `python -m orchestrator.machines.keeper FOLDER LINGER [SETUP GRANT]`. With a setup it
starts a head with the GPUs of the grant, whose locks it inherits and passes on; without one it keeps the
running head. It closes its standard output when a head runs or the start has failed.

No driver can join a head that is being ended: a driver holds the lock `users`, shared, from before it reads
the record until it has left, and a head is ended only by a process that holds `users` exclusively. The keeper
holds a lock of its own until it exits, and releases it before `users`, so a driver with `users` that finds
the keeper's lock taken can rely on the keeper. The kernel releases the locks of a killed process.
"""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from filelock import FileLock, Timeout

from orchestrator.machines.cluster_file import renew_token
from orchestrator.machines.devices import Grant, wanted
from orchestrator.machines.head import INHERITED, Head, Setup, own_text, running, temporary_folder
from orchestrator.system import System, lower_session

POLL_SECONDS = 0.5
START_SECONDS = 90.0
"""Time limit for one start of Ray, whose own timeouts are shorter."""

_STARTS = 2
"""Number of attempts, because Ray's own timeout of 30 s is too short for a busy machine."""


@contextmanager
def users(folder: Path, operation: int) -> Iterator[bool]:
    """Hold the lock of the shared Ray's users within a `with` block; yield False if it is taken.

    Args:
        folder: Runtime folder.
        operation: LOCK_SH or LOCK_EX of `fcntl`, which block, or one of them with LOCK_NB.
    """
    with _users_file(folder) as descriptor, _locked(descriptor, operation) as held:
        yield held


@contextmanager
def _users_file(folder: Path) -> Iterator[int]:
    """Open the file of the users' lock within a `with` block; closing it releases the lock."""
    # filelock has shared locks only as SQLite transactions, which would need a thread of their own.
    descriptor = os.open(folder / "users.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _locked(descriptor: int, operation: int) -> Iterator[bool]:
    try:
        fcntl.flock(descriptor, operation)
    except BlockingIOError:
        yield False
        return
    try:
        yield True
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def keeper_lock(folder: Path) -> FileLock:
    """Return the lock that a keeper holds while it runs."""
    return FileLock(folder / "keeper.lock", mode=0o600)


def keep(folder: Path, linger: float, setup: Setup | None, grant: Grant, asked: threading.Event) -> None:
    """Keep the head of the runtime folder until it ends, or no driver has used it for `linger` seconds.

    A head without drivers ends at once if another Ray requests one of its GPUs, or this process is asked to
    end.

    Args:
        folder: Runtime folder.
        linger: Idle timeout of the head in seconds.
        setup: Setup of a head to start if none runs; None to keep only a running head.
        grant: GPUs that this head may use.
        asked: Event that is set when this process is asked to end. It stays while a driver uses the head,
            because a head without a keeper runs on until another driver joins it.
    """
    lock = keeper_lock(folder)
    if not _acquired(lock, folder, asked, wait=setup is not None):
        return
    head = running(folder) or (_started(folder, setup, grant) if setup else None)
    if head is None:
        return
    os.close(sys.stdout.fileno())
    # The file stays open, so that the lock still works after the folder was deleted, as systemd deletes
    # $XDG_RUNTIME_DIR at a user's logout.
    with _users_file(folder) as descriptor:
        idle_since: float | None = None
        while head.lives():
            with _locked(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB) as alone:
                now = time.monotonic()
                idle_since = (idle_since if idle_since is not None else now) if alone else None
                if idle_since is not None and (
                    now - idle_since >= linger or asked.is_set() or wanted(head.devices)
                ):
                    head.end(folder)
                    lock.release()
                    return
            time.sleep(POLL_SECONDS)
    head.end(folder)  # remove the remains of a killed head
    lock.release()


def _acquired(lock: FileLock, folder: Path, asked: threading.Event, *, wait: bool) -> bool:
    """Acquire the keeper's lock; with `wait`, wait until another keeper ends or has a running head.

    It gives up when this process is asked to end.
    """
    while True:
        try:
            lock.acquire(timeout=0)
        except Timeout:
            if not wait or asked.is_set() or running(folder):
                return False
            time.sleep(POLL_SECONDS)
        else:
            return True


def _started(folder: Path, setup: Setup, grant: Grant) -> Head | None:
    """Start a head and return it when it answers, or None if Ray does not start."""
    if (before := Head.read(folder)) is not None:
        before.end(folder)  # it was killed, or its keeper was killed during the start
    for _ in range(_STARTS):
        head, process = _begin(folder, setup, grant)
        deadline = time.monotonic() + START_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            if head.published.exists() and (address := own_text(head.published).strip()):
                head = replace(head, address=address)
                head.write(folder)
                return head
            time.sleep(0.05)
        head.end(folder)
    return None


def _begin(folder: Path, setup: Setup, grant: Grant) -> tuple[Head, subprocess.Popen[bytes]]:
    """Start `ray start` with a new token, and record its process, which holds the locks of its GPUs.

    Ray opens its own folder, which contains its address, to every account. The folder is therefore inside one
    that no other account can enter.
    """
    renew_token(Path(os.environ["RAY_AUTH_TOKEN_PATH"]))
    temporary = temporary_folder()
    gpus = len(grant.uuids) or setup.gpus
    # Without locks on GPUs the variable is left as it is; without any GPU, nothing is visible.
    visible = {"CUDA_VISIBLE_DEVICES": ",".join(grant.uuids)} if grant.uuids or not gpus else {}
    command = [
        str(Path(sys.executable).with_name("ray")),
        *("start", "--head", "--block", "--port=0", "--include-dashboard=false", "--disable-usage-stats"),
        "--include-log-monitor=false",  # drivers discard the output of workers
        *(f"--num-cpus={setup.cpus}", f"--num-gpus={gpus}", f"--temp-dir={temporary}/r"),
    ]
    if importlib.util.find_spec("grpc"):
        # With grpcio, `ray start` opens a server for Ray's client, by default on the same port for all users.
        command.append(f"--ray-client-server-port={_free_port()}")
    process = subprocess.Popen(
        command,
        env={**os.environ, **visible},
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        stderr=sys.stderr,
        start_new_session=True,
        pass_fds=grant.descriptors,
    )
    lower_session(process.pid)
    grant.name(process.pid)
    system = System()
    inherited = {name: os.environ.get(name, "") for name in INHERITED}
    start = system.start_of(process.pid) or 0
    head = Head(
        process.pid,
        start,
        system.place(),
        temporary,
        setup,
        sys.executable,
        inherited,
        devices=grant.uuids,
    )
    head.write(folder)
    return head, process


def _free_port() -> int:
    with socket.create_server(("", 0)) as server:
        return int(server.getsockname()[1])


if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.umask(0o077)  # inherited by the workers
    to_end = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: to_end.set())
    given = Setup(**json.loads(sys.argv[3])) if len(sys.argv) > 3 else None
    gpus = Grant.parsed(sys.argv[4]) if given else Grant()
    if os.fork() == 0:  # the parent exits, so that no driver has to wait for this process
        keep(Path(sys.argv[1]), float(sys.argv[2]), given, gpus, to_end)
