"""Execution of a sweep: the part of a driver that needs Ray and Optuna, which import slowly.

`orchestrator.schedule.environment.prepare` must have run before this module is imported.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from orchestrator import system
from orchestrator.config.sweep_config import SweepConfig
from orchestrator.driver import publication, sweep_rows
from orchestrator.driver.admission import LeasedSweep
from orchestrator.driver.user_code import account_for
from orchestrator.errors import DamagedCheckpoint, Exit, ForeignAnswer, counted
from orchestrator.ledger.queue.queue_settings import asked_to_stop, reason_of
from orchestrator.ledger.sweeps.records import (
    CANDIDATE,
    FINISHED_SWEEP,
    STEP_WORK,
    CheckpointRecord,
    CurvePoint,
    EvaluationRecord,
    SweepRecord,
    SweepState,
    TrialRecord,
)
from orchestrator.ledger.sweeps.selection import ranked, violations_of
from orchestrator.machines.head import Head
from orchestrator.process_secrets import redacted
from orchestrator.schedule import cluster, orphaned_actors, sent_code, tuner
from orchestrator.schedule.engines import BorrowedEngine, EnginePool, Engines
from orchestrator.schedule.resources import AvailableResources
from orchestrator.schedule.shares import ClusterShare
from orchestrator.schedule.warm_pool import idle_seconds
from orchestrator.session.limits import Stop
from orchestrator.session.outages import Outages, probes_of
from orchestrator.session.session import Session
from orchestrator.storage import store
from orchestrator.study.known_results import known_trials
from orchestrator.study.study import Study
from orchestrator.system import without_garbage_collection
from orchestrator.tracking import events
from orchestrator.training import evaluation
from orchestrator.upkeep.deletions import deleting
from orchestrator.upkeep.orphans import own
from trainables.cost import Cost
from trainables.data.task import Signature

Result = TypeVar("Result")

COUNTED = 8
"""Number of static choices whose work is counted at the end of a sweep; each one is compiled in a few
seconds."""

_POLL_SECONDS = 0.5
"""Poll interval during an outage for its end, a signal and a stop request."""

CODE_SECONDS = 2.0
"""Interval of the checks for changes of a trainable's code."""


@contextmanager
def connected(leased: LeasedSweep, head: Head | None) -> Iterator[ExitStack]:
    """Connect to the cluster of RAY_ADDRESS, or to the Ray that drivers share on this machine.

    Args:
        leased: Leased sweep.
        head: Head of this machine's Ray, which the caller has joined; None for a cluster.

    Yields:
        A stack of callbacks that run before the cluster is left.

    Raises:
        NoCluster: The cluster or the Ray of this machine cannot be joined.
    """
    ray = cluster.connected(leased.run.hardware, _code_to_send(leased), head=head)
    with ExitStack() as stack:
        died = leased.shutdown.interruptible(lambda: stack.enter_context(ray))
        stack.enter_context(leased.shutdown.unless(died))
        if leased.sweep.resources.gpu and not os.environ.get("RAY_ADDRESS"):
            stack.enter_context(orphaned_actors.ended(leased.observer.say))
        system.lower_priority(os.getpid())  # afterwards, so that a Ray started here does not inherit it
        yield stack


def _code_to_send(leased: LeasedSweep) -> Path | None:
    """Return the code folder to send to other machines, or None if it is too large."""
    folder = sent_code.folder_to_send(leased.sweep.trainable) if os.environ.get("RAY_ADDRESS") else None
    if folder is None or sent_code.size_of(folder) <= sent_code.MOST:
        return folder
    leased.observer.say(
        f"{folder} is larger than {sent_code.MOST >> 20} MiB, so it is not sent to the other machines "
        "and must exist there. Or move the code to its own folder and set `trainable.folder`."
    )
    return None


