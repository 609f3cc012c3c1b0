"""The study of one sweep, in memory: proposes assignments, observes results, is rebuilt from the ledger."""

from __future__ import annotations

import math
import os
import random
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Any

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from orchestrator.config.strategy import SAMPLERS, repeats
from orchestrator.config.sweep_config import Direction, SweepConfig
from orchestrator.ledger.sweeps.records import (
    REPEATS,
    CurvePoint,
    ReportRecord,
    TrialRecord,
    by_trial,
)
from orchestrator.storage.paths import sqlite_url
from orchestrator.study import distributions as space
from orchestrator.study import samplers
from orchestrator.study.observations import UNFINISHED, Observation, Window, minimised, observe, rank
from orchestrator.study.optuna_private import StoredStudy, WindowedStorage, from_plain, to_plain
from orchestrator.study.similarity import Similarity, most_repeated


@dataclass(frozen=True)
class Proposal:
    """One assignment to try.

    Attributes:
        params: A value for every active hyperparameter.
        system_attrs: Plain JSON that is kept with the trial, and needed to rebuild the study.
    """

    params: Mapping[str, Any]
    system_attrs: Mapping[str, Any]


@dataclass(frozen=True)
class _Source:
    """Trials of an earlier sweep.

    Attributes:
        name: Id of the sweep, or source of the known results.
        start: Number of the first of its trials in the storage.
        similarity: Similarity to the present sweep.
    """

    name: str
    start: int
    similarity: Similarity


