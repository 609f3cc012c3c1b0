"""The documents that the API returns, as OpenAPI describes them. Times are seconds since the epoch (UTC).

A later version may add fields; it neither removes nor renames one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.api.clusters import Pool
from orchestrator.client.answers import Budget, QueuedSweep, SweepEvent
from orchestrator.ledger.people.audit import AuditEntry
from orchestrator.ledger.people.users import Role as UserRole
from orchestrator.ledger.queue.submissions import SubmissionState
from orchestrator.ledger.sweeps.records import AttemptState, CheckpointKind, Role, TrialState
from orchestrator.sharing.rows import PriorityClass

Next = Annotated[str | None, Field(description="`after` of the next page; null on the last one.")]
Point = tuple[int, float | None]


class Answer(BaseModel):
    """A document; a handler that returns a field that is not described here fails."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class RefusalParts(Answer):
    """Why a file is refused."""

    where: str
    must: str
    got: str
    remedy: str


class Problem(Answer):
    """Why a request is refused (RFC 9457), with the four parts of a refusal."""

    type: str
    title: str
    status: int
    detail: str
    where: Annotated[str, Field(description="The header, the path, the field or the line.")]
    must: Annotated[str, Field(description="What must hold.")]
    got: Annotated[str, Field(description="What was found instead.")]
    remedy: Annotated[str, Field(description="What would be right.")]
    more: Annotated[Sequence[RefusalParts], Field(description="Further mistakes of the same file.")] = ()


class Health(Answer):
    """That the server answers."""

    status: Literal["ok"]


class SignedInUser(Answer):
    """A user and the user's role."""

    name: str
    role: UserRole


class UserRow(SignedInUser):
    """A user, which is a token with a name and a role."""

    created_at: float
    expires_at: float | None
    revoked_at: float | None


class AddedUser(UserRow):
    """A new user, with the token, which cannot be read again."""

    token: str


class UserList(Answer):
    """All users."""

    users: Sequence[UserRow]


class Audit(Answer):
    """Entries of the audit log, the newest first."""

    audit: Sequence[AuditEntry]


# ------------------------------------------------------------------ sweeps


class MlflowRun(Answer):
    """Where MLflow shows a sweep or a trial."""

    experiment: Annotated[str, Field(description="Name of the experiment: that of the task.")]
    run_id: Annotated[str | None, Field(description="Null until MLflow has received the run.")]
    url: Annotated[str | None, Field(description="Page of the run; null if MLflow has no server.")]


class MlflowRuns(MlflowRun):
    """Where MLflow shows a sweep and each of its trials."""

    runs: Annotated[Mapping[str, str], Field(description="Run ids by the key of the trial.")]


class SweepRow(Answer):
    """One sweep of a list."""

    id: str
    state: str
    reason: str | None
    task: str
    profile: str | None
    driver: str | None
    trials: Annotated[Mapping[str, int], Field(description="Trials of the search by state.")]
    waiting_for_mlflow: int
    created_at: float
    finished_at: float | None
    owner: str | None
    priority_class: PriorityClass
    metric: Annotated[str | None, Field(description="What decides; null before the first driver.")]
    best_value: float | None
    best_trial: Annotated[str | None, Field(description="Key of the best trial so far.")]


class SweepList(Answer):
    """One page of the list of sweeps."""

    total: int
    offset: int
    next: Next
    sweeps: Sequence[SweepRow]


class ProgressRow(Answer):
    """The progress of a sweep."""

    states: Annotated[Mapping[str, int], Field(description="Trials of the search by state.")]
    wanted: Annotated[int, Field(description="Trials of the search at the end.")]
    best_key: str | None
    best_value: float | None
    seconds_left: float | None
    state: str
    reason: str | None


class SweepDocument(SweepRow):
    """One sweep, with its progress, its failures and its file."""

    direction: Annotated[
        Literal["minimize", "maximize"] | None,
        Field(description="Which values of the metric are better; null before the first driver."),
    ]
    progress: ProgressRow
    failures: Annotated[Mapping[str, int], Field(description="Failed trials of the search by cause.")]
    text: str
    weight: float
    paused: Annotated[
        bool, Field(description="Whether a person has paused or stopped it: it can be resumed.")
    ]
    submission: Annotated[
        SubmissionState | None,
        Field(description="ENDED once its driver has left for good; null if it was never submitted."),
    ]
    starts: Annotated[
        int | None, Field(description="Drivers that the service has started; null if it was never submitted.")
    ]
    revision: Annotated[str, Field(description="Of what PATCH changes; send it as `If-Match`.")]
    mlflow: MlflowRun
    exit_code: int | None


class RunningRow(Answer):
    """A trial that runs."""

    label: str
    step: int
    total_steps: int
    value: float | None
    steps_per_second: float | None
    seconds_left: float | None


class Live(Answer):
    """What a sweep does at a moment."""

    status: SweepDocument
    running: Sequence[RunningRow]
    best_values: Sequence[float]
    place: QueuedSweep | None
    budget: Budget | None
    ends_at: Annotated[float | None, Field(description="When it will have ended, as far as can be told.")]
    events: Annotated[Sequence[SweepEvent], Field(description="The last ones, the newest first.")]


class Stopped(Answer):
    """A sweep that was asked to stop."""

    id: str
    driver: str | None


class Submitted(Answer):
    """A sweep that was submitted."""

    id: str
    state: str
    added: Annotated[bool, Field(description="Whether this request has added or queued it.")]


class Released(Answer):
    """A parked sweep that is queued again."""

    id: str
    state: str


class Settings(Answer):
    """What PATCH changes of a sweep."""

    id: str
    priority_class: PriorityClass
    weight: float
    paused: bool
    revision: str


# ------------------------------------------------------------------ trials


