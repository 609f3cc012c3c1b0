"""Client backend in this process, over the ledger."""

from __future__ import annotations

import codecs
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from orchestrator import api, client
from orchestrator.api import status
from orchestrator.api.workspace import Workspace
from orchestrator.client.names import check_word, no_trial, one_of
from orchestrator.client.protocol import CURVE_POINTS, CURVES, DAYS, LOG_BYTES, SQL_ROWS, Backend
from orchestrator.client.statuses import DetailedStatus, Status
from orchestrator.driver.detached import last_lines
from orchestrator.errors import BadInput, Busy, WrongState
from orchestrator.ledger.holder import Holder
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.people.audit import COMMAND_LINE, Asked
from orchestrator.ledger.people.notes import NoteChange, change_note, note_of
from orchestrator.ledger.people.shelf import shelve
from orchestrator.ledger.people.user_records import AuditEntry, Note, Shelf, User
from orchestrator.ledger.queue import submissions
from orchestrator.ledger.queue.queue_settings import QueueSettings, ask_to_stop, settings
from orchestrator.ledger.queue.trial_requests import ask_about_trial
from orchestrator.ledger.queue.wanted_settings import ask_to_try
from orchestrator.ledger.sql_source import selected
from orchestrator.ledger.sweeps.index import known_sweeps
from orchestrator.ledger.sweeps.lease import holder
from orchestrator.ledger.sweeps.pareto import ParetoFront, read_front
from orchestrator.ledger.sweeps.records import (
    FINISHED_SWEEP,
    FINISHED_TRIAL,
    ReportRecord,
    SweepRecord,
    TrialRecord,
    UserDecision,
    is_confirmation,
)
from orchestrator.sharing.pool_rows import UNIT, Owner
from orchestrator.text_file import read_text, shown

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

Row = TypeVar("Row")