def with_slots(leased: LeasedSweep) -> SweepConfig:
    """Return the sweep with the GPU share that follows from its number of slots."""
    run = leased.run
    slotted = leased.shutdown.interruptible(
        lambda: cluster.with_slots(leased.sweep, str(run.data.absolute()), str(run.paths.compilations)),
        lambda: _obey_stop_request(leased),
    )
    if leased.sweep.resources.slots == "auto":
        sharing = counted(round(1 / slotted.resources.gpu), "trial has a GPU", "trials share a GPU")
        leased.observer.say(f"{sharing}, by measurement.")
    return slotted


def run_session(
    leased: LeasedSweep,
    slotted: SweepConfig,
    curves: Sequence[CurvePoint],
    nudge: Callable[[], None],
    leaving: ExitStack,
) -> tuple[Stop | None, Engines]:
    """Run trials until none is left or the sweep stops; return the reason of an early end, and the engines.

    Args:
        leased: Leased sweep.
        slotted: Sweep with its number of slots fixed.
        curves: Objectives and constrained metrics in the reports of earlier runs.
        nudge: Function that is called twice a second, when the ledger's outbox may have new records.
        leaving: Callbacks that run before the cluster is left.

    Raises:
        BadInput: The folder of the checkpoints belongs to another ledger.
        NoSpace: The disk is full.
    """
    run, observer = leased.run, leased.observer
    asked = slotted.resources
    resources = AvailableResources(asked.cpu, asked.gpu, asked.node_count)
    trainable = slotted.trainable
    program = trainable.imported_code() if trainable else ""
    pool = EnginePool.of(str(run.paths.compilations), program)
    share = ClusterShare(leased.writer, resources, sweep_rows.claim_of(leased, slotted), pool=pool)
    leaving.callback(share.engines.close)
    session = _session(leased, slotted, rebuilt_study(leased, curves), resources, share)

    code_due = 0.0

    def tick(session: Session) -> None:
        nonlocal code_due
        if (reason := leased.shutdown.reason) and session.stopped is None:
            session.stop(f"stopped by {reason}", "INTERRUPTED")
            observer.say(f"{reason}: saving all running trials. Send it again to exit immediately.")
        session.check_limits()
        observer.show(session.progress())
        if trainable is not None and (now := time.monotonic()) >= code_due:
            sweep_rows.note_code(leased)
            # Reading a large folder takes long; limit it to a hundredth of the time.
            code_due = time.monotonic() + max(CODE_SECONDS, 100 * (time.monotonic() - now))
        nudge()
        if run.paths.store:
            delete()

    observer.show(session.progress())
    own(run.paths.checkpoints(leased.sweep.id), leased.ledger.id)
    with deleting(leased.lease) as delete:
        tuner.run(session, share, curves, deadline=run.deadline, tick=tick)
        session.check_limits()
        session.settle_extended()
    if session.stopped is None:  # beside the evaluation on test
        drawing = _begun(partial(import_module, "orchestrator.report.report_files"))
        # Garbage collected by that thread may be objects of Ray, which exits a process that has left it.
        leaving.callback(drawing)
    observer.show(session.progress())
    return session.end, share.engines


@without_garbage_collection()
def _session(
    leased: LeasedSweep,
    slotted: SweepConfig,
    study: Study,
    resources: AvailableResources,
    share: ClusterShare,
) -> Session:
    """Return the session of a sweep whose number of slots is fixed."""
    run = leased.run
    return Session(
        slotted,
        leased.writer,
        study,
        run.paths,
        run.data.absolute(),
        resources=resources,
        share=share,
        node_wait=run.wait.node,
        busy_wait=run.wait.busy,
        account=account_for(slotted.trainable, run.owner),
    )


@without_garbage_collection()
def rebuilt_study(leased: LeasedSweep, curves: Sequence[CurvePoint]) -> Study:
    """Rebuild the study from the search's trials, from those of warm-start sweeps, and from known results."""
    sweep, ledger = leased.sweep, leased.ledger
    earlier = [trial for name in sweep.warm_start for trial in ledger.trials(name, role="search")]
    others = [point for name in sweep.warm_start for point in ledger.curves(name, sweep.observed_metrics)]
    trials, points = known_trials(sweep)
    own = ledger.trials(sweep.id, role="search")
    return Study(sweep, own, [*curves, *others, *points], [*earlier, *trials])


