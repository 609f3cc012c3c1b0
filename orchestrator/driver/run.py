"""Run one sweep from its specification to its report."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from orchestrator.config.sweep_config import SweepConfig
from orchestrator.driver import admission, signals
from orchestrator.driver import preflight as place
from orchestrator.errors import Damaged, NoCluster, NoSpace
from orchestrator.exits import Exit
from orchestrator.ledger import stop_requests
from orchestrator.ledger.integrity import verify
from orchestrator.ledger.lease import Lease
from orchestrator.ledger.ledger import Ledger
from orchestrator.machines.hardware import Hardware
from orchestrator.schedule import environment
from orchestrator.session.progress import Progress
from orchestrator.session.session import Session
from orchestrator.storage import store
from orchestrator.storage.paths import Paths
from orchestrator.tracking import events
from orchestrator.tracking.shipper import Shipper
from orchestrator.upkeep.orphans import clear
from orchestrator.upkeep.recovery import recover
from trainables.tasks import TASKS


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
        hardware: what trials can run on.
        known: id of the sweep of the ledger to go on with, or None to find it by its file.
        new: start another sweep even if one of this file is known.
        reopen: keys of failed trials to run once more.
        deadline: seconds that a running attempt may stay silent.
        tracking_patience: seconds to wait, at the end, for MLflow to take what is pending.
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


def drive(sweep: SweepConfig, run: Run, watcher: Watcher) -> tuple[str, Exit]:
    """Run or resume a sweep until it is finished, interrupted or refused; return its id and an exit code.

    A ledger that turns out to be damaged is rebuilt from its backup, said aloud, and gone on with.

    Raises:
        BadInput: if the file differs from that of its unfinished sweep.
        Busy: if another driver holds the sweep.
        BadData: if the task's data cannot be read.
        Damaged: if the ledger is damaged beyond its backup.
    """
    place.check(run.paths)
    run.paths.create()
    with signals.breaking_off():
        try:
            return _drive(sweep, run, watcher)
        except Damaged as damage:
            watcher.say(str(damage))
            rebuilt = recover(run.paths.ledger_url)
            watcher.say(
                f"The ledger is rebuilt from its backup; the damaged file is kept as {rebuilt.damaged}."
            )
            return _drive(sweep, run, watcher)


def _drive(sweep: SweepConfig, run: Run, watcher: Watcher) -> tuple[str, Exit]:
    with closing(Ledger.open(run.paths.ledger_url)) as ledger:
        if run.known is None:
            sweep = admission.identify(sweep, ledger, new=run.new)
        else:
            sweep = admission.under(sweep, run.known)
        place.check(run.paths, sweep.id)
        admission.check_warm_start(sweep, ledger)
        with Lease(ledger, sweep.id, watcher.say):
            place.check_at_hand(run.paths, ledger, sweep.id)
            stop_requests.forget(ledger, sweep.id)
            for note in verify(ledger, sweep.id):
                watcher.say(note)
            for path in clear(ledger, sweep.id, run.paths.checkpoints(sweep.id)):
                watcher.say(f"Deleted orphaned checkpoint {path}.")
            _begin(sweep, run, ledger, watcher)
            return sweep.id, _shipped(sweep, run, ledger, watcher)


def _shipped(sweep: SweepConfig, run: Run, ledger: Ledger, watcher: Watcher) -> Exit:
    """Run the sweep with somebody beside it who tells MLflow."""
    shipper = Shipper(run.paths.ledger_url, sweep.id, run.paths.tracking_uri, run.paths.artifacts)
    shipper.start()
    try:
        return _continue(sweep, run, ledger, watcher, shipper)
    except NoSpace as full:
        # The state cannot be written either; an unfinished sweep without a driver says enough.
        watcher.say(f"{full} Everything reported so far stands; the same command goes on from there.")
        return Exit.RESUMABLE
    except NoCluster as lack:
        watcher.say(str(lack))
        _break_off(sweep.id, ledger, f"{lack.where} {lack.must}, got {lack.got}")
        return Exit.RESUMABLE
    except KeyboardInterrupt:
        _break_off(sweep.id, ledger, "interrupted while no trial ran")
        return Exit.RESUMABLE
    finally:
        watcher.close()
        left = shipper.drain(run.tracking_patience)
        shipper.close()
        if left:
            watcher.say(f"{left} records wait for MLflow; the next run of this command delivers them.")


def _break_off(sweep_id: str, ledger: Ledger, reason: str) -> None:
    """Leave a sweep INTERRUPTED that no session has run, in MLflow too."""
    now = events.milliseconds(time.time())
    ended = events.sweep_ended(sweep_id, "INTERRUPTED", now, reason=reason)
    told = [*events.trials_left(ledger.trials(sweep_id), now), ended]
    ledger.set_sweep_state(sweep_id, "INTERRUPTED", reason, events=told)


def _begin(sweep: SweepConfig, run: Run, ledger: Ledger, watcher: Watcher) -> None:
    """Enter the sweep in the ledger, or say what became of the one that is there."""
    data = TASKS[sweep.task].load(sweep.task_options, run.data, watcher.loading)
    watcher.say(f"Data: {data.source}." + (f" {data.note}" if data.note else ""))
    known = ledger.sweep(sweep.id)
    if known is None:
        record = admission.record_of(sweep, data)
        ledger.create_sweep(record, events=[events.sweep_started(record, sweep)])
        return
    for key in run.reopen:
        ledger.reopen_trial(key)
    if lost := ledger.lose_attempts(sweep.id):
        watcher.say(f"Ended {lost} attempts that a dead driver left running, at their last report.")
    changed = admission.differences(known.document, sweep.document())
    if changed:
        watcher.say(f"Changed: {'; '.join(changed)}.")
        ledger.amend_sweep(sweep.id, sweep.document(), sweep.digest, known.facts)


def _continue(sweep: SweepConfig, run: Run, ledger: Ledger, watcher: Watcher, shipper: Shipper) -> Exit:
    # The report's libraries take a second to import: a second driver must have been refused before.
    from orchestrator.driver import conclusion

    trials = ledger.trials(sweep.id)
    unfinished = [trial for trial in trials if trial.state in ("WAITING", "RUNNING", "PREEMPTED")]
    known = ledger.sweep(sweep.id)
    asked_all = len(trials) >= sweep.budget.trials + sweep.confirm.seeds
    if known and known.finished_at and asked_all and not unfinished and not conclusion.unread(sweep, ledger):
        watcher.say(f"{sweep.id} is finished. `--extend trials=N` goes on with it, `--new` starts another.")
        return conclusion.outcome(sweep, ledger)
    if trials and known:
        done = len(trials) - len(unfinished)
        watcher.say(f"Resuming {sweep.id}: {done} trials done, {len(unfinished)} to go on.")
        opened = events.trials_resumed(unfinished, events.milliseconds(time.time()))
        ledger.set_sweep_state(sweep.id, "RUNNING", events=[events.sweep_started(known, sweep), *opened])
    return _run_session(sweep, run, ledger, watcher, shipper)


def _run_session(sweep: SweepConfig, run: Run, ledger: Ledger, watcher: Watcher, shipper: Shipper) -> Exit:
    # Ray and Optuna take seconds to import: only once everything that can be refused has been.
    environment.prepare(sweep.resources.gpu, run.paths.token)
    from orchestrator.driver import conclusion
    from orchestrator.schedule import cluster, tuner
    from orchestrator.study.study import Study

    reports = ledger.reports(sweep.id)
    earlier = [trial for name in sweep.warm_start for trial in ledger.trials(name, role="search")]
    told = [*reports, *(report for name in sweep.warm_start for report in ledger.reports(name))]
    study = Study(sweep, ledger.trials(sweep.id, role="search"), told, earlier)
    session = Session(sweep, ledger, study, run.paths, run.data.absolute())
    session.patience = run.wait
    run.paths.stop_wish(sweep.id).unlink(missing_ok=True)

    def stop(name: str) -> None:
        session.stop(f"stopped by {name}", "INTERRUPTED")
        watcher.say(f"{name}: saving every running trial; once more to leave at once.")

    def evaluate(trial_key: str, recorded: str) -> dict[str, object]:
        folder = run.paths.at_hand(sweep.id, trial_key, recorded)
        url, data = run.paths.stored(sweep.id, trial_key), str(run.data.absolute())
        request = cluster.Evaluation(str(folder), data, "test", str(run.paths.compilations), url)
        answer = cluster.evaluate(request, sweep.resources.cpu, sweep.resources.gpu)
        if url:
            store.fetch(folder, url)  # the report and the registered model are made of it here
        return answer

    # In this order: Ray sets signal handlers of its own when it starts.
    with cluster.connected(run.hardware, sweep.resources.gpu), signals.handled(stop, cluster.abandon):
        watcher.show(session.progress())
        session.sweep = cluster.shared(sweep, str(run.data.absolute()), str(run.paths.compilations))
        if sweep.resources.slots == "auto":
            watcher.say(f"{round(1 / session.sweep.resources.gpu)} trials share a GPU, by measurement.")
        tuner.run(session, reports, deadline=run.deadline, tick=_tick(watcher, shipper))
        watcher.show(session.progress())
        stopped = session.stopped
        if stopped is not None and stopped.state != "COMPLETE":
            conclusion.end(sweep, ledger, run.paths, stopped.state, stopped.reason)
            return Exit.RESUMABLE
        conclusion.read_test(sweep, ledger, evaluate)
    return conclusion.conclude(sweep, ledger, run.paths, session.stopped.reason if session.stopped else None)


def _tick(watcher: Watcher, shipper: Shipper) -> Callable[[Session], None]:
    def tick(session: Session) -> None:
        session.look_around()
        watcher.show(session.progress())
        shipper.nudge()

    return tick