class LocalBackend(Backend):
    """The client protocol over the ledger of a root.

    >>> [sweep.id for sweep in LocalBackend("mlruns").sweeps()]  # doctest: +SKIP
    ['listops-laptop-0a1b2c3d']

    Args:
        root: Folder of everything that sweeps write; `SWEEP_ROOT` or else `mlruns` if None.
        data: Folder of the data sets; `SWEEP_DATA` or else `data` if None.
    """

    def __init__(self, root: str | Path | None = None, data: str | Path | None = None) -> None:
        self.workspace = Workspace.at(root, data)
        self._root = self.workspace.paths.root
        self._drivers: dict[str, Holder] = {}

    def sweeps(
        self,
        *,
        tag: str | None = None,
        task: str | None = None,
        since: float | None = None,
        archived: bool = False,
    ) -> Sequence[Status]:
        """The sweeps that satisfy every given condition, the oldest first."""
        return [
            each
            for each in status.sweeps(root=self._root)
            if is_wanted(each, tag, task, since) and (each.shelf is not None) == archived
        ]

    def status(self, sweep: str | None = None) -> DetailedStatus:
        return status.status(sweep, root=self._root)

    def live(self, sweep: str | None = None) -> LiveSweep:
        return api.live.live(sweep, root=self._root)

    def changes(self, sweep: str) -> Changes:
        return status.changes(sweep, root=self._root)

    def pareto(self, sweep: str) -> ParetoFront:
        """The trials of a sweep that no other one dominates in all objectives, and their hypervolume."""
        with self.workspace.ledger() as ledger:
            return read_front(ledger, _recorded(ledger, one_of(known_sweeps(ledger), sweep)))

    def trials(self, sweep: str) -> Sequence[TrialRow]:
        with self.workspace.ledger() as ledger:
            found = ledger.trials(one_of(known_sweeps(ledger), sweep))
        return [trial_row(record) for record in sorted(found, key=lambda one: one.role != "search")]

    def trial(self, trial: str) -> TrialDocument:
        found = api.local_trial.Trial.find(trial, root=self._root)
        history = found.history()
        log = found.log() if history.attempts else api.local_trial.WorkerLogs("", (), ())
        unshown, last = found.unshown_metrics, history.reports[-1] if history.reports else None
        with self.workspace.ledger() as ledger:
            sweep = ledger.sweep(found.record.sweep_id)
            assert sweep is not None, "a trial's sweep is in the ledger"
            evaluations = [row for row in ledger.evaluations(sweep.id) if row.trial_key == found.key]
            mlflow = status.mlflow_run(ledger, sweep.id, sweep.task, found.key, self.workspace)
            note = note_of(ledger, found.key)
        return client.answers.TrialDocument(
            trial=trial_row(found.record),
            seed=found.record.seed,
            attempts=[_row(client.answers.AttemptRow, attempt) for attempt in history.attempts],
            checkpoints=[
                _row(client.answers.CheckpointRow, saved)
                for saved in history.checkpoints
                if not found.is_empty(saved)
            ],
            evaluations=[_row(client.answers.EvaluationRow, evaluation) for evaluation in evaluations],
            last_report=report_row(last) if last else None,
            shown_metrics=[name for name in last.metrics if name not in unshown] if last else [],
            reports=len(history.reports),
            has_log=self.workspace.paths.log(sweep.id, found.key).exists(),
            mlflow=mlflow,
            code_changes=found.code_changes(),
            resources=found.resources(),
            elsewhere=log.elsewhere,
            nodes=log.nodes,
            repeats=found.record.repeats,
            similarity=found.similarity(sweep.facts),
            by_hand=found.by_hand(),
            note=note,
            exempt_by=found.record.decided_by("exempt"),
        )

    def reports(self, trial: str) -> Sequence[ReportRow]:
        return [
            report_row(record)
            for record in api.local_trial.Trial.find(trial, root=self._root).history().reports
        ]

    def log(self, sweep: str, start: int | None = None, length: int = LOG_BYTES) -> LogPart:
        with self.workspace.ledger() as ledger:
            sweep_id = one_of(known_sweeps(ledger), sweep)
            submission, driver = submissions.submission(ledger, sweep_id), holder(ledger, sweep_id)
            system = ledger.system
        if driver is not None:
            self._drivers[sweep_id] = driver
        note, is_over = None, False
        if submission is not None and submission.state in {"QUEUED", "STARTED"}:
            if submission.state == "QUEUED":
                state, reason = status.state_without_driver(submission, system) or ("QUEUED", None)
                note = f"{state}: {reason}" if reason else state
        elif submission is not None and driver is None:
            is_over = True
            state, reason = status.state_without_driver(submission, system) or ("ENDED", submission.cause)
            note = f"{state}: {reason}" if reason and state != "ENDED" else reason
        else:
            last = self._drivers.get(sweep_id)
            # A driver releases its lease before it prints the leaderboard.
            is_over = driver is None and (last is None or not last.is_near() or last.is_dead())
            if driver is not None and not driver.detached:
                progress = self.status(sweep_id).progress
                note = f"{progress.settled} of {progress.wanted} trials have ended"
                return client.answers.LogPart(0, 0, 0, "", note, is_over)
        file = self.workspace.paths.driver_log(sweep_id)
        if not file.exists():
            return client.answers.LogPart(0, 0, 0, "", note, is_over)
        part = log_part(file, last_lines(file) if start is None else start, length)
        return client.answers.LogPart(part.start, part.end, part.size, part.text, note, is_over)

    def trial_log(self, trial: str, start: int = 0, length: int = LOG_BYTES) -> LogPart:
        found = api.local_trial.Trial.find(trial, root=self._root)
        file = self.workspace.paths.log(found.record.sweep_id, found.key)
        return log_part(file, start, length) if file.exists() else client.answers.LogPart(0, 0, 0, "")

    def curves(
        self,
        sweep: str,
        metric: str | None = None,
        *,
        trials: int = CURVES,
        points: int = CURVE_POINTS,
        chosen: Sequence[int] | None = None,
    ) -> LearningCurves:
        return api.live.learning_curves(
            sweep, metric, trials=trials, points=points, chosen=chosen, root=self._root
        )

    def result(self, sweep: str) -> SweepAnswer:
        found = self._findings(sweep).result()
        return replace(found, test=finite(found.test))

    def analysis(self, sweep: str) -> SweepAnalysis:
        as_of = time.time()
        found = self._findings(sweep).analysis()
        norms = [client.answers.Norm(name, finite(points)) for name, points in sorted(found.norms.items())]
        importances = [_row(client.answers.ImportanceRow, importance) for importance in found.importances]
        return client.answers.SweepAnalysis(
            importances,
            found.spent.parts(),
            found.best,
            norms,
            found.counted,
            found.pruned,
            found.fewest,
            as_of,
        )

    def compare(self, sweeps: Sequence[str], *, tuning: bool = False, page: bool = False) -> ComparedSweeps:
        if not sweeps:
            raise BadInput("sweeps", "must name at least one sweep", "", "`list` shows all sweeps.")
        first, *others = [self._found(name) for name in sweeps]
        compared = first.results().answer([other.history() for other in others], tuning=tuning, page=page)
        return replace(compared, document=finite(compared.document))

    def replay(
        self, sweep: str, schedulers: Sequence[str] = (), workers: Sequence[int] = (), *, draws: int = 1
    ) -> ReplayReport:
        return api.replays.replay_sweep(self._found(sweep), schedulers, workers, draws=draws)

    def sql(self, query: str, *, rows: int = SQL_ROWS) -> QueryAnswer:
        """Query the ledger with one SELECT in SQLite's dialect."""
        with self.workspace.ledger() as ledger:
            return client.answers.QueryAnswer(*selected(ledger, query, rows))

    def report(self, sweep: str) -> bytes:
        return self._found(sweep).write_report().html.read_bytes()

    def submit(
        self,
        file: str | Path,
        *,
        profile: str | None = "auto",
        overrides: Sequence[str] = (),
        new: bool = False,
        key: str | None = None,
    ) -> Submitted:
        loaded = self._loaded(file, profile, overrides, new=new)
        warnings = loaded.warnings()
        return _submitted(api.serving.submit(loaded, new=new, key=key), warnings)

    def validate(
        self,
        file: str | Path,
        *,
        profile: str | None = "auto",
        overrides: Sequence[str] = (),
        sizes: bool = True,
    ) -> PlannedSweep:
        return api.planning.planned(self._loaded(file, profile, overrides), sizes=sizes)

    def stop(self, sweep: str, trial: str | None = None, *, asked: Asked | None = None) -> Stopped:
        """Save every trial and stop until `resume`, or stop one trial, whose place goes to the next one.

        Args:
            sweep: Name of the sweep.
            trial: Number of an unfinished trial, prefixed with `c` for a confirmation; None for all.
            asked: Entry for the audit log; one of the command line if None.
        """
        with self.workspace.ledger() as ledger:
            sweep_id = one_of(known_sweeps(ledger), sweep)
            driver = holder(ledger, sweep_id)
            if trial is not None:
                key = _ask_about(ledger, sweep_id, trial, "stop", asked)
                return client.answers.Stopped(sweep_id, str(driver) if driver else None, key)
            submission = submissions.submission(ledger, sweep_id)
            _check_unfinished(ledger.sweep(sweep_id), submission)
            if driver is None and (submission is None or submission.state not in {"QUEUED", "STARTED"}):
                state = status.detailed(ledger, sweep_id, self.workspace).state
                remedy = "`status` shows the state of a sweep."
                raise WrongState(sweep_id, "must be running to be stopped", state, remedy)
            ask_to_stop(ledger, sweep_id, asked=asked or Asked(COMMAND_LINE, "stop", sweep_id))
        return client.answers.Stopped(sweep_id, str(driver) if driver else None)

    def try_setting(self, sweep: str, params: Mapping[str, Any], *, asked: Asked | None = None) -> TriedNext:
        """Ask an unfinished sweep to try a setting next.

        Args:
            sweep: Name of the sweep.
            params: Values of some or all hyperparameters; the sampler completes them.
            asked: Entry for the audit log; one of the command line if None.
        """
        found = self._found(sweep)
        with self.workspace.ledger() as ledger:
            given, waiting = found.to_try(ledger, params)
            entry = asked or Asked(COMMAND_LINE, "try", found.id, {"params": given})
            ask_to_try(ledger, found.id, given, entry)
        return client.answers.TriedNext(found.id, given, waiting)

    def note(
        self,
        sweep: str,
        trial: str | None = None,
        *,
        text: str | None = None,
        add: Sequence[str] = (),
        remove: Sequence[str] = (),
        favourite: bool | None = None,
        actor: str = COMMAND_LINE,
    ) -> Note:
        """Change the note, the tags or the mark of a sweep or a trial, in any state, and return them.

        Args:
            sweep: Name of the sweep.
            trial: Number of the trial, prefixed with `c` for a confirmation; None for the sweep.
            text: New text in Markdown; '' removes it.
            add: Tags to add.
            remove: Tags to remove.
            favourite: Whether it is a favourite.
            actor: Name of the user, for the audit log.
        """
        with self.workspace.ledger() as ledger:
            target = sweep_id = one_of(known_sweeps(ledger), sweep)
            if trial is not None:
                target = f"{sweep_id}-{trial}"
                _trial(ledger, sweep_id, target)
            change = NoteChange(text, add, remove, favourite)
            asked = Asked(actor, "note", sweep_id, {**change.detail(), **({"trial": trial} if trial else {})})
            return change_note(ledger, sweep_id, target, change, asked)

    def shelve(self, sweep: str, shelf: Shelf | None, *, actor: str = COMMAND_LINE) -> Status:
        """Archive or delete a sweep that is neither queued nor running, or undo that.

        Args:
            sweep: Name of the sweep.
            shelf: `archived` or `deleted`; None to undo either.
            actor: Name of the user, for the audit log.
        """
        if shelf is not None:
            check_word("shelf", shelf, get_args(Shelf))
        with self.workspace.ledger() as ledger:
            sweep_id = one_of(known_sweeps(ledger), sweep)
            if shelf is not None and (driver := holder(ledger, sweep_id)) is not None:
                must = f"must not be queued or running to be {shelf}"
                raise Busy(sweep_id, must, str(driver), f"Stop it first, with `stop {sweep_id}`.")
            shelve(ledger, sweep_id, shelf, Asked(actor, "shelve", sweep_id, {"shelf": shelf}))
        return next(each for each in status.sweeps(root=self._root) if each.id == sweep_id)

    def deletion(self, sweep: str) -> Deletion:
        return api.maintenance.deletion(sweep, root=self._root)

    def disk(self) -> Sequence[DiskUse]:
        return api.maintenance.disk(root=self._root)

    def resume(self, sweep: str, trial: str | None = None, *, asked: Asked | None = None) -> SweepSettings:
        """Queue a stopped or parked sweep again, or exempt one trial from early stopping.

        Args:
            sweep: Name of the sweep.
            trial: Number of a trial of the search that has not ended; None for the sweep.
            asked: Entry for the audit log about the trial; one of the command line if None.
        """
        if trial is not None:
            with self.workspace.ledger() as ledger:
                sweep_id = one_of(known_sweeps(ledger), sweep)
                _ask_about(ledger, sweep_id, trial, "exempt", asked)
                return settings_row(sweep_id, settings(ledger, sweep_id))
        return settings_row(*api.priorities.resume(sweep, root=self._root))

    def extend(self, sweep: str, *, key: str | None = None, **budget: Any) -> Submitted:
        extended = self._found(sweep).extended(**budget)
        return _submitted(api.serving.submit(extended, key=key, only_ended=True))

    def retry(self, sweep: str, *, key: str | None = None) -> Submitted:
        selected = self._found(sweep)
        check_retry(selected)
        options = {api.serving.RETRY_FAILED: True}
        return _submitted(api.serving.submit(selected, key=key, only_ended=True, options=options))

    def queue(self) -> Sequence[QueuedSweep]:
        return api.priorities.queue(root=self._root)

    def pools(self) -> Sequence[Pool]:
        return api.clusters.pools(root=self._root)

    def move(self, sweep: str, priority_class: str, *, weight: float = 1.0) -> SweepSettings:
        return settings_row(*api.priorities.change(sweep, priority_class, weight=weight, root=self._root))

    def quota(self, owner: str) -> QuotaRow:
        return quota_row(api.priorities.quota(owner, root=self._root))

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
        root = self._root
        return quota_row(
            api.priorities.quota(
                owner, weight=weight, share=share, gpu_hours=gpu_hours, sweeps=sweeps, new=new, root=root
            )
        )

    def cost(self, prices: str | Path | None = None, *, since: float | None = None) -> Sequence[CostRow]:
        file = None if prices is None else Path(prices)
        listed = None if file is None else api.bill.price_list(read_text(file), shown(file))
        with self.workspace.ledger() as ledger:
            found = api.bill.hours(ledger, since)
        return found if listed is None else api.bill.priced(found, listed)

    def notices(self) -> Sequence[NoticeTarget]:
        return api.notice_admin.listed(root=self._root)

    def add_notice(self, target: str, events: Sequence[str] = (), name: str = "") -> Sequence[NoticeTarget]:
        return api.notice_admin.add(target, events, name, root=self._root)

    def remove_notice(self, number: int) -> Sequence[NoticeTarget]:
        return api.notice_admin.remove(number, root=self._root)

    def users(self) -> Sequence[User]:
        return api.user_admin.users(root=self._root)

    def add_user(self, name: str, role: str = "member", *, days: float = DAYS) -> AddedUser:
        added, token = api.user_admin.add(name, role, days=days, root=self._root)
        return client.answers.AddedUser(**asdict(added), token=token)

    def revoke_user(self, name: str) -> User:
        return api.user_admin.revoke(name, root=self._root)

    def audit_log(self, limit: int = 100) -> Sequence[AuditEntry]:
        return api.user_admin.audit_log(limit=limit, root=self._root)

    def _findings(self, sweep: str) -> api.findings.Findings:
        return api.findings.Findings(self._found(sweep).history())

    def _found(self, sweep: str) -> api.loaded_sweep.LoadedSweep:
        return api.loaded_sweep.LoadedSweep.find(sweep, root=self._root, data=self.workspace.data)

    def _loaded(
        self, file: str | Path, profile: str | None, overrides: Sequence[str], *, new: bool = False
    ) -> api.loaded_sweep.LoadedSweep:
        root, data = self._root, self.workspace.data
        return api.loaded_sweep.LoadedSweep.load(
            file, profile=profile, overrides=overrides, new=new, root=root, data=data
        )


