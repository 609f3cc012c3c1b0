"""Claims in both databases: what drivers write about the pool that they share."""

from __future__ import annotations

import json
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import Busy
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.pool.claims import ABANDONED_SECONDS, Amounts, Claims, owners, pools, set_owner
from orchestrator.ledger.queue.queue_settings import change_settings
from orchestrator.sharing.pool_rows import RULES, UNIT, Owner, Place, PoolClaim, PoolNode
from orchestrator.sharing.view import View
from tests import postgres
from tests.orchestrator.ledger.examples import writer
from tests.orchestrator.ledger.processes import answer, start
from tests.programs import program

NODES = [PoolNode("node", 4 * UNIT)]


def claims(
    ledger: Ledger, sweep: str, owner: str = "ada", pool: str = "pool", created: float = 0.0
) -> Claims:
    """Return the claim of a driver that has just taken the lease of its sweep."""
    claim = PoolClaim(sweep, owner, created, UNIT, 0, want=0)
    return Claims(ledger, writer(ledger, sweep).token, pool, claim)


def amounts(trials: int = 0, want: int = 4, **changes: Any) -> Amounts:
    return Amounts(want, trials, changes.pop("pending", 0), 0, **changes)  # type: ignore[arg-type]


def test_a_sweep_alone_may_start_all_that_it_wants(ledger: Ledger) -> None:
    own = claims(ledger, "a")
    for trials in range(9):
        started = own.start(NODES, amounts(trials, want=9))
        assert started is not None
        assert started[1]
    assert own.start(NODES, amounts(9, want=9))[1] is False  # type: ignore[index]


def test_a_granted_attempt_counts_in_the_same_transaction(ledger: Ledger) -> None:
    """Two drivers cannot both take the last place: each sees what the other was granted."""
    first, second = claims(ledger, "a"), claims(ledger, "b", "bob")
    second.renew(NODES, amounts(1, want=2))
    first.renew(NODES, amounts(2, want=4))
    view, granted = first.start(NODES, amounts(2))  # type: ignore[misc]
    assert granted is False, "the pool has four places, and two are b's share"
    view, granted = second.start(NODES, amounts(1, want=2))  # type: ignore[misc]
    assert granted
    assert (view.uses["b"].trials, view.uses["b"].pending, view.free) == (2, 1, (0, 0))


def test_at_most_two_attempts_are_pending_beside_another_sweep(ledger: Ledger) -> None:
    own = claims(ledger, "a")
    claims(ledger, "b", "bob").renew(NODES, amounts(want=0))
    assert own.start(NODES, amounts(1, pending=1))[1]  # type: ignore[index]
    assert not own.start(NODES, amounts(2, pending=2))[1]  # type: ignore[index]


def test_a_driver_without_its_lease_takes_nothing(ledger: Ledger) -> None:
    own = claims(ledger, "a")
    own.renew(NODES, amounts())
    claims(ledger, "a")
    with pytest.raises(Busy):
        own.start(NODES, amounts())
    with pytest.raises(Busy):
        own.renew(NODES, amounts(trials=3))
    assert pools(ledger)["pool"].uses["a"].trials == 0


