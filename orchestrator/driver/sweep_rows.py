"""The rows of a sweep in the ledger, which its driver opens, reads and closes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from orchestrator import provenance
from orchestrator.config.sections import LongerSection
from orchestrator.config.sweep_config import SweepConfig
from orchestrator.driver import kept_code
from orchestrator.driver.admission import SPECIFICATION, LeasedSweep, Run
from orchestrator.driver.user_code import account_for, opened_as
from orchestrator.errors import BadInput, DamagedCheckpoint, Exit, counted
from orchestrator.ledger.compaction import compact_beside
from orchestrator.ledger.integrity import examine
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.queue.queue_settings import asked_to_stop, reason_of
from orchestrator.ledger.sweeps.index import differences
from orchestrator.ledger.sweeps.records import (
    CANDIDATE,
    HARDWARE,
    RESOURCES,
    UNFINISHED_TRIAL,
    CheckpointRecord,
    CurvePoint,
    Event,
    SweepRecord,
    TrialRecord,
    by_trial,
)
from orchestrator.ledger.sweeps.selection import (
    best_checkpoint,
    best_of_trials,
    racing_of,
    ranked,
    violations_of,
)
from orchestrator.machines import devices
from orchestrator.machines.hardware import Hardware
from orchestrator.sharing import pool_rows as sharing
from orchestrator.storage import store
from orchestrator.system import without_garbage_collection
from orchestrator.tracking import events
from orchestrator.tracking.address import sqlite_path
from orchestrator.upkeep.mlflow_copy import REMEDY, disagreements, put_back
from orchestrator.upkeep.orphans import clear
from trainables import checkpoint
from trainables.data.task import TaskData


@without_garbage_collection()
def check_integrity(leased: LeasedSweep) -> Sequence[CurvePoint]:
    """Verify the ledger's rows of a sweep, and delete orphaned checkpoints.

    Returns:
        The points of earlier reports that the study and the scheduler need, read only once.

    Raises:
        Damaged: A row differs from what was written.
    """
    sweep_id, ledger, say = leased.sweep.id, leased.ledger, leased.observer.say
    examined = examine(ledger, sweep_id, leased.sweep.observed_metrics)
    for fault in examined.faults:
        say(fault)
    if examined.is_long:
        compact_beside(ledger, sweep_id)
    for path in clear(ledger, sweep_id, leased.run.paths.checkpoints(sweep_id)):
        say(f"Deleted orphaned checkpoint {path}.")
    return examined.curves


@without_garbage_collection()
def compare_with_mlflow(leased: LeasedSweep) -> None:
    """Deliver a sweep to MLflow again if its copy there has lost records.

    This happens when runs were deleted, or an older database was restored.
    """
    database = sqlite_path(leased.run.paths.tracking_uri)
    record = leased.ledger.sweep(leased.sweep.id)
    if database is None or record is None or leased.ledger.backlog(record.id):
        return
    if lost := disagreements(leased.ledger, record, Path(database)):
        put_back(leased.lease.writer)
        why = f"{lost[0].where}: {lost[0].problem.removesuffix(f'; {REMEDY}')}"
        leased.observer.say(f"Sending {record.id} to MLflow again: {why}.")


def is_stopped(leased: LeasedSweep) -> bool:
    """Return True if a stop request still holds; a start by a person deletes the request instead."""
    asker = asked_to_stop(leased.ledger, leased.sweep.id)
    if asker is None:
        return False
    if leased.run.unless_stopped:
        leased.observer.say(f"{leased.sweep.id}: {reason_of(asker)}; continue it with `resume`.")
        return True
    leased.writer.forget_stop_request()
    return False


def enter(leased: LeasedSweep, data: TaskData | None) -> None:
    """Create the row of a new sweep, or prepare the rows of a known one for another run."""
    sweep, ledger, say = leased.sweep, leased.ledger, leased.observer.say
    known = ledger.sweep(sweep.id)
    if known is None:
        record = _new_record(sweep, data, leased.run, ledger.now())
        kept = _keep_code(leased)
        now_ms = events.milliseconds(record.created_at)
        files = [] if kept is None else [events.artifact(sweep.id, kept, kept.parent.name, now_ms)]
        leased.writer.create_sweep(record, events=[events.sweep_started(record, sweep), *files])
        for results in sweep.known:
            say(f"Known results of {results.phrase}.")
        return
    document = sweep.document()
    longer = sweep.budget.longer
    if longer is not None and document["budget"]["longer"] != known.document["budget"].get("longer"):
        _extend(leased, known, longer)
    if leased.run.reopen or (known.finished_at and known.document["budget"] != document["budget"]):
        # Reopen first: after a kill between the two, the next driver must not take the sweep for finished.
        leased.writer.reopen("it is to go on", leased.run.reopen)
    if lost := leased.writer.lose_attempts():
        say(f"Ended {counted(lost, 'attempt')} of a dead driver at the last report.")
    facts: Mapping[str, Any] = {**known.facts, SPECIFICATION: sweep.source_text}
    news = None
    if not is_finished(leased):  # a finished sweep runs nothing, whatever its code is by now
        facts, news = _with_code(facts, sweep, leased.run.owner, ledger.now())
    if news:
        _keep_code(leased)
        say(news)
    if changed := differences(known.document, document):
        say(f"Changed: {'; '.join(changed)}.")
    if changed or facts != known.facts:
        leased.writer.amend_sweep(document, sweep.digest, facts)


def _extend(leased: LeasedSweep, known: SweepRecord, longer: LongerSection) -> None:
    """Reopen the best complete trials of a finished sweep with more steps, unless a killed driver has.

    Raises:
        BadInput: The sweep has not finished, or one of the trials cannot continue.
    """
    trials = leased.ledger.trials(leased.sweep.id)
    if known.finished_at is None:
        if any(trial.extensions and trial.total_steps == longer.steps for trial in trials):
            return
        remedy = "Let `resume` finish it first: the best trials are chosen once."
        raise BadInput(
            f"{known.id}: --extend steps", "must wait until the sweep has ended", known.state, remedy
        )
    chosen = chosen_to_extend(leased.ledger, known, trials, longer)
    for trial in chosen:
        _check_resumable(leased, trial)
    now = events.milliseconds(leased.ledger.now())
    tags = [
        events.tags(each.key, {"extended": f"from step {each.step} to {longer.steps}"}, now)
        for each in chosen
    ]
    keys = [each.key for each in chosen]
    leased.writer.reopen("its best trials are to go on", extended=keys, steps=longer.steps, events=tags)
    numbers = ", ".join(str(each.number) for each in chosen)
    leased.observer.say(f"Extending {counted(len(chosen), 'trial')} to {longer.steps} steps: {numbers}.")


def chosen_to_extend(
    ledger: Ledger, sweep: SweepRecord, trials: Sequence[TrialRecord], longer: LongerSection
) -> list[TrialRecord]:
    """Return the best complete trials of a sweep that have fewer steps than requested, the best first.

    Raises:
        BadInput: None is left.
    """
    maximize, broken = sweep.facts["direction"] == "maximize", violations_of(ledger, sweep)
    best = ranked(trials, maximize=maximize, violations=broken, racing=racing_of(sweep.document))
    chosen = [trial for trial in best[: longer.top] if trial.total_steps < longer.steps]
    if not chosen:
        most = max((trial.total_steps for trial in best[: longer.top]), default=0)
        must = f"must exceed the steps of the best {counted(longer.top, 'complete trial')} of the sweep"
        got = f"{longer.steps}, they had {most}" if most else "a sweep without a complete trial"
        raise BadInput(f"{sweep.id}: --extend steps", must, got, "Name a larger number.")
    return chosen


def _check_resumable(leased: LeasedSweep, trial: TrialRecord) -> None:
    """Check that a trial has a last checkpoint from which it can continue.

    Raises:
        BadInput: It has none, because its script reports none or the checkpoint was deleted.
    """
    sweep_id, ledger, paths = leased.sweep.id, leased.ledger, leased.run.paths
    rows = [row for row in ledger.trial_checkpoints(trial.key) if row.kind == "last"]
    must = "must have a checkpoint of its last step to be extended"
    if not rows:
        raise BadInput(trial.key, must, "none in the ledger", "Choose fewer trials by --top.")
    try:
        folder = store.at_hand(paths, ledger.id, sweep_id, trial.key, rows[0].path, rows[0].digest)
        facts = checkpoint.facts_of(folder, rows[0].digest)
    except DamagedCheckpoint as damage:
        got = f"{damage.where}: {damage.got}"
        raise BadInput(trial.key, must, got, "Choose fewer trials by --top.") from None
    if not facts.get("resumable", True):
        remedy = "Report one by `trial.report(..., checkpoint=folder)` in a new sweep."
        raise BadInput(trial.key, must, f"a {leased.sweep.kind} that reports no checkpoints", remedy)


def note_code(leased: LeasedSweep) -> None:
    """Record and report a change of the trainable's code, which new attempts run."""
    record = record_of(leased)
    facts, news = _with_code(record.facts, leased.sweep, leased.run.owner, leased.ledger.now())
    if news:
        _keep_code(leased, programs=False)
        leased.observer.say(news)
        leased.writer.amend_sweep(record.document, record.digest, facts)


