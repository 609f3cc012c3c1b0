"""States of sweeps, read from the ledger without importing Ray, JAX, MLflow, Optuna or pandas."""

from __future__ import annotations

import json
import shlex
import time
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator import client, config
from orchestrator.api.workspace import Workspace
from orchestrator.client.names import no_sweeps, one_of
from orchestrator.client.statuses import (
    AgainCommands,
    DetailedStatus,
    DriverRestart,
    MlflowRun,
    Status,
)
from orchestrator.errors import Exit, counted
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.people import audit
from orchestrator.ledger.people.notes import note_of, notes_of_sweeps
from orchestrator.ledger.people.shelf import shelved
from orchestrator.ledger.pool import claims
from orchestrator.ledger.queue import submissions
from orchestrator.ledger.queue.queue_settings import settings
from orchestrator.ledger.queue.submissions import Submission
from orchestrator.ledger.sweeps.index import differences, earlier_of_file, exact_version, known_sweeps
from orchestrator.ledger.sweeps.lease import holder
from orchestrator.ledger.sweeps.pareto import read_front
from orchestrator.ledger.sweeps.records import (
    CANDIDATE,
    DRIVEN_SWEEP,
    FINISHED_SWEEP,
    FINISHED_TRIAL,
    AnyTrial,
    SweepOutline,
    SweepRecord,
    TrialOutline,
)
from orchestrator.ledger.sweeps.selection import best_of_sweep, preference_of, racing_of
from orchestrator.ledger.sweeps.standing import (
    SPEED_REPORTS,
    HistoryPoint,
    SweepCost,
    ValueSoFar,
    as_best,
    cost,
    failure_groups,
    first_so_far,
    history,
    improvement,
    leading,
    read_values,
    speed_and_rest,
    time_left_of,
)
from orchestrator.report import words
from orchestrator.service.start_order import seconds_left
from orchestrator.session.board import Progress
from orchestrator.sharing.pool_rows import UNIT, PriorityClass
from orchestrator.system import ClockSetting, System

_READ_TOGETHER = 100
"""Number of sweeps whose outlines are read together and kept in memory."""

CONFIRMING_SEEDS = 3
"""Number of fresh seeds that a sweep's page offers to train: fewer cannot name a winner."""


def sweeps(*, root: str | Path | None = None) -> list[Status]:
    """Return the state of every sweep, the oldest first.

    Args:
        root: Folder of everything that sweeps write; `SWEEP_ROOT` or else `mlruns` if None.

    Raises:
        BadInput: The ledger does not exist.
    """
    with Workspace.at(root).ledger() as ledger:
        classes = claims.priority_classes(ledger)
        submitted = {entry.sweep_id: entry for entry in submissions.submissions(ledger)}
        records, begun = ledger.sweeps(), []
        for start in range(0, len(records), _READ_TOGETHER):
            together = records[start : start + _READ_TOGETHER]
            outlines = ledger.outlines([record.id for record in together])
            begun += [
                overview(ledger, record, submitted.pop(record.id, None), classes, outlines[record.id])
                for record in together
            ]
        waiting = [overview(ledger, None, entry, classes) for entry in submitted.values()]
        return with_notes(ledger, [*begun, *waiting])


def with_notes(ledger: Ledger, listed: Sequence[Status]) -> list[Status]:
    """Return sweeps with their tags, favourites and shelves, which two queries read."""
    notes, shelves = notes_of_sweeps(ledger), shelved(ledger)
    found = []
    for each in listed:
        if (note := notes.get(each.id)) is not None:
            each = replace(each, tags=note.tags, favourite=note.favourite)
        if (shelf := shelves.get(each.id)) is not None:
            each = replace(each, shelf=shelf.shelf)
        found.append(each)
    return found


def overview(
    ledger: Ledger,
    record: SweepRecord | None,
    submission: Submission | None,
    classes: Mapping[str, PriorityClass],
    outline: SweepOutline | None = None,
) -> Status:
    """Return the state of a sweep from its record, its submission, or both.

    Args:
        ledger: Ledger of the sweep.
        record: Record of the sweep, or None before its first driver.
        submission: Submission of the sweep, or None.
        classes: Priority classes by sweep; others are `normal`.
        outline: Trials and attempts of the sweep, if they have been read.
    """
    outline = outline or _outline(ledger, record)
    return Status(
        **_row(ledger, record, submission, classes, outline, _values(ledger, record, outline.trials))
    )