_PARTICIPLES = {"stop": "stopped", "resume": "resumed"}


def check_retry(sweep: api.loaded_sweep.LoadedSweep) -> None:
    """Check that a sweep has failed trials, if it has finished.

    Raises:
        WrongState: It has finished without a failed trial.
    """
    if sweep.state in FINISHED_SWEEP and not sweep.failed():
        raise WrongState(sweep.id, "has no failed trials to retry", "", "Extend it to continue.")


def is_wanted(sweep: Status, tag: str | None, task: str | None, since: float | None) -> bool:
    """Return True if a sweep satisfies the conditions of `Backend.sweeps`."""
    return (
        (tag is None or tag in sweep.tags)
        and (task is None or task == sweep.task)
        and (since is None or sweep.created_at >= since)
    )


def _trial(ledger: Ledger, sweep_id: str, key: str) -> TrialRecord:
    found = next((record for record in ledger.trials(sweep_id) if record.key == key), None)
    if found is None:
        raise no_trial(key)
    return found


def _check_unfinished(record: SweepRecord | None, submission: submissions.Submission | None) -> None:
    """Check that a sweep has not finished, also before its driver or the service has noted the end.

    An extended sweep is unfinished, even before its driver has reopened it.
    """
    if record is None or record.state not in FINISHED_SWEEP:
        return
    waits = submission is not None and submission.state == "QUEUED"
    if not waits and (submission is None or submission.finished_before != record.finished_at):
        must = "must not have finished to be stopped"
        raise WrongState(record.id, must, record.state, "Extend it to continue.")