def _keep_code(leased: LeasedSweep, *, programs: bool = True) -> Path | None:
    """Write the archive of the current code; None if the sweep trains networks of this package."""
    trainable, run = leased.sweep.trainable, leased.run
    if trainable is None:
        return None
    account = account_for(trainable, run.owner)
    return kept_code.keep(trainable, run.paths.code(leased.sweep.id), account, programs=programs)


def _with_code(
    facts: Mapping[str, Any], sweep: SweepConfig, owner: str, now: float
) -> tuple[Mapping[str, Any], str | None]:
    """Return the facts with the digest of the user's code, and a warning if it differs from the last one."""
    if sweep.trainable is None:
        return facts, None
    with opened_as(account_for(sweep.trainable, owner)):
        digest = sweep.trainable.code()
    known = list(facts.get(CODE, ()))
    if known and known[-1]["digest"] == digest:
        return facts, None
    where = f"the code in {sweep.trainable.folder}"
    news = f"{where} has changed since the sweep began: its trials do not all run the same code."
    changed = {**facts, CODE: [*known, {"digest": digest, "at": now}]}
    return changed, f"T{news[1:]}" if known else None


def _with_hardware(facts: Mapping[str, Any], hardware: Hardware) -> Mapping[str, Any]:
    """Return the facts of a known sweep with the current hardware."""
    known, own = list(facts.get(HARDWARE, ("unknown hardware",))), devices.described(hardware)
    return {**facts, HARDWARE: known if known[-1] == own else [*known, own]}


