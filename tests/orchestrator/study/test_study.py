"""The proposals of a study, what its sampler learns, and the cost of a proposal."""

from __future__ import annotations

import json
import math
import time
import tracemalloc
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.config.relations import read_relation
from orchestrator.config.space import Distribution, DistributionError, chosen, ranged, recorded_space
from orchestrator.config.sweep_config import Constraint, Objective
from orchestrator.ledger.sweeps.records import ReportRecord
from orchestrator.study.distributions import Grid, as_drawn, as_held, to_optuna
from orchestrator.study.observations import BEST as BEST_SHOWN
from orchestrator.study.optuna_private import contains
from orchestrator.study.samplers import Tpe, trial_seed
from orchestrator.study.study import Study
from tests.orchestrator.study.sweeps import CONDITIONAL, FINITE, METRIC, SPACE, STEPS, Run, objective, sweep

PUBLISHED = {"gamma": 0.5, "layers": 6, "rate": 1e-4, "theta": 1.0}
STEPPED = {
    "pi by pi/4": (0, math.pi, math.pi / 4),
    "pi by pi/3": (0, math.pi, math.pi / 3),
    "2 pi by pi/6": (0, 2 * math.pi, math.pi / 6),
    "1 by 1/3": (0, 1, 1 / 3),
    "1 by 1/9": (0, 1, 1 / 9),
    "-pi to 0 by pi/4": (-math.pi, 0, math.pi / 4),
    "two values": (0.1, 0.4, 0.4 - 0.1),
    "in ten digits": (0, 3.1415926536, 0.03141592654),
}
"""Ends and steps of ranges whose decimals do not divide."""


def _optuna(study: Study) -> list[optuna.trial.FrozenTrial]:
    """Return the trials that Optuna sees."""
    return study._study.get_trials(deepcopy=False)


@pytest.mark.parametrize("name", ["random", "tpe", "qmc", "nsgaii"])
def test_the_published_values_come_first(name: str) -> None:
    """They are trial 0 with any sampler, and the next trial is drawn."""
    study = Study(sweep(name, published=PUBLISHED))
    first, second = study.ask(0), study.ask(1)
    assert first is not None
    assert second is not None
    assert first.params == PUBLISHED != second.params


def test_draws_are_in_the_space() -> None:
    """Integers are integers, choices are in their list, and conditions hold."""
    for number, params in enumerate(Run(sweep("random")).go(40)):
        assert params.keys() == SPACE.keys()
        assert all(SPACE[name].holds(value) for name, value in params.items()), number
        assert isinstance(params["layers"], int)
    for params in Run(sweep("tpe", CONDITIONAL, n_startup_trials=4)).go(30):
        extra = "gamma" if params["layer"] == "rotrnn" else "radius"
        assert params.keys() == {"layer", "rate", extra}


def test_asking_again_gives_the_same() -> None:
    """A trial that was asked for is not drawn again."""
    study = Study(sweep("tpe"))
    first = study.ask(0)
    assert first is not None
    study.ask(1)
    assert study.ask(0) == first
    with pytest.raises(AssertionError, match="trial 5 asked, 2 is next"):
        study.ask(5)


@pytest.mark.parametrize("name", ["random", "tpe"])
def test_optuna_learns_the_end_of_each_trial(name: str) -> None:
    """A pruned trial has its last value, a failed one has none, a complete one has its best.

    To TPE a pruned trial is a running one. A study file holds it as pruned.
    """
    study = Study(sweep(name))
    for number in range(4):
        study.ask(number)
        study.report(number, 1, 0.25)
        study.report(number, 2, 0.5)
    study.tell(0, "COMPLETE", 0.75, 5)
    study.tell(1, "PRUNED", 0.5, 2)
    study.tell(2, "FAILED", None, 2)
    states = optuna.trial.TrialState
    complete, pruned, failed, running = _optuna(study)
    assert (complete.state, complete.value) == (states.COMPLETE, 0.75)
    assert pruned.intermediate_values == {2: 0.5}
    if name == "tpe":
        assert (pruned.state, pruned.values) == (states.RUNNING, None)
        pruned = study.trials()[1]
    assert (pruned.state, pruned.value) == (states.PRUNED, 0.5)
    assert (failed.state, failed.values) == (states.FAIL, None)
    assert running.state == states.RUNNING


