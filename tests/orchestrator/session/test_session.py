"""The session's decisions, on a real ledger and a real study; outcomes are handed in as a worker would."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from orchestrator.assignment import Assignment, Outcome, SavedCheckpoint
from orchestrator.ledger import wishes
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.records import SweepRecord
from orchestrator.session.session import HOPELESS_AFTER, SLOW_START, Session
from orchestrator.spec import load
from orchestrator.spec.model import Sweep
from orchestrator.storage.paths import Paths, checkpoint_name
from orchestrator.study.study import Study

SPACE = """
task: retrieval
model: {layer: rotrnn, depth: 1, d_model: 8, d_state: 8, heads: 2}
training: {steps: 30, interval: 10, batch_size: 4}
search:
  learning_rate: {log_uniform: [1e-4, 1e-2]}
  recurrent_learning_rate: {log_uniform: [1e-5, 1e-2]}
objective: {maximize: val/accuracy}
sampler: {random: {seed: 3}}
scheduler: {none: {}}
budget: {trials: BUDGET}
resources: {cpu: 1}
"""


class Clock:
    """A clock that a test moves."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


class Desk:
    """A driver's desk: opens sessions on one ledger, as one driver after the other would."""

    def __init__(self, folder: Path) -> None:
        self.paths = Paths(folder / "mlruns")
        self.paths.create()
        self.ledger = Ledger.open(self.paths.ledger_url)
        self.folder, self.clock = folder, Clock()

    def sweep(self, trials: int, extra: str = "") -> Sweep:
        file = self.folder / "space.yaml"
        file.write_text(SPACE.replace("BUDGET", str(trials)) + extra)
        return load(file, profile=None, gpus=0)

    def open(self, sweep: Sweep, capacity: int = 2) -> Session:
        record = SweepRecord(
            sweep.id,
            sweep.name,
            None,
            sweep.task,
            sweep.document(),
            sweep.digest,
            "RUNNING",
            None,
            "",
            "",
            {},
            0.0,
        )
        self.ledger.create_sweep(record)
        study = Study(sweep, self.ledger.trials(sweep.id, role="search"), self.ledger.reports(sweep.id))
        session = Session(sweep, self.ledger, study, self.paths, self.folder, self.clock)
        session.capacity = lambda: capacity
        return session


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def outcome(told: Assignment, step: int, value: float, **changes: object) -> Outcome:
    """What a worker reports, with a checkpoint folder that is really there."""
    folder = Path(told.checkpoints) / checkpoint_name(step)
    folder.mkdir(parents=True, exist_ok=True)
    fields = {
        "step": step,
        "done": step >= told.settings.training.steps,
        "metrics": {"val/accuracy": value, "val/loss": 1.0},
        "checkpoint": SavedCheckpoint(str(folder), step, "d" * 64, 1),
    }
    return Outcome(**{**fields, **changes})


def launch(session: Session) -> Assignment:
    """Launch an attempt, and let a worker take it."""
    told = session.next_assignment()
    assert told is not None
    session.started(told.attempt_id)
    return told


def train(session: Session, told: Assignment, value: float = 0.5, until: int = 30) -> None:
    for step in range(10, until + 1, 10):
        session.reported(told.attempt_id, outcome(told, step, value))
    session.completed(told.attempt_id)


def failure(step: int, cause: str) -> Outcome:
    return Outcome(step, done=True, metrics={}, failure=cause, message="it broke")


def test_launches_what_fits_and_no_more(desk: Desk) -> None:
    session = desk.open(desk.sweep(5), capacity=2)
    first, second = launch(session), launch(session)
    assert session.next_assignment() is None
    train(session, first)
    third = launch(session)
    assert [told.number for told in (first, second, third)] == [0, 1, 2]


def test_a_trial_is_in_the_ledger_before_it_is_launched(desk: Desk) -> None:
    sweep = desk.sweep(1)
    told = launch(desk.open(sweep))
    trial = desk.ledger.trial(told.trial_key)
    assert trial.state == "RUNNING"
    assert sweep.settings(trial.params, trial.seed) == told.settings


