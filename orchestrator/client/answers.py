"""What the client answers: one dataclass for each thing that is shown, here and over HTTP.

Times are seconds since the epoch. A value that is not finite is None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from orchestrator.ledger.people.users import User
from orchestrator.ledger.queue.submissions import SubmissionState
from orchestrator.ledger.sweeps.records import AttemptState, CheckpointKind, Role, TrialState, trial_label
from orchestrator.session.board import Progress
from orchestrator.sharing.pool_rows import PriorityClass

Point = tuple[int, float | None]


@dataclass(frozen=True)
class MlflowRun:
    """Where MLflow shows a sweep or a trial.

    Attributes:
        experiment: Name of the experiment, which is the name of the task.
        run_id: ID of the run, or None until MLflow has received it.
        url: Page of the run, or None if MLflow has no server.
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
        reason: Why the sweep is in this state, or None.
        task: Name of the task.
        profile: Name of the profile, or None.
        driver: Process that drives the sweep, or None.
        trials: Number of search trials by state.
        waiting_for_mlflow: Number of records that MLflow has not received yet.
        created_at: When the sweep began or was submitted.
        finished_at: When it ended, or None.
        owner: User who submitted it, or None.
        priority_class: Class in the queue.
        metric: Objective, or None before the first driver.
        best_value: Value of the best trial so far, or None.
        best_trial: Key of that trial, or None.
        on_front: Number of trials on the Pareto front of a sweep with several objectives, of which the file
            prefers none; None for any other sweep.
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
    on_front: int | None


@dataclass(frozen=True)
class DetailedStatus(Status):
    """The state of a sweep, with its progress, its failures and its file.

    Attributes:
        direction: Which values of the metric are better, or None before the first driver.
        progress: Search trials by state and the best one so far, unfinished trials included.
        failures: Number of failed search trials by cause.
        text: Search-space file.
        weight: Weight among the owner's sweeps.
        paused: Whether a person has stopped it, and it can be resumed.
        submission: State of the submission, or None if it was never submitted.
        starts: Number of drivers that the service has started, or None if it was never submitted.
        revision: ETag of the settings that can be changed.
        mlflow: Where MLflow shows it.
        exit_code: Exit code of a sweep that nothing runs, or None while it runs or waits.
    """

    direction: Literal["minimize", "maximize"] | None
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


@dataclass(frozen=True)
class RunningTrial:
    """A running trial.

    Attributes:
        label: Its number, with a `c` before that of a confirmation.
        step: Last reported step.
        total_steps: Step at which it ends, unless it is pruned.
        value: Objective in its last report, or None before the first.
        steps_per_second: Speed between its last reports, or None before the second.
        seconds_left: Estimate of the time until its last step, or None.
    """

    label: str
    step: int
    total_steps: int
    value: float | None
    steps_per_second: float | None
    seconds_left: float | None


@dataclass(frozen=True)
class QueuedSweep:
    """A sweep in the queue: one with a driver, or one that waits for the service to start a driver.

    Attributes:
        sweep: ID of the sweep.
        owner: Owner of the sweep.
        priority_class: Class in the queue.
        pool: ID of the Ray cluster, or None if no driver runs.
        position: Position among all sweeps that run nothing, from 1; None if it runs something or is parked.
        share: Number of trials that it may run at once, or could if its driver ran.
        running: Number of trials that run or are about to.
        wanted: Number of trials that it could run at once.
        why: Why it runs nothing, or which node is reserved for it or closed to it, or None.
        expected_start: When its next trial is expected to run, to ten seconds; None if it runs something or
            is parked, or if that is not known.
    """

    sweep: str
    owner: str
    priority_class: PriorityClass
    pool: str | None
    position: int | None
    share: int
    running: int
    wanted: int
    why: str | None
    expected_start: float | None


