"""The share of a sweep as its driver keeps it: claims, sheds and the request to the autoscaler."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

from orchestrator.assignment import Assignment
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.pool.claims import Amounts, Claims, pools
from orchestrator.machines.hardware import Node
from orchestrator.schedule import ray_private, resources
from orchestrator.schedule.resources import REQUEST_SECONDS, AvailableResources
from orchestrator.schedule.shares import RENEW_SECONDS, ClusterShare
from orchestrator.session.session import Session
from orchestrator.sharing.pool_rows import UNIT, Place, PoolClaim, PoolNode, Rules
from tests import postgres
from tests.orchestrator.ledger.examples import writer
from tests.orchestrator.session.sessions import Sessions, launch, outcome

RULES = Rules(shed_after=0.0)
NODES = [PoolNode("node", 4 * UNIT)]


class Cluster(AvailableResources):
    """A cluster of one node that a test sets, and what its autoscaler was asked for.

    Attributes:
        requests: Every request, the last one at the end.
        cores: Cores of each node.
    """

    def __init__(self) -> None:
        super().__init__(1.0, 0.0)
        self.requests: list[Counter[tuple[float, float]]] = []
        self.cores = {"node": 4.0}

    def nodes(self) -> Mapping[str, Node]:
        return {name: Node(cores, 0.0, cores, 0.0) for name, cores in self.cores.items()}

    def request(self, attempts: Counter[tuple[float, float]]) -> None:
        self.requests.append(attempts)


class Pool:
    """The driver of sweep `a` of ada with a session, and claims of other sweeps beside it.

    Args:
        folder: Folder of the session.
        ledger: Ledger of the claims; that of the session if it is left out.
    """

    def __init__(self, folder: Path, ledger: Ledger | None = None) -> None:
        self.sessions, self.cluster = Sessions(folder), Cluster()
        self.ledger = ledger or self.sessions.ledger
        claim = PoolClaim("a", "ada", 0.0, UNIT, 0, want=0)
        own = writer(self.ledger, "a")
        self.share = ClusterShare(own, self.cluster, claim, rules=RULES, clock=self.sessions.clock)
        self.sessions.share = self.share  # type: ignore[assignment]
        self.session: Session = self.sessions.open(self.sessions.sweep(8), capacity=4)

    def other(self, sweep: str, owner: str, created: float = 1.0) -> Claims:
        """Return the claim of another driver; the pool's own sweep was created at 0."""
        claim = PoolClaim(sweep, owner, created, UNIT, 0, want=0)
        return Claims(self.ledger, writer(self.ledger, sweep).token, "pool", claim, RULES)

    def renew(self, seconds: float = RENEW_SECONDS) -> None:
        """Let time pass, and renew the claim of the driver."""
        self.sessions.clock.now += seconds
        self.share.renew(self.session)

    def report(self, assignment: Assignment, step: int) -> None:
        """Commit a report."""
        self.session.reported(assignment.attempt_id, outcome(assignment, step, 0.5))


