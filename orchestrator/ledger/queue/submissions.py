"""Submissions: sweeps in the queue of the service.

Users add submissions. The service, which holds a lease of its own, starts drivers and decides what follows
their end. A driver writes its beginning and its end with the number of its start, so that a replaced driver
cannot write.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, fields, replace
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    and_,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    update,
)

from orchestrator.errors import BadInput, Busy, OverQuota, WrongState
from orchestrator.ledger.holder import Holder, Token, busy
from orchestrator.ledger.lease_backends import holds
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.people.audit import Asked, append
from orchestrator.ledger.people.shelf import check_not_deleted
from orchestrator.ledger.row_backup import keep, keeping, renew
from orchestrator.ledger.rows import storable
from orchestrator.ledger.sweeps.records import FINISHED_SWEEP, SubmissionState
from orchestrator.ledger.tables import (
    NOTE,
    OUTBOX,
    OWNER,
    START_PAUSE,
    STOP_REQUEST,
    SUBMISSION,
    SWEEP,
    TRIAL,
    UNDELIVERED_REPORT,
)
from orchestrator.sharing.pool_rows import MOST_SWEEPS
from orchestrator.system import ClockSetting

Result = TypeVar("Result")

SERVICE, CRASHED = "service", "driver crashed"
"""Actor and action of the entry of the audit log about the crash of a driver."""

ROOM = "room for other sweeps"
"""The asker of a stop request by which the service preempts a sweep, which is then queued again."""


@dataclass(frozen=True)
class SubmissionRequest:
    """A sweep to be submitted.

    Attributes:
        owner: Name of the owner.
        document: The sweep as `SweepConfig.document` returns it.
        text: Text of the file.
        options: Options of the command line that the driver needs, by name.
        key: Idempotency key, unique among all submissions; None without one.
        version: Commit of the code that accepted the submission.
    """

    owner: str
    document: Mapping[str, Any]
    text: str
    options: Mapping[str, Any]
    key: str | None
    version: str


@dataclass(frozen=True)
class Submission(SubmissionRequest):
    """A sweep in the queue of the service. Times are seconds since the epoch.

    Attributes:
        sweep_id: ID of the sweep.
        at: Time of the submission.
        state: QUEUED until its driver is started; STARTED until the service has judged the driver's end;
            PARKED after too many crashes; ENDED at the end.
        next_try: Earliest time at which a driver is started.
        starts: Number of drivers that were started; identifies the newest one.
        started_at: Start of the newest driver, or None.
        driver: Process of the newest driver once it has begun, or None.
        code: Exit code of the newest driver, or None if it has written none.
        tries: Ends of drivers without a report, since the last one with a report.
        crashes: Number of these ends that were crashes.
        crashed_at: Time of the last crash, or None if starts have not been paused since.
        cause: Reason of waiting, parking or ending, or None.
        revision: Number of changes to the submission.
        clock: Clock setting of `next_try`, `started_at` and `crashed_at`; None until the service writes one.
        reported_before: Time of the sweep's newest report when the newest driver was started, 0 without
            reports, or None. Reports have rising times, however a clock is set.
        finished_before: Time at which the sweep had finished when the newest driver was started, or None.
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
        """Return the submission with its times converted to another clock setting."""
        earlier = self.clock or clock
        times = {name: None if at is None else earlier.converted(at, clock) for name, at in self._times()}
        return replace(self, clock=clock, **times)  # type: ignore[arg-type]

    def by_one_clock(self) -> dict[str, Any]:
        """Return the columns of the times by `clock`, and of the clock itself."""
        return {**dict(self._times()), "clock": self.clock.write() if self.clock else None}

    def _times(self) -> list[tuple[str, float | None]]:
        return [(name, getattr(self, name)) for name in ("next_try", "started_at", "crashed_at")]


QUEUED_AGAIN: Mapping[str, Any] = MappingProxyType(
    {"state": "QUEUED", "next_try": 0.0, "tries": 0, "crashes": 0, "cause": None}
)
"""Columns of a submission that is queued again, without its crashes."""

# ------------------------------------------------------------------ users


