"""Answers of the client: one dataclass for each kind of answer, on this machine and over HTTP.

Times are seconds since the epoch. A value that is not finite is None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestrator.client.statuses import DetailedStatus, MlflowRun
from orchestrator.ledger.people.user_records import Note, Shelf, User
from orchestrator.ledger.sweeps.records import (
    AttemptState,
    CheckpointKind,
    Role,
    TrialState,
)
from orchestrator.ledger.sweeps.selection import Direction
from orchestrator.ledger.sweeps.standing import (
    HistoryPoint,
)
from orchestrator.report.words import TitledTable
from orchestrator.sharing.pool_rows import PriorityClass

Point = tuple[int, float | None]


@dataclass(frozen=True)
class RunningTrial:
    """A running trial.

    Attributes:
        label: Its number, prefixed with `c` for a confirmation.
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
    """A sweep with a driver, or one that waits for a driver.

    Attributes:
        sweep: ID of the sweep.
        owner: Owner of the sweep.
        priority_class: Class in the queue.
        pool: ID of the Ray cluster, or None if no driver runs.
        position: Position among the sweeps without a running trial, from 1; None for others and if parked.
        share: Number of trials that it may run at once, now or once it has a driver.
        running: Number of trials that run or start.
        wanted: Number of trials that it could run at once.
        why: Reason why it runs no trial, or the node that is reserved for it or closed to it; or None.
        expected_start: Expected start of its next trial, to ten seconds; None if a trial runs, if it is
            parked, or if unknown.
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
    """Limits of a sweep, and their use by its attempts so far; None means no limit.

    Attributes:
        trials: Number of search trials.
        hours: Wall-clock hours with at least one running attempt.
        gpu_hours: Hours of all attempts, each multiplied by its share of a GPU.
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
        at: Time of the event.
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
        best_values: Best value so far after each trial of `history`.
        history: Search trials with a value in the order of their ends, unfinished ones last; of more than
            500, the improvements and evenly spaced others.
        place: Its entry in the queue, or None if it is not queued and has no driver.
        budget: Budget, or None before the first driver.
        ends_at: Expected end, or None if unknown.
        events: Latest events, the newest first.
    """

    status: DetailedStatus
    running: Sequence[RunningTrial]
    best_values: Sequence[float]
    place: QueuedSweep | None
    budget: Budget | None = None
    ends_at: float | None = None
    events: Sequence[SweepEvent] = ()
    history: Sequence[HistoryPoint] = ()


@dataclass(frozen=True)
class TrialRow:
    """A trial, as a table shows it.

    Attributes:
        key: Key, `<sweep>-<number>`.
        number: Number within its role.
        role: `search`, or `confirmation` for a retraining of the best trial.
        state: State of the trial.
        cause: Cause of a failure, or None.
        params: Hyperparameters by name.
        value: Best validation value, or None.
        best_step: Step of that value, or None.
        step: Last reported step.
        total_steps: Step at which it ends, unless it is pruned.
        attempts: Number of attempts.
        created_at: Time of the proposal.
        finished_at: Time of its end, or None.
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
    """An attempt of a trial; `taken_at` is the time at which a worker began to hold its resources."""

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
    """The rows of the ledger about a trial, without its reports.

    Attributes:
        trial: The trial.
        seed: Seed of its first attempt.
        attempts: Attempts by number.
        checkpoints: Checkpoints by step.
        evaluations: Evaluations on held-out splits.
        last_report: Last report, or None.
        shown_metrics: Metrics of the last report, without those about training only.
        reports: Number of reports.
        has_log: Whether the machine of the service has a log of it.
        mlflow: Its run in MLflow.
        code_changes: Version of the code of each attempt, one line each, if the code has changed.
        resources: Resources of the trial in words, with the bound of its GPU's memory.
        elsewhere: Events of the attempts on other machines, one line each.
        nodes: Names of those machines; the tracebacks are in their logs.
        repeats: Source of the setting that it repeats: an earlier sweep, known results or a paper; or None.
        similarity: Similarity of those results to the sweep's so far, in words; '' without them.
        by_hand: Line for a shell that runs the command of the trial without a sweep, or None.
        note: What users have noted about it, or None.
        exempt_by: User who has exempted it from early stopping, or None.
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
    resources: str = ""
    elsewhere: Sequence[str] = ()
    nodes: Sequence[str] = ()
    repeats: str | None = None
    similarity: str = ""
    by_hand: str | None = None
    note: Note | None = None
    exempt_by: str | None = None


@dataclass(frozen=True)
class Changes:
    """Differences of a sweep from the previous one of the same file and profile.

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
        note: Reason why a sweep prints nothing at present, or None.
        is_over: Whether the log of a sweep is complete.
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
        added: Whether this request, and not an earlier one, has queued it.
        warnings: Warnings for its owner, as `validate` prints them, one sentence each.
    """

    id: str
    state: str
    added: bool = True
    warnings: Sequence[str] = ()


@dataclass(frozen=True)
class Stopped:
    """A sweep with a stop request.

    Attributes:
        id: ID of the sweep.
        driver: Driver that saves its trials, or None if it has no driver.
        trial: Key of the only trial that stops, or None if all stop.
    """

    id: str
    driver: str | None
    trial: str | None = None


@dataclass(frozen=True)
class Deletion:
    """What the deletion of a sweep removes.

    Attributes:
        id: ID of the sweep.
        trials: Number of its trials, with all of their reports.
        files: Number of files and folders outside the ledger, checkpoints in a store included as one.
        bytes: Size of all of them together.
        mlflow_runs: Number of its runs in MLflow.
        referred_by: What refers to it, one phrase each: other sweeps, extended trials, registered models.
    """

    id: str
    trials: int
    files: int
    bytes: int
    mlflow_runs: int
    referred_by: Sequence[str]


@dataclass(frozen=True)
class DiskUse:
    """The space that a sweep takes outside the ledger.

    Attributes:
        sweep: ID of the sweep.
        owner: User who submitted it, or None.
        bytes: Size of its checkpoints, logs, reports and artifacts.
        shelf: `archived` or `deleted`; None if lists show it.
    """

    sweep: str
    owner: str | None
    bytes: int
    shelf: Shelf | None


@dataclass(frozen=True)
class TriedNext:
    """A setting that a sweep tries next.

    Attributes:
        id: ID of the sweep.
        params: Values of some or all hyperparameters; the sampler completes them.
        before: Number of settings that wait to be tried before it.
    """

    id: str
    params: Mapping[str, Any]
    before: int


@dataclass(frozen=True)
class SweepSettings:
    """The settings of a sweep that can be changed; `revision` is their ETag."""

    id: str
    priority_class: PriorityClass
    weight: float
    paused: bool
    revision: str


@dataclass(frozen=True)
class TrialCurve:
    """Learning curve of a trial.

    Attributes:
        points: Pairs of step and value.
        seconds: Seconds from the proposal of the trial to each point.
        batch_size: Examples of a step, or None if unknown.
    """

    trial: str
    number: int
    state: TrialState
    points: Sequence[Point]
    seconds: Sequence[float] = ()
    batch_size: int | None = None


@dataclass(frozen=True)
class ReferenceValue:
    """A value with which a metric can be compared, such as that of a constant answer."""

    name: str
    value: float


@dataclass(frozen=True)
class Band:
    """Trials without a curve of their own: step, minimum, median and maximum."""

    trials: int
    points: Sequence[tuple[int, float, float, float]]


@dataclass(frozen=True)
class LearningCurves:
    """Learning curves of some trials, and the band of the others.

    Attributes:
        metric: Metric of the curves, or None before the first driver.
        metrics: Metrics that have curves.
        total: Number of trials with reports.
        curves: Curves of the running and then of the best trials, or of the chosen ones.
        band: Band of the other trials, or of all trials beside chosen ones.
        references: Value of a constant answer, and published values of the metric.
        rungs: Steps at which the scheduler compares trials, rising; empty if it has none.
    """

    metric: str | None
    metrics: Sequence[str]
    total: int
    curves: Sequence[TrialCurve]
    band: Band
    references: Sequence[ReferenceValue] = ()
    rungs: Sequence[float] = ()


@dataclass(frozen=True)
class Norm:
    """Norm of the hidden state of a layer: pairs of step and value."""

    metric: str
    points: Sequence[Point]


@dataclass(frozen=True)
class ImportanceRow:
    """Importance of a hyperparameter, with the interval that holds 90 % of the resampled sweeps."""

    name: str
    share: float
    low: float
    high: float


@dataclass(frozen=True)
class SweepAnalysis:
    """Findings of a sweep so far.

    Attributes:
        importances: Importance of each hyperparameter, the largest first; empty for too few trials.
        seconds: Seconds of all attempts by activity.
        best: Key of the best trial, or None.
        norms: Norms of the hidden states of the best trial.
        counted: Number of trials that count for the importances: complete and pruned ones with a value.
        pruned: Number of pruned trials among them.
        fewest: Smallest number of counted trials that importances require.
        as_of: Time of the analysis in seconds since the epoch.
    """

    importances: Sequence[ImportanceRow]
    seconds: Mapping[str, float]
    best: str | None
    norms: Sequence[Norm]
    counted: int = 0
    pruned: int = 0
    fewest: int = 0
    as_of: float | None = None


@dataclass(frozen=True)
class SweepAnswer:
    """The result of a sweep in sentences, as its report begins.

    Attributes:
        answer: Sentence on the chosen trial with its values on validation and test.
        findings: Sentences on its lead over the second best trial, confirmations and published values.
        caveats: Sentences on the limits of comparisons.
        test: Metrics of the chosen trial on the test split; empty if it was not evaluated there.
        checkpoint: Folder of its best checkpoint, or None.
    """

    answer: str
    findings: Sequence[str]
    caveats: Sequence[str]
    test: Mapping[str, float | None]
    checkpoint: str | None


@dataclass(frozen=True)
class ComparedSweeps:
    """Sweeps side by side.

    Attributes:
        tables: Results, differences, tuning curves and published results, as `compare` prints them.
        markdown: The tables in GitHub's Markdown.
        document: The comparison as JSON values: `results`, `comparisons` and `tuning`, with the fields of
            `orchestrator.report.comparison.SideBySide`.
        page: HTML page with plots of the curves, or None if it was not requested.
    """

    tables: Sequence[TitledTable]
    markdown: str
    document: Mapping[str, Any]
    page: str | None = None


@dataclass(frozen=True)
class ReplayedScheduler:
    """Cost and result that a scheduler would have had, over several replays.

    Attributes:
        scheduler: Scheduler as `--scheduler` names it; `recorded` for that of the sweep.
        workers: Number of trials that run at a time.
        cost: Smallest and largest cost that the curves allow, as a fraction of that without stopping.
        time: Smallest and largest time until the last trial has ended, in whole trainings.
        found: Mean value of the best complete trial, or None if no replay has one.
        regret: Mean difference to the best trial whose curve is complete, or None.
        same: Fraction of the replays that have found that trial.
        unfinished: Fraction of the replays without a complete trial.
        unknown: Mean number of trials that continued beyond their curves; one of them may be better.
    """

    scheduler: str
    workers: int
    cost: tuple[float, float]
    time: tuple[float, float]
    found: float | None
    regret: float | None
    same: float
    unfinished: float
    unknown: float


@dataclass(frozen=True)
class QueryAnswer:
    """Rows of a query.

    Attributes:
        columns: Names of the columns.
        rows: Values of each row: texts, numbers, and None for no value.
        truncated: Whether there are more rows.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str | int | float | None]]
    truncated: bool


