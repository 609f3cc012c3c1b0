"""Sweeps with a given sampler and space, and a synthetic objective to run them on."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from orchestrator.config.resolve import load
from orchestrator.config.space import Distribution, chosen, normal, ranged
from orchestrator.config.strategy import options_section
from orchestrator.config.sweep_config import Constraint, Objective, Published, Sampler, Scheduler, SweepConfig
from orchestrator.ledger.rows import to_json
from orchestrator.ledger.sweeps.records import ReportRecord, TrialRecord
from orchestrator.study.study import Study

METRIC, STEPS = "val/accuracy", 5
SPACE = {
    "gamma": Distribution("uniform", 0.1, 0.9),
    "layers": Distribution("int", 1, 6),
    "rate": Distribution("log_uniform", 1e-5, 1e-2),
    "theta": Distribution("choice", choices=(0.1, 0.2, 1.0)),
}
CONDITIONAL = {
    "layer": Distribution("choice", choices=("lru", "rotrnn")),
    "rate": Distribution("log_uniform", 1e-5, 1e-2),
    "gamma": Distribution("uniform", 0.1, 0.9, when={"layer": ("rotrnn",)}),
    "radius": Distribution("uniform", 0.1, 0.9, when={"layer": ("lru",)}),
}
FINITE = {
    "gamma": Distribution("uniform", 0.0, 1.0, 0.25),
    "layers": Distribution("int", 1, 3),
    "rate": Distribution("choice", choices=(1e-4, 1e-3)),
}

FURTHER = {
    "rate": normal("log_normal", -7, 1),
    "shift": normal("normal", 0, 2),
    "sizes": chosen([None, 8, 0.5, True, "8", [64, 64], {"a": 1}]),
    "stack": chosen([[64], [64, 64]], ["small", "large"]),
    "units": ranged("log_int", 10, 100, 10),
    "width": ranged("power_of_two", 16, 512, None),
    "depth": chosen(["tiny", "base", "big"], is_scale=True),
}
"""Distributions that Optuna does not have."""


@cache
def _base() -> SweepConfig:
    return load(Path(__file__).parents[3] / "search_spaces" / "retrieval.yaml", profile=None, gpus=8)


def sweep(
    sampler: str,
    search: Mapping[str, Distribution] = SPACE,
    *,
    scheduler: str = "none",
    published: Mapping[str, Any] | None = None,
    objectives: tuple[Objective, ...] = (Objective(METRIC, "maximize"),),
    constraints: tuple[Constraint, ...] = (),
    **options: Any,
) -> SweepConfig:
    """Return a sweep; options that are not given have their defaults."""
    return replace(
        _base(),
        search=search,
        sampler=Sampler(sampler, options_section("sampler", sampler)(**options).model_dump(mode="json")),
        scheduler=Scheduler(scheduler, {}),
        objectives=objectives,
        constraints=constraints,
        published=None if published is None else Published("a paper", published, {}),
    )


def objective(params: Mapping[str, Any]) -> float:
    """Return the value of an assignment: best at gamma 0.3, rate 1e-3."""
    return 1 - (params.get("gamma", 0.5) - 0.3) ** 2 - (math.log10(params["rate"]) + 3) ** 2 / 10


@dataclass
class Run:
    """A sweep that runs trial by trial, with its records in memory.

    Attributes:
        rebuilt: Whether the study is rebuilt from the records before each ask and each tell.
        ahead: Number of trials that run at the same time.
    """

    sweep: SweepConfig
    rebuilt: bool = False
    ahead: int = 1
    trials: dict[int, TrialRecord] = field(default_factory=dict)
    reports: list[ReportRecord] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._study = Study(self.sweep)

    def go(self, count: int) -> list[Mapping[str, Any]]:
        """Run `count` trials, or until the space is exhausted; return their hyperparameters."""
        running: list[int] = []
        while True:
            while len(running) < self.ahead and len(self.trials) < count and self.ask():
                running.append(len(self.trials) - 1)
            if not running:
                return [trial.params for trial in self.trials.values()]
            self.finish(running.pop(0))

    def ask(self) -> bool:
        """Ask for the next trial; return False if the space is exhausted."""
        number = len(self.trials)
        proposal = self.study().ask(number)
        if proposal is None:
            return False
        stored = json.loads(to_json({"params": proposal.params, "system_attrs": proposal.system_attrs}))
        key = f"sweep-{number}"
        self.trials[number] = TrialRecord(
            key, "sweep", number, "search", "RUNNING", None, **stored, seed=0, value=None, best_step=None,
            step=0, total_steps=STEPS, attempts=1, created_at=0.0,
        )  # fmt: skip
        return True

    def finish(self, number: int) -> None:
        """End a trial: one in three is pruned at step 2, one in seven fails."""
        study, trial = self.study(), self.trials[number]
        state = "FAILED" if number % 7 == 6 else "COMPLETE" if number % 3 else "PRUNED"
        last = STEPS if state == "COMPLETE" else 2
        for step in range(1, last + 1):
            metrics = {METRIC: objective(trial.params) * step / STEPS, "seconds/train": float(number % 5)}
            study.report(number, step, metrics[METRIC])
            self.reports.append(ReportRecord(trial.key, step, f"{trial.key}.1", metrics, 0.0))
        value = None if state == "FAILED" else metrics[METRIC]
        study.tell(number, state, value, last, metrics)
        self.trials[number] = replace(trial, state=state, value=value, best_step=last, step=last)

    def study(self) -> Study:
        """Return the study, rebuilt if `rebuilt` is set."""
        if self.rebuilt:
            self._study = Study(self.sweep, list(self.trials.values()), self.reports)
        return self._study
