"""A study that is rebuilt before each ask and each tell proposes the same as one that is not."""

from __future__ import annotations

import json
import math
from importlib.util import find_spec
from typing import Any

import pytest

from orchestrator.config.space import Distribution
from orchestrator.config.sweep_config import Constraint, Objective
from tests.orchestrator.study.sweeps import CONDITIONAL, FINITE, FURTHER, METRIC, Run, sweep

COST = Objective("seconds/train", "minimize")
BEST = Objective(METRIC, "maximize")
BY_STEPS = {
    "gamma": Distribution("uniform", 0.0, 1.0, 1 / 9),
    "rate": Distribution("log_uniform", 1e-5, 1e-2),
    "theta": Distribution("uniform", 0.0, math.pi, math.pi / 4),
}
SAMPLERS: dict[str, tuple[str, dict[str, Any]]] = {
    "random": ("random", {}),
    "tpe": ("tpe", {"n_startup_trials": 5}),
    "tpe, one by one": ("tpe", {"n_startup_trials": 5, "multivariate": False, "group": False}),
    "tpe, conditions": ("tpe", {"n_startup_trials": 5, "search": CONDITIONAL}),
    "tpe, constraints": (
        "tpe",
        {"n_startup_trials": 5, "constraints": (Constraint("seconds/train", None, 2.0),)},
    ),
    "tpe, two objectives": ("tpe", {"n_startup_trials": 5, "objectives": (BEST, COST)}),
    "tpe, steps": ("tpe", {"n_startup_trials": 5, "search": BY_STEPS}),
    "qmc": ("qmc", {}),
    "qmc, halton": ("qmc", {"qmc_type": "halton", "scramble": False}),
    "grid": ("grid", {"search": FINITE}),
    "nsgaii": ("nsgaii", {"population_size": 4, "objectives": (BEST, COST)}),
    "nsgaii, published": (
        "nsgaii",
        {
            "population_size": 4,
            "objectives": (BEST, COST),
            "published": {"gamma": 0.3, "layers": 2, "rate": 1e-3, "theta": 0.1},
        },
    ),
    "nsgaii, steps": ("nsgaii", {"population_size": 4, "search": BY_STEPS}),
    "cmaes": ("cmaes", {"popsize": 4}),
    "cmaes, margin": ("cmaes", {"popsize": 4, "with_margin": True}),
    "cmaes, rate": ("cmaes", {"popsize": 4, "lr_adapt": True}),
    "tpe, further": ("tpe", {"n_startup_trials": 5, "search": FURTHER}),
    "qmc, further": ("qmc", {"search": FURTHER}),
    "cmaes, further": ("cmaes", {"popsize": 4, "search": FURTHER}),
    "nsgaii, further": ("nsgaii", {"population_size": 4, "search": FURTHER}),
    "gp, further": ("gp", {"n_startup_trials": 4, "search": FURTHER}),
    "gp": ("gp", {"n_startup_trials": 4}),
    "gp, steps": ("gp", {"n_startup_trials": 4, "search": BY_STEPS}),
}
STOPPED_EARLY = [case for case, (_, options) in SAMPLERS.items() if "objectives" not in options]
"""Trials of several objectives are not stopped early."""


@pytest.mark.parametrize(
    ("case", "scheduler", "ahead"),
    [
        *((case, "none", 3) for case in SAMPLERS),
        *((case, "asha", 3) for case in STOPPED_EARLY),
        *(pytest.param(case, "none", 1, marks=pytest.mark.slow) for case in SAMPLERS),
        *(pytest.param(case, "asha", 1, marks=pytest.mark.slow) for case in STOPPED_EARLY),
    ],
)
def test_a_rebuilt_study_proposes_the_same(case: str, scheduler: str, ahead: int) -> None:
    """Neither a restart at any moment nor the conversion to JSON changes a proposal."""
    name, options = SAMPLERS[case]
    if name == "gp" and find_spec("torch") is None:
        pytest.skip("torch, which weighs gigabytes, is an extra: pip install '.[gp]'")
    count = 10 if name == "gp" else 24
    undisturbed = Run(sweep(name, scheduler=scheduler, **options), ahead=ahead).go(count)
    rebuilt = Run(sweep(name, scheduler=scheduler, **options), ahead=ahead, rebuilt=True).go(count)
    assert rebuilt == undisturbed
    assert len(undisturbed) == count
    # A sampler without its state would propose the same again.
    assert len({json.dumps(params, sort_keys=True) for params in undisturbed}) >= 0.75 * count


@pytest.mark.parametrize("name", ["random", "qmc", "grid"])
def test_some_samplers_do_not_depend_on_timing(name: str) -> None:
    """The number of running trials and the time of their ends do not change the proposals."""
    search = {"search": FINITE} if name == "grid" else {}
    runs = [Run(sweep(name, **search), ahead=ahead).go(20) for ahead in (1, 4, 20)]
    assert runs[0] == runs[1] == runs[2]


def test_seeds_make_the_difference() -> None:
    """Another seed gives other trials, with every sampler that draws."""
    for name in ("random", "tpe", "qmc", "nsgaii"):
        assert Run(sweep(name, seed=1)).go(4) != Run(sweep(name, seed=2)).go(4)


def test_the_state_of_cmaes_is_stored_as_json() -> None:
    """The ledger holds the optimizer's state, and no pickle."""
    pytest.importorskip("cmaes")
    run = Run(sweep("cmaes", popsize=4))
    run.go(24)
    kept = json.dumps([dict(trial.system_attrs) for trial in run.trials.values()])
    assert '"_sigma"' in kept
    assert ":optimizer:" not in kept