def test_complete_trials_keep_their_best_value_and_step(desk: Desk) -> None:
    session = desk.open(desk.sweep(1))
    told = launch(session)
    for step, value in ((10, 0.5), (20, 0.7), (30, 0.6)):
        session.reported(told.attempt_id, outcome(told, step, value))
    session.completed(told.attempt_id)
    trial = desk.ledger.trial(told.trial_key)
    assert (trial.state, trial.value, trial.best_step) == ("COMPLETE", 0.7, 20)
    assert session.finished


def test_stopped_by_the_rule_is_pruned(desk: Desk) -> None:
    session = desk.open(desk.sweep(1))
    told = launch(session)
    train(session, told, until=20)
    assert desk.ledger.trial(told.trial_key).state == "PRUNED"


def test_checkpoints_superseded_are_deleted_and_the_best_is_kept(desk: Desk) -> None:
    session = desk.open(desk.sweep(1))
    told = launch(session)
    for step, value in ((10, 0.9), (20, 0.5), (30, 0.6)):
        session.reported(told.attempt_id, outcome(told, step, value))
    kept = {Path(row.path).name: row.kind for row in desk.ledger.checkpoints(told.trial_key)}
    there = {folder.name for folder in Path(told.checkpoints).iterdir()}
    assert checkpoint_name(10) in there
    assert checkpoint_name(30) in there
    assert there == set(kept)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_no_number_fails_the_trial(desk: Desk, value: float) -> None:
    session = desk.open(desk.sweep(1))
    told = launch(session)
    session.reported(told.attempt_id, outcome(told, 10, value))
    session.completed(told.attempt_id)
    trial = desk.ledger.trial(told.trial_key)
    assert trial.state == "FAILED"
    assert "non-finite" in str(trial.cause)
    assert session.finished


def test_a_lost_worker_goes_on_from_its_checkpoint_after_a_wait(desk: Desk) -> None:
    session = desk.open(desk.sweep(1))
    told = launch(session)
    session.reported(told.attempt_id, outcome(told, 10, 0.5))
    session.failed(told.attempt_id, "worker lost", "the process died")
    assert session.next_assignment() is None
    desk.clock.now += 2.0
    again = launch(session)
    assert again.trial_key == told.trial_key
    assert again.attempt_id != told.attempt_id
    assert again.resume == str(Path(told.checkpoints) / checkpoint_name(10))


def test_a_dead_worker_leaves_no_half_written_checkpoint(desk: Desk) -> None:
    session = desk.open(desk.sweep(1))
    told = launch(session)
    session.reported(told.attempt_id, outcome(told, 10, 0.5))
    folder = Path(told.checkpoints)
    (folder / ".step-000000020-0123").mkdir()
    (folder / checkpoint_name(20)).mkdir()
    session.failed(told.attempt_id, "worker lost")
    assert [path.name for path in folder.iterdir()] == [checkpoint_name(10)]


def test_a_trial_that_waits_for_its_retry_keeps_its_place(desk: Desk) -> None:
    session = desk.open(desk.sweep(9), capacity=2)
    first, _ = launch(session), launch(session)
    session.failed(first.attempt_id, "worker lost")
    assert session.next_assignment() is None
    desk.clock.now += 2.0
    assert launch(session).trial_key == first.trial_key


def test_retries_are_bounded_across_drivers(desk: Desk) -> None:
    sweep = desk.sweep(1)
    for _ in range(2):
        session = desk.open(sweep)
        desk.clock.now += 100.0
        told = launch(session)
        session.reported(told.attempt_id, failure(0, "error"))
        session.completed(told.attempt_id)
    trial = desk.ledger.trial(told.trial_key)
    assert (trial.state, trial.attempts, trial.cause) == ("FAILED", 2, "error: it broke")


