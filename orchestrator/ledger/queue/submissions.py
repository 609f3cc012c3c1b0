"""Submissions: sweeps handed to the service, and how far the service has come with each of them.

People add and release submissions. The service, which proves with its lease that it is the only one, decides
when a driver starts and what its end means. A driver writes when it begins and how it ends; the number of its
start keeps a driver apart from the one that has replaced it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, fields, replace
from types import MappingProxyType
from typing import Any, Literal, TypeVar

from sqlalchemy import ColumnElement, Connection, Select, and_, delete, exists, func, insert, select, update

from orchestrator.errors import BadInput, Busy, OverQuota
from orchestrator.ledger.holder import Holder, Token, busy
from orchestrator.ledger.lease_backends import holds
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.people.audit import Asked
from orchestrator.ledger.row_backup import keep, keeping, renew
from orchestrator.ledger.rows import storable
from orchestrator.ledger.sweeps.records import FINISHED_SWEEP
from orchestrator.ledger.tables import OUTBOX, OWNER, START_PAUSE, STOP_REQUEST, SUBMISSION, SWEEP
from orchestrator.sharing.pool_rows import MOST_SWEEPS
from orchestrator.system import ClockSetting

Result = TypeVar("Result")

ROOM = "room for other sweeps"
"""The asker of a request by which the service takes a driver's place; the sweep is then queued again."""

SubmissionState = Literal["QUEUED", "STARTED", "PARKED", "ENDED"]


@dataclass(frozen=True)
class SubmissionRequest:
    """What a person submits.

    Attributes:
        owner: in whose name the sweep runs.
        document: the sweep as `SweepConfig.document` returns it.
        text: the file as it was read.
        options: options of the command line that the driver needs, by name.
        key: identifies the submission among all, so that repeating it adds nothing; None for no key.
        version: commit of the code that accepted the submission.
    """

    owner: str
    document: Mapping[str, Any]
    text: str
    options: Mapping[str, Any]
    key: str | None
    version: str


@dataclass(frozen=True)
class Submission(SubmissionRequest):
    """A sweep handed to the service.

    Attributes:
        sweep_id: of the sweep.
        at: when it was submitted, seconds since the epoch.
        state: QUEUED until its driver is started; STARTED until the end of the driver has been judged; PARKED
            after too many crashes; ENDED once nothing is left to do.
        next_try: not before this time is a driver started, seconds since the epoch.
        starts: number of drivers that were started; identifies the newest one.
        started_at: when the newest driver was started, or None.
        driver: the process of the newest driver once it has begun, or None.
        code: exit code of the newest driver, or None if it has written none.
        tries: ends of drivers without a report, since the last one with a report.
        crashes: how many of them were crashes.
        crashed_at: when a driver has last crashed, or None if starts have not been paused since.
        cause: why the sweep waits, is parked or has ended, or None.
        revision: number of changes to the submission.
        clock: setting of the clock by which the service has written `next_try`, `started_at` and
            `crashed_at`, or None.
        reported_before: time of the newest report of the sweep when the newest driver was started, 0 without
            reports, or None. Reports have rising times, however a clock is set.
        finished_before: when the sweep had finished, as it was when the newest driver was started, or None.
    """

    sweep_id: str
    at: float
    state: SubmissionState = "QUEUED"
    next_try: float = 0.0
    starts: int = 0
    started_at: float | None = None
    driver: Holder | None = None
    code: int | None = None
    tries: int = 0
    crashes: int = 0
    crashed_at: float | None = None
    cause: str | None = None
    revision: int = 0
    clock: ClockSetting | None = None
    reported_before: float | None = None
    finished_before: float | None = None

    def by(self, clock: ClockSetting) -> Submission:
        """Return the submission with what a clock with this setting would have shown at its times."""
        earlier = self.clock or clock
        times = {name: None if at is None else earlier.converted(at, clock) for name, at in self._times()}
        return replace(self, clock=clock, **times)  # type: ignore[arg-type]

    def by_one_clock(self) -> dict[str, Any]:
        """Return the columns of the times by `clock`, and of the clock itself."""
        return {**dict(self._times()), "clock": self.clock.write() if self.clock else None}

    def _times(self) -> list[tuple[str, float | None]]:
        return [(name, getattr(self, name)) for name in ("next_try", "started_at", "crashed_at")]


QUEUED_ANEW: Mapping[str, Any] = MappingProxyType(
    {"state": "QUEUED", "next_try": 0.0, "tries": 0, "crashes": 0, "cause": None}
)
"""Columns of a submission that is queued again as if its sweep had never crashed."""

