"""Population based training: which trial copies which, and with which hyperparameters it continues."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.config import load
from orchestrator.config.space import Distribution
from orchestrator.session.population import Mutation, Population
from orchestrator.session.session import Session
from orchestrator.study.study import Study
from tests.orchestrator.session.sessions import SPACE as FILE
from tests.orchestrator.session.sessions import Sessions, launch, outcome, train
from tests.orchestrator.study.sweeps import FURTHER, Run, sweep
from trainables import checkpoint

RATE = Distribution("log_uniform", 1e-4, 1e-2)
SPACE = {
    "learning_rate": RATE,
    "dropout": Distribution("choice", choices=(0.0, 0.1, 0.2)),
    "weight_decay": Distribution("uniform", 0.0, 0.1, step=0.05),
    "gamma_init.min": Distribution("uniform", 0.1, 0.9),
}
PARAMS = {"learning_rate": 1e-3, "dropout": 0.1, "weight_decay": 0.05, "gamma_init.min": 0.5}


def scores(population: Population, step: int, values: list[float]) -> list[list[str]]:
    return [population.donors(f"t{index}", step, value) for index, value in enumerate(values)]


def test_mutations_of_further_distributions_stay_in_the_space() -> None:
    mutation = Mutation(tuple(FURTHER), 0.25, (0.8, 1.2))
    rng = random.Random(0)
    params = {name: distribution.draw(rng) for name, distribution in FURTHER.items()}
    for _ in range(200):
        params = mutation.applied(params, FURTHER, rng)
        for name, value in params.items():
            assert FURTHER[name].holds(value), (name, value)
            assert type(value) is type(FURTHER[name].typed(value)), (name, value)


def test_the_worst_quarter_copies_the_best_quarter() -> None:
    donors = scores(Population(10, 0.25, 1), 10, [0.9, 0.8, 0.7, 0.6, 0.85, 0.95, 0.5, 0.1])
    assert donors[-1] == ["t5", "t0"]
    assert donors[4] == []


def test_less_is_better_if_the_objective_is_minimised() -> None:
    assert scores(Population(10, 0.5, -1), 10, [0.1, 0.9])[1] == ["t0"]


def test_a_trial_is_compared_once_a_period_and_with_those_that_have_reached_it() -> None:
    population = Population(10, 0.5, 1)
    assert population.donors("a", 10, 0.9) == []
    assert population.donors("b", 5, 0.1) == []
    assert population.donors("b", 10, 0.1) == ["a"]
    assert population.donors("b", 15, 0.1) == []
    assert population.donors("b", 20, 0.1) == []


def test_no_trial_copies_itself() -> None:
    population = Population(10, 0.25, 1)
    assert population.donors("a", 10, 0.5) == []
    for index in range(20):
        assert f"t{index}" not in population.donors(f"t{index}", 20, index / 20)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("resample", [0.0, 0.5, 1.0])
def test_mutations_stay_in_the_space_and_change_nothing_else(seed: int, resample: float) -> None:
    mutation = Mutation(("learning_rate", "dropout", "weight_decay"), resample, (0.8, 1.2))
    changed = mutation.applied(PARAMS, SPACE, random.Random(seed))
    assert changed["gamma_init.min"] == 0.5
    assert all(SPACE[name].holds(value) for name, value in changed.items())


def test_a_step_multiplies_and_stops_at_the_ends_of_the_range() -> None:
    step = Mutation(("learning_rate",), 0.0, (0.8, 1.2))
    seen = {step.applied(PARAMS, SPACE, random.Random(seed))["learning_rate"] for seed in range(20)}
    assert sorted(seen) == pytest.approx([0.8e-3, 1.2e-3])
    top = {**PARAMS, "learning_rate": 1e-2}
    assert max(step.applied(top, SPACE, random.Random(seed))["learning_rate"] for seed in range(20)) == 1e-2


WHOLE = {
    "batch": Distribution("int", 2, 64),
    "depth": Distribution("int", 2, 10, step=4),
    "width": Distribution("log_int", 2, 512),
}


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("resample", [0.0, 1.0])
def test_whole_numbers_stay_whole(seed: int, resample: float) -> None:
    """A script gets them as they are, and the study of the sweep can be rebuilt with them."""
    mutation = Mutation(tuple(WHOLE), resample, (0.8, 1.2))
    changed = mutation.applied({"batch": 8, "depth": 6, "width": 33}, WHOLE, random.Random(seed))
    assert all(isinstance(value, int) and WHOLE[name].holds(value) for name, value in changed.items())
    run = Run(sweep("random", WHOLE))
    run.ask()
    study = Study(run.sweep, [replace(run.trials[0], params=changed)])
    assert [trial.params for trial in study.trials()] == [changed]


def test_a_fresh_draw_of_a_logarithmic_range_is_logarithmic() -> None:
    """Half of the draws are below the geometric mean, also of whole numbers."""
    space = {"width": Distribution("log_int", 1, 1024), "rate": Distribution("log_uniform", 1.0, 1024.0)}
    mutation, rng = Mutation(tuple(space), 1.0, (0.8, 1.2)), random.Random(0)
    draws = [mutation.applied({"width": 32, "rate": 32.0}, space, rng) for _ in range(1000)]
    for name in space:
        assert 0.4 < sum(draw[name] < 32 for draw in draws) / len(draws) < 0.6
    assert {1, 2, 3} <= {draw["width"] for draw in draws}


def test_fresh_draws_of_whole_numbers_are_as_frequent_at_the_ends() -> None:
    mutation, rng = Mutation(("depth",), 1.0, (0.8, 1.2)), random.Random(0)
    draws = [mutation.applied({"depth": 6}, WHOLE, rng)["depth"] for _ in range(1500)]
    assert all(400 < draws.count(value) < 600 for value in (2, 6, 10))


@pytest.mark.parametrize(
    ("distribution", "value", "expected"),
    [
        (Distribution("int", 2, 64), 2, {2, 3}),
        (Distribution("int", 2, 64), 3, {2, 4}),
        (Distribution("int", 2, 64), 8, {6, 10}),
        (Distribution("int", 2, 64), 64, {51, 64}),
        (Distribution("int", 0, 64, step=16), 32, {16, 48}),
        (Distribution("int", -4, 4), -2, {-3, -1}),
        (Distribution("int", 0, 4), 0, {0, 1}),
        (Distribution("log_int", 2, 512), 2, {2, 3}),
        (Distribution("uniform", 0.0, 1.0, step=0.25), 0.5, {0.25, 0.75}),
        (Distribution("int", 5, 5), 5, {5}),
        (Distribution("uniform", 0.0, 1.0), 0.5, {0.4, 0.6}),
    ],
)
def test_a_step_that_rounds_to_the_same_value_moves_to_the_next_one(
    distribution: Distribution, value: float, expected: set[float]
) -> None:
    """Otherwise 2 * 1.2 = 2.4 would be 2 for ever."""
    step = Mutation(("x",), 0.0, (0.8, 1.2))
    seen = {step.applied({"x": value}, {"x": distribution}, random.Random(seed))["x"] for seed in range(20)}
    assert seen == expected


# ------------------------------------------------------------------ exploits in a session

POPULATION = FILE.replace("sampler: {random: {seed: 3}}\n", "").replace(
    "scheduler: {none: {}}", "scheduler: {pbt: {mutations: [learning_rate], period: 0.34, quantile: 0.5}}"
)


def open_population(sessions: Sessions, extra: str = "") -> Session:
    """Open a session of two trials, either of which may copy the other."""
    file = sessions.folder / "population.yaml"
    file.write_text(POPULATION.replace("BUDGET", "2") + extra)
    return sessions.open(load(file, profile=None, gpus=0))


def test_an_exploit_is_a_recorded_segment_from_a_pinned_checkpoint(sessions: Sessions) -> None:
    """The worse trial resumes the better one's state, which the donor can no longer delete."""
    session = open_population(sessions)
    good, bad = launch(session), launch(session)
    session.reported(good.attempt_id, outcome(good, 10, 0.9))
    assert session.exploit(bad.trial_key, 10, [good.trial_key])
    session.reported(bad.attempt_id, outcome(bad, 10, 0.1))
    session.completed(bad.attempt_id)
    again = launch(session)
    train(session, good)
    assert (again.trial_key, again.attempt_id) == (bad.trial_key, f"{bad.trial_key}.2")
    assert again.resume is not None
    _, facts = checkpoint.load(Path(again.resume.path), again.resume.digest)
    assert (facts["trial"], facts["copied_from"]) == (bad.trial_key, good.trial_key)
    before, after = good.settings.training.learning_rate, again.settings.training.learning_rate
    assert after != before
    trial = sessions.ledger.trial(bad.trial_key)
    (segment,) = trial.system_attrs["segments"]
    assert (segment["donor"], segment["step"]) == (good.trial_key, 10)
    assert segment["params"] == trial.params
    assert sessions.ledger.trial_attempts(bad.trial_key)[0].cause == f"goes on from {good.trial_key}"
    session.reported(again.attempt_id, outcome(again, 20, 0.95))
    session.reported(again.attempt_id, outcome(again, 30, 0.96))
    assert Path(again.resume.path).exists(), "the copied checkpoint is pinned"
    session.completed(again.attempt_id)
    assert sessions.ledger.trial(bad.trial_key).state == "COMPLETE"
    assert session.finished


