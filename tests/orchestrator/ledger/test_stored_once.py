"""The metrics of a report are stored once, and read with each checkpoint of its step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.ledger.backup import backup_file
from orchestrator.ledger.integrity import verify
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.sweeps.records import CheckpointRecord
from orchestrator.ledger.sweeps.writer import SweepWriter
from orchestrator.ledger.tables import METADATA
from tests.orchestrator.ledger.examples import SWEEP_ID, create_sweep, saved, trial_record, writer

METRICS = {"val/accuracy": 0.123456789, "val/loss": 0.987654321}
KINDS: tuple[Any, ...] = ("last", "best")


@pytest.fixture
def started(ledger: Ledger) -> tuple[SweepWriter, str, str]:
    """Return a writer in a ledger of either kind, a trial, and its attempt."""
    create_sweep(ledger)
    write, trial = writer(ledger), trial_record()
    write.add_trial(trial)
    return write, trial.key, write.start_attempt(trial.key).id


def checkpoints(key: str, metrics: Mapping[str, float]) -> list[CheckpointRecord]:
    return [replace(saved(key, 10, kind), metrics=metrics) for kind in KINDS]


def stored(ledger: Ledger) -> str:
    """Return everything that the tables and the backup hold, as text."""
    with ledger.reader() as connection:
        rows = [list(connection.execute(table.select())) for table in METADATA.sorted_tables]
    log = backup_file(ledger.address, SWEEP_ID).read_text() if ledger.is_file else ""
    return f"{rows}\n{log}"


def test_a_metric_is_in_one_row_and_in_one_place_of_the_backup(started: tuple[SweepWriter, str, str]) -> None:
    write, key, attempt = started
    write.record_report(attempt, 10, METRICS, checkpoints(key, METRICS))
    copies = 2 if write.ledger.is_file else 1
    assert [stored(write.ledger).count(str(value)) for value in METRICS.values()] == [copies, copies]
    for rows in (write.ledger.trial_checkpoints(key), write.ledger.checkpoints(SWEEP_ID)):
        assert [(row.kind, row.metrics) for row in rows] == [("best", METRICS), ("last", METRICS)]
    assert [row.metrics for row in write.ledger.best_of_unfinished(SWEEP_ID)] == [METRICS]
    assert verify(write.ledger, SWEEP_ID) == []


def test_a_checkpoint_of_a_repeated_step_has_its_own_metrics(started: tuple[SweepWriter, str, str]) -> None:
    """The first report of a step stands, and a later attempt may have come to it with other metrics."""
    write, key, attempt = started
    other = {**METRICS, "val/loss": 0.5}
    write.record_report(attempt, 10, METRICS)
    write.record_report(attempt, 10, other, checkpoints(key, other))
    assert [row.metrics for row in write.ledger.trial_reports(key)] == [METRICS]
    assert [row.metrics for row in write.ledger.trial_checkpoints(key)] == [other, other]
    write.record_report(attempt, 10, METRICS, checkpoints(key, METRICS))
    assert [row.metrics for row in write.ledger.trial_checkpoints(key)] == [METRICS, METRICS]


def test_a_checkpoint_between_two_reports_has_no_metrics(started: tuple[SweepWriter, str, str]) -> None:
    write, key, attempt = started
    write.record_report(attempt, 5, METRICS)
    write.record_report(attempt, 10, {}, checkpoints(key, {}))
    assert [row.metrics for row in write.ledger.trial_checkpoints(key)] == [{}, {}]
