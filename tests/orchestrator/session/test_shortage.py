"""Waiting for a node is a state with a reason, and has an end."""

from __future__ import annotations

from orchestrator.session.running import Running
from orchestrator.session.shortage import SLOW_START, any_begins
from tests import sweeps
from tests.orchestrator.session.desk import Desk, launch, outcome, train


def running(reported_at: float, *, started: bool) -> Running:
    return Running(sweeps.trial(0, "RUNNING"), None, 0, None, None, reported_at, started=started)


def test_a_worker_takes_a_while_to_start() -> None:
    assert any_begins([running(0.0, started=False)], now=SLOW_START)
    assert not any_begins([running(0.0, started=False)], now=SLOW_START + 1)
    assert any_begins([running(0.0, started=False), running(0.0, started=True)], now=SLOW_START + 1)
    assert not any_begins([], now=0.0)


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
