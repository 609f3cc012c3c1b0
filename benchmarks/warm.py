"""Latency of tiny sweeps that are handed to a running service, one after the other.

    python -m benchmarks.warm [--times 4] [--pause 15] [--parts] [--function]

A RotRNN of 1 layer (D 16, N 32, H 4) on ListOps at L 64: 8 trials of 400 steps, two at a time on two
processors, a report and a checkpoint every 50 steps. All sweeps are submitted to the same `sweep serve`, each
as another edition of one file. The first one compiles and starts Ray; it is printed by itself. Seconds count
from the start of the command `sweep submit` and, in brackets, from the commit of the submission: to the
first report in the ledger, and to the end of the driver, after the report, the evaluation on test, the
registered model, and the delivery of every event to MLflow. Two folders whose programs come out of the same
compilation cache must give the same bits: `--digests` prints a digest of every report and checkpoint of each
sweep. With `SWEEP_WARM=0` nothing is kept warm. `--function` sweeps, in place of the network, a function that
waits for 0.1 s before each of its 8 reports and checkpoints.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from orchestrator.ledger.ledger import Ledger

ROOT = Path(__file__).parents[1]
SPACE = """
task: listops
data: {source: generated, length: 64, min_length: 20, max_length: 60, examples: 2000, held_out: 256}
model: {layer: rotrnn, depth: 1, d_model: 16, d_state: 32, heads: 4, dropout: 0.1}
training: {steps: 400, interval: 50, batch_size: 16, recurrent_learning_rate: 1.0e-3}
search:
  gamma_init.min: {uniform: [0.1, 0.9]}
  learning_rate: {log_uniform: [1e-4, 1e-2]}
objective: {maximize: val/accuracy}
sampler: {random: {seed: 0}}
scheduler: none
budget: {trials: 8}
resources: {cpu: 1}
"""
FUNCTION_SPACE = """
trainable: {function: "train.py:train"}
search: {x: {uniform: [0, 1]}}
training: {steps: 8, interval: 1}
objective: {minimize: val/loss}
sampler: {random: {seed: 0}}
scheduler: none
budget: {trials: 8}
resources: {cpu: 1}
"""
FUNCTION = """
import time

def train(trial):
    for step in range(trial.start + 1, trial.steps + 1):
        time.sleep(0.1)
        (trial.folder / "step").write_text(str(step))
        if not trial.report(step, {"val/loss": trial.params["x"] / step}, checkpoint=trial.folder):
            return
