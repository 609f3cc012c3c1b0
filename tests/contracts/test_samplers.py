"""Every sampler of the registry proposes assignments of the space, and the same ones after a restart."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import pytest

from orchestrator.config.space import Distribution
from orchestrator.config.strategy import SAMPLERS
from orchestrator.config.sweep_config import Constraint, Objective, SweepConfig
from orchestrator.study.study import Study
from tests.orchestrator.study.sweeps import (
    CONDITIONAL,
    FINITE,
    FURTHER,
    METRIC,
    SPACE,
    STEPS,
    Run,
    objective,
    sweep,
)

TRIALS = 12
ABILITIES: Mapping[str, Mapping[str, Any]] = {
    "conditions": {"search": CONDITIONAL},
    "constraints": {"constraints": (Constraint("seconds/train", None, 2.0),)},
    "several_objectives": {
        "objectives": (Objective(METRIC, "maximize"), Objective("seconds/train", "minimize"))
    },
}


def _space(name: str) -> Mapping[str, Distribution]:
    return FINITE if SAMPLERS.settings(name).finite else SPACE


def _sweep(name: str, scheduler: str = "none", **kinds: Any) -> SweepConfig:
    declared = SAMPLERS.settings(name)
    if missing := [package for package in declared.packages if find_spec(package) is None]:
        pytest.skip(f"needs {', '.join(missing)}, an extra of the package")
    required = {key: option.example for key, option in declared.options.items() if option.default is ...}
    return sweep(name, scheduler=scheduler, **{"search": _space(name), **required, **kinds})


@pytest.mark.parametrize("name", SAMPLERS)
def test_proposals_are_in_the_space_and_differ(name: str) -> None:
    proposals = Run(_sweep(name)).go(TRIALS)
    assert len(proposals) == TRIALS
    for params in proposals:
        assert params.keys() == _space(name).keys()
        assert all(_space(name)[key].holds(value) for key, value in params.items()), params
    assert len({json.dumps(params, sort_keys=True) for params in proposals}) > TRIALS / 2


@pytest.mark.parametrize("name", [name for name in SAMPLERS if not SAMPLERS.settings(name).finite])
def test_distributions_that_optuna_does_not_have(name: str) -> None:
    proposals = Run(_sweep(name, search=FURTHER)).go(TRIALS)
    for params in proposals:
        for key, value in params.items():
            assert FURTHER[key].holds(value), params
            assert type(value) is type(FURTHER[key].typed(value)), params
    assert len({json.dumps(params, sort_keys=True) for params in proposals}) == TRIALS


@pytest.mark.parametrize("scheduler", ["none", "asha"])
@pytest.mark.parametrize("name", SAMPLERS)
def test_a_restart_changes_no_proposal(name: str, scheduler: str) -> None:
    undisturbed = Run(_sweep(name, scheduler), ahead=2).go(TRIALS)
    assert Run(_sweep(name, scheduler), ahead=2, rebuilt=True).go(TRIALS) == undisturbed


@pytest.mark.parametrize("name", SAMPLERS)
def test_the_seed_changes_the_proposals(name: str) -> None:
    assert Run(_sweep(name, seed=1)).go(4) != Run(_sweep(name, seed=2)).go(4)


@pytest.mark.parametrize(
    ("name", "ability"),
    [(name, able) for name in SAMPLERS for able in ABILITIES if getattr(SAMPLERS.settings(name), able)],
)
def test_a_sampler_can_do_what_it_declares(name: str, ability: str) -> None:
    assert len(Run(_sweep(name, **ABILITIES[ability])).go(TRIALS)) == TRIALS


@pytest.mark.parametrize("name", [name for name in SAMPLERS if not SAMPLERS.settings(name).finite])
def test_a_sampler_declares_what_it_misses_under_early_stopping(name: str) -> None:
    """`validate` warns by this text, so it must be true of the sampler."""
    missed = SAMPLERS.settings(name).under_stopping
    plain = _proposals_under_stopping(name)
    reads_stopped = _proposals_under_stopping(name, stopped=-1.0) != plain
    reads_complete = _proposals_under_stopping(name, complete=-1.0) != plain
    assert reads_stopped == missed.startswith("treats the last value of a stopped trial as final")
    if reads_complete and not reads_stopped and name != "tpe":  # TPE needs few complete trials
        assert "only" in missed
        assert "complete trials" in missed
    if not reads_complete:
        assert not missed


def _proposals_under_stopping(
    name: str, complete: float = 1.0, stopped: float = 1.0
) -> list[Mapping[str, Any]]:
    """Return the proposals of a sweep that stops every second trial.

    Args:
        name: Sampler.
        complete: Factor of the values of complete trials.
        stopped: Factor of the values of stopped trials.
    """
    options = {"population_size": 4} if name == "nsgaii" else {}
    study, proposals = Study(_sweep(name, "asha", **options)), []
    for number in range(24):
        proposal = study.ask(number)
        assert proposal is not None
        proposals.append(proposal.params)
        is_complete = number % 2 == 0
        value = objective(proposal.params) * (complete if is_complete else stopped)
        study.report(number, 1, value)
        state = "COMPLETE" if is_complete else "PRUNED"
        study.tell(number, state, value, STEPS if is_complete else 1, {METRIC: value})
    return proposals
