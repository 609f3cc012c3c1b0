"""Conversion between records and rows: JSON in text columns, and a digest over every row.

SQLite keeps no checksums of its pages, so a flipped bit would be read as a value. Each row therefore carries
a digest of its own columns, which is computed when the row is written and compared whenever it is read.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, cached_property, partial
from itertools import chain, islice
from operator import itemgetter
from typing import Any, Generic, TypeVar, cast

from sqlalchemy import Boolean, Float, Table

from orchestrator.errors import Damaged
from orchestrator.ledger.connect import RECOVER
from orchestrator.ledger.records import (
    STATES,
    AttemptRecord,
    CheckpointRecord,
    CurvePoint,
    EvaluationRecord,
    MlflowRunRecord,
    ReportRecord,
    SweepRecord,
    TrialRecord,
)
from orchestrator.ledger.tables import ATTEMPT, CHECKPOINT, EVALUATION, MLFLOW_RUN, REPORT, SWEEP, TRIAL

Record = TypeVar("Record")

JSON_COLUMNS = frozenset({"document", "facts", "params", "system_attrs", "metrics", "payload"})
# `seq` is assigned by the database after the digest is computed, so it is not part of the digest.
UNDIGESTED = frozenset({"row_digest", "seq"})
BATCH = 256
"""Rows that are compared with their digests at a time."""

DIGEST_MODULUS = 1 << 62  # the sum of two digests still fits a signed column


@dataclass(frozen=True)
class Codec(Generic[Record]):
    """The conversion between one kind of record and the rows of its table."""

    record: type[Record]
    table: Table

    def encode(self, record: Record) -> dict[str, Any]:
        """Return the row of a record, including its digest.

        Raises:
            ValueError: the record has no legal state.
        """
        self._check_state(record)
        values = {field.name: getattr(record, field.name) for field in fields(self.record)}  # type: ignore[arg-type]
        return sealed(self.table, values)

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the names of the columns, in order."""
        return _columns(self.table)

    def changed(self, row: Mapping[str, Any], new: Record, names: Iterable[str]) -> dict[str, Any]:
        """Return a stored row with the named fields taken from a new record, and the row's new digest."""
        self._check_state(new)
        floats = _floats(self.table)
        columns = {name: _plain(name, getattr(new, name), name in floats) for name in names}
        return _with_digest(self.table, {**row, **columns})

    def decode(self, row: Sequence[Any]) -> Record:
        """Return the record of a row, which must hold all columns of the table in order.

        Raises:
            Damaged: the row does not match its digest.
        """
        (record,) = self.decoded([row])
        return record

    def decoded(self, rows: Iterable[Sequence[Any]]) -> Iterator[Record]:
        """Yield the records of rows, each of which must hold all columns of the table in order.

        Raises:
            Damaged: a row does not match its digest.
        """
        build, (fields_at, json_at) = self.record, self._fields_at
        for row in checked(self.table, rows):
            values = list(fields_at(row))
            for index in json_at:
                values[index] = json.loads(values[index])
            yield build(*values)

    @cached_property
    def _fields_at(self) -> tuple[Callable[[Sequence[Any]], tuple[Any, ...]], list[int]]:
        """What picks the fields of a record, in order, from a row; and which of the fields are JSON."""
        names = [field.name for field in fields(self.record)]  # type: ignore[arg-type]
        json_at = [index for index, name in enumerate(names) if name in JSON_COLUMNS]
        return itemgetter(*(self.columns.index(name) for name in names)), json_at

    def _check_state(self, record: Record) -> None:
        legal = STATES.get(self.record.__name__)
        if legal is not None and record.state not in legal:  # type: ignore[attr-defined]
            raise ValueError(f"{record} must have one of the states {sorted(legal)}")


def curve_points(rows: Sequence[Sequence[Any]], names: Sequence[str]) -> Iterator[CurvePoint]:
    """Return the named metrics of rows of reports that were compared with their digests."""
    keys, steps, _, texts, times, _ = zip(*rows, strict=True)
    columns = [_numbers(texts, name) for name in names]
    if all(len(column) == len(rows) for column in columns):
        values: list[dict[str, float]] = [{} for _ in rows]
        for name, column in zip(names, columns, strict=True):
            for metrics, number in zip(values, column, strict=True):
                metrics[name] = number
    else:
        values = [{name: number for name in names for number in _numbers([text], name)} for text in texts]
    return map(_new_point, zip(keys, steps, values, times, strict=True))