def test_a_mutation_satisfies_the_relations(sessions: Sessions) -> None:
    """One of the two factors, and most fresh draws, would leave the two rates too far apart."""
    relations = [f"learning_rate {bound} * recurrent_learning_rate" for bound in ("> 0.85", "< 1.15")]
    session = open_population(sessions, f"require: {json.dumps(relations)}\n")
    good, bad = launch(session), launch(session)
    session.reported(good.attempt_id, outcome(good, 10, 0.9))
    assert session.exploit(bad.trial_key, 10, [good.trial_key])
    session.reported(bad.attempt_id, outcome(bad, 10, 0.1))
    session.completed(bad.attempt_id)
    before, after = (
        (trial.settings.training.learning_rate, trial.settings.training.recurrent_learning_rate)
        for trial in (good, launch(session))
    )
    assert after != before
    for rate, recurrent in (before, after):
        assert 0.85 * recurrent < rate < 1.15 * recurrent


def test_a_trial_that_has_copied_another_is_confirmed_as_it_is_now(sessions: Sessions) -> None:
    """With its present hyperparameters, not those that it began with, and no more often than asked."""
    session = open_population(sessions, "confirm: {seeds: 1}\n")
    good, bad = launch(session), launch(session)
    session.reported(good.attempt_id, outcome(good, 10, 0.9))
    assert session.exploit(bad.trial_key, 10, [good.trial_key])
    session.reported(bad.attempt_id, outcome(bad, 10, 0.1))
    session.completed(bad.attempt_id)
    again = launch(session)
    train(session, good, value=0.5)
    for step in (20, 30):
        session.reported(again.attempt_id, outcome(again, step, 0.95))
    session.completed(again.attempt_id)
    confirmation = launch(session)
    params = sessions.ledger.trial(bad.trial_key).params
    assert sessions.ledger.trial(confirmation.trial_key).params == params
    train(session, confirmation)
    assert session.finished


