"""Memory, handles and disk of a service that runs many tiny sweeps, one after the other, over HTTP.

    python -m benchmarks.soak_http --sweeps 200 --every 20 --pace 36     # two hours

A service with its own ledger and its own Ray runs in a process of its own. Each sweep has two trials of 20
steps. Rows are printed after the first sweep, and then after every few: `service` is the process of
`sweep serve`, `others` are its drivers, Ray and the workers that are kept warm; `kept` is the root, where the
checkpoints, report, logs and MLflow runs of each sweep stay on purpose.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import psutil

from benchmarks.http_load import service
from orchestrator import Sweep
from orchestrator.api import user_admin
from orchestrator.api.serving import running
from orchestrator.client.protocol import Backend
from tests.orchestrator.web.server import FILE
from tests.shared_ray import variables_of

MARK = "SWEEP_SOAK"
"""Environment variable by which the processes of the service are recognised."""

POLL_SECONDS = 0.2
LONGEST_SECONDS = 900.0
PACE_SECONDS = 6.5
"""Time between two submissions: a user may submit ten times a minute."""


@dataclass(frozen=True)
class Row:
    """What the service holds after some sweeps.

    Attributes:
        sweeps: Number of finished sweeps.
        seconds: Seconds of the last sweep, from submission to end.
        service_mb: Resident memory of the service.
        handles: Open files of the service.
        threads: Threads of the service.
        others: Number of other processes.
        others_mb: Resident memory of the other processes.
        kept_mb: Disk usage of the root.
        temporary_mb: Disk usage of Ray's session and of the runtime folder.
    """

    sweeps: int
    seconds: float
    service_mb: float
    handles: int
    threads: int
    others: int
    others_mb: float
    kept_mb: float
    temporary_mb: float


def soak(
    root: Path, temporary: Path, sweeps: int, every: int, *, pace: float = PACE_SECONDS
) -> Iterator[Row]:
    """Run sweeps through a service of their own, and yield a row after the first one and after every few.

    Args:
        root: Folder of everything that the sweeps write.
        temporary: Folder for Ray; its path must be short.
        sweeps: Number of sweeps.
        every: Number of sweeps between two rows.
        pace: Minimum number of seconds between two submissions.
    """
    _, token = user_admin.add("soak", "member", root=root)
    file = temporary / "tiny.yaml"
    file.write_text(FILE)
    with variables_of(temporary) as variables:
        own = {**variables, MARK: str(os.getpid()), "SWEEP_DATA": str(temporary / "data")}
        before = {name: os.environ.get(name) for name in own}
        os.environ.update(own)
        try:
            with service(root) as address:
                connected = Sweep.connect(address, token)
                for number in range(1, sweeps + 1):
                    began = time.monotonic()
                    ended(connected, connected.submit(file, new=True).id)
                    seconds = time.monotonic() - began
                    if number == 1 or number % every == 0:
                        yield measured(root, temporary, number, seconds)
                    time.sleep(max(0.0, pace - (time.monotonic() - began)) if number < sweeps else 0.0)
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})


def ended(service: Backend, sweep_id: str) -> None:
    """Wait until a sweep has ended.

    Raises:
        RuntimeError: it is not complete.
    """
    last = time.monotonic() + LONGEST_SECONDS
    while (state := service.status(sweep_id).state) in {
        "QUEUED",
        "RUNNING",
        "WAITING",
        "NEW",
    } and time.monotonic() < last:
        time.sleep(POLL_SECONDS)
    if state != "COMPLETE":
        raise RuntimeError(f"{sweep_id} must be COMPLETE, but it is {state}")


def measured(root: Path, temporary: Path, sweeps: int, seconds: float) -> Row:
    """Return the present resources of the service."""
    found = running(root=root)
    assert found is not None, "the service runs"
    serving = psutil.Process(found.process.pid)
    others = [process for process in marked() if process.pid not in {serving.pid, os.getpid()}]
    return Row(
        sweeps,
        seconds,
        serving.memory_info().rss / 1e6,
        serving.num_fds(),
        serving.num_threads(),
        len(others),
        sum(memory(process) for process in others) / 1e6,
        disk(root) / 1e6,
        disk(temporary) / 1e6,
    )


def marked() -> list[psutil.Process]:
    """Return the processes that were started by this one."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(MARK) == str(os.getpid()):
                found.append(process)
    return found


def memory(process: psutil.Process) -> int:
    """Return the resident memory of a process in bytes, 0 if it has ended."""
    with suppress(psutil.Error):
        return int(process.memory_info().rss)
    return 0


def disk(folder: Path) -> int:
    """Return the bytes of all files below a folder."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            total += path.lstat().st_size
    return total


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sweeps", type=int, default=200)
    parser.add_argument("--every", type=int, default=20)
    parser.add_argument("--pace", type=float, default=PACE_SECONDS, help="least seconds between submissions")
    given = parser.parse_args()
    names = [field.name for field in fields(Row)]
    print(" ".join(f"{name:>12}" for name in names), flush=True)
    with tempfile.TemporaryDirectory(prefix="soak") as temporary, tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "mlruns"
        for row in soak(root, Path(temporary), given.sweeps, given.every, pace=given.pace):
            print(" ".join(f"{value:12.1f}" for value in astuple(row)), flush=True)


if __name__ == "__main__":
    main()
