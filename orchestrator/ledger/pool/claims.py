"""Claims of sweeps on a shared pool, and the owners, weights and quotas that decide the shares.

A pool is one Ray cluster. A driver renews its claim once a second, and asks before it launches an attempt.
Each is one short transaction that locks the pool, deletes the claims of dead drivers, computes the shares and
writes the driver's rows. All times are those of the clock of the database's server.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from operator import itemgetter
from typing import Any, TypeVar

from sqlalchemy import Connection, bindparam, delete, func, select

from orchestrator.errors import NoDatabase
from orchestrator.ledger.connect import with_retries
from orchestrator.ledger.holder import Token, busy
from orchestrator.ledger.lease_backends import SERVER_NOW, holds
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.people.audit import Asked
from orchestrator.ledger.prepared import execute
from orchestrator.ledger.row_backup import renewing
from orchestrator.ledger.tables import CLAIM, OWNER, POOL, PRIORITY, SERVICE_USER, SUBMISSION
from orchestrator.ledger.transaction import statements
from orchestrator.sharing.pool_rows import (
    RULES,
    UNIT,
    Owner,
    Place,
    PoolClaim,
    PoolNode,
    PriorityClass,
    Rules,
    Snapshot,
    Use,
)
from orchestrator.sharing.usage import GpuSeconds, charged, is_due, with_gpu_seconds
from orchestrator.sharing.view import View, has_slot, renewed

Result = TypeVar("Result")

ABANDONED_SECONDS = 86_400.0
"""Lifetime of a dead driver's claim in a pool that no other driver uses."""

_CLAIMS = (
    select(
        *CLAIM.columns,
        func.coalesce(PRIORITY.c.priority_class, "normal").label("priority_class"),
        func.coalesce(PRIORITY.c.weight, UNIT).label("weight"),
    )
    .select_from(CLAIM.outerjoin(PRIORITY, PRIORITY.c.sweep_id == CLAIM.c.sweep_id))
    .where(CLAIM.c.pool_id == bindparam("pool_id"))
)
_POOL = select(*POOL.columns).where(POOL.c.id == bindparam("pool_id"))
_OWNERS = select(*OWNER.columns)
_CLOCK = select(SERVER_NOW)


@dataclass(frozen=True)
class Amounts:
    """Demand and use of a sweep at a moment, as its driver counts them.

    Attributes:
        want: Attempts that the sweep could run at once now, including those that run.
        trials: Attempts that were launched and have not ended.
        pending: Launched attempts that wait for a worker.
        devices: GPUs that the attempts hold, in 1/10,000.
        leaving: Attempts that are being shed.
        waited: Seconds for which the oldest pending attempt has waited.
        places: Nodes of the attempts that a worker has taken.
    """

    want: int
    trials: int
    pending: int
    devices: int
    leaving: int = 0
    waited: float = 0.0
    places: tuple[Place, ...] = ()