@dataclass(frozen=True)
class ReplayReport:
    """Replays of one set of learning curves.

    Attributes:
        rows: A row for each scheduler and number of workers, by rising cost.
        trials: Number of trials of each replay.
        truncated: Number of trials whose curves end where they were stopped.
        decisions: Number of recorded decisions that were compared with those of a replay; 0 for a table.
        differing: Keys of the trials for which the replay decides otherwise.
    """

    rows: Sequence[ReplayedScheduler]
    trials: int
    truncated: int
    decisions: int = 0
    differing: Sequence[str] = ()


@dataclass(frozen=True)
class Machine:
    """A machine of a cluster.

    Attributes:
        name: Ray's ID of the node.
        cpu: Number of cores for trials.
        devices: Number of GPUs for trials.
        shares: Number of trials that the shares place on it, by sweep; the trials may run elsewhere too.
    """

    name: str
    cpu: float
    devices: int
    shares: Mapping[str, int]


@dataclass(frozen=True)
class PoolUse:
    """The use of a cluster by a sweep.

    Attributes:
        sweep: ID of the sweep.
        owner: Owner of the sweep.
        priority_class: Class in the queue.
        trials: Number of trials that run or are about to.
        wanted: Number of trials that it could run at once.
        share: Number of trials that it may run at once.
        cpu: Number of cores that its trials hold.
        devices: Number of GPUs that its trials hold.
    """

    sweep: str
    owner: str
    priority_class: PriorityClass
    trials: int
    wanted: int
    share: int
    cpu: float
    devices: float