# ------------------------------------------------------------------ by people


def submit(
    ledger: Ledger,
    order: SubmissionRequest,
    choose: Callable[[Callable[[str], bool]], str],
    *,
    again: bool = False,
    only_own: bool = False,
    only_ended: bool = False,
    withdraw: bool = False,
    asked: Asked | None = None,
) -> tuple[Submission, bool]:
    """Add a submission, or queue an ended or parked one again; it survives a power failure once this returns.

    A stop request for a sweep that has ended is deleted. A submission whose key is known changes nothing.

    Args:
        ledger: of the sweep.
        order: what is submitted.
        choose: returns the id of the sweep, given a function that returns True for the id of a sweep or a
            submission.
        again: whether to queue an ended or parked submission again.
        only_own: whether to refuse a sweep that the ledger knows and its owner has not submitted.
        only_ended: whether to refuse a sweep that waits or runs.
        withdraw: whether to delete the stop request of a person for a sweep that still waits or runs.
        asked: who asks for it, for the audit log; None for no entry.

    Returns:
        The submission, and whether this call has added or queued it.

    Raises:
        BadInput: another submission has the key, or the sweep is another owner's.
        Busy: the sweep waits or runs, and only one that has ended may be submitted, or a person has asked it
            to stop.
        OverQuota: as many sweeps of the owner wait or run as a quota allows.
    """

    def write(change: QueueTransaction) -> tuple[Submission, bool]:
        written, is_new = add(change)
        if asked is not None:
            asked.note(change.connection, ledger.now(), answer_of(written, added=is_new))
        return written, is_new

    def add(change: QueueTransaction) -> tuple[Submission, bool]:
        connection = change.connection
        if order.key is not None and (same := _find(connection, SUBMISSION.c.key == order.key)):
            _refuse_other(same, order)
            return same, False
        sweep_id = choose(lambda name: _is_known(connection, name))
        known = _locked(connection, sweep_id)
        if only_own:
            _refuse_of_others(connection, sweep_id, known, order.owner)
        if only_ended and known is not None and known.state in {"QUEUED", "STARTED"}:
            raise _not_ended(connection, known)
        of_sweep = STOP_REQUEST.c.sweep_id == sweep_id
        if known is not None and known.state in {"QUEUED", "STARTED"}:
            if not withdraw:
                _refuse_stopped(connection, sweep_id)
                of_sweep = and_(
                    of_sweep, STOP_REQUEST.c.asker == ROOM
                )  # a person may ask for a stop meanwhile
            if connection.execute(delete(STOP_REQUEST).where(of_sweep)).rowcount and withdraw:
                # It counts as changed: the service must not end it for a request that it has read before.
                [known] = change.update(SUBMISSION.c.sweep_id == sweep_id)
            return known, False
        connection.execute(delete(STOP_REQUEST).where(of_sweep))
        if known is not None and not again:
            return known, False
        check_quota(connection, order.owner, sweep_id)
        # The number of starts goes on: a driver of the earlier submission must not write into this one.
        starts, revision = (known.starts + 1, known.revision + 1) if known else (0, 0)
        submission = Submission(
            **_order(order), sweep_id=sweep_id, at=ledger.now(), starts=starts, revision=revision
        )
        change.replace(submission)
        return submission, True

    written = change_rows(ledger, write)
    renew(ledger, STOP_REQUEST, written[0].sweep_id)
    ledger.flush()
    return written


def _not_ended(connection: Connection, known: Submission) -> Busy:
    """Return why a submission cannot be queued again: its sweep goes on, or its driver has not left yet."""
    must = "must have ended before it is submitted again"
    query = select(SWEEP.c.state).where(SWEEP.c.id == known.sweep_id)
    state = connection.execute(query).scalar_one_or_none()
    if known.state == "STARTED" and state in {*FINISHED_SWEEP, "INTERRUPTED"}:
        remedy = "Try again in a minute."
        return Busy(known.sweep_id, must, f"{state}, and its driver has not left yet", remedy)
    return Busy(known.sweep_id, must, "a sweep that waits or runs", "Stop it first.")


def answer_of(submission: Submission, *, added: bool) -> dict[str, Any]:
    """Return the answer to the user who has submitted a sweep."""
    return {"id": submission.sweep_id, "state": submission.state, "added": added}


