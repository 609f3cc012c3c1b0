"""Which sweep of the ledger a file is, how the ledger records its start, and what is left to do."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from orchestrator import provenance
from orchestrator.config.sweep_config import SweepConfig
from orchestrator.errors import BadInput
from orchestrator.exits import Exit
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.records import (
    FINISHED_SWEEP,
    UNFINISHED_TRIAL,
    CheckpointRecord,
    SweepRecord,
    TrialRecord,
)
from orchestrator.ledger.selection import best_checkpoint, best_trial
from orchestrator.tracking import events
from trainables.data.task import TaskData


def identify(
    sweep: SweepConfig, ledger: Ledger, *, known: str | None = None, new: bool = False
) -> SweepConfig:
    """Return the sweep under the id that it has, or will have, in the ledger.

    The same file is the same sweep. A changed file is another sweep, which must not start by mistake while
    the sweep of the unchanged file is unfinished.

    Args:
        sweep: as the file describes it.
        ledger: of all sweeps.
        known: id of the sweep to resume, which need not match the file; None to find it by the file.
        new: start another sweep even if the ledger knows one of this file.

    Raises:
        BadInput: if the file differs from that of its unfinished sweep, or names a sweep to learn from that
            is missing or has another objective.
    """
    records = {record.id: record for record in ledger.sweeps()}
    _check_warm_start(sweep, records)
    if known is not None:
        return _with_id(sweep, known)
    latest = newest(sweep, records)
    if new:
        return replace(latest, edition=latest.edition + 1) if latest.id in records else latest
    if latest.id not in records:
        _refuse_change(sweep, records)
    return latest


def newest(sweep: SweepConfig, known: Container[str]) -> SweepConfig:
    """Return the newest edition of a sweep whose id is known, or its first edition if none is."""
    latest = sweep
    while replace(latest, edition=latest.edition + 1).id in known:
        latest = replace(latest, edition=latest.edition + 1)
    return latest


def _with_id(sweep: SweepConfig, sweep_id: str) -> SweepConfig:
    """Return the edition of a sweep that has an id."""
    edition = sweep_id.removeprefix(f"{replace(sweep, edition=1).id}").removeprefix("-")
    return replace(sweep, edition=int(edition) if edition else 1)


def _check_warm_start(sweep: SweepConfig, known: Mapping[str, SweepRecord]) -> None:
    for name in sweep.warm_start:
        record = known.get(name)
        if record is None:
            similar = ", ".join(get_close_matches(name, known, cutoff=0.4))
            remedy = f"Known: {similar}." if similar else "`list` shows the sweeps of this ledger."
            must = "must name sweeps of this ledger"
            raise BadInput(f"{sweep.name}: warm_start", must, f"`{name}`", remedy)
        objective = f"{record.facts['direction']} {record.facts['metric']}"
        if objective != (own := f"{sweep.direction} {sweep.metric}"):
            must = f"must name sweeps with the same objective: {own}"
            raise BadInput(f"{sweep.name}: warm_start", must, f"{objective} in `{name}`", "Leave it out.")


def _refuse_change(sweep: SweepConfig, known: Mapping[str, SweepRecord]) -> None:
    for record in known.values():
        same_file = (record.name, record.profile) == (sweep.name, sweep.profile)
        if same_file and record.state not in FINISHED_SWEEP:
            raise BadInput(
                f"{sweep.name}.yaml",
                f"must be as it was when its unfinished sweep {record.id} began",
                "; ".join(differences(record.document, sweep.document())),
                f"Set it back, resume with `resume {record.id}`, or start another sweep with `--new`.",
            )


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return one phrase for each field that differs, such as `training.steps 600 -> 800`."""
    old, new = dict(_leaves(before)), dict(_leaves(now))
    keys = [*old, *(key for key in new if key not in old)]
    return [
        f"{key} {old.get(key, 'nothing')} -> {new.get(key, 'nothing')}"
        for key in keys
        if old.get(key) != new.get(key)
    ]


def _leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


# ------------------------------------------------------------------ the start, in the ledger


