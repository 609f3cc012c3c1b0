"""Outages of the store and full disks: a sweep pauses, charges no attempt and continues by itself."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from orchestrator.config import load
from orchestrator.errors import NoStore
from orchestrator.session.outages import PROBE_CAP_SECONDS, PROBE_SECONDS, Outages, probes_of
from orchestrator.session.session import Session
from orchestrator.storage import store
from tests.orchestrator.session.sessions import Sessions, failure, launch, outcome, train
from tests.orchestrator.session.test_population import POPULATION


@dataclass
class Resource:
    """A store or a disk that a test makes unavailable and available again.

    Attributes:
        out: Whether it is unavailable.
        probed: Times of the probes, by the clock of the session.
    """

    sessions: Sessions
    out: bool = True
    probed: list[float] = field(default_factory=list)

    def __call__(self) -> bool:
        self.probed.append(self.sessions.clock.now)
        return not self.out


@pytest.fixture
def resource(sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> Resource:
    """Return the store or disk that every session of the test probes, in the thread of the test."""
    resource = Resource(sessions)
    monkeypatch.setattr(Outages.__init__, "__defaults__", (lambda work: work(),))
    sessions.probes = {"store lost": resource, "disk full": resource}
    return resource


def state(sessions: Sessions, session: Session) -> tuple[str, str | None]:
    record = sessions.ledger.sweep(session.sweep.id)
    assert record is not None
    return record.state, record.reason


def fail(session: Session, cause: str) -> None:
    assignment = launch(session)
    session.reported(assignment.attempt_id, failure(assignment, 0, cause))
    session.completed(assignment.attempt_id)


def wait(sessions: Sessions, session: Session, seconds: float) -> None:
    """Let time pass; the driver checks its limits twice a second."""
    for _ in range(round(2 * seconds)):
        sessions.clock.now += 0.5
        session.check_limits()


@pytest.mark.parametrize(
    ("cause", "reason"),
    [("store lost", "the checkpoint store does not answer since "), ("disk full", "a disk is full since ")],
)
def test_an_outage_pauses_the_sweep_and_is_charged_to_no_trial(
    sessions: Sessions, resource: Resource, cause: str, reason: str
) -> None:
    """Twenty attempts are lost in outages, and none of them is charged."""
    session = sessions.open(sessions.sweep(2))
    for _ in range(20):
        resource.out = True
        fail(session, cause)
        paused, why = state(sessions, session)
        assert (paused, str(why).startswith(reason)) == ("PAUSED", True)
        assert session.next_assignment() is None
        assert (session.progress().state, session.progress().reason) == (paused, why)
        resource.out = False
        wait(sessions, session, 2 * PROBE_CAP_SECONDS)
        assert state(sessions, session) == ("RUNNING", None)
    for _ in range(2):
        train(session, launch(session))
    assert session.finished
    assert {trial.state for trial in sessions.ledger.trials(session.sweep.id)} == {"COMPLETE"}


def test_a_full_disk_that_no_probe_of_the_driver_sees_costs_an_attempt_a_minute(
    sessions: Sessions, resource: Resource
) -> None:
    """The disk of another machine is full: the probe succeeds, and the next attempt fails at its start."""
    resource.out = False
    session = sessions.open(sessions.sweep(1))
    for _ in range(60):
        fail(session, "disk full")
        while session.progress().state == "PAUSED":
            wait(sessions, session, 0.5)
        wait(sessions, session, 5)  # until a worker has started
    gaps = [after - before for before, after in zip(resource.probed, resource.probed[1:], strict=False)]
    assert PROBE_CAP_SECONDS <= gaps[-1] <= PROBE_CAP_SECONDS + 10
    assert gaps == sorted(gaps)


def test_a_sweep_waits_for_the_end_of_an_outage_longer_than_for_a_node(
    sessions: Sessions, resource: Resource
) -> None:
    """An hour without a store ends neither the sweep nor a trial; the probes become rarer."""
    session = sessions.open(sessions.sweep(1))
    fail(session, "store lost")
    wait(sessions, session, 3600)
    assert (session.stopped, session.finished) == (None, False)
    gaps = [after - before for before, after in zip(resource.probed, resource.probed[1:], strict=False)]
    assert gaps[0] < 4 * PROBE_SECONDS
    assert PROBE_CAP_SECONDS <= max(gaps) <= PROBE_CAP_SECONDS + 1
    assert len(resource.probed) > 50
    resource.out = False
    wait(sessions, session, PROBE_CAP_SECONDS + 1)
    train(session, launch(session))
    assert session.finished


def test_a_paused_sweep_can_be_stopped(sessions: Sessions, resource: Resource) -> None:
    session = sessions.open(sessions.sweep(1))
    fail(session, "store lost")
    session.stop("stopped by a test", "INTERRUPTED")
    session.check_limits()
    assert session.finished


@pytest.mark.parametrize("end", ["the store answers", "the sweep is stopped"])
def test_an_exploit_waits_for_the_store(
    sessions: Sessions, resource: Resource, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """The decision of the population stands; only the copy is made later."""
    file = sessions.folder / "population.yaml"
    file.write_text(POPULATION.replace("BUDGET", "2"))
    session = sessions.open(load(file, profile=None, gpus=0))
    good, bad = launch(session), launch(session)
    session.reported(good.attempt_id, outcome(good, 10, 0.9))
    assert session.exploit(bad.trial_key, 10, [good.trial_key])
    session.reported(bad.attempt_id, outcome(bad, 10, 0.1))
    real = store.copy

    def copy(*arguments: object) -> object:
        if resource.out:
            raise NoStore("s3://bucket", "must answer", "no route", "Wait.")
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "copy", copy)
    session.completed(bad.attempt_id)
    assert state(sessions, session)[0] == "PAUSED"
    assert session.silent(-1.0) == [good.attempt_id]
    if end == "the store answers":
        resource.out = False
        wait(sessions, session, PROBE_CAP_SECONDS)
        assert launch(session).trial_key == bad.trial_key
        (segment,) = sessions.ledger.trial(bad.trial_key).system_attrs["segments"]
        assert segment["donor"] == good.trial_key
    else:
        session.stop("stopped by a test", "INTERRUPTED")
        assert set(session.running) == {good.attempt_id}
        assert sessions.ledger.trial(bad.trial_key).state == "PREEMPTED"


@pytest.mark.parametrize("with_store", [False, True], ids=["local folder", "shared store"])
def test_an_unmounted_disk_is_not_back_although_its_folder_takes_a_probe(
    sessions: Sessions, tmp_path: Path, with_store: bool
) -> None:
    disk = tmp_path / "disk"
    paths = replace(sessions.paths, store=disk.as_uri()) if with_store else sessions.paths
    session = sessions.open(sessions.sweep(trials=2))
    probe = probes_of(paths, sessions.ledger, session.sweep.id)["store lost"]
    assert probe(), "nothing is saved yet"
    assignment = launch(session)
    session.reported(assignment.attempt_id, outcome(assignment, 10, 0.5))
    url = paths.stored(sessions.ledger.id, session.sweep.id, assignment.trial_key)
    folder = Path(url.removeprefix("file://")) if url else Path(assignment.checkpoints)
    folder.mkdir(parents=True, exist_ok=True)
    assert probe()
    folder.parent.rename(tmp_path / "unmounted")
    assert not probe()
    (tmp_path / "unmounted").rename(folder.parent)
    assert probe()