def _outline(ledger: Ledger, record: SweepRecord | None) -> SweepOutline:
    if record is None:
        return SweepOutline((), ())
    return SweepOutline(ledger.trial_outlines(record.id), ledger.attempt_outlines(record.id))


def status(name: str | None = None, *, root: str | Path | None = None) -> DetailedStatus:
    """Return the state of one sweep.

    >>> status("listops").progress.best_value  # doctest: +SKIP
    0.41

    Args:
        name: ID of the sweep or the beginning of it; the newest sweep that is not archived if None.
        root: Folder of everything that sweeps write; `SWEEP_ROOT` or else `mlruns` if None.

    Raises:
        BadInput: The ledger does not exist, or several sweeps match.
        NotFound: No sweep matches.
    """
    workspace = Workspace.at(root)
    with workspace.ledger() as ledger:
        sweep_id = _newest(ledger) if name is None else one_of(known_sweeps(ledger), name)
        return detailed(ledger, sweep_id, workspace)


def detailed(ledger: Ledger, sweep_id: str, workspace: Workspace) -> DetailedStatus:
    """Return the state of a sweep of the ledger, with its progress, its failures and its file."""
    record, submission = ledger.sweep(sweep_id), submissions.submission(ledger, sweep_id)
    outline, chosen = _outline(ledger, record), settings(ledger, sweep_id)
    trials = outline.trials
    values = _values(ledger, record, trials)
    row = _row(ledger, record, submission, {}, outline, values)
    progress = Progress(row["trials"], 0, None, None, state=row["state"], reason=row["reason"])
    recorded = ""
    if record is not None:
        best, left, cost = row["best"], row["time_left"], row["cost"]
        progress = replace(
            progress,
            wanted=cost.trials_limit,
            best_key=best and best.key,
            best_value=best and best.value,
            seconds_left=left and left.likely,
            best_state=best and best.state,
            time_left=left,
        )
        recorded = str(record.facts.get("specification", ""))
    elif submission is not None:
        row["metric"] = config.from_document(submission.document, submission.text).metric
        progress = replace(progress, wanted=config.strategy.most_trials(submission.document))
    failures = dict(ledger.failures(sweep_id)) if record else {}
    note, on_shelf = note_of(ledger, sweep_id), shelved(ledger).get(sweep_id)
    has_failed = row["state"] in FINISHED_SWEEP and any(trial.state == "FAILED" for trial in trials)
    return DetailedStatus(
        **{**row, "priority_class": chosen.priority_class},
        direction=record.facts.get("direction") if record else None,
        progress=progress,
        failures=failures,
        text=submission.text if submission else recorded,
        weight=chosen.weight / UNIT,
        paused=chosen.paused and row["state"] not in FINISHED_SWEEP,
        submission=submission.state if submission else None,
        starts=submission.starts if submission else None,
        revision=chosen.revision,
        mlflow=mlflow_run(ledger, sweep_id, row["task"], sweep_id, workspace),
        exit_code=_exit_code(row, submission, failed=has_failed),
        tags=note.tags if note else (),
        favourite=note is not None and note.favourite,
        shelf=on_shelf.shelf if on_shelf else None,
        note=note,
        improvement=improvement(_history(record, trials, values)) if record else None,
        failed=failure_groups(trials),
        restarts=[
            DriverRestart(entry.at, str(entry.detail["cause"]), entry.detail["state"] == "PARKED")
            for entry in audit.entries(ledger, target=sweep_id, action=submissions.CRASHED)
        ],
        again=_again(row, record, submission),
    )


def settled_version(ledger: Ledger, sweep_id: str) -> Hashable | None:
    """Return a version of a sweep's status that differs after every change, or None if the time changes it.

    The status depends on the time with a driver, and while a sweep waits for one.
    """
    submission = submissions.submission(ledger, sweep_id)
    is_moving = submission is not None and submission.state in {"QUEUED", "STARTED"}
    if is_moving or holder(ledger, sweep_id) is not None:
        return None
    version = exact_version(ledger, sweep_id)
    return version and (
        version,
        submission and submission.revision,
        settings(ledger, sweep_id),
        note_of(ledger, sweep_id),
        shelved(ledger).get(sweep_id),
        ledger.backlog(sweep_id),
    )


def history_of(ledger: Ledger, record: SweepRecord, trials: Sequence[AnyTrial]) -> list[HistoryPoint]:
    """Return the history of a search; empty if no single objective ranks its trials.

    Args:
        ledger: Ledger of the sweep.
        record: Record of the sweep.
        trials: All its trials.
    """
    return _history(record, trials, _values(ledger, record, trials))