def release(ledger: Ledger, sweep_id: str, *, asked: Asked | None = None) -> Submission:
    """Queue a parked submission again, as if its sweep had never crashed.

    Args:
        ledger: of the sweep.
        sweep_id: of the sweep.
        asked: who asks for it, for the audit log; None for no entry.

    Raises:
        BadInput: the submission is not parked.
        OverQuota: as many sweeps of its owner wait or run as a quota allows.
    """

    def write(change: QueueTransaction) -> Submission:
        known = _locked(change.connection, sweep_id)
        if known is None or known.state != "PARKED":
            state = known.state if known else "no submission"
            raise BadInput(sweep_id, "must be parked to be released", state, "`queue` shows what waits.")
        check_quota(change.connection, known.owner, sweep_id)
        [released] = change.update(SUBMISSION.c.sweep_id == sweep_id, **QUEUED_ANEW)
        if asked is not None:
            asked.note(change.connection, ledger.now())
        return released

    released = change_rows(ledger, write)
    ledger.flush()
    return released


# ------------------------------------------------------------------ by drivers


def begin(ledger: Ledger, sweep_id: str, start: int, driver: Holder) -> None:
    """Record the process of a driver that begins.

    Args:
        ledger: of the sweep.
        sweep_id: of the sweep.
        start: number of the start, as the service has passed it to the driver.
        driver: the process.

    Raises:
        Busy: a later driver has been started instead.
    """
    expected = and_(SUBMISSION.c.starts == start, SUBMISSION.c.driver.is_(None), SUBMISSION.c.code.is_(None))
    if not _update(ledger, sweep_id, expected, driver=driver.write()):
        known = submission(ledger, sweep_id)
        raise busy(sweep_id, known.driver if known else None, ledger.system)


def end(ledger: Ledger, sweep_id: str, start: int, code: int, cause: str | None) -> bool:
    """Record how a driver ended, unless that is recorded; return True if it was written.

    Args:
        ledger: of the sweep.
        sweep_id: of the sweep.
        start: number of the start.
        code: exit code; negative if a signal ended the driver, as `subprocess` counts.
        cause: what went wrong, or None.
    """
    expected = and_(SUBMISSION.c.starts == start, SUBMISSION.c.code.is_(None))
    return _update(ledger, sweep_id, expected, code=code, cause=cause)


# ------------------------------------------------------------------ by the service


class SubmissionWriter:
    """Writes what the service decides about submissions, as long as the service holds its lease.

    Every method raises Busy, and changes nothing, once another process has taken the lease.

    Args:
        ledger: holds the submissions.
        token: of the lease of the service.
    """

    def __init__(self, ledger: Ledger, token: Token) -> None:
        self._ledger, self._token = ledger, token

    def change(self, seen: Submission, **columns: Any) -> bool:
        """Change a submission; return False, and change nothing, if it is no longer as it was seen.

        A request for the place of its driver is deleted.

        Args:
            seen: as it was when the change was decided.
            **columns: new values; times are by the clock of `seen`.
        """
        columns = {**seen.by_one_clock(), **columns}

        def write(change: QueueTransaction) -> bool:
            of_seen = and_(SUBMISSION.c.sweep_id == seen.sweep_id, SUBMISSION.c.revision == seen.revision)
            of_room = and_(STOP_REQUEST.c.sweep_id == seen.sweep_id, STOP_REQUEST.c.asker == ROOM)
            if has_changed := bool(change.update(of_seen, **columns)):
                change.connection.execute(delete(STOP_REQUEST).where(of_room))
            return has_changed

        return self._write(write)

    def ask_for_room(self, sweep_id: str) -> None:
        """Ask the driver of a sweep to save every trial and to leave, unless it was asked to stop before."""

        def write(change: QueueTransaction) -> None:
            of_sweep = select(STOP_REQUEST.c.sweep_id).where(STOP_REQUEST.c.sweep_id == sweep_id)
            if change.connection.execute(of_sweep).first() is None:
                request = {"sweep_id": sweep_id, "asker": ROOM, "at": self._ledger.now()}
                change.connection.execute(insert(STOP_REQUEST).values(**request))

        self._write(write)

    def pause(self, since: float, clock: ClockSetting) -> None:
        """Pause all starts.

        Args:
            since: time of the newest crash.
            clock: setting by which that time is.
        """

        def write(change: QueueTransaction) -> None:
            change.connection.execute(delete(START_PAUSE))
            change.connection.execute(insert(START_PAUSE).values(since=since, clock=clock.write()))

        self._write(write)

    def go_on(self) -> None:
        """End the pause of starts, and forget the crashes that led to it."""

        def write(change: QueueTransaction) -> None:
            change.connection.execute(delete(START_PAUSE))
            # Every time is above 0. SQLite has no use for an index in `IS NOT NULL`.
            change.update(SUBMISSION.c.crashed_at > 0.0, crashed_at=None)

        self._write(write)

    def _write(self, write: Callable[[QueueTransaction], Result]) -> Result:
        def checked(change: QueueTransaction) -> Result:
            result = write(change)
            if not holds(change.connection, self._token):
                raise busy(self._token.sweep_id, None)
            return result

        result = change_rows(self._ledger, checked)
        self._ledger.flush()
        return result