@dataclass(frozen=True)
class Budget:
    """Limits of a sweep, and what its attempts have used so far; None is no limit.

    Attributes:
        trials: Number of search trials.
        hours: Wall-clock hours in which a worker held resources.
        gpu_hours: Hours of all attempts, times their shares of a GPU.
        spent_hours: Used part of `hours`.
        spent_gpu_hours: Used part of `gpu_hours`.
        target: Value of a trial that ends the search.
        no_improvement: Number of trials without an improvement that end the search.
    """

    trials: int
    hours: float | None
    gpu_hours: float | None
    spent_hours: float
    spent_gpu_hours: float
    target: float | None = None
    no_improvement: int | None = None


@dataclass(frozen=True)
class SweepEvent:
    """An event of a sweep.

    Attributes:
        at: When it happened.
        what: Kind of event, such as `attempt started`, `attempt LOST` or `stop`.
        trial: Label of the trial, or None.
        detail: Node, cause or user, or None.
    """

    at: float
    what: str
    trial: str | None
    detail: str | None


@dataclass(frozen=True)
class LiveSweep:
    """A sweep at this moment.

    Attributes:
        status: Its state, its progress with an estimate of the time left, and its failures.
        running: Running trials by number, at most 64.
        best_values: Best value so far after each complete search trial, by the time of its end.
        place: Its entry in the queue, or None if neither a driver nor the service holds it.
        budget: Budget, or None before the first driver.
        ends_at: Expected end, or None if that is not known.
        events: Latest events, the newest first.
    """

    status: DetailedStatus
    running: Sequence[RunningTrial]
    best_values: Sequence[float]
    place: QueuedSweep | None
    budget: Budget | None = None
    ends_at: float | None = None
    events: Sequence[SweepEvent] = ()

    @property
    def best_label(self) -> str | None:
        """Label of the best trial so far, or None."""
        best = self.status.progress.best_key
        return None if best is None else trial_label(best)


@dataclass(frozen=True)
class TrialRow:
    """A trial, as a table shows it.

    Attributes:
        key: Key, `<sweep>-<number>`.
        number: Number within its role.
        role: Whether it belongs to the search or confirms its best trial.
        state: State of the trial.
        cause: Cause of a failure, or None.
        params: Hyperparameters by name.
        value: Best validation value, or None.
        best_step: Step of that value, or None.
        step: Last reported step.
        total_steps: Step at which it ends, unless it is pruned.
        attempts: Number of attempts.
        created_at: When it was proposed.
        finished_at: When it ended, or None.
    """

    key: str
    number: int
    role: Role
    state: TrialState
    cause: str | None
    params: Mapping[str, Any]
    value: float | None
    best_step: int | None
    step: int
    total_steps: int
    attempts: int
    created_at: float
    finished_at: float | None


@dataclass(frozen=True)
class AttemptRow:
    """An attempt of a trial; `taken_at` is when a worker began to hold resources for it."""

    number: int
    state: AttemptState
    cause: str | None
    node: str | None
    started_at: float
    taken_at: float | None
    ended_at: float | None


@dataclass(frozen=True)
class CheckpointRow:
    """A checkpoint of a trial."""

    step: int
    kind: CheckpointKind
    path: str
    digest: str
    bytes: int
    metrics: Mapping[str, float | None]


@dataclass(frozen=True)
class ReportRow:
    """The metrics of a trial at a step."""

    trial: str
    step: int
    at: float
    metrics: Mapping[str, float | None]


@dataclass(frozen=True)
class EvaluationRow:
    """An evaluation of a checkpoint on a held-out split."""

    step: int
    split: str
    at: float
    metrics: Mapping[str, float | None]


