"""Extensions: the best trials of a finished sweep continue from their checkpoints to more steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.config.sections import LongerSection
from orchestrator.config.sweep_config import SweepConfig
from orchestrator.driver import sweep_rows
from orchestrator.driver.admission import LeasedSweep, Observer, Run
from orchestrator.driver.shutdown import Shutdown
from orchestrator.errors import BadInput
from orchestrator.ledger.sweeps.lease import Lease
from orchestrator.ledger.sweeps.records import Extension, ReportRecord
from orchestrator.machines.hardware import Hardware
from orchestrator.report.answer import findings
from orchestrator.report.history import read
from orchestrator.report.summary import summarise
from orchestrator.schedule import schedulers
from orchestrator.session.session import Session
from tests.orchestrator.session.sessions import Sessions, failure, launch, outcome, step_resumed, train
from tests.orchestrator.session.test_trainables import FUNCTION, curves
from tests.orchestrator.session.test_trainables import run as run_really

CONFIRM = "confirm: {seeds: 1}\n"


def longer(sweep: SweepConfig, steps: int = 60, top: int = 1) -> SweepConfig:
    """Return a sweep as `--extend steps=... --top ...` gives it to its driver."""
    section = LongerSection(steps=steps, top=top)
    return replace(sweep, budget=sweep.budget.model_copy(update={"longer": section}))


def entered(sessions: Sessions, sweep: SweepConfig) -> list[str]:
    """Enter a sweep as its next driver does; return the lines that it prints."""
    messages: list[str] = []
    observer = Observer()
    observer.say = messages.append  # type: ignore[method-assign]
    run = Run(sessions.paths, sessions.folder, Hardware(1, 0))
    with Shutdown() as shutdown, Lease(sessions.ledger, sweep.id) as lease:
        leased = LeasedSweep(sweep, run, sessions.ledger, lease, observer, shutdown)
        sweep_rows.enter(leased, None)
        sessions.writer(sweep).set_sweep_state("RUNNING")
    return messages


def searched(sessions: Sessions, values: Sequence[float], extra: str = "") -> SweepConfig:
    """Run a sweep of trials with these values to its end."""
    sweep = sessions.sweep(len(values), extra)
    session = sessions.open(sweep)
    for value in values:
        train(session, launch(session), value=value)
    while not session.finished:
        train(session, launch(session), value=0.4)
    sessions.writer(sweep).set_sweep_state("COMPLETE")
    return sweep


def continue_to(session: Session, steps: int, value: float) -> int:
    """Train the next attempt to the end of its trial; return the number of the trial."""
    assignment = launch(session)
    for step in range(step_resumed(assignment) + 10, steps + 1, 10):
        session.reported(assignment.attempt_id, outcome(assignment, step, value))
    session.completed(assignment.attempt_id)
    return int(assignment.trial_key.rpartition("-")[2])


def test_the_best_trials_continue_and_the_others_stay(sessions: Sessions) -> None:
    sweep = longer(searched(sessions, [0.5, 0.7, 0.6]), top=2)
    before = sessions.ledger.trials(sweep.id)
    messages = entered(sessions, sweep)
    assert "Extending 2 trials to 60 steps: 1, 2." in messages
    session = sessions.open(sweep)
    assignment = launch(session)
    assert step_resumed(assignment) == 30
    assert assignment.settings.training.steps == 60, "the schedule is planned for all steps"
    for step in (40, 50, 60):
        session.reported(assignment.attempt_id, outcome(assignment, step, 0.8))
    session.completed(assignment.attempt_id)
    assert continue_to(session, 60, 0.5) == 2
    assert session.finished
    trials = sessions.ledger.trials(sweep.id)
    assert trials[0] == before[0]
    assert [(each.state, each.step, each.total_steps) for each in trials[1:]] == [("COMPLETE", 60, 60)] * 2
    assert [(each.value, each.best_step) for each in trials[1:]] == [(0.8, 40), (0.6, 10)]
    assert trials[1].extensions == (Extension(30, 0.7, 10),)
    assert trials[1].as_searched() == replace(
        before[1], system_attrs=trials[1].system_attrs, attempts=2, **_times(trials[1])
    )


def _times(trial: object) -> dict[str, float]:
    return {name: getattr(trial, name) for name in ("finished_at", "reported_at")}


def test_a_killed_driver_chooses_no_other_trials(sessions: Sessions) -> None:
    """The trials are chosen once, and continue from the last checkpoint beyond the search."""
    sweep = longer(searched(sessions, [0.5, 0.7, 0.6]))
    entered(sessions, sweep)
    session = sessions.open(sweep)
    assignment = launch(session)
    session.reported(assignment.attempt_id, outcome(assignment, 40, 0.1))
    entered(sessions, sweep)
    again = launch(sessions.open(sweep))
    assert again.trial_key == assignment.trial_key
    assert (step_resumed(again), again.settings.training.steps) == (40, 60)
    unfinished = [each.number for each in sessions.ledger.trials(sweep.id) if each.state != "COMPLETE"]
    assert unfinished == [1]


def test_a_driver_killed_before_the_new_budget_was_recorded_is_followed(sessions: Sessions) -> None:
    sweep = searched(sessions, [0.5, 0.7])
    best = sessions.ledger.trials(sweep.id)[1]
    sessions.writer(sweep).reopen("killed", extended=[best.key], steps=60)
    entered(sessions, longer(sweep))
    assert [each.total_steps for each in sessions.ledger.trials(sweep.id)] == [30, 60]


def test_a_lost_checkpoint_gives_the_schedule_of_the_search_again(sessions: Sessions) -> None:
    sweep = longer(searched(sessions, [0.5]))
    entered(sessions, sweep)
    session = sessions.open(sweep)
    damaged = launch(session)
    session.reported(damaged.attempt_id, failure(damaged, 30, "damaged checkpoint"))
    session.completed(damaged.attempt_id)
    sessions.clock.now += 1000
    again = launch(session)
    assert (step_resumed(again), again.settings.training.steps) == (20, 30)
    session.reported(again.attempt_id, outcome(again, 30, 0.5))
    session.completed(again.attempt_id)
    last = launch(session)
    assert (step_resumed(last), last.settings.training.steps) == (30, 60)


def test_a_failed_extension_keeps_the_result_of_the_search(sessions: Sessions) -> None:
    sweep = longer(searched(sessions, [0.5, 0.7]))
    entered(sessions, sweep)
    session = sessions.open(sweep)
    while not session.finished:
        assignment = launch(session)
        session.reported(assignment.attempt_id, failure(assignment, 40, "non-finite"))
        session.completed(assignment.attempt_id)
        sessions.clock.now += 1000
    trial = sessions.ledger.trials(sweep.id)[1]
    assert (trial.state, trial.value, trial.best_step, trial.step) == ("COMPLETE", 0.7, 10, 30)
    assert trial.cause == "extension failed: diverged at step 40: it broke"


def test_a_spent_budget_keeps_the_result_of_the_search(sessions: Sessions) -> None:
    sweep = longer(searched(sessions, [0.5, 0.7]), top=2)
    entered(sessions, sweep)
    session = sessions.open(sweep)
    session.stop("the budget of 1 hours is spent", "COMPLETE")
    session.settle_extended()
    trials = sessions.ledger.trials(sweep.id)
    assert [(each.state, each.value) for each in trials] == [("COMPLETE", 0.5), ("COMPLETE", 0.7)]


def test_the_study_sees_the_trials_as_the_search_left_them(sessions: Sessions) -> None:
    sweep = longer(searched(sessions, [0.5, 0.7]))
    entered(sessions, sweep)
    session = sessions.open(sweep)
    running = session._proposals._study.trials()[1]
    assert (running.state.name, running.value) == ("COMPLETE", 0.7)
    continue_to(session, 60, 0.9)
    ended = sessions.open(sweep)._proposals._study.trials()[1]
    assert (ended.value, ended.intermediate_values) == (0.7, {30: 0.7})


def test_the_confirmation_of_an_extended_trial_has_both_schedules(sessions: Sessions) -> None:
    sweep = longer(searched(sessions, [0.5, 0.7], CONFIRM))
    entered(sessions, sweep)
    session = sessions.open(sweep)
    continue_to(session, 60, 0.9)
    first = launch(session)
    assert first.trial_key == f"{sweep.id}-c1", "the one with 30 steps confirms another training"
    assert first.settings.training.steps == 30
    for step in (10, 20, 30):
        session.reported(first.attempt_id, outcome(first, step, 0.6))
    session.completed(first.attempt_id)
    assert sessions.ledger.trial(first.trial_key).state == "WAITING"
    second = launch(session)
    assert (step_resumed(second), second.settings.training.steps) == (30, 60)
    for step in (40, 50, 60):
        session.reported(second.attempt_id, outcome(second, step, 0.6))
    session.completed(second.attempt_id)
    assert session.finished
    assert sessions.ledger.trial(first.trial_key).state == "COMPLETE"


@pytest.mark.parametrize(
    "scheduler",
    ["asha: {}", "median: {trials: 1}", "pbt: {mutations: [learning_rate], quantile: 0.5, period: 0.3}"],
)
def test_no_scheduler_compares_an_extended_trial(scheduler: str, sessions: Sessions) -> None:
    """Neither a resumed driver nor a report stops it; without the steps of the search they would."""
    text = sessions.sweep(3).source_text.replace("none: {}", scheduler)
    sweep = sessions.of(text)
    reports = [
        ReportRecord(f"{sweep.id}-{number}", step, "", {"val/accuracy": value}, float(step + number))
        for number, value in enumerate([0.9, 0.8, 0.1])
        for step in (10, 20, 30, 40, 50)
        if step < 50 or number < 2
    ]
    key = f"{sweep.id}-2"
    built = schedulers.build(sweep, reports, {key: 30})
    assert key not in built.stopped
    result = {"step": 50, "metric/val/accuracy": 0.1, "queued": False, "training": False}

    class Attempt:
        trial_id = f"{key}.2"

    assert built.on_trial_result(None, Attempt(), result) == "CONTINUE"  # type: ignore[arg-type]


def test_pbt_copies_no_extended_trial(sessions: Sessions) -> None:
    text = sessions.sweep(2).source_text.replace("none: {}", "pbt: {mutations: [learning_rate]}")
    sweep = sessions.of(text)
    session = sessions.open(sweep)
    donor, other = launch(session), launch(session)
    session.reported(donor.attempt_id, outcome(donor, 10, 0.9))
    session.reported(other.attempt_id, outcome(other, 10, 0.1))
    assert session.exploit(other.trial_key, 10, [donor.trial_key])
    session._exploits.pop_donor(other.trial_key)
    train(session, donor, value=0.9)
    sessions.writer(sweep).reopen("longer", extended=[donor.trial_key], steps=60)
    assert not session.exploit(other.trial_key, 10, [donor.trial_key])


@pytest.mark.parametrize(
    ("steps", "values", "got"),
    [
        (30, [0.5], "30, they had 30"),
        (20, [0.5], "20, they had 30"),
        (60, [], "a sweep without a complete trial"),
    ],
)
def test_fewer_steps_are_refused(steps: int, values: list[float], got: str, sessions: Sessions) -> None:
    sweep = searched(sessions, values) if values else sessions.sweep(1)
    if not values:
        sessions.open(sweep)
        sessions.writer(sweep).set_sweep_state("FAILED")
    with pytest.raises(BadInput) as refusal:
        entered(sessions, longer(sweep, steps))
    assert refusal.value.got == got


def test_an_unfinished_sweep_is_refused(sessions: Sessions) -> None:
    sweep = sessions.sweep(2)
    session = sessions.open(sweep)
    train(session, launch(session))
    with pytest.raises(BadInput, match="must wait until the sweep has ended"):
        entered(sessions, longer(sweep))


@pytest.mark.parametrize("saves", [True, False])
def test_a_function_continues_only_from_a_checkpoint(saves: bool, sessions: Sessions) -> None:
    folder = sessions.folder / "code"
    folder.mkdir()
    code = FUNCTION if saves else FUNCTION.replace(", checkpoint=trial.folder", "")
    (folder / "train.py").write_text(code)
    sweep = sessions.of(
        """
