"""The rows that say whether a sweep is finished, and for which trials test is evaluated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from orchestrator.driver.admission import LeasedSweep, Run
from orchestrator.driver.log import Observer
from orchestrator.driver.publication import archives
from orchestrator.driver.shutdown import Shutdown
from orchestrator.driver.sweep_rows import (
    compare_with_mlflow,
    enter,
    exit_code,
    interrupt,
    is_finished,
    is_stopped,
    note_code,
    record_of,
    record_resources,
    resume,
    without_test,
)
from orchestrator.errors import Exit
from orchestrator.ledger.queue.queue_settings import ask_to_stop
from orchestrator.ledger.sweeps.lease import Lease
from orchestrator.ledger.sweeps.records import RESOURCES, AttemptRecord, EvaluationRecord, Event, SweepRecord
from orchestrator.machines.hardware import HOST_DEVICES, Hardware
from orchestrator.session.session import Session
from orchestrator.tracking import events
from tests.orchestrator.session.sessions import Sessions, launch, outcome, train
from trainables.data.task import TaskData


@pytest.fixture
def sessions(tmp_path: Path) -> Sessions:
    return Sessions(tmp_path)


def leased(sessions: Sessions, session: Session) -> LeasedSweep:
    run = Run(sessions.paths, sessions.folder, Hardware(cpus=1, gpus=0))
    lease = Lease(sessions.ledger, session.sweep.id)
    return LeasedSweep(session.sweep, run, sessions.ledger, lease, Observer(), Shutdown())


def searched(sessions: Sessions, values: list[float], **options: str) -> Session:
    """Return a session whose trials have ended with these values, in order."""
    session = sessions.open(sessions.sweep(len(values), **options), capacity=len(values))
    for value in values:
        assignment = launch(session)
        metrics = {"val/accuracy": value, "val/loss": value}
        for step in (10, 20, 30):
            session.reported(assignment.attempt_id, outcome(assignment, step, value, metrics=metrics))
        session.completed(assignment.attempt_id)
    return session


def evaluated(sessions: Sessions, session: Session) -> list[int]:
    """Return the numbers of the trials for which test is still to be evaluated."""
    return [trial.number for trial, _ in without_test(leased(sessions, session))]


@pytest.mark.parametrize(
    ("options", "best"),
    [({}, 1), ({"objective": "minimize: val/loss"}, 0)],
)
def test_test_is_evaluated_for_the_best_trial_of_lowest_number(
    sessions: Sessions, options: dict[str, str], best: int
) -> None:
    session = searched(sessions, [0.5, 0.9, 0.9, 0.5], **options)
    assert evaluated(sessions, session) == [best]


def test_test_is_evaluated_for_the_best_trial_that_still_has_its_checkpoint(sessions: Sessions) -> None:
    """The report names the same trial: both choose one whose weights can be loaded."""
    session = searched(sessions, [0.5, 0.9, 0.7])
    best = sessions.ledger.trial(f"{session.sweep.id}-1")
    for row in sessions.ledger.trial_checkpoints(best.key):
        session.writer.drop_checkpoint(best.key, Path(row.path))
    assert evaluated(sessions, session) == [2]


def test_a_failed_or_pruned_trial_is_not_evaluated(sessions: Sessions) -> None:
    session = sessions.open(sessions.sweep(3), capacity=3)
    failed, pruned, complete = (launch(session) for _ in range(3))
    session.reported(failed.attempt_id, outcome(failed, 10, 0.99))
    session.failed(failed.attempt_id, "bad data")
    train(session, pruned, value=0.95, until=20)
    train(session, complete, value=0.5)
    assert evaluated(sessions, session) == [2]


def test_each_confirmation_is_evaluated_and_no_trial_twice(sessions: Sessions) -> None:
    session = searched(sessions, [0.5, 0.9], extra="confirm: {seeds: 1}\n")
    train(session, launch(session), value=0.8)
    rows = without_test(leased(sessions, session))
    assert [(trial.role, trial.number) for trial, _ in rows] == [("search", 1), ("confirmation", 0)]
    best, row = rows[0]
    assert row.step == best.best_step
    session.writer.add_evaluation(EvaluationRecord(best.key, row.step, "test", {"test/loss": 1.0}, 0.0))
    assert [trial.role for trial, _ in without_test(leased(sessions, session))] == ["confirmation"]


def test_a_sweep_is_finished_once_test_is_evaluated_and_its_state_is_written(sessions: Sessions) -> None:
    session = searched(sessions, [0.5])
    assert not is_finished(leased(sessions, session))
    ((best, row),) = without_test(leased(sessions, session))
    session.writer.add_evaluation(EvaluationRecord(best.key, row.step, "test", {"test/loss": 1.0}, 0.0))
    assert not is_finished(leased(sessions, session))
    session.writer.set_sweep_state("COMPLETE")
    assert is_finished(leased(sessions, session))
    assert exit_code(leased(sessions, session)) is Exit.COMPLETE


def test_the_exit_code_shows_that_a_trial_failed(sessions: Sessions) -> None:
    session = sessions.open(sessions.sweep(2), capacity=2)
    failed, complete = launch(session), launch(session)
    session.failed(failed.attempt_id, "bad data")
    train(session, complete)
    assert exit_code(leased(sessions, session)) is Exit.SOME_FAILED


def test_a_trial_that_diverged_has_not_failed(sessions: Sessions) -> None:
    """NaN is an outcome of the hyperparameters, with or without a value before it."""
    session = sessions.open(sessions.sweep(3), capacity=3)
    first, second, complete = (launch(session) for _ in range(3))
    session.reported(second.attempt_id, outcome(second, 10, 0.2))
    for diverged in (first, second):
        session.reported(diverged.attempt_id, outcome(diverged, 20, float("nan")))
        session.completed(diverged.attempt_id)
    train(session, complete)
    states = [trial.state for trial in sessions.ledger.trials(session.sweep.id)]
    assert states == ["DIVERGED", "DIVERGED", "COMPLETE"]
    assert exit_code(leased(sessions, session)) is Exit.COMPLETE


def test_a_stopped_sweep_stays_stopped_until_a_person_starts_it(sessions: Sessions) -> None:
    """Slurm and Kubernetes restart a driver that has exited because of `stop`."""
    session = sessions.open(sessions.sweep(1))
    ask_to_stop(sessions.ledger, session.sweep.id)
    with Lease(sessions.ledger, session.sweep.id) as lease:
        by_a_person = replace(leased(sessions, session), lease=lease)
        restarted = replace(by_a_person, run=replace(by_a_person.run, unless_stopped=True))
        assert is_stopped(restarted)
        assert is_stopped(restarted)
        assert not is_stopped(by_a_person)
        assert not is_stopped(restarted)


def concluded(sessions: Sessions) -> LeasedSweep:
    """Return a sweep of two trials that ended after its only trial had failed, without a confirmation."""
    session = sessions.open(sessions.sweep(2, "confirm: {seeds: 1}\n"))
    session.failed(launch(session).attempt_id, "bad data")
    session.writer.set_sweep_state("FAILED", "its hours were spent")
    return leased(sessions, session)


def test_a_sweep_that_was_concluded_with_fewer_trials_than_its_budget_is_finished(sessions: Sessions) -> None:
    """A second run would conclude it a second time, with a second point in MLflow."""
    before = concluded(sessions)
    with before.lease:
        enter(before, cast("TaskData", None))
        assert is_finished(before)


def test_a_concluded_sweep_goes_on_with_another_budget_and_not_with_other_resources(
    sessions: Sessions,
) -> None:
    before = concluded(sessions)
    budget, resources = before.sweep.budget, before.sweep.resources
    with before.lease:
        other = replace(before.sweep, resources=resources.model_copy(update={"cpu": 2.0}))
        enter(replace(before, sweep=other), cast("TaskData", None))
        assert is_finished(before)
        more = replace(before.sweep, budget=budget.model_copy(update={"trials": 3}))
        enter(replace(before, sweep=more), cast("TaskData", None))
        assert not is_finished(before)


def test_a_concluded_sweep_goes_on_with_a_failed_trial(sessions: Sessions) -> None:
    before = concluded(sessions)
    again = replace(before.run, reopen=(f"{before.sweep.id}-0",))
    with before.lease:
        enter(replace(before, run=again), cast("TaskData", None))
        assert not is_finished(before)
    assert sessions.ledger.trial(f"{before.sweep.id}-0").state == "WAITING"


def test_what_an_attempt_takes_is_recorded_once_for_each_change(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its hours count with what it held, although a later driver gives trials more or less."""
    monkeypatch.setenv(HOST_DEVICES, "1")
    session = sessions.open(sessions.sweep(1))
    held = leased(sessions, session)
    with held.lease:
        for gpu in (1.0, 1.0, 0.125):
            resources = session.sweep.resources.model_copy(update={"cpu": 2.0, "gpu": gpu})
            record_resources(held, replace(session.sweep, resources=resources))
    known = record_of(held).facts[RESOURCES]
    assert [(entry["cpu"], entry["gpu"]) for entry in known] == [(2.0, 1.0), (2.0, 0.125)]
    assert [entry["device"] for entry in known] == ["GPU", "GPU"]
    assert known[0]["at"] < known[1]["at"]
    first = AttemptRecord("s-0.1", "s-0", 1, "ENDED", None, None, known[0]["at"])
    second = replace(first, started_at=known[1]["at"])
    assert (record_of(held).held_by(first), record_of(held).held_by(second)) == ((2.0, 1.0), (2.0, 0.125))


