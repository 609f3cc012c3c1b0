"""When a session launches nothing more."""

from __future__ import annotations

from orchestrator.ledger import stop_requests
from orchestrator.ledger.records import TrialState
from orchestrator.session.ending import HOPELESS_AFTER, hopeless
from tests.orchestrator.session.desk import Desk, failure, launch


def test_one_trial_that_did_not_fail_is_hope() -> None:
    failed: list[TrialState] = ["FAILED"] * HOPELESS_AFTER
    assert hopeless([*failed, "RUNNING", "WAITING"])
    assert not hopeless([*failed, "PRUNED"])
    assert not hopeless(failed[1:])


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
    stop_requests.ask_to_stop(desk.ledger, sweep.id)
    session.look_around()
    assert session.stopped is not None
    assert session.stopped.state == "INTERRUPTED"
    assert desk.paths.stop_wish(sweep.id).exists(), "workers look at a file"


def test_a_full_disk_pauses_the_sweep_and_charges_nobody(desk: Desk) -> None:
    session = desk.open(desk.sweep(3))
    told = launch(session)
    session.reported(told.attempt_id, failure(0, "disk full"))
    session.completed(told.attempt_id)
    assert session.stopped is not None
    assert session.stopped.state == "PAUSED"
    assert desk.ledger.trial(told.trial_key).state == "PREEMPTED"
