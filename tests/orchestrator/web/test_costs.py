"""What a request reads does not grow with the number of trials; statements and rows are counted."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Table
from sqlalchemy import event as listener
from sqlalchemy.pool import Pool

from orchestrator import status
from orchestrator import sweeps as listed
from orchestrator.ledger import rows
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.rows import ATTEMPTS, REPORTS, TRIALS
from orchestrator.ledger.transaction import Transaction
from orchestrator.web.read_cache import FRESH_SECONDS
from tests import sweeps
from tests.orchestrator.web import server
from tests.orchestrator.web.server import Client

MORE = 300


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with server.served(tmp_path / "mlruns") as served:
        yield served


@pytest.fixture
def statements() -> Iterator[list[str]]:
    """The statements that SQLite executes for this process."""
    seen: list[str] = []

    def listen(connection: Any, *_: Any) -> None:
        connection.set_trace_callback(seen.append)

    listener.listen(Pool, "checkout", listen)
    yield seen
    listener.remove(Pool, "checkout", listen)


@pytest.fixture
def whole_rows(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The table of each row that is read whole, compared with its digest and decoded."""
    seen: list[str] = []
    verified = rows.checked_batches

    def checked_batches(table: Table, read: Iterable[Sequence[Any]]) -> Iterator[list[Sequence[Any]]]:
        for batch in verified(table, read):
            seen.extend(table.name for _ in batch)
            yield batch

    monkeypatch.setattr(rows, "checked_batches", checked_batches)
    return seen


def add(ledger: Ledger) -> None:
    """Add `MORE` ended trials, each with an attempt and a curve."""
    few = len(sweeps.trials())
    records = [sweeps.trial(few + n, ("COMPLETE", "PRUNED", "FAILED")[n % 3]) for n in range(MORE)]

    def write(tx: Transaction) -> None:
        tx.sweep_id = sweeps.SWEEP_ID
        tx.insert(TRIALS, *records)
        tx.insert(ATTEMPTS, *sweeps.attempts(records))
        tx.insert(REPORTS, *(report for record in records for report in sweeps.reports(record)))

    ledger.write(write, sweeps.writer_of(ledger).token)


def test_the_status_reads_as_many_whole_rows_of_many_trials_as_of_few(
    tmp_path: Path, whole_rows: list[str]
) -> None:
    """A status of 10,000 trials would take a second: of a trial that is not shown, it reads an outline."""
    paths = sweeps.filled(tmp_path / "mlruns")

    def read() -> tuple[list[str], int]:
        whole_rows.clear()
        now, [row] = status(root=paths.root), listed(root=paths.root)
        assert now.trials == row.trials
        return sorted(whole_rows), sum(now.trials.values())

    few, number = read()
    with closing(Ledger.open(paths.ledger_url)) as ledger:
        add(ledger)
    many, of_many = read()
    assert (of_many - number, many) == (MORE, few)
    assert few.count("trial") == 2, "the best one, which is the chosen one, of the status and of the list"


def test_a_page_of_many_trials_takes_as_many_statements_as_one_of_few(
    client: Client, statements: list[str]
) -> None:
    with client.workspace.ledger() as ledger:
        add(ledger)
    path = f"/sweeps/{sweeps.SWEEP_ID}/trials?sort=rank"
    client.get(path)  # the table of all trials is kept while nothing changes

    def taken(limit: int) -> tuple[int, int]:
        statements.clear()
        shown = client.get(f"{path}&limit={limit}")["trials"]
        selects = [each for each in statements if each.startswith("SELECT") and "report" in each]
        assert all(row["last"] == sweeps.accuracy(row["number"], row["step"]) for row in shown)
        return len(selects), len(shown)

    assert (taken(1), taken(MORE)) == ((1, 1), (1, MORE))


@pytest.mark.slow
def test_the_status_of_a_settled_sweep_is_read_again_after_a_change_only(
    client: Client, whole_rows: list[str]
) -> None:
    """An open page asks for it every second."""
    path = f"/sweeps/{sweeps.SWEEP_ID}"
    before = client.get(path)
    whole_rows.clear()
    time.sleep(1.1 * FRESH_SECONDS)
    assert client.get(path) == before
    assert whole_rows.count("trial") == 0
    with client.workspace.ledger() as ledger:
        add(ledger)
    time.sleep(1.1 * FRESH_SECONDS)
    assert sum(client.get(path)["trials"].values()) == MORE + sum(before["trials"].values())