class Claims:
    """Claim of one sweep on a pool, written by the process that holds the sweep's lease.

    Every method raises Busy once another process has taken the lease.

    Args:
        ledger: Ledger of the sweep.
        token: Token of the sweep's lease.
        pool_id: ID of the Ray cluster.
        claim: Claim of the sweep, whose class, weight and demand come from the ledger and `Amounts`.
        rules: Rules of the pool.
    """

    def __init__(
        self, ledger: Ledger, token: Token, pool_id: str, claim: PoolClaim, rules: Rules = RULES
    ) -> None:
        self._ledger, self._token, self._pool_id = ledger, token, pool_id
        self._claim, self._rules = claim, rules
        self._gpu_seconds = GpuSeconds(rules)

    def renew(self, nodes: Sequence[PoolNode], amounts: Amounts) -> View | None:
        """Write the demand and the use of the sweep.

        Returns:
            The pool after that; None, and nothing is written, while the database does not answer.
        """
        written = self._written(nodes, amounts, start=False)
        return written[0] if written else None

    def start(self, nodes: Sequence[PoolNode], amounts: Amounts) -> tuple[View, bool] | None:
        """Ask to start one more attempt, which then counts as the sweep's own.

        Returns:
            The pool after that, and whether the attempt may start; None while the database does not answer.
        """
        return self._written(nodes, amounts, start=True)

    def withdraw(self) -> View | None:
        """Delete the claim and charge its owner; return the pool without it, or None without an answer."""
        view = self._run(self._withdrawn)
        if view is not None:
            self._gpu_seconds.observe(view.now, 0, charged=True)
        return view

    def _withdrawn(self, connection: Connection) -> View:
        _lock(connection, self._pool_id)
        now = _now(connection, self._ledger)
        if owed := self._gpu_seconds.owed(now):
            owner = _locked_owner(connection, self._claim.owner)
            _write_owner(connection, with_gpu_seconds(owner, owed, now))
        snapshot, _ = _read(connection, self._pool_id)
        execute(connection, statements(CLAIM).delete, {"key_sweep_id": self._token.sweep_id})
        left = tuple(claim for claim in snapshot.claims if claim.sweep != self._token.sweep_id)
        if not left:
            execute(connection, statements(POOL).delete, {"key_id": self._pool_id})
        return View.of(replace(snapshot, claims=left), now, self._rules)

    def _written(
        self, nodes: Sequence[PoolNode], amounts: Amounts, *, start: bool
    ) -> tuple[View, bool] | None:
        def changed(connection: Connection) -> tuple[View, bool, bool]:
            now = _now(connection, self._ledger)
            recorded = _lock(connection, self._pool_id) or _create(connection, self._pool_id, now)
            snapshot, charged_at = _read(connection, self._pool_id)
            others = _without(snapshot, {*_dead(snapshot, now, self._rules), self._token.sweep_id})
            claim, use = self._own(connection, snapshot, amounts, now)
            rows = Snapshot(tuple(nodes), others.owners, (*others.claims, claim), (*others.uses, use))
            view = View.of(rows, now, self._rules)
            granted = start and view.may_start(claim.sweep)
            if granted:
                use = _with_one_more(claim, use, now)
                view = replace(view, uses={**view.uses, claim.sweep: use})
            use = renewed(view, use)
            view = replace(view, uses={**view.uses, claim.sweep: use})
            live = {row.sweep for row in others.claims}
            for sweep in (*(row.sweep for row in snapshot.claims if row.sweep not in live), claim.sweep):
                execute(connection, statements(CLAIM).delete, {"key_sweep_id": sweep})
            execute(connection, statements(CLAIM).insert, _row(self._pool_id, claim, use))
            written: dict[str, Any] = {}
            if (text := json.dumps([[node.name, node.cpu, node.devices] for node in nodes])) != recorded:
                written["nodes"] = text
            owed = self._gpu_seconds.owed(now) if self._gpu_seconds.is_due(now) else 0
            if _charge(connection, view, charged_at, claim.owner, owed):
                written["charged_at"] = now
            if written:
                execute(connection, statements(POOL).update, written | {"key_id": self._pool_id})
            return view, granted, owed > 0

        done = self._run(changed)
        if done is None:
            return None
        view, granted, is_charged = done
        gpus = view.uses[self._token.sweep_id].devices / UNIT
        self._gpu_seconds.observe(view.now, gpus, charged=is_charged)
        return view, granted

    def _own(
        self, connection: Connection, snapshot: Snapshot, amounts: Amounts, now: float
    ) -> tuple[PoolClaim, Use]:
        """Return the new rows of the sweep, with its class, weight and shortage from the ledger."""
        sweep = self._token.sweep_id
        priority = execute(connection, statements(PRIORITY).find, {"key_sweep_id": sweep})
        kept = {"priority_class": priority[0][1], "weight": priority[0][2]} if priority else {}
        before = next((row for row in snapshot.uses if row.sweep == sweep), Use(sweep, now))
        use = Use(
            sweep,
            now,
            amounts.trials,
            amounts.pending,
            amounts.devices,
            amounts.leaving,
            short_since=before.short_since,
            pending_since=now - amounts.waited if amounts.pending else None,
            held_node=before.held_node,
            held_since=before.held_since,
            places=amounts.places,
        )
        return replace(self._claim, want=amounts.want, **kept), use

    def _run(self, change: Callable[[Connection], Result]) -> Result | None:
        """Run a transaction that checks the token; return None if the database does not answer."""

        def attempt() -> Result:
            with self._ledger.writer() as connection, connection.begin():
                result = change(connection)
                if not holds(connection, self._token):
                    raise busy(self._token.sweep_id, None)
                return result

        ledger = self._ledger
        try:
            return with_retries(attempt, ledger.where, reconnect_seconds=0.0, system=ledger.system)
        except NoDatabase:
            return None


