"""Claims of sweeps on the pool that they share, and the owners, weights and quotas that decide the shares.

A pool is one Ray cluster. A driver renews its claim once a second, and asks before it launches an attempt.
Each is one short transaction: it locks the pool, deletes the claims of dead drivers, computes the shares from
the rows, and writes what the driver may do. All times are those of the clock of the database's server.
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
from orchestrator.ledger.row_backup import renew
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
from orchestrator.sharing.view import View, renewed

Result = TypeVar("Result")

ABANDONED_SECONDS = 86_400.0
"""How long the claim of a dead driver is kept in a pool that no other driver uses."""

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
    """What a sweep wants and holds at a moment, as its driver counts it.

    Attributes:
        want: attempts that the sweep could run at once now, those that run included.
        trials: attempts that were launched and have not ended.
        pending: of these, attempts that wait for a worker.
        devices: GPUs that the attempts hold.
        leaving: attempts that are being shed.
        waited: seconds for which the oldest pending attempt has waited.
        places: where the attempts run that a worker has taken.
    """

    want: int
    trials: int
    pending: int
    devices: int
    leaving: int = 0
    waited: float = 0.0
    places: tuple[Place, ...] = ()


class Claims:
    """The claim of one sweep on a pool, written by the process that holds the lease of the sweep.

    Args:
        ledger: holds the sweep.
        token: of the lease of the sweep.
        pool_id: identifies the Ray cluster.
        claim: of the sweep; its class, its weight and what it wants are read from the ledger and `Amounts`.
        rules: of the pool.
    """

    def __init__(
        self, ledger: Ledger, token: Token, pool_id: str, claim: PoolClaim, rules: Rules = RULES
    ) -> None:
        self._ledger, self._token, self._pool_id = ledger, token, pool_id
        self._claim, self._rules = claim, rules
        self._gpu_seconds = GpuSeconds(rules)

    def renew(self, nodes: Sequence[PoolNode], amounts: Amounts) -> View | None:
        """Write what the sweep wants and holds, and return the pool after that.

        Return None, and write nothing, while the database does not answer.

        Raises:
            Busy: another process has taken the lease.
        """
        written = self._written(nodes, amounts, start=False)
        return written[0] if written else None

    def start(self, nodes: Sequence[PoolNode], amounts: Amounts) -> tuple[View, bool] | None:
        """Count one more attempt as the sweep's own if it may start one now.

        Returns:
            The pool after that, and whether the attempt may start; None while the database does not answer.

        Raises:
            Busy: another process has taken the lease.
        """
        return self._written(nodes, amounts, start=True)

    def withdraw(self) -> View | None:
        """Delete the claim and charge its owner; return the pool without it, None without an answer."""
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
        devices = view.uses[self._token.sweep_id].devices
        self._gpu_seconds.observe(view.now, devices, charged=is_charged)
        return view, granted

    def _own(
        self, connection: Connection, snapshot: Snapshot, amounts: Amounts, now: float
    ) -> tuple[PoolClaim, Use]:
        """Return the own rows as they are to be written; class, weight and shortage are the ledger's."""
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
        """Run a transaction while the token is the newest; return None if the database does not answer."""

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
    """Return the pools in which a sweep claims resources now, by id."""

    def read() -> dict[str, View]:
        with ledger.reader() as connection:
            now = _now(connection, ledger)
            ids = [str(row.id) for row in connection.execute(select(POOL.c.id).order_by(POOL.c.id))]
            views = {pool_id: View.of(_read(connection, pool_id)[0], now, rules) for pool_id in ids}
        return {pool_id: view for pool_id, view in views.items() if view.claims}

    return ledger.retried(read)


def owners(ledger: Ledger) -> dict[str, Owner]:
    """Return the rows of all owners by name; an owner without a row has the defaults."""

    def read() -> dict[str, Owner]:
        with ledger.reader() as connection:
            return {owner.name: owner for owner in _owners(connection)}

    return ledger.retried(read)


def knows_owner(ledger: Ledger, name: str) -> bool:
    """Return True if somebody is a user, has submitted or runs a sweep, or has used or been given a share."""
    columns = (SERVICE_USER.c.name, SUBMISSION.c.owner, CLAIM.c.owner, OWNER.c.name)

    def read() -> bool:
        with ledger.reader() as connection:
            queries = (select(column).where(column == name).limit(1) for column in columns)
            return any(connection.execute(query).first() is not None for query in queries)

    return ledger.retried(read)