def evaluate_test(leased: LeasedSweep, engines: Engines) -> None:
    """Evaluate the test split once for the best trial and each complete confirmation.

    A trial with a damaged checkpoint is left out. If it was the best one, the next trial takes its place, as
    in the report. An outage of the checkpoint store, or a full disk, pauses the sweep as during the search.
    An idle engine evaluates, if there is one, and then ends.
    """
    probes = probes_of(leased.run.paths, leased.ledger, leased.sweep.id)
    outages = Outages(leased.writer, probes, leased.ledger.system.monotonic)
    may_have_changed = True
    while may_have_changed:
        may_have_changed = False
        for trial, row in sweep_rows.without_test(leased):
            try:
                answer = _outlast(leased, outages, partial(_evaluated, leased, trial, row, engines))
            except DamagedCheckpoint as damage:
                leased.writer.drop_checkpoint(trial.key, Path(row.path))
                why = f"{damage.where}: {damage.problem}"
                leased.observer.say(f"{trial.key} has no test result. {why}.")
                may_have_changed = True  # another trial may be the best one now
                continue
            except ForeignAnswer as foreign:
                leased.observer.say(f"{trial.key} has no test result: {foreign}")
                continue
            metrics = {f"test/{name}": value for name, value in answer["metrics"].items()}
            record = EvaluationRecord(
                trial.key, answer["step"], "test", metrics, leased.ledger.now(), answer["scores"]
            )
            leased.writer.add_evaluation(record, events=[events.points(record)])
    engines.retire()


def _evaluated(
    leased: LeasedSweep, trial: TrialRecord, row: CheckpointRecord, engines: Engines
) -> dict[str, Any]:
    """Return the step, the metrics and the packed scores of a checkpoint on the test split.

    Raises:
        ForeignAnswer: The answer is about another checkpoint or split.
    """
    sweep, run = leased.sweep, leased.run
    folder = run.paths.at_hand(sweep.id, trial.key, row.path)
    url, data = run.paths.stored(leased.ledger.id, sweep.id, trial.key), str(run.data.absolute())
    trainable = sweep.trainable
    request = cluster.EvaluationRequest(
        *(str(folder), row.digest, data, "test", str(run.paths.compilations), url),
        program_folder=trainable.folder if trainable else None,
        trial=trial.key,
    )

    def asked(engine: BorrowedEngine | None) -> dict[str, Any]:
        answer = cluster.evaluate(request, sweep.resources.cpu, sweep.resources.gpu, trainable, engine)
        evaluation.check_answer(answer, row.digest, "test", row.step)
        return answer

    try:
        answer = asked(engines.idle)
    except ForeignAnswer:
        answer = asked(None)
    leased.lease.check()
    if url:
        # The report and the registered model need it on this machine.
        store.fetch(folder, url, row.digest)
    return answer


def _outlast(leased: LeasedSweep, outages: Outages, work: Callable[[], Result]) -> Result:
    """Return the result of `work`, which is repeated after an outage of the store or a disk.

    Raises:
        KeyboardInterrupt: The shutdown was requested.
    """
    check_stop = partial(_obey_stop_request, leased)
    while True:
        try:
            return leased.shutdown.interruptible(work, check_stop)
        except Exception as error:
            cause = store.outage_of(error)
            if cause is None:
                raise
            outages.begin(cause, redacted(str(error)))
        leased.observer.say(f"The sweep is paused: {outages.reason}.")
        while outages.reason:
            check_stop()
            leased.shutdown.check()
            leased.ledger.system.sleep(_POLL_SECONDS)
            outages.poll()
        leased.observer.say("The sweep continues.")


def _obey_stop_request(leased: LeasedSweep) -> None:
    """Obey a stop request while no session polls for it."""
    if asker := asked_to_stop(leased.ledger, leased.sweep.id):
        leased.shutdown.request(reason_of(asker))


