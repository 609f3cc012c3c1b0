"""Outages while test is evaluated: the sweep pauses, charges no trial and continues by itself."""

from __future__ import annotations

import errno
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.driver import execution
from orchestrator.driver.admission import LeasedSweep, Run
from orchestrator.driver.log import Observer
from orchestrator.driver.shutdown import Shutdown
from orchestrator.errors import NoStore
from orchestrator.ledger.queue.queue_settings import ask_to_stop
from orchestrator.ledger.sweeps.lease import Lease
from orchestrator.ledger.sweeps.records import STEP_WORK, SweepRecord, pack_scores
from orchestrator.machines.hardware import Hardware
from orchestrator.schedule.cluster import EvaluationRequest
from orchestrator.schedule.engines import Engines
from orchestrator.session import outages
from orchestrator.storage import store
from tests.orchestrator.session.sessions import Sessions, launch, train
from trainables import checkpoint
from trainables.cost import Cost
from trainables.data.task import Signature
from trainables.trial import TrialSettings

SIGNATURE = Signature("class", classes=2, vocabulary=5, features=1, length=8)


class Lines(Observer):
    """Keeps the lines that a driver prints, and calls the test at each of them."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.called: Callable[[], object] = lambda: None

    def say(self, line: str) -> None:
        """Keep a line."""
        self.lines.append(line)
        self.called()


@dataclass
class Searched:
    """A sweep whose search is over, on a machine that has none of its checkpoints.

    Attributes:
        leased: The leased sweep.
        lines: Lines that its driver prints.
        url: Url of the folder of the best trial in the store.
        folder: Folder of the store.
    """

    leased: LeasedSweep
    lines: Lines
    url: str
    folder: Path

    def lose_store(self) -> None:
        """Put a file where the folder of the store was, as if a disk had been detached."""
        self.folder.rename(self.folder.with_suffix(".away"))
        self.folder.write_text("")

    def return_store(self) -> None:
        """Undo `lose_store`."""
        self.folder.unlink()
        self.folder.with_suffix(".away").rename(self.folder)

    @property
    def record(self) -> SweepRecord:
        """Row of the sweep."""
        record = self.leased.ledger.sweep(self.leased.sweep.id)
        assert record is not None
        return record


@pytest.fixture
def searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Searched]:
    """Return a sweep of one complete trial, which evaluates in this process instead of a worker."""
    monkeypatch.setattr(outages, "PROBE_SECONDS", 0.05)
    monkeypatch.setattr(execution, "_POLL_SECONDS", 0.02)
    monkeypatch.setattr(execution.cluster, "evaluate", _evaluate)
    sessions = Sessions(tmp_path)
    sessions.paths = replace(sessions.paths, store=f"file://{tmp_path}/store")
    sweep = sessions.sweep(1)
    session = sessions.open(sweep)
    assignment = launch(session)
    train(session, assignment)
    key, lines = assignment.trial_key, Lines()
    url = sessions.paths.stored(sessions.ledger.id, sweep.id, key)
    assert url is not None
    for row in sessions.ledger.trial_checkpoints(key):
        store.keep(Path(row.path), url)
    shutil.rmtree(sessions.paths.trial_checkpoints(sweep.id, key))
    run = Run(sessions.paths, sessions.folder, Hardware(cpus=1, gpus=0))
    with Shutdown() as shutdown, Lease(sessions.ledger, sweep.id) as lease:
        leased = LeasedSweep(sweep, run, sessions.ledger, lease, lines, shutdown)
        yield Searched(leased, lines, url, tmp_path / "store")


def _evaluate(request: EvaluationRequest, *_: object) -> dict[str, Any]:
    assert request.stored is not None
    if not store.answers(request.stored):
        raise NoStore(request.stored, "must answer", "no answer", "Wait.")
    store.fetch(Path(request.folder), request.stored, request.digest)
    _, facts = checkpoint.load(Path(request.folder), request.digest)
    named = {"digest": request.digest, "split": request.split, "step": facts["step"]}
    return {**named, "metrics": {"accuracy": 0.5}, "scores": pack_scores([1.0, 0.0])}


def test_an_outage_of_the_store_pauses_the_test_evaluation(searched: Searched) -> None:
    """It used to end the driver with a refusal, after a search that may have taken days."""
    states: list[tuple[str, str | None]] = []

    def seen() -> None:
        if not states:
            states.append((searched.record.state, searched.record.reason))
            searched.return_store()

    searched.lose_store()
    searched.lines.called = seen
    execution.evaluate_test(searched.leased, Engines(lambda: 0))
    ((state, reason),) = states
    assert state == "PAUSED"
    assert str(reason).startswith("the checkpoint store does not answer since ")
    assert [line.partition(":")[0] for line in searched.lines.lines] == [
        "The sweep is paused",
        "The sweep continues.",
    ]
    assert (searched.record.state, searched.record.reason) == ("RUNNING", None)
    (evaluation,) = searched.leased.ledger.evaluations(searched.leased.sweep.id)
    assert evaluation.metrics == {"test/accuracy": 0.5}
    assert evaluation.scores == pack_scores([1.0, 0.0])
    (attempt,) = searched.leased.ledger.attempts(searched.leased.sweep.id)
    assert attempt.cause is None


def test_a_full_disk_pauses_the_test_evaluation(searched: Searched, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[EvaluationRequest] = []

    def evaluate(request: EvaluationRequest, *_: object) -> dict[str, Any]:
        tries.append(request)
        if len(tries) < 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        return _evaluate(request)

    monkeypatch.setattr(execution.cluster, "evaluate", evaluate)
    execution.evaluate_test(searched.leased, Engines(lambda: 0))
    assert len(tries) == 3
    assert [line.split(" since ")[0] for line in searched.lines.lines[::2]] == [
        "The sweep is paused: a disk is full"
    ] * 2
    assert len(searched.leased.ledger.evaluations(searched.leased.sweep.id)) == 1


def test_an_error_that_is_no_outage_ends_the_test_evaluation(
    searched: Searched, monkeypatch: pytest.MonkeyPatch
) -> None:
    def evaluate(request: EvaluationRequest, *_: object) -> dict[str, Any]:
        raise ZeroDivisionError

    monkeypatch.setattr(execution.cluster, "evaluate", evaluate)
    with pytest.raises(ZeroDivisionError):
        execution.evaluate_test(searched.leased, Engines(lambda: 0))


def test_the_work_of_a_step_is_counted_once_and_recorded(
    searched: Searched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later driver keeps the record without counting again."""
    counts: list[int] = []
    cost = Cost(10, 6, 4, 2, flops=1e6, bytes=2e6)

    def work(
        settings: Mapping[str, TrialSettings], signature: Signature, compilations: str
    ) -> dict[str, Cost]:
        counts.append(len(settings))
        return dict.fromkeys(settings, cost)

    monkeypatch.setattr(execution.cluster, "work", work)
    before = searched.record
    for _ in range(2):
        execution.count_work(searched.leased, SIGNATURE)()
    (trial,) = searched.leased.ledger.trials(searched.leased.sweep.id)
    expected = [{**cost.document(), "trials": [trial.key]}]
    assert counts == [1]
    assert searched.record.facts == {**before.facts, STEP_WORK: expected}
    assert searched.record.document == before.document