def test_the_claim_of_a_dead_driver_is_deleted_and_a_living_one_is_kept(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead, living = claims(ledger, "a"), claims(ledger, "b", "bob")
    dead.renew(NODES, amounts(4))
    living.renew(NODES, amounts(0))
    later(monkeypatch, RULES.dead_after + 1)
    view, granted = living.start(NODES, amounts(0))  # type: ignore[misc]
    assert granted
    assert view.claims.keys() == {"b"}
    view = dead.renew(NODES, amounts(1))  # type: ignore[assignment]
    assert view.claims.keys() == {"a", "b"}, "a driver that was only slow claims again"
    assert view.free[0] == 2 * UNIT


def later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Set the clock of the database's server forward."""
    from orchestrator.ledger.pool import claims as module

    now = module._now
    monkeypatch.setattr(module, "_now", lambda connection, ledger: now(connection, ledger) + seconds)


def test_a_quota_that_changes_while_a_driver_charges_its_owner_stays_changed(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver writes the row of the owner that it has read; `quota` writes in between."""
    from orchestrator.ledger.pool import claims as module

    set_owner(ledger, "ada", most_gpu_hours=100.0)
    own, charged = claims(ledger, "a"), module.charged
    changing = threading.Thread(target=set_owner, args=(ledger, "ada"), kwargs={"weight": 2 * UNIT})

    def interrupted(view: View, since: float | None) -> tuple[Owner, ...]:
        if not changing.ident:
            changing.start()
            changing.join(0.5)  # it waits for the driver if the row is locked
        return charged(view, since)

    monkeypatch.setattr(module, "charged", interrupted)
    assert own.renew(NODES, amounts(4)) is not None
    changing.join()
    owner = owners(ledger)["ada"]
    assert (owner.weight, owner.most_gpu_hours) == (2 * UNIT, 100.0)
    assert owner.charged_at is not None, "the driver has charged it, too"


@pytest.mark.slow_after(3)
@pytest.mark.parametrize("length", [240, 700])
def test_gpu_hours_count_to_the_second_however_short_a_sweep_is(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    """Sweeps of an owner run one after the other, alone in their pool, with 2 GPUs for most of the time."""
    nodes, began = [PoolNode("node", 4 * UNIT, 2 * UNIT)], time.monotonic()
    for number in range(3):
        own = gpu_claims(ledger, f"s-{number}")
        for second in range(0, length + 1, 10):
            held = 2 if second < length - 50 else 0
            assert own.renew(nodes, Amounts(4, held, 0, held * UNIT)) is not None
            later(monkeypatch, 10.0)
        assert own.withdraw() is not None
        assert not pools(ledger)
    used = owners(ledger)["ada"].week_gpu_seconds
    elapsed = time.monotonic() - began  # the clock of the server also goes on by itself
    assert 3 * 2 * (length - 50) - 6 <= used <= 3 * 2 * (length - 50) + 6 + 2 * elapsed


def test_the_last_gpus_of_a_sweep_are_charged_when_it_leaves(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others go on; a driver that was suspended for a day is charged for ten minutes."""
    nodes = [PoolNode("node", 4 * UNIT, 2 * UNIT)]
    own, other = gpu_claims(ledger, "a"), gpu_claims(ledger, "b", "bob")
    for held in (own, other):
        held.renew(nodes, Amounts(4, 1, 0, UNIT))
    later(monkeypatch, 20.0)
    other.renew(nodes, Amounts(4, 1, 0, UNIT))
    own.withdraw()
    assert owners(ledger)["ada"].week_gpu_seconds == pytest.approx(20, abs=2)
    later(monkeypatch, 86_400.0)
    other.renew(nodes, Amounts(4, 1, 0, UNIT))
    assert owners(ledger)["bob"].week_gpu_seconds == pytest.approx(620, abs=2)


def gpu_claims(ledger: Ledger, sweep: str, owner: str = "ada") -> Claims:
    """Return the claim of a driver of trials that take a GPU each."""
    claim = PoolClaim(sweep, owner, 0.0, UNIT, 1, want=0)
    return Claims(ledger, writer(ledger, sweep).token, "pool", claim)


def test_a_shortage_is_recorded_once_and_ends_with_the_share(ledger: Ledger) -> None:
    own, other = claims(ledger, "a"), claims(ledger, "b", "bob")
    other.renew(NODES, amounts(4))
    first = own.renew(NODES, amounts(0)).uses["a"].short_since  # type: ignore[union-attr]
    again = own.renew(NODES, amounts(1)).uses["a"].short_since  # type: ignore[union-attr]
    assert first is not None
    assert again == first
    assert own.renew(NODES, amounts(2)).uses["a"].short_since is None  # type: ignore[union-attr]


def test_places_and_holds_are_written_and_every_driver_reads_the_same(ledger: Ledger) -> None:
    """Each driver writes where its trials run; the one whose trial waits also writes the hold."""
    nodes = [PoolNode("n0", 2 * UNIT), PoolNode("n1", 2 * UNIT)]
    small = [claims(ledger, "a", "ada"), claims(ledger, "b", "bob")]
    for own, node in zip(small, nodes, strict=True):
        own.renew(nodes, amounts(1, want=1, places=(Place(node.name, 1, 0, 1),)))
    waits = PoolClaim("whole", "eve", 0.0, 2 * UNIT, 0, want=0)
    whole = Claims(ledger, writer(ledger, "whole").token, "pool", waits)
    seen = whole.renew(nodes, amounts(1, want=1, pending=1, waited=RULES.hold_after))
    assert seen is not None
    assert seen.holding.moves == {"a": {"n0": (1, 0)}}
    [hold] = seen.holding.by_node.values()
    assert (hold.sweep, hold.node, hold.since) == ("whole", "n0", seen.now)
    others = small[1].renew(nodes, amounts(1, want=1, places=(Place("n1", 1, 0, 1),)))
    assert others is not None
    assert others.holding == seen.holding == pools(ledger)["pool"].holding
    use = pools(ledger)["pool"].uses["whole"]
    assert (use.held_node, use.held_since) == ("n0", hold.since)
    whole.renew(nodes, amounts(1, want=1, places=(Place("n0", 1, 0, 0),)))
    use = pools(ledger)["pool"].uses["whole"]
    assert (use.held_node, use.held_since, use.places) == (None, None, (Place("n0", 1, 0, 0),))


def test_clusters_do_not_share_with_each_other(ledger: Ledger) -> None:
    claims(ledger, "a", pool="here").renew(NODES, amounts(4))
    elsewhere = claims(ledger, "b", pool="elsewhere").renew(NODES, amounts())
    assert elsewhere is not None
    assert elsewhere.claims.keys() == {"b"}
    assert pools(ledger).keys() == {"here", "elsewhere"}


def test_the_last_claim_of_a_pool_takes_the_pool_with_it(ledger: Ledger) -> None:
    first, second = claims(ledger, "a"), claims(ledger, "b")
    first.renew(NODES, amounts())
    second.renew(NODES, amounts())
    assert first.withdraw().claims.keys() == {"b"}  # type: ignore[union-attr]
    assert second.withdraw().claims == {}  # type: ignore[union-attr]
    assert pools(ledger) == {}


def test_what_dead_drivers_left_of_another_pool_is_removed_after_a_day(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims(ledger, "a", pool="gone").renew(NODES, amounts())
    later(monkeypatch, ABANDONED_SECONDS + 1)
    claims(ledger, "b", pool="here").renew(NODES, amounts())
    with ledger.reader() as connection:
        assert connection.exec_driver_sql("SELECT id FROM pool").all() == [("here",)]


def test_class_and_weight_hold_before_and_while_a_sweep_runs(ledger: Ledger) -> None:
    change_settings(ledger, "a", priority_class="idle", weight=2 * UNIT)
    own = claims(ledger, "a")
    claim = own.renew(NODES, amounts()).claims["a"]  # type: ignore[union-attr]
    assert (claim.priority_class, claim.weight) == ("idle", 2 * UNIT)
    change_settings(ledger, "a", priority_class="urgent", weight=UNIT)
    claim = own.renew(NODES, amounts()).claims["a"]  # type: ignore[union-attr]
    assert (claim.priority_class, claim.weight) == ("urgent", UNIT)
    assert pools(ledger)["pool"].claims["a"].priority_class == "urgent"


def test_changing_one_quota_keeps_the_others_and_the_past_use(ledger: Ledger) -> None:
    set_owner(ledger, "ada", weight=2 * UNIT)
    assert set_owner(ledger, "ada", most_gpu_hours=3.5) == Owner("ada", weight=2 * UNIT, most_gpu_hours=3.5)
    assert owners(ledger) == {"ada": Owner("ada", weight=2 * UNIT, most_gpu_hours=3.5)}


def test_past_use_is_charged_every_five_minutes(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    own = claims(ledger, "a")
    own.renew(NODES, amounts(2))
    assert owners(ledger)["ada"].used == 0
    later(monkeypatch, RULES.charge_every)
    own.renew(NODES, amounts(2))
    assert owners(ledger)["ada"].used == pytest.approx(2 * RULES.charge_every, rel=0.01)


def test_while_the_database_is_away_nothing_is_granted(
    postgres_server: postgres.Server, postgres_url: str
) -> None:
    ledger = Ledger.open(postgres_url)
    own = claims(ledger, "a")
    own.renew(NODES, amounts())
    postgres_server.stop()
    try:
        assert own.start(NODES, amounts()) is None
        assert own.renew(NODES, amounts()) is None
        assert own.withdraw() is None
    finally:
        postgres_server.start()
    assert own.start(NODES, amounts()) is not None
    ledger.close()


@pytest.mark.slow
def test_processes_that_are_killed_never_hold_more_than_the_pool_together(url: str, tmp_path: Path) -> None:
    """Six drivers take and give back for five seconds; two are killed and started again meanwhile."""
    ledger = Ledger.open(url)
    claims(ledger, "waiting", "dan").renew(NODES, amounts(want=0))
    logs = [tmp_path / f"{k}.log" for k in range(6)]
    running = [start(program("claiming_driver"), url, f"{k}-sweep", str(logs[k]), "5") for k in range(6)]
    time.sleep(3)
    for k in (0, 1):
        running[k].send_signal(signal.SIGKILL)
        running[k].communicate()
        running[k] = start(program("claiming_driver"), url, f"{k}-sweep", str(logs[k]), "3")
    for process in running:
        answer(process)
    grants = [json.loads(line) for log in logs if log.exists() for line in log.read_text().splitlines()]
    assert len(grants) > 6, "every driver starts something"
    assert all(used <= cores for used, cores in grants)
    ledger.close()