@dataclass(frozen=True)
class TrialDocument:
    """Everything that the ledger knows of a trial, except for its reports.

    Attributes:
        trial: The trial.
        seed: Seed of its first attempt.
        attempts: Attempts by number.
        checkpoints: Checkpoints by step.
        evaluations: Evaluations on held-out splits.
        last_report: Last report, or None.
        shown_metrics: Metrics of the last report, without those that describe training only.
        reports: Number of reports.
        has_log: Whether the machine of the service has a log of it.
        mlflow: Where MLflow shows it.
        code_changes: A line for each attempt about its version of the code, if the code has changed.
        elsewhere: Log lines of the attempts on other machines, as the ledger knows them.
        nodes: Names of those machines, whose logs hold the tracebacks.
    """

    trial: TrialRow
    seed: int
    attempts: Sequence[AttemptRow]
    checkpoints: Sequence[CheckpointRow]
    evaluations: Sequence[EvaluationRow]
    last_report: ReportRow | None
    shown_metrics: Sequence[str]
    reports: int
    has_log: bool
    mlflow: MlflowRun
    code_changes: Sequence[str] = ()
    elsewhere: Sequence[str] = ()
    nodes: Sequence[str] = ()


@dataclass(frozen=True)
class Changes:
    """How a sweep differs from the previous one of the same file and profile.

    Attributes:
        previous: ID of the previous sweep, or None.
        differences: A phrase for each field that differs, such as `training.steps 600 -> 800`.
    """

    previous: str | None
    differences: Sequence[str]


@dataclass(frozen=True)
class LogPart:
    """A part of a log.

    Attributes:
        start: Position of the part in the log, in bytes.
        end: Position behind it.
        size: Size of the log.
        text: The part.
        note: Why nothing is printed at present, or None; of the log of a sweep.
        is_over: Whether nothing prints to the log any more; of the log of a sweep.
    """

    start: int
    end: int
    size: int
    text: str
    note: str | None = None
    is_over: bool = False


@dataclass(frozen=True)
class Submitted:
    """A sweep that was submitted or queued again.

    Attributes:
        id: ID of the sweep.
        state: State of the submission.
        added: Whether this request has added or queued it.
    """

    id: str
    state: str
    added: bool = True


@dataclass(frozen=True)
class Stopped:
    """A sweep that was asked to stop, and the driver that saves its trials, if one runs."""

    id: str
    driver: str | None


@dataclass(frozen=True)
class SweepSettings:
    """The settings of a sweep that can be changed; `revision` is their ETag."""

    id: str
    priority_class: PriorityClass
    weight: float
    paused: bool
    revision: str


@dataclass(frozen=True)
class PlannedSweep:
    """What a search-space file would run.

    Attributes:
        id: ID of the sweep.
        task: Name of the task.
        metric: Objective.
        direction: Which values of it are better.
        trials: Largest number of search trials.
        steps: Steps of a trial, or None if the file does not say.
        at_once: Number of trials that run at a time.
        data: Where the data come from, or None if the trainable loads them.
        match: Sizes that `model.match` has chosen, or None.
        seconds: Time of a trial, if an earlier sweep measured it.
        networks: Networks that the search can draw with their sizes, or None if they were not counted.
        runs: What a trial of a trainable runs, in words.
        lines: The plan in words, as `validate` prints it.
    """

    id: str
    task: str
    metric: str
    direction: Literal["minimize", "maximize"]
    trials: int
    steps: int | None
    at_once: int
    data: str | None
    match: str | None
    seconds: float | None
    networks: Sequence[Mapping[str, Any]] | None
    runs: Sequence[str] = ()
    lines: Sequence[str] = ()


@dataclass(frozen=True)
class QuotaRow:
    """The weight and the quotas of an owner; None is no limit.

    Attributes:
        owner: Name of the owner.
        weight: Weight relative to other owners.
        share: Largest fraction of a cluster in use at once, from 0 to 1.
        gpu_hours: Largest number of GPU-hours a week.
        used_gpu_hours: GPU-hours used this week.
        sweeps: Largest number of queued and running sweeps.
    """

    owner: str
    weight: float
    share: float
    gpu_hours: float | None
    used_gpu_hours: float
    sweeps: int | None


@dataclass(frozen=True)
class AddedUser(User):
    """A new user with the token, which cannot be read again."""

    token: str = field(default="", repr=False)
