"""The invariants of a population: what a trial may have copied, and what it trains from there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from orchestrator.config.sweep_config import SweepConfig
from orchestrator.ledger.sweeps.records import ReportRecord, TrialRecord, is_confirmation
from orchestrator.schedule import schedulers
from orchestrator.schedule.schedulers import PopulationRule
from orchestrator.study.study import Study
from tests.simulation.training import State
from trainables.trial import TrialSettings


@dataclass(frozen=True)
class Reached:
    """Possible results of a trial.

    Attributes:
        state: State of the trial.
        losses: Losses of its steps since the last report before this state; a checkpoint between two reports
            holds them, so that a trial which copies it goes on with them.
    """

    state: State
    losses: tuple[float, ...]

    def loss(self) -> float:
        """Return the training loss of a report of this state."""
        return float(np.mean(np.array(self.losses, np.float32), dtype=np.float64))


Reports = dict[int, set[Reached]]
"""Results of an undisturbed trial, by step."""


def reports_of(sweep: SweepConfig, trials: Sequence[TrialRecord]) -> dict[str, Reports]:
    """Return what each trial may have reached, by its key.

    A trial that has copied others may have their states, from which it goes on with its own hyperparameters.
    """
    reports: dict[str, Reports] = {trial.key: {} for trial in trials}
    for trial in trials:
        settings = sweep.settings(_first_params(sweep, trial), trial.seed)
        _train(sweep, reports[trial.key], Reached(State.first(settings), ()), settings)
    for _ in range(sum(len(_segments(trial)) for trial in trials)):  # a donor may have copied another trial
        for trial in trials:
            for segment in _segments(trial):
                settings = sweep.settings(segment["params"], trial.seed)
                for copied in tuple(reports[segment["donor"]].get(segment["step"], ())):
                    mutated = Reached(State.mutated(settings, copied.state), copied.losses)
                    _train(sweep, reports[trial.key], mutated, settings)
    return reports


def _first_params(sweep: SweepConfig, trial: TrialRecord) -> Mapping[str, Any]:
    """Return the hyperparameters with which a trial has begun; its row holds the last ones."""
    if not _segments(trial):
        return trial.params
    study = Study(sweep)
    proposals = [study.ask(number) for number in range(trial.number + 1)]
    proposal = proposals[-1]
    assert proposal is not None, "the space has as many trials"
    return proposal.params


def _segments(trial: TrialRecord) -> Sequence[Mapping[str, Any]]:
    return list(trial.system_attrs.get("segments", ()))


def _train(sweep: SweepConfig, own: Reports, begin: Reached, settings: TrialSettings) -> None:
    """Add what follows from a state."""
    state, losses = begin.state, begin.losses
    for following in state.path(settings.training.steps - state.step):
        if state.step % sweep.training.interval == 0:
            losses = ()
        state, losses = following, (*losses, following.loss())
        own.setdefault(state.step, set()).add(Reached(state, losses))


def copies_of(sweep: SweepConfig, reports: Sequence[ReportRecord]) -> dict[str, set[str]]:
    """Return the trials that each trial may copy, by its key, as the order of the reports decides."""
    rule = schedulers.PopulationBasedTraining.build(sweep, sweep.scheduler.options)
    assert isinstance(rule, PopulationRule), "the scheduler of a population"
    allowed: dict[str, set[str]] = {}
    compared = [
        report
        for report in reports
        if report.step < sweep.training.steps and not is_confirmation(report.trial_key)
    ]
    for report in sorted(compared, key=lambda report: report.at):
        value = report.metrics[sweep.metric]
        donors = rule.population.donors(report.trial_key, report.step, value)
        allowed.setdefault(report.trial_key, set()).update(donors)
    return allowed