# ------------------------------------------------------------------ queries


def submission(ledger: Ledger, sweep_id: str) -> Submission | None:
    """Return the submission of a sweep, or None."""
    return _read(ledger, lambda connection: _find(connection, SUBMISSION.c.sweep_id == sweep_id))


def submissions(ledger: Ledger, *, ended: bool = True) -> list[Submission]:
    """Return the submissions, the oldest first.

    Args:
        ledger: of the sweeps.
        ended: whether to include those that have ended.
    """
    query = select(SUBMISSION).order_by(SUBMISSION.c.at, SUBMISSION.c.sweep_id)
    if not ended:
        query = query.where(SUBMISSION.c.state != "ENDED")

    def read(connection: Connection) -> list[Submission]:
        return [_submission(row) for row in connection.execute(query).mappings()]

    return _read(ledger, read)


def paused_since(ledger: Ledger, clock: ClockSetting) -> float | None:
    """Return since when the service has paused all starts, or None if it has not.

    Args:
        ledger: of the sweeps.
        clock: setting by which the time is returned.
    """

    def read(connection: Connection) -> float | None:
        row = connection.execute(select(START_PAUSE.c.since, START_PAUSE.c.clock)).one_or_none()
        if row is None:
            return None
        written = ClockSetting.read(row.clock) if row.clock else clock
        return written.converted(float(row.since), clock)

    return _read(ledger, read)


# ------------------------------------------------------------------ rows

_JSON = ("document", "options")