def _next_after(name: str, complete: int, slope: float) -> dict[str, object]:
    """Return the proposal after some complete trials and forty stopped ones, whose values rise by a slope."""
    study = Study(sweep(name, scheduler="asha"))
    for number in range(complete + 40):
        proposal = study.ask(number)
        assert proposal is not None
        state = "COMPLETE" if number < complete else "PRUNED"
        value = objective(proposal.params) if number < complete else slope * number
        study.report(number, 2, value)
        study.tell(number, state, value, 2, {METRIC: value})
    last = study.ask(complete + 40)
    assert last is not None
    return dict(last.params)


def test_where_a_trial_was_stopped_does_not_tell_tpe_that_it_is_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rung value changes no proposal: "good" must not come to mean "passed a rung"."""
    assert _next_after("tpe", 4, 0.02) == _next_after("tpe", 4, -0.02)
    monkeypatch.setattr(Tpe, "lists_stopped", True)
    assert _next_after("tpe", 4, 0.02) != _next_after("tpe", 4, -0.02), "the control"


def test_tpe_draws_at_random_until_four_trials_are_complete() -> None:
    """Stopped trials do not count."""
    tpe, seed = sweep("tpe", scheduler="asha"), trial_seed(0, 43)
    assert tpe.sampler.options["n_startup_trials"] == 4
    at_random = optuna.samplers.TPESampler(n_startup_trials=99, multivariate=True, seed=seed)
    study = optuna.create_study(sampler=at_random)
    drawn = study.ask({name: to_optuna(one) for name, one in tpe.search.items()}).params
    assert _next_after("tpe", 3, 0.5) == drawn
    assert _next_after("tpe", 4, 0.5).keys() == drawn.keys()


@pytest.mark.parametrize("curves", [False, True])
def test_a_study_holds_one_point_of_a_trial_unless_curves_are_wanted(curves: bool) -> None:
    """A driver's memory does not grow with the reports of its trials: samplers read the latest point only."""
    run = Run(sweep("tpe"))
    run.go(4)
    study = Study(run.sweep, list(run.trials.values()), run.reports, curves=curves)
    steps = [sorted(trial.intermediate_values) for trial in _optuna(study)]
    ends = [2, STEPS, STEPS, 2]
    assert steps == ([[*range(1, end + 1)] for end in ends] if curves else [[end] for end in ends])
    study.ask(4)
    for step in (3, 5, 4):
        study.report(4, step, step / 10)
    assert _optuna(study)[4].intermediate_values == {5: 0.5}


def test_telling_twice_changes_nothing() -> None:
    """Only the first end of a trial counts, and later reports are ignored."""
    study = Study(sweep("tpe"))
    study.ask(0)
    study.tell(0, "COMPLETE", 0.75, 5)
    study.tell(0, "FAILED", None, 5)
    study.report(0, 6, 0.9)
    (trial,) = _optuna(study)
    assert (trial.state, trial.value, trial.intermediate_values) == (
        optuna.trial.TrialState.COMPLETE,
        0.75,
        {},
    )


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_never_reaches_the_sampler(value: float) -> None:
    """It is neither a point of a curve nor a result."""
    study = Study(sweep("tpe"))
    study.ask(0)
    study.report(0, 1, value)
    study.tell(0, "COMPLETE", value, 5)
    (trial,) = _optuna(study)
    assert (trial.state, trial.intermediate_values) == (optuna.trial.TrialState.FAIL, {})