def count_work(leased: LeasedSweep, signature: Signature) -> Callable[[], None]:
    """Begin to count the FLOPs of a training step of the best static choices, in another thread.

    Choices that an earlier driver counted are not counted again. A failure is only reported, because no
    result depends on the count.

    Returns:
        A function that waits for the count, and records it among the sweep's facts.
    """
    record = sweep_rows.record_of(leased)
    choices = _choices(leased, record)
    known = {key: entry for entry in record.facts.get(STEP_WORK, ()) for key in entry["trials"]}
    unknown = [
        choice for choice, trials in choices.items() if not any(trial.key in known for trial in trials)
    ]
    names = {choice: choices[choice][0].key for choice in unknown}
    settings = {
        name: leased.sweep.network_settings(choices[choice][0].params, seed=0)
        for choice, name in names.items()
    }
    compilations = str(leased.run.paths.compilations)

    def count() -> Mapping[str, Cost]:
        return cluster.work(settings, signature, compilations) if settings else {}

    # New processes compile side by side. A warm one is quick, and better left to the evaluation, which it
    # has compiled already.
    keeps = idle_seconds(leased.sweep.resources.gpu, leased.sweep.trainable) > 0
    found = count if keeps else _begun(count)
    return partial(_record_work, leased, choices, known, names, found)


def _begun(work: Callable[[], Result]) -> Callable[[], Result]:
    """Run `work` in a thread; return a function that waits for its result and raises its error."""
    answer: Future[Result] = Future()

    def run() -> None:
        try:
            answer.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised again by `result`
            answer.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return answer.result


def _record_work(
    leased: LeasedSweep,
    choices: Mapping[Hashable, Sequence[TrialRecord]],
    known: Mapping[str, Mapping[str, Any]],
    names: Mapping[Hashable, str],
    count: Callable[[], Mapping[str, Cost]],
) -> None:
    """Record the FLOPs that `count` returns for the choices in `names`, beside those of the `known` ones."""
    try:
        found = leased.shutdown.interruptible(count, partial(_obey_stop_request, leased))
    except Exception as error:  # noqa: BLE001 - described at `count_work`
        leased.observer.say(f"The FLOPs of a training step could not be counted: {redacted(str(error))}")
        return
    record = sweep_rows.record_of(leased)
    new = {choice: found[name] for choice, name in names.items()}
    entries = [
        {
            **(new[choice].document() if choice in new else _entry_of(trials, known)),
            "trials": [trial.key for trial in trials],
        }
        for choice, trials in choices.items()
    ]
    facts = {**record.facts, STEP_WORK: entries}
    leased.writer.amend_sweep(record.document, record.digest, facts)


def _choices(leased: LeasedSweep, record: SweepRecord) -> dict[Hashable, list[TrialRecord]]:
    """Return the complete trials of the best static choices, by choice."""
    trials = leased.ledger.trials(leased.sweep.id)
    best_first = ranked(
        trials,
        maximize=leased.sweep.direction == "maximize",
        violations=violations_of(leased.ledger, record),
    )
    confirmations = [t for t in trials if t.role == "confirmation" and t.state in CANDIDATE]
    choices: dict[Hashable, list[TrialRecord]] = {}
    for trial in [*best_first, *confirmations]:
        choices.setdefault(leased.sweep.settings(trial.params, trial.seed).static(), []).append(trial)
    return dict(islice(choices.items(), COUNTED))


def _entry_of(trials: Sequence[TrialRecord], known: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    return next(known[trial.key] for trial in trials if trial.key in known)


def conclude(leased: LeasedSweep, stopped: Stop | None) -> Exit:
    """Write the report, then the sweep's state together with its events for MLflow; return the exit code.

    `stopped` is None if the session has finished.
    """
    sweep, ledger = leased.sweep, leased.ledger
    state: SweepState = "COMPLETE" if sweep_rows.has_candidate(leased) else "FAILED"
    reason = stopped.reason if stopped else None
    if stopped is not None and stopped.state != "COMPLETE":
        state = stopped.state
    leased.lease.check()
    published = publication.conclude(ledger, sweep.id, leased.run.paths, state, reason)
    leased.writer.set_sweep_state(state, reason, events=published)
    return sweep_rows.exit_code(leased) if state in FINISHED_SWEEP else Exit.RESUMABLE