@dataclass(frozen=True)
class Pool:
    """A Ray cluster on which sweeps run.

    Attributes:
        id: ID of the cluster.
        cpu: Number of cores for trials.
        devices: Number of GPUs for trials.
        free_cpu: Number of cores that no trial holds.
        free_devices: Number of GPUs that no trial holds.
        nodes: Machines of the cluster.
        uses: Use of the cluster by each sweep, by its ID.
        running: Number of running trials by host and sweep; a trial counts from its first report.
    """

    id: str
    cpu: float
    devices: int
    free_cpu: float
    free_devices: float
    nodes: Sequence[Machine]
    uses: Sequence[PoolUse]
    running: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class PlannedSweep:
    """Plan of a search-space file.

    Attributes:
        id: ID of the sweep.
        task: Name of the task.
        metric: Objective.
        direction: Direction of the objective.
        trials: Largest number of search trials.
        steps: Steps of a trial, or None if not given.
        at_once: Number of concurrent trials.
        data: Source of the data, or None if the trainable loads them.
        match: Sizes chosen by `model.match`, or None.
        seconds: Time of a trial in an earlier sweep, or None.
        networks: Networks of the search space with their sizes, or None if they were not counted.
        runs: Commands and functions that a trial of a trainable runs, in words.
        lines: The plan in words, as `validate` prints it.
        warnings: Warnings for the owner before anything is spent: a budget or quota that is too small at
            the measured speed, a sweep that exists, an objective that the code has not reported.
    """

    id: str
    task: str
    metric: str
    direction: Direction
    trials: int
    steps: int | None
    at_once: int
    data: str | None
    match: str | None
    seconds: float | None
    networks: Sequence[Mapping[str, Any]] | None
    runs: Sequence[str] = ()
    lines: Sequence[str] = ()
    warnings: Sequence[str] = ()


