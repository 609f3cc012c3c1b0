"""Every part of the service that names a best trial names the same one.

A further caller is one entry of `CALLERS`; a further rule is one entry of `SCENARIOS`.
"""

from __future__ import annotations

import io
import math
import random
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, redirect_stdout
from dataclasses import dataclass, field, replace
from typing import Literal

import pytest

from orchestrator import Sweep, status
from orchestrator.cli.app import run_command
from orchestrator.config.sweep_config import Constraint, Objective
from orchestrator.driver.publication import publication
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.sweeps.records import (
    CheckpointRecord,
    EvaluationRecord,
    SweepRecord,
    by_trial,
    trial_key,
)
from orchestrator.ledger.sweeps.selection import (
    best_checkpoint,
    best_of_sweep,
    best_trial,
    order,
    violation,
    violations_of,
)
from orchestrator.ledger.sweeps.writer import SweepWriter
from orchestrator.report.comparison import side_by_side
from orchestrator.report.figures import curves
from orchestrator.report.history import History, read
from orchestrator.report.summary import Summary, summarise
from orchestrator.storage.paths import Paths
from orchestrator.study.observations import observe, rank
from orchestrator.tracking.model_registry import succeeds
from tests import sweeps
from tests.orchestrator.ledger.examples import create_sweep
from tests.orchestrator.study.sweeps import sweep as specification

METRIC = "val/accuracy"
STEPS = 100


@dataclass(frozen=True)
class Trial:
    """One trial of a scenario, with its report at its best step; its number is its position."""

    value: float | None
    state: Literal["COMPLETE", "PRUNED", "FAILED", "RUNNING"] = "COMPLETE"
    role: Literal["search", "confirmation"] = "search"
    others: Mapping[str, float] = field(default_factory=dict)
    checkpoint: Literal["best step", "older", "none"] = "best step"


@dataclass(frozen=True)
class Scenario:
    """A sweep and its best trial.

    Attributes:
        trials: by number; a confirmation is numbered like the others, within its role.
        best: number of the best trial, or None.
        usable: number of the best trial whose checkpoint is kept, if that is another one.
    """

    trials: tuple[Trial, ...]
    best: int | None
    usable: int | None = None
    direction: Literal["maximize", "minimize"] = "maximize"
    objectives: tuple[Objective, ...] = ()
    constraints: tuple[Constraint, ...] = ()


AT_MOST_ONE = (Constraint("val/loss", None, 1.0),)
"""Trials with a validation loss above 1 are infeasible."""


def loss(value: float) -> Mapping[str, float]:
    return {"val/loss": value}


