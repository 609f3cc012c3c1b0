"""The study of one sweep, in memory: asked for assignments, told of results, rebuilt from the ledger."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState, create_trial

from orchestrator.ledger.records import ReportRecord, TrialRecord
from orchestrator.spec.model import Sweep
from orchestrator.study import samplers, space

# Unfinished trials are RUNNING for the sampler, wherever they wait.
STATES: Mapping[str, TrialState] = {
    "COMPLETE": TrialState.COMPLETE,
    "PRUNED": TrialState.PRUNED,
    "FAILED": TrialState.FAIL,
}


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
        reports: their reports.
    """

    def __init__(
        self, sweep: Sweep, trials: Sequence[TrialRecord] = (), reports: Iterable[ReportRecord] = ()
    ) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._sweep = sweep
        self._forms = space.converted(sweep.search)
        self._storage = optuna.storages.InMemoryStorage()
        self._study = optuna.create_study(
            storage=self._storage,
            sampler=samplers.build(sweep, 0),
            directions=[objective.direction for objective in sweep.objectives],
        )
        self._proposals: list[Proposal] = []
        curves = _curves(reports)
        for trial in sorted(trials, key=lambda trial: trial.number):
            self._readd(trial, curves[trial.key])

    def ask(self, number: int) -> Proposal | None:
        """Return the assignment of trial `number`; None if the space is exhausted.

        The same one again if it was asked before; otherwise `number` must be the next.
        """
        if number < len(self._proposals):
            return self._proposals[number]
        assert number == len(self._proposals), f"trial {number} asked, {len(self._proposals)} is next"
        published = self._sweep.published_params()
        if number == 0 and published is not None:
            self._add(TrialState.RUNNING, published, {}, {}, None)
            proposal = Proposal(published, {})
        else:
            proposal = self._draw(number)
        self._proposals.append(proposal)
        return proposal

    def report(self, number: int, step: int, value: float) -> None:
        """Note the objective of a running trial at a step; what is not finite is left out."""
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
            value: the best objective, finite, for COMPLETE.
            step: the last step that was trained.
            metrics: what was reported at the step of `value`.
        """
        if self._trial(number).state.is_finished():
            return
        assert state != "COMPLETE" or (value is not None and math.isfinite(value)), f"{value} is no result"
        self._study.sampler = optuna.samplers.RandomSampler(seed=0)  # what follows a trial is not its affair
        self._study.tell(number, value if state == "COMPLETE" else None, state=STATES[state])

    def sampler_attrs(self, number: int) -> Mapping[str, Any]:
        """Return what must be kept with trial `number` for the study to be rebuilt."""
        return self._proposals[number].system_attrs

    def _draw(self, number: int) -> Proposal:
        before = dict(self._attrs())
        self._study.sampler = samplers.build(self._sweep, number)
        trial = self._study.ask()
        params = space.draw(trial, self._sweep.search)
        study_attrs = {name: value for name, value in self._attrs().items() if before.get(name) != value}
        attrs = {"trial": dict(self._trial(number).system_attrs), "study": study_attrs}
        return Proposal(params, {name: kept for name, kept in attrs.items() if kept})

    def _readd(self, record: TrialRecord, curve: Sequence[ReportRecord]) -> None:
        assert record.number == len(self._proposals), f"{record.key} follows a gap in the ledger"
        for name, value in record.system_attrs.get("study", {}).items():
            self._storage.set_study_system_attr(self._study._study_id, name, value)
        values = {report.step: report.metrics[self._sweep.metric] for report in curve if report.metrics}
        state = STATES.get(record.state, TrialState.RUNNING)
        finite = {step: value for step, value in values.items() if math.isfinite(value)}
        self._add(state, record.params, record.system_attrs.get("trial", {}), finite, record.value)
        self._proposals.append(Proposal(record.params, record.system_attrs))

    def _add(
        self,
        state: TrialState,
        params: Mapping[str, Any],
        attrs: Mapping[str, Any],
        curve: Mapping[int, float],
        value: float | None,
    ) -> None:
        if state is TrialState.PRUNED and curve:
            value = curve[max(curve)]
        self._study.add_trial(
            create_trial(
                state=state,
                params=dict(params),
                distributions={name: self._forms[name] for name in params},
                system_attrs=dict(attrs),
                intermediate_values=dict(curve),
                value=value if state in (TrialState.COMPLETE, TrialState.PRUNED) else None,
            )
        )

    def _trial(self, number: int) -> FrozenTrial:
        identity = self._storage.get_trial_id_from_study_id_trial_number(self._study._study_id, number)
        return self._storage.get_trial(identity)

    def _attrs(self) -> Mapping[str, Any]:
        return self._storage.get_study_system_attrs(self._study._study_id)


def _curves(reports: Iterable[ReportRecord]) -> Mapping[str, list[ReportRecord]]:
    curves: dict[str, list[ReportRecord]] = defaultdict(list)
    for report in reports:
        curves[report.trial_key].append(report)
    return curves
