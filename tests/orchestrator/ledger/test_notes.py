"""Notes of sweeps and trials: each change keeps what it does not name, and is audited with its author."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.errors import BadInput
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.people.audit import Asked, entries
from orchestrator.ledger.people.notes import (
    MOST_TAGS,
    NoteChange,
    change_note,
    note_of,
    notes_of_sweeps,
)
from orchestrator.ledger.people.user_records import Note


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with closing(Ledger.open(f"sqlite:///{tmp_path / 'sweeps.db'}")) as opened:
        yield opened


def change(ledger: Ledger, target: str, wanted: NoteChange, actor: str = "ada") -> Note:
    return change_note(ledger, "a-1", target, wanted, Asked(actor, "note", "a-1", wanted.detail()))


def test_a_change_keeps_what_it_does_not_name(ledger: Ledger) -> None:
    change(ledger, "a-1", NoteChange(text="A *baseline*", add=["paper", "odd"]))
    change(ledger, "a-1", NoteChange(remove=["odd", "unknown"], favourite=True), "bob")
    note = note_of(ledger, "a-1")
    assert note is not None
    assert (note.text, note.tags, note.favourite, note.author) == ("A *baseline*", ["paper"], True, "bob")
    cleared = change(ledger, "a-1", NoteChange(text="", favourite=False))
    assert (cleared.text, cleared.tags, cleared.favourite) == ("", ["paper"], False)


def test_a_list_of_sweeps_reads_no_note_of_a_trial(ledger: Ledger) -> None:
    change(ledger, "a-1-0", NoteChange(add=["odd"]))
    assert notes_of_sweeps(ledger) == {}
    sweep = change(ledger, "a-1", NoteChange(add=["paper"]))
    assert notes_of_sweeps(ledger) == {"a-1": sweep}


def test_the_audit_log_names_the_author_and_not_the_text(ledger: Ledger) -> None:
    change(ledger, "a-1", NoteChange(text="secret", add=["paper"]))
    [entry] = entries(ledger)
    assert (entry.actor, entry.action, entry.target) == ("ada", "note", "a-1")
    assert entry.detail == {"characters": 6, "add": ["paper"]}


def test_tags_are_bounded(ledger: Ledger) -> None:
    change(ledger, "a-1", NoteChange(add=[f"tag-{number}" for number in range(MOST_TAGS)]))
    with pytest.raises(BadInput, match=f"must have at most {MOST_TAGS} tags"):
        change(ledger, "a-1", NoteChange(add=["another"]))
    assert len(entries(ledger)) == 1