def test_a_rebuilt_study_knows_what_the_first_one_knew() -> None:
    """States, values, curves and constraints are the same, trial by trial."""
    chosen = sweep("tpe", constraints=(Constraint("seconds/train", 1.0, 3.0),))
    run = Run(chosen, ahead=2)
    run.go(12)
    run.ask()
    known = [
        (t.state, t.values, t.params, t.intermediate_values, t.constraints) for t in _optuna(run.study())
    ]
    again = Study(chosen, list(run.trials.values()), run.reports)
    assert known == [
        (t.state, t.values, t.params, t.intermediate_values, t.constraints) for t in _optuna(again)
    ]
    assert known[0][4] == {"seconds/train": 1.0}
    assert known[4][4] == {"seconds/train": 1.0}
    assert known[2][4] == {"seconds/train": -1.0}


def test_each_objective_has_a_value() -> None:
    """All values are those at the step of the best first objective."""
    chosen = sweep(
        "nsgaii", objectives=(Objective(METRIC, "maximize"), Objective("seconds/train", "minimize"))
    )
    study = Study(chosen)
    study.ask(0)
    study.tell(0, "COMPLETE", 0.75, 5, {METRIC: 0.75, "seconds/train": 9.0})
    (trial,) = _optuna(study)
    assert trial.values == [0.75, 9.0]


@pytest.mark.parametrize("published", [None, {"gamma": 0.25, "layers": 2, "rate": 1e-3}])
def test_a_grid_is_tried_once_and_then_exhausted(published: dict[str, float] | None) -> None:
    """Every combination is proposed once, including the published one; then the grid is exhausted."""
    run = Run(sweep("grid", FINITE, published=published, seed=3), ahead=4)
    tried = run.go(100)
    combinations = {json.dumps(dict(params), sort_keys=True) for params in tried}
    assert len(tried) == len(combinations) == 5 * 3 * 2
    assert run.study().ask(len(tried)) is None
    assert run.study().ask(len(tried)) is None


@pytest.mark.parametrize("name", ["grid", "random", "tpe", "qmc", "cmaes", "nsgaii"])
def test_no_setting_is_tried_twice(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A space of eight settings has eight trials, with any sampler and also after a restart."""
    monkeypatch.setattr("tests.orchestrator.study.sweeps.objective", lambda params: float(params["a"]))
    space = {"a": ranged("int", 1, 4, None), "b": chosen([1, 2], is_scale=True)}
    options = {"n_startup_trials": 2} if name == "tpe" else {}
    run = Run(sweep(name, space, **options), ahead=2, rebuilt=True)
    tried = run.go(100)
    assert len(tried) == len({json.dumps(dict(params)) for params in tried}) == 8
    assert run.study().size == 8
    assert Run(sweep(name, space, **options), ahead=2).go(100) == tried


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("name", ["random", "tpe", "grid"])
def test_relations_hold_for_every_trial(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.orchestrator.study.sweeps.objective", lambda params: float(params["a"]))
    space = {"a": ranged("int", 1, 8, None), "b": ranged("int", 1, 8, None)}
    bound = replace(sweep(name, space), require=(read_relation("a >= 2 * b"),))
    tried = Run(bound, ahead=2, rebuilt=True).go(100)
    assert all(params["a"] >= 2 * params["b"] for params in tried)
    assert len(tried) == sum(a >= 2 * b for a in range(1, 9) for b in range(1, 9))


@pytest.mark.parametrize("name", ["random", "tpe", "qmc", "cmaes", "nsgaii", "gp"])
def test_a_rare_relation_is_satisfied_by_random_draws(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of 2,000 draws satisfies it: the sampler gives up, and independent draws go on."""
    monkeypatch.setattr("tests.orchestrator.study.sweeps.objective", lambda params: float(params["a"]))
    if name == "gp" and find_spec("torch") is None:
        pytest.skip("needs torch, an extra of the package")
    space = {"a": ranged("uniform", 0.0, 1.0, None), "b": ranged("uniform", 0.0, 1.0, None)}
    bound = replace(sweep(name, space), require=(read_relation("a + b > 1.968"),))
    for params in Run(bound, ahead=2).go(4):
        assert params["a"] + params["b"] > 1.968


@pytest.mark.parametrize("name", ["random", "tpe", "qmc", "cmaes", "nsgaii", "grid"])
def test_settings_are_tried_first_and_completed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.orchestrator.study.sweeps.objective", lambda params: float(params["a"]))
    space: dict[str, Distribution] = {
        "a": ranged("int", 1, 8, None),
        "b": ranged("int", 1, 8, None),
        "c": chosen([None, 8, 0.5, [1]]),
    }
    first = ({"a": 3}, {"a": 5, "b": 5, "c": [1]}, {"c": None, "b": 2})
    bound = replace(sweep(name, space, published={"a": 1, "b": 1, "c": 8}), first=first)
    tried = Run(bound, ahead=2, rebuilt=True).go(12)
    assert tried[0] == {"a": 1, "b": 1, "c": 8}
    for params, wanted in zip(tried[1:], first, strict=False):
        assert params.keys() == space.keys()
        assert {key: params[key] for key in wanted} == wanted
    assert Run(bound, ahead=2).go(12) == tried


ANY_VALUE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False)
    | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)