def _new_record(sweep: SweepConfig, data: TaskData | None, run: Run, now: float) -> SweepRecord:
    """Return the row of a new sweep, with everything needed to repeat it."""
    facts: Mapping[str, Any] = {
        "git_commit": provenance.git_commit(),
        "versions": provenance.versions(),
        "command": provenance.command(),
        HARDWARE: [devices.described(run.hardware)],
        "sampler_seed": sweep.sampler.seed,
        **(_OF_NO_TASK if data is None else _facts_of(sweep, data)),
        "metric": sweep.metric,
        "direction": sweep.direction,
        SPECIFICATION: sweep.source_text,
    }
    facts, _ = _with_code(facts, sweep, run.owner, now)
    return SweepRecord(
        id=sweep.id,
        name=sweep.name,
        profile=sweep.profile,
        task=sweep.task,
        document=sweep.document(),
        digest=sweep.digest,
        state="RUNNING",
        reason=None,
        data_source=f"loaded by {sweep.subject}" if data is None else data.source,
        data_digest="" if data is None else data.digest,
        facts=facts,
        created_at=now,
    )


CODE = "code"
"""Name of the fact that lists the digests of a trainable's code, each with the time from which it was
used."""

_OF_NO_TASK: dict[str, Any] = {"comparable": False, "note": "", "examples": {}, "chance": {}}
"""Facts of a sweep whose trials load their own data."""


def _facts_of(sweep: SweepConfig, data: TaskData) -> dict[str, Any]:
    return {
        "comparable": data.comparable,
        "note": data.note,
        "examples": {"train": len(data.train), "validation": len(data.validation)},
        "chance": data.constant_answer(sweep.metric.removeprefix("val/")),
    }


def is_finished(leased: LeasedSweep) -> bool:
    """Return True if an earlier driver has concluded the sweep and no work was added since.

    The sweep may have fewer trials than its budget: if its space is exhausted, its hours are spent or every
    trial has failed.
    """
    return record_of(leased).finished_at is not None and not without_test(leased)


def resume(leased: LeasedSweep) -> None:
    """Reopen a sweep of an earlier driver, in the ledger and in MLflow, and record its hardware."""
    sweep, ledger = leased.sweep, leased.ledger
    record, trials = record_of(leased), ledger.trial_outlines(sweep.id)
    # The hardware is recorded here and not in `enter`, because a finished sweep runs nothing.
    facts = _with_hardware(record.facts, leased.run.hardware)
    if facts != record.facts:
        leased.writer.amend_sweep(record.document, record.digest, facts)
    if not trials and record.state == "RUNNING":
        return
    unfinished = [ledger.trial(trial.key) for trial in trials if trial.state in UNFINISHED_TRIAL]
    if trials:
        done = len(trials) - len(unfinished)
        leased.observer.say(
            f"Resuming {sweep.id}: {counted(done, 'trial')} done, {len(unfinished)} to continue."
        )
    opened = events.trials_resumed(unfinished, events.milliseconds(ledger.now()))
    leased.writer.set_sweep_state("RUNNING", events=[events.sweep_started(record, sweep), *opened])