def test_an_interrupted_trial_is_resumed_by_the_next_driver(desk: Desk) -> None:
    sweep = desk.sweep(1)
    session = desk.open(sweep)
    told = launch(session)
    session.stop("stopped by SIGTERM", "INTERRUPTED")
    left = outcome(told, 7, 0.0, done=True, metrics={}, interrupted=True)
    session.reported(told.attempt_id, left)
    session.completed(told.attempt_id)
    assert session.finished
    assert desk.ledger.trial(told.trial_key).state == "PREEMPTED"
    again = launch(desk.open(sweep))
    assert again.resume == str(Path(told.checkpoints) / checkpoint_name(7))


def test_a_killed_driver_loses_nothing_that_was_committed(desk: Desk) -> None:
    sweep = desk.sweep(3)
    session = desk.open(sweep)
    first, second = launch(session), launch(session)
    train(session, first, value=0.8)
    session.reported(second.attempt_id, outcome(second, 20, 0.4))
    after = desk.open(sweep)
    again = launch(after)
    assert (again.trial_key, again.number) == (second.trial_key, second.number)
    assert again.resume == str(Path(second.checkpoints) / checkpoint_name(20))
    assert launch(after).number == 2
    assert after.progress().best_value == 0.8


@pytest.mark.parametrize("died", ["driver", "worker"])
def test_a_trial_whose_last_report_is_in_has_nothing_left_to_train(desk: Desk, died: str) -> None:
    """It was killed between its last report and the commit of its end."""
    sweep = desk.sweep(2)
    session = desk.open(sweep, capacity=1)
    told = launch(session)
    for step in (10, 20, 30):
        session.reported(told.attempt_id, outcome(told, step, 0.9 - step / 100))
    if died == "worker":
        session.failed(told.attempt_id, "worker lost")
        desk.clock.now += 100
    else:
        desk.ledger.lose_attempts(sweep.id)
        session = desk.open(sweep, capacity=1)
    assert launch(session).number == 1
    trial = desk.ledger.trial(told.trial_key)
    assert (trial.state, trial.value, trial.best_step) == ("COMPLETE", 0.8, 10)


def test_a_trial_that_was_stopped_is_not_trained_on(desk: Desk) -> None:
    """Its driver was killed between the scheduler's decision and the commit of it."""
    sweep = desk.sweep(3)
    session = desk.open(sweep)
    for _ in range(2):
        told = launch(session)
        session.reported(told.attempt_id, outcome(told, 10, 0.5))
    desk.ledger.lose_attempts(sweep.id)
    after = desk.open(sweep)
    after.settle_stopped({f"{sweep.id}-1"})
    assert [desk.ledger.trial(f"{sweep.id}-{number}").state for number in (0, 1)] == ["PREEMPTED", "PRUNED"]
    assert [launch(after).number for _ in range(2)] == [0, 2]


def test_a_damaged_checkpoint_gives_way_to_the_one_behind_it(desk: Desk) -> None:
    session = desk.open(desk.sweep(1))
    told = launch(session)
    for step in (10, 20):
        session.reported(told.attempt_id, outcome(told, step, 0.5 + step / 1000))
    session.failed(told.attempt_id, "worker lost")
    desk.clock.now += 100
    second = launch(session)
    assert second.resume == str(Path(told.checkpoints) / checkpoint_name(20))
    session.reported(second.attempt_id, failure(0, "damaged checkpoint"))
    session.completed(second.attempt_id)
    desk.clock.now += 100
    third = launch(session)
    assert third.resume == str(Path(told.checkpoints) / checkpoint_name(10))


def test_a_hung_attempt_is_noticed_once(desk: Desk) -> None:
    session = desk.open(desk.sweep(1))
    told = session.next_assignment()
    assert told is not None
    desk.clock.now += 61
    assert session.silent(60) == []  # no worker has taken it yet
    session.started(told.attempt_id)
    desk.clock.now += 61
    assert session.silent(60) == [told.attempt_id]
    session.condemn(told.attempt_id, "hung")
    assert session.silent(60) == []
    session.failed(told.attempt_id, "worker lost")
    assert desk.ledger.attempts(told.trial_key)[0].cause == "hung"