@given(st.lists(ANY_VALUE, min_size=1, max_size=6), st.booleans())
def test_a_study_holds_any_choice(values: list[Any], is_scale: bool) -> None:
    """Each value comes back from the study, and from the records of the sweep and of the trial."""
    try:
        choice = chosen(values, is_scale=is_scale)
    except DistributionError:
        return
    (again,) = recorded_space(json.loads(json.dumps({"x": choice.document()}))).values()
    for value in values:
        stored = json.loads(json.dumps(value))
        held = as_held(again, stored)
        assert contains(to_optuna(again), held)
        assert json.dumps(as_drawn(again, held), sort_keys=True) == json.dumps(value, sort_keys=True)


def test_a_setting_on_request_is_refused_if_it_was_tried() -> None:
    space = {"a": ranged("int", 1, 2, None), "b": ranged("int", 1, 2, None)}
    study = Study(sweep("random", space))
    first = study.ask(0, {"a": 1, "b": 2})
    assert first is not None
    assert first.params == {"a": 1, "b": 2}
    assert study.ask(1, {"a": 1, "b": 2}) is None
    second = study.ask(1, {"a": 1})
    assert second is not None
    assert second.params == {"a": 1, "b": 1}
    assert study.ask(2, {"a": 1}) is None
    assert study.ask(2) is not None


def test_a_grid_of_any_range_takes_no_memory() -> None:
    """A list of these values would take 8 GB for its pointers alone."""
    wide = {"seed": Distribution("int", 0, 10**9), "rate": Distribution("uniform", 0.0, 1.0, 1e-9)}
    tracemalloc.start()
    began = time.process_time()
    grid = Grid.of(wide, 3)
    points = [grid.point(position) for position in range(1_000)]
    seconds, (_, most) = time.process_time() - began, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1_000_000
    assert seconds < 1.0
    assert grid.size == (10**9 + 1) ** 2
    assert len({tuple(point.items()) for point in points if point}) == 1_000
    assert all(wide[name].holds(value) for point in points if point for name, value in point.items())


