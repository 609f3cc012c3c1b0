"""Run one sweep from its specification to its report."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, Protocol

from orchestrator import provenance, signals
from orchestrator.errors import BadInput
from orchestrator.hardware import Hardware
from orchestrator.ledger.lease import Lease
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.records import ReadingRecord, SweepRecord, SweepState, TrialRecord
from orchestrator.paths import Paths
from orchestrator.report import report
from orchestrator.schedule import environment
from orchestrator.session import Progress, Session
from orchestrator.spec.model import Sweep
from orchestrator.tracking import events
from orchestrator.tracking.shipper import Shipper
from trainables.tasks import TASKS
from trainables.tasks.base import TaskData


class Exit(IntEnum):
    """What a finished command tells its caller."""

    COMPLETE = 0
    BAD_INPUT = 2
    SOME_FAILED = 3
    RESUMABLE = 4


class Watcher(Protocol):
    """Whoever shows a sweep to a person."""

    def say(self, line: str) -> None:
        """Show one line that stays."""

    def loading(self, what: str, done: int, total: int) -> None:
        """Show how far the data set is prepared."""

    def show(self, progress: Progress) -> None:
        """Show where the sweep stands; called twice a second."""

    def close(self) -> None:
        """Stop redrawing."""


@dataclass(frozen=True)
class Run:
    """What one invocation adds to a specification.

    Attributes:
        paths: where everything is written.
        data: folder of the data sets.
        hardware: what this machine offers.
        deadline: seconds that a running attempt may stay silent.
        tracking_patience: seconds to wait, at the end, for MLflow to take what is pending.
    """

    paths: Paths
    data: Path
    hardware: Hardware
    deadline: float = 600.0
    tracking_patience: float = 60.0


def check(sweep: Sweep, run: Run) -> str:
    """Check, before anything starts or is written, that the sweep can run here; return the data source.

    Raises:
        BadInput: if the resources of one trial are not to be had.
        BadData: if the task's files are missing or wrong.
    """
    asked, there = sweep.resources, run.hardware
    if asked.gpu > there.gpus:
        raise BadInput(
            f"{sweep.name}: resources.gpu",
            f"a trial's GPU share must be at hand; this machine has {there.gpus} GPU(s), {there.cpus} CPU(s)",
            f"{asked.gpu:g}",
            "Use `--profile laptop`, or submit to a cluster that has GPUs.",
        )
    if asked.cpu > there.cpus:
        raise BadInput(
            f"{sweep.name}: resources.cpu",
            f"a trial's processors must be at hand; this machine has {there.cpus} CPU(s)",
            f"{asked.cpu:g}",
            f"Ask for at most {there.cpus}.",
        )
    return TASKS[sweep.task].check(sweep.task_options, run.data).phrase


def drive(sweep: Sweep, run: Run, watcher: Watcher) -> Exit:
    """Run or resume a sweep until it is finished, interrupted or refused.

    Raises:
        Busy: if another driver holds the sweep.
        BadData: if the task's data cannot be read.
    """
    run.paths.create()
    ledger = Ledger.open(run.paths.ledger_url)
    with Lease(ledger, sweep.id):
        data = TASKS[sweep.task].load(sweep.task_options, run.data, watcher.loading)
        _announce(sweep, data, ledger, watcher)
        shipper = Shipper(run.paths.ledger_url, sweep.id, run.paths.tracking_uri, run.paths.artifacts)
        shipper.start()
        try:
            return _run_session(sweep, run, ledger, watcher, shipper)
        finally:
            watcher.close()
            left = shipper.drain(run.tracking_patience)
            shipper.close()
            if left:
                watcher.say(f"{left} records wait for MLflow; the next run of this command delivers them.")


def _announce(sweep: Sweep, data: TaskData, ledger: Ledger, watcher: Watcher) -> None:
    watcher.say(f"Data: {data.source}." + (f" {data.note}" if data.note else ""))
    known = ledger.sweep(sweep.id)
    if known is None:
        record = _record(sweep, data)
        ledger.create_sweep(record, events=[events.sweep_started(record, sweep)])
    else:
        watcher.say(f"Resuming {sweep.id}, which was {known.state}.")
        ledger.set_sweep_state(sweep.id, "RUNNING", events=[events.sweep_started(known, sweep)])


def _record(sweep: Sweep, data: TaskData) -> SweepRecord:
    facts: dict[str, Any] = {
        "git_commit": provenance.git_commit(),
        "versions": provenance.versions(),
        "command": provenance.command(),
        "sampler_seed": sweep.sampler.seed,
        "comparable": data.comparable,
        "note": data.note,
        "chance": dict(data.chance),
        "metric": sweep.metric,
        "direction": sweep.direction,
        "specification": sweep.source_text,
    }
    return SweepRecord(
        id=sweep.id,
        name=sweep.name,
        profile=sweep.profile,
        task=sweep.task,
        document=sweep.document(),
        digest=sweep.digest,
        state="RUNNING",
        reason=None,
        data_source=data.source,
        data_digest=data.digest,
        facts=facts,
        created_at=time.time(),
    )


def _run_session(sweep: Sweep, run: Run, ledger: Ledger, watcher: Watcher, shipper: Shipper) -> Exit:
    # Ray and Optuna take seconds to import: only once everything that can be refused has been.
    environment.prepare(sweep.resources.gpu, run.paths.root / "ray-token")
    from orchestrator.schedule import cluster, tuner
    from orchestrator.study.study import Study

    trials = ledger.trials(sweep.id, role="search")
    reports = ledger.reports(sweep.id)
    session = Session(sweep, ledger, Study(sweep, trials, reports), run.paths, run.data)
    wish = run.paths.stop_wish(sweep.id)
    wish.unlink(missing_ok=True)

    def stop(name: str) -> None:
        session.stopping = True
        wish.parent.mkdir(parents=True, exist_ok=True)
        wish.touch()
        watcher.say(f"{name}: saving every running trial; once more to leave at once.")

    with (
        signals.handled(stop, cluster.abandon),
        cluster.connected(run.hardware, sweep.resources.gpu),
    ):
        watcher.show(session.progress())
        tuner.run(session, reports, deadline=run.deadline, tick=_tick(watcher, shipper))
        watcher.show(session.progress())
        if session.stopping:
            _end(sweep, run, ledger, "INTERRUPTED")
            return Exit.RESUMABLE
        _read_test(sweep, run, ledger, cluster)
    return _conclude(sweep, run, ledger)


def _tick(watcher: Watcher, shipper: Shipper) -> Callable[[Session], None]:
    def tick(session: Session) -> None:
        watcher.show(session.progress())
        shipper.nudge()

    return tick


def _read_test(sweep: Sweep, run: Run, ledger: Ledger, cluster: Any) -> None:
    """Read the test split once, for the chosen checkpoint, and write the reading down."""
    chosen = choose(sweep, ledger.trials(sweep.id, role="search"))
    if chosen is None or any(row.trial_key == chosen.key for row in ledger.readings(sweep.id)):
        return
    best = next(row for row in ledger.checkpoints(chosen.key) if row.kind == "best")
    request = cluster.Evaluation(best.path, str(run.data.absolute()), "test", str(run.paths.compilations))
    answer = cluster.evaluate(request, sweep.resources.cpu, sweep.resources.gpu)
    metrics = {f"test/{name}": value for name, value in answer["metrics"].items()}
    now = time.time()
    ledger.add_reading(
        ReadingRecord(trial_key=chosen.key, step=answer["step"], split="test", metrics=metrics, at=now),
        events=[events.metrics(chosen.key, answer["step"], metrics, int(now * 1000))],
    )


def choose(sweep: Sweep, trials: list[TrialRecord]) -> TrialRecord | None:
    """Return the complete trial with the best validation value; the lower number wins a tie."""
    complete = [trial for trial in trials if trial.state == "COMPLETE" and trial.value is not None]
    sign = 1.0 if sweep.direction == "maximize" else -1.0
    return max(complete, key=lambda trial: (sign * (trial.value or 0.0), -trial.number), default=None)


def _conclude(sweep: Sweep, run: Run, ledger: Ledger) -> Exit:
    trials = ledger.trials(sweep.id)
    chosen = choose(sweep, trials)
    _end(sweep, run, ledger, "COMPLETE" if chosen else "FAILED")
    failed = chosen is None or any(trial.state == "FAILED" for trial in trials)
    return Exit.SOME_FAILED if failed else Exit.COMPLETE


def _end(sweep: Sweep, run: Run, ledger: Ledger, state: SweepState) -> None:
    """Write the report, then the sweep's state together with what MLflow shall know of it."""
    ledger.set_sweep_state(sweep.id, state, events=report.conclude(ledger, sweep.id, run.paths, state))