class QueueTransaction:
    """A write transaction.

    Attributes:
        connection: of the transaction.
        rows: the submissions that were written, for the backup.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.rows: list[Mapping[str, Any]] = []

    def update(self, where: ColumnElement[bool], **columns: Any) -> list[Submission]:
        """Change columns of submissions, and return these submissions."""
        if cause := columns.get("cause"):
            columns["cause"] = storable(cause)
        values = {**columns, "revision": SUBMISSION.c.revision + 1}
        query = update(SUBMISSION).where(where).values(**values).returning(*SUBMISSION.columns)
        rows = [dict(row) for row in self.connection.execute(query).mappings()]
        self.rows += rows
        return [_submission(row) for row in rows]

    def replace(self, submission: Submission) -> None:
        """Insert a submission, in the place of an earlier one of its sweep."""
        row = _row(submission)
        of_sweep = SUBMISSION.c.sweep_id == submission.sweep_id
        self.connection.execute(delete(SUBMISSION).where(of_sweep))
        self.connection.execute(insert(SUBMISSION).values(**row))
        self.rows.append(row)


def change_rows(ledger: Ledger, write: Callable[[QueueTransaction], Result]) -> Result:
    """Run a write transaction, and write the backup of a SQLite ledger after its commit."""

    def attempt() -> Result:
        with ledger.writer() as connection:
            change = QueueTransaction(connection)
            result = write(change)
            with keeping(ledger) if change.rows else nullcontext():
                connection.commit()
                for row in change.rows if ledger.is_file else ():
                    keep(ledger.address, SUBMISSION, row)
            return result

    return ledger.retried(attempt)


def _read(ledger: Ledger, transaction: Callable[[Connection], Result]) -> Result:
    def attempt() -> Result:
        with ledger.reader() as connection, connection.begin():
            return transaction(connection)

    return ledger.retried(attempt)


def _update(ledger: Ledger, sweep_id: str, expected: ColumnElement[bool], **columns: Any) -> bool:
    own = and_(SUBMISSION.c.sweep_id == sweep_id, expected)
    return change_rows(ledger, lambda change: bool(change.update(own, **columns)))


def _find(connection: Connection, where: ColumnElement[bool]) -> Submission | None:
    return _first(connection, select(SUBMISSION).where(where))


def _locked(connection: Connection, sweep_id: str) -> Submission | None:
    """Return the submission of a sweep, locked until the transaction ends, or None."""
    return _first(connection, select(SUBMISSION).where(SUBMISSION.c.sweep_id == sweep_id).with_for_update())


def _first(connection: Connection, query: Select[Any]) -> Submission | None:
    row = connection.execute(query).mappings().one_or_none()
    return None if row is None else _submission(row)


def _is_known(connection: Connection, sweep_id: str) -> bool:
    """Return True if a sweep or a submission has this id."""
    columns = (SWEEP.c.id, SUBMISSION.c.sweep_id)
    return any(connection.execute(select(one).where(one == sweep_id)).first() is not None for one in columns)


def _refuse_other(same: Submission, order: SubmissionRequest) -> None:
    if same.document != order.document:
        must = "must not be the key of another submission"
        raise BadInput("--key", must, f"that of {same.sweep_id}", "Choose another key.")


def _refuse_stopped(connection: Connection, sweep_id: str) -> None:
    query = select(STOP_REQUEST.c.asker).where(STOP_REQUEST.c.sweep_id == sweep_id)
    asker = connection.execute(query).scalar_one_or_none()
    if asker not in {None, ROOM}:
        remedy = f"`resume {sweep_id}` withdraws that; once it has ended, it can be submitted again."
        raise Busy(sweep_id, "must not be about to stop", f"stopped or paused from {asker}", remedy)


def _refuse_of_others(connection: Connection, sweep_id: str, known: Submission | None, owner: str) -> None:
    if known is None and not _is_known(connection, sweep_id):
        return
    if known is None or known.owner != owner:
        got = f"one of {known.owner}" if known else "one that was not submitted"
        raise BadInput(sweep_id, f"must be a sweep of {owner}", got, "Submit it as a new sweep.")


def _order(order: SubmissionRequest) -> dict[str, Any]:
    return {field.name: getattr(order, field.name) for field in fields(SubmissionRequest)}


def _row(submission: Submission) -> dict[str, Any]:
    values = asdict(submission) | {"driver": submission.driver.write() if submission.driver else None}
    values |= {"clock": submission.clock.write() if submission.clock else None}
    return values | {name: json.dumps(values[name]) for name in _JSON}


def _submission(row: Mapping[Any, Any]) -> Submission:
    values = dict(row)
    decoded = {name: json.loads(values[name]) for name in _JSON}
    driver = Holder.read(values["driver"]) if values["driver"] else None
    clock = ClockSetting.read(values["clock"]) if values["clock"] else None
    return Submission(**values | decoded | {"driver": driver, "clock": clock})


def check_quota(connection: Connection, owner: str, sweep_id: str) -> None:
    """Return if one more sweep of an owner may wait or run; one that is parked or has ended does neither.

    The row of the owner is locked until the transaction ends, so that of two submissions at once only one
    takes the last place.

    Args:
        connection: of the transaction that queues the sweep.
        owner: of the sweep.
        sweep_id: of the sweep, which is not counted.

    Raises:
        OverQuota: as many others as the quota allows wait or run.
    """
    quota = select(OWNER.c.most_sweeps).where(OWNER.c.name == owner).with_for_update()
    row = connection.execute(quota).one_or_none()
    most = MOST_SWEEPS if row is None else row.most_sweeps
    if most is None:
        return
    others = select(func.count()).where(
        SUBMISSION.c.owner == owner,
        SUBMISSION.c.sweep_id != sweep_id,
        SUBMISSION.c.state.in_(("QUEUED", "STARTED")),
    )
    active = connection.execute(others).scalar_one()
    if active >= most:
        sweeps = "sweep that waits or runs" if most == 1 else "sweeps that wait or run"
        must = f"may have at most {most} {sweeps}"
        remedy = "Wait until one ends, pause or stop one, or ask an admin for a larger quota."
        raise OverQuota(f"owner {owner}", must, f"{active}, and {sweep_id} besides", remedy)


_PENDING = exists().where(OUTBOX.c.sweep_id == SUBMISSION.c.sweep_id, ~OUTBOX.c.delivered)


def left_undelivered(ledger: Ledger) -> list[str]:
    """Return the submitted sweeps that have ended and left events pending; the oldest first.

    No process may deliver them: a sweep that is submitted again, or still saves, is not among them.
    """
    return _ended(ledger, _PENDING)


def has_ended(ledger: Ledger, sweep_id: str) -> bool:
    """Return True if a submitted sweep has ended and was not submitted again since."""
    return bool(_ended(ledger, SUBMISSION.c.sweep_id == sweep_id))


def _ended(ledger: Ledger, condition: ColumnElement[bool]) -> list[str]:
    chosen = (
        select(SUBMISSION.c.sweep_id)
        .where(SUBMISSION.c.state == "ENDED", condition)
        .order_by(SUBMISSION.c.at, SUBMISSION.c.sweep_id)
    )

    def read() -> list[str]:
        with ledger.reader() as connection:
            return list(connection.execute(chosen).scalars())

    return ledger.retried(read)