class Lines(Observer):
    """Keeps what a driver says."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


def kept_first(record: SweepRecord) -> str:
    return f"code-{record.facts['code'][0]['digest'][:12]}.zip"


def test_code_that_has_changed_since_the_sweep_began_is_said_and_recorded(sessions: Sessions) -> None:
    text = (
        "trainable: {function: train.py:train}\nsearch: {rate: {uniform: [0, 1]}}\n"
        "training: {steps: 2, interval: 1}\nobjective: {minimize: val/loss}\nbudget: {trials: 1}\n"
    )
    script, lines = sessions.folder / "train.py", Lines()
    script.write_text("def train(trial): ...")
    sweep = sessions.of(text)
    run = Run(sessions.paths, sessions.folder, Hardware(cpus=1, gpus=0))
    with Lease(sessions.ledger, sweep.id) as lease:
        held = LeasedSweep(sweep, run, sessions.ledger, lease, lines, Shutdown())
        for code in ("def train(trial): ...", "def train(trial): ...", "def train(trial): pass"):
            script.write_text(code)
            enter(held, None)
        for _ in range(2):
            note_code(held)
        script.write_text("def train(trial): return 1  # edited while the sweep runs")
        for _ in range(2):
            note_code(held)
        lease.writer.set_sweep_state("COMPLETE")
        script.write_text("def train(trial): return 2  # edited after the end: no trial runs it")
        enter(held, None)
    assert lines.lines == 2 * [
        f"The code in {sessions.folder} has changed since the sweep began: "
        "its trials do not all run the same code."
    ]
    record = sessions.ledger.sweep(sweep.id)
    assert record is not None
    digests = {entry["digest"] for entry in record.facts["code"]}
    assert len(digests) == len(record.facts["code"]) == 3
    kept = archives(sessions.paths, sweep.id)
    assert {file.name for file in kept} == {f"code-{digest[:12]}.zip" for digest in digests}
    delivered = [
        entry.event.payload
        for entry in sessions.ledger.pending(sweep.id, 100).events
        if entry.event.kind == "artifact"
    ]
    assert [one["path"] for one in delivered] == [str(sessions.paths.code(sweep.id) / kept_first(record))]


def test_a_sweep_knows_all_hardware_that_its_trials_ran_on(sessions: Sessions) -> None:
    """A driver that finds the sweep finished runs nothing."""
    sweep = sessions.sweep(1)
    run = Run(sessions.paths, sessions.folder, Hardware(cpus=1, gpus=0))
    with Lease(sessions.ledger, sweep.id) as lease:
        held = LeasedSweep(sweep, run, sessions.ledger, lease, Lines(), Shutdown())
        for cpus, goes_on in ((1, True), (1, True), (8, False), (4, True)):
            own = replace(held, run=replace(run, hardware=Hardware(cpus=cpus, gpus=0)))
            enter(own, cast("TaskData", None))
            if goes_on:
                resume(own)
    record = sessions.ledger.sweep(sweep.id)
    assert record is not None
    assert [phrase.partition(",")[0] for phrase in record.facts["hardware"]] == ["1 core", "4 cores"]


def test_a_sweep_that_was_interrupted_before_its_first_trial_runs_again(
    sessions: Sessions, caplog: pytest.LogCaptureFixture
) -> None:
    """In the ledger and in MLflow."""
    held = leased(sessions, sessions.open(sessions.sweep(1)))
    with held.lease, caplog.at_level("INFO", "orchestrator"):
        resume(held)
        assert sessions.ledger.backlog(held.sweep.id) == 0, "the run of a new sweep is open"
        interrupt(held, "stopped by SIGTERM")
        resume(held)
    record = sessions.ledger.sweep(held.sweep.id)
    assert record is not None
    assert (record.state, record.reason) == ("RUNNING", None)
    assert [row.event.kind for row in sessions.ledger.pending(held.sweep.id, 9).events][-1] == "start"
    assert "Resuming" not in caplog.text, "no trial goes on"


def test_a_sweep_that_is_concluded_while_it_is_interrupted_stays_finished(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that ends a driver at a second signal runs beside the main thread, which may conclude."""
    held = leased(sessions, sessions.open(sessions.sweep(1)))
    ended = events.sweep_ended

    def conclude(*values: Any, **options: Any) -> Event:
        held.writer.set_sweep_state("COMPLETE")
        return ended(*values, **options)

    with held.lease:
        resume(held)
        waiting = sessions.ledger.backlog(held.sweep.id)
        monkeypatch.setattr(events, "sweep_ended", conclude)
        interrupt(held, "stopped by SIGINT")
    record = sessions.ledger.sweep(held.sweep.id)
    assert record is not None
    assert (record.state, record.reason) == ("COMPLETE", None)
    assert record.finished_at is not None
    assert sessions.ledger.backlog(held.sweep.id) == waiting, "MLflow hears of no interruption"


def test_what_mlflow_has_lost_is_delivered_again(sessions: Sessions, messages: list[str]) -> None:
    """Here its database is gone; what waits for it anyway is not put back."""
    session = searched(sessions, [0.5])
    sweep_id, ledger = session.sweep.id, sessions.ledger
    waiting = ledger.pending(sweep_id, 1000)
    assert waiting.reports
    with Lease(ledger, sweep_id) as lease:
        own = replace(leased(sessions, session), lease=lease, observer=Heard(messages))
        compare_with_mlflow(own)
        assert (ledger.pending(sweep_id, 1000), messages) == (waiting, [])
        lease.writer.record_mlflow_runs({trial.key: trial.key for trial in ledger.trials(sweep_id)})
        lease.writer.delivered(waiting)
        assert ledger.backlog(sweep_id) == 0
        compare_with_mlflow(own)
    assert ledger.pending(sweep_id, 1000) == waiting
    assert messages[0].startswith(f"Sending {sweep_id} to MLflow again: ")


class Heard(Observer):
    def __init__(self, messages: list[str]) -> None:
        self._messages = messages

    def say(self, line: str) -> None:
        self._messages.append(line)


@pytest.fixture
def messages() -> list[str]:
    return []