def _ask_about(ledger: Ledger, sweep_id: str, label: str, decision: UserDecision, asked: Asked | None) -> str:
    """Request a decision about a trial, and return the key of the trial."""
    trial = _trial(ledger, sweep_id, f"{sweep_id}-{label}")
    verb = "stop" if decision == "stop" else "resume"
    record = ledger.sweep(sweep_id)
    is_over = record is not None and record.state in FINISHED_SWEEP
    if is_over or trial.state in FINISHED_TRIAL:
        state = f"{trial.state}: {trial.cause}" if trial.cause else trial.state
        remedy = "Extend the sweep to continue trials." if verb == "resume" else "`show` has its result."
        raise WrongState(trial.key, f"must not have ended to be {_PARTICIPLES[verb]}", state, remedy)
    if verb == "resume" and trial.decided_by("stop"):
        remedy = "Wait until it has ended."
        raise WrongState(trial.key, "is already being stopped", "", remedy)
    if verb == "resume" and is_confirmation(trial.key):
        must = "must be a trial of the search to be resumed"
        raise WrongState(trial.key, must, "a confirmation", "No scheduler stops it.")
    ask_about_trial(
        ledger, trial.key, decision, asked or Asked(COMMAND_LINE, verb, sweep_id, {"trial": label})
    )
    return trial.key