@pytest.mark.parametrize("has_store", [False, True], ids=["local folder", "shared store"])
def test_an_exploit_deletes_the_checkpoint_of_the_same_step(sessions: Sessions, has_store: bool) -> None:
    """The trial has reported the donor's step itself, and the copy takes the place of its checkpoint."""
    store = sessions.folder / "store"
    sessions.paths = replace(sessions.paths, store=store.as_uri() if has_store else None)
    session = open_population(sessions)
    good, bad = launch(session), launch(session)
    for step, value in ((10, 0.9), (20, 0.95)):
        session.reported(good.attempt_id, outcome(good, step, value))
    session.reported(bad.attempt_id, outcome(bad, 10, 0.2))
    session.reported(bad.attempt_id, outcome(bad, 20, 0.1))
    (own,) = [row for row in sessions.ledger.trial_checkpoints(bad.trial_key) if row.step == 20]
    if has_store:
        saved = sessions.paths.trial_checkpoints(session.sweep.id, good.trial_key)
        shutil.copytree(saved, store / sessions.ledger.id / session.sweep.id / good.trial_key)
    assert session.exploit(bad.trial_key, 20, [good.trial_key])
    session.completed(bad.attempt_id)
    session.check_limits()
    rows = {Path(row.path) for row in sessions.ledger.trial_checkpoints(bad.trial_key)}
    left = set(sessions.paths.trial_checkpoints(session.sweep.id, bad.trial_key).iterdir())
    assert Path(own.path) not in rows | left
    trial = store / sessions.ledger.id / session.sweep.id / bad.trial_key
    noted = [(trial / Path(own.path).name).as_uri()] if has_store else []
    assert sessions.ledger.deletions(session.sweep.id, 9) == noted


def test_no_trial_copies_an_earlier_step_or_a_finished_trial(sessions: Sessions) -> None:
    session = open_population(sessions)
    first, second = launch(session), launch(session)
    session.reported(first.attempt_id, outcome(first, 10, 0.9))
    assert not session.exploit(second.trial_key, 20, [first.trial_key])
    for step in (20, 30):
        session.reported(first.attempt_id, outcome(first, step, 0.9))
    session.completed(first.attempt_id)
    assert not session.exploit(second.trial_key, 20, [first.trial_key])