def submit(
    ledger: Ledger,
    request: SubmissionRequest,
    choose: Callable[[Callable[[str], bool]], str],
    *,
    only_own: bool = False,
    only_ended: bool = False,
    withdraw: bool = False,
    asked: Asked | None = None,
    warnings: Sequence[str] = (),
) -> tuple[Submission, bool]:
    """Add a submission, or queue an ended or parked one again, durably.

    The stop request of a sweep that has ended is deleted. A submission with a known key changes nothing.

    Args:
        ledger: Ledger of the sweep.
        request: The sweep to be submitted.
        choose: Function that returns the ID of the sweep, given a predicate of the IDs in use.
        only_own: Whether to refuse a sweep of the ledger that its owner has not submitted.
        only_ended: Whether to refuse a sweep that waits or runs.
        withdraw: Whether to delete a user's stop request for a sweep that still waits or runs.
        asked: Entry for the audit log, if any.
        warnings: Sentences for the answer to the user.

    Returns:
        The submission, and whether this call has added or queued it.

    Raises:
        BadInput: Another submission has the key, or the sweep has another owner.
        WrongState: A user has deleted the sweep.
        Busy: The sweep is about to stop, or has not ended although `only_ended` is set.
        OverQuota: The owner has as many waiting and running sweeps as the quota allows.
    """

    def write(change: QueueTransaction) -> tuple[Submission, bool]:
        written, is_new = _add(
            change,
            request,
            choose,
            ledger.now(),
            only_own=only_own,
            only_ended=only_ended,
            withdraw=withdraw,
        )
        if asked is not None:
            asked.note(change.connection, ledger.now(), answer_of(written, warnings, added=is_new))
        return written, is_new

    with ledger.in_place():
        written = change_rows(ledger, write)
        renew(ledger, STOP_REQUEST, written[0].sweep_id)
    ledger.flush()
    return written


def _add(
    change: QueueTransaction,
    request: SubmissionRequest,
    choose: Callable[[Callable[[str], bool]], str],
    now: float,
    *,
    only_own: bool,
    only_ended: bool,
    withdraw: bool,
) -> tuple[Submission, bool]:
    """Add or queue a submission in a transaction; see `submit`."""
    connection = change.connection
    if request.key is not None and (same := _find(connection, SUBMISSION.c.key == request.key)):
        _check_same(same, request)
        return same, False
    sweep_id = choose(lambda name: _is_known(connection, name))
    known = _locked(connection, sweep_id)
    check_not_deleted(connection, sweep_id)
    if only_own:
        _check_owner(connection, sweep_id, known, request.owner)
    is_active = known is not None and known.state in {"QUEUED", "STARTED"}
    if known is not None and is_active:
        if only_ended:
            raise _not_ended(connection, known)
        return _let_continue(change, known, withdraw=withdraw), False
    connection.execute(delete(STOP_REQUEST).where(STOP_REQUEST.c.sweep_id == sweep_id))
    check_quota(connection, request.owner, sweep_id)
    # The starts are counted on: a driver of the earlier submission must not write into this one.
    starts, revision = (known.starts + 1, known.revision + 1) if known else (0, 0)
    values = {field.name: getattr(request, field.name) for field in fields(SubmissionRequest)}
    submission = Submission(**values, sweep_id=sweep_id, at=now, starts=starts, revision=revision)
    change.replace(submission)
    return submission, True


def answer_of(submission: Submission, warnings: Sequence[str] = (), *, added: bool) -> dict[str, Any]:
    """Return the answer to the user who has submitted a sweep."""
    return {
        "id": submission.sweep_id,
        "state": submission.state,
        "added": added,
        "warnings": list(warnings),
    }


def release(ledger: Ledger, sweep_id: str, *, asked: Asked | None = None) -> Submission:
    """Queue a parked submission again, without its crashes.

    Args:
        ledger: Ledger of the sweep.
        sweep_id: ID of the sweep.
        asked: Entry for the audit log, if any.

    Raises:
        WrongState: The submission is not parked.
        OverQuota: The owner has as many waiting and running sweeps as the quota allows.
    """

    def write(change: QueueTransaction) -> Submission:
        known = _locked(change.connection, sweep_id)
        if known is None or known.state != "PARKED":
            state = known.state if known else "no submission"
            raise WrongState(sweep_id, "is not parked", state, "See `queue`.")
        check_not_deleted(change.connection, sweep_id)
        check_quota(change.connection, known.owner, sweep_id)
        [released] = change.update(SUBMISSION.c.sweep_id == sweep_id, **QUEUED_AGAIN)
        if asked is not None:
            asked.note(change.connection, ledger.now())
        return released

    released = change_rows(ledger, write)
    ledger.flush()
    return released