def _history(
    record: SweepRecord, trials: Sequence[AnyTrial], values: Mapping[str, ValueSoFar]
) -> list[HistoryPoint]:
    return history(trials, values, maximize=record.facts.get("direction") == "maximize")


def _values(
    ledger: Ledger, record: SweepRecord | None, trials: Sequence[AnyTrial]
) -> Mapping[str, ValueSoFar]:
    """Return the values of trials so far; none if no single objective ranks the trials."""
    if record is None or "direction" not in record.facts or preference_of(record) is None:
        return {}
    return read_values(ledger, record, trials)


def _again(
    row: Mapping[str, Any], record: SweepRecord | None, submission: Submission | None
) -> AgainCommands:
    """Return the commands that repeat, continue or use a sweep."""
    document = record.document if record else submission.document if submission else {}
    best = row["chosen"]
    chosen = best.key if best else None
    run = words.run_again(document["name"], row["profile"])
    confirm = document.get("confirm") or {}
    confirms = bool(confirm.get("seeds") or confirm.get("race"))
    return AgainCommands(
        run=run,
        resume=f"python -m orchestrator.sweep resume {row['id']}",
        export=chosen and f"python -m orchestrator.sweep export {chosen}",
        python=chosen and f'from orchestrator import Trial\n\nfolder = Trial.find("{chosen}").checkpoint',
        confirm=None if best is None or confirms else f"{run} {_confirming(best.params)}",
    )


def _confirming(params: Mapping[str, Any]) -> str:
    """Return the options of a run that trains one setting and confirms it with fresh seeds."""
    changes = (
        f"try=[{json.dumps(dict(params))}]",
        "budget.trials=1",
        f"confirm.seeds={CONFIRMING_SEEDS}",
    )
    return " ".join(f"--set {shlex.quote(change)}" for change in changes)


def _exit_code(row: Mapping[str, Any], submission: Submission | None, *, failed: bool) -> Exit | None:
    """Return the exit code of a sweep without a driver, or None while it runs or waits."""
    if row["driver"] is not None or (submission and submission.state in {"QUEUED", "STARTED"}):
        return None
    if submission and submission.state == "ENDED" and submission.code is not None:
        return Exit(submission.code)
    if row["state"] not in FINISHED_SWEEP or (submission and submission.state == "PARKED"):
        return Exit.RESUMABLE
    return Exit.SOME_FAILED if failed or row["state"] == "FAILED" else Exit.COMPLETE


def mlflow_run(ledger: Ledger, sweep_id: str, task: str, run: str, workspace: Workspace) -> MlflowRun:
    """Return the MLflow run of a sweep or of one of its trials.

    Args:
        ledger: Ledger of the sweep.
        sweep_id: ID of the sweep.
        task: Name of its task.
        run: ID of the sweep, or key of the trial.
        workspace: Workspace of the sweep.
    """
    run_id, server = ledger.mlflow_runs(sweep_id).get(run), workspace.tracking_server or ""
    is_page = run_id is not None and server.startswith(("http://", "https://"))
    return MlflowRun(task, run_id, f"{server.rstrip('/')}/#/runs/{run_id}" if is_page else None)


def changes(name: str, *, root: str | Path | None = None) -> client.answers.Changes:
    """Return the differences of a sweep from the previous one of the same file and profile.

    Args:
        name: ID of the sweep or the beginning of it.
        root: Folder of everything that sweeps write; `SWEEP_ROOT` or else `mlruns` if None.

    Raises:
        BadInput: The ledger does not exist, or several sweeps match.
        NotFound: No sweep matches.
    """

    def document(ledger: Ledger, sweep_id: str) -> Mapping[str, Any]:
        found = ledger.sweep(sweep_id) or submissions.submission(ledger, sweep_id)
        assert found is not None, "rows of the ledger are never deleted"
        return found.document

    with Workspace.at(root).ledger() as ledger:
        sweep_id = one_of(known_sweeps(ledger), name)
        own = document(ledger, sweep_id)
        previous = earlier_of_file(ledger, sweep_id, own)
        if previous is None:
            return client.answers.Changes(None, ())
        return client.answers.Changes(previous, tuple(differences(document(ledger, previous), own)))


