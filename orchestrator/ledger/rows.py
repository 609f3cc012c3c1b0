"""Codec between records and rows: JSON in text columns, and a digest over every row.

SQLite keeps no checksums of its pages, so a flipped bit would be read as a value. Each row therefore carries
a digest of its own columns, which is compared whenever the row is read.
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

from sqlalchemy import BindParameter, Boolean, Connection, Float, Select, Table, bindparam, select

from orchestrator.errors import RECOVER, Damaged
from orchestrator.ledger.prepared import fetched
from orchestrator.ledger.sweeps.records import (
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
from orchestrator.ledger.tables import (
    ATTEMPT,
    CHECKPOINT,
    EVALUATION,
    MLFLOW_RUN,
    OUTBOX,
    REPORT,
    SWEEP,
    TRIAL,
)

Record = TypeVar("Record")

JSON_COLUMNS = frozenset({"document", "facts", "params", "system_attrs", "metrics", "payload"})
# `seq` is assigned by the database after the digest is computed, so it is not part of the digest.
UNDIGESTED = frozenset({"row_digest", "seq"})
BATCH = 256
"""Rows that are compared with their digests at a time."""

DIGEST_MODULUS = 1 << 62  # the sum of two digests still fits a signed column


@dataclass(frozen=True)
class Codec(Generic[Record]):
    """Conversion between one kind of record and the rows of its table.

    Every method raises Damaged for a row that does not match its digest.
    """

    record: type[Record]
    table: Table

    def encode(self, record: Record) -> dict[str, Any]:
        """Return the row of a record, including its digest.

        Raises:
            ValueError: The record has an illegal state.
        """
        self._check_state(record)
        values = {field.name: getattr(record, field.name) for field in fields(self.record)}  # type: ignore[arg-type]
        return sealed(self.table, values)

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the names of the columns, in order."""
        return _columns(self.table)

    def changed(self, row: Mapping[str, Any], new: Record, names: Iterable[str]) -> dict[str, Any]:
        """Return a stored row with the named fields of a new record, and its new digest."""
        self._check_state(new)
        floats = _floats(self.table)
        columns = {name: _plain(name, getattr(new, name), name in floats) for name in names}
        return _with_digest(self.table, {**row, **columns})

    def decode(self, row: Sequence[Any]) -> Record:
        """Return the record of a row with all columns of the table in order."""
        (record,) = self.decoded([row])
        return record

    def decoded(self, rows: Iterable[Sequence[Any]]) -> Iterator[Record]:
        """Yield the records of rows with all columns of the table in order."""
        build, (fields_at, json_at) = self.record, self._fields_at
        for batch in checked_batches(self.table, rows):
            columns: list[Sequence[Any]] = list(zip(*map(fields_at, batch), strict=True))
            for index in json_at:  # the texts of a batch at once take half of the time of one after the other
                columns[index] = json.loads(f"[{','.join(columns[index])}]")
            yield from map(build, *columns)

    @cached_property
    def _fields_at(self) -> tuple[Callable[[Sequence[Any]], tuple[Any, ...]], list[int]]:
        """A function that picks the fields of a record from a row, and the indexes of the JSON fields."""
        names = [field.name for field in fields(self.record)]  # type: ignore[arg-type]
        json_at = [index for index, name in enumerate(names) if name in JSON_COLUMNS]
        return itemgetter(*(self.columns.index(name) for name in names)), json_at

    def _check_state(self, record: Record) -> None:
        legal = STATES.get(self.record.__name__)
        if legal is not None and record.state not in legal:  # type: ignore[attr-defined]
            raise ValueError(f"{record} must have one of the states {sorted(legal)}")


def curve_points(rows: Sequence[Sequence[Any]], names: Sequence[str]) -> Iterator[CurvePoint]:
    """Return the named metrics of verified rows of reports."""
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
    """Return the numbers under a name in JSON objects; an object without it is left out."""
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
    """Verify a selected row of `table` and return its decoded values without the digest.

    Raises:
        Damaged: The row does not match its digest.
    """
    values = verified(table, row)
    del values["row_digest"]
    for name in values.keys() & JSON_COLUMNS:
        values[name] = json.loads(values[name])
    return values


def verified(table: Table, row: Sequence[Any]) -> dict[str, Any]:
    """Verify a selected row of `table` and return its columns as they are stored.

    Raises:
        Damaged: The row does not match its digest.
    """
    (same,) = checked(table, [row])
    return dict(zip(_columns(table), same, strict=True))


def checked(table: Table, rows: Iterable[Sequence[Any]]) -> Iterator[Sequence[Any]]:
    """Verify selected rows of `table`, and yield each as it is stored.

    Raises:
        Damaged: A row does not match its digest.
    """
    return chain.from_iterable(checked_batches(table, rows))