def check_quota(connection: Connection, owner: str, sweep_id: str) -> None:
    """Check that one more sweep of an owner may wait or run.

    The row of the owner stays locked until the transaction ends, so that two submissions at once do not take
    the same last place. Parked and ended sweeps do not count, nor does the sweep itself.

    Raises:
        OverQuota: The owner has as many waiting and running sweeps as the quota allows.
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
        remedy = "Wait until one ends, stop one, or ask an admin for a larger quota."
        got = f"{active} without {sweep_id}"
        raise OverQuota(f"owner {owner}", f"may have at most {most} {sweeps}", got, remedy)


# ------------------------------------------------------------------ drivers


def begin(ledger: Ledger, sweep_id: str, start: int, driver: Holder) -> None:
    """Record the process of a driver that begins.

    Args:
        ledger: Ledger of the sweep.
        sweep_id: ID of the sweep.
        start: Number of the start, as the service has passed it to the driver.
        driver: Process of the driver.

    Raises:
        Busy: A later driver has been started instead.
    """
    expected = and_(SUBMISSION.c.starts == start, SUBMISSION.c.driver.is_(None), SUBMISSION.c.code.is_(None))
    if not _update(ledger, sweep_id, expected, driver=driver.write()):
        known = submission(ledger, sweep_id)
        raise busy(sweep_id, known.driver if known else None, ledger.system)


def end(ledger: Ledger, sweep_id: str, start: int, code: int, cause: str | None) -> bool:
    """Record the end of a driver, once; return True if it was written.

    Args:
        ledger: Ledger of the sweep.
        sweep_id: ID of the sweep.
        start: Number of the start.
        code: Exit code; negative after a signal, as in `subprocess`.
        cause: Error in one sentence, or None.
    """
    expected = and_(SUBMISSION.c.starts == start, SUBMISSION.c.code.is_(None))
    return _update(ledger, sweep_id, expected, code=code, cause=cause)


# ------------------------------------------------------------------ the service


class SubmissionWriter:
    """Writes the decisions of the service about submissions while it holds its lease.

    Every method raises Busy, and changes nothing, once another process has taken the lease.

    Args:
        ledger: Ledger of the submissions.
        token: Token of the service's lease.
    """

    def __init__(self, ledger: Ledger, token: Token) -> None:
        self._ledger, self._token = ledger, token

    def change(self, seen: Submission, **columns: Any) -> bool:
        """Change a submission, and delete the service's preemption request for it; audit a crash.

        Args:
            seen: The submission as it was when the change was decided.
            **columns: New values; times are by the clock of `seen`.

        Returns:
            False if the submission has changed since it was seen; nothing is written then.
        """
        crash = (
            {"cause": columns.get("cause"), "state": columns.get("state")}
            if "crashed_at" in columns
            else None
        )
        columns = {**seen.by_one_clock(), **columns}

        def write(change: QueueTransaction) -> bool:
            of_seen = and_(SUBMISSION.c.sweep_id == seen.sweep_id, SUBMISSION.c.revision == seen.revision)
            of_room = and_(STOP_REQUEST.c.sweep_id == seen.sweep_id, STOP_REQUEST.c.asker == ROOM)
            if has_changed := bool(change.update(of_seen, **columns)):
                change.connection.execute(delete(STOP_REQUEST).where(of_room))
                if crash is not None:
                    append(change.connection, self._ledger.now(), SERVICE, CRASHED, seen.sweep_id, **crash)
            return has_changed

        return self._write(write)

    def ask_for_room(self, sweep_id: str) -> None:
        """Request preemption of a sweep, unless a stop is pending."""

        def write(change: QueueTransaction) -> None:
            of_sweep = select(STOP_REQUEST.c.sweep_id).where(STOP_REQUEST.c.sweep_id == sweep_id)
            if change.connection.execute(of_sweep).first() is None:
                request = {"sweep_id": sweep_id, "asker": ROOM, "at": self._ledger.now()}
                change.connection.execute(insert(STOP_REQUEST).values(**request))

        self._write(write)

    def pause(self, since: float, clock: ClockSetting) -> None:
        """Pause all starts; `since` is the time of the newest crash by `clock`."""

        def write(change: QueueTransaction) -> None:
            change.connection.execute(delete(START_PAUSE))
            change.connection.execute(insert(START_PAUSE).values(since=since, clock=clock.write()))

        self._write(write)

    def go_on(self) -> None:
        """End the pause of starts, and reset the crashes that led to it."""

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
    return ledger.query(lambda connection: _find(connection, SUBMISSION.c.sweep_id == sweep_id))


def submissions(ledger: Ledger, *, ended: bool = True) -> list[Submission]:
    """Return the submissions, the oldest first.

    Args:
        ledger: Ledger of the sweeps.
        ended: Whether to include those that have ended.
    """
    query = select(SUBMISSION).order_by(SUBMISSION.c.at, SUBMISSION.c.sweep_id)
    if not ended:
        query = query.where(SUBMISSION.c.state != "ENDED")
    rows = ledger.query(lambda connection: list(connection.execute(query).mappings()))
    return [_submission(row) for row in rows]


class SubmissionEnd(NamedTuple):
    """State of a submission, and how its newest driver has ended, as in `Submission`."""

    sweep_id: str
    owner: str
    state: SubmissionState
    starts: int
    code: int | None
    cause: str | None


def states_of(ledger: Ledger) -> list[SubmissionEnd]:
    """Return the states of all submissions, without their documents."""
    query = select(*(SUBMISSION.c[name] for name in SubmissionEnd._fields))
    return ledger.query(lambda connection: [SubmissionEnd(*row) for row in connection.execute(query)])


def paused_since(ledger: Ledger, clock: ClockSetting) -> float | None:
    """Return the beginning of a pause of all starts by a clock setting, or None without a pause."""
    query = select(START_PAUSE.c.since, START_PAUSE.c.clock)
    row = ledger.query(lambda connection: connection.execute(query).one_or_none())
    return None if row is None else ClockSetting.read(row.clock).converted(float(row.since), clock)


def left_undelivered(ledger: Ledger) -> list[str]:
    """Return the ended submissions with pending reports, events or notes, the oldest first.

    No other process delivers these.
    """
    events = exists().where(OUTBOX.c.sweep_id == SUBMISSION.c.sweep_id, ~OUTBOX.c.delivered)
    reports = exists().select_from(UNDELIVERED_REPORT).where(TRIAL.c.sweep_id == SUBMISSION.c.sweep_id)
    notes = exists().where(
        NOTE.c.sweep_id == SUBMISSION.c.sweep_id,
        NOTE.c.delivered < NOTE.c.revision,
        SWEEP.c.id == NOTE.c.sweep_id,  # a sweep that has never begun has no run
    )
    return _ended(ledger, or_(events, reports, notes))


def has_ended(ledger: Ledger, sweep_id: str) -> bool:
    """Return True if a submitted sweep has ended and was not submitted again."""
    return bool(_ended(ledger, SUBMISSION.c.sweep_id == sweep_id))


def _ended(ledger: Ledger, condition: ColumnElement[bool]) -> list[str]:
    query = select(SUBMISSION.c.sweep_id).where(SUBMISSION.c.state == "ENDED", condition)
    query = query.order_by(SUBMISSION.c.at, SUBMISSION.c.sweep_id)
    return ledger.query(lambda connection: list(connection.execute(query).scalars()))


# ------------------------------------------------------------------ rows

_JSON = ("document", "options")


class QueueTransaction:
    """A transaction that changes submissions, and collects their rows for the backup.

    Attributes:
        connection: Connection of the transaction.
        rows: Submissions that were written.
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
        """Insert a submission, in place of an earlier one of its sweep."""
        row = _row(submission)
        of_sweep = SUBMISSION.c.sweep_id == submission.sweep_id
        self.connection.execute(delete(SUBMISSION).where(of_sweep))
        self.connection.execute(insert(SUBMISSION).values(**row))
        self.rows.append(row)


