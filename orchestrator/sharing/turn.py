"""One turn of a driver: what it writes into the sharing tables, about once a second."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from orchestrator.sharing.hold import holding
from orchestrator.sharing.rows import DriverState, Owner, Snapshot
from orchestrator.sharing.rules import RULES, Rules
from orchestrator.sharing.shed import RunningTrial, choose, leaves, minimum_run
from orchestrator.sharing.shortage import clocked
from orchestrator.sharing.take import Grant, take, taken
from orchestrator.sharing.usage import charged, due
from orchestrator.sharing.view import expired, view


@dataclass(frozen=True, slots=True)
class Turn:
    """What a driver does after it has read a snapshot.

    Attributes:
        expired: sweeps whose claims, states and holdings are deleted.
        grants: trials to start; their holdings are written.
        state: the driver's own row, renewed.
        leaving: keys of the driver's trials that are to leave; a trial that is not in it any more goes on.
        owners: rows of owners to write; empty if past use is not due.
    """

    expired: tuple[str, ...]
    grants: tuple[Grant, ...]
    state: DriverState
    leaving: frozenset[str]
    owners: tuple[Owner, ...]


def turn(
    snapshot: Snapshot,
    sweep: str,
    trials: Iterable[RunningTrial],
    now: float,
    *,
    starts: int = 2,
    restart: float = 0.0,
    rules: Rules = RULES,
) -> Turn | None:
    """Decide one turn of the driver of a sweep.

    Args:
        snapshot: read in the transaction that writes the result.
        sweep: the driver's own.
        trials: of the sweep that run now, in agreement with its holdings.
        now: time of the database server's clock.
        starts: most trials to start in this turn.
        restart: seconds that the sweep needs to start a trial again.
        rules: of the pool.

    Returns:
        The decision; None if the sweep's own claim has expired or is missing. The driver then has no right to
        the room of its trials any more, and must claim again (`readmitted`).
    """
    dead = expired(snapshot, now, rules)
    before = view(snapshot, now, rules)
    if sweep not in before.claims:
        return None
    grants: list[Grant] = []
    current = before
    while len(grants) < starts and (grant := take(current, sweep)) is not None:
        grants.append(grant)
        snapshot = replace(snapshot, holdings=taken(snapshot, grant))
        current = view(snapshot, now, rules)
    renewed = replace(holding(current, clocked(current, sweep, took=bool(grants))), beat=now)
    current = replace(current, states={**current.states, sweep: renewed})
    min_run = minimum_run(current.claims[sweep], restart, rules)
    leaving = choose(trials, leaves(current).get(sweep, ()), now, min_run)
    owners = charged(current) if due(snapshot.owners, now, rules.charge_every) else ()
    return Turn(dead, tuple(grants), renewed, leaving, owners)
