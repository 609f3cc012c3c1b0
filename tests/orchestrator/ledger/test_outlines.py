"""Outlines hold what the whole rows hold, on either database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.people.audit import Asked
from orchestrator.ledger.people.notes import NoteChange, change_note
from orchestrator.ledger.sweeps.records import sweep_id_of
from tests import sweeps


@pytest.fixture
def ledger(url: str, tmp_path: Path) -> Iterator[Ledger]:
    with closing(Ledger.open(url)) as opened:
        sweeps.fill(opened, tmp_path)
        yield opened


def test_outlines_are_parts_of_the_records(ledger: Ledger) -> None:
    trials, attempts = ledger.trials(sweeps.SWEEP_ID), ledger.attempts(sweeps.SWEEP_ID)
    outlines, spans = ledger.trial_outlines(sweeps.SWEEP_ID), ledger.attempt_outlines(sweeps.SWEEP_ID)
    assert [each._asdict() for each in outlines] == [
        {name: getattr(trial, name) for name in outlines[0]._fields} for trial in trials
    ]
    assert sorted(spans) == sorted(
        tuple(getattr(attempt, name) for name in spans[0]._fields) for attempt in attempts
    )
    together = ledger.outlines([sweeps.SWEEP_ID, "no-sweep"])
    assert together["no-sweep"] == ([], [], 0)
    assert together[sweeps.SWEEP_ID].trials == outlines
    assert sorted(together[sweeps.SWEEP_ID].attempts) == sorted(spans)


def test_sweeps_read_together_have_the_backlog_of_each(ledger: Ledger) -> None:
    """Events, reports and notes wait for MLflow, of two sweeps in one ledger."""
    key = sweeps.fill_script(ledger)
    change_note(ledger, sweep_id_of(key), key, NoteChange("good"), Asked("ada", "note", key))
    ids = [sweeps.SWEEP_ID, sweep_id_of(key)]
    together = ledger.outlines(ids)
    assert [together[sweep_id].backlog for sweep_id in ids] == [ledger.backlog(each) for each in ids]
    assert ledger.backlog(ids[0]) > ledger.backlog(ids[1]) > 0


def test_last_reports_are_the_last_of_each_trial(ledger: Ledger) -> None:
    keys = [trial.key for trial in ledger.trials(sweeps.SWEEP_ID)]
    expected = {key: ledger.recent_reports(key, 1)[-1] for key in keys}
    assert ledger.last_reports(keys) == expected
    assert ledger.last_reports([]) == {}