def _recorded(ledger: Ledger, sweep_id: str) -> SweepRecord:
    record = ledger.sweep(sweep_id)
    if record is None:
        raise BadInput(sweep_id, "has not run yet", "", "`status` shows its state.")
    return record


def log_part(file: Path, start: int, length: int) -> LogPart:
    """Return a part of a log, which ends at the end of a character if possible.

    Args:
        file: File of the log.
        start: Position of the part in bytes.
        length: Length of the part in bytes.
    """
    with file.open("rb") as log:
        size = log.seek(0, 2)
        begin = log.seek(min(start, size))
        content = log.read(length)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(content, final=len(content) < 4 or begin + len(content) >= size)
    end = begin + len(content) - len(decoder.getstate()[0])
    return client.answers.LogPart(begin, end, size, text)


def trial_row(record: TrialRecord) -> TrialRow:
    """Return the answer about a trial of a table."""
    return _row(client.answers.TrialRow, record)


def report_row(record: ReportRecord) -> ReportRow:
    """Return the answer about a report."""
    return client.answers.ReportRow(record.trial_key, record.step, record.at, finite(record.metrics))


def settings_row(sweep_id: str, chosen: QueueSettings) -> SweepSettings:
    """Return the answer about the settings of a sweep."""
    weight = chosen.weight / UNIT
    row = (chosen.priority_class, weight, chosen.paused, chosen.revision)
    return client.answers.SweepSettings(sweep_id, *row)


def quota_row(owner: Owner) -> QuotaRow:
    """Return the answer about the weight and the quotas of an owner."""
    used = owner.week_gpu_seconds / 3600.0
    share = owner.most_share / UNIT
    limits = (share, owner.most_gpu_hours, used, owner.most_sweeps)
    return client.answers.QuotaRow(owner.name, owner.weight / UNIT, *limits)


def _submitted(submitted: tuple[submissions.Submission, bool], warnings: Sequence[str] = ()) -> Submitted:
    submission, added = submitted
    return client.answers.Submitted(submission.sweep_id, submission.state, added, warnings)


def _row(kind: type[Row], record: object) -> Row:
    """Return an answer with the attributes of a record that have the same names."""
    values = {each.name: getattr(record, each.name) for each in fields(kind)}  # type: ignore[arg-type]
    if "metrics" in values:
        values["metrics"] = finite(values["metrics"])
    return kind(**values)


def finite(value: Any) -> Any:
    """Return JSON values with None in place of numbers that are not finite."""
    if isinstance(value, Mapping):
        return {name: finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(finite(each) for each in value)
    return None if isinstance(value, float) and not math.isfinite(value) else value