SCENARIOS: dict[str, Scenario] = {
    "the largest value": Scenario((Trial(0.5), Trial(0.7), Trial(0.6)), 1),
    "the smallest value": Scenario((Trial(0.5), Trial(0.7), Trial(0.4)), 2, direction="minimize"),
    "the lower number of a tie": Scenario((Trial(0.5), Trial(0.7), Trial(0.7)), 1),
    "the lower number of a tie, minimised": Scenario(
        (Trial(0.5), Trial(0.4), Trial(0.4)), 1, direction="minimize"
    ),
    "no value at all": Scenario((Trial(None, "FAILED"), Trial(0.5, "RUNNING")), None),
    "a pruned trial is no candidate": Scenario((Trial(0.5), Trial(0.9, "PRUNED")), 0),
    "a failed trial is no candidate": Scenario((Trial(None, "FAILED"), Trial(0.5)), 1),
    "an unfinished trial is no candidate": Scenario((Trial(0.5), Trial(0.9, "RUNNING")), 0),
    "a confirmation is no candidate": Scenario((Trial(0.5), Trial(0.9, role="confirmation")), 0),
    "a lost checkpoint": Scenario((Trial(0.5), Trial(0.9, checkpoint="none"), Trial(0.6)), 1, usable=2),
    "only an older checkpoint": Scenario((Trial(0.5), Trial(0.9, checkpoint="older")), 1, usable=0),
    "the first of several objectives": Scenario(
        (Trial(0.5, others=loss(0.1)), Trial(0.6, others=loss(0.9))),
        1,
        objectives=(Objective(METRIC, "maximize"), Objective("val/loss", "minimize")),
    ),
    "a feasible trial before a better one": Scenario(
        (Trial(0.5, others=loss(0.9)), Trial(0.9, others=loss(1.1)), Trial(0.6, others=loss(0.5))),
        2,
        constraints=AT_MOST_ONE,
    ),
    "a feasible trial before a better one, minimised": Scenario(
        (Trial(0.5, others=loss(0.9)), Trial(0.1, others=loss(1.1)), Trial(0.4, others=loss(0.5))),
        2,
        direction="minimize",
        constraints=AT_MOST_ONE,
    ),
    "a value at the bound is feasible": Scenario(
        (Trial(0.5, others=loss(0.5)), Trial(0.9, others=loss(1.0))), 1, constraints=AT_MOST_ONE
    ),
    "a lower bound": Scenario(
        (Trial(0.5, others=loss(0.9)), Trial(0.9, others=loss(0.1))),
        0,
        constraints=(Constraint("val/loss", 0.2, None),),
    ),
    "no feasible trial: the smallest violation": Scenario(
        (Trial(0.9, others=loss(3.0)), Trial(0.5, others=loss(1.5)), Trial(0.6, others=loss(2.0))),
        1,
        constraints=AT_MOST_ONE,
    ),
    "a metric that is no number is infeasible": Scenario(
        (Trial(0.5, others=loss(1.5)), Trial(0.9, others=loss(math.nan))), 0, constraints=AT_MOST_ONE
    ),
    "an infeasible trial although the feasible one lost its checkpoint": Scenario(
        (Trial(0.5, others=loss(0.5), checkpoint="none"), Trial(0.9, others=loss(2.0))),
        0,
        usable=1,
        constraints=AT_MOST_ONE,
    ),
}


@dataclass(frozen=True)
class Site:
    """A scenario in a real ledger."""

    scenario: Scenario
    paths: Paths
    ledger: Ledger
    sweep: SweepRecord

    @property
    def history(self) -> History:
        return read(self.ledger, self.sweep.id)

    @property
    def summary(self) -> Summary:
        return summarise(self.history)


def _record(scenario: Scenario) -> SweepRecord:
    record = sweeps.sweep_record()
    bounds = {
        constraint.metric: {
            name: bound
            for name, bound in (("at_least", constraint.at_least), ("at_most", constraint.at_most))
            if bound is not None
        }
        for constraint in scenario.constraints
    }
    return replace(
        record,
        document={**record.document, "constraints": bounds},
        facts={**record.facts, "direction": scenario.direction},
    )


def _run(writer: SweepWriter, number: int, trial: Trial) -> None:
    key = trial_key(sweeps.SWEEP_ID, number, trial.role)
    waiting = sweeps.trial(
        number, "WAITING", key=key, role=trial.role, total_steps=STEPS, attempts=0, finished_at=None,
        value=None, best_step=None, step=0,
    )  # fmt: skip
    writer.add_trial(waiting)
    attempt = writer.start_attempt(key)
    if trial.value is not None:
        step = STEPS if trial.checkpoint == "best step" else 40
        saved = CheckpointRecord(key, step, "best", f"checkpoints/{key}", "beef" * 16, 1, {})
        kept = [] if trial.checkpoint == "none" else [saved]
        writer.record_report(attempt.id, STEPS, {METRIC: trial.value, **trial.others}, kept)
    if trial.state != "RUNNING":
        state = "FAILED" if trial.state == "FAILED" else "ENDED"
        writer.end_attempt(attempt.id, state, "why", trial.state, trial.value, STEPS)
    if trial.role == "search":
        # The test metric identifies the trial in a comparison.
        metrics = {"test/accuracy": number / 10_000}
        writer.add_evaluation(EvaluationRecord(key, STEPS, "test", metrics, float(number)))