_new_point = cast(Callable[[tuple[Any, ...]], CurvePoint], partial(tuple.__new__, CurvePoint))
"""Returns a point of its fields. `CurvePoint(...)` takes four times as long: it is a function in Python."""


def _numbers(texts: Iterable[str], name: str) -> list[float]:
    """Return the numbers that JSON objects have by a name; one without it is left out."""
    return list(map(float, _pattern(name).findall("\n".join(texts))))


@cache
def _pattern(name: str) -> re.Pattern[str]:
    key = f"{re.escape(json.dumps(name))}:"
    # In a longer name that ends like this one, a backslash precedes the quotation mark. A pattern that begins
    # with plain text is found four times as fast.
    return re.compile(f"{key}(?<=[{{,]{key})([^,}}]*)")


def sealed(table: Table, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return `values` as columns of `table`, with the row's digest."""
    floats = _floats(table)
    return _with_digest(table, {name: _plain(name, value, name in floats) for name, value in values.items()})


def opened(table: Table, row: Sequence[Any]) -> dict[str, Any]:
    """Verify a selected row of `table` and return its values without the digest.

    Raises:
        Damaged: the row does not match its digest.
    """
    values = verified(table, row)
    del values["row_digest"]
    for name in _json(table):
        values[name] = json.loads(values[name])
    return values


def verified(table: Table, row: Sequence[Any]) -> dict[str, Any]:
    """Verify a selected row of `table` and return its columns as they are stored.

    Raises:
        Damaged: the row does not match its digest.
    """
    (same,) = checked(table, [row])
    return dict(zip(_columns(table), same, strict=True))


def checked(table: Table, rows: Iterable[Sequence[Any]]) -> Iterator[Sequence[Any]]:
    """Yield selected rows of `table`, each as it is stored, once it has been compared with its digest.

    Raises:
        Damaged: a row does not match its digest.
    """
    return chain.from_iterable(checked_batches(table, rows))


def checked_batches(table: Table, rows: Iterable[Sequence[Any]]) -> Iterator[list[Sequence[Any]]]:
    """Yield selected rows of `table` in lists, once they have been compared with their digests.

    Raises:
        Damaged: a row does not match its digest.
    """
    layout, remaining = _layout(table), iter(rows)
    while batch := list(islice(remaining, BATCH)):
        if layout.booleans_at:  # which SQLite returns as 0 or 1
            batch = [layout.with_booleans(row) for row in batch]
        digests = _digests(layout.texts(batch))
        if digests != [row[-1] for row in batch]:
            damaged = next(row for row, digest in zip(batch, digests, strict=True) if digest != row[-1])
            raise damaged_row(table, dict(zip(_columns(table), damaged, strict=True)))
        yield batch


def row_digest(table: Table, row: Mapping[str, Any]) -> int:
    """Return the digest of a row's columns, below `DIGEST_MODULUS`."""
    layout = _layout(table)
    fields = layout.named(row)
    if layout.later_at:
        fields = (*fields, _later_text((name, row[name]) for name, _ in layout.later_at))
    return _digests([layout.content % fields])[0]


def _later_text(columns: Iterable[tuple[str, Any]]) -> str:
    """Return the part of a digested text for the columns that rows of an earlier version lack."""
    return "".join(f", {column!r}" for column in columns if column[1] is not None)


def _digests(texts: Iterable[str]) -> list[int]:
    contents = [text.encode("utf-8", "backslashreplace") for text in texts]
    digests = [hashlib.blake2b(content, digest_size=8).digest() for content in contents]
    return [number % DIGEST_MODULUS for number in struct.unpack(f">{len(digests)}Q", b"".join(digests))]


def damaged_row(table: Table, values: Mapping[str, Any]) -> Damaged:
    """Return the refusal for a damaged row, which names its table and primary key."""
    key = ", ".join(f"{column.name}={values[column.name]!r}" for column in table.primary_key)
    return Damaged(
        f"ledger table {table.name}, row {key}",
        "a row must match the digest written with it",
        "other content",
        RECOVER,
    )


def _with_digest(table: Table, row: dict[str, Any]) -> dict[str, Any]:
    row["row_digest"] = row_digest(table, row)
    return row


def to_json(value: Mapping[str, Any]) -> str:
    """Return one canonical line of ASCII JSON; non-finite numbers are written as Python writes them."""
    return _CANONICAL.encode(value)


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


@cache
def _columns(table: Table) -> tuple[str, ...]:
    return tuple(column.name for column in table.columns)


@cache
def later_columns(table: Table) -> tuple[str, ...]:
    """Return the names of the columns that rows of an earlier version of `table` lack."""
    return tuple(column.name for column in table.columns if column.info.get("later"))


@dataclass(frozen=True)
class _Layout:
    """Where a row of a table has what its digest and its record consist of; the digest is the last column.

    Attributes:
        content: format of the digested text: a list of all columns but later ones, and what follows of those.
        named: returns the columns of the list of a row by name.
        at: returns the columns of the list of a row by position.
        later_at: name and position of each column that rows of an earlier version lack.
        booleans_at: positions of the boolean columns.
    """

    content: str
    named: Callable[[Mapping[str, Any]], tuple[Any, ...]]
    at: Callable[[Sequence[Any]], tuple[Any, ...]]
    later_at: tuple[tuple[str, int], ...]
    booleans_at: frozenset[int]

    def texts(self, rows: Sequence[Sequence[Any]]) -> list[str]:
        """Return the digested text of each row."""
        content, at = self.content, self.at
        if not self.later_at:
            return [content % at(row) for row in rows]
        later = [[(name, row[place]) for name, place in self.later_at] for row in rows]
        return [content % (*at(row), _later_text(columns)) for row, columns in zip(rows, later, strict=True)]

    def with_booleans(self, row: Sequence[Any]) -> tuple[Any, ...]:
        """Return a row whose boolean columns are no numbers."""
        return tuple(bool(value) if at in self.booleans_at else value for at, value in enumerate(row))


@cache
def _layout(table: Table) -> _Layout:
    columns, later = _columns(table), later_columns(table)
    assert columns[-1] == "row_digest", f"the digest is the last column of {table.name}"
    names = [name for name in columns if name not in {*UNDIGESTED, *later}]
    # The text is `repr((table, [column, ...]))`, for which a format with all columns is faster than a list.
    digested_as = table.info.get("digested_as", table.name)
    return _Layout(
        f"({digested_as!r}, [{', '.join(['%r'] * len(names))}{'%s' if later else ''}])",
        itemgetter(*names),
        itemgetter(*(columns.index(name) for name in names)),
        tuple((name, columns.index(name)) for name in later),
        frozenset(columns.index(column.name) for column in table.columns if isinstance(column.type, Boolean)),
    )


@cache
def _json(table: Table) -> tuple[str, ...]:
    return tuple(name for name in _columns(table) if name in JSON_COLUMNS)


@cache
def _floats(table: Table) -> frozenset[str]:
    return frozenset(column.name for column in table.columns if isinstance(column.type, Float))


def storable(text: str) -> str:
    """Return text as PostgreSQL stores it: the output of a dying process may hold NUL and lone surrogates."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")


def _plain(name: str, value: Any, is_float: bool) -> Any:
    if name in JSON_COLUMNS:
        return to_json(value)
    if isinstance(value, str):
        return storable(value)
    # SQLite returns 0.0 for -0.0, which the sum is too: the digest is of what comes back.
    return float(value) + 0.0 if is_float and value is not None else value


SWEEPS = Codec(SweepRecord, SWEEP)
TRIALS = Codec(TrialRecord, TRIAL)
ATTEMPTS = Codec(AttemptRecord, ATTEMPT)
REPORTS = Codec(ReportRecord, REPORT)
CHECKPOINTS = Codec(CheckpointRecord, CHECKPOINT)
EVALUATIONS = Codec(EvaluationRecord, EVALUATION)
MLFLOW_RUNS = Codec(MlflowRunRecord, MLFLOW_RUN)