"""
NOT_MEASURED = ("tokens_per_second", "seconds/")
"""Metrics of a report that are times."""

POLL_SECONDS = 0.02
LONGEST_SECONDS = 300.0


class Measured(NamedTuple):
    """Seconds of one sweep since the start of `sweep submit`.

    Attributes:
        commit: Until the submission is committed.
        report: Until the first report.
        end: Until the driver has ended.
    """

    commit: float
    report: float
    end: float


class Service:
    """A running `sweep serve` with its own ledger, its own Ray and its own data, in one folder."""

    def __init__(self, folder: Path, *, is_function: bool = False) -> None:
        self.folder, self.root = folder, folder / "mlruns"
        self.file = folder / "tiny.yaml"
        self.file.write_text(FUNCTION_SPACE if is_function else SPACE)
        (folder / "train.py").write_text(FUNCTION)
        places = {"SWEEP_ROOT": self.root, "SWEEP_DATA": folder / "data", "SWEEP_RUNTIME": folder / "run"}
        self._environment = {
            **os.environ,
            **{name: str(place) for name, place in places.items()},
            "PYTHONPATH": str(ROOT),
            "JAX_PLATFORMS": "cpu",
        }
        self._process = self._start("serve")
        while not (self.root / "serve.json").exists():  # the ledger appears before its tables
            if self._process.poll() is not None:
                sys.exit((folder / "output").read_text())
            time.sleep(POLL_SECONDS)

    def _start(self, *words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "orchestrator.sweep", *words]
        with (self.folder / "output").open("ab") as out:
            return subprocess.Popen(command, env=self._environment, stdout=out, stderr=out)

    def end(self) -> None:
        """End the service and its Ray."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait()
        self._start("cluster", "ray", "--end").wait()

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the rows of a query on the ledger."""
        with sqlite3.connect(f"file:{self.root}/sweeps.db?mode=ro", uri=True) as ledger:
            return ledger.execute(query, values).fetchall()

    def submit(self) -> tuple[str, Measured]:
        """Submit another edition of the file; return its id and its seconds once its driver has ended."""
        before, began = {name for (name,) in self.rows("select sweep_id from submission")}, time.time()
        if self._start("submit", str(self.file), "--new").wait():
            sys.exit((self.folder / "output").read_text())
        ((sweep_id, committed),) = [
            row for row in self.rows("select sweep_id, at from submission") if row[0] not in before
        ]
        while not (ended := self._ended(sweep_id)):
            if time.time() - began > LONGEST_SECONDS:
                sys.exit((self.folder / "output").read_text())
            time.sleep(POLL_SECONDS)
        ((reported,),) = self.rows(
            "select min(at) from report join trial on key = trial_key where sweep_id = ?", sweep_id
        )
        return sweep_id, Measured(committed - began, reported - began, ended - began)

    def _ended(self, sweep_id: str) -> float | None:
        """Return the time at which the driver had ended and all events were delivered, or None before."""
        ((state, code),) = self.rows("select state, code from submission where sweep_id = ?", sweep_id)
        if state != "ENDED" and code is None:
            return None
        now = time.time()
        with closing(Ledger.open(f"sqlite:///{self.root}/sweeps.db")) as ledger:
            left = ledger.backlog(sweep_id)
        assert code == 0, (self.folder / "output").read_text()
        assert not left, f"{left} records wait for MLflow"
        return now

    def digest(self, sweep_id: str) -> str:
        """Return a digest of the reports, the checkpoints and the evaluations of a sweep."""
        reports = self.rows(
            "select number, report.step, metrics from report join trial on key = trial_key"
            " where sweep_id = ? order by number, report.step",
            sweep_id,
        )
        evaluations = self.rows(
            "select number, evaluation.step, split, metrics, scores from evaluation"
            " join trial on key = trial_key where sweep_id = ? order by number",
            sweep_id,
        )
        values = [(*row[:2], _measured_out(row[2])) for row in reports]
        return hashlib.sha256(repr((values, evaluations)).encode()).hexdigest()[:16]

    def parts(self, sweep_id: str) -> list[tuple[str, float]]:
        """Return the events of a sweep in its ledger, with their seconds since its submission."""
        ((committed, started),) = self.rows(
            "select at, started_at from submission where sweep_id = ?", sweep_id
        )
        of = "select {} from {} join trial on trial.key = trial_key where sweep_id = ?"
        queries = {
            "sweep entered": "select created_at from sweep where id = ?",
            "first trial": "select min(created_at) from trial where sweep_id = ?",
            "first attempt launched": of.format("min(started_at)", "attempt"),
            "first attempt taken": of.format("min(taken_at)", "attempt"),
            "first report": of.format("min(at)", "report"),
            "last report": of.format("max(at)", "report"),
            "evaluation on test": of.format("max(at)", "evaluation"),
            "report written": "select finished_at from sweep where id = ?",
        }
        times = [("driver started", started)]
        times += [(name, self.rows(query, sweep_id)[0][0]) for name, query in queries.items()]
        return [(name, at - committed) for name, at in times]


def _measured_out(metrics: str) -> list[tuple[str, Any]]:
    values = json.loads(metrics)
    return sorted(item for item in values.items() if not item[0].startswith(NOT_MEASURED))


def main() -> None:
    """Submit the sweeps and print their seconds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=4, help="sweeps after the first one")
    parser.add_argument("--pause", type=float, default=15.0, help="seconds between two sweeps")
    parser.add_argument("--parts", action="store_true", help="print the course of each sweep")
    parser.add_argument("--digests", action="store_true", help="print a digest of the results of each sweep")
    parser.add_argument("--function", action="store_true", help="sweep a function instead of a network")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="warm-") as place:
        service = Service(Path(place), is_function=options.function)
        try:
            measured = _all(service, options)
        finally:
            service.end()
    later = measured[1:] or measured
    print(f"{len(os.sched_getaffinity(0))} processors, load at the end {os.getloadavg()[0]:.1f}\n")
    print("| | first report, s | end, s |\n|---|---|---|")
    print(f"| first sweep | {_phrase([measured[0]], 'report')} | {_phrase([measured[0]], 'end')} |")
    print(f"| median of {len(later)} more | {_phrase(later, 'report')} | {_phrase(later, 'end')} |")


def _all(service: Service, options: argparse.Namespace) -> list[Measured]:
    measured = []
    for number in range(options.times + 1):
        time.sleep(options.pause)
        sweep_id, seconds = service.submit()
        measured.append(seconds)
        digest = f" {service.digest(sweep_id)}" if options.digests else ""
        print(
            f"sweep {number}: {_phrase([seconds], 'report')} {_phrase([seconds], 'end')}{digest}", flush=True
        )
        if options.parts:
            for name, at in service.parts(sweep_id):
                print(f"    {at:6.2f} {name}")
    return measured


def _phrase(measured: list[Measured], name: str) -> str:
    whole = statistics.median(getattr(one, name) for one in measured)
    return f"{whole:.2f} ({statistics.median(getattr(one, name) - one.commit for one in measured):.2f})"


if __name__ == "__main__":
    main()
