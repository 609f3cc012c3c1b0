"""The study of one sweep, in memory: proposes assignments, observes results, is rebuilt from the ledger."""

from __future__ import annotations

import math
import os
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

from orchestrator.config.strategy import SAMPLERS
from orchestrator.config.sweep_config import Direction, SweepConfig
from orchestrator.ledger.sweeps.records import CANDIDATE, CurvePoint, ReportRecord, TrialRecord, by_trial
from orchestrator.storage.paths import sqlite_url
from orchestrator.study import distributions as space
from orchestrator.study import samplers
from orchestrator.study.observations import UNFINISHED, Observation, Window, minimised, observe, rank
from orchestrator.study.optuna_private import StoredStudy, WindowedStorage, from_plain, to_plain


@dataclass(frozen=True)
class Proposal:
    """One assignment to try.

    Attributes:
        params: A value for every active hyperparameter.
        system_attrs: Plain JSON that is kept with the trial, and needed to rebuild the study.
    """

    params: Mapping[str, Any]
    system_attrs: Mapping[str, Any]


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
        earlier: Trials of other sweeps to learn from; those of another space are left out.
        curves: Keep every point of `reports`. Samplers read only the latest one of each trial.
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
        self._published = sweep.published_params()
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
        of_trial = by_trial(reports)
        for trial in earlier:
            self._learn(trial, of_trial.get(trial.key, []))
        for trial in sorted(trials, key=lambda trial: trial.number):
            self._rebuild(trial, of_trial.get(trial.key, []))

    @property
    def size(self) -> int | None:
        """Return the number of trials in the space, or None if it is infinite."""
        return None if self._grid is None else self._grid.points + (self._published is not None)

    def ask(self, number: int) -> Proposal | None:
        """Return the assignment of trial `number`, or None if the space is exhausted.

        A trial that was asked for before has the same assignment again; otherwise `number` must be the next
        one.
        """
        if number < len(self._proposals):
            return self._proposals[number]
        assert number == len(self._proposals), f"trial {number} asked, {len(self._proposals)} is next"
        proposal: Proposal | None
        if number == 0 and self._published is not None:
            proposal = self._given(self._published)
        elif self._grid is not None:
            proposal = self._next_of_grid(number)
        else:
            proposal = self._draw(number)
        if proposal is not None:
            self._proposals.append(proposal)
        return proposal

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
            metrics: Reported at the step of `value`; needed for further objectives and constraints.
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

    def _given(self, params: Mapping[str, Any]) -> Proposal:
        """Add the first trial with given values."""
        self._add(UNFINISHED, params, {})
        if self._grid is None:
            samplers.build(self._sweep, 0).mark(self._study, self._trial(0))
        of_trial = to_plain(self._trial(0).system_attrs)
        return Proposal(params, {"trial": of_trial} if of_trial else {})

    def _draw(self, number: int) -> Proposal:
        before = self._stored.study_attributes()
        self._study.sampler = samplers.build(self._sweep, number)
        trial = self._study.ask()
        self._window.begin(trial.number)
        params = space.draw(trial, self._sweep.search)
        of_trial = to_plain(self._trial(number).system_attrs)
        after = self._stored.study_attributes()
        of_study = {name: value for name, value in after.items() if before.get(name) != value}
        attrs = {"trial": of_trial, "study": of_study}
        return Proposal(params, {name: kept for name, kept in attrs.items() if kept})

    def _next_of_grid(self, number: int) -> Proposal | None:
        assert self._grid is not None
        params = self._grid.point(number - (self._published is not None))
        if params is None:
            return None
        self._add(UNFINISHED, params, {})
        return Proposal(params, {})

    def _rebuild(self, record: TrialRecord, reports: Sequence[ReportRecord | CurvePoint]) -> None:
        assert record.number == len(self._proposals), f"{record.key} follows a gap in the ledger"
        self._stored.set_study_attributes(record.system_attrs.get("study", {}))
        attrs = from_plain(record.system_attrs.get("trial", {}))
        self._add(self._observed(record, reports), record.params, attrs)
        self._proposals.append(Proposal(record.params, record.system_attrs))

    def _learn(self, record: TrialRecord, reports: Sequence[ReportRecord | CurvePoint]) -> None:
        if (
            record.state in CANDIDATE
            and record.value is not None
            and space.fits(self._sweep.search, record.params)
        ):
            self._add(self._observed(record, reports), record.params, {})
            self._earlier += 1

    def _observed(self, record: TrialRecord, reports: Sequence[ReportRecord | CurvePoint]) -> Observation:
        metric = self._sweep.metric
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
