"""Sweep as it is loaded from a file, a mapping or the ledger, before anything runs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from orchestrator.accounts import Account
from orchestrator.api.known_sources import check_read, with_known_results
from orchestrator.api.status import overview
from orchestrator.api.workspace import Workspace
from orchestrator.client.names import one_of
from orchestrator.config import from_dict, from_document, networks
from orchestrator.config import load as load_file
from orchestrator.config.document import Mistake, flow
from orchestrator.config.networks import chosen_sizes
from orchestrator.config.objectives import read_setting
from orchestrator.config.strategy import repeats
from orchestrator.config.sweep_config import SweepConfig
from orchestrator.driver import admission, preflight, preview, spending
from orchestrator.driver.preflight import Estimate
from orchestrator.driver.preview import counted
from orchestrator.driver.user_code import account_for, check_code, opened_as
from orchestrator.errors import BadInput, Refusal, check_all
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.queue import submissions
from orchestrator.ledger.queue.submissions import Submission
from orchestrator.ledger.queue.wanted_settings import WantedSetting, wanted_settings
from orchestrator.ledger.sweeps.index import differences, known_sweeps
from orchestrator.ledger.sweeps.records import FINISHED_SWEEP, SweepRecord, TrialRecord
from orchestrator.machines.hardware import Hardware, Node, detect, fitting, require_gpu_jax
from orchestrator.report.history import History, read
from orchestrator.service import notice_list
from trainables.cost import Cost
from trainables.data.task import Signature, Source, completed
from trainables.tasks import TASKS
from trainables.trial import ModelSettings

if TYPE_CHECKING:
    from orchestrator.api.results import Results
    from orchestrator.report.report_files import ReportFiles

MOST_NETWORKS = 64
"""Largest number of networks whose sizes `LoadedSweep.networks` counts, each in a tenth of a second."""


@dataclass(frozen=True)
class Plan:
    """Plan of a sweep.

    Attributes:
        source: Data set, or None if the trainable loads its own.
        hardware: Hardware that trials can use.
        at_once: Number of concurrent trials.
        estimate: Time and memory of a trial in an earlier sweep, or None.
        matched: Sizes chosen by `model.match` in words, or None.
        requires: Requirements of the task on a network in words, or None if unknown.
        runs: Commands and functions of a trial of a trainable, in words; empty for a network.
        warnings: Warnings for the owner, from earlier sweeps and quotas, one sentence each.
    """

    source: Source | None
    hardware: Hardware
    at_once: int
    estimate: Estimate | None
    matched: str | None
    requires: str | None
    runs: tuple[str, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class SizedNetwork:
    """A network of the search space with its size; `cost.flops` is None if it was not counted."""

    model: ModelSettings
    cost: Cost


@dataclass(frozen=True)
class _Request:
    """Arguments with which a sweep was loaded.

    Attributes:
        automatic: Whether the hardware has chosen the profile; None for a sweep of the ledger.
        new: Whether to start another sweep of the same file.
        hardware: Hardware for trials, or None if not detected yet.
    """

    automatic: bool | None = None
    new: bool = False
    hardware: Hardware | None = None


class LoadedSweep:
    """One run of a search-space file: its specification and its rows of the ledger.

    >>> LoadedSweep.find("listops").specification.metric  # doctest: +SKIP
    'val/accuracy'

    Attributes:
        id: ID of the sweep in the ledger, in MLflow and in file names.
        workspace: Folders of the sweep.
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
        sources: bool = True,
    ) -> Self:
        """Return the sweep of a search-space file, without running it.

        The sources of `known` are read, which may be databases of Optuna or MLflow on other machines.

        Args:
            path: Search-space file.
            profile: Name of a profile of the file; None for no profile; "auto" for the profile `laptop` if
                there is no GPU and the file has that profile.
            overrides: Changes to the file, `key=value` each, such as `training.steps=1000`.
            new: Whether to start another sweep of the same file instead of finding the one in the ledger.
            hardware: Hardware for trials, as `available` returns it, which decides "auto". If None, the GPUs
                of this machine decide; if `RAY_ADDRESS` names a cluster, "auto" means None.
            root: Folder of everything that sweeps write; `SWEEP_ROOT` or else `mlruns` if None.
            data: Folder of the data sets; `SWEEP_DATA` or else `data` if None.
            reader: Account that reads the file and its code; the account of this process if None.
            sources: Whether `known` may name sources; otherwise it must hold their results.

        Raises:
            BadInput: The file, the profile or an override is wrong, with file, line and key; other
                accounts can change the root.
        """
        name, gpus = _profile(profile, hardware)
        with opened_as(reader):
            try:
                specification = load_file(Path(path), profile=name, overrides=tuple(overrides), gpus=gpus)
            except Mistake as mistake:
                mistake.more = (*mistake.more, *_mistakes_of_code(mistake.repaired))
                raise
            if sources:
                specification = with_known_results(specification, Path(path).parent)
        check_read(specification)
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
    ) -> Self:
        """Return the sweep of a search-space file that is given as a mapping.

        Args:
            document: Sections of the file: mappings, lists, numbers, strings, booleans and None. Expressions
                are not parsed: write `math.pi / 10` for `pi/10` of a file.
            name: Name of the sweep, which is the stem of the file name in `load`.
            profile: Profile, as in `load`.
            new: Whether to start another sweep, as in `load`.
            hardware: Hardware, as in `load`.
            root: Root, as in `load`.
            data: Folder of the data sets, as in `load`.

        Raises:
            BadInput: The mapping or the profile is wrong, with the key.
        """
        chosen, gpus = _profile(profile, hardware)
        specification = from_dict(document, name=name, profile=chosen, gpus=gpus)
        specification = with_known_results(specification, Path())
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
    ) -> Self:
        """Return the newest sweep of a validated specification in the ledger, or a new one.

        Args:
            specification: Search-space file with its profile and overrides applied.
            workspace: Folders of the sweep.
            automatic: Whether the hardware has chosen the profile.
            new: Whether to start another sweep, as in `load`.
            hardware: Hardware for trials, as `available` returns it; this machine if None.

        Raises:
            BadInput: Other accounts can change the root.
        """
        return cls._of(specification, workspace, _Request(automatic, new, hardware))

    @classmethod
    def find(cls, name: str, *, root: str | Path | None = None, data: str | Path | None = None) -> Self:
        """Return a sweep of the ledger, or a submitted one that has not begun.

        Args:
            name: ID of the sweep, or the beginning of it.
            root: Folder of everything that sweeps write; `SWEEP_ROOT` or else `mlruns` if None.
            data: Folder of the data sets; `SWEEP_DATA` or else `data` if None.

        Raises:
            BadInput: The ledger does not exist, or several sweeps match.
            NotFound: No sweep matches.
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

    @classmethod
    def submitted(cls, submission: Submission, workspace: Workspace) -> Self:
        """Return the sweep of a submission."""
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
    ) -> Self:
        """Return the newest sweep of a specification in the ledger, or a new one."""
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
        """The validated search-space file, with profile and overrides applied."""
        if self._given is not None:
            return self._given
        with self.workspace.ledger() as ledger:
            record = self._record(ledger)
        text = str(record.facts.get("specification", ""))
        return admission.with_id(from_document(record.document, text), self.id)

    @property
    def state(self) -> str:
        """State in the ledger; INTERRUPTED if its driver has died, NEW if it has never run."""
        if not self._is_known():
            return "NEW"
        with self.workspace.ledger() as ledger:
            return overview(ledger, self._record(ledger), submissions.submission(ledger, self.id), {}).state

    @property
    def is_finished(self) -> bool:
        """Whether the sweep has ended, so that only a larger budget continues it."""
        return self.state in FINISHED_SWEEP

    def before_change(self) -> tuple[Self, list[str]] | None:
        """Return the sweep of the file before its last change, and a phrase for each change.

        None if this sweep has run, or the file has no earlier sweep.
        """
        if self._is_known() or not self.workspace.has_ledger():
            return None
        with self.workspace.ledger() as ledger:
            record = admission.before_change(self.specification, ledger)
        if record is None:
            return None
        changes = differences(record.document, self.specification.document())
        return type(self)(record.id, self.workspace), changes

    def warnings(self, owner: str | None = None) -> tuple[str, ...]:
        """Return warnings for the owner before the sweep runs, one sentence each.

        Args:
            owner: Owner of the sweep; `SWEEP_OWNER` or else the user of this process if None.
        """
        named = owner or admission.current_owner()
        unheard = self._unheard(owner)
        if not self.workspace.has_ledger():
            return unheard
        at_once = _at_once(self.specification, self._request.hardware or detect())
        with self.workspace.ledger() as ledger:
            cost = preflight.estimate(self.specification, ledger)
            return (*unheard, *spending.warnings(self.specification, ledger, cost, at_once, named))

    def _unheard(self, owner: str | None) -> tuple[str, ...]:
        """Return a sentence about the targets of `notify` that the owner has not set, if there are any."""
        named, variables = owner or admission.current_owner(), {} if owner else os.environ
        own = notice_list.targets(self.workspace.paths.notices).get(named, [])
        _, unknown = notice_list.of_file(self.specification.notify, own, variables)
        if not unknown:
            return ()
        remedy = f"`sweep notify URL --name {unknown[0]}` sets one"
        return (f"notify: {named} has no target {', '.join(f'`{one}`' for one in unknown)}: {remedy}.",)

    def plan(self, owner: str | None = None) -> Plan:
        """Check that the sweep can run, by default on this machine, and return its plan; write nothing.

        Args:
            owner: Owner of the sweep; `SWEEP_OWNER` or else the user of this process if None.

        Raises:
            BadInput: The resources of a trial are not available.
            BadData: The files of the data set are missing or wrong.
        """
        hardware = self._request.hardware or detect()
        named = owner or admission.current_owner()
        found: list[Source | None] = []
        measured: list[Estimate | None] = []
        warned = [*self._unheard(owner)]
        at_once = _at_once(self.specification, hardware)

        def check_code_and_data() -> None:
            found.append(preflight.check_sweep(self.specification, hardware, self.workspace.data, named))

        def check_earlier_sweeps() -> None:
            if not self.workspace.has_ledger():
                admission.check_warm_start(self.specification, None)
                return
            with self.workspace.ledger() as ledger:
                measured.append(preflight.estimate(self.specification, ledger))
                warned.extend(spending.warnings(self.specification, ledger, measured[0], at_once, named))
                admission.check_warm_start(self.specification, ledger)

        check_all([check_code_and_data, check_earlier_sweeps])
        matched = chosen_sizes(self.specification.document())
        return Plan(
            source=found[0],
            hardware=hardware,
            at_once=at_once,
            estimate=next(iter(measured), None),
            matched=matched,
            requires=self._requires(),
            runs=self._runs(named),
            warnings=tuple(warned),
        )

    def _runs(self, owner: str) -> tuple[str, ...]:
        trainable = self.specification.trainable
        if trainable is None:
            return ()
        with opened_as(account_for(trainable, owner)):
            names = [*self.specification.search, *self.specification.fixed]
            lines = preview.runs(trainable, names)
        line = preview.by_hand(self.specification)
        return tuple(lines) if line is None else (*lines, f"its largest trial by hand: {line}")

    def _requires(self) -> str | None:
        """Return the requirements of the task on a network in words, or None if unknown."""
        name, options = self.specification.task, self.specification.task_options
        if self.specification.trainable is not None:
            return None
        required = TASKS[name].requires(completed(name, TASKS[name].options, options))
        return None if required is None else required.phrase

    def networks(self, *, work: bool = False) -> list[SizedNetwork]:
        """Return every network of the search space with its size; write nothing.

        A separate process imports JAX, which takes seconds.

        Args:
            work: Whether to compile each network and count the floating-point operations of a step.

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
            must = f"may have at most {MOST_NETWORKS} combinations of static choices for `size`"
            got = f"{number:,}" if number else "a continuous static choice"
            raise BadInput(f"{sweep.name}: search", must, got, "Search fewer static choices.")
        signature = self._signature()
        trials = networks.networks(sweep)
        costs = counted(trials, signature, work=work)
        return [SizedNetwork(trial.model, cost) for trial, cost in zip(trials, costs, strict=True)]

    def _signature(self) -> Signature:
        """Return the signature of the encoded data, or of the published data before its encoding."""
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
        """Check that the sweep can run, and return the hardware for its trials.

        If `RAY_ADDRESS` names a cluster, this connects to it, sets the environment variables of Ray, and
        creates its token under the root if it is missing.

        Args:
            owner: Owner of the sweep; `SWEEP_OWNER` or else the user of this process if None.

        Raises:
            BadInput: The resources of a trial are not available, JAX cannot use the GPUs of this machine, or
                the file has changed since its unfinished sweep began.
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

    def failed(self) -> tuple[str, ...]:
        """Return the keys of the failed trials, including confirmations.

        Raises:
            BadInput: The sweep has never run.
        """
        with self.workspace.ledger() as ledger:
            trials = ledger.trials(self._record(ledger).id)
        return tuple(trial.key for trial in trials if trial.state == "FAILED")

    def extended(self, **budget: Any) -> Self:
        """Return this sweep with another budget, with which `run` continues it here.

        >>> sweep.extended(trials=128).run()  # doctest: +SKIP
        <Exit.COMPLETE: 0>

        With `extended(steps=20_000, top=4)`, `run` continues the best four trials of a finished sweep from
        their last checkpoints to step 20,000.

        Args:
            budget: Keys of the section `budget`: `trials`, `hours`, `gpu_hours`, `target`, `no_improvement`,
                `failures`. Or `steps` of the best trials, and `top`, the number of these trials (1).

        Raises:
            BadInput: A key or a value is wrong, or the sweep has more trials than the budget.
        """
        old = self.specification
        steps, top = budget.pop("steps", None), budget.pop("top", None)
        if top is not None and steps is None:
            raise BadInput("top", "must come with `steps`", str(top), "For example steps=20000, top=4.")
        changes = [
            f"budget.{name}={flow(value) if isinstance(value, Mapping) else value}"
            for name, value in budget.items()
        ]
        if steps is not None:
            changes.append(f"budget.longer={{steps: {steps}, top: {1 if top is None else top}}}")
        new = from_document(old.document(), old.source_text, changes)
        if "trials" in budget:
            self._check_trials(new.budget.trials)
        same = replace(new, edition=old.edition, recorded_id=old.recorded_id)
        return type(self)(self.id, self.workspace, same, self._request)

    def _check_trials(self, given: int) -> None:
        """Check that a budget has room for the trials of the sweep, if it has any."""
        if not self._is_known():
            return
        with self.workspace.ledger() as ledger:
            created = sum(ledger.states(self.id).values())
        if given < created:
            must = f"must be at least {created}, the number of its trials"
            remedy = f"It counts all trials: trials={created + given} adds {given}."
            raise BadInput(f"{self.id}: budget.trials", must, str(given), remedy)

    def to_try(self, ledger: Ledger, params: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
        """Return a checked setting to try next, and the number of settings that wait before it.

        Args:
            ledger: Ledger of the sweep.
            params: Values of some or all hyperparameters.

        Raises:
            BadInput: A value is wrong, the setting was tried before or waits already, the sweep has finished,
                or all trials of its budget have been created.
        """
        sweep = self.specification
        given = read_setting(sweep, params)
        trials, record = ledger.trials(self.id, role="search"), ledger.sweep(self.id)
        waiting = wanted_settings(ledger, self.id)
        if record is not None and record.state in FINISHED_SWEEP:
            remedy = f"Extend it first: `sweep resume {self.id} --extend trials=N`."
            raise BadInput(self.id, "must not have finished", record.state, remedy)
        if len(trials) + len(waiting) >= sweep.budget.trials:
            must = f"has no trials left in its budget of {sweep.budget.trials}"
            got = f"{len(trials)} created and {len(waiting)} requested"
            raise BadInput(self.id, must, got, "Run it with a larger budget.trials.")
        if not repeats(sweep) and given.keys() == sweep.active(given):
            _check_new(sweep, given, trials, waiting)
        return given, len(waiting)

    def results(self) -> Results:
        """Return the results of the sweep so far.

        Raises:
            BadInput: The sweep has never run.
        """
        from orchestrator.api.results import Results  # Plotly, Optuna and pandas take seconds to import

        return Results(self.history())

    def write_report(self) -> ReportFiles:
        """Write the report of the sweep, replacing an older one, and return its files.

        Raises:
            BadInput: The sweep has never run.
        """
        paths = self.workspace.paths
        return self.results().report(paths.report(self.id), partial(paths.log, self.id))

    def history(self) -> History:
        """Return every row of the ledger about the sweep.

        Raises:
            BadInput: The sweep has never run.
        """
        if not self.workspace.has_ledger():
            raise self._never_run()
        with self.workspace.ledger() as ledger:
            return read(ledger, self._record(ledger).id)

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


def _mistakes_of_code(specification: SweepConfig | None) -> tuple[Refusal, ...]:
    """Return the mistakes in the code of a file with other mistakes; none if its code is unknown."""
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
    """Return the number of concurrent trials; with `slots: auto`, as if trials shared no GPU."""
    asked, trials = sweep.resources, sweep.budget.trials
    if isinstance(asked.slots, int):
        asked = asked.shared_by(asked.slots)
    nodes = hardware.nodes or [Node(hardware.cpus, hardware.gpus)]
    fits = fitting(nodes, asked.cpu, asked.gpu, asked.node_count)
    return min(fits, asked.concurrent or trials, trials)


def _check_new(
    sweep: SweepConfig,
    given: Mapping[str, Any],
    trials: Sequence[TrialRecord],
    waiting: Sequence[WantedSetting],
) -> None:
    """Raise BadInput if a setting was tried before, or waits to be tried."""
    key = sweep.feasible.key(given)
    remedy = "Change a value, or write `repeat: true` in the file."
    for trial in trials:
        if sweep.feasible.key(trial.params) == key:
            raise BadInput("try", "must be a setting that was not tried before", trial.key, remedy)
    points = [*sweep.points[len(trials) :], *(wanted.params for wanted in waiting)]
    if any(sweep.feasible.key(point) == key for point in points):
        raise BadInput("try", "must differ from the settings that already wait", "the same values", remedy)