class Study:
    """Proposes the trials of a sweep, and learns from their results.

    Example:

        study = Study(sweep)
        proposal = study.ask(0)
        study.report(0, step=100, value=0.7)
        study.tell(0, "COMPLETE", 0.7, 100)

    Args:
        sweep: The specification.
        trials: The search trials of the ledger, numbered from 0 without a gap.
        reports: Reports of `trials` and of `earlier`, with all objectives and constrained metrics.
        earlier: Trials of other sweeps, or known results, to learn from; those of another space are left out.
            Each source is compared with this sweep separately.
        curves: Whether to keep every point of `reports`. Samplers read only the latest one of each trial.
    """

    def __init__(
        self,
        sweep: SweepConfig,
        trials: Sequence[TrialRecord] = (),
        reports: Iterable[ReportRecord | CurvePoint] = (),
        earlier: Sequence[TrialRecord] = (),
        *,
        curves: bool = False,
    ) -> None:
        if optuna.logging.get_verbosity() != optuna.logging.ERROR:  # setting it costs a millisecond each time
            optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._sweep = sweep
        self._distributions = space.converted(sweep.search)
        self._feasible, self._repeats = sweep.feasible, repeats(sweep)
        self._tried: set[str] = set()
        self._cursor = 0
        adapter: type[samplers.SamplerAdapter | samplers.GridAdapter] = SAMPLERS[sweep.sampler.name]
        self._grid = adapter.grid(sweep) if issubclass(adapter, samplers.GridAdapter) else None
        self._window = Window(adapter.history if issubclass(adapter, samplers.SamplerAdapter) else None)
        self._lists_stopped = issubclass(adapter, samplers.SamplerAdapter) and adapter.lists_stopped
        storage = WindowedStorage(self._window, lists_stopped=self._lists_stopped)
        self._study = optuna.create_study(
            storage=storage,
            sampler=optuna.samplers.RandomSampler(seed=0),
            directions=self.directions,
        )
        self._stored = StoredStudy(storage, self._study)
        self._proposals: list[Proposal] = []
        self._earlier = 0
        self._curves = curves
        self._sources: list[_Source] = []
        of_trial = by_trial(reports)
        for name in dict.fromkeys(trial.sweep_id for trial in earlier):
            of_source = [trial.as_searched() for trial in earlier if trial.sweep_id == name]
            self._learn(name, of_source, of_trial)
        self._show()
        for trial in sorted(trials, key=lambda trial: trial.number):
            self._rebuild(trial.as_searched(), of_trial.get(trial.key, []))

    @property
    def size(self) -> int | None:
        """Return the number of settings, or None if it is infinite, or if settings may be repeated."""
        if self._grid is not None and not self._feasible.relations:
            return self._grid.size
        return None if self._repeats else self._feasible.count

    def ask(self, number: int, given: Mapping[str, Any] | None = None) -> Proposal | None:
        """Return the assignment of trial `number`, or None if all settings have been tried.

        A repeated request for a trial returns the same assignment; otherwise `number` must be the next one.

        Args:
            number: Number of the trial.
            given: Values that are not drawn; by default the next ones of the file, if some are left.

        Raises:
            BadInput: No setting that satisfies the relations and was not tried has been found.
        """
        if number < len(self._proposals):
            return self._proposals[number]
        assert number == len(self._proposals), f"trial {number} asked, {len(self._proposals)} is next"
        points = self._sweep.points
        wanted = given if given is not None else points[number] if number < len(points) else {}
        proposal: Proposal | None
        if not wanted and (repeated := self._repeated()) is not None:
            proposal = self._given(number, *repeated)
        else:
            proposal = self._proposed(number, wanted)
        if proposal is None and given is None and wanted:
            proposal = self._proposed(number, {})
        if proposal is not None:
            self._enter(proposal)
        return proposal

    def _proposed(self, number: int, given: Mapping[str, Any]) -> Proposal | None:
        if given and given.keys() == self._sweep.active(given):
            published = self._sweep.published
            source = published.source if published and published.values == given else None
            return self._given(number, given, source) if self._may_try(given) else None
        if self._grid is not None:
            return self._next_of_grid(given)
        is_exhausted = self.size is not None and len(self._tried) >= self.size
        if is_exhausted or (given and self._feasible.found(random.Random(0), given, self._may_try) is None):
            return None
        return self._draw(number, given)

    def _may_try(self, params: Mapping[str, Any]) -> bool:
        return self._repeats or self._feasible.key(params) not in self._tried

    def _enter(self, proposal: Proposal) -> None:
        self._proposals.append(proposal)
        self._tried.add(self._feasible.key(proposal.params))
        for source in self._sources:
            source.similarity.begin(proposal.params)

    def report(self, number: int, step: int, value: float) -> None:
        """Record the first objective of a running trial at a step; ignore a value that is not finite."""
        if not self._trial(number).state.is_finished() and math.isfinite(value):
            self._stored.report(self._earlier + number, step, value)

    def tell(
        self,
        number: int,
        state: str,
        value: float | None,
        step: int,
        metrics: Mapping[str, float] | None = None,
    ) -> None:
        """End a trial, unless it has already ended.

        Args:
            number: Number of the trial.
            state: COMPLETE, PRUNED, DIVERGED or FAILED.
            value: The best first objective, finite, for COMPLETE.
            step: The last step that was trained.
            metrics: Metrics reported at the step of `value`; needed for further objectives and constraints.
        """
        trial = self._trial(number)
        if trial.state.is_finished():
            return
        ended = observe(self._sweep, state, value, metrics or {}, trial.intermediate_values)
        self._stored.set_attributes(trial.number, _constraint_attrs(ended))
        # A pruned trial gets the last point of its curve as its value.
        values = ended.values if ended.state is TrialState.COMPLETE else None
        self._study.tell(trial.number, values, ended.state)
        self._settle(trial.number, ended)
        self._compare(self._proposals[number].params, ended)

    @property
    def similarities(self) -> Mapping[str, Similarity]:
        """The similarity of each source of earlier trials, by its name or the id of its sweep."""
        return {source.name: source.similarity for source in self._sources}

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of the objectives."""
        return self._sweep.objective_metrics

    @property
    def directions(self) -> tuple[Direction, ...]:
        """The direction of each objective."""
        return tuple(objective.direction for objective in self._sweep.objectives)

    def trials(self) -> list[FrozenTrial]:
        """Return every trial of the sweep as Optuna holds it, without those of earlier sweeps."""
        return self._stored.trials()[self._earlier :]

    def _repeated(self) -> tuple[Mapping[str, Any], str] | None:
        """Return the setting that the next trial repeats, and its source, or None."""
        compared = [source for source in self._sources if not source.similarity.run]
        repeated = sum(source.similarity.begun for source in compared)
        if repeated >= most_repeated(self._sweep.budget.trials):
            compared = []
        run = [source for source in self._sources if source.similarity.run]
        following = ((source.similarity.next(), source.name) for source in [*run, *compared])
        return next(((params, name) for params, name in following if params is not None), None)

    def _given(self, number: int, params: Mapping[str, Any], source: str | None = None) -> Proposal:
        """Add a trial whose values are all given, which may be a setting of another source."""
        self._add(UNFINISHED, params, {})
        if self._grid is None:
            samplers.build(self._sweep, number).mark(self._study, self._trial(number))
        of_trial = to_plain(self._trial(number).system_attrs)
        attrs = {"trial": of_trial, REPEATS: source}
        return Proposal(dict(params), {name: kept for name, kept in attrs.items() if kept})

    def _draw(self, number: int, given: Mapping[str, Any]) -> Proposal:
        before = self._stored.study_attributes()
        wanted = samplers.Wanted(given, self._may_try)
        self._study.sampler = samplers.build(self._sweep, number, wanted)
        trial = self._study.ask()
        self._window.begin(trial.number)
        params = space.draw(trial, self._sweep.search)
        of_trial = to_plain(self._trial(number).system_attrs)
        after = self._stored.study_attributes()
        of_study = {name: value for name, value in after.items() if before.get(name) != value}
        attrs = {"trial": of_trial, "study": of_study}
        return Proposal(params, {name: kept for name, kept in attrs.items() if kept})

    def _next_of_grid(self, given: Mapping[str, Any]) -> Proposal | None:
        """Return the next combination that was not tried, with given values instead of its own."""
        assert self._grid is not None
        position = self._cursor
        while (point := self._grid.point(position)) is not None:
            params = {**point, **given}
            if self._feasible.broken(params) is None and self._feasible.key(params) not in self._tried:
                break
            position += 1
        if not given:
            self._cursor = position
        if point is None:
            return None
        self._add(UNFINISHED, params, {})
        return Proposal(params, {})

    def _rebuild(self, record: TrialRecord, reports: Sequence[ReportRecord | CurvePoint]) -> None:
        assert record.number == len(self._proposals), f"{record.key} follows a gap in the ledger"
        self._stored.set_study_attributes(record.system_attrs.get("study", {}))
        attrs = from_plain(record.system_attrs.get("trial", {}))
        observed = self._observed(record, reports)
        self._add(observed, record.params, attrs)
        self._enter(Proposal(record.params, record.system_attrs))
        if observed.state.is_finished():
            self._compare(record.params, observed)

    def _learn(
        self,
        name: str,
        trials: Sequence[TrialRecord],
        reports: Mapping[str, Sequence[ReportRecord | CurvePoint]],
    ) -> None:
        """Add the complete trials of an earlier sweep that are in the space of this one."""
        search = self._sweep.search
        learned = [
            trial
            for trial in trials
            if trial.state == "COMPLETE"
            and space.fits(search, trial.params)
            and self._feasible.broken(trial.params) is None
        ]
        if not learned:
            return
        values = [trial.value for trial in learned if trial.value is not None]
        assert len(values) == len(learned), "a COMPLETE trial has a value"
        settings = [trial.params for trial in learned]
        run = next((known.run for known in self._sweep.known if known.source == name), 0)
        similarity = Similarity(settings, values, self._sweep.direction == "maximize", run)
        self._sources.append(_Source(name, self._earlier, similarity))
        for trial in learned:
            self._add(self._observed(trial, reports.get(trial.key, [])), trial.params, {})
            self._earlier += 1

    def _compare(self, params: Mapping[str, Any], ended: Observation) -> None:
        """Compare a finished trial with the earlier ones of the same setting."""
        value, is_complete = ended.values[0] if ended.values else None, ended.state is TrialState.COMPLETE
        for source in self._sources:
            source.similarity.add(params, value, complete=is_complete)
        self._show()

    def _show(self) -> None:
        """Show the sampler as much of the earlier trials as their similarity allows."""
        shown = {
            source.start + index: value
            for source in self._sources
            for index, value in source.similarity.shown().items()
        }
        self._window.show(shown, self._earlier)

    def _observed(self, record: TrialRecord, reports: Sequence[ReportRecord | CurvePoint]) -> Observation:
        metric = self._sweep.metric
        if record.extensions:  # its further reports are not comparable with those of other trials
            reports = [report for report in reports if report.step <= record.step]
        newest_first = sorted(reports, key=attrgetter("step"), reverse=True)
        points = ((report.step, report.metrics[metric]) for report in newest_first if report.metrics)
        finite = (point for point in points if math.isfinite(point[1]))
        curve = dict(finite if self._curves else islice(finite, 1))
        at_best = next((report.metrics for report in reports if report.step == record.best_step), {})
        return observe(self._sweep, record.state, record.value, at_best, curve)

    def _add(self, observed: Observation, params: Mapping[str, Any], attrs: Mapping[str, Any]) -> None:
        number = self._earlier + len(self._proposals)
        self._study.add_trial(
            create_trial(
                state=observed.state,
                params={name: space.as_held(self._sweep.search[name], params[name]) for name in params},
                distributions={name: self._distributions[name] for name in params},
                system_attrs={**attrs, **_constraint_attrs(observed)},
                intermediate_values=dict(sorted(observed.curve.items())),
                values=observed.values,
            )
        )
        self._window.begin(number)
        if observed.state.is_finished():
            self._settle(number, observed)

    def _settle(self, number: int, ended: Observation) -> None:
        is_listed = self._lists_stopped or ended.state is not TrialState.PRUNED
        key = rank(self._sweep, ended) if is_listed else None
        self._window.settle(number, key, minimised(self._sweep, ended))

    def _trial(self, number: int) -> FrozenTrial:
        return self._stored.trial(self._earlier + number)


def _constraint_attrs(observed: Observation) -> dict[str, Any]:
    if not observed.violations:
        return {}
    return dict(create_trial(state=TrialState.RUNNING, constraints=dict(observed.violations)).system_attrs)


def store(study: Study, file: Path, name: str) -> int:
    """Write a study to a new SQLite file, for optuna-dashboard and Optuna's own functions.

    The file gets its name when it is complete: Optuna takes most of a minute for a thousand trials.

    Returns:
        The number of trials.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.absolute().with_name(f".{file.name}.{os.getpid()}")
    try:
        count = _write(study, beside, name)
        beside.replace(file)
    finally:
        beside.unlink(missing_ok=True)  # what a failed write has left
    return count


def _write(study: Study, file: Path, name: str) -> int:
    storage = RDBStorage(sqlite_url(file))
    try:
        trials = study.trials()
        written = optuna.create_study(storage=storage, study_name=name, directions=study.directions)
        with warnings.catch_warnings():
            # Experimental since Optuna 3.2; without the names the dashboard's pages say "Objective 0".
            warnings.simplefilter("ignore", ExperimentalWarning)
            written.set_metric_names(list(study.metrics))
            # Adding a trial reads the distributions of earlier ones, and shortens ranges by their decimals.
            warnings.filterwarnings("ignore", "The distribution is specified by")
            written.add_trials(trials)
    finally:
        storage.engine.dispose()
    return len(trials)