@pytest.fixture(autouse=True)
def joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Name the cluster, which no test of this file joins."""
    monkeypatch.setattr(ray_private, "pool_id", lambda: "pool")


@pytest.fixture
def pool(tmp_path: Path) -> Pool:
    return Pool(tmp_path)


def test_a_claim_is_written_with_the_first_attempt_renewed_each_second_and_withdrawn(pool: Pool) -> None:
    assert pools(pool.ledger) == {}
    launch(pool.session)
    assert pools(pool.ledger)["pool"].uses["a"].trials == 1
    launch(pool.session)
    pool.renew()
    view = pools(pool.ledger)["pool"]
    assert (view.uses["a"].trials, view.claims["a"].want) == (2, 8)
    renewed_at = view.uses["a"].renewed_at
    pool.renew(RENEW_SECONDS / 2)
    assert pools(pool.ledger)["pool"].uses["a"].renewed_at == renewed_at, "once a second"
    pool.share.withdraw()
    assert pools(pool.ledger) == {}


def test_a_share_that_is_withdrawn_before_anything_ran_writes_nothing(pool: Pool) -> None:
    pool.share.withdraw()
    assert pool.cluster.requests == []


def test_a_claim_that_another_driver_has_taken_over_is_left_to_it(pool: Pool) -> None:
    launch(pool.session)
    writer(pool.ledger, "a")
    pool.share.withdraw()
    assert pools(pool.ledger)["pool"].uses["a"].trials == 1


def test_a_refusal_holds_until_an_attempt_ends_or_the_claim_is_renewed(pool: Pool) -> None:
    other = pool.other("b", "bob")
    other.renew(NODES, Amounts(4, 4, 0, 0))
    assert pool.session.next_assignment() is None
    assert pool.share.was_refused(pool.session)
    other.renew(NODES, Amounts(4, 3, 0, 0))
    assert pool.session.next_assignment() is None, "nothing is asked again within the second"
    pool.renew()
    assert not pool.share.was_refused(pool.session)
    assert pool.session.next_assignment() is not None


def test_trials_leave_for_a_sweep_that_is_short_and_stay_if_it_leaves(pool: Pool) -> None:
    """The trial that has just reported loses least; it leaves no earlier than after its minimum run."""
    trials = [launch(pool.session) for _ in range(4)]
    other = pool.other("b", "bob")
    other.renew(NODES, Amounts(1, 0, 0, 0))
    pool.renew(RULES.min_run - 10.0)
    assert pool.share.leaving == frozenset()
    pool.report(trials[2], 10)
    pool.renew(11.0)
    assert pool.share.leaving == {trials[2].attempt_id}
    assert pools(pool.ledger, RULES)["pool"].uses["a"].leaving == 0, "written with the next renewal"
    pool.renew()
    assert pools(pool.ledger, RULES)["pool"].uses["a"].leaving == 1
    other.withdraw()
    pool.renew()
    assert pool.share.leaving == frozenset()


def test_a_trial_that_is_to_leave_and_reports_nothing_is_cut_after_two_minutes(pool: Pool) -> None:
    """Its two minutes begin again if it could stay in between."""
    trials = [launch(pool.session) for _ in range(4)]
    other = pool.other("b", "bob")
    other.renew(NODES, Amounts(1, 0, 0, 0))
    pool.renew(RULES.min_run)
    [leaving] = pool.share.leaving
    pool.renew(RULES.cut_after - 1.0)
    assert not pool.share.overdue
    pool.renew()
    assert pool.share.overdue == {leaving: pool.sessions.clock.now}
    other.withdraw()
    pool.renew()
    assert not pool.share.overdue
    pool.other("c", "bob").renew(NODES, Amounts(1, 0, 0, 0))
    pool.renew()
    assert len(pool.share.leaving) == 1
    assert not pool.share.overdue
    assert len(trials) == len(pool.session.running)


def test_the_minimum_run_is_ten_times_the_longest_start_of_the_sweep(pool: Pool) -> None:
    trials = [launch(pool.session) for _ in range(4)]
    report = outcome(trials[0], 10, 0.5)
    metrics = {**report.metrics, "seconds/compile": 30.0}
    pool.session.reported(trials[0].attempt_id, outcome(trials[0], 10, 0.5, metrics=metrics))
    other = pool.other("b", "bob")
    other.renew(NODES, Amounts(1, 0, 0, 0))
    pool.renew(299.0)
    assert pool.share.leaving == frozenset()
    pool.renew()
    assert pool.share.leaving == {trials[0].attempt_id}


def test_the_driver_of_the_oldest_sweep_asks_the_autoscaler_for_all(pool: Pool) -> None:
    launch(pool.session)
    pool.other("b", "bob").renew(NODES, Amounts(3, 1, 0, 0))
    pool.renew()
    assert pool.cluster.requests[-1] == {(1.0, 0.0): 8 + 3}
    older = pool.other("c", "cay", created=-1.0)
    older.renew(NODES, Amounts(2, 0, 0, 0))
    asked = len(pool.cluster.requests)
    pool.renew()
    assert len(pool.cluster.requests) == asked, "its driver asks now"
    older.withdraw()
    pool.renew()
    assert pool.cluster.requests[asked:] == [{(1.0, 0.0): 8 + 3}]


def test_the_last_driver_takes_the_request_back_and_no_other_does(pool: Pool) -> None:
    launch(pool.session)
    other = pool.other("b", "bob")
    other.renew(NODES, Amounts(3, 1, 0, 0))
    pool.renew()
    asked = len(pool.cluster.requests)
    pool.share.withdraw()
    assert len(pool.cluster.requests) == asked, "the other driver asks from its next renewal on"
    pool.renew()
    other.withdraw()
    pool.share.withdraw()
    assert pool.cluster.requests[-1] == Counter()


def test_a_request_that_an_older_one_may_have_replaced_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    clock = [100.0]
    monkeypatch.setattr(resources, "request_resources", lambda bundles: sent.append(len(bundles)))
    monkeypatch.setattr(resources.time, "monotonic", lambda: clock[0])
    asking, wanted = AvailableResources(1.0, 0.0), Counter({(1.0, 0.0): 3})
    asking.request(wanted)
    asking.request(Counter(wanted))
    assert sent == [3], "Ray learns of changes at once, and of nothing else"
    clock[0] += REQUEST_SECONDS
    asking.request(wanted)
    assert sent == [3, 3]


class Controller:
    """Tune's controller as a test sets it: the nodes of trials, and those that wait.

    Attributes:
        nodes: Nodes by id of the trial.
        taken_back: Ids of the trials that were taken back.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.nodes: dict[str, tuple[str, ...]] = {}
        self.taken_back: list[str] = []

    def nodes_of(self, _: object, trials: Collection[str]) -> dict[str, tuple[str, ...]]:
        return {name: node for name, node in self.nodes.items() if name in trials}

    def waiting_for_resources(self, _: object, trials: Collection[str]) -> list[str]:
        return [name for name in trials if name not in self.nodes]

    def take_back(self, _: object, trials: Collection[str]) -> None:
        for name in trials:
            self.taken_back.append(name)
            self._pool.session.completed(name)

    def look(self) -> None:
        """Let the driver look, as it does twice a second."""
        self._pool.share.look(self, self._pool.session)


