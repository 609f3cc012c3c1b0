"""Load of a sweep's driver and stores as the cluster grows: Ray's fake nodes, trials that only report.

    python -m benchmarks.scaling [--nodes 3 6 12 18] [--seconds 60] [--pause 1.0]
    python -m benchmarks.scaling --decisions

`--decisions` runs without Ray: processor time of the session and the ledger alone, on SQLite. Otherwise every
node is a raylet with one processor on this machine. Every trial reports, waits and trains nothing, so that
only the service is measured: processor time of the driver, of its MLflow writer, of Ray's head and of a
raylet. Each table is followed by the lines fitted to its points and the largest deviation from each line.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from benchmarks.orchestration import SPACE, metrics_of
from benchmarks.service import begin
from benchmarks.slopes import Line, lines, table
from trainables.trial import TrialSettings

ENDLESS = 1_000_000


def measured(nodes: int, seconds: float, pause: float, folder: Path) -> dict[str, float]:
    """Run trials on a number of fake nodes for `seconds` and return the measured figures."""
    from orchestrator.schedule import environment

    # The address is set once the head has started.
    os.environ.update({"RAY_worker_niceness": "0", "RAY_ADDRESS": "to be known"})
    environment.prepare(folder / "ray-token")
    from ray.cluster_utils import Cluster

    from orchestrator.assignment import Outcome, SavedCheckpoint
    from orchestrator.machines.hardware import Hardware
    from orchestrator.schedule import cluster, tuner
    from orchestrator.schedule.worker import Worker

    class Reporting(Worker):
        """A worker that reports like a trial and waits between reports."""

        def step(self) -> dict[str, Any]:
            time.sleep(pause)
            assignment = self._assignment
            assert isinstance(assignment.settings, TrialSettings)
            self._at = getattr(self, "_at", 0) + 1
            saved = SavedCheckpoint(f"{assignment.checkpoints}/step-{self._at}", self._at, "0" * 64, 1)
            rate = assignment.settings.training.learning_rate
            return Outcome(assignment.attempt_id, self._at, False, metrics_of(rate, 1), saved).to_result()

    endless = SPACE.format(trials=nodes).replace("steps: 5,", f"steps: {ENDLESS},")
    sweep, ledger, session, share, shipper = begin(endless, folder)
    head = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    for _ in range(nodes):
        head.add_node(num_cpus=1, object_store_memory=80 * 1024 * 1024, wait=False)
    head.wait_for_nodes(timeout=600)
    os.environ["RAY_ADDRESS"] = head.address
    clock = Clock(session, ledger, sweep.id, nodes, seconds)

    def tick(_: Any) -> None:
        shipper.nudge()
        clock.look()

    try:
        with cluster.connected(Hardware(1, 0)):
            tuner.run(session, share, [], deadline=600, tick=tick, trainable=Reporting)
    finally:
        shipper.close()
        head.shutdown()
    return clock.figures


class Clock:
    """Samples the processes once all trials report, and again after `seconds`; then stops the session."""

    def __init__(self, session: Any, ledger: Any, sweep_id: str, nodes: int, seconds: float) -> None:
        self._session, self._ledger, self._sweep_id = session, ledger, sweep_id
        self._nodes, self._seconds = nodes, seconds
        self._began: tuple[float, int, dict[str, float]] | None = None
        self.figures: dict[str, float] = {}

    def look(self) -> None:
        """Take the first or the last sample when it is due."""
        reporting = sum(run.step > 0 for run in self._session.running.values())
        if self._began is None and reporting == self._nodes:
            self._began = (time.perf_counter(), self._reports(), _processor_seconds())
        elif self._began and not self.figures and time.perf_counter() - self._began[0] >= self._seconds:
            self._end()

    def _end(self) -> None:
        assert self._began is not None
        took, reports = time.perf_counter() - self._began[0], self._reports() - self._began[1]
        now = _processor_seconds()
        used = {name: now[name] - self._began[2].get(name, 0.0) for name in now}
        self.figures = {
            "nodes": self._nodes,
            "reports_a_second": reports / took,
            "driver_ms_a_report": 1000 * used["driver"] / reports,
            "driver_share_of_a_core": used["driver"] / took,
            "writer_ms_a_report": 1000 * used["writer"] / reports,
            "gcs_ms_a_second": 1000 * used["gcs_server"] / took,
            "raylet_ms_a_second": 1000 * used["raylet"] / (took * (self._nodes + 1)),
            "records_waiting_for_mlflow": self._ledger.backlog(self._sweep_id),
        }
        self._session.stop("measured", "INTERRUPTED")

    def _reports(self) -> int:
        return len(self._ledger.reports(self._sweep_id))


def _processor_seconds() -> dict[str, float]:
    """Return the processor time used so far by this process and its children, by kind."""
    seconds = {"driver": _seconds(psutil.Process()), "writer": 0.0, "gcs_server": 0.0, "raylet": 0.0}
    for process in psutil.Process().children(recursive=True):
        try:
            name, line = process.name(), " ".join(process.cmdline())
        except psutil.Error:
            continue
        kind = name if name in seconds else "writer" if "orchestrator.tracking.deliver" in line else None
        if kind:
            seconds[kind] += _seconds(process)
    return seconds


def _seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def decided(running: int, reports: int, folder: Path) -> dict[str, float]:
    """Return the processor time of a report and of a periodic check, with `running` concurrent trials."""
    from orchestrator.machines.hardware import Node, fitting
    from tests.orchestrator.session.sessions import Sessions, outcome

    sessions = Sessions(folder)
    session = sessions.open(sessions.sweep(running), capacity=running)
    assignments = [session.next_assignment() for _ in range(running)]
    metrics = {**metrics_of(1e-3, 1), **{f"hidden_norm/layer_{k}": 1.0 for k in range(6)}}
    rounds, began = max(1, reports // running), time.process_time()
    for step in range(1, rounds + 1):
        for assignment in assignments:
            assert assignment is not None
            session.reported(
                assignment.attempt_id, outcome(assignment, step, 0.5, metrics=metrics, done=False)
            )
    took, began = time.process_time() - began, time.process_time()
    nodes = [Node(8, 1, 8, 1)] * 100
    for _ in range(100):
        session.check_limits()
        session.next_assignment()
        session.progress()
        session.silent(600)
        fitting(nodes, 1, 1 / 8)
    return {
        "trials_at_once": running,
        "ms_a_report": 1000 * took / (rounds * running),
        "ms_a_look_around": 10 * (time.process_time() - began),
    }


def main() -> None:
    """Measure every size in its own process, and print one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, nargs="+", default=[3, 6, 12, 18])
    parser.add_argument("--seconds", type=float, default=60.0, help="measuring time for each size")
    parser.add_argument("--pause", type=float, default=1.0, help="seconds between the reports of a trial")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument(
        "--decisions", action="store_true", help="measure the session and the ledger, without Ray"
    )
    options = parser.parse_args()
    if options.decisions:
        rows = []
        for running in (2, 100, 400, 1000):
            with tempfile.TemporaryDirectory(prefix="scaling-") as folder:
                rows.append(decided(running, 1000, Path(folder)))
        print(table(rows))
        looks = Line.through([(row["trials_at_once"], 1000 * row["ms_a_look_around"]) for row in rows])
        print(f"\nA look around, in µs, by trials at once: {looks}")
        return
    if options.one:
        with tempfile.TemporaryDirectory(prefix="scaling-") as folder:
            (nodes,) = options.nodes
            print(json.dumps(measured(nodes, options.seconds, options.pause, Path(folder))))
        return
    rows = []
    for nodes in options.nodes:
        command = [sys.executable, "-m", "benchmarks.scaling", "--one", "--nodes", str(nodes)]
        command += ["--seconds", str(options.seconds), "--pause", str(options.pause)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        print(f"{nodes} nodes measured", file=sys.stderr)
    print(table(rows))
    if len(rows) > 1:
        print(f"\n{lines(rows)}")
    print(f"\nLoad of the machine at the end: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores.")


if __name__ == "__main__":
    main()