def checked_batches(table: Table, rows: Iterable[Sequence[Any]]) -> Iterator[list[Sequence[Any]]]:
    """Verify selected rows of `table`, and yield them in lists.

    Raises:
        Damaged: A row does not match its digest.
    """
    layout, remaining = _layout(table), iter(rows)
    while batch := list(islice(remaining, BATCH)):
        if layout.booleans_at:  # which SQLite returns as 0 or 1
            batch = [layout.with_booleans(row) for row in batch]
        digests = _digests([layout.content % layout.at(row) for row in batch])
        if digests != [row[-1] for row in batch]:
            damaged = next(row for row, digest in zip(batch, digests, strict=True) if digest != row[-1])
            raise damaged_row(table, dict(zip(_columns(table), damaged, strict=True)))
        yield batch


def rows_of_sweep(
    connection: Connection, sweep_id: str
) -> Iterator[tuple[Table, Iterator[list[Sequence[Any]]]]]:
    """Yield every table with its verified rows of a sweep, in lists; a row comes after those it refers to.

    Raises:
        Damaged: While the rows are taken, if one does not match its digest.
    """
    for table, query in _QUERIES:
        result = connection.execute(query, {"sweep_id": sweep_id})
        # The cursor of SQLite yields plain tuples, which cost less than rows.
        yield table, checked_batches(table, fetched(cast(Iterable[Sequence[Any]], result.cursor)))
        result.close()


def row_digest(table: Table, row: Mapping[str, Any]) -> int:
    """Return the digest of a row's columns, below `DIGEST_MODULUS`."""
    layout = _layout(table)
    return _digests([layout.content % layout.named(row)])[0]


def _digests(texts: Iterable[str]) -> list[int]:
    contents = [text.encode("utf-8", "backslashreplace") for text in texts]
    digests = [hashlib.blake2b(content, digest_size=8).digest() for content in contents]
    return [number % DIGEST_MODULUS for number in struct.unpack(f">{len(digests)}Q", b"".join(digests))]


def damaged_row(table: Table, values: Mapping[str, Any]) -> Damaged:
    """Return the error for a damaged row, with its table and primary key."""
    key = ", ".join(f"{column.name}={values[column.name]!r}" for column in table.primary_key)
    must = "does not match the digest written with it"
    return Damaged(f"ledger table {table.name}, row {key}", must, "", RECOVER)


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


@dataclass(frozen=True)
class _Layout:
    """Layout of the digested text of a table's rows; the digest is the last column.

    Attributes:
        content: Format of the text: a list of all digested columns.
        named: Function that returns these columns of a row by name.
        at: Function that returns these columns of a row by position.
        booleans_at: Positions of the boolean columns.
    """

    content: str
    named: Callable[[Mapping[str, Any]], tuple[Any, ...]]
    at: Callable[[Sequence[Any]], tuple[Any, ...]]
    booleans_at: frozenset[int]

    def with_booleans(self, row: Sequence[Any]) -> tuple[Any, ...]:
        """Return a row of SQLite with booleans instead of 0 and 1."""
        return tuple(bool(value) if at in self.booleans_at else value for at, value in enumerate(row))


@cache
def _layout(table: Table) -> _Layout:
    columns = _columns(table)
    assert columns[-1] == "row_digest", f"the digest is the last column of {table.name}"
    names = [name for name in columns if name not in UNDIGESTED]
    return _Layout(
        # The text is `repr((table, [column, ...]))`, for which one format is faster than a list.
        f"({table.name!r}, [{', '.join(['%r'] * len(names))}])",
        itemgetter(*names),
        itemgetter(*(columns.index(name) for name in names)),
        frozenset(columns.index(column.name) for column in table.columns if isinstance(column.type, Boolean)),
    )


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
    # SQLite returns 0.0 for -0.0, which the sum is too: the digest is of the value that is read back.
    return float(value) + 0.0 if is_float and value is not None else value


def _queries() -> Iterator[tuple[Table, Select[Any]]]:
    sweep_id: BindParameter[str] = bindparam("sweep_id")
    yield SWEEP, select(*SWEEP.columns).where(SWEEP.c.id == sweep_id)
    yield TRIAL, select(*TRIAL.columns).where(TRIAL.c.sweep_id == sweep_id).order_by(TRIAL.c.number)
    for table in (ATTEMPT, REPORT, CHECKPOINT, EVALUATION):
        of_trial = table.c.trial_key == TRIAL.c.key
        yield table, select(*table.columns).join(TRIAL, of_trial).where(TRIAL.c.sweep_id == sweep_id)
    yield MLFLOW_RUN, select(*MLFLOW_RUN.columns).where(MLFLOW_RUN.c.sweep_id == sweep_id)
    yield OUTBOX, select(*OUTBOX.columns).where(OUTBOX.c.sweep_id == sweep_id).order_by(OUTBOX.c.seq)


_QUERIES = tuple(_queries())  # built once: building a query costs more than running it on a small ledger

SWEEPS = Codec(SweepRecord, SWEEP)
TRIALS = Codec(TrialRecord, TRIAL)
ATTEMPTS = Codec(AttemptRecord, ATTEMPT)
REPORTS = Codec(ReportRecord, REPORT)
CHECKPOINTS = Codec(CheckpointRecord, CHECKPOINT)
EVALUATIONS = Codec(EvaluationRecord, EVALUATION)
MLFLOW_RUNS = Codec(MlflowRunRecord, MLFLOW_RUN)