def change_rows(ledger: Ledger, write: Callable[[QueueTransaction], Result]) -> Result:
    """Run a write transaction, and write the backup of a SQLite ledger after its commit."""

    def run(connection: Connection) -> tuple[Result, list[Mapping[str, Any]]]:
        change = QueueTransaction(connection)
        return write(change), change.rows

    def commit(connection: Connection, written: tuple[Result, list[Mapping[str, Any]]]) -> None:
        _, rows = written
        with keeping(ledger) if rows else nullcontext():
            connection.commit()
            for row in rows if ledger.is_file else ():
                keep(ledger.address, SUBMISSION, row)

    return ledger.transact(run, commit)[0]


def _update(ledger: Ledger, sweep_id: str, expected: ColumnElement[bool], **columns: Any) -> bool:
    own = and_(SUBMISSION.c.sweep_id == sweep_id, expected)
    return change_rows(ledger, lambda change: bool(change.update(own, **columns)))


def _find(connection: Connection, where: ColumnElement[bool]) -> Submission | None:
    return _first(connection, select(SUBMISSION).where(where))


def _locked(connection: Connection, sweep_id: str) -> Submission | None:
    return _first(connection, select(SUBMISSION).where(SUBMISSION.c.sweep_id == sweep_id).with_for_update())


