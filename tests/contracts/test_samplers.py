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
from tests.orchestrator.study.sweeps import CONDITIONAL, FINITE, FURTHER, METRIC, SPACE, Run, sweep

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
