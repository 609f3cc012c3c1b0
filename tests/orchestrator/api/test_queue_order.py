"""The places of sweeps in the queue: those with a driver and those without, in one order."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from orchestrator.api.queue_order import UNSERVED, places
from orchestrator.client.answers import QueuedSweep
from orchestrator.client.http import decoded
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.pool.claims import Amounts, Claims, set_owner
from orchestrator.ledger.queue import submissions
from orchestrator.ledger.queue.queue_settings import change_settings
from orchestrator.ledger.queue.submissions import SubmissionRequest
from orchestrator.ledger.sweeps.lease import Lease
from orchestrator.ledger.tables import SUBMISSION
from orchestrator.service.service import lease_name
from orchestrator.sharing.pool_rows import RULES, UNIT, Place, PoolClaim, PoolNode
from tests import sweeps as examples
from tests.orchestrator.ledger.examples import sweep_record, trial_record

NODES = [PoolNode("node", 4 * UNIT)]


class Queue:
    """A ledger with sweeps that run and sweeps that wait.

    Args:
        ledger: of the sweeps.
        stack: ends the drivers.
    """

    def __init__(self, ledger: Ledger, stack: contextlib.ExitStack) -> None:
        self.ledger, self._stack = ledger, stack
        self._leases: dict[str, Lease] = {}

    def serve(self) -> None:
        """Take the lease of the service."""
        self._stack.enter_context(Lease(self.ledger, lease_name(self.ledger)))

    def submit(self, sweep: str, owner: str, **resources: Any) -> None:
        """Add a submission of eight trials."""
        document = {"budget": {"trials": 8}, "resources": {"cpu": 1.0, "gpu": 0.0, **resources}}
        order = SubmissionRequest(owner, document, "", {}, sweep, "c0ffee")
        submissions.submit(self.ledger, order, lambda is_known: sweep)

    def drive(
        self,
        sweep: str,
        owner: str,
        trials: int,
        want: int = 8,
        created: float = 0.0,
        *,
        cpu: int = 1,
        pending: int = 0,
        nodes: Sequence[PoolNode] = NODES,
        **amounts: Any,
    ) -> None:
        """Start a driver, if there is none, that claims its share and runs so many trials."""
        if sweep not in self._leases:
            self._leases[sweep] = self._stack.enter_context(Lease(self.ledger, sweep))
        claim = PoolClaim(sweep, owner, created, cpu * UNIT, 0, want=0)
        held = Amounts(want, trials, pending, 0, **amounts)
        Claims(self.ledger, self._leases[sweep].token, "pool", claim).renew(nodes, held)

    def finish(self, sweep: str, trials: int) -> None:
        """Let trials of a sweep with a driver end, a moment after each other."""
        document = {
            "budget": {"trials": 8},
            "sampler": {"tpe": {}},
            "search": {"rate": {"uniform": [0.0, 1.0]}},
        }
        writer = self._leases[sweep].writer
        writer.create_sweep(sweep_record(id=sweep, document=document))
        for number in range(trials):
            trial = trial_record(number, key=f"{sweep}-{number}", sweep_id=sweep)
            writer.add_trial(trial)
            attempt = writer.start_attempt(trial.key)
            writer.record_report(attempt.id, trial.total_steps, {"val/accuracy": 0.5})
            writer.end_attempt(attempt.id, "ENDED", None, "COMPLETE", 0.5, trial.total_steps)

    def set_state(self, sweep: str, **columns: Any) -> None:
        """Change the row of a submission as the service does."""
        with self.ledger.writer() as connection, connection.begin():
            statement = SUBMISSION.update().where(SUBMISSION.c.sweep_id == sweep)
            connection.execute(statement.values(**columns))

    def entries(self) -> dict[str, QueuedSweep]:
        return {entry.sweep: entry for entry in places(self.ledger)}


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Queue]:
    paths = examples.filled(tmp_path / "mlruns")
    with contextlib.ExitStack() as stack:
        ledger = Ledger.open(paths.ledger_url)
        stack.callback(ledger.close)
        yield Queue(ledger, stack)


def test_the_queue_shows_which_node_is_held_for_whom(queue: Queue) -> None:
    """Two nodes of two cores, a trial of one core on each, and one that needs both cores of a node."""
    nodes = [PoolNode("a" * 56, 2 * UNIT), PoolNode("b" * 56, 2 * UNIT)]
    for sweep, node in zip(("ada-1", "bob-1"), nodes, strict=True):
        queue.drive(sweep, sweep[:3], 1, 1, nodes=nodes, places=(Place(node.name, 1, 0, 1),))
    queue.drive("eve-1", "eve", 1, 2, cpu=2, nodes=nodes, pending=1, waited=RULES.hold_after)
    why = {sweep: entry.why for sweep, entry in queue.entries().items()}
    assert why == {
        "ada-1": "1 trial leaves node aaaaaaaaaaaa, which is held for a trial of sweep eve-1",
        "bob-1": None,
        "eve-1": "holds node aaaaaaaaaaaa for a trial that fits no node",
    }
    queue.drive("eve-1", "eve", 1, 2, cpu=2, nodes=nodes)
    assert {entry.why for entry in queue.entries().values()} == {None}


def test_sweeps_with_and_without_drivers_are_numbered_in_one_order(queue: Queue) -> None:
    """Running ones have no number; then by class; in a class drivers come first; parked ones are last."""
    queue.serve()
    for sweep, owner in (
        ("runs", "ada"),
        ("short", "bob"),
        ("later", "cyd"),
        ("first", "dan"),
        ("bad", "eve"),
    ):
        queue.submit(sweep, owner)
    change_settings(queue.ledger, "first", priority_class="urgent")
    queue.set_state("bad", state="PARKED", crashes=5, cause="it broke")
    queue.drive("runs", "ada", 4)
    queue.drive("short", "bob", 0, created=1.0)
    entries = queue.entries()
    assert {name: entry.position for name, entry in entries.items()} == {
        "runs": None,
        "first": 1,
        "short": 2,
        "later": 3,
        "bad": None,
    }
    assert list(entries) == ["runs", "first", "short", "later", "bad"]
    assert (entries["runs"].running, entries["runs"].share) == (4, 2)
    assert entries["short"].why == "its share of 2 trials is still held by another sweep"
    assert entries["bad"].why == "PARKED: crashed 5 times without a report, the last time: it broke"


def test_a_queue_of_any_length_takes_a_fixed_number_of_queries(postgres_url: str) -> None:
    """The queue once read the lease of each sweep by itself, and the row of each that has finished trials."""
    with contextlib.ExitStack() as stack:
        ledger = Ledger.open(postgres_url)
        stack.callback(ledger.close)
        queue, queries = Queue(ledger, stack), list[str]()
        here = threading.current_thread()

        def count(*_: Any) -> None:
            # The leases renew themselves, each in a thread of its own.
            if threading.current_thread() is here:
                queries.append("one")

        event.listen(ledger._engine, "before_cursor_execute", count)
        counts = []
        for number in range(6):
            queue.submit(f"s{number}", "ada")
            if number % 2:
                queue.drive(f"s{number}", "ada", 1)
                queue.finish(f"s{number}", 2)
                queries.clear()
                queue.entries()
                counts.append(len(queries))
    assert counts[0] == counts[1] == counts[2]


def test_a_sweep_whose_driver_has_no_share_yet_is_in_the_queue(queue: Queue) -> None:
    """`status` calls it RUNNING from the moment at which its driver has its lease."""
    queue.serve()
    queue.submit("a", "ada")
    with Lease(queue.ledger, "a"):
        (place,) = places(queue.ledger)
        assert (place.sweep, place.running, place.position) == ("a", 0, None)
        assert place.why == "its driver starts, or ends"


def test_without_a_service_nothing_is_promised(queue: Queue) -> None:
    queue.submit("new", "ada")
    entry = queue.entries()["new"]
    assert (entry.why, entry.expected_start, entry.position) == (UNSERVED, None, 1)
    queue.serve()
    entry = queue.entries()["new"]
    assert entry.why == "QUEUED"
    assert entry.expected_start == pytest.approx(queue.ledger.now(), abs=15.0)


def test_a_wait_that_is_over_because_the_clock_was_wrong_delays_no_expected_start(queue: Queue) -> None:
    """It was written before a boot, by a clock a day ahead: the service starts the driver at once."""
    queue.serve()
    queue.submit("new", "ada")
    queue.set_state("new", next_try=queue.ledger.now() + 86_400.0)
    entry = queue.entries()["new"]
    assert entry.why == "QUEUED"
    assert entry.expected_start == pytest.approx(queue.ledger.now(), abs=15.0)


def test_a_sweep_without_a_driver_shows_the_share_that_it_would_have(queue: Queue) -> None:
    queue.serve()
    queue.submit("runs", "ada")
    queue.drive("runs", "ada", 4)
    for number in range(5):
        queue.submit(f"s{number}", f"owner{number}")
    entries = queue.entries()
    assert [entries[f"s{number}"].share for number in range(5)] == [1, 1, 1, 0, 0]
    assert entries["s0"].why == "QUEUED"
    assert entries["s4"].why == "QUEUED: the pool has no share for it yet"
    longest = queue.ledger.now() + RULES.shed_after + RULES.min_run
    assert entries["s0"].expected_start == pytest.approx(longest, abs=15.0)
    assert entries["s4"].expected_start is None, "nothing is known of the end of the running sweep"


def test_the_end_of_a_running_sweep_is_estimated_from_its_finished_trials(queue: Queue) -> None:
    """The example has finished seven trials of eight; the one that waits has a share of 0 until the end."""
    queue.serve()
    queue.submit(examples.SWEEP_ID, "ada")
    queue.submit("next", "ada")
    queue.drive(examples.SWEEP_ID, "ada", 1, want=8)
    with queue.ledger.writer() as connection, connection.begin():
        statement = "UPDATE trial SET state = 'RUNNING', finished_at = NULL WHERE number = 7"
        connection.exec_driver_sql(statement)
        connection.exec_driver_sql("UPDATE pool SET nodes = '[[\"node\", 10000, 0]]'")
        now = queue.ledger.now()
        connection.exec_driver_sql(
            f"UPDATE trial SET finished_at = {now} - 60.0 * (6 - number) WHERE number < 7 AND role = 'search'"
        )
    entry = queue.entries()["next"]
    assert entry.share == 0
    assert entry.expected_start == pytest.approx(now + 60.0, abs=15.0)


def test_a_quota_that_is_used_up_is_named(queue: Queue) -> None:
    queue.serve()
    queue.submit("runs", "ada")
    queue.drive("runs", "ada", 2)
    set_owner(queue.ledger, "bob", most_share=0)
    queue.submit("new", "bob")
    assert queue.entries()["new"].why == "QUEUED: its owner's quota is used up"


def test_the_json_of_an_entry_can_be_read_again_also_of_a_later_version(queue: Queue) -> None:
    queue.submit("new", "ada")
    entry = queue.entries()["new"]
    assert decoded(QueuedSweep, {**asdict(entry), "more": 1}) == entry
