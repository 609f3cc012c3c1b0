"""Ledgers that stay open between the requests of a service show what a newly opened ledger would show."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from orchestrator.api.workspace import MOST_KEPT, Workspace
from orchestrator.errors import BadInput, Damaged
from orchestrator.ledger.connect import database_file
from orchestrator.ledger.ledger import Ledger
from orchestrator.upkeep.recovery import recover
from tests import sweeps


@pytest.fixture
def workspace(url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Workspace:
    """A workspace whose ledger, on either database, has one sweep."""
    monkeypatch.setenv("SWEEP_LEDGER", url)
    ledger = Ledger.open(url)
    sweeps.fill(ledger, tmp_path)
    ledger.close()
    return Workspace.at(tmp_path)


def change(workspace: Workspace, *statements: str) -> None:
    """Change the ledger as another process does."""
    other = Ledger.open(workspace.paths.ledger_url)
    with other.writer() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
        connection.commit()
    other.close()


def test_blocks_in_turn_use_one_ledger_and_blocks_at_once_do_not(workspace: Workspace) -> None:
    with workspace.ledger() as first, workspace.ledger() as second:
        assert first is not second
    with workspace.ledger() as third:
        assert third not in (first, second), "nothing is kept outside of `keeping_ledgers`"
    with workspace.keeping_ledgers():
        with workspace.ledger() as outer, workspace.ledger() as inner:
            assert outer is not inner
        for _ in range(3):
            with workspace.ledger() as again:
                assert again in (outer, inner)
    with workspace.ledger() as after:
        assert after not in (outer, inner)


def test_a_kept_ledger_shows_the_changes_of_other_processes(workspace: Workspace) -> None:
    with workspace.keeping_ledgers():
        with workspace.ledger() as kept:
            assert len(kept.sweeps()) == 1
        change(workspace, "UPDATE sweep SET reason = 'changed'")
        with workspace.ledger() as again:
            assert again is kept
            with again.reader() as connection:
                assert connection.exec_driver_sql("SELECT reason FROM sweep").scalar_one() == "changed"


def test_a_ledger_of_a_later_version_is_refused(workspace: Workspace) -> None:
    with workspace.keeping_ledgers():
        with workspace.ledger():
            pass
        change(workspace, "UPDATE ledger_version SET version_num = '9999'")
        with pytest.raises(BadInput, match="version 9999"), workspace.ledger():
            pass


def test_another_ledger_at_the_same_address_is_opened(workspace: Workspace) -> None:
    with workspace.keeping_ledgers():
        with workspace.ledger() as first, workspace.ledger() as second:
            pass
        change(workspace, "UPDATE ledger SET id = 'another'")
        with workspace.ledger() as third, workspace.ledger() as fourth:
            assert not {id(first), id(second)} & {id(third), id(fourth)}
            assert third.id == fourth.id == "another"


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_recovered_file_is_read_at_once(workspace: Workspace, url: str) -> None:
    with workspace.keeping_ledgers():
        with workspace.ledger() as kept, kept.writer() as connection:
            connection.exec_driver_sql("UPDATE sweep SET reason = 'lost with the file'")
            connection.commit()
        recover(url)
        with workspace.ledger() as ledger, ledger.reader() as connection:
            assert connection.exec_driver_sql("SELECT reason FROM sweep").scalar_one() is None


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_missing_file_is_refused_as_by_a_newly_opened_ledger(workspace: Workspace) -> None:
    with workspace.keeping_ledgers():
        with workspace.ledger() as kept:
            file = database_file(kept.address)
        file.unlink()
        with pytest.raises(BadInput, match="does not exist"), workspace.ledger():
            pass
        with pytest.raises(Damaged, match="its backup is not"), workspace.ledger(create=True):
            pass


def test_few_unused_ledgers_stay_open(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[Ledger] = []
    close = Ledger.close
    monkeypatch.setattr(Ledger, "close", lambda ledger: (closed.append(ledger), close(ledger)))
    with workspace.keeping_ledgers():
        with ExitStack() as blocks:
            opened = [blocks.enter_context(workspace.ledger()) for _ in range(MOST_KEPT + 2)]
        assert len(closed) == 2
    assert {id(ledger) for ledger in closed} == {id(ledger) for ledger in opened}
