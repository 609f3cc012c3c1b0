"""A ledger of the previous version is upgraded without losing a row, and so is its backup.

`version_0002.json` holds the rows of a complete trial and a running one before revision 0003.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import column, insert, table

from orchestrator.ledger.connect import WRITING, connect, parse
from orchestrator.ledger.integrity import verify
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.records import EvaluationRecord
from orchestrator.ledger.schema import MIGRATIONS
from orchestrator.ledger.scores import pack
from orchestrator.ledger.stop_requests import asked_to_stop
from orchestrator.upkeep.recovery import recover
from tests.orchestrator.ledger.examples import SWEEP_ID, complete, everything, writer

EARLIER = json.loads(Path(__file__).with_name("version_0002.json").read_text())


@pytest.fixture
def earlier_url(url: str) -> str:
    """Return the address of a ledger that the earlier version wrote."""
    engine = connect(parse(url))
    with engine.connect().execution_options(**{WRITING: True}) as connection, connection.begin():
        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS))
        config.attributes["connection"] = connection
        command.upgrade(config, "0002")
        for name, rows in EARLIER["rows"].items():
            values = [_typed(name, row) for row in rows]
            columns = map(column, values[0])
            connection.execute(insert(table(name, *columns)), values)
    engine.dispose()
    if url.startswith("sqlite"):
        log = Path(url.removeprefix("sqlite:///")).with_suffix(".backup") / f"{SWEEP_ID}.log"
        log.parent.mkdir()
        log.write_text("".join(f"{line}\n" for line in EARLIER["log"]))
    return url


def _typed(name: str, row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with the types of both databases; the database itself numbers the events."""
    if name != "outbox":
        return row
    return {key: bool(value) if key == "delivered" else value for key, value in row.items() if key != "seq"}


def test_every_row_of_an_earlier_ledger_is_kept(earlier_url: str) -> None:
    """All records are unchanged, including a pending stop request, and every digest still matches."""
    ledger = Ledger.open(earlier_url)
    _assert_kept(ledger)
    assert asked_to_stop(ledger, SWEEP_ID) == "node-1"
    assert verify(ledger, SWEEP_ID) == []
    complete(ledger, 2)
    assert verify(ledger, SWEEP_ID) == []
    ledger.close()


def test_the_backup_of_an_earlier_ledger_rebuilds_it(earlier_url: str) -> None:
    """A log that begins with rows of the earlier version and continues with rows of this one is replayed."""
    if not earlier_url.startswith("sqlite"):
        pytest.skip("only SQLite has a backup")
    recover(earlier_url)
    ledger = Ledger.open(earlier_url)
    _assert_kept(ledger)
    evaluation = EvaluationRecord(
        complete(ledger, 2), 30, "test", {"test/accuracy": 0.5}, 9e9, pack([1.0, 0.0])
    )
    writer(ledger).add_evaluation(evaluation)
    assert ledger.evaluations(SWEEP_ID)[-1] == evaluation
    kept, identity = everything(ledger), ledger.id
    ledger.close()
    recover(earlier_url)
    ledger = Ledger.open(earlier_url)
    assert everything(ledger) == kept
    assert ledger.id == identity
    ledger.close()


def test_a_ledger_keeps_its_unique_id(tmp_path: Path) -> None:
    """The id keeps the files of two ledgers apart in one store, so a rebuilt ledger must have its own."""
    first, second, again = (Ledger.open(f"sqlite:///{tmp_path / name}.db") for name in "aba")
    assert first.id != second.id
    assert first.id == again.id


def _assert_kept(ledger: Ledger) -> None:
    stored = EARLIER["rows"]
    assert [trial.state for trial in ledger.trials(SWEEP_ID)] == ["COMPLETE", "RUNNING"]
    assert [attempt.taken_at for attempt in ledger.attempts(SWEEP_ID)] == [None, None]
    assert len(ledger.reports(SWEEP_ID)) == len(stored["report"])
    assert ledger.last_report_at(SWEEP_ID) == max(row["at"] for row in stored["report"])
    assert len(ledger.checkpoints(SWEEP_ID)) == len(stored["checkpoint"])
    (evaluation,) = ledger.evaluations(SWEEP_ID)
    assert (evaluation.metrics, evaluation.scores) == ({"test/accuracy": 0.9}, None)
    assert ledger.backlog(SWEEP_ID) == sum(not row["delivered"] for row in stored["outbox"])
