"""Answers of the client about the state of sweeps, apart from `answers`, for which `list` would wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.ledger.people.user_records import Note, Shelf
from orchestrator.ledger.sweeps.records import SubmissionState
from orchestrator.ledger.sweeps.selection import Direction
from orchestrator.ledger.sweeps.standing import BestTrial, FailureGroup, Improvement, SweepCost, TimeLeft
from orchestrator.session.board import Progress
from orchestrator.sharing.pool_rows import PriorityClass


@dataclass(frozen=True)
class MlflowRun:
    """The run of a sweep or a trial in MLflow.

    Attributes:
        experiment: Name of the experiment, equal to the name of the task.
        run_id: ID of the run, or None before its delivery.
        url: Page of the run, or None without an MLflow server.
    """

    experiment: str
    run_id: str | None
    url: str | None


@dataclass(frozen=True)
class Status:
    """The state of a sweep, as a list shows it.

    Attributes:
        id: ID of the sweep.
        state: State in the ledger; INTERRUPTED if its driver died; QUEUED or PARKED if the service is to
            start a driver, or has given up after too many crashes.
        reason: Reason for the state, or None.
        task: Name of the task.
        profile: Name of the profile, or None.
        driver: Process that drives the sweep, or None.
        trials: Number of search trials by state.
        waiting_for_mlflow: Number of records that are not in MLflow yet.
        created_at: Time at which the sweep began or was submitted.
        finished_at: Time at which it ended, or None.
        owner: User who submitted it, or None.
        priority_class: Class in the queue.
        metric: Objective, or None before the first driver.
        best_value: Value of `chosen` once the sweep has ended, and of `best` before, or None.
        best_trial: Key of that trial, or None.
        best: Best trial so far of any state but FAILED, running and pruned ones included, or None.
        chosen: Best trial among those that have reached their last step, which is the result of the sweep, or
            None.
        cost: What the sweep has used, beside the limits of its budget; None before the first driver.
        time_left: Range of the time until all search trials have ended; None if unknown or nothing runs.
        state_text: State in words, such as `running` or `finishing: report and model`.
        on_front: Number of trials on the Pareto front of a sweep with several objectives, of which the file
            prefers none; None for any other sweep.
        tags: Tags that users have given it.
        favourite: Whether a user has marked it.
        shelf: `archived` or `deleted`; None if lists show it.
    """

    id: str
    state: str
    reason: str | None
    task: str
    profile: str | None
    driver: str | None
    trials: Mapping[str, int]
    waiting_for_mlflow: int
    created_at: float
    finished_at: float | None
    owner: str | None
    priority_class: PriorityClass
    metric: str | None
    best_value: float | None
    best_trial: str | None
    on_front: int | None = field(default=None, kw_only=True)
    tags: Sequence[str] = field(default=(), kw_only=True)
    favourite: bool = field(default=False, kw_only=True)
    shelf: Shelf | None = field(default=None, kw_only=True)
    best: BestTrial | None = field(default=None, kw_only=True)
    chosen: BestTrial | None = field(default=None, kw_only=True)
    cost: SweepCost | None = field(default=None, kw_only=True)
    time_left: TimeLeft | None = field(default=None, kw_only=True)
    state_text: str = field(default="", kw_only=True)


@dataclass(frozen=True)
class DriverRestart:
    """The end of a driver after which the service has started, or will start, another one.

    Attributes:
        at: Time of the end.
        cause: Last line that the driver printed, or the signal that ended it.
        parked: Whether the sweep was parked instead.
    """

    at: float
    cause: str
    parked: bool


@dataclass(frozen=True)
class AgainCommands:
    """Commands that repeat, continue or use a sweep, for a shell on the machine of the ledger.

    Attributes:
        run: Command that runs the file again, or None if the file is unknown.
        resume: Command that continues the sweep.
        export: Command that writes the best trial as files, or None without a chosen trial.
        python: Lines of Python that load the best trial, or None without a chosen trial.
        confirm: Command that retrains the best trial with fresh seeds, in a new sweep; None without a chosen
            trial, or if the sweep itself has confirmations.
    """

    run: str | None
    resume: str
    export: str | None
    python: str | None
    confirm: str | None = None


@dataclass(frozen=True)
class DetailedStatus(Status):
    """The state of a sweep, with its progress, its failures and its file.

    Attributes:
        direction: Direction of the objective, or None before the first driver.
        progress: Search trials by state and the best one so far, unfinished trials included.
        failures: Number of failed search trials by cause.
        text: Search-space file.
        weight: Weight among the owner's sweeps.
        paused: Whether a user has stopped it and it can be resumed.
        submission: State of the submission, or None if it was never submitted.
        starts: Number of drivers that the service has started, or None if it was never submitted.
        revision: ETag of the settings that can be changed.
        mlflow: Its run in MLflow.
        exit_code: Exit code of a sweep without a driver, or None while it runs or waits.
        note: What users have noted about it, or None.
        improvement: Last improvement of the search, or None without a value.
        failed: Failed search trials by the last line of their error, the most frequent first.
        restarts: Ends of drivers that the service did not expect, the newest first.
        again: Commands that repeat, continue or use the sweep.
    """

    direction: Direction | None
    progress: Progress
    failures: Mapping[str, int]
    text: str
    weight: float
    paused: bool
    submission: SubmissionState | None
    starts: int | None
    revision: str
    mlflow: MlflowRun
    exit_code: int | None
    note: Note | None = None
    improvement: Improvement | None = field(default=None, kw_only=True)
    failed: Sequence[FailureGroup] = field(default=(), kw_only=True)
    restarts: Sequence[DriverRestart] = field(default=(), kw_only=True)
    again: AgainCommands | None = field(default=None, kw_only=True)