@pytest.fixture
def two_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Pool, Controller, list[Assignment]]:
    """Return two nodes of two cores, what Tune knows, and the trials that the driver runs on each node."""
    pool = Pool(tmp_path)
    pool.cluster.cores = {"n0": 2.0, "n1": 2.0}
    controller = Controller(pool)
    for name in ("nodes_of", "waiting_for_resources", "take_back"):
        monkeypatch.setattr(ray_private, name, getattr(controller, name))
    trials = [launched(pool) for _ in pool.cluster.cores]
    for trial, node in zip(trials, pool.cluster.cores, strict=True):
        pool.session.started(trial.attempt_id)
        controller.nodes[trial.attempt_id] = (node,)
    return pool, controller, trials


def launched(pool: Pool) -> Assignment:
    """Launch the next attempt as the search algorithm does; it waits for a worker."""
    assignment = pool.session.next_assignment()
    assert assignment is not None
    return pool.share.placement.avoiding(assignment)


TWO_NODES = [PoolNode("n0", 2 * UNIT), PoolNode("n1", 2 * UNIT)]


def whole(pool: Pool) -> Claims:
    """Return the claim of another driver, whose trials need both cores of a node."""
    claim = PoolClaim("whole", "bob", 1.0, 2 * UNIT, 0, want=0)
    return Claims(pool.ledger, writer(pool.ledger, "whole").token, "pool", claim, RULES)


def test_a_trial_leaves_the_node_that_is_held_for_another_sweep_and_avoids_it(
    two_nodes: tuple[Pool, Controller, list[Assignment]],
) -> None:
    pool, controller, (first, second) = two_nodes
    controller.look()
    pool.renew()
    assert pools(pool.ledger)["pool"].uses["a"].places == (Place("n0", 1, 0, 0), Place("n1", 1, 0, 0))
    other = whole(pool)
    other.renew(TWO_NODES, Amounts(1, 1, 1, 0, waited=RULES.hold_after))
    pool.renew(RULES.min_run - 2 * RENEW_SECONDS)
    assert pool.share.leaving == frozenset(), "not before its minimum run"
    pool.renew()
    pool.renew()
    assert pool.share.leaving == {first.attempt_id}
    pool.report(first, 10)
    assert pool.session.sheds(first.attempt_id)
    pool.session.completed(first.attempt_id)
    again = launched(pool)
    assert (again.trial_key, again.avoided) == (first.trial_key, ("n0",))
    other.renew(TWO_NODES, Amounts(1, 1, 0, 0, places=(Place("n0", 1, 0, 0),)))
    pool.renew()
    assert pool.share.placement.closed == frozenset()
    assert second.attempt_id in pool.session.running