def pools(ledger: Ledger, rules: Rules = RULES) -> dict[str, View]:
    """Return the pools with live claims, by ID."""

    def read(connection: Connection) -> dict[str, View]:
        now = _now(connection, ledger)
        ids = [str(row.id) for row in connection.execute(select(POOL.c.id).order_by(POOL.c.id))]
        return {pool_id: View.of(_read(connection, pool_id)[0], now, rules) for pool_id in ids}

    return {pool_id: view for pool_id, view in ledger.query(read).items() if view.claims}


def owners(ledger: Ledger) -> dict[str, Owner]:
    """Return the rows of all owners by name; an owner without a row has the defaults."""
    return {owner.name: owner for owner in ledger.query(_owners)}


def knows_owner(ledger: Ledger, name: str) -> bool:
    """Return True if a user, a submission, a claim or a quota has this name as its owner."""
    columns = (SERVICE_USER.c.name, SUBMISSION.c.owner, CLAIM.c.owner, OWNER.c.name)
    queries = [select(column).where(column == name).limit(1) for column in columns]
    return ledger.query(lambda connection: any(connection.execute(each).first() for each in queries))


def set_owner(ledger: Ledger, name: str, *, asked: Asked | None = None, **changes: float | None) -> Owner:
    """Change the weight or the quotas of an owner, and return the new row.

    Args:
        ledger: Ledger of the owner's sweeps.
        name: Name of the owner.
        asked: Entry for the audit log, if any.
        **changes: Fields of `Owner`.
    """

    def write(connection: Connection) -> Owner:
        owner = replace(_locked_owner(connection, name), **changes)  # type: ignore[arg-type]
        _write_owner(connection, owner)
        if asked is not None:
            asked.note(connection, ledger.now())
        return owner

    with renewing(ledger, OWNER, name):
        return ledger.transact(write)


def priority_classes(ledger: Ledger) -> dict[str, PriorityClass]:
    """Return the classes that were set, by sweep; a sweep without one is `normal`."""
    query = select(PRIORITY.c.sweep_id, PRIORITY.c.priority_class)
    rows = ledger.query(lambda connection: connection.execute(query).all())
    return {row.sweep_id: row.priority_class for row in rows}


def _now(connection: Connection, ledger: Ledger) -> float:
    if ledger.is_file:
        return ledger.now()
    return float(connection.execute(_CLOCK).scalar_one())


def _lock(connection: Connection, pool_id: str) -> str | None:
    """Lock a pool until the transaction ends, and return its recorded nodes, or None without a row."""
    rows = execute(connection, statements(POOL).find, {"key_id": pool_id})
    return str(rows[0][1]) if rows else None


def _create(connection: Connection, pool_id: str, now: float) -> str:
    """Add a pool, and delete claims and pools of drivers that died long ago; return its recorded nodes."""
    connection.execute(delete(CLAIM).where(CLAIM.c.renewed_at < now - ABANDONED_SECONDS))
    connection.execute(delete(POOL).where(POOL.c.id.not_in(select(CLAIM.c.pool_id))))
    execute(connection, statements(POOL).insert, {"id": pool_id, "nodes": "[]", "charged_at": None})
    return "[]"


def _read(connection: Connection, pool_id: str) -> tuple[Snapshot, float | None]:
    """Return the rows of a pool, and the time of its last charge."""
    pool = execute(connection, _POOL, {"pool_id": pool_id})
    nodes = tuple(PoolNode(*node) for node in json.loads(pool[0][1])) if pool else ()
    rows = execute(connection, _CLAIMS, {"pool_id": pool_id})
    claims = tuple([PoolClaim(*_of_claim(row)) for row in rows])
    uses = tuple([Use(*(*_of_use(row), _places(row[_PLACES]))) for row in rows])
    return Snapshot(nodes, _owners(connection), claims, uses), pool[0][2] if pool else None


