"""What machines a cluster has, and who uses them."""

from __future__ import annotations

from orchestrator.api.clusters import pool_of
from orchestrator.sharing.pool_rows import UNIT, PoolClaim, PoolNode, Snapshot, Use
from orchestrator.sharing.view import View


def test_a_pool_says_who_uses_which_machine() -> None:
    claims = tuple(
        PoolClaim(sweep, owner, created, UNIT, 0, want=3)
        for sweep, owner, created in (("a", "ada", 1.0), ("b", "bob", 2.0))
    )
    uses = (Use("a", 10.0, trials=2), Use("b", 10.0, trials=1))
    nodes = (PoolNode("n1", 2 * UNIT), PoolNode("n2", 2 * UNIT, UNIT))
    view = View.of(Snapshot(nodes, claims=claims, uses=uses), 10.0)
    pool = pool_of("p", view, {"a": {"host1": 2, None: 1}, "b": {"host2": 1}, "elsewhere": {"host1": 4}})
    assert (pool.cpu, pool.devices, pool.free_cpu, pool.free_devices) == (4.0, 1, 1.0, 1)
    assert [(use.sweep, use.owner, use.trials, use.wanted, use.share, use.cpu) for use in pool.uses] == [
        ("a", "ada", 2, 3, 2, 2.0),
        ("b", "bob", 1, 3, 2, 1.0),
    ]
    assert {node.name: sum(node.shares.values()) for node in pool.nodes} == {"n1": 2, "n2": 2}
    assert pool.running == {"host1": {"a": 2}, "host2": {"b": 1}}, "of this pool alone"
