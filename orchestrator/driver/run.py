"""Run one sweep from its specification to its report."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Protocol

from orchestrator.config.sweep_config import SweepConfig
from orchestrator.driver import admission, preflight, signals
from orchestrator.errors import Damaged, NoCluster, NoSpace
from orchestrator.exits import Exit
from orchestrator.ledger import stop_requests
from orchestrator.ledger.integrity import verify
from orchestrator.ledger.lease import Lease
from orchestrator.ledger.ledger import Ledger
from orchestrator.machines.hardware import Hardware
from orchestrator.schedule import environment
from orchestrator.session.board import Progress
from orchestrator.storage.paths import Paths
from orchestrator.tracking import events
from orchestrator.tracking.shipper import Shipper
from orchestrator.upkeep.orphans import clear
from orchestrator.upkeep.recovery import recover
from trainables.data.task import TaskData
from trainables.tasks import TASKS


class Watcher(Protocol):
    """Displays the progress of a sweep."""

    def say(self, line: str) -> None:
        """Show one line that stays."""

    def loading(self, what: str, done: int, total: int) -> None:
        """Show how much of the data set is prepared."""

    def show(self, progress: Progress) -> None:
        """Show the progress of the sweep; called twice a second."""

    def close(self) -> None:
        """Stop redrawing."""


@dataclass(frozen=True)
class Run:
    """What one invocation adds to a specification.

    Attributes:
        paths: where everything is written.
        data: folder of the data sets.
        hardware: what trials can run on.
        known: id of the sweep of the ledger to resume, or None to find it by its file.
        new: start another sweep even if the ledger knows one of this file.
        reopen: keys of failed trials to run again.
        deadline: seconds that a running attempt may stay silent.
        tracking_patience: seconds to wait, at the end, for MLflow to accept what is pending.
        wait: seconds to wait while no node has room for a trial.
    """

    paths: Paths
    data: Path
    hardware: Hardware
    known: str | None = None
    new: bool = False
    reopen: tuple[str, ...] = ()
    deadline: float = 600.0
    tracking_patience: float = 60.0
    wait: float = 10.0


Drive = Callable[[SweepConfig, Run, Watcher], tuple[str, Exit]]


def _rebuilding_a_damaged_ledger(drive: Drive) -> Drive:
    """Call `drive` again with a ledger rebuilt from its backup, if the ledger turns out to be damaged."""

    @wraps(drive)
    def rebuilding(sweep: SweepConfig, run: Run, watcher: Watcher) -> tuple[str, Exit]:
        try:
            return drive(sweep, run, watcher)
        except Damaged as damage:
            watcher.say(str(damage))
            rebuilt = recover(run.paths.ledger_url)
            kept = f"the damaged file is kept as {rebuilt.damaged}"
            watcher.say(f"The ledger is rebuilt from its backup; {kept}.")
            return drive(sweep, run, watcher)

    return rebuilding


@_rebuilding_a_damaged_ledger
def drive(sweep: SweepConfig, run: Run, watcher: Watcher) -> tuple[str, Exit]:
    """Run or resume a sweep until it is finished, interrupted or refused; return its id and an exit code.

    Preflight, lease, integrity check, load the data, connect to Ray, fix the slots, run the session,
    conclude. A damaged ledger is rebuilt from its backup, and the sweep goes on.

    Args:
        sweep: to run.
        run: this invocation.
        watcher: shows the progress.

    Raises:
        BadInput: if the file differs from that of its unfinished sweep.
        Busy: if another driver holds the sweep.
        BadData: if the task's data cannot be read.
        Damaged: if the ledger is damaged beyond its backup.
    """
    preflight.check(run.paths)
    run.paths.create()
    with signals.interruptible(), closing(Ledger.open(run.paths.ledger_url)) as ledger:
        sweep = admission.identify(sweep, ledger, known=run.known, new=run.new)
        preflight.check(run.paths, sweep.id)
        with Lease(ledger, sweep.id, watcher.say):
            preflight.check_checkpoints(run.paths, ledger, sweep.id)
            stop_requests.forget(ledger, sweep.id)
            _check_integrity(sweep.id, run, ledger, watcher)
            data = _load_data(sweep, run, watcher)
            admission.enter(sweep, ledger, data, run.reopen, watcher.say)
            with _shipping(sweep.id, run, watcher) as shipper, _resumable(sweep.id, ledger, watcher):
                if admission.is_finished(sweep, ledger):
                    how = "`--extend trials=N` goes on with it, `--new` starts another"
                    watcher.say(f"{sweep.id} is finished. {how}.")
                    return sweep.id, admission.exit_code(sweep, ledger)
                admission.resume(sweep, ledger, watcher.say)
                environment.prepare(sweep.resources.gpu, run.paths.token)
                # Ray, Optuna and plotly take seconds to import: not before all that can be refused has been.
                from orchestrator.driver import execution

                with execution.connected(sweep, run):
                    slotted = execution.with_slots(sweep, run, watcher.say)
                    stopped = execution.run_session(slotted, run, ledger, watcher, shipper.nudge)
                    if stopped is None or stopped.state == "COMPLETE":
                        execution.evaluate_test(sweep, run, ledger)
                return sweep.id, execution.conclude(sweep, run, ledger, stopped)
            return sweep.id, Exit.RESUMABLE


def _check_integrity(sweep_id: str, run: Run, ledger: Ledger, watcher: Watcher) -> None:
    """Verify the ledger's rows of a sweep, and delete the checkpoints to which none of them refers."""
    for note in verify(ledger, sweep_id):
        watcher.say(f"Repaired: {note}.")
    for path in clear(ledger, sweep_id, run.paths.checkpoints(sweep_id)):
        watcher.say(f"Deleted orphaned checkpoint {path}.")