def _owners(connection: Connection) -> tuple[Owner, ...]:
    return tuple(Owner(*row) for row in execute(connection, _OWNERS, {}))


def _dead(snapshot: Snapshot, now: float, rules: Rules) -> set[str]:
    return {use.sweep for use in snapshot.uses if now - use.renewed_at > rules.dead_after}


def _without(snapshot: Snapshot, sweeps: set[str]) -> Snapshot:
    """Return the rows of a pool without those of some sweeps."""
    return replace(
        snapshot,
        claims=tuple(claim for claim in snapshot.claims if claim.sweep not in sweeps),
        uses=tuple(use for use in snapshot.uses if use.sweep not in sweeps),
    )


def _with_one_more(claim: PoolClaim, use: Use, now: float) -> Use:
    """Return the use of a sweep with one more granted attempt."""
    more = 0 if has_slot(claim, use) else claim.all_devices
    since = now if use.pending_since is None else use.pending_since
    return replace(
        use,
        trials=use.trials + 1,
        pending=use.pending + 1,
        devices=use.devices + more,
        pending_since=since,
    )


def _row(pool_id: str, claim: PoolClaim, use: Use) -> dict[str, Any]:
    both = {**_fields(claim), **_fields(use), "pool_id": pool_id, "places": json.dumps(use.places)}
    return {name: both[_FIELD.get(name, name)] for name in _COLUMN_NAMES}


def _charge(connection: Connection, view: View, charged_at: float | None, owner: str, seconds: int) -> bool:
    """Charge past use if it is due, and GPU-seconds to one owner; return True if it was due."""
    due = is_due(view, charged_at)
    names = {claim.owner for claim in view.claims.values()} if due else set()
    if seconds:
        names.add(owner)
    # Read again, locked, and in one order: `quota` and the drivers of other pools also write these rows.
    locked = {name: _locked_owner(connection, name) for name in sorted(names)}
    if due:
        locked |= {
            row.name: row for row in charged(replace(view, owners={**view.owners, **locked}), charged_at)
        }
    if seconds:
        locked[owner] = with_gpu_seconds(locked[owner], seconds, view.now)
    for row in locked.values():
        _write_owner(connection, row)
    return due


def _locked_owner(connection: Connection, name: str) -> Owner:
    """Return the row of an owner, locked until the transaction ends; insert one if there is none."""
    rows = execute(connection, statements(OWNER).find, {"key_name": name})
    if rows:
        return Owner(*rows[0])
    owner = Owner(name)
    execute(connection, statements(OWNER).insert, _fields(owner))
    return owner


def _write_owner(connection: Connection, owner: Owner) -> None:
    """Write a row that is locked."""
    changed = {name: value for name, value in _fields(owner).items() if name != "name"}
    execute(connection, statements(OWNER).update, changed | {"key_name": owner.name})


@lru_cache(maxsize=1024)
def _places(text: str) -> tuple[Place, ...]:
    """Return the places of a row; cached, because most rows have not changed since they were last read."""
    return tuple([Place(*place) for place in json.loads(text)])


def _fields(row: PoolClaim | Use | Owner) -> dict[str, Any]:
    return {field.name: getattr(row, field.name) for field in fields(row)}


_FIELD: Mapping[str, str] = {"sweep_id": "sweep", "created_at": "created"}
"""Fields of `PoolClaim` whose columns have other names."""

_COLUMN_NAMES = tuple(column.name for column in CLAIM.columns)
_COLUMNS = tuple(_FIELD.get(column.name, column.name) for column in _CLAIMS.selected_columns)
_of_claim = itemgetter(*(_COLUMNS.index(field.name) for field in fields(PoolClaim)))
_PLACES = _COLUMNS.index("places")
_of_use = itemgetter(*(_COLUMNS.index(field.name) for field in fields(Use) if field.name != "places"))