def _first(connection: Connection, query: Select[Any]) -> Submission | None:
    row = connection.execute(query).mappings().one_or_none()
    return None if row is None else _submission(row)


def _is_known(connection: Connection, sweep_id: str) -> bool:
    columns = (SWEEP.c.id, SUBMISSION.c.sweep_id)
    return any(connection.execute(select(one).where(one == sweep_id)).first() is not None for one in columns)


def _check_same(same: Submission, request: SubmissionRequest) -> None:
    if same.document != request.document:
        must = f"is already the key of {same.sweep_id}"
        raise BadInput("--key", must, "", "Choose another key.")


def _let_continue(change: QueueTransaction, active: Submission, *, withdraw: bool) -> Submission:
    """Delete the stop request of a sweep that waits or runs, and return its submission.

    Raises:
        Busy: A user has requested the stop, and it is not withdrawn.
    """
    requests = delete(STOP_REQUEST).where(STOP_REQUEST.c.sweep_id == active.sweep_id)
    if not withdraw:
        _check_not_stopped(change.connection, active.sweep_id)
        requests = requests.where(STOP_REQUEST.c.asker == ROOM)  # keep one that a user adds meanwhile
    if change.connection.execute(requests).rowcount and withdraw:
        # It counts as changed: the service must not end it for a request that it has read before.
        [active] = change.update(SUBMISSION.c.sweep_id == active.sweep_id)
    return active


def _check_not_stopped(connection: Connection, sweep_id: str) -> None:
    query = select(STOP_REQUEST.c.asker).where(STOP_REQUEST.c.sweep_id == sweep_id)
    asker = connection.execute(query).scalar_one_or_none()
    if asker not in {None, ROOM}:
        remedy = f"Cancel the stop with `resume {sweep_id}`."
        raise Busy(sweep_id, f"has a pending stop request from {asker}", "", remedy)


def _check_owner(connection: Connection, sweep_id: str, known: Submission | None, owner: str) -> None:
    if known is None and not _is_known(connection, sweep_id):
        return
    if known is None or known.owner != owner:
        must = f"belongs to {known.owner}" if known else "was not submitted to the service"
        raise BadInput(sweep_id, must, "", "Submit it as a new sweep.")


def _not_ended(connection: Connection, known: Submission) -> Busy:
    query = select(SWEEP.c.state).where(SWEEP.c.id == known.sweep_id)
    state = connection.execute(query).scalar_one_or_none()
    if known.state == "STARTED" and state in {*FINISHED_SWEEP, "INTERRUPTED"}:
        return Busy(known.sweep_id, "is still shutting down", "", "Try again in a minute.")
    return Busy(known.sweep_id, "is already queued or running", "", "Stop it first.")


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
