"""What a session enters: trials of the search, then confirmations."""

from __future__ import annotations

from pathlib import Path

from orchestrator.config import load
from tests.orchestrator.session.desk import Desk, launch, outcome, train

CONFIRM = "confirm: {seeds: 2}\n"


def test_the_chosen_hyperparameters_are_confirmed_with_fresh_seeds(desk: Desk) -> None:
    session = desk.open(desk.sweep(2, CONFIRM))
    first, second = launch(session), launch(session)
    train(session, first, value=0.6)
    assert session.next_assignment() is None
    train(session, second, value=0.9)
    again = [launch(session), launch(session)]
    chosen = desk.ledger.trial(second.trial_key)
    for told in again:
        assert told.settings.seed not in (first.settings.seed, second.settings.seed)
        assert desk.ledger.trial(told.trial_key).params == chosen.params
        train(session, told, value=0.99)
    assert again[0].settings.seed != again[1].settings.seed
    assert session.finished
    assert session.progress().best_value == 0.9


def test_confirmations_go_on_with_the_next_driver(desk: Desk) -> None:
    sweep = desk.sweep(1, CONFIRM)
    session = desk.open(sweep)
    train(session, launch(session), value=0.6)
    told = launch(session)
    session.reported(told.attempt_id, outcome(told, 10, 0.5))
    after = desk.open(sweep)
    again = launch(after)
    assert again.trial_key == told.trial_key == f"{sweep.id}-c0"
    assert again.resume is not None
    assert launch(after).trial_key == f"{sweep.id}-c1"


def test_trials_of_one_program_are_launched_together(desk: Desk) -> None:
    """A search over widths asks a little ahead, and launches what shares a program with what runs."""
    sweep = desk.sweep(8)
    wider = desk.folder / "wider.yaml"
    wider.write_text(sweep.source_text.replace("search:", "search:\n  d_model: {choice: [8, 16]}"))
    session = desk.open(load(wider, profile=None, gpus=0), capacity=4)
    widths = [launch(session).settings.model.d_model for _ in range(4)]
    states = [trial.state for trial in desk.ledger.trials(session.sweep.id)]
    assert states.count("RUNNING") == 4
    assert 4 < len(states) <= 8, "committed before it is launched"
    drawn = [trial.params["d_model"] for trial in desk.ledger.trials(session.sweep.id)]
    assert widths.count(widths[0]) >= min(drawn.count(widths[0]), 3)
    assert widths != drawn[:4]


def test_a_search_of_one_program_asks_for_nothing_ahead(desk: Desk) -> None:
    session = desk.open(desk.sweep(8), capacity=4)
    launch(session)
    assert len(desk.ledger.trials(session.sweep.id)) == 1


def test_the_same_seed_asks_the_same_points_after_a_kill(desk: Desk, tmp_path: Path) -> None:
    sweep = desk.sweep(4)
    undisturbed = desk.open(sweep, capacity=4)
    wanted = [launch(undisturbed).settings for _ in range(4)]
    (tmp_path / "other").mkdir()
    other = Desk(tmp_path / "other")
    seen = []
    for _ in range(4):
        session = other.open(other.sweep(4), capacity=4)
        for _ in other.ledger.trials(session.sweep.id):
            launch(session)
        seen.append(launch(session).settings)
    assert seen == wanted