@dataclass(frozen=True)
class NoticeTarget:
    """A target of notifications.

    Attributes:
        number: Number of the target, from 1.
        target: Target without its secret, such as `https://example.org/...`.
        events: Names of the events that it receives; all if empty.
        name: Name in `notify:` of search-space files, or '' for a target of all sweeps.
    """

    number: int
    target: str
    events: Sequence[str] = ()
    name: str = ""


@dataclass(frozen=True)
class CostRow:
    """What a sweep has used of one kind of device.

    Attributes:
        owner: Owner of the sweep; None if it was not submitted.
        sweep: ID of the sweep.
        device: Model of its GPUs, `GPU` if it is unknown, or `CPU` for trials without a GPU.
        trial_hours: Sum of the hours of its attempts on the device.
        core_hours: Sum of their hours, each multiplied by its cores.
        gpu_hours: Sum of their hours, each multiplied by its share of a GPU.
        cost: GPU-hours, or core-hours of the device `CPU`, multiplied by the price; None without prices.
    """

    owner: str | None
    sweep: str
    device: str
    trial_hours: float
    core_hours: float
    gpu_hours: float
    cost: float | None = None


@dataclass(frozen=True)
class QuotaRow:
    """The weight and the quotas of an owner; None means no limit.

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
    """A new user with its token, which cannot be read again."""

    token: str = field(default="", repr=False)