def _row(
    ledger: Ledger,
    record: SweepRecord | None,
    submission: Submission | None,
    classes: Mapping[str, PriorityClass],
    outline: SweepOutline,
    values: Mapping[str, ValueSoFar],
) -> dict[str, Any]:
    """Return the values of `Status`."""
    if record is None:
        assert submission is not None, "rows of the ledger are never deleted"
        return _row_without_driver(ledger, submission, classes)
    driver = holder(ledger, record.id)
    is_shared = "direction" in record.facts and preference_of(record) is None
    state: str = record.state
    reason = record.reason or (_why_failed(ledger, record) if state == "FAILED" else None)
    if driver is None and state in DRIVEN_SWEEP:
        state, reason = "INTERRUPTED", "its driver is gone"
    # Without a service nothing follows the end of a driver: the sweep then is as its driver has left it.
    has_left = submission is not None and submission.state == "STARTED" and submission.driver is not None
    if driver is None and submission is not None and state not in FINISHED_SWEEP and not has_left:
        state, reason = state_without_driver(submission, ledger.system) or (state, reason)
    trials = outline.trials
    counts = Counter(str(trial.state) for trial in trials if trial.role == "search")
    states = _as_shown(dict(sorted(counts.items())), runs=driver is not None and state != "WAITING")
    is_running = driver is not None and state == "RUNNING"
    figures = _figures(ledger, record, outline, values, states, is_running=is_running)
    shown = leading(state, figures["best"], figures["chosen"])
    return {
        **figures,
        "id": record.id,
        "owner": submission.owner if submission else None,
        "state": state,
        "state_text": _state_text(state, trials, figures["cost"]),
        "reason": reason,
        "task": record.task,
        "profile": record.profile,
        "driver": str(driver) if driver else None,
        "trials": states,
        "waiting_for_mlflow": ledger.backlog(record.id) if outline.backlog is None else outline.backlog,
        "created_at": record.created_at,
        "finished_at": record.finished_at,
        "priority_class": classes.get(record.id, "normal"),
        "metric": record.facts.get("metric"),
        "best_value": shown.value if shown else None,
        "best_trial": shown.key if shown else None,
        "on_front": len(read_front(ledger, record).trials) if is_shared else None,
    }


def _row_without_driver(
    ledger: Ledger, submission: Submission, classes: Mapping[str, PriorityClass]
) -> dict[str, Any]:
    """Return the values of `Status` for a submission that no driver has recorded as a sweep."""
    refused = "FAILED" if submission.code == Exit.BAD_INPUT else "INTERRUPTED"
    state, reason = state_without_driver(submission, ledger.system) or (refused, submission.cause)
    return {
        "id": submission.sweep_id,
        "owner": submission.owner,
        "state": state,
        "state_text": state.lower(),
        "reason": reason,
        "task": config.trainable.task_of(submission.document),
        "profile": submission.document.get("profile"),
        "driver": None,
        "trials": {},
        "waiting_for_mlflow": 0,
        "created_at": submission.at,
        "finished_at": None,
        "priority_class": classes.get(submission.sweep_id, "normal"),
        "metric": None,
        "best_value": None,
        "best_trial": None,
        "on_front": None,
        "best": None,
        "chosen": None,
        "cost": None,
        "time_left": None,
    }


def _figures(
    ledger: Ledger,
    record: SweepRecord,
    outline: SweepOutline,
    values: Mapping[str, ValueSoFar],
    states: Mapping[str, int],
    *,
    is_running: bool,
) -> dict[str, Any]:
    """Return best trials, cost and time left of a sweep, as values of `Status`."""
    trials, attempts = outline.trials, outline.attempts
    now, most = ledger.now(), _most_trials(record.document)
    wanted = max(sum(states.values()), most)
    until = now if "RUNNING" in states else None
    figures: dict[str, Any] = {
        "best": None,
        "chosen": None,
        "cost": cost(record, attempts, states, trials_limit=wanted, now=until),
        "time_left": None,
    }
    maximize = record.facts.get("direction") == "maximize"
    best, chosen = first_so_far(trials, values, maximize=maximize), _chosen(ledger, record, trials, values)
    if best is not None:
        figures["best"] = as_best(best, values[best.key], ledger.trial(best.key).params)
    if chosen is not None:
        is_same = best is not None and best.key == chosen.key
        figures["chosen"] = (
            figures["best"]
            if is_same
            else as_best(chosen, values[chosen.key], ledger.trial(chosen.key).params)
        )
    if is_running:
        left = {trial.key: speed_of(ledger, trial)[1] for trial in trials if trial.state == "RUNNING"}
        figures["time_left"] = time_left_of(record, trials, attempts, left, trials_limit=wanted, now=now)
    return figures


