"""When waiting sweeps are expected to start: the queue of a pool, played forward."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.sharing.forecast import MOST_ENDS, expected_shares, expected_starts
from orchestrator.sharing.pool_rows import RULES, UNIT, Owner, PoolClaim, PoolNode, Snapshot, Use
from orchestrator.sharing.view import View
from tests.orchestrator.sharing.worlds import cpu_claim, gpu_claim

NOW = 1_000_000.0


def pool(cores: int, *claims: PoolClaim, held: dict[str, int], owners: tuple[Owner, ...] = ()) -> View:
    """Return a pool of one node in which sweeps hold so many trials."""
    uses = tuple(Use(claim.sweep, NOW, held.get(claim.sweep, 0)) for claim in claims)
    return View.of(Snapshot((PoolNode("node", cores * UNIT),), owners, claims, uses), NOW)


def test_who_waits_for_a_share_starts_when_a_running_sweep_ends() -> None:
    first, second = cpu_claim("first", "ada", 4), cpu_claim("second", "bob", 4)
    view = pool(1, first, second, held={"first": 1})
    assert view.shares["second"].trials == 0
    assert expected_starts(view, {"first": 90.0}) == {"second": 90.0}
    assert expected_starts(view, {}) == {}, "nothing is known of the end of the first"


def test_a_share_that_others_still_hold_is_free_after_the_longest_time_of_the_rule() -> None:
    first, second = cpu_claim("first", "ada", 4), cpu_claim("second", "bob", 4)
    view = pool(2, first, second, held={"first": 2})
    longest = RULES.shed_after + RULES.min_run
    assert expected_starts(view, {}) == {"second": longest}
    short = replace(view.uses["second"], short_since=NOW - 20.0)
    assert expected_starts(replace(view, uses={**view.uses, "second": short}), {}) == {
        "second": longest - 20.0
    }
    assert expected_starts(pool(4, first, second, held={"first": 2}), {}) == {"second": 0.0}


def test_drivers_that_wait_for_a_place_start_in_their_order_as_others_end() -> None:
    running = [cpu_claim(f"r{k}", "ada", 1) for k in range(2)]
    view = pool(8, *running, held={"r0": 1, "r1": 1})
    waiting = [cpu_claim(f"w{k}", "bob", 1, created=float(k)) for k in range(3)]
    assert expected_starts(view, {"r0": 50.0, "r1": 20.0}, waiting, places=2) == {"w0": 20.0, "w1": 50.0}
    assert expected_starts(view, {}, waiting, places=3) == {"w0": 0.0}
    assert set(expected_starts(view, {}, waiting)) == {"w0", "w1", "w2"}


def test_the_newest_idle_driver_makes_room_in_the_forecast_too() -> None:
    idle = cpu_claim("idle", "ada", 8, priority_class="idle")
    view = pool(8, idle, held={"idle": 4})
    assert expected_starts(view, {}, [cpu_claim("new", "bob", 1)], places=1) == {"new": 0.0}
    later = cpu_claim("later", "bob", 1, priority_class="idle")
    assert expected_starts(view, {}, [later], places=1) == {}


def test_only_so_many_ends_are_played() -> None:
    running = [cpu_claim(f"r{k:03}", "ada", 1) for k in range(MOST_ENDS + 1)]
    view = pool(MOST_ENDS + 2, *running, held={claim.sweep: 1 for claim in running})
    waiting = [cpu_claim("new", "bob", 1, created=9.0)]
    left = {claim.sweep: float(k) for k, claim in enumerate(running)}
    assert expected_starts(view, left, waiting, places=2) == {"new": MOST_ENDS - 1.0}
    assert expected_starts(view, left, waiting, places=1) == {}, "one more must end first"


def test_the_prospects_of_waiting_sweeps_are_their_shares_once_they_claim() -> None:
    running, new = cpu_claim("running", "ada", 8), cpu_claim("new", "bob", 8, created=1.0)
    view = pool(4, running, held={"running": 4})
    assert expected_shares(view, [new]) == {"running": 2, "new": 2}
    assert expected_shares(view, [gpu_claim("large", "bob", 1)])["large"] is None, "no node has a GPU"
    assert expected_shares(pool(4, running, held={}, owners=(Owner("bob", most_share=0),)), [new])["new"] == 0