def _load_data(sweep: SweepConfig, run: Run, watcher: Watcher) -> TaskData:
    data = TASKS[sweep.task].load(sweep.task_options, run.data, watcher.loading)
    watcher.say(f"Data: {data.source}." + (f" {data.note}" if data.note else ""))
    return data


@contextmanager
def _shipping(sweep_id: str, run: Run, watcher: Watcher) -> Iterator[Shipper]:
    """Ship the outbox of a sweep to MLflow; on exit, wait a while for what is pending."""
    shipper = Shipper(run.paths.ledger_url, sweep_id, run.paths.tracking_uri, run.paths.artifacts)
    shipper.start()
    try:
        yield shipper
    finally:
        watcher.close()
        pending = shipper.drain(run.tracking_patience)
        shipper.close()
        if pending:
            watcher.say(f"{pending} records wait for MLflow; the next run of this command delivers them.")


@contextmanager
def _resumable(sweep_id: str, ledger: Ledger, watcher: Watcher) -> Iterator[None]:
    """Suppress the errors after which the same command can resume a sweep; record them if the ledger can."""
    try:
        yield
    except NoSpace as full:
        # The state cannot be written either; an unfinished sweep without a driver counts as interrupted.
        watcher.say(f"{full} Everything reported so far is kept; the same command resumes the sweep.")
    except NoCluster as lack:
        watcher.say(str(lack))
        _interrupt(sweep_id, ledger, f"{lack.where} {lack.must}, got {lack.got}")
    except KeyboardInterrupt:
        _interrupt(sweep_id, ledger, "interrupted while no trial ran")


def _interrupt(sweep_id: str, ledger: Ledger, reason: str) -> None:
    """Set a sweep that no session runs to INTERRUPTED, in MLflow too."""
    now = events.milliseconds(time.time())
    ended = events.sweep_ended(sweep_id, "INTERRUPTED", now, reason=reason)
    closed = [*events.trials_left(ledger.trials(sweep_id), now), ended]
    ledger.set_sweep_state(sweep_id, "INTERRUPTED", reason, events=closed)
