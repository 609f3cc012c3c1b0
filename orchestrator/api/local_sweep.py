"""One sweep: load it, run it, stop it, and read what came out.

sweep = Sweep.load("search_spaces/listops.yaml", profile="laptop", overrides=["budget.trials=4"])
sweep.run()
sweep.trials                      # a pandas frame, one row a trial
sweep.best.predictor()            # the trained network
sweep.figure("learning-curves")   # a Plotly figure
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm.auto import tqdm

from orchestrator.accounts import Account
from orchestrator.api.status import detailed, overview
from orchestrator.api.trial import Trial
from orchestrator.api.workspace import Workspace
from orchestrator.client.answers import DetailedStatus
from orchestrator.client.http import HttpBackend
from orchestrator.client.names import one_of
from orchestrator.client.protocol import Backend
from orchestrator.config import from_dict, from_document, networks
from orchestrator.config import load as load_file
from orchestrator.config.document import Mistake, flow
from orchestrator.config.networks import chosen_sizes
from orchestrator.config.sweep_config import SweepConfig
from orchestrator.driver import admission, preflight, preview
from orchestrator.driver.admission import Observer, Run
from orchestrator.driver.preflight import Estimate
from orchestrator.driver.preview import counted
from orchestrator.driver.run import drive
from orchestrator.driver.user_code import account_for, check_bound, check_code, opened_as
from orchestrator.errors import BadInput, Exit, Refusal, check_all
from orchestrator.ledger.holder import Holder
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.people.audit import COMMAND_LINE, Asked
from orchestrator.ledger.queue import submissions
from orchestrator.ledger.queue.settings import ask_to_stop
from orchestrator.ledger.queue.submissions import Submission
from orchestrator.ledger.sweeps.index import known_sweeps
from orchestrator.ledger.sweeps.lease import holder
from orchestrator.ledger.sweeps.pareto import ParetoFront, read_front
from orchestrator.ledger.sweeps.records import FINISHED_SWEEP, SweepRecord
from orchestrator.ledger.sweeps.selection import best_of_sweep, objectives_of, preference_of
from orchestrator.machines.hardware import Hardware, Node, detect, fitting, require_gpu_jax
from orchestrator.report.history import History, read
from orchestrator.report.summary import Summary, summarise
from orchestrator.report.words import duration, number
from orchestrator.session.board import Progress
from trainables.cost import Cost
from trainables.data.task import Signature, Source, completed
from trainables.tasks import TASKS
from trainables.trial import ModelSettings

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from orchestrator.api.results import Results
    from orchestrator.report.analysis import Analysis
    from orchestrator.report.comparison import SideBySide
    from orchestrator.report.report import ReportFiles

DEADLINE_SECONDS: float = Run.deadline
TRACKING_SECONDS: float = Run.tracking_patience

MOST_NETWORKS = 64
"""Largest number of networks whose sizes `Sweep.networks` counts, each in a tenth of a second."""


@dataclass(frozen=True)
class Plan:
    """What running a sweep would take.

    Attributes:
        source: Data set, or None if the trainable loads its own.
        hardware: Hardware that trials can use.
        at_once: Number of concurrent trials.
        estimate: Time and memory of a trial, as an earlier sweep measured them; None if none did.
        matched: Sizes chosen by `model.match` in words, or None.
        requires: Requirements of the task on a network in words, or None if they are not known.
        runs: Commands or functions that a trial of a trainable runs, in words; empty for a network.
    """

    source: Source | None
    hardware: Hardware
    at_once: int
    estimate: Estimate | None
    matched: str | None
    requires: str | None
    runs: tuple[str, ...]


@dataclass(frozen=True)
class SizedNetwork:
    """A network of the search space and its size; `cost.flops` is None unless it was counted."""

    model: ModelSettings
    cost: Cost


@dataclass(frozen=True)
class _Request:
    """How a sweep was requested.

    Attributes:
        automatic: Whether the profile was chosen by the hardware; None for a sweep of the ledger.
        new: Whether another sweep of the same file is to be started.
        hardware: What trials can run on, if it is known already.
    """

    automatic: bool | None = None
    new: bool = False
    hardware: Hardware | None = None


class _Bar(Observer):
    """Logs the messages of a sweep, and shows its progress as a bar on standard error."""

    def __init__(self, sweep: Sweep) -> None:
        self._metric = sweep.specification.metric
        # Where the bar is not redrawn in place, each drawing is a line of its own.
        pause = 0.1 if _is_redrawn() else 10.0
        self._bar = tqdm(desc=sweep.id, total=0, unit="trial", mininterval=pause, file=sys.stderr)
        self._bar.set_postfix_str("starting")

    def loading(self, what: str, done: int, total: int) -> None:
        """Show how much of the data set has been prepared."""
        self._bar.set_postfix_str(f"{what}: {done:,} of {total:,}")

    def show(self, progress: Progress) -> None:
        """Show the progress of the sweep."""
        parts = [] if progress.reason is None else [f"{progress.state}: {progress.reason}"]
        if progress.best_value is not None:
            parts.append(f"best {self._metric} {number(progress.best_value)}")
        if progress.seconds_left:
            parts.append(f"about {duration(progress.seconds_left)} left")
        self._bar.total = progress.wanted
        self._bar.set_postfix_str(", ".join(parts), refresh=False)
        self._bar.update(progress.settled - self._bar.n)
        if _is_redrawn():
            self._bar.refresh()

    def close(self) -> None:
        """Draw the bar for the last time."""
        self._bar.close()


def _is_redrawn() -> bool:
    """Return True if a bar on standard error is redrawn in place: in a terminal and in a notebook."""
    return sys.stderr.isatty() or any(base.__name__ == "tqdm_notebook" for base in tqdm.__mro__)


@contextmanager
def _watching(sweep: Sweep, observer: Observer | None, progress: bool | None) -> Iterator[Observer]:
    """Yield what receives the messages and the progress of a sweep for the length of a `with` block."""
    wanted = _is_redrawn() if progress is None else progress
    if observer is not None or not wanted:
        yield observer or Observer()
        return
    bar = _Bar(sweep)
    try:
        yield bar
    finally:
        bar.close()


class Sweep:
    """One search-space file, run once: its specification, and what the ledger knows of it.

    Every method may be called from any thread. What a method writes is in its description; all of it is under
    the root, except the data folder's cache and what an argument names.

    Attributes:
        id: Id of the sweep in the ledger, in MLflow and in the names of its files.
        workspace: The folders that the sweep reads and writes.
    """

    def __init__(
        self,
        sweep_id: str,
        workspace: Workspace,
        specification: SweepConfig | None = None,
        request: _Request = _Request(),
    ) -> None:
        self.id, self.workspace = sweep_id, workspace
        self._given, self._request = specification, request

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        profile: str | None = "auto",
        overrides: Sequence[str] = (),
        new: bool = False,
        hardware: Hardware | None = None,
        root: str | Path | None = None,
        data: str | Path | None = None,
        reader: Account | None = None,
    ) -> Sweep:
        """Return the sweep of a search-space file. Nothing is run, written or asked over the network.

        Only a ledger that an older version has written is brought up to date.

        Args:
            path: The file.
            profile: Name of a profile of the file; None for the file as it stands; "auto" for the profile
                `laptop` if there is no GPU and the file has that profile.
            overrides: Changes to the file, `key=value` each, such as `training.steps=1000`.
            new: Return another sweep of the same file instead of the one in the ledger.
            hardware: What trials can run on, as `available` returns it; it decides "auto". If None, "auto"
                goes by the GPUs of this machine, or means None if `RAY_ADDRESS` names a cluster.
            root: Folder of everything that sweeps write; `SWEEP_ROOT` or else `mlruns` if None.
            data: Folder of the data sets; `SWEEP_DATA` or else `data` if None.
            reader: Account that reads the file and its code; the account of this process if None.

        Raises:
            BadInput: The file, the profile or an override is wrong; the error names file, line and key. Or
                others can change the root.
        """
        name, gpus = _profile(profile, hardware)
        with opened_as(reader):
            try:
                specification = load_file(Path(path), profile=name, overrides=tuple(overrides), gpus=gpus)
            except Mistake as mistake:
                mistake.more = (*mistake.more, *_mistakes_of_code(mistake.repaired))
                raise
        request = _Request(profile == "auto", new, hardware)
        is_given = any(override.strip().startswith("budget") for override in overrides)
        return cls._of(specification, Workspace.at(root, data), request, budget_is_given=is_given)

    @classmethod
    def from_dict(
        cls,
        document: Mapping[str, Any],
        *,
        name: str,
        profile: str | None = "auto",
        new: bool = False,
        hardware: Hardware | None = None,
        root: str | Path | None = None,
        data: str | Path | None = None,
    ) -> Sweep:
        """Return the sweep of a search-space file given as a mapping; like `load` in all else.

        Args:
            document: The sections of the file: mappings, lists, numbers, strings, booleans and None. Strings
                are words: write `math.pi / 10` where a file says `pi/10`.
            name: Name of the sweep, as the stem of a file would be.
            profile: Profile, as in `load`.
            new: Whether to start another sweep, as in `load`.
            hardware: Hardware, as in `load`.
            root: Root, as in `load`.
            data: Folder of the data sets, as in `load`.

        Raises:
            BadInput: The mapping or the profile is wrong, as `load` would say; the error names the key.
        """
        chosen, gpus = _profile(profile, hardware)
        specification = from_dict(document, name=name, profile=chosen, gpus=gpus)
        request = _Request(profile == "auto", new, hardware)
        return cls._of(specification, Workspace.at(root, data), request)

    @classmethod
    def of(
        cls,
        specification: SweepConfig,
        workspace: Workspace,
        *,
        automatic: bool = False,
        new: bool = False,
        hardware: Hardware | None = None,
    ) -> Sweep:
        """Return the sweep of a validated specification: the newest one of the ledger, or a new one.

        Args:
            specification: Search-space file with its profile and overrides applied.
            workspace: The folders that the sweep reads and writes.
            automatic: Whether the profile was chosen by the hardware.
            new: Return another sweep of the same file instead of the one in the ledger.
            hardware: What trials can run on, as `available` returns it; if None, this machine.

        Raises:
            BadInput: Others can change the root.
        """
        return cls._of(specification, workspace, _Request(automatic, new, hardware))

    @classmethod
    def find(cls, name: str, *, root: str | Path | None = None, data: str | Path | None = None) -> Sweep:
        """Return a sweep of the ledger, or one that was submitted to the service and has not begun.

        Args:
            name: ID of the sweep, or the beginning of it.
            root: Folder of everything that sweeps write; `SWEEP_ROOT` or else `mlruns` if None.
            data: Folder of the data sets; `SWEEP_DATA` or else `data` if None.

        Raises:
            BadInput: There is no ledger, or `name` does not name one sweep of it.
        """
        workspace = Workspace.at(root, data)
        with workspace.ledger() as ledger:
            known = known_sweeps(ledger)
            sweep_id = one_of(known, name)
            if known[sweep_id].has_begun:
                return cls(sweep_id, workspace)
            submission = submissions.submission(ledger, sweep_id)
        assert submission is not None, "rows of the ledger are never deleted"
        return cls.submitted(submission, workspace)

    @staticmethod
    def connect(url: str, token: str | None = None) -> Backend:
        """Return the client of a service that is reached over HTTP.

        `orchestrator.api.local.LocalBackend` has the same methods for a ledger of this machine.

        >>> Sweep.connect("https://sweeps.example.org").status("listops").state  # doctest: +SKIP
        'RUNNING'

        Args:
            url: Address of its HTTP server, such as `https://sweeps.example.org`.
            token: Token of the user; `SWEEP_TOKEN` if None.

        Raises:
            BadInput: The address would send the token over a network without TLS, or there is no token.
        """
        return HttpBackend(url, token)

    @classmethod
    def submitted(cls, submission: Submission, workspace: Workspace) -> Sweep:
        """Return the sweep of a submission, as it was submitted."""
        specification = from_document(submission.document, submission.text)
        return cls(
            submission.sweep_id, workspace, admission.with_id(specification, submission.sweep_id), _Request()
        )

    @classmethod
    def _of(
        cls,
        specification: SweepConfig,
        workspace: Workspace,
        request: _Request,
        *,
        budget_is_given: bool = False,
    ) -> Sweep:
        """Return the newest sweep of a specification that the ledger knows, or a new one."""
        if workspace.has_ledger():
            preflight.check_paths(workspace.paths)
            with workspace.ledger() as ledger:
                specification = (
                    admission.unused(specification, ledger)
                    if request.new
                    else admission.newest(specification, ledger, budget_is_given=budget_is_given)
                )
        return cls(specification.id, workspace, specification, request)

    def __repr__(self) -> str:
        return f"Sweep({self.id!r}, {self.state})"

    @cached_property
    def specification(self) -> SweepConfig:
        """Return the validated search-space file, its profile and overrides applied."""
        if self._given is not None:
            return self._given
        with self.workspace.ledger() as ledger:
            record = self._record(ledger)
        text = str(record.facts.get("specification", ""))
        return admission.with_id(from_document(record.document, text), self.id)

    @property
    def state(self) -> str:
        """Return the state in the ledger, INTERRUPTED if its driver died, or NEW if it has never run."""
        if not self._is_known():
            return "NEW"
        with self.workspace.ledger() as ledger:
            return overview(ledger, self._record(ledger), submissions.submission(ledger, self.id), {}).state

    @property
    def is_finished(self) -> bool:
        """Return True if the sweep has ended; it goes on only with a larger budget."""
        return self.state in FINISHED_SWEEP

    def before_change(self) -> tuple[Sweep, list[str]] | None:
        """Return the sweep of the same file from before it was changed, and a phrase for each change.

        None if this sweep has run already, or the file has had no other one.
        """
        if self._is_known() or not self.workspace.has_ledger():
            return None
        with self.workspace.ledger() as ledger:
            record = admission.before_change(self.specification, ledger)
        if record is None:
            return None
        changes = admission.differences(record.document, self.specification.document())
        return Sweep(record.id, self.workspace), changes

    def status(self) -> DetailedStatus:
        """Return the state of the sweep, its driver, its progress and its failures.

        Raises:
            BadInput: The sweep has never run.
        """
        with self.workspace.ledger() as ledger:
            return detailed(ledger, self._record(ledger).id, self.workspace)

    def plan(self, owner: str | None = None) -> Plan:
        """Check that the sweep can run, by default on this machine; return what that would take.

        Nothing is written.

        Args:
            owner: Owner of the sweep; `SWEEP_OWNER` or else the user of this process if None.

        Raises:
            BadInput: The resources of a trial are not available here.
            BadData: The files of the data set are missing or wrong.
        """
        hardware = self._request.hardware or detect()
        named = owner or admission.current_owner()
        found: list[Source | None] = []
        measured: list[Estimate | None] = []

        def check_code_and_data() -> None:
            found.append(preflight.check_sweep(self.specification, hardware, self.workspace.data, named))

        def check_earlier_sweeps() -> None:
            if not self.workspace.has_ledger():
                admission.check_warm_start(self.specification, None)
                return
            with self.workspace.ledger() as ledger:
                measured.append(preflight.estimate(self.specification, ledger))
                admission.check_warm_start(self.specification, ledger)

        check_all([check_code_and_data, check_earlier_sweeps])
        matched = chosen_sizes(self.specification.document())
        return Plan(
            source=found[0],
            hardware=hardware,
            at_once=_at_once(self.specification, hardware),
            estimate=next(iter(measured), None),
            matched=matched,
            requires=self._requires(),
            runs=self._runs(named),
        )

    def _runs(self, owner: str) -> tuple[str, ...]:
        trainable = self.specification.trainable
        with opened_as(account_for(trainable, owner)):
            return (
                () if trainable is None else tuple(preview.runs(trainable, list(self.specification.search)))
            )

    def _requires(self) -> str | None:
        """Return what an answer of the task requires, in words, or None if it is not known."""
        name, options = self.specification.task, self.specification.task_options
        if self.specification.trainable is not None:
            return None
        required = TASKS[name].requires(completed(name, TASKS[name].options, options))
        return None if required is None else required.phrase

    def networks(self, *, work: bool = False) -> list[SizedNetwork]:
        """Return every network that the search can draw, with its size; nothing is written.

        A process of its own imports JAX, which takes seconds.

        Args:
            work: Whether to count the floating-point operations of a training step, which compiles each
                network.

        Raises:
            BadInput: A network cannot be built, or there are more than `MOST_NETWORKS`.
            BadData: The files of the data set are missing or wrong.
        """
        sweep = self.specification
        if sweep.trainable is not None:
            must = "is available for built-in models only"
            raise BadInput(
                f"{sweep.name}: size", must, sweep.subject, "Count the parameters in your own code."
            )
        if not 0 < (number := networks.count(sweep)) <= MOST_NETWORKS:
            must = f"must have at most {MOST_NETWORKS} combinations of static choices to be counted"
            got = f"{number:,}" if number else "a continuous one"
            raise BadInput(f"{sweep.name}: search", must, got, "Search fewer of them.")
        signature = self._signature()
        trials = networks.networks(sweep)
        costs = counted(trials, signature, work=work)
        return [SizedNetwork(trial.model, cost) for trial, cost in zip(trials, costs, strict=True)]

    def _signature(self) -> Signature:
        """Return the signature of the encoded data, or of the published data if none is encoded yet."""
        name, options = self.specification.task, self.specification.task_options
        task = TASKS[name]
        known = task.signature(options, self.workspace.data) or task.outline(
            completed(name, task.options, options)
        )
        if known is None:
            remedy = f"Run `data check {name} --encode`."
            raise BadInput(f"the data of {name}", "must be encoded before sizes are known", "", remedy)
        return known

    def admit(self, owner: str | None = None) -> Hardware:
        """Check everything that can be checked before a run; return what trials can run on.

        If `RAY_ADDRESS` names a cluster, it is asked for its nodes; Ray's token is created under the root if
        it is missing, and environment variables that Ray reads are set.

        Args:
            owner: Owner of the sweep; `SWEEP_OWNER` or else the user of this process if None.

        Raises:
            BadInput: The resources of a trial are not available, JAX cannot use the GPUs of this machine, or
                the file differs from the one that its unfinished sweep began with.
            BadData: The files of the data set are missing or wrong.
            NoCluster: The cluster does not answer.
        """
        hardware = self._request.hardware or preflight.available_hardware(self.workspace.paths)
        if self._request.automatic:
            require_gpu_jax(hardware)
        named = owner or admission.current_owner()
        preflight.check_sweep(self.specification, hardware, self.workspace.data, named)
        if self.workspace.has_ledger() and not self._is_known():
            with self.workspace.ledger() as ledger:
                known = self.specification.recorded_id
                admission.identify(self.specification, ledger, known=known, new=self._request.new)
        return hardware

    def run(
        self,
        observer: Observer | None = None,
        *,
        deadline: float = DEADLINE_SECONDS,
        tracking_patience: float = TRACKING_SECONDS,
        wait: float | None = None,
        unless_stopped: bool = False,
        retry_failed: bool = False,
        progress: bool | None = None,
    ) -> Exit:
        """Run the sweep, or resume it where it stopped; return when it has ended.

        The call joins the Ray that the user's sweeps share on this machine, and starts it if it does not run,
        or joins the cluster that `RAY_ADDRESS` names. It sets environment variables that Ray reads.

        In the main thread the first SIGINT, SIGTERM or SIGHUP saves every running trial and ends the call; a
        second one ends the process. In any other thread signals are left alone: `stop` ends the call.

        Writes the ledger, its backup and its lease, checkpoints, logs, the report, compiled programs, the
        token of clusters, Ray Tune's state, and MLflow's database and artifacts; the encoded data set to the
        data folder; and the record of the shared Ray to its runtime folder.

        Args:
            observer: Receives messages and progress; if None, messages are logged, and there may be a bar.
            deadline: Seconds that a running trial may neither train nor report before it is retried.
            tracking_patience: Seconds to wait for MLflow at the end; records that it has not taken by then
                wait in the ledger for the next run.
            wait: Seconds to wait while no trial can start. If None, 3600 on a cluster; on this machine 10, or
                without limit while other sweeps use it.
            unless_stopped: Return COMPLETE at once if `stop` has ended the sweep, and leave it as it is, for
                a start by a batch system. Without it the call goes on with a stopped sweep.
            retry_failed: Run the failed trials once more, each from its last checkpoint.
            progress: Whether to show a progress bar on standard error; if None, only in terminals and
                notebooks.

        Returns:
            COMPLETE, SOME_FAILED, or RESUMABLE if the sweep was interrupted and the next call goes on.

        Raises:
            BadInput: The sweep cannot run here, its file has changed since its unfinished sweep began, no
                trial has failed that `retry_failed` could retry, or its code is bound to its owner's account.
            BadData: The data set cannot be read.
            Busy: Another process drives the sweep.
            Damaged: The ledger is damaged beyond its backup.
            NoCluster: The cluster does not answer.
        """
        failed = self.failed() if retry_failed else ()
        if retry_failed and not failed:
            raise BadInput(self.id, "has no failed trials to retry", "", "`show` shows a trial.")
        self._check_bound()
        with _watching(self, observer, progress) as screen:
            hardware = self.admit()
            if profile := self.specification.profile:
                reasons = {None: "as it began", True: hardware.phrase, False: "asked for"}
                why = reasons[self._request.automatic]
                setting = "smaller than the paper's; choose the profile `full` for the paper's setting."
                screen.say(f"Profile `{profile}` ({why}): {setting}")
            known = self._is_known()
            run = Run(
                self.workspace.paths,
                self.workspace.data,
                hardware,
                self.id if known else self.specification.recorded_id,
                self._request.new and not known,
                failed,
                deadline=deadline,
                tracking_patience=tracking_patience,
                wait=preflight.Patience.of(wait),
                unless_stopped=unless_stopped,
            )
            self.id, code = drive(self.specification, run, screen)
            return code

    def failed(self) -> tuple[str, ...]:
        """Return the keys of the failed trials, confirmations included.

        Raises:
            BadInput: The sweep has never run.
        """
        with self.workspace.ledger() as ledger:
            trials = ledger.trials(self._record(ledger).id)
        return tuple(trial.key for trial in trials if trial.state == "FAILED")

    def stop(self, *, asked: Asked | None = None) -> Holder | None:
        """Ask the driver of the sweep to save every trial and end; return that driver without waiting.

        Writes the request to the ledger, so it works from every machine that reaches the ledger. A sweep
        that waits in the service is not started.

        Args:
            asked: Entry for the audit log; one of the command line if None.

        Returns:
            The driver, or None if the sweep waits in the service.

        Raises:
            BadInput: No process drives the sweep, and it does not wait in the service.
        """
        with self.workspace.ledger() as ledger:
            driver = holder(ledger, self.id)
            submission = submissions.submission(ledger, self.id)
            if driver is None and (submission is None or submission.state not in {"QUEUED", "STARTED"}):
                remedy = "`status` shows the state of a sweep."
                raise BadInput(self.id, "must be running to be stopped", self._record(ledger).state, remedy)
            ask_to_stop(ledger, self.id, asked=asked or Asked(COMMAND_LINE, "stop", self.id))
        return driver

    def extend(self, **budget: Any) -> Sweep:
        """Return this sweep with another budget, such as `extend(trials=128)`, which `run` then continues.

        Args:
            budget: Keys of the section `budget`: `trials`, `hours`, `gpu_hours`, `target`, `no_improvement`,
                `failures`.

        Raises:
            BadInput: A key or a value is wrong.
        """
        old = self.specification
        changes = [
            f"budget.{name}={flow(value) if isinstance(value, Mapping) else value}"
            for name, value in budget.items()
        ]
        new = from_document(old.document(), old.source_text, changes)
        same = replace(new, edition=old.edition, recorded_id=old.recorded_id)
        return Sweep(self.id, self.workspace, same, self._request)

    @property
    def trials(self) -> pd.DataFrame:
        """Return one row a trial, the search before the confirmations, indexed by key.

        Columns: `number`, `role`, `state`, `value` (best validation value), `test` (where test was read),
        `best_step`, `step`, `seconds`, `cause`, `parameters`, `state_floats`, `flops` (of a training step, if
        it was counted), and one `params.<name>` a hyperparameter.

        Raises:
            BadInput: The sweep has never run.
        """
        return self._results().trials()

    @property
    def curves(self) -> pd.DataFrame:
        """Return one row a report: `trial`, `step` and every metric that was reported.

        Raises:
            BadInput: The sweep has never run.
        """
        return self._results().curves()

    @property
    def best(self) -> Trial | None:
        """Return the best trial that has a checkpoint, or None if there is none yet.

        Raises:
            BadInput: The sweep has never run, or has several objectives and no preference among them.
        """
        with self.workspace.ledger() as ledger:
            record = self._record(ledger)
            if preference_of(record) is None:
                must = f"has {len(objectives_of(record))} objectives, and no trial is the best in all of them"
                remedy = (
                    "`pareto` returns the trials to choose from; `objective.prefer` in the file names one."
                )
                raise BadInput(self.id, must, "", remedy)
            best = best_of_sweep(ledger, record, with_checkpoint=True)
        return Trial(best, self.workspace) if best else None

    def pareto(self) -> ParetoFront:
        """Return the trials that no other one dominates in all objectives, and their hypervolume.

        Raises:
            BadInput: The sweep has never run.
        """
        with self.workspace.ledger() as ledger:
            return read_front(ledger, self._record(ledger))

    def summary(self) -> Summary:
        """Return what the report says, without its figures.

        Raises:
            BadInput: The sweep has never run.
        """
        return summarise(self._history())

    def figure(self, name: str) -> go.Figure:
        """Return a figure of the report.

        Args:
            name: `history`, `learning-curves`, `hidden-norms`, `parallel`, `slices`, `importances` or
                `spending`.

        Raises:
            BadInput: There is no figure of this name, or the sweep has too few trials for it.
        """
        return self._results().figure(name)

    def report(self) -> ReportFiles:
        """Write the report of the sweep as it stands, replacing an older one; return its files.

        Raises:
            BadInput: The sweep has never run.
        """
        return self._results().report(self.workspace.paths.report(self.id))

    def analysis(self) -> Analysis:
        """Return how much each hyperparameter matters, where the time went, and norms of hidden states.

        Raises:
            BadInput: The sweep has never run.
        """
        return self._results().analysis()

    def compare(self, *others: Sweep, tuning: bool = False, page: Path | None = None) -> SideBySide:
        """Return this sweep and others side by side, with the differences that their results establish.

        `orchestrator.report.comparison.markdown` makes a text of it, with the published results beside.

        Args:
            others: Sweeps to compare with.
            tuning: Whether to add tuning curves, for sweeps of independent random trials.
            page: HTML file to write, with the curves drawn.

        Raises:
            BadInput: One of the sweeps has never run.
        """
        histories = [sweep._history() for sweep in others]
        return self._results().compared(histories, tuning=tuning, page=page)

    def export_study(self, file: str | Path) -> int:
        """Write the study as a new Optuna storage, a SQLite file; return the number of trials.

        Raises:
            BadInput: The file exists, or the sweep has never run.
        """
        target = Path(file)
        if target.exists():
            remedy = "Name another file, or remove this one."
            raise BadInput(str(file), "already exists", "", remedy)
        return self._results().export_study(self.specification, target)

    def export_tensorboard(self, folder: str | Path) -> int:
        """Write curves and hyperparameters as a new folder for TensorBoard; return the number of trials.

        Raises:
            BadInput: The folder exists, no trial has reported anything, or the sweep has never run.
        """
        with self.workspace.ledger() as ledger:
            return self._results().export_tensorboard(ledger, Path(folder))

    def _results(self) -> Results:
        from orchestrator.api.results import Results  # Plotly, Optuna and pandas take seconds to import

        return Results(self._history())

    def _check_bound(self) -> None:
        """Check that no code that came from its owner over HTTP would run as the user of this process."""
        if not self.workspace.has_ledger():
            return
        with self.workspace.ledger() as ledger:
            submission = submissions.submission(ledger, self.id)
        if submission is not None:
            check_bound(self.id, submission.options)

    def _is_known(self) -> bool:
        if not self.workspace.has_ledger():
            return False
        with self.workspace.ledger() as ledger:
            return ledger.sweep(self.id) is not None

    def _record(self, ledger: Ledger) -> SweepRecord:
        record = ledger.sweep(self.id)
        if record is None:
            raise self._never_run()
        return record

    def _never_run(self) -> BadInput:
        return BadInput(self.id, "has not run yet", "", "Call `run()` first.")

    def _history(self) -> History:
        if not self.workspace.has_ledger():
            raise self._never_run()
        with self.workspace.ledger() as ledger:
            return read(ledger, self._record(ledger).id)


def _mistakes_of_code(specification: SweepConfig | None) -> tuple[Refusal, ...]:
    """Return what is wrong with the code of a file that has other mistakes, as far as it is known."""
    if specification is None or specification.trainable is None:
        return ()
    try:
        check_code(specification.trainable)
    except BadInput as mistake:
        return (mistake, *mistake.more)
    return ()


def _profile(profile: str | None, hardware: Hardware | None) -> tuple[str | None, int]:
    """Return the profile to apply, and the number of GPUs that decides "auto"."""
    if hardware is not None:
        return profile, hardware.gpus
    if profile == "auto" and preflight.cluster_address() is not None:
        return None, 0
    return profile, detect().gpus


def _at_once(sweep: SweepConfig, hardware: Hardware) -> int:
    """Return how many trials run at a time; with `slots: auto`, as if each had a GPU of its own."""
    asked, trials = sweep.resources, sweep.budget.trials
    if isinstance(asked.slots, int):
        asked = asked.shared_by(asked.slots)
    fits = fitting(hardware.nodes or [Node(hardware.cpus, hardware.gpus)], asked.cpu, asked.gpu)
    return min(fits, asked.concurrent or trials, trials)