def test_the_engines_on_a_node_give_up_their_devices_for_a_trial_that_needs_one(
    two_nodes: tuple[Pool, Controller, list[Assignment]],
) -> None:
    """Nobody else uses the second node, whose device is free, but its cores do not suffice."""
    pool, _, _ = two_nodes
    nodes = [PoolNode("n0", 4 * UNIT, UNIT), PoolNode("n1", UNIT, UNIT)]
    claim = PoolClaim("engines", "ada", 1.0, UNIT, 2, want=0)
    own = ClusterShare(writer(pool.ledger, "engines"), pool.cluster, claim, clock=pool.sessions.clock)
    shared = Claims(pool.ledger, writer(pool.ledger, "engines").token, "gpus", claim, RULES)
    shared.renew(nodes, Amounts(1, 1, 0, UNIT, places=(Place("n0", 1, UNIT, 1),)))
    device = PoolClaim("device", "bob", 2.0, 2 * UNIT, 1, want=0)
    other = Claims(pool.ledger, writer(pool.ledger, "device").token, "gpus", device, RULES)
    other.renew(nodes, Amounts(1, 1, 1, UNIT, waited=RULES.hold_after))
    own._set_view(pools(pool.ledger)["gpus"])
    assert own.engines.closing == {"n0"}
    other.renew(nodes, Amounts(0, 0, 0, 0))
    own._set_view(pools(pool.ledger)["gpus"])
    assert own.engines.closing == frozenset()


def test_an_attempt_that_waits_under_other_holds_is_taken_back_and_waits_on(
    two_nodes: tuple[Pool, Controller, list[Assignment]],
) -> None:
    """It is launched again, uncharged, and keeps its place among those that wait."""
    pool, controller, _ = two_nodes
    waiting = launched(pool)
    controller.look()
    pool.renew()
    other = whole(pool)
    other.renew(TWO_NODES, Amounts(1, 1, 1, 0, waited=RULES.hold_after))
    pool.renew(9.0)
    controller.look()
    assert controller.taken_back == [waiting.attempt_id]
    [attempt] = [one for one in pool.ledger.attempts(pool.session.sweep.id) if one.id == waiting.attempt_id]
    assert (attempt.state, attempt.cause) == ("LOST", "shared")
    other.withdraw()
    pool.renew(10.0)
    again = launched(pool)
    assert (again.trial_key, again.avoided) == (waiting.trial_key, ())
    pool.renew()
    use = pools(pool.ledger)["pool"].uses["a"]
    assert use.pending_since is not None
    assert use.renewed_at - use.pending_since == pytest.approx(21.0, abs=1.0)
    pool.session.started(again.attempt_id)
    controller.nodes[again.attempt_id] = "n1"
    controller.look()
    launched(pool)
    pool.renew()
    use = pools(pool.ledger)["pool"].uses["a"]
    assert use.pending_since is not None
    assert use.renewed_at - use.pending_since < 5.0, "another attempt waits for itself"


@pytest.mark.slow
def test_while_the_ledger_is_away_nothing_starts_or_leaves_and_no_request_is_changed(
    tmp_path: Path, postgres_server: postgres.Server, postgres_url: str
) -> None:
    pool = Pool(tmp_path, Ledger.open(postgres_url))
    for _ in range(3):
        launch(pool.session)
    other = pool.other("b", "bob")
    other.renew(NODES, Amounts(2, 0, 0, 0))
    pool.renew(RULES.min_run)
    leaving, requests = pool.share.leaving, len(pool.cluster.requests)
    assert len(leaving) == 1, "two are wanted, one is free"
    postgres_server.stop()
    try:
        pool.renew()
        assert pool.share.leaving == frozenset()
        assert pool.session.next_assignment() is None
        assert len(pool.cluster.requests) == requests
        pool.share.withdraw()
        assert len(pool.session.running) == 3, "what runs goes on"
    finally:
        postgres_server.start()
    pool.renew()
    assert pool.share.leaving == leaving
    pool.ledger.close()