@pytest.mark.parametrize("warm", ["0", "60", ""])
def test_the_work_is_counted_beside_the_evaluation_by_new_processes_alone(
    searched: Searched, monkeypatch: pytest.MonkeyPatch, warm: str
) -> None:
    """A warm worker is left to the evaluation, which it has compiled already."""
    begun = threading.Event()

    def work(
        settings: Mapping[str, TrialSettings], signature: Signature, compilations: str
    ) -> dict[str, Cost]:
        begun.set()
        return dict.fromkeys(settings, Cost(10, 6, 4, 2, flops=1e6, bytes=2e6))

    monkeypatch.setattr(execution.cluster, "work", work)
    monkeypatch.setenv("SWEEP_WARM", warm)
    record = execution.count_work(searched.leased, SIGNATURE)
    assert begun.wait(5.0 if warm == "0" else 0.5) == (warm == "0")
    assert STEP_WORK not in searched.record.facts
    record()
    assert len(searched.record.facts[STEP_WORK]) == 1


def test_a_failure_to_count_the_work_is_only_reported(
    searched: Searched, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(
        settings: Mapping[str, TrialSettings], signature: Signature, compilations: str
    ) -> dict[str, Cost]:
        raise RuntimeError("no memory")

    monkeypatch.setattr(execution.cluster, "work", work)
    execution.count_work(searched.leased, SIGNATURE)()
    assert searched.lines.lines == ["The FLOPs of a training step could not be counted: no memory"]
    assert STEP_WORK not in searched.record.facts


@pytest.mark.parametrize("how", ["SIGTERM", "`stop` on"])
def test_a_paused_test_evaluation_can_be_stopped(searched: Searched, how: str) -> None:
    def stop() -> None:
        if how == "SIGTERM":
            searched.leased.shutdown.request(how)
        else:
            ask_to_stop(searched.leased.ledger, searched.leased.sweep.id)

    searched.lose_store()
    searched.lines.called = stop
    with pytest.raises(KeyboardInterrupt, match=how):
        execution.evaluate_test(searched.leased, Engines(lambda: 0))