def enter(
    sweep: SweepConfig, ledger: Ledger, data: TaskData, reopen: Sequence[str], say: Callable[[str], None]
) -> None:
    """Create the row of a new sweep, or prepare the rows of a known one for another run.

    Args:
        sweep: under its id.
        ledger: in which this driver holds the lease.
        data: of its task.
        reopen: keys of failed trials to run again.
        say: shows one line.
    """
    known = ledger.sweep(sweep.id)
    if known is None:
        record = _new_record(sweep, data)
        ledger.create_sweep(record, events=[events.sweep_started(record, sweep)])
        return
    for key in reopen:
        ledger.reopen_trial(key)
    if lost := ledger.lose_attempts(sweep.id):
        say(f"Ended {lost} attempts of a dead driver at their last report.")
    if changed := differences(known.document, sweep.document()):
        say(f"Changed: {'; '.join(changed)}.")
        ledger.amend_sweep(sweep.id, sweep.document(), sweep.digest, known.facts)


def _new_record(sweep: SweepConfig, data: TaskData) -> SweepRecord:
    """Return the row of a sweep that begins now, with everything needed to repeat it."""
    facts: dict[str, Any] = {
        "git_commit": provenance.git_commit(),
        "versions": provenance.versions(),
        "command": provenance.command(),
        "sampler_seed": sweep.sampler.seed,
        "comparable": data.comparable,
        "note": data.note,
        "examples": {"train": len(data.train), "validation": len(data.validation)},
        "chance": data.constant_answer(sweep.metric.removeprefix("val/")),
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


# ------------------------------------------------------------------ what is left to do


def is_finished(sweep: SweepConfig, ledger: Ledger) -> bool:
    """Return True if an earlier driver has finished a sweep and its budget has not grown since."""
    record, trials = ledger.sweep(sweep.id), ledger.trials(sweep.id)
    if record is None or not record.finished_at or len(trials) < sweep.budget.trials + sweep.confirm.seeds:
        return False
    unfinished = any(trial.state in UNFINISHED_TRIAL for trial in trials)
    return not unfinished and not without_test(sweep, ledger)


def resume(sweep: SweepConfig, ledger: Ledger, say: Callable[[str], None]) -> None:
    """Open a sweep that has trials again, in the ledger and in MLflow."""
    record, trials = ledger.sweep(sweep.id), ledger.trials(sweep.id)
    if record is None or not trials:
        return
    unfinished = [trial for trial in trials if trial.state in UNFINISHED_TRIAL]
    say(f"Resuming {sweep.id}: {len(trials) - len(unfinished)} trials done, {len(unfinished)} to go on.")
    opened = events.trials_resumed(unfinished, events.milliseconds(time.time()))
    ledger.set_sweep_state(sweep.id, "RUNNING", events=[events.sweep_started(record, sweep), *opened])


def without_test(sweep: SweepConfig, ledger: Ledger) -> list[tuple[TrialRecord, CheckpointRecord]]:
    """Return the best trial and the complete confirmations that test was not evaluated for.

    Each comes with the checkpoint to evaluate; a trial whose checkpoint is not kept is left out.
    """
    trials, checkpoints = ledger.trials(sweep.id), defaultdict(list)
    for row in ledger.checkpoints(sweep.id):
        checkpoints[row.trial_key].append(row)
    best = best_trial(trials, maximize=sweep.direction == "maximize", checkpoints=checkpoints)
    confirmed = [trial for trial in trials if trial.role == "confirmation" and trial.state == "COMPLETE"]
    evaluated = {evaluation.trial_key for evaluation in ledger.readings(sweep.id)}
    missing = [trial for trial in [best, *confirmed] if trial is not None and trial.key not in evaluated]
    rows = [(trial, best_checkpoint(trial, checkpoints[trial.key])) for trial in missing]
    return [(trial, row) for trial, row in rows if row is not None]


def exit_code(sweep: SweepConfig, ledger: Ledger) -> Exit:
    """Return the exit code of a finished sweep."""
    trials = ledger.trials(sweep.id)
    best = best_trial(trials, maximize=sweep.direction == "maximize")
    failed = best is None or any(trial.state == "FAILED" for trial in trials)
    return Exit.SOME_FAILED if failed else Exit.COMPLETE
