"""The client protocol: the requests that a service answers on every machine.

Two backends implement it: `orchestrator.api.local.LocalBackend` in this process, over the ledger, and
`orchestrator.client.http.HttpBackend`. Both give the same answers and raise the same errors. Running,
evaluating, exporting and upkeep need the machine of the ledger and are not part of the protocol.

>>> backend = Sweep.connect("https://sweeps.example.org")  # doctest: +SKIP
>>> submitted = backend.submit("search_spaces/listops.yaml")  # doctest: +SKIP
>>> backend.status(submitted.id).state  # doctest: +SKIP
'QUEUED'
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from orchestrator.client.statuses import DetailedStatus, Status
from orchestrator.ledger.people.user_records import AuditEntry, Note, Shelf, User
from orchestrator.ledger.sweeps.pareto import ParetoFront

if TYPE_CHECKING:  # 40 dataclasses, for which `list` would wait
    from orchestrator.client.answers import (
        AddedUser,
        Changes,
        ComparedSweeps,
        CostRow,
        Deletion,
        DiskUse,
        LearningCurves,
        LiveSweep,
        LogPart,
        NoticeTarget,
        PlannedSweep,
        Pool,
        QueryAnswer,
        QueuedSweep,
        QuotaRow,
        ReplayReport,
        ReportRow,
        Stopped,
        Submitted,
        SweepAnalysis,
        SweepAnswer,
        SweepSettings,
        TrialDocument,
        TrialRow,
        TriedNext,
    )

URL = "SWEEP_URL"
"""Environment variable with the URL of a remote service. `--root` and `--here` override it."""

DAYS = 90.0
"""Days that a token is valid by default."""

LOG_BYTES = 65_536
"""Length of a part of a log."""

CURVES = 20
"""Default number of trials with a learning curve of their own."""

CURVE_POINTS = 500
"""Default number of points of a learning curve."""


SQL_ROWS = 1_000
"""Default number of rows of a query."""


class Backend(Protocol):
    """A service on this machine or on another one.

    A sweep is named by its ID or the beginning of it, a trial by its key or its number in the newest sweep.

    Every method raises NotFound for an unknown sweep, trial or user, WrongState or Busy if the sweep does not
    permit the change at present, OverQuota if a quota does not, and BadInput for other wrong arguments. Over
    HTTP it also raises NotSignedIn, NotAllowed and TooManyRequests, and NoServer without an answer.
    """

    # Sweeps and trials

    def sweeps(
        self,
        *,
        tag: str | None = None,
        task: str | None = None,
        since: float | None = None,
        archived: bool = False,
    ) -> Sequence[Status]:
        """The sweeps that satisfy every given condition, the oldest first.

        Args:
            tag: Tag of the sweep; None for any.
            task: Name of its task; None for any.
            since: Earliest time of its beginning or submission, seconds since the epoch; None for any.
            archived: Whether to list the archived and deleted sweeps instead of the others.
        """

    def status(self, sweep: str | None = None) -> DetailedStatus:
        """The state of a sweep, or of the newest one."""

    def live(self, sweep: str | None = None) -> LiveSweep:
        """The present work of a sweep: running trials, best values, queue position, budget and events."""

    def changes(self, sweep: str) -> Changes:
        """The differences from the previous sweep of the same file and profile."""

    def pareto(self, sweep: str) -> ParetoFront:
        """The trials of a sweep that no other one dominates in all objectives, and their hypervolume."""

    def trials(self, sweep: str) -> Sequence[TrialRow]:
        """All trials of a sweep, the search before the confirmations."""

    def trial(self, trial: str) -> TrialDocument:
        """A trial with its attempts, checkpoints and evaluations, without its reports."""

    def reports(self, trial: str) -> Sequence[ReportRow]:
        """All reports of a trial, by step."""

    def log(self, sweep: str, start: int | None = None, length: int = LOG_BYTES) -> LogPart:
        """A part of the output of the drivers.

        Args:
            sweep: Name of the sweep.
            start: Position of the part in bytes; the last lines of the log if None.
            length: Length of the part in bytes.
        """

    def trial_log(self, trial: str, start: int = 0, length: int = LOG_BYTES) -> LogPart:
        """A part of the output of a trial's workers on the machine of the service.

        Args:
            trial: Name of the trial.
            start: Position of the part in bytes.
            length: Length of the part in bytes.
        """

    # Results

    def curves(
        self,
        sweep: str,
        metric: str | None = None,
        *,
        trials: int = CURVES,
        points: int = CURVE_POINTS,
        chosen: Sequence[int] | None = None,
    ) -> LearningCurves:
        """The learning curves of the running and the best trials, and the band of the others.

        Args:
            sweep: Name of the sweep.
            metric: Metric of the curves; the objective if None.
            trials: Largest number of trials with a curve of their own, at most 50.
            points: Largest number of points of a curve, from 2 to 1,000.
            chosen: Numbers of the trials with a curve of their own, instead of the running and the best ones;
                the band is then of all trials.
        """

    def result(self, sweep: str) -> SweepAnswer:
        """The chosen trial of a sweep so far in sentences, as the report begins, and its checkpoint."""

    def analysis(self, sweep: str) -> SweepAnalysis:
        """Importances of the hyperparameters, the use of time, and hidden norms of the best trial."""

    def compare(self, sweeps: Sequence[str], *, tuning: bool = False, page: bool = False) -> ComparedSweeps:
        """Compare sweeps: results by seed, trials spent, established differences and published results.

        Args:
            sweeps: Names of the sweeps, at least one.
            tuning: Whether to add tuning curves, for sweeps of independent random trials.
            page: Whether to add an HTML page with plots of the curves.
        """

    def replay(
        self, sweep: str, schedulers: Sequence[str] = (), workers: Sequence[int] = (), *, draws: int = 1
    ) -> ReplayReport:
        """Replay other schedulers on the learning curves of a sweep.

        Args:
            sweep: Name of the sweep.
            schedulers: Schedulers such as `asha:reduction=3`; the recorded one and seven others if empty.
            workers: Numbers of trials that run at a time; that of the sweep if empty.
            draws: Number of replays, each after the first with the trials in another order.
        """

    def sql(self, query: str, *, rows: int = SQL_ROWS) -> QueryAnswer:
        """Query the ledger with one SELECT in SQLite's dialect; over HTTP, as an admin.

        The views are `sweeps`, `trials`, `reports`, `metrics`, `attempts`, `evaluations`, `decisions` and
        `events`. A query ends after 10 s.

        Args:
            query: The statement.
            rows: Largest number of rows, at most 10,000.
        """

    def report(self, sweep: str) -> bytes:
        """The report of a sweep as it stands, one HTML page with its leaderboard.

        The leaderboard that `report` prints in a terminal names commands, folders and the MLflow of the
        machine of the ledger, so it is printed only there.
        """

    # Submission

    def submit(
        self,
        file: str | Path,
        *,
        profile: str | None = "auto",
        overrides: Sequence[str] = (),
        new: bool = False,
        key: str | None = None,
    ) -> Submitted:
        """Submit a search-space file of this machine.

        Args:
            file: The file.
            profile: Profile of the file, as in `Sweep.load`.
            overrides: Changes to the file, `key=value` each.
            new: Whether to run another sweep of the same file.
            key: Idempotency key; repeating the request with the same key adds nothing.
        """

    def validate(
        self,
        file: str | Path,
        *,
        profile: str | None = "auto",
        overrides: Sequence[str] = (),
        sizes: bool = True,
    ) -> PlannedSweep:
        """Check a search-space file of this machine; nothing is submitted.

        Args:
            file: The file.
            profile: Profile of the file, as in `Sweep.load`.
            overrides: Changes to the file, `key=value` each.
            sizes: Whether to count the parameters of its networks, which takes seconds.
        """

    def stop(self, sweep: str, trial: str | None = None) -> Stopped:
        """Save every trial and stop until `resume`, or stop one trial, whose place goes to the next one.

        Args:
            sweep: Name of the sweep.
            trial: Number of an unfinished trial, prefixed with `c` for a confirmation; None for all.
        """

    def try_setting(self, sweep: str, params: Mapping[str, Any]) -> TriedNext:
        """Ask an unfinished sweep to try a setting next.

        Args:
            sweep: The sweep.
            params: Values of some or all hyperparameters; the sampler completes them.
        """

    def note(
        self,
        sweep: str,
        trial: str | None = None,
        *,
        text: str | None = None,
        add: Sequence[str] = (),
        remove: Sequence[str] = (),
        favourite: bool | None = None,
    ) -> Note:
        """Change the note, the tags or the mark of a sweep or a trial, in any state, and return them.

        `status` and `trial` show them. MLflow gets them as the description and as tags of the run.

        Args:
            sweep: Name of the sweep.
            trial: Number of the trial, prefixed with `c` for a confirmation; None for the sweep.
            text: New text in Markdown; '' removes it.
            add: Tags to add.
            remove: Tags to remove.
            favourite: Whether it is a favourite.
        """

    def shelve(self, sweep: str, shelf: Shelf | None) -> Status:
        """Archive or delete a sweep that is neither queued nor running, or undo that.

        A deleted sweep can be brought back until the next `gc --delete`, which removes its checkpoints, runs
        of MLflow, files and rows.

        Args:
            sweep: Name of the sweep.
            shelf: `archived` or `deleted`; None to undo either.
        """

    def deletion(self, sweep: str) -> Deletion:
        """What the deletion of a sweep removes, and what refers to the sweep; nothing is changed."""

    def disk(self) -> Sequence[DiskUse]:
        """The space that each sweep takes, the largest first, archived and deleted sweeps included."""

    def resume(self, sweep: str, trial: str | None = None) -> SweepSettings:
        """Queue a stopped or parked sweep again, or exempt one trial from early stopping.

        A trial that is exempt runs to its last step, also if it is paused. The others are compared with it.

        Args:
            sweep: Name of the sweep.
            trial: Number of a trial of the search that has not ended; None for the sweep.
        """

    def extend(self, sweep: str, *, key: str | None = None, **budget: Any) -> Submitted:
        """Queue a finished sweep again with a larger budget.

        Args:
            sweep: Name of the sweep.
            key: Idempotency key, as for `submit`.
            budget: New values of keys of the section `budget`. Or `steps`, to which its best trials
                continue, and `top`, the number of these trials.
        """

    def retry(self, sweep: str, *, key: str | None = None) -> Submitted:
        """Queue the failed trials of a finished sweep again."""

    # The queue

    def queue(self) -> Sequence[QueuedSweep]:
        """The sweeps that run or wait, in the order of the queue."""

    def pools(self) -> Sequence[Pool]:
        """The clusters: their machines, and what each sweep uses of them."""

    def move(self, sweep: str, priority_class: str, *, weight: float = 1.0) -> SweepSettings:
        """Set the class of a sweep, and its weight relative to the owner's other sweeps."""

    def quota(self, owner: str) -> QuotaRow:
        """The weight and the quotas of an owner."""

    def set_quota(
        self,
        owner: str,
        *,
        weight: float | None = None,
        share: float | None = None,
        gpu_hours: float | None = None,
        sweeps: float | None = None,
        new: bool = False,
    ) -> QuotaRow:
        """Change the given settings of an owner, as an admin.

        Args:
            owner: Name of the owner.
            weight: Weight relative to other owners.
            share: Largest fraction of a cluster in use at once, from 0 to 1.
            gpu_hours: Largest number of GPU-hours a week; infinity for no limit.
            sweeps: Largest number of queued and running sweeps; infinity for no limit.
            new: Whether to allow an owner that does not exist yet.
        """

    def cost(self, prices: str | Path | None = None, *, since: float | None = None) -> Sequence[CostRow]:
        """The hours that sweeps have used, by owner, sweep and device.

        Args:
            prices: YAML file of this machine with the price of a GPU-hour by device, and of a core-hour as
                `CPU`.
            since: Earliest time that counts, seconds since the epoch; None for all.
        """

    # Notifications

    def notices(self) -> Sequence[NoticeTarget]:
        """The caller's targets of notifications about submitted sweeps."""

    def add_notice(self, target: str, events: Sequence[str] = (), name: str = "") -> Sequence[NoticeTarget]:
        """Send notifications about the caller's submitted sweeps to a target; return all of the caller's.

        Over HTTP, a target is an https URL on a public network or an e-mail address.

        Args:
            target: `https://...`, `slack+https://...`, `mailto:...` or a command.
            events: Names of the events, such as `best`; all if empty.
            name: Name of the target in `notify:` of search-space files; '' for a target of all sweeps.
        """

    def remove_notice(self, number: int) -> Sequence[NoticeTarget]:
        """Remove one of the caller's targets; return the others.

        Args:
            number: Number of the target.
        """

    # Users

    def users(self) -> Sequence[User]:
        """All users by name, for admins."""

    def add_user(self, name: str, role: str = "member", *, days: float = DAYS) -> AddedUser:
        """Add a user, as an admin. A lost token cannot be read again: revoke the user and add it again.

        Args:
            name: Name of the user.
            role: `viewer`, `member` or `admin`.
            days: Days until the token expires; infinity for never.
        """

    def revoke_user(self, name: str) -> User:
        """Revoke the token of a user, as an admin."""

    def audit_log(self, limit: int = 100) -> Sequence[AuditEntry]:
        """The newest entries of the audit log, the newest first, for admins."""