def set_owner(ledger: Ledger, name: str, *, asked: Asked | None = None, **changes: float | None) -> Owner:
    """Change the weight or the quotas of an owner, and return the new row.

    Args:
        ledger: of the owner's sweeps.
        name: of the owner.
        asked: who asks for it, for the audit log; None for no entry.
        **changes: fields of `Owner`.
    """

    def write() -> Owner:
        with ledger.writer() as connection, connection.begin():
            owner = replace(_locked_owner(connection, name), **changes)  # type: ignore[arg-type]
            _write_owner(connection, owner)
            if asked is not None:
                asked.note(connection, ledger.now())
            return owner

    written = ledger.retried(write)
    renew(ledger, OWNER, name)
    return written


def priority_classes(ledger: Ledger) -> dict[str, PriorityClass]:
    """Return the classes that were set, by sweep; a sweep without a row is `normal`."""

    def read() -> dict[str, PriorityClass]:
        with ledger.reader() as connection:
            rows = connection.execute(select(PRIORITY.c.sweep_id, PRIORITY.c.priority_class))
            return {row.sweep_id: row.priority_class for row in rows}

    return ledger.retried(read)


def _now(connection: Connection, ledger: Ledger) -> float:
    if ledger.is_file:
        return ledger.now()
    return float(connection.execute(_CLOCK).scalar_one())


def _lock(connection: Connection, pool_id: str) -> str | None:
    """Lock a pool until the transaction ends, and return its nodes as recorded; None if it has no row."""
    rows = execute(connection, statements(POOL).find, {"key_id": pool_id})
    return str(rows[0][1]) if rows else None


def _create(connection: Connection, pool_id: str, now: float) -> str:
    """Add a pool, and remove what dead drivers have left of others; return its recorded nodes."""
    connection.execute(delete(CLAIM).where(CLAIM.c.renewed_at < now - ABANDONED_SECONDS))
    connection.execute(delete(POOL).where(POOL.c.id.not_in(select(CLAIM.c.pool_id))))
    execute(connection, statements(POOL).insert, {"id": pool_id, "nodes": "[]", "charged_at": None})
    return "[]"


def _read(connection: Connection, pool_id: str) -> tuple[Snapshot, float | None]:
    """Return the rows of a pool, and when it was last charged."""
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
    """Return what a sweep holds once one more attempt was granted to it."""
    needs_device = claim.slots > 0 and use.devices * claim.slots <= use.trials
    since = now if use.pending_since is None else use.pending_since
    return replace(
        use,
        trials=use.trials + 1,
        pending=use.pending + 1,
        devices=use.devices + needs_device,
        pending_since=since,
    )


def _row(pool_id: str, claim: PoolClaim, use: Use) -> dict[str, Any]:
    both = {**_fields(claim), **_fields(use), "pool_id": pool_id, "places": json.dumps(use.places)}
    return {name: both[_FIELD.get(name, name)] for name in _COLUMN_NAMES}


def _charge(connection: Connection, view: View, charged_at: float | None, owner: str, seconds: int) -> bool:
    """Charge owners of a pool; return True if past use was due.

    Args:
        connection: of the transaction.
        view: of the pool.
        charged_at: when past use was last charged; None if it never was.
        owner: of the driver's own sweep.
        seconds: GPU-seconds of that sweep that are to be charged now.
    """
    due = is_due(view, charged_at)
    names = {claim.owner for claim in view.claims.values()} if due else set()
    if seconds:
        names.add(owner)
    # Read again, locked, and in one order: `quota` and the drivers of another pool write these rows, too.
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
    """Write a row that `_locked_owner` has locked."""
    changed = {name: value for name, value in _fields(owner).items() if name != "name"}
    execute(connection, statements(OWNER).update, changed | {"key_name": owner.name})


@lru_cache(maxsize=1024)
def _places(text: str | None) -> tuple[Place, ...]:
    """Return the places of a row, none if an earlier version wrote it; most rows are read unchanged."""
    return tuple([Place(*place) for place in json.loads(text)]) if text else ()


def _fields(row: PoolClaim | Use | Owner) -> dict[str, Any]:
    return {field.name: getattr(row, field.name) for field in fields(row)}


_FIELD: Mapping[str, str] = {"sweep_id": "sweep", "created_at": "created"}
"""Fields of `PoolClaim` whose columns have other names."""

_COLUMN_NAMES = tuple(column.name for column in CLAIM.columns)
_COLUMNS = tuple(_FIELD.get(column.name, column.name) for column in _CLAIMS.selected_columns)
_of_claim = itemgetter(*(_COLUMNS.index(field.name) for field in fields(PoolClaim)))
_PLACES = _COLUMNS.index("places")
_of_use = itemgetter(*(_COLUMNS.index(field.name) for field in fields(Use) if field.name != "places"))