def _chosen(
    ledger: Ledger, record: SweepRecord, trials: Sequence[TrialOutline], values: Mapping[str, ValueSoFar]
) -> TrialOutline | None:
    """Return the best trial of those that have reached their last step, or None; see `best_of_sweep`."""
    maximize = record.facts.get("direction") == "maximize"
    candidates = [trial for trial in trials if trial.state in CANDIDATE]
    if not racing_of(record.document):
        return first_so_far(candidates, values, maximize=maximize)
    best = best_of_sweep(ledger, record)  # by the retrainings, which have the same hyperparameters
    return next((t for t in candidates if best is not None and t.key == best.key and t.key in values), None)


_CONTINUOUS = frozenset({"uniform", "log_uniform", "normal", "log_normal"})


def _most_trials(document: Mapping[str, Any]) -> int:
    """Return the largest number of trials; infinitely many settings are not counted, to save time."""
    searched = (document.get("search") or {}).values()
    if any(_CONTINUOUS & each.keys() and not {"when", "step"} & each.keys() for each in searched):
        return int(document["budget"]["trials"])
    return config.strategy.most_trials(document)


def speed_of(ledger: Ledger, trial: AnyTrial) -> tuple[float | None, float | None]:
    """Return the steps per second of a running trial, and the seconds until its last step; None if unknown.

    Args:
        ledger: Ledger of the trial.
        trial: Trial.
    """
    return speed_and_rest(trial, ledger.recent_reports(trial.key, SPEED_REPORTS), ledger.now())


def _state_text(state: str, trials: Sequence[AnyTrial], used: SweepCost) -> str:
    """Return the state of a sweep in words."""
    if state != "RUNNING":
        return state.lower()
    if not trials:
        return "starting"
    if used.trials_ended < used.trials_limit:
        return "running"
    seeds = [trial for trial in trials if trial.role == "confirmation"]
    ended = sum(trial.state in FINISHED_TRIAL for trial in seeds)
    if ended < len(seeds):
        return f"confirming: {ended} of {counted(len(seeds), 'seed')}"
    return "finishing: report and model"


def _as_shown(states: Mapping[str, int], *, runs: bool) -> Mapping[str, int]:
    """Return the number of trials by state, with RUNNING trials as WAITING if `runs` is false.

    After the death of a driver, rows stay RUNNING until the next driver ends their attempts.
    """
    if runs or "RUNNING" not in states:
        return states
    waiting = states["RUNNING"] + states.get("WAITING", 0)
    return {**{state: count for state, count in states.items() if state != "RUNNING"}, "WAITING": waiting}


def _why_failed(ledger: Ledger, record: SweepRecord) -> str | None:
    """Return the most frequent cause of the failures of a sweep without a complete trial."""
    states = ledger.states(record.id)
    if not (failures := Counter(ledger.failures(record.id))):
        diverged, trials = states.get("DIVERGED", 0), counted(sum(states.values()), "trial")
        return f"{diverged} of {trials} diverged, and none has a value" if diverged else None
    ((cause, count),) = failures.most_common(1)
    return f"{count} of {counted(sum(states.values()), 'trial')} failed: {cause}"


def state_without_driver(submission: Submission, system: System) -> tuple[str, str | None] | None:
    """Return the state of a submission without a driver, and the reason; None if it has ended.

    Args:
        submission: Submission of the sweep.
        system: System of this process, whose clock gives the times.
    """
    cause = submission.cause
    if submission.state == "STARTED" and submission.driver is None and submission.code is None:
        return "QUEUED", "its driver is starting"
    if submission.state == "STARTED":
        return "QUEUED", "its driver has ended; the service decides what follows"
    if submission.state == "PARKED":
        crashes = counted(submission.crashes, "time")
        return "PARKED", f"crashed {crashes} without a report, the last time: {cause}"
    if submission.state == "ENDED":
        return None
    clock = ClockSetting.here(system)
    shown = submission.by(clock)
    if seconds_left(shown, clock.now(system)):
        at = time.strftime("%H:%M:%S", time.localtime(shown.next_try))
        return "QUEUED", f"starts again at {at}, because: {cause}"
    return "QUEUED", cause


def _newest(ledger: Ledger) -> str:
    shelves = shelved(ledger)
    since = {name: known.since for name, known in known_sweeps(ledger).items() if name not in shelves}
    if not since:
        raise no_sweeps()
    return max(since, key=lambda sweep_id: since[sweep_id])