trainable: {function: train.py:train, folder: code}
search: {learning_rate: {log_uniform: [1e-3, 1e-2]}}
training: {steps: 6, interval: 3}
objective: {minimize: val/loss}
sampler: {random: {seed: 2}}
scheduler: none
budget: {trials: 1}
"""
    )
    run_really(sessions.open(sweep))
    sessions.writer(sweep).set_sweep_state("COMPLETE")
    if not saves:
        with pytest.raises(BadInput, match="a function that reports no checkpoints"):
            entered(sessions, longer(sweep, 12))
        assert sessions.ledger.sweep(sweep.id).state == "COMPLETE"  # type: ignore[union-attr]
        return
    entered(sessions, longer(sweep, 12))
    run_really(sessions.open(longer(sweep, 12)))
    assert [step for _, step in curves(sessions, sweep.id)] == [3, 6, 9, 12]
    log = next(Path(sessions.folder).rglob("steps.log"), None)
    assert log is None or len(set(log.read_text().split())) == len(log.read_text().split())


def test_the_report_names_the_trials_that_were_chosen_before(sessions: Sessions) -> None:
    sweep = longer(searched(sessions, [0.5, 0.7]))
    entered(sessions, sweep)
    continue_to(sessions.open(sweep), 60, 0.9)
    (line,) = [
        line for line in findings(summarise(read(sessions.ledger, sweep.id))) if line.startswith("Chosen by")
    ]
    assert "trial 1 from step 30 (val/accuracy 0.7000) to 60." in line
