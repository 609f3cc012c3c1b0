"""The invariants of a population: what a trial may have copied, and what it trains from there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.config.sweep_config import SweepConfig
from orchestrator.ledger.keys import is_confirmation
from orchestrator.ledger.records import ReportRecord, TrialRecord
from orchestrator.schedule import schedulers
from orchestrator.schedule.schedulers import PopulationRule
from orchestrator.study.study import Study
from tests.simulation.training import State
from trainables.trial import TrialSettings

States = dict[int, set[State]]
"""The states that an undisturbed trial may have had, by step."""


def states_of(sweep: SweepConfig, trials: Sequence[TrialRecord]) -> dict[str, States]:
    """Return the states that each trial may have had at its reports, by its key.

    A trial that has copied others may have their states, from which it goes on with its own hyperparameters.
    """
    states: dict[str, States] = {trial.key: {} for trial in trials}
    for trial in trials:
        settings = sweep.settings(_first_params(sweep, trial), trial.seed)
        _train(sweep, states[trial.key], State.first(settings), settings)
    for _ in range(sum(len(_segments(trial)) for trial in trials)):  # a donor may have copied another trial
        for trial in trials:
            for segment in _segments(trial):
                settings = sweep.settings(segment["params"], trial.seed)
                for copied in tuple(states[segment["donor"]].get(segment["step"], ())):
                    _train(sweep, states[trial.key], State.mutated(settings, copied), settings)
    return states


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


def _train(sweep: SweepConfig, own: States, state: State, settings: TrialSettings) -> None:
    """Add the states at the reports after a state."""
    interval = sweep.training.interval
    while state.step < settings.training.steps:
        state = state.trained(interval)
        own.setdefault(state.step, set()).add(state)


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