def test_a_sweep_in_which_everything_fails_stops_early(desk: Desk) -> None:
    session = desk.open(desk.sweep(100), capacity=1)
    for _ in range(HOPELESS_AFTER):
        told = launch(session)
        session.reported(told.attempt_id, failure(0, "bad data"))
        session.completed(told.attempt_id)
        session.look_around()
    assert session.stopped is not None
    assert session.stopped.state == "COMPLETE"
    assert session.next_assignment() is None


def test_a_wish_from_another_terminal_stops(desk: Desk) -> None:
    sweep = desk.sweep(2)
    session = desk.open(sweep)
    session.look_around()
    assert session.stopped is None
    wishes.ask_to_stop(desk.ledger, sweep.id)
    session.look_around()
    assert session.stopped is not None
    assert session.stopped.state == "INTERRUPTED"
    assert desk.paths.stop_wish(sweep.id).exists(), "workers look at a file"


def test_the_same_seed_asks_the_same_points_after_a_kill(desk: Desk, tmp_path: Path) -> None:
    sweep = desk.sweep(4)
    undisturbed = desk.open(sweep, capacity=4)
    wanted = [launch(undisturbed).settings for _ in range(4)]
    (tmp_path / "other").mkdir()
    other = Desk(tmp_path / "other")
    seen = []
    for _ in range(4):
        session = other.open(other.sweep(4), capacity=4)
        while session._waiting:
            launch(session)
        seen.append(launch(session).settings)
    assert seen == wanted


def test_a_full_disk_pauses_the_sweep_and_charges_nobody(desk: Desk) -> None:
    session = desk.open(desk.sweep(3))
    told = launch(session)
    session.reported(told.attempt_id, failure(0, "disk full"))
    session.completed(told.attempt_id)
    assert session.stopped is not None
    assert session.stopped.state == "PAUSED"
    assert desk.ledger.trial(told.trial_key).state == "PREEMPTED"


def test_without_any_node_it_stops_after_a_while(desk: Desk) -> None:
    session = desk.open(desk.sweep(1), capacity=0)
    session.look_around()
    assert session.stopped is None
    desk.clock.now += session.patience + 1
    session.look_around()
    assert session.stopped is not None
    assert session.stopped.state == "INTERRUPTED"


def test_waiting_for_a_node_is_a_state_with_a_reason(desk: Desk) -> None:
    """It ends when a node comes; what is said changes with what there is."""
    sweep = desk.sweep(1)
    session = desk.open(sweep, capacity=0)
    session.lack = lambda: "no node with 1 GPU; 3 nodes, 0 free"
    session.look_around()
    waiting = desk.ledger.sweep(sweep.id)
    assert waiting is not None
    assert (waiting.state, waiting.reason) == ("WAITING", "no node with 1 GPU; 3 nodes, 0 free")
    assert session.progress().waiting == waiting.reason
    session.capacity = lambda: 1
    session.look_around()
    running = desk.ledger.sweep(sweep.id)
    assert running is not None
    assert (running.state, running.reason) == ("RUNNING", None)
    train(session, launch(session))
    assert session.progress().waiting is None


def test_a_sweep_whose_attempts_find_no_place_waits_and_gives_up(desk: Desk) -> None:
    """Nodes that others use are no nodes; the trial is not charged for them."""
    sweep = desk.sweep(1)
    session = desk.open(sweep, capacity=1)
    told = session.next_assignment()
    assert told is not None
    desk.clock.now += SLOW_START + 1
    session.look_around()
    assert session.progress().waiting is not None
    desk.clock.now += session.patience + 1
    session.look_around()
    assert session.stopped is not None
    assert session.stopped.state == "INTERRUPTED"
    assert session.finished
    assert desk.ledger.trial(told.trial_key).state == "PREEMPTED"
    session.reported(told.attempt_id, outcome(told, 10, 0.5))  # a worker that came too late
    assert desk.ledger.reports(told.trial_key) == []


