"""Notes, tags and favourites of sweeps and trials, which users change at any time.

A note is a row, whether or not a driver runs. The process that delivers the events of its sweep to MLflow
delivers it too, and then records the revision that MLflow has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, RowMapping, bindparam, delete, insert, select

from orchestrator.errors import BadInput
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.people.audit import Asked
from orchestrator.ledger.people.user_records import Note
from orchestrator.ledger.row_backup import renewing
from orchestrator.ledger.tables import NOTE, SUBMISSION, SWEEP

MOST_CHARACTERS = 6_000
"""Largest length of a note, which MLflow keeps whole."""

MOST_TAGS = 50
"""Largest number of tags of a sweep or a trial."""

_TAG = re.compile(r"\w[\w.:/-]{0,63}")
_ONE = select(*NOTE.columns).where(NOTE.c.target == bindparam("target"))
_OF_SWEEPS = select(*NOTE.columns).where(NOTE.c.target == NOTE.c.sweep_id)
_PENDING = select(*NOTE.columns).where(NOTE.c.sweep_id == bindparam("sweep_id")).order_by(NOTE.c.target)
_FAVOURITES = select(NOTE.c.target).where(NOTE.c.sweep_id == bindparam("sweep_id"), NOTE.c.favourite)


@dataclass(frozen=True)
class NoteChange:
    """Changes of a note; what is None or empty stays as it is.

    Attributes:
        text: New text in Markdown; '' removes it.
        add: Tags to add.
        remove: Tags to remove; unknown ones are ignored.
        favourite: Whether it is a favourite.

    Raises:
        BadInput: Nothing is changed, the text is too long or has control characters, or a tag is not a word.
    """

    text: str | None = None
    add: Sequence[str] = ()
    remove: Sequence[str] = ()
    favourite: bool | None = None

    def __post_init__(self) -> None:
        if self.text is None and not self.add and not self.remove and self.favourite is None:
            remedy = "Give a text, a tag or a favourite."
            raise BadInput("note", "must change something", "", remedy)
        text = self.text or ""
        if len(text) > MOST_CHARACTERS:
            must = f"must have at most {MOST_CHARACTERS:,} characters"
            raise BadInput("note.text", must, f"{len(text):,}", "Shorten it, or link to a page.")
        if wrong := next((mark for mark in text if not (mark.isprintable() or mark in "\n\t")), None):
            must = "must consist of printable characters and line breaks"
            raise BadInput("note.text", must, ascii(wrong), "Remove this character.")
        for tag in (*self.add, *self.remove):
            if not _TAG.fullmatch(tag):
                must = "must be a word of at most 64 letters, digits and _ . : / -"
                raise BadInput("note.tag", must, repr(tag)[:80], "For example baseline or paper:table-2.")

    def detail(self) -> dict[str, Any]:
        """Return the change for the audit log, with the length of the text instead of the text."""
        characters = None if self.text is None else len(self.text)
        given = {"characters": characters, "favourite": self.favourite}
        lists = {"add": list(self.add), "remove": list(self.remove)}
        return {
            **{name: value for name, value in given.items() if value is not None},
            **{name: tags for name, tags in lists.items() if tags},
        }


@dataclass(frozen=True)
class PendingNote:
    """A note, its number of changes, and the number of those that MLflow has."""

    note: Note
    revision: int
    delivered: int = field(default=0)


def change_note(ledger: Ledger, sweep_id: str, target: str, change: NoteChange, asked: Asked) -> Note:
    """Change the note of a sweep or a trial, durably.

    Args:
        ledger: Ledger of the sweep.
        sweep_id: ID of the sweep.
        target: ID of the sweep, or key of one of its trials.
        change: The changes.
        asked: Entry for the audit log.

    Raises:
        BadInput: There would be more than `MOST_TAGS` tags.
    """

    def write(connection: Connection) -> Note:
        for column in (SUBMISSION.c.sweep_id, SWEEP.c.id):  # a first note has no row to lock
            connection.execute(select(column).where(column == sweep_id).with_for_update())
        row = connection.execute(_ONE, {"target": target}).mappings().one_or_none()
        now = ledger.now()
        old = Note(target, "", (), False, asked.actor, now) if row is None else _note(row)
        tags = sorted({*old.tags, *change.add} - set(change.remove))
        if len(tags) > MOST_TAGS:
            must, remedy = f"must have at most {MOST_TAGS} tags", "Remove some of them."
            raise BadInput(target, must, str(len(tags)), remedy)
        text = old.text if change.text is None else change.text
        favourite = old.favourite if change.favourite is None else change.favourite
        new = Note(target, text, tags, favourite, asked.actor, now)
        counts = {"revision": 1, "delivered": 0}
        if row is not None:
            counts = {"revision": row["revision"] + 1, "delivered": row["delivered"]}
            connection.execute(delete(NOTE).where(NOTE.c.target == target))
        values = {**vars(new), "tags": json.dumps(tags), "sweep_id": sweep_id, **counts}
        connection.execute(insert(NOTE).values(**values))
        asked.note(connection, now)
        return new

    with renewing(ledger, NOTE, target):
        return ledger.transact(write)


def note_of(ledger: Ledger, target: str) -> Note | None:
    """Return the note of a sweep or a trial, or None without one."""
    query = ledger.query(lambda connection: connection.execute(_ONE, {"target": target}).mappings().all())
    return _note(query[0]) if query else None


def notes_of_sweeps(ledger: Ledger) -> Mapping[str, Note]:
    """Return the notes of all sweeps, without those of trials, by sweep ID."""
    rows = ledger.query(lambda connection: connection.execute(_OF_SWEEPS).mappings().all())
    return {row["target"]: _note(row) for row in rows}


def favourite_trials(ledger: Ledger, sweep_id: str) -> frozenset[str]:
    """Return the keys of the trials of a sweep that users have marked."""
    values = {"sweep_id": sweep_id}
    rows = ledger.query(lambda connection: connection.execute(_FAVOURITES, values).scalars().all())
    return frozenset(rows) - {sweep_id}


def notes_to_deliver(ledger: Ledger, sweep_id: str) -> Sequence[PendingNote]:
    """Return the notes of a sweep and its trials, with what MLflow has of them."""
    values = {"sweep_id": sweep_id}
    rows = ledger.query(lambda connection: connection.execute(_PENDING, values).mappings().all())
    return [PendingNote(_note(row), row["revision"], row["delivered"]) for row in rows]


def _note(row: RowMapping) -> Note:
    tags = json.loads(row["tags"])
    return Note(row["target"], row["text"], tags, row["favourite"], row["author"], row["at"])
