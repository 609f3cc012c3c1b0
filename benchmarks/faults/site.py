"""Runs a sweep that takes seconds in its own folder, and inspects its stores."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from orchestrator.ledger.sweeps.records import FINISHED_TRIAL, TrialRecord
from orchestrator.upkeep.check import leftovers
from tests.end_to_end.commands import Commands, finish
from tests.orchestrator.tracking.stored import without_value

SPACE = """
task: copy
data: {{delay: 6, examples: 400, held_out: 40}}
model: {{layer: {layer}, depth: 1, d_model: 8, d_state: 16{model}}}
training: {{steps: {steps}, interval: 10, batch_size: 8, recurrent_learning_rate: 1e-3}}
evaluate: {{examples: 40}}
search:
  learning_rate: {{choice: [1e-3, 2e-3, 3e-3, 5e-3, 8e-3, 1e-2, 2e-2, 3e-2]}}
{search}objective: {{minimize: val/loss}}
sampler: {{{sampler}: {{seed: 3}}}}
scheduler: {scheduler}
budget: {{trials: {trials}}}
resources: {{cpu: {cpu}}}
"""

PLAIN: dict[str, Any] = {
    "layer": "lds",
    "model": "",
    "search": "",
    "steps": 40,
    "sampler": "random",
    "scheduler": "{none: {}}",
    "trials": 8,
    "cpu": 1,
}
MEASURED = re.compile("seconds/|tokens_per_second")
OUTCOME = ("parameters", "seed", "value", "best step", "curve")
"""Names of what `Site.outcome` returns of a trial."""
PATIENCE = 900.0
"""Timeout in seconds for any wait: generous, because the machine may be busy."""


class Site(Commands):
    """The root folder of one sweep; all sites of a run share data and compiled programs."""

    def __init__(self, folder: Path, name: str) -> None:
        own = folder / name
        own.mkdir(parents=True)
        super().__init__(own, folder / "shared", mark=f"{os.getpid()}-{time.monotonic_ns()}")
        self.file = own / "space.yaml"

    def write(self, **changes: Any) -> Site:
        """Write the search-space file."""
        self.file.write_text(SPACE.format(**{**PLAIN, **changes}))
        return self

    def drive(self, *options: str, **environment: str) -> subprocess.Popen[str]:
        """Start a driver for the search-space file, without progress output."""
        return self.start(str(self.file), "--quiet", *options, **environment)

    def finished(self, *options: str, **environment: str) -> tuple[int, str]:
        """Run a driver until it exits; return its exit code and its output."""
        return finish(self.drive(*options, **environment), PATIENCE)

    @property
    def ledger_file(self) -> Path:
        """The SQLite file of the ledger."""
        return self.root / "sweeps.db"

    @property
    def id(self) -> str:
        """The id of the only sweep."""
        (sweep,) = self.ledger.sweeps()
        return sweep.id

    def trials(self) -> list[TrialRecord]:
        """Return the trials of the only sweep."""
        return self.ledger.trials(self.id)

    def settled(self) -> dict[str, Any]:
        """Return the fields of the finished trials that must never change again, by trial."""
        done = [trial for trial in self.trials() if trial.state in FINISHED_TRIAL]
        return {trial.key: (trial.params, trial.state, trial.value, trial.attempts) for trial in done}

    def reports(self) -> int:
        """Return the number of reports in the ledger; 0 if the ledger does not exist yet."""
        if not self.ledger_file.exists():
            return 0
        with sqlite3.connect(f"file:{self.ledger_file}?mode=ro", uri=True, timeout=30) as reader:
            try:
                return int(reader.execute("SELECT count(*) FROM report").fetchone()[0])
            except sqlite3.OperationalError:
                return 0  # the tables do not exist yet

    def until_reports(self, count: int, driver: subprocess.Popen[str]) -> bool:
        """Wait until the ledger has this many reports. Return False if the driver ends first."""
        return until(lambda: self.reports() >= count, driver)

    def outcome(self) -> dict[str, Any]:
        """Return the reproducible part of each trial: parameters, seed, value, best step and curve."""
        curves: dict[str, list[Any]] = {}
        for report in self.ledger.reports(self.id):
            kept = {name: value for name, value in report.metrics.items() if not MEASURED.search(name)}
            curves.setdefault(report.trial_key, []).append((report.step, kept))
        return {
            trial.key: (trial.params, trial.seed, trial.value, trial.best_step, curves.get(trial.key))
            for trial in self.trials()
        }

    def repeated(self) -> dict[str, int]:
        """Return the number of repeated intervals of each trial, counted from the workers' logs."""
        repeats = {}
        for trial in self.trials():
            log = self.root / "logs" / self.id / f"{trial.key}.log"
            steps = re.findall(r": step (\d+):", log.read_text()) if log.exists() else []
            repeats[trial.key] = len(steps) - len(set(steps))
        return repeats

    def check(self) -> str:
        """Return the problems that `check` reports, or an empty string."""
        code, output = finish(self.start("check", self.id), PATIENCE)
        return "" if code == 0 else f"check: {output.strip()[:300]}"

    def leftovers(self) -> list[Path]:
        """Return incomplete saves of workers, which the next run deletes."""
        return leftovers(self.ledger, self.id, self.root / "checkpoints" / self.id)

    def left_running(self) -> int:
        """Return the number of processes that are still running after the grace period."""
        return len(self.wait_until_gone())


