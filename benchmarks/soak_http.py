"""Memory, handles and disk of a service that runs many tiny sweeps, one after the other, over HTTP.

    python -m benchmarks.soak_http --sweeps 200 --every 20

A service with its own ledger and its own Ray runs in a process of its own. Each sweep has two trials of a
function that takes milliseconds. Rows are printed before the first sweep, after it, and then after every few:
`service` is the process of `sweep serve`, `others` are its drivers, Ray and the workers that are kept warm;
`kept` is the root, where the checkpoints, report, logs and MLflow runs of each sweep stay on purpose. In the
end all sweeps are archived, deleted and collected; the last row and the list after it are what remains.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import astuple, dataclass, fields
from functools import partial
from pathlib import Path

import psutil
from sqlalchemy import Connection, Table, func, select

from benchmarks.http_load import service
from orchestrator.api.local import LocalBackend
from orchestrator.api.maintenance import collect_garbage
from orchestrator.api.serving import running
from orchestrator.client.protocol import Backend
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.tables import METADATA
from orchestrator.storage.paths import Paths
from tests.shared_ray import variables_of

MARK = "SWEEP_SOAK"
"""Environment variable by which the processes of the service are recognised."""

POLL_SECONDS = 0.2
LONGEST_SECONDS = 900.0
PACE_SECONDS = 0.0
"""Least time between two submissions."""

MLFLOW_TABLES = ("runs", "logged_models", "model_versions")

FILE = """\
trainable: {function: tiny.py:train}
search: {rate: {uniform: [0.1, 0.5]}}
training: {steps: 2, interval: 1}
objective: {minimize: loss}
sampler: {random: {seed: 1}}
scheduler: none
budget: {trials: 2}
"""
FUNCTION = """\
def train(trial):
    for step in range(trial.start + 1, trial.steps + 1):
        if not trial.report(step, {"loss": trial.params["rate"] / step}):
            return
"""


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
        files: Number of files under the root.
        rows: Number of rows of the ledger, except those of the audit log.
        runs: Number of runs, models and versions of models in MLflow.
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
    files: int
    rows: int
    runs: int
    temporary_mb: float


def soak(
    root: Path, temporary: Path, sweeps: int, every: int, *, pace: float = PACE_SECONDS
) -> Iterator[Row]:
    """Run sweeps through a service of their own, and then remove them all.

    A row is yielded before the first sweep, after it and after every few, and after the removal.

    Args:
        root: Folder of everything that the sweeps write.
        temporary: Folder for Ray; its path must be short.
        sweeps: Number of sweeps.
        every: Number of sweeps between two rows.
        pace: Minimum number of seconds between two submissions.
    """
    file, backend = temporary / "tiny.yaml", LocalBackend(root, temporary / "data")
    file.write_text(FILE)
    (temporary / "tiny.py").write_text(FUNCTION)
    with variables_of(temporary) as variables:
        own = {**variables, MARK: str(os.getpid()), "SWEEP_DATA": str(temporary / "data")}
        before = {name: os.environ.get(name) for name in own}
        os.environ.update(own)
        try:
            with service(root):
                yield measured(root, temporary, 0, 0.0)
                for number in range(1, sweeps + 1):
                    began = time.monotonic()
                    ended(backend, backend.submit(file, profile=None, new=True).id)
                    seconds = time.monotonic() - began
                    if number == 1 or number % every == 0:
                        yield measured(root, temporary, number, seconds)
                    time.sleep(max(0.0, pace - (time.monotonic() - began)) if number < sweeps else 0.0)
                began = time.monotonic()
                remove(backend, root)
                yield measured(root, temporary, 0, time.monotonic() - began)
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


def remove(backend: LocalBackend, root: Path) -> None:
    """Archive, delete and collect every sweep.

    Raises:
        RuntimeError: A sweep is still driven.
    """
    for sweep in backend.sweeps():
        last = time.monotonic() + LONGEST_SECONDS
        while backend.status(sweep.id).submission != "ENDED" and time.monotonic() < last:
            time.sleep(POLL_SECONDS)
        backend.shelve(sweep.id, "archived")
        backend.shelve(sweep.id, "deleted")
    if busy := collect_garbage(delete=True, root=root).busy:
        raise RuntimeError(f"no sweep must be driven: {busy}")


def rows_of(root: Path) -> Mapping[str, int]:
    """Return the number of rows of each table of the ledger that has any."""
    with closing(Ledger.open(Paths(root).ledger_url)) as ledger:
        counts = {table.name: ledger.query(partial(_count, table)) for table in METADATA.sorted_tables}
    return {name: count for name, count in counts.items() if count}


def _count(table: Table, connection: Connection) -> int:
    return int(connection.execute(select(func.count()).select_from(table)).scalar_one())


def mlflow_rows(root: Path) -> int:
    """Return the number of runs, logged models and versions of registered models in MLflow's database."""
    file = root / "mlflow.db"
    if not file.exists():
        return 0
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
        counts = [connection.execute(f"SELECT count(*) FROM {table}").fetchone() for table in MLFLOW_TABLES]
    return sum(count for (count,) in counts)


def files_of(root: Path) -> list[str]:
    """Return the files under a root, relative to it, without those of SQLite's logs."""
    found = [path for path in root.rglob("*") if not path.is_dir()]
    return sorted(str(path.relative_to(root)) for path in found if not path.name.endswith(("-wal", "-shm")))


def measured(root: Path, temporary: Path, sweeps: int, seconds: float) -> Row:
    """Return the present resources of the service."""
    last = time.monotonic() + LONGEST_SECONDS
    while (found := running(root=root)) is None and time.monotonic() < last:
        time.sleep(POLL_SECONDS)
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
        len(files_of(root)),
        sum(count for name, count in rows_of(root).items() if name != "audit"),
        mlflow_rows(root),
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
        print("rows that remain:", ", ".join(f"{count} {name}" for name, count in rows_of(root).items()))
        print("files that remain:", ", ".join(files_of(root)))


if __name__ == "__main__":
    main()