@pytest.fixture(scope="module", params=SCENARIOS)
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Write a scenario to a ledger, with the trials in another order than that of their numbers.

    Callers only read it.
    """
    scenario, paths = SCENARIOS[request.param], Paths(tmp_path_factory.mktemp("site") / "mlruns")
    paths.create()
    with closing(Ledger.open(paths.ledger_url)) as ledger:
        create_sweep(ledger, replace(_record(scenario), state="RUNNING", finished_at=None))
        writer = sweeps.writer_of(ledger)
        for number, trial in reversed([*enumerate(scenario.trials)]):
            _run(writer, number, trial)
        writer.set_sweep_state("COMPLETE")
        record = ledger.sweep(sweeps.SWEEP_ID)
        assert record is not None
        yield Site(scenario, paths, ledger, record)


def _of_sweep(site: Site) -> str | None:
    best = best_of_sweep(site.ledger, site.sweep)
    return best.key if best else None


def _of_sweep_with_checkpoint(site: Site) -> str | None:
    best = best_of_sweep(site.ledger, site.sweep, with_checkpoint=True)
    return best.key if best else None


def _pure(site: Site) -> str | None:
    trials = site.ledger.trials(site.sweep.id)
    random.Random(0).shuffle(trials)
    best = best_trial(
        iter(trials),
        maximize=site.scenario.direction == "maximize",
        violations=violations_of(site.ledger, site.sweep),
        checkpoints=by_trial(site.ledger.checkpoints(site.sweep.id)),
    )
    return best.key if best else None


def _chosen(site: Site) -> str | None:
    chosen = site.summary.chosen
    return chosen.row.key if chosen else None


def _leaderboard(site: Site) -> str | None:
    return next((row.key for row in site.summary.rows if row.rank == 1), None)


def _compared(site: Site) -> str | None:
    (result,) = side_by_side([site.summary]).results
    return next(iter(result.values), None)


def _drawn(site: Site) -> str | None:
    figure = curves.optimisation_history(site.history, _chosen(site))
    stars = [trace for trace in figure.data if trace.name == "chosen"]
    return trial_key(site.sweep.id, int(stars[0].x[0])) if stars else None


def _registered(site: Site) -> str | None:
    events = publication(site.history, site.summary, [], 0)
    return next((event.run for event in events if event.kind == "model"), None)


def _status(site: Site) -> str | None:
    chosen = status(site.sweep.id, root=site.paths.root).chosen
    return chosen.key if chosen else None


def _printed_status(site: Site) -> str | None:
    printed = io.StringIO()
    with redirect_stdout(printed):
        assert run_command(["status", site.sweep.id, "--root", str(site.paths.root)]) == 0
    shown = r"best (?:val/accuracy|of those that have ended) \S+ \(trial (\d+)\)"
    best = re.search(shown, printed.getvalue())  # other best trials have a state, such as `trial 3, pruned`
    return trial_key(site.sweep.id, int(best[1])) if best else None


def _best(site: Site) -> str | None:
    best = Sweep.find(site.sweep.id, root=site.paths.root).best
    return best.key if best else None


def _sampled(site: Site) -> str | None:
    """Return the trial that the sampler sees as the best one."""
    scenario = site.scenario
    objectives = scenario.objectives or (Objective(METRIC, scenario.direction),)
    sampler = "nsgaii" if scenario.objectives else "tpe"
    sweep = specification(sampler, objectives=objectives, constraints=scenario.constraints)
    metrics = site.ledger.best_metrics(site.sweep.id)
    ranks = {}
    for trial in site.ledger.trials(site.sweep.id, role="search"):
        seen = observe(sweep, trial.state, trial.value, metrics.get(trial.key, {}), {})
        key = rank(sweep, seen)
        if trial.state == "COMPLETE" and key is not None:
            ranks[trial.key] = (key, trial.number)
    return min(ranks, key=ranks.__getitem__, default=None)


@dataclass(frozen=True)
class Caller:
    """A part of the service that names a best trial.

    Attributes:
        best: returns the key of the trial that it names, or None.
        loads: whether it names only a trial whose weights can be loaded.
    """

    best: Callable[[Site], str | None]
    loads: bool = False


CALLERS: dict[str, Caller] = {
    "selection": Caller(_of_sweep),
    "selection, with a checkpoint": Caller(_of_sweep_with_checkpoint, loads=True),
    "selection, of shuffled records": Caller(_pure, loads=True),
    "report": Caller(_chosen, loads=True),
    "leaderboard": Caller(_leaderboard),
    "compare": Caller(_compared, loads=True),
    "figure of the history": Caller(_drawn, loads=True),
    "registered model": Caller(_registered, loads=True),
    "sampler": Caller(_sampled),
    "status": Caller(_status),
    "verb status": Caller(_printed_status),
    "best of a sweep in Python": Caller(_best, loads=True),
}


@pytest.mark.parametrize("name", CALLERS)
def test_every_caller_names_the_same_trial(site: Site, name: str) -> None:
    caller, scenario = CALLERS[name], site.scenario
    number = scenario.usable if caller.loads and scenario.usable is not None else scenario.best
    expected = None if number is None else trial_key(site.sweep.id, number)
    assert caller.best(site) == expected


def test_the_best_value_so_far_ends_with_the_best_trial(site: Site) -> None:
    history = site.history
    steps = curves.best_so_far(history.search(), maximize=history.maximize, violations=history.violations())
    best = best_of_sweep(site.ledger, site.sweep)
    assert (steps[-1][1] if steps else None) == (best.value if best else None)


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
@pytest.mark.parametrize(("new", "present"), [(0.5, 0.4), (0.4, 0.5)])
def test_the_champion_is_the_version_of_the_better_value(direction: str, new: float, present: float) -> None:
    """Of two versions on the same data the registry prefers the one that the selection orders first."""

    def tags(value: float) -> dict[str, str]:
        same = {"data.digest": "feed", "data.comparable": "True", "metric": METRIC, "ended_ms": "5"}
        return {**same, "direction": direction, "value": repr(value)}

    maximize = direction == "maximize"
    first = order(new, 0, maximize=maximize) < order(present, 0, maximize=maximize)
    assert succeeds(tags(new), tags(present)) is first


@pytest.mark.parametrize(
    ("value", "bounds", "expected"),
    [
        (0.5, {"at_most": 1.0}, -0.5),
        (1.5, {"at_most": 1.0}, 0.5),
        (0.5, {"at_least": 1.0}, 0.5),
        (0.5, {"at_least": 0.0, "at_most": 1.0}, -0.5),
        (math.nan, {"at_most": 1.0}, math.inf),
        (math.inf, {"at_most": 1.0}, math.inf),
    ],
)
def test_a_violation_is_the_distance_from_the_bound(
    value: float, bounds: Mapping[str, float], expected: float
) -> None:
    assert violation(value, **bounds) == expected


def test_the_copy_of_another_trial_is_never_the_best_checkpoint() -> None:
    """In a population a trial may copy a state of the step at which it was best itself."""
    trial = replace(sweeps.trial(0, "COMPLETE"), best_step=20)
    rows = [
        CheckpointRecord(trial.key, step, kind, f"/{kind}-{step}", "ab", 1, {METRIC: 0.5})  # type: ignore[arg-type]
        for kind, step in (("pinned", 20), ("last", 30), ("best", 10), ("best", 20))
    ]
    found = best_checkpoint(trial, rows)
    assert found is not None
    assert found.path == "/best-20"
    assert best_checkpoint(trial, rows[:3]) is None
