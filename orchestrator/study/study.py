"""The study of one sweep, in memory: asked for assignments, told of results, rebuilt from the ledger."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from orchestrator.config.strategy import SAMPLERS
from orchestrator.config.sweep_config import Direction, SweepConfig
from orchestrator.ledger.records import ReportRecord, TrialRecord
from orchestrator.study import distributions as space
from orchestrator.study import samplers
from orchestrator.study.generations import from_plain, to_plain
from orchestrator.study.history import History, ShownStorage
from orchestrator.study.outcomes import Outcome, minimised, outcome, rank

WAITING = Outcome(TrialState.RUNNING, None, {}, {})


@dataclass(frozen=True)
class Proposal:
    """One assignment to try.

    Attributes:
        params: a value for every active hyperparameter.
        system_attrs: plain JSON to keep with the trial, for the study to be rebuilt.
    """

    params: Mapping[str, Any]
    system_attrs: Mapping[str, Any]


class Study:
    """What was tried so far and what to try next.

    Args:
        sweep: the specification.
        trials: the search trials of the ledger, numbered from 0 without a gap.
        reports: their reports, and those of `earlier`.
        earlier: trials of other sweeps to learn from; those of another space are left out.
    """

    def __init__(
        self,
        sweep: SweepConfig,
        trials: Sequence[TrialRecord] = (),
        reports: Iterable[ReportRecord] = (),
        earlier: Sequence[TrialRecord] = (),
    ) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._sweep = sweep
        self._forms = space.converted(sweep.search)
        self._published = sweep.published_params()
        adapter: type[samplers.SamplerAdapter] = SAMPLERS[sweep.sampler.name]
        self._grid = adapter.grid(sweep)
        self._history = History(adapter.history)
        self._storage = ShownStorage(self._history)
        self._study = optuna.create_study(
            storage=self._storage,
            sampler=optuna.samplers.RandomSampler(seed=0),
            directions=self.directions,
        )
        self._proposals: list[Proposal] = []
        self._earlier = 0
        curves = _curves(reports)
        for trial in earlier:
            self._learn(trial, curves[trial.key])
        for trial in sorted(trials, key=lambda trial: trial.number):
            self._rebuild(trial, curves[trial.key])

    def ask(self, number: int) -> Proposal | None:
        """Return the assignment of trial `number`; None if the space is exhausted.

        The same one again if it was asked before; otherwise `number` must be the next.
        """
        if number < len(self._proposals):
            return self._proposals[number]
        assert number == len(self._proposals), f"trial {number} asked, {len(self._proposals)} is next"
        proposal: Proposal | None
        if number == 0 and self._published is not None:
            self._add(WAITING, self._published, {})
            proposal = Proposal(self._published, {})
        elif self._grid is not None:
            proposal = self._next_of_grid(number)
        else:
            proposal = self._draw(number)
        if proposal is not None:
            self._proposals.append(proposal)
        return proposal

    def report(self, number: int, step: int, value: float) -> None:
        """Note the first objective of a running trial at a step; what is not finite is left out."""
        trial = self._trial(number)
        if not trial.state.is_finished() and math.isfinite(value):
            self._storage.set_trial_intermediate_value(trial._trial_id, step, value)

    def tell(
        self,
        number: int,
        state: str,
        value: float | None,
        step: int,
        metrics: Mapping[str, float] | None = None,
    ) -> None:
        """End a trial; one that has ended is left as it is.

        Args:
            number: of the trial.
            state: COMPLETE, PRUNED or FAILED.
            value: the best first objective, finite, for COMPLETE.
            step: the last step that was trained.
            metrics: what was reported at the step of `value`; needed for further objectives and constraints.
        """
        trial = self._trial(number)
        if trial.state.is_finished():
            return
        ended = outcome(self._sweep, state, value, metrics or {}, trial.intermediate_values)
        for name, violation in _constraint_attrs(ended).items():
            self._storage.set_trial_system_attr(trial._trial_id, name, violation)
        self._storage.set_trial_state_values(trial._trial_id, ended.state, ended.values)
        self._settle(trial.number, ended)

    def sampler_attrs(self, number: int) -> Mapping[str, Any]:
        """Return what must be kept with trial `number` for the study to be rebuilt."""
        return self._proposals[number].system_attrs

    @property
    def metrics(self) -> tuple[str, ...]:
        """Return the names of the objectives."""
        return tuple(objective.metric for objective in self._sweep.objectives)

    @property
    def directions(self) -> tuple[Direction, ...]:
        """Return which way of each objective is better."""
        return tuple(objective.direction for objective in self._sweep.objectives)

    def trials(self) -> list[FrozenTrial]:
        """Return every trial of the sweep as Optuna keeps it, those of earlier sweeps left out."""
        every = InMemoryStorage.get_all_trials(self._storage, self._study._study_id)
        return every[self._earlier :]

    def _draw(self, number: int) -> Proposal:
        before = dict(self._attrs())
        self._study.sampler = samplers.build(self._sweep, number)
        trial = self._study.ask()
        self._history.begin(trial.number)
        params = space.draw(trial, self._sweep.search)
        mine = to_plain(self._trial(number).system_attrs)
        shared = {name: value for name, value in self._attrs().items() if before.get(name) != value}
        attrs = {"trial": mine, "study": shared}
        return Proposal(params, {name: kept for name, kept in attrs.items() if kept})

    def _next_of_grid(self, number: int) -> Proposal | None:
        assert self._grid is not None
        params = self._grid.point(number - (self._published is not None))
        if params is None:
            return None
        self._add(WAITING, params, {})
        return Proposal(params, {})

    def _rebuild(self, record: TrialRecord, reports: Sequence[ReportRecord]) -> None:
        assert record.number == len(self._proposals), f"{record.key} follows a gap in the ledger"
        for name, value in record.system_attrs.get("study", {}).items():
            self._storage.set_study_system_attr(self._study._study_id, name, value)
        self._add(
            self._outcome(record, reports), record.params, from_plain(record.system_attrs.get("trial", {}))
        )
        self._proposals.append(Proposal(record.params, record.system_attrs))

    def _learn(self, record: TrialRecord, reports: Sequence[ReportRecord]) -> None:
        if record.state == "COMPLETE" and space.fits(self._sweep.search, record.params):
            self._add(self._outcome(record, reports), record.params, {})
            self._earlier += 1

    def _outcome(self, record: TrialRecord, reports: Sequence[ReportRecord]) -> Outcome:
        curve = {each.step: each.metrics[self._sweep.metric] for each in reports if each.metrics}
        best = {each.step: each.metrics for each in reports}.get(record.best_step or -1, {})
        return outcome(self._sweep, record.state, record.value, best, curve)

    def _add(self, stands: Outcome, params: Mapping[str, Any], attrs: Mapping[str, Any]) -> None:
        number = self._earlier + len(self._proposals)
        self._study.add_trial(
            create_trial(
                state=stands.state,
                params=dict(params),
                distributions={name: self._forms[name] for name in params},
                system_attrs={**attrs, **_constraint_attrs(stands)},
                intermediate_values=dict(stands.curve),
                values=stands.values,
            )
        )
        self._history.begin(number)
        if stands.state.is_finished():
            self._settle(number, stands)

    def _settle(self, number: int, ended: Outcome) -> None:
        self._history.settle(number, rank(self._sweep, ended), minimised(self._sweep, ended))

    def _trial(self, number: int) -> FrozenTrial:
        place = self._earlier + number
        identity = self._storage.get_trial_id_from_study_id_trial_number(self._study._study_id, place)
        return self._storage.get_trial(identity)

    def _attrs(self) -> Mapping[str, Any]:
        return self._storage.get_study_system_attrs(self._study._study_id)


def _constraint_attrs(stands: Outcome) -> dict[str, Any]:
    return dict(create_trial(state=TrialState.RUNNING, constraints=dict(stands.violations)).system_attrs)


def _curves(reports: Iterable[ReportRecord]) -> Mapping[str, list[ReportRecord]]:
    curves: dict[str, list[ReportRecord]] = defaultdict(list)
    for report in reports:
        curves[report.trial_key].append(report)
    return curves