@pytest.mark.parametrize("name", ["grid", "random", "tpe"])
@pytest.mark.parametrize("ends", STEPPED)
def test_every_value_of_a_range_with_a_step_is_tried(
    ends: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its upper end too, where the decimals of the step do not divide it; the study can be rebuilt."""
    monkeypatch.setattr("tests.orchestrator.study.sweeps.objective", lambda params: params["gamma"])
    gamma = ranged("uniform", *STEPPED[ends])
    values = set(gamma.values())
    options = {"n_startup_trials": 5} if name == "tpe" else {}
    run = Run(sweep(name, {"gamma": gamma}, **options))
    tried = {params["gamma"] for params in run.go(40 if name == "tpe" else 15 * min(len(values), 20))}
    assert {max(values)} <= tried <= values
    assert tried == values or name == "tpe" or len(values) > 100
    rebuilt = Study(run.sweep, list(run.trials.values()), run.reports)
    assert [trial.params for trial in _optuna(rebuilt)] == [trial.params for trial in _optuna(run.study())]


@pytest.mark.parametrize("name", ["grid", "tpe"])
@pytest.mark.parametrize("ends", STEPPED)
def test_the_published_value_may_be_the_upper_end_of_a_range_with_a_step(ends: str, name: str) -> None:
    gamma = ranged("uniform", *STEPPED[ends])
    run = Run(sweep(name, {"gamma": gamma}, published={"gamma": float(gamma.ends()[1])}))
    assert run.ask()
    first = run.trials[0].params["gamma"]
    assert first == gamma.ends()[1]
    (stored,) = _optuna(Study(run.sweep, list(run.trials.values()), run.reports))
    assert stored.params["gamma"] == pytest.approx(first, rel=1e-9)


def test_a_value_as_close_to_a_step_as_a_file_may_write_it_is_stored() -> None:
    """Files allow one part in 10^9 of the number of steps, Optuna allows 10^-8 of a step."""
    gamma = ranged("uniform", 0.0, 1.0, 0.001)
    assert gamma.holds(0.9000000005)
    study = Study(sweep("tpe", {"gamma": gamma}, published={"gamma": 0.9000000005}))
    first = study.ask(0)
    assert first is not None
    assert first.params == {"gamma": 0.9000000005}
    assert _optuna(study)[0].params == {"gamma": 0.9}


def test_a_draw_that_misses_a_step_by_rounding_is_corrected(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of the Gaussian process do; the study holds what a rebuilt one will."""
    monkeypatch.setattr(optuna.samplers.RandomSampler, "sample_independent", lambda *_: 0.7)
    study = Study(sweep("random", {"gamma": ranged("uniform", 0.0, 1.0, 0.1)}))
    first = study.ask(0)
    assert first is not None
    assert first.params == _optuna(study)[0].params == {"gamma": 7 * 0.1}
    assert first.params != {"gamma": 0.7}


@pytest.mark.parametrize(("low", "high", "step"), [(0.1, 0.9, 0.1), (0.0, 0.3, 0.1), (-1.0, 1.0, 0.05)])
def test_a_range_whose_decimals_divide_is_that_of_earlier_versions(
    low: float, high: float, step: float
) -> None:
    """Their studies propose the same when they go on, and hold published values as they are written."""
    known = optuna.distributions.FloatDistribution(low, high, step=step)
    assert to_optuna(ranged("uniform", low, high, step)) == known
    study = Study(sweep("tpe", {"gamma": ranged("uniform", 0.1, 0.9, 0.1)}, published={"gamma": 0.7}))
    study.ask(0)
    assert _optuna(study)[0].params == {"gamma": 0.7}


@pytest.mark.parametrize("rebuilt", [False, True])
def test_the_published_trial_of_a_genetic_sampler_is_a_parent(rebuilt: bool) -> None:
    """It belongs to the first generation, as a trial of Optuna's queue does of which something is drawn."""
    costs = Objective("seconds/train", "minimize")
    best = {"gamma": 0.3, "layers": 2, "rate": 1e-3, "theta": 0.1}
    chosen = sweep(
        "nsgaii", population_size=2, published=best, objectives=(Objective(METRIC, "maximize"), costs)
    )
    run = Run(chosen, rebuilt=rebuilt)
    for number in range(5):
        run.ask()
        metrics = {METRIC: 0.9 - number / 10, "seconds/train": 1.0 + number}
        key = f"sweep-{number}"
        run.reports.append(ReportRecord(key, STEPS, f"{key}.1", metrics, 0.0))
        run.study().tell(number, "COMPLETE", metrics[METRIC], STEPS, metrics)
        ended = {"state": "COMPLETE", "value": metrics[METRIC], "best_step": STEPS, "step": STEPS}
        run.trials[number] = replace(run.trials[number], **ended)
    key = "NSGAIISampler:generation"
    assert [trial.system_attrs.get(key) for trial in _optuna(run.study())] == [0, 0, 1, 1, 2]
    parents = run.study()._stored.study_attributes()["NSGAIISampler:parent:2"]
    assert _optuna(run.study())[0]._trial_id in parents
    queue = optuna.create_study(sampler=optuna.samplers.NSGAIISampler(population_size=2, seed=0))
    queue.enqueue_trial({"x": 0.5})
    queue.ask({name: optuna.distributions.FloatDistribution(0.0, 1.0) for name in ("x", "y")})
    assert queue.get_trials()[0].system_attrs[key] == run.trials[0].system_attrs["trial"][key] == 0


def test_tpe_learns() -> None:
    """After 60 trials its proposals are better than random ones."""
    late = {name: Run(sweep(name)).go(60)[40:] for name in ("tpe", "random")}
    mean = {name: sum(map(objective, tried)) / len(tried) for name, tried in late.items()}
    assert mean["tpe"] > mean["random"] + 0.05


def test_a_study_learns_from_earlier_sweeps() -> None:
    """Complete trials of the same space are observed; those of another space are not.

    The first trials repeat some of them. As the values are the same, some are shown after that.
    """
    before = Run(sweep("random", seed=9))
    before.go(40)
    other_space = replace(before.trials[1], params={"rate": 1e-3})
    chosen = sweep("tpe", n_startup_trials=10)
    study = Study(chosen, (), before.reports, [*before.trials.values(), other_space])
    complete = {number: trial for number, trial in before.trials.items() if trial.state == "COMPLETE"}
    for number in range(8):
        proposal = study.ask(number)
        assert proposal is not None
        (same,) = [trial for trial in complete.values() if trial.params == proposal.params]
        study.tell(number, "COMPLETE", same.value, STEPS)
    known = [trial for trial in _optuna(study) if trial.state is optuna.trial.TrialState.COMPLETE]
    assert len(known) == 12 + 8, "16 * (1 - 8 / 32), and its own"
    (similarity,) = study.similarities.values()
    assert similarity.correlation == pytest.approx(1)
    assert len(similarity.values) == len(complete)
    warm, cold = study.ask(8), Study(chosen).ask(0)
    assert warm is not None
    assert cold is not None
    assert warm.params != cold.params
    study.tell(8, "COMPLETE", 0.5, STEPS)
    assert _optuna(study)[-1].value == 0.5


def test_each_trial_has_its_own_seed() -> None:
    """No two trials share a seed, nor do neighbouring sweeps."""
    seeds = {trial_seed(seed, number) for seed in range(30) for number in range(30)}
    assert len(seeds) == 900
    assert all(0 <= seed < 2**32 for seed in seeds)


def test_an_ask_stays_fast() -> None:
    """TPE sees a bounded window: a proposal costs the same at trial 3,000 as at trial 600."""
    chosen = sweep("tpe")
    trials, reports = [], []
    source = Run(sweep("random"))
    source.go(100)
    for number in range(3000):
        like, key = source.trials[number % 100], f"sweep-{number}"
        trials.append(replace(like, number=number, key=key))
        of_trial = [report for report in source.reports if report.trial_key == like.key]
        reports += [replace(report, trial_key=key) for report in of_trial]
    limit = Tpe.history
    assert limit is not None
    times = {}
    for count in (600, 3000):
        study = Study(
            chosen, trials[:count], [report for report in reports if int(report.trial_key[6:]) < count]
        )
        shown = study._window.shown()
        assert shown is not None
        assert limit - BEST_SHOWN <= len(shown) <= limit
        laps = []
        for number in range(count, count + 15):
            began = time.process_time()
            study.ask(number)
            laps.append(time.process_time() - began)
        times[count] = sorted(laps)[len(laps) // 2]
    assert times[3000] < 2.0 * times[600]