class TrialRow(Answer):
    """One trial of a table."""

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


class TrialList(Answer):
    """One page of the trials of a sweep."""

    total: int
    offset: int
    next: Next
    trials: Sequence[TrialRow]


class AttemptRow(Answer):
    """One start of a trial."""

    number: int
    state: AttemptState
    cause: str | None
    node: str | None
    started_at: float
    taken_at: Annotated[float | None, Field(description="When a worker began to hold resources for it.")]
    ended_at: float | None


class CheckpointRow(Answer):
    """A saved state of a trial."""

    step: int
    kind: CheckpointKind
    path: str
    digest: str
    bytes: int
    metrics: Mapping[str, float | None]


class ReportRow(Answer):
    """The metrics of a trial at a step."""

    trial: str
    step: int
    at: float
    metrics: Mapping[str, float | None]


class EvaluationRow(Answer):
    """An evaluation of a checkpoint on a held-out split."""

    step: int
    split: str
    at: float
    metrics: Mapping[str, float | None]


class TrialDocument(Answer):
    """Everything that the ledger knows of a trial."""

    trial: TrialRow
    seed: int
    attempts: Sequence[AttemptRow]
    checkpoints: Sequence[CheckpointRow]
    evaluations: Sequence[EvaluationRow]
    last_report: ReportRow | None
    shown_metrics: Annotated[
        Sequence[str],
        Field(description="Metrics of the last report, without those that only tell how it was trained."),
    ]
    reports: Annotated[int, Field(description="Number of reports.")]
    has_log: Annotated[bool, Field(description="Whether the machine of the service has a log of it.")]
    mlflow: MlflowRun
    code_changes: Sequence[str]
    elsewhere: Sequence[str]
    nodes: Sequence[str]


class Reports(Answer):
    """Reports in the order of their times."""

    reports: Sequence[ReportRow]
    next: Annotated[str | None, Field(description="`after` of what is reported later; null before any.")]


class TrialReports(Answer):
    """All reports of a trial."""

    reports: Sequence[ReportRow]


class Curve(Answer):
    """The learning curve of a trial: pairs of step and value."""

    trial: str
    number: int
    state: TrialState
    points: Sequence[Point]


class Band(Answer):
    """The trials that have no curve of their own: step, minimum, median and maximum."""

    trials: int
    points: Sequence[tuple[int, float, float, float]]


class Curves(Answer):
    """Learning curves, and the band of all other trials."""

    metric: str | None
    metrics: Annotated[Sequence[str], Field(description="Names that `metric` can be.")]
    total: int
    curves: Sequence[Curve]
    band: Band


class Norm(Answer):
    """The norm of the hidden state of a layer: pairs of step and value."""

    metric: str
    points: Sequence[Point]


class ImportanceRow(Answer):
    """The share of a hyperparameter, with the interval that holds 90 % of the resampled sweeps."""

    name: str
    share: float
    low: float
    high: float


class AnalysisDocument(Answer):
    """What a sweep has learned and spent."""

    importances: Sequence[ImportanceRow]
    seconds: Annotated[Mapping[str, float], Field(description="Where the time of the attempts went.")]
    best: str | None
    norms: Sequence[Norm]


class ChangesDocument(Answer):
    """What differs from the previous sweep of the same file and profile."""

    previous: str | None
    differences: Sequence[str]


class LogPart(Answer):
    """A part of a log; `start`, `end` and `size` are bytes."""

    start: int
    end: int
    size: int
    text: str
    note: str | None = None
    is_over: bool = False


class Artifact(Answer):
    """A file of a report."""

    name: str
    bytes: int


class Artifacts(Answer):
    """The files of the report that was written last."""

    artifacts: Sequence[Artifact]


# ------------------------------------------------------------------ files


class Example(Answer):
    """A search-space file to begin with."""

    name: str
    text: str


class Network(Answer):
    """A network that the search can draw, and its size."""

    model_config = ConfigDict(extra="allow")

    model: Mapping[str, Any]


class Planned(Answer):
    """What would run."""

    id: str
    task: str
    metric: str
    direction: Literal["minimize", "maximize"]
    trials: Annotated[int, Field(description="Most trials of the search.")]
    steps: Annotated[int | None, Field(description="Of a trial; null if the file does not say.")]
    at_once: Annotated[int, Field(description="Trials that run at a time on this machine.")]
    data: Annotated[str | None, Field(description="Where the data come from.")]
    match: Annotated[str | None, Field(description="The sizes that `model.match` has chosen.")]
    seconds: Annotated[float | None, Field(description="Of a trial, if an earlier sweep measured it.")]
    networks: Annotated[Sequence[Network] | None, Field(description="Null unless `sizes` asks for them.")]
    runs: Sequence[str]
    lines: Sequence[str]


class Validated(Answer):
    """What a file would run, or why it is refused."""

    refusals: Sequence[RefusalParts]
    plan: Planned | None


# ------------------------------------------------------------------ the pool


class Pools(Answer):
    """The clusters on which sweeps run."""

    pools: Sequence[Pool]


class Queue(Answer):
    """Every sweep that runs or waits."""

    queue: Sequence[QueuedSweep]


class QuotaRow(Answer):
    """The weight and the quotas of an owner."""

    owner: str
    weight: float
    share: float
    gpu_hours: float | None
    used_gpu_hours: float
    sweeps: int | None


class Quotas(Answer):
    """The weight and the quotas of every owner for whom they were set."""

    quotas: Sequence[QuotaRow]


class OwnerRow(Answer):
    """The row of an owner, in parts of 10,000."""

    name: str
    weight: int
    most_share: int
    most_gpu_hours: float | None
    used: int
    charged_at: float | None
    week: int
    week_gpu_seconds: int
    most_sweeps: int | None
