"""The queue of a ledger, and what changes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator import BadInput, move, queue, quota
from orchestrator.api import user_admin
from orchestrator.cli.app import run_command
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.pool.claims import Amounts, Claims, owners, pools
from orchestrator.sharing.pool_rows import MOST_SWEEPS, UNIT, Owner, PoolClaim, PoolNode
from tests import sweeps as examples
from tests.orchestrator.ledger.examples import writer

NODES = [PoolNode("node", 4 * UNIT)]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a root whose ledger holds a sweep, which runs four trials, and claims of two that wait."""
    paths = examples.filled(tmp_path / "mlruns")
    ledger = Ledger.open(paths.ledger_url)
    for sweep, owner, trials in ((examples.SWEEP_ID, "ada", 4), ("later", "bob", 0), ("last", "cyd", 0)):
        claim = PoolClaim(sweep, owner, float(sweep == "last"), UNIT, 0, want=0)
        Claims(ledger, writer(ledger, sweep).token, "pool", claim).renew(NODES, Amounts(4, trials, 0, 0))
    ledger.close()
    return paths.root


def test_the_queue_names_shares_positions_and_reasons(root: Path) -> None:
    running, first, second = queue(root=root)
    assert (running.sweep, running.position, running.running, running.why) == (
        examples.SWEEP_ID,
        None,
        4,
        None,
    )
    assert (first.sweep, first.position, first.share, first.wanted) == ("later", 1, 1, 4)
    assert first.why == "its share of 1 trial is still held by 2 other sweeps"
    assert second.position == 2


def test_without_a_ledger_there_is_no_queue(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="does not exist"):
        queue(root=tmp_path)


def test_a_moved_sweep_has_another_place(root: Path) -> None:
    assert move("retrieval", "idle", weight=2, root=root) == (examples.SWEEP_ID, "idle")
    assert queue(root=root)[0].priority_class == "idle"
    assert queue(root=root)[0].share == 0, "the two others want all four places"


def test_urgent_is_granted_by_an_admin_where_the_ledger_has_users(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWEEP_OWNER", "ada")
    assert move("retrieval", "urgent", root=root)[1] == "urgent", "without users, everybody may"
    user_admin.add("bob", "admin", root=root)
    user_admin.add("ada", "member", root=root)
    with pytest.raises(BadInput, match=r"requires an admin \(got ada, a member\).*bob"):
        move("retrieval", "urgent", root=root)
    assert move("retrieval", "normal", root=root)[1] == "normal"
    monkeypatch.setenv("SWEEP_OWNER", "cyd")
    with pytest.raises(BadInput, match="got cyd, not a user"):
        move("retrieval", "urgent", root=root)
    monkeypatch.setenv("SWEEP_OWNER", "bob")
    assert move("retrieval", "urgent", root=root)[1] == "urgent"
    user_admin.revoke("bob", root=root)
    with pytest.raises(BadInput, match="got bob, not a user"):
        move("retrieval", "urgent", root=root)


def test_an_owner_whom_nothing_knows_is_refused(root: Path) -> None:
    """A mistyped name would get a quota that holds for nobody."""
    with pytest.raises(
        BadInput, match=r"is neither a user nor the owner of a sweep \(got 'adaa'\). Did you mean ada\?"
    ):
        quota("adaa", share=0.5, root=root)
    with pytest.raises(BadInput, match="is neither a user"):
        quota("adaa", root=root)
    ledger = Ledger.open(f"sqlite:///{root}/sweeps.db")
    before = owners(ledger)
    user_admin.add("bob", root=root)
    assert quota("bob", root=root) == Owner("bob")
    assert owners(ledger) == before, "to look writes nothing"
    assert quota("adaa", share=0.5, new=True, root=root).most_share == UNIT // 2
    assert quota("adaa", root=root).most_share == UNIT // 2
    ledger.close()


def test_quotas_change_one_at_a_time(root: Path) -> None:
    quota("ada", weight=2, share=0.25, gpu_hours=10, sweeps=4, root=root)
    assert quota("ada", gpu_hours=float("inf"), root=root).most_share == UNIT // 4
    assert quota("ada", root=root).most_sweeps == 4
    assert quota("ada", sweeps=float("inf"), root=root).most_sweeps is None
    with_ledger = Ledger.open(f"sqlite:///{root}/sweeps.db")
    assert owners(with_ledger)["ada"].weight == 2 * UNIT
    assert pools(with_ledger)["pool"].shares[examples.SWEEP_ID].trials == 1
    with_ledger.close()


@pytest.mark.parametrize(
    "changes",
    [
        {"weight": 0},
        {"share": 1.5},
        {"share": -0.1},
        {"gpu_hours": float("nan")},
        {"sweeps": 1.5},
        {"sweeps": -1},
        {"sweeps": float("nan")},
    ],
)
def test_a_number_out_of_its_range_is_refused(root: Path, changes: dict[str, float]) -> None:
    with pytest.raises(BadInput):
        quota("ada", **changes, root=root)
    assert quota("ada", root=root) == owners_default(root)


def owners_default(root: Path) -> Owner:
    ledger = Ledger.open(f"sqlite:///{root}/sweeps.db")
    row = owners(ledger)["ada"]
    ledger.close()
    assert (row.weight, row.most_share, row.most_gpu_hours, row.most_sweeps) == (
        UNIT,
        UNIT,
        None,
        MOST_SWEEPS,
    )
    return row


def test_another_class_is_refused(root: Path) -> None:
    with pytest.raises(BadInput, match="must be one of urgent, normal, idle"):
        move("retrieval", "important", root=root)


def test_the_verbs_print_what_the_api_answers(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["move", "retrieval", "urgent", "--root", str(root)]) == 0
    assert run_command(["quota", "ada", "--share", "0.5", "--sweeps", "3", "--root", str(root)]) == 0
    assert run_command(["queue", "--root", str(root)]) == 0
    printed = capsys.readouterr().out
    assert f"{examples.SWEEP_ID}: class urgent, weight 1" in printed
    quotas = "at most 50% of a cluster, no limit of GPU-hours a week (0.0 used), 3 sweeps at once"
    assert f"ada: weight 1, {quotas}" in printed
    assert printed.count("urgent") == 2, "once of `move`, and once in the table"


def test_what_is_asked_for_by_command_is_in_the_audit_log(root: Path) -> None:
    move(examples.SWEEP_ID, "idle", weight=2.0, root=root)
    quota("ada", share=0.5, sweeps=float("inf"), root=root)
    quota("ada", root=root)  # only shows them
    told = [
        (entry.actor, entry.action, entry.target, entry.detail) for entry in user_admin.audit_log(root=root)
    ]
    assert told == [
        ("command line", "quota", "ada", {"share": 0.5, "sweeps": "inf"}),
        ("command line", "priority", examples.SWEEP_ID, {"priority_class": "idle", "weight": 2.0}),
    ]
