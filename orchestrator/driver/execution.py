"""The part of a driver that needs Ray, Optuna and plotly, all of which take seconds to import.

`orchestrator.schedule.environment.prepare` must have run before this module is imported.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from orchestrator.config.sweep_config import SweepConfig
from orchestrator.driver import admission, signals
from orchestrator.exits import Exit
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.records import FINISHED_SWEEP, EvaluationRecord, ReportRecord, SweepState
from orchestrator.ledger.selection import best_trial
from orchestrator.report import report
from orchestrator.schedule import cluster, tuner
from orchestrator.schedule.resources import AvailableResources
from orchestrator.session.limits import Stop
from orchestrator.session.session import Session
from orchestrator.storage import store
from orchestrator.study.study import Study
from orchestrator.tracking import events

if TYPE_CHECKING:
    # It imports this module, when it has nothing left to refuse.
    from orchestrator.driver.run import Run, Watcher


@contextmanager
def connected(sweep: SweepConfig, run: Run) -> Iterator[None]:
    """Join the cluster of RAY_ADDRESS, or start a Ray on this machine; leave it or shut it down on exit.

    Raises:
        NoCluster: if Ray does not start, or the cluster cannot be joined.
    """
    with ExitStack() as stack:
        with signals.preserved():
            stack.enter_context(cluster.connected(run.hardware, sweep.resources.gpu))
        yield


def with_slots(sweep: SweepConfig, run: Run, say: Callable[[str], None]) -> SweepConfig:
    """Return a sweep whose trials have the share of a GPU that its number of slots gives."""
    slotted = cluster.with_slots(sweep, str(run.data.absolute()), str(run.paths.compilations))
    if sweep.resources.slots == "auto":
        say(f"{round(1 / slotted.resources.gpu)} trials share a GPU, by measurement.")
    return slotted


def run_session(
    sweep: SweepConfig, run: Run, ledger: Ledger, watcher: Watcher, nudge: Callable[[], None]
) -> Stop | None:
    """Run trials until none is left or the sweep stops; return why it stopped, or None.

    Args:
        sweep: with its number of slots fixed.
        run: this invocation.
        ledger: in which this driver holds the lease.
        watcher: shows the progress.
        nudge: called twice a second, after what is new in the ledger's outbox.
    """
    reports = ledger.reports(sweep.id)
    session = Session(
        sweep,
        ledger,
        _study(sweep, ledger, reports),
        run.paths,
        run.data.absolute(),
        resources=(resources := AvailableResources(sweep.resources.cpu, sweep.resources.gpu)),
        node_wait=run.wait,
    )

    def stop(name: str) -> None:
        session.stop(f"stopped by {name}", "INTERRUPTED")
        watcher.say(f"{name}: saving every running trial; once more to leave at once.")

    def tick(session: Session) -> None:
        session.check_limits()
        watcher.show(session.progress())
        nudge()

    with signals.handled(stop, cluster.kill_local_ray):
        watcher.show(session.progress())
        tuner.run(session, resources, reports, deadline=run.deadline, tick=tick)
        watcher.show(session.progress())
    return session.stopped


def _study(sweep: SweepConfig, ledger: Ledger, reports: Sequence[ReportRecord]) -> Study:
    """Rebuild the study from the search's trials of this sweep and of those that it learns from."""
    earlier = [trial for name in sweep.warm_start for trial in ledger.trials(name, role="search")]
    others = [report for name in sweep.warm_start for report in ledger.reports(name)]
    return Study(sweep, ledger.trials(sweep.id, role="search"), [*reports, *others], earlier)


def evaluate_test(sweep: SweepConfig, run: Run, ledger: Ledger) -> None:
    """Evaluate test for the best trial and for each complete confirmation, once; every evaluation is a row.

    Args:
        sweep: its trials' resources are those of an evaluation.
        run: this invocation.
        ledger: in which this driver holds the lease.
    """
    for trial, row in admission.without_test(sweep, ledger):
        folder = run.paths.at_hand(sweep.id, trial.key, row.path)
        url, data = run.paths.stored(sweep.id, trial.key), str(run.data.absolute())
        request = cluster.Evaluation(str(folder), data, "test", str(run.paths.compilations), url)
        answer = cluster.evaluate(request, sweep.resources.cpu, sweep.resources.gpu)
        if url:
            store.fetch(folder, url)  # the report and the registered model read it on this machine
        metrics = {f"test/{name}": value for name, value in answer["metrics"].items()}
        now = time.time()
        ledger.add_reading(
            EvaluationRecord(trial_key=trial.key, step=answer["step"], split="test", metrics=metrics, at=now),
            events=[events.metrics(trial.key, answer["step"], metrics, events.milliseconds(now))],
        )


def conclude(sweep: SweepConfig, run: Run, ledger: Ledger, stopped: Stop | None) -> Exit:
    """Write the report, then the sweep's state together with its events for MLflow; return the exit code.

    Args:
        sweep: of the ledger.
        run: this invocation.
        ledger: in which this driver holds the lease.
        stopped: why the session launched nothing more, or None if it has finished.
    """
    best = best_trial(ledger.trials(sweep.id), maximize=sweep.direction == "maximize")
    state: SweepState = "COMPLETE" if best else "FAILED"
    reason = stopped.reason if stopped else None
    if stopped is not None and stopped.state != "COMPLETE":
        state = stopped.state
    published = report.conclude(ledger, sweep.id, run.paths, state, reason)
    ledger.set_sweep_state(sweep.id, state, reason, events=published)
    return Exit.RESUMABLE if state not in FINISHED_SWEEP else admission.exit_code(sweep, ledger)
