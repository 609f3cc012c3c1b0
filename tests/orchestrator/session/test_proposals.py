"""The trials that a session creates, first of the search, then confirmations; and which is launched next."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.assignment import Assignment
from orchestrator.config import load
from orchestrator.ledger.people.audit import Asked
from orchestrator.ledger.queue.wanted_settings import ask_to_try, wanted_settings
from orchestrator.ledger.sweeps.selection import best_of_sweep
from orchestrator.session.limits import DIVERGED
from orchestrator.session.proposals import pick, several_programs
from orchestrator.session.session import Session
from tests.orchestrator.session.sessions import Sessions, launch, outcome, train

CONFIRM = "confirm: {seeds: 2}\n"


def test_the_best_trial_is_confirmed_with_fresh_seeds(sessions: Sessions) -> None:
    session = sessions.open(sessions.sweep(2, CONFIRM))
    first, second = launch(session), launch(session)
    train(session, first, value=0.6)
    assert session.next_assignment() is None
    train(session, second, value=0.9)
    again = [launch(session), launch(session)]
    best = sessions.ledger.trial(second.trial_key)
    for assignment in again:
        assert assignment.settings.seed not in (first.settings.seed, second.settings.seed)
        assert sessions.ledger.trial(assignment.trial_key).params == best.params
        train(session, assignment, value=0.99)
    assert again[0].settings.seed != again[1].settings.seed
    assert session.finished
    assert session.progress().best_value == 0.9


def test_the_best_feasible_trial_is_confirmed(sessions: Sessions) -> None:
    """A trial that breaks a constraint is not the best one, whatever its value."""
    text = sessions.sweep(2, CONFIRM).source_text.replace("random:", "tpe:")
    file = sessions.folder / "constrained.yaml"
    file.write_text(f"{text}constraints: {{val/loss: {{at_most: 0.5}}}}\n")
    session = sessions.open(load(file, profile=None, gpus=0))
    infeasible, feasible = launch(session), launch(session)
    for assignment, value, loss in ((infeasible, 0.9, 0.6), (feasible, 0.7, 0.4)):
        metrics = {"val/accuracy": value, "val/loss": loss}
        for step in (10, 20, 30):
            session.reported(assignment.attempt_id, outcome(assignment, step, value, metrics=metrics))
        session.completed(assignment.attempt_id)
    best = sessions.ledger.trial(feasible.trial_key)
    assert session.progress().best_key == best.key
    assert sessions.ledger.trial(launch(session).trial_key).params == best.params
    assert sessions.open(session.sweep).progress().best_key == best.key


ADA = Asked("ada", "try", "space")


def test_requested_settings_are_tried_next_and_once(sessions: Sessions) -> None:
    """Also by a driver that follows a killed one; the sampler completes what they leave out."""
    sweep = sessions.sweep(5)
    session = sessions.open(sweep)
    train(session, launch(session))
    whole = {"learning_rate": 2e-3, "recurrent_learning_rate": 3e-3}
    ask_to_try(sessions.ledger, sweep.id, whole, ADA)
    ask_to_try(sessions.ledger, sweep.id, {"learning_rate": 1e-3}, ADA)
    session = sessions.open(sweep)
    train(session, launch(session))
    assert [wanted.params for wanted in wanted_settings(sessions.ledger, sweep.id)] == [
        {"learning_rate": 1e-3}
    ]
    ask_to_try(sessions.ledger, sweep.id, whole, ADA)
    session = sessions.open(sweep)
    for _ in range(3):
        train(session, launch(session))
    assert session.finished
    tried = [trial.params for trial in sessions.ledger.trials(sweep.id)]
    assert tried[1] == whole
    assert tried[2]["learning_rate"] == 1e-3
    assert tried.count(whole) == 1, "a request for what was tried is dropped"
    assert len({tuple(params.items()) for params in tried}) == 5
    assert not wanted_settings(sessions.ledger, sweep.id)


def test_a_request_that_comes_after_the_last_trial_waits_for_a_larger_budget(sessions: Sessions) -> None:
    sweep = sessions.sweep(1)
    session = sessions.open(sweep)
    train(session, launch(session))
    ask_to_try(sessions.ledger, sweep.id, {"learning_rate": 1e-3}, ADA)
    assert session.finished
    assert len(wanted_settings(sessions.ledger, sweep.id)) == 1


def test_the_settings_of_the_file_come_before_the_requested_ones(sessions: Sessions) -> None:
    sweep = sessions.sweep(3, "try: [{learning_rate: 1e-3}]\n")
    session = sessions.open(sweep)
    ask_to_try(sessions.ledger, sweep.id, {"learning_rate": 2e-3}, ADA)
    for _ in range(3):
        train(session, launch(session))
    rates = [trial.params["learning_rate"] for trial in sessions.ledger.trials(sweep.id)]
    assert rates[:2] == [1e-3, 2e-3]


def test_a_space_that_is_smaller_than_the_budget_ends_the_sweep(sessions: Sessions) -> None:
    """Without relations and conditions, or with them."""
    text = sessions.sweep(9).source_text.replace("log_uniform: [1e-4, 1e-2]", "choice: [1e-4, 1e-3, 1e-2]")
    text = text.replace("log_uniform: [1e-5, 1e-2]", "choice: [1e-4, 1e-3]")
    sweep = sessions.of(f"{text}require: [learning_rate > recurrent_learning_rate]\n")
    session = sessions.open(sweep)
    assert (session.demand, session.progress().wanted) == (3, 3)
    for _ in range(3):
        train(session, launch(session))
    assert session.next_assignment() is None
    assert session.finished


def test_the_next_driver_continues_the_confirmations(sessions: Sessions) -> None:
    sweep = sessions.sweep(1, CONFIRM)
    session = sessions.open(sweep)
    train(session, launch(session), value=0.6)
    assignment = launch(session)
    session.reported(assignment.attempt_id, outcome(assignment, 10, 0.5))
    after = sessions.open(sweep)
    again = launch(after)
    assert again.trial_key == assignment.trial_key == f"{sweep.id}-c0"
    assert again.resume is not None
    assert launch(after).trial_key == f"{sweep.id}-c1"


def test_the_best_trial_of_an_extended_search_is_confirmed_too(sessions: Sessions) -> None:
    """Reports leave out the confirmations of the trial that was the best one before."""
    sweep = sessions.sweep(1, CONFIRM)
    session = sessions.open(sweep)
    for value in (0.6, 0.6, 0.6):
        train(session, launch(session), value=value)
    assert session.finished
    more = replace(sweep, budget=sweep.budget.model_copy(update={"trials": 2}))
    extended = sessions.open(more)
    better = launch(extended)
    train(extended, better, value=0.9)
    again = [launch(extended), launch(extended)]
    assert [assignment.trial_key for assignment in again] == [f"{sweep.id}-c2", f"{sweep.id}-c3"]
    assert len({assignment.settings.seed for assignment in again}) == 2
    best = sessions.ledger.trial(better.trial_key)
    for assignment in again:
        assert sessions.ledger.trial(assignment.trial_key).params == best.params
        train(extended, assignment, value=0.9)
    assert extended.finished
    assert extended.progress().wanted == 6
    worse = sessions.open(replace(sweep, budget=sweep.budget.model_copy(update={"trials": 3})))
    train(worse, launch(worse), value=0.1)
    assert worse.finished, "the best trial is confirmed already"


def test_trials_of_one_program_are_launched_together(sessions: Sessions) -> None:
    """A search over widths proposes a few trials ahead, and launches one whose program already runs."""
    sweep = sessions.sweep(8)
    wider = sessions.folder / "wider.yaml"
    wider.write_text(sweep.source_text.replace("search:", "search:\n  d_model: {choice: [8, 16]}"))
    session = sessions.open(load(wider, profile=None, gpus=0), capacity=4)
    widths = [launch(session).settings.model.d_model for _ in range(4)]
    states = [trial.state for trial in sessions.ledger.trials(session.sweep.id)]
    assert states.count("RUNNING") == 4
    assert 4 < len(states) <= 8, "a proposal is committed before it is launched"
    drawn = [trial.params["d_model"] for trial in sessions.ledger.trials(session.sweep.id)]
    assert widths.count(widths[0]) >= min(drawn.count(widths[0]), 3)
    assert widths != drawn[:4]


def test_a_search_of_one_program_proposes_nothing_ahead(sessions: Sessions) -> None:
    session = sessions.open(sessions.sweep(8), capacity=4)
    launch(session)
    assert len(sessions.ledger.trials(session.sweep.id)) == 1


def test_the_same_seed_proposes_the_same_trials_after_a_kill(sessions: Sessions, tmp_path: Path) -> None:
    sweep = sessions.sweep(4)
    undisturbed = sessions.open(sweep, capacity=4)
    wanted = [launch(undisturbed).settings for _ in range(4)]
    (tmp_path / "other").mkdir()
    other = Sessions(tmp_path / "other")
    seen = []
    for _ in range(4):
        session = other.open(other.sweep(4), capacity=4)
        for _ in other.ledger.trials(session.sweep.id):
            launch(session)
        seen.append(launch(session).settings)
    assert seen == wanted


@pytest.mark.parametrize("until", [10, 20])
def test_a_sweep_is_finished_if_every_trial_failed_although_confirmations_are_wanted(
    sessions: Sessions, until: int
) -> None:
    """A failed trial has reported values, but no trial can be confirmed."""
    session = sessions.open(sessions.sweep(1, CONFIRM))
    assignment = launch(session)
    for step in range(10, until + 1, 10):
        session.reported(assignment.attempt_id, outcome(assignment, step, 0.5))
    session.failed(assignment.attempt_id, "bad data")
    assert sessions.ledger.trial(assignment.trial_key).state == "FAILED"
    assert session.next_assignment() is None
    assert session.finished


def test_a_grid_smaller_than_the_budget_ends_the_sweep(sessions: Sessions) -> None:
    """The service asks for resources for the trials that the space has, and estimates the time of those."""
    sweep = sessions.sweep(5)
    text = sweep.source_text.replace("log_uniform: [1e-4, 1e-2]", "choice: [1e-4, 1e-3, 1e-2]")
    text = text.replace("log_uniform: [1e-5, 1e-2]", "choice: [1e-3]").replace(
        "{random: {seed: 3}}", "{grid: {}}"
    )
    file = sessions.folder / "grid.yaml"
    file.write_text(text)
    session = sessions.open(load(file, profile=None, gpus=0))
    assert (session.demand, session.progress().wanted) == (3, 3)
    for left in (2, 1, 0):
        train(session, launch(session))
        assert session.demand == left
    assert session.next_assignment() is None
    assert session.finished


def test_no_confirmation_is_wanted_once_every_trial_has_failed(sessions: Sessions) -> None:
    session = sessions.open(sessions.sweep(1, CONFIRM))
    assert (session.demand, session.progress().wanted) == (3, 3)
    session.failed(launch(session).attempt_id, "non-finite")
    assert (session.demand, session.progress().wanted) == (0, 1)


@pytest.mark.parametrize(
    ("proposed", "running", "index"),
    [
        (["narrow"], [], 0),
        (["narrow", "wide", "wide"], [], 1),
        (["narrow", "wide", "wide"], ["narrow", "wide", "narrow"], 0),
        (["narrow", "wide"], ["deep", "deep", "wide"], 1),
        (["narrow", "wide"], ["deep"], 0),
    ],
)
def test_the_most_common_running_program_is_launched_first(
    proposed: list[str], running: list[str], index: int
) -> None:
    assert pick(proposed, running) == index


def test_a_search_of_initialisation_ranges_is_one_program(sessions: Sessions) -> None:
    """The ends of a range are traced, so proposing ahead would only withhold results from the sampler."""
    ranges = "  gamma_init.max: {choice: [0.9, 0.99]}\n"
    file = sessions.sweep(2).source_text.replace("objective:", f"{ranges}objective:")
    assert ranges in file
    path = sessions.folder / "ranges.yaml"
    path.write_text(file)
    assert not several_programs(load(path, profile=None, gpus=0))


RACE = "confirm: {race: {top: 2, runs: 5}}\n"


def test_a_race_retrains_the_leader_and_its_challenger_in_turn(sessions: Sessions) -> None:
    """The search value does not decide: the better candidate is the one with the better fresh mean."""
    sweep = sessions.sweep(3, RACE)
    session = sessions.open(sweep, capacity=3)
    searched = [launch(session) for _ in range(3)]
    for assignment, value in zip(searched, (0.9, 0.8, 0.3), strict=True):
        train(session, assignment, value=value)
    lucky, better, _ = (sessions.ledger.trial(assignment.trial_key) for assignment in searched)
    retrained = []
    while not session.finished:
        assignment = launch(session)
        params = sessions.ledger.trial(assignment.trial_key).params
        retrained.append(params)
        step = len(retrained) * 0.01
        train(session, assignment, value=(0.6 if params == lucky.params else 0.75) + step)
    assert retrained[:2] == [lucky.params, better.params]
    assert {retrained.count(lucky.params), retrained.count(better.params)} <= {2, 3}
    assert len(retrained) in (4, 5)
    record = sessions.ledger.sweep(sweep.id)
    assert record is not None
    winner = best_of_sweep(sessions.ledger, record)
    assert winner is not None
    assert winner.key == better.key


def test_the_next_driver_continues_a_race_as_it_would_have_gone_on(sessions: Sessions) -> None:
    def values(key: str) -> float:
        return {"0": 0.9, "1": 0.8}.get(key[-1], 0.5) if "-c" not in key else 0.5 + 0.1 * int(key[-1])

    def finish(session: Session, *, killed: bool) -> list[str]:
        seen = []
        while not session.finished:
            assignment = launch(session)
            seen.append(str(sessions.ledger.trial(assignment.trial_key).params))
            train(session, assignment, value=values(assignment.trial_key))
            if killed:
                session = sessions.open(session.sweep)
        return seen

    undisturbed = finish(sessions.open(sessions.sweep(2, RACE)), killed=False)
    (sessions.folder / "other").mkdir()
    sessions = Sessions(sessions.folder / "other")
    assert finish(sessions.open(sessions.sweep(2, RACE)), killed=True) == undisturbed
    assert len(undisturbed) > 4


def test_a_failed_retraining_loses_the_race(sessions: Sessions) -> None:
    sweep = sessions.sweep(2, RACE)
    session = sessions.open(sweep, capacity=3)
    unstable, steady = launch(session), launch(session)
    train(session, unstable, value=0.9)
    train(session, steady, value=0.5)
    while not session.finished:
        assignment = launch(session)
        if (
            sessions.ledger.trial(assignment.trial_key).params
            == sessions.ledger.trial(unstable.trial_key).params
        ):
            session.failed(assignment.attempt_id, DIVERGED, "the loss is NaN")
        else:
            train(session, assignment, value=0.5)
    record = sessions.ledger.sweep(sweep.id)
    assert record is not None
    winner = best_of_sweep(sessions.ledger, record)
    assert winner is not None
    assert winner.key == steady.trial_key


def test_only_feasible_trials_race(sessions: Sessions) -> None:
    """An infeasible trial is worse than any feasible one, whatever its retrainings reach."""
    text = sessions.sweep(2, RACE).source_text.replace("random:", "tpe:")
    file = sessions.folder / "constrained.yaml"
    file.write_text(f"{text}constraints: {{val/loss: {{at_most: 0.5}}}}\n")
    session = sessions.open(load(file, profile=None, gpus=0))
    infeasible, feasible = launch(session), launch(session)

    def finish(assignment: Assignment, value: float, loss: float) -> None:
        metrics = {"val/accuracy": value, "val/loss": loss}
        for step in (10, 20, 30):
            session.reported(assignment.attempt_id, outcome(assignment, step, value, metrics=metrics))
        session.completed(assignment.attempt_id)

    finish(infeasible, 0.9, 0.6)
    finish(feasible, 0.7, 0.4)
    best = sessions.ledger.trial(feasible.trial_key)
    while not session.finished:
        assignment = launch(session)
        assert sessions.ledger.trial(assignment.trial_key).params == best.params
        finish(assignment, 0.6, 0.4)
    record = sessions.ledger.sweep(session.sweep.id)
    assert record is not None
    winner = best_of_sweep(sessions.ledger, record)
    assert winner is not None
    assert winner.key == best.key