def test_as_many_attempts_are_wanted_as_are_left(desk: Desk) -> None:
    session = desk.open(desk.sweep(5), capacity=2)
    assert session.demand == 5
    train(session, launch(session))
    assert session.demand == 4
    session.stop("enough", "INTERRUPTED")
    assert session.demand == 0


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


def test_a_sign_of_life_is_no_report(desk: Desk) -> None:
    """A trial that waits for a slot is not silent, and has nothing to settle."""
    session = desk.open(desk.sweep(1))
    told = launch(session)
    desk.clock.now += 500
    session.reported(told.attempt_id, Outcome(0, done=False, metrics={}, waiting=True))
    desk.clock.now += 500
    assert session.silent(600.0) == []
    assert desk.ledger.reports(told.trial_key) == []
    train(session, told)
    assert desk.ledger.trial(told.trial_key).state == "COMPLETE"


POPULATION = SPACE.replace("sampler: {random: {seed: 3}}\n", "").replace(
    "scheduler: {none: {}}", "scheduler: {pbt: {mutations: [learning_rate], period: 0.34, quantile: 0.5}}"
)


def open_population(desk: Desk) -> Session:
    """Open a session of two trials that exploit each other."""
    file = desk.folder / "population.yaml"
    file.write_text(POPULATION.replace("BUDGET", "2"))
    return desk.open(load(file, profile=None, gpus=0))


def test_an_exploit_is_a_recorded_segment_from_a_pinned_checkpoint(desk: Desk) -> None:
    """The worse trial goes on from the better one's state, which its donor can no longer delete."""
    session = open_population(desk)
    good, bad = launch(session), launch(session)
    session.reported(good.attempt_id, outcome(good, 10, 0.9))
    donated = Path(good.checkpoints) / checkpoint_name(10)
    (donated / "arrays").write_text("the donor's")
    assert session.exploit(bad.trial_key, 10, [good.trial_key])
    session.reported(bad.attempt_id, outcome(bad, 10, 0.1))
    session.completed(bad.attempt_id)
    again = launch(session)
    train(session, good)
    assert (again.trial_key, again.attempt_id) == (bad.trial_key, f"{bad.trial_key}.2")
    assert again.resume is not None
    assert (Path(again.resume) / "arrays").read_text() == "the donor's"
    before, after = good.settings.training.learning_rate, again.settings.training.learning_rate
    assert after != before
    trial = desk.ledger.trial(bad.trial_key)
    (segment,) = trial.system_attrs["segments"]
    assert (segment["donor"], segment["step"]) == (good.trial_key, 10)
    assert segment["params"] == trial.params
    assert desk.ledger.attempts(bad.trial_key)[0].cause == f"goes on from {good.trial_key}"
    session.reported(again.attempt_id, outcome(again, 20, 0.95))
    session.reported(again.attempt_id, outcome(again, 30, 0.96))
    assert Path(again.resume).exists(), "the donor's checkpoint is pinned"
    session.completed(again.attempt_id)
    assert desk.ledger.trial(bad.trial_key).state == "COMPLETE"
    assert session.finished


def test_no_trial_goes_back_or_on_from_a_finished_one(desk: Desk) -> None:
    session = open_population(desk)
    first, second = launch(session), launch(session)
    session.reported(first.attempt_id, outcome(first, 10, 0.9))
    assert not session.exploit(second.trial_key, 20, [first.trial_key])
    for step in (20, 30):
        session.reported(first.attempt_id, outcome(first, step, 0.9))
    session.completed(first.attempt_id)
    assert not session.exploit(second.trial_key, 20, [first.trial_key])