def until(condition: Callable[[], object], process: subprocess.Popen[str] | None = None) -> bool:
    """Wait until a condition returns a true value. Return False if the process ends first."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if process is not None and process.poll() is not None:
            return False
        assert time.monotonic() < deadline, f"the condition did not hold within {PATIENCE:g} s"
        time.sleep(0.05)
    return True


def kill(process: subprocess.Popen[str]) -> None:
    """Kill a driver with SIGKILL."""
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()


def mlflow(root: Path) -> tuple[Mapping[str, str], Counter[tuple[str, str, int]]]:
    """Return the status of each MLflow run by the first part of its name, and the number of each point.

    The status of a repeated name is DUPLICATE. Deleted runs are left out: a run that the ledger could not
    record is deleted at the next delivery.
    """
    statuses: dict[str, str] = {}
    with sqlite3.connect(f"file:{root / 'mlflow.db'}?mode=ro", uri=True, timeout=30) as reader:
        for title, status in reader.execute("SELECT name, status FROM runs WHERE lifecycle_stage = 'active'"):
            name = without_value(title)
            statuses[name] = "DUPLICATE" if name in statuses else status
        query = "SELECT runs.name, metrics.key, step FROM metrics JOIN runs USING (run_uuid)"
        query += " WHERE lifecycle_stage = 'active'"
        rows = reader.execute(query)
        return statuses, Counter((without_value(title), name, step) for title, name, step in rows)


def difference(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """Return the first trial whose reproducible part differs, and how, or an empty string.

    Args:
        wanted: `Site.outcome` of the undisturbed sweep.
        found: `Site.outcome` of another sweep.
    """
    for key in sorted(wanted.keys() | found.keys()):
        theirs, ours = wanted.get(key), found.get(key)
        if theirs is None or ours is None:
            return f"{key} is in one of the sweeps only"
        for name, one, other in zip(OUTCOME, theirs, ours, strict=True):
            if one != other:
                return f"{name} of {key}: {other}, undisturbed {one}"[:600]
    return ""


def disagreement(site: Site) -> str:
    """Compare every point in MLflow with the ledger; return the differences, or an empty string."""
    statuses, points = mlflow(site.root)
    wanted: set[tuple[str, str, int]] = set()
    for report in site.ledger.reports(site.id):
        run = f"{int(report.trial_key.rpartition('-')[2]):04d}"
        # Durations are not sent to MLflow, and sizes are tags there. First norms are points of step 0.
        delivered = (name for name in report.metrics if not name.startswith(("seconds/", "size/")))
        wanted |= {
            (run, name.removeprefix("initial_"), 0 if name.startswith("initial_") else report.step)
            for name in delivered
        }
    curves = {name for _, name, _ in wanted}
    missing = wanted - points.keys()
    strange = {point for point in points.keys() - wanted if point[1] in curves}
    twice = [point for point, count in points.items() if count > 1]
    unended = [name for name, status in statuses.items() if status in ("RUNNING", "DUPLICATE")]
    differences: dict[str, Collection[object]] = {
        "points missing": missing,
        "points of no report": strange,
        "points twice": twice,
        "runs not ended, or duplicated": unended,
    }
    found = [f"{len(items)} {what}" for what, items in differences.items() if items]
    if found and (pending := site.ledger.backlog(site.id)):
        found.append(f"{pending} events not delivered yet")
    return ", ".join(found)