def record_resources(leased: LeasedSweep, slotted: SweepConfig) -> None:
    """Record the resources of an attempt, if they have changed; `slotted` has its number of slots fixed."""
    record, resources = record_of(leased), slotted.resources
    known, cpu, gpu = (
        list(record.facts.get(RESOURCES, ())),
        resources.cpu * resources.node_count,
        resources.total_gpu,
    )
    held = {"cpu": cpu, "gpu": gpu, "device": devices.device_of_trials(leased.run.hardware, gpu)}
    if known and {name: known[-1].get(name) for name in held} == held:
        return
    taken = {**held, "at": leased.ledger.now()}
    leased.writer.amend_sweep(record.document, record.digest, {**record.facts, RESOURCES: [*known, taken]})


def without_test(leased: LeasedSweep) -> list[tuple[TrialRecord, CheckpointRecord]]:
    """Return the best trial and the complete confirmations without a test evaluation, and their checkpoints.

    A trial whose checkpoint is not kept is left out. The list is empty if the service cannot evaluate the
    sweep's checkpoints.
    """
    if not leased.sweep.evaluates_test:
        return []
    sweep_id, ledger = leased.sweep.id, leased.ledger
    trials, checkpoints = ledger.trials(sweep_id), by_trial(ledger.checkpoints(sweep_id))
    best = best_of_trials(ledger, record_of(leased), trials, checkpoints)
    confirmed = [trial for trial in trials if trial.role == "confirmation" and trial.state in CANDIDATE]
    # An extended trial may have a better step than the one that was evaluated before.
    evaluated = {(evaluation.trial_key, evaluation.step) for evaluation in ledger.evaluations(sweep_id)}
    missing = [
        trial
        for trial in [best, *confirmed]
        if trial is not None and (trial.key, trial.best_step) not in evaluated
    ]
    rows = [(trial, best_checkpoint(trial, checkpoints.get(trial.key, ()))) for trial in missing]
    return [(trial, row) for trial, row in rows if row is not None]


def exit_code(leased: LeasedSweep) -> Exit:
    """Return the exit code of a finished sweep."""
    trials = leased.ledger.trials(leased.sweep.id)
    failed = not has_candidate(leased) or any(trial.state == "FAILED" for trial in trials)
    return Exit.SOME_FAILED if failed else Exit.COMPLETE


def has_candidate(leased: LeasedSweep) -> bool:
    """Return True if a trial of the search has ended with a value."""
    maximize = leased.sweep.direction == "maximize"
    return leased.ledger.best_value(leased.sweep.id, maximize=maximize) is not None


def record_of(leased: LeasedSweep) -> SweepRecord:
    """Return the row of the sweep, which `enter` has written."""
    record = leased.ledger.sweep(leased.sweep.id)
    assert record is not None, "a driver enters its sweep in the ledger first"
    return record


def claim_of(leased: LeasedSweep, slotted: SweepConfig) -> sharing.PoolClaim:
    """Return the claim of a sweep on the pool; `slotted` has its number of slots fixed."""
    return sharing.PoolClaim.of(
        leased.sweep.id,
        leased.run.owner,
        record_of(leased).created_at,
        slotted.resources.cpu,
        slotted.resources.gpu,
        nodes=slotted.resources.node_count,
        shares_engine=slotted.evaluates_test,
    )


def abandon(leased: LeasedSweep, reason: str) -> None:
    """Record the end of a driver that has no time to save: its trials resume after their last report."""
    leased.writer.abandon_sweep(reason, partial(_closed, leased, reason))


def interrupt(leased: LeasedSweep, reason: str) -> None:
    """Set a sweep without a session to INTERRUPTED, in MLflow too; a finished one is not changed."""
    trials = leased.ledger.trials(leased.sweep.id)
    leased.writer.interrupt_sweep(reason, events=_closed(leased, reason, trials))


def _closed(leased: LeasedSweep, reason: str, trials: Sequence[TrialRecord]) -> list[Event]:
    """Return the events that close the runs in MLflow of an interrupted sweep and its unfinished trials."""
    now = events.milliseconds(leased.ledger.now())
    ended = events.sweep_ended(leased.sweep.id, "INTERRUPTED", now, reason=reason)
    return [*events.trials_left(trials, now), ended]