def compared(
    population: Population, reports: list[tuple[str, int, float]]
) -> dict[tuple[str, int], list[str]]:
    """Return the donors of the trials that are to copy another one, by trial and step."""
    donors = {(key, step): population.donors(key, step, value) for key, step, value in reports}
    return {place: found for place, found in donors.items() if found}


def test_reports_that_miss_the_period_are_compared_at_the_first_one_after_it() -> None:
    """Four trials that report at odd steps, with a period of four: compared at steps 5 and 9."""
    values = {"a": 4.0, "b": 3.0, "c": 2.0, "d": 1.0}
    reports = [(key, step, value) for step in (1, 3, 5, 7, 9) for key, value in values.items()]
    assert compared(Population(4, 0.25, 1), reports) == {
        ("b", 5): ["a"],  # of two trials, one copies
        ("c", 5): ["a"],
        ("d", 5): ["a"],
        ("b", 9): ["a"],
        ("c", 9): ["a"],
        ("d", 9): ["a"],
    }


def test_trials_that_report_at_other_steps_are_compared_within_their_period() -> None:
    """One reports every 3 steps, the other every 5: at 6 against 5, and at 9 against 10."""
    reports = [("a", 3, 0.9), ("b", 5, 0.5), ("a", 6, 0.4), ("a", 9, 0.3), ("b", 10, 0.6), ("a", 12, 0.2)]
    assert compared(Population(4, 0.5, 1), reports) == {("a", 6): ["b"]}


def test_a_report_that_passes_several_periods_counts_at_the_last_of_them() -> None:
    reports = [("a", 4, 0.5), ("b", 12, 0.1), ("b", 13, 0.0), ("b", 15, 0.0), ("a", 12, 0.9), ("b", 16, 0.0)]
    assert compared(Population(4, 0.5, 1), reports) == {}
    assert compared(Population(4, 0.5, 1), [("a", 13, 0.9), *reports[1:2]]) == {("b", 12): ["a"]}


def test_a_step_that_is_reported_again_is_not_compared_again() -> None:
    population = Population(4, 0.5, 1)
    assert compared(population, [("a", 4, 0.9), ("b", 5, 0.1)]) == {("b", 5): ["a"]}
    assert compared(population, [("b", 4, 0.1), ("b", 5, 0.1)]) == {}


@pytest.mark.parametrize("state", ["FAILED", "PRUNED", "COMPLETE"])
def test_no_trial_copies_one_that_has_ended_before_its_last_step(sessions: Sessions, state: str) -> None:
    session = open_population(sessions)
    first, second = launch(session), launch(session)
    for trial, value in ((first, 0.9), (second, 0.1)):
        session.reported(trial.attempt_id, outcome(trial, 10, value))
    assert session.exploit(second.trial_key, 10, [first.trial_key])
    session._attempts.settle(first.attempt_id, state, "why")  # type: ignore[arg-type]
    assert not session.exploit(second.trial_key, 10, [first.trial_key])


def test_a_population_whose_members_all_fail_ends(sessions: Sessions) -> None:
    """The planned donor has gone; the trial is not pruned for it, and the sweep comes to its end."""
    session = open_population(sessions)
    first, second = launch(session), launch(session)
    session.reported(first.attempt_id, outcome(first, 10, 0.9))
    assert session.exploit(second.trial_key, 10, [first.trial_key])
    for trial in (first, second):
        session.failed(trial.attempt_id, "non-finite", "val/accuracy is nan")
    assert [trial.state for trial in sessions.ledger.trials(session.sweep.id)] == ["DIVERGED", "DIVERGED"]
    assert session.finished


def test_a_donor_without_its_checkpoint_is_not_copied(sessions: Sessions) -> None:
    """It was damaged, and dropped after the exploit was planned: the trial goes on from its own state."""
    session = open_population(sessions)
    good, bad = launch(session), launch(session)
    for trial, value in ((good, 0.9), (bad, 0.1)):
        session.reported(trial.attempt_id, outcome(trial, 10, value))
    assert session.exploit(bad.trial_key, 10, [good.trial_key])
    (row, *_) = sessions.ledger.trial_checkpoints(good.trial_key)
    session.writer.drop_checkpoint(good.trial_key, Path(row.path))
    session.completed(bad.attempt_id)
    again = launch(session)
    assert (again.trial_key, again.resume and again.resume.step) == (bad.trial_key, 10)
    assert "segments" not in sessions.ledger.trial(bad.trial_key).system_attrs
