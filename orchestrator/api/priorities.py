"""Queue, priority settings of sweeps, and weights and quotas of owners."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from difflib import get_close_matches
from math import inf
from pathlib import Path

from orchestrator.api.queue_order import places
from orchestrator.api.workspace import Workspace
from orchestrator.client.answers import QueuedSweep
from orchestrator.client.names import check_word, one_of
from orchestrator.driver.admission import current_owner
from orchestrator.errors import BadInput, NotAllowed, NotFound
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.people.audit import COMMAND_LINE, Asked
from orchestrator.ledger.people.users import users
from orchestrator.ledger.pool import claims
from orchestrator.ledger.queue import queue_settings, submissions
from orchestrator.ledger.queue.queue_settings import QueueSettings, change_settings
from orchestrator.ledger.sweeps.index import known_sweeps
from orchestrator.sharing.pool_rows import CLASSES, UNIT, Owner, PriorityClass


def queue(*, root: str | Path | None = None) -> Sequence[QueuedSweep]:
    """Return every sweep with a driver and every queued or parked one.

    Sweeps with running trials come first, then waiting ones in the order of their starts, then parked ones.

    Args:
        root: Folder of everything that sweeps write; `SWEEP_ROOT` or else `mlruns` if None.

    Raises:
        BadInput: The ledger does not exist.
    """
    with Workspace.at(root).ledger() as ledger:
        return places(ledger)


def move(
    name: str,
    priority_class: str,
    *,
    weight: float = 1.0,
    root: str | Path | None = None,
) -> tuple[str, PriorityClass]:
    """Set the class of a sweep and its weight relative to its owner's other sweeps; return its ID and class.

    The change has immediate effect. Class `urgent` requires an admin if the ledger has users (`user add`).
    This check does not protect a ledger from people who can write its file.

    Args:
        name: ID of the sweep, or the beginning of it.
        priority_class: `urgent`, `normal` or `idle`.
        weight: Weight relative to the owner's other sweeps; twice the weight is twice the share.
        root: Folder of everything that sweeps write; `SWEEP_ROOT` or else `mlruns` if None.

    Raises:
        BadInput: The class or the weight is not valid.
        NotAllowed: Class `urgent` requires an admin.
        NotFound: No sweep matches.
    """
    sweep_id, chosen = change(name, priority_class, weight=weight, root=root)
    return sweep_id, chosen.priority_class


def change(
    name: str,
    priority_class: str | None = None,
    *,
    weight: float | None = None,
    revisions: Collection[str] | None = None,
    asked: Asked | None = None,
    root: str | Path | None = None,
) -> tuple[str, QueueSettings]:
    """Change the given settings of a sweep; return its ID and all settings.

    Args:
        name: ID of the sweep, or the beginning of it.
        priority_class: As in `move`.
        weight: As in `move`.
        revisions: Accepted revisions (ETags) of the settings; any if None.
        asked: Entry for the audit log; one of the command line, by the owner of new sweeps, if None.
        root: Folder of everything that sweeps write; `SWEEP_ROOT` or else `mlruns` if None.

    Raises:
        BadInput: The class or the weight is not valid.
        NotAllowed: Class `urgent` requires an admin.
        NotFound: No sweep matches.
        StaleRevision: The settings have none of the revisions.
    """
    if priority_class is not None:
        check_word("class", priority_class, CLASSES)
    chosen = next((known for known in CLASSES if known == priority_class), None)
    parts = None if weight is None else _parts("weight", weight, above=0.0)
    with Workspace.at(root).ledger() as ledger:
        if priority_class == "urgent":
            _check_admin(ledger, current_owner() if asked is None else asked.actor)
        sweep_id = one_of(known_sweeps(ledger), name)
        changes = {"priority_class": priority_class, "weight": weight}
        given = {name: value for name, value in changes.items() if value is not None}
        return sweep_id, change_settings(
            ledger,
            sweep_id,
            priority_class=chosen,
            weight=parts,
            revisions=revisions,
            asked=asked or Asked(COMMAND_LINE, "priority", sweep_id, given),
        )


def resume(
    name: str, *, asked: Asked | None = None, root: str | Path | None = None
) -> tuple[str, QueueSettings]:
    """Queue a stopped or parked sweep again, or let its driver continue; return its ID and its settings.

    Args:
        name: ID of the sweep, or the beginning of it.
        asked: Entry for the audit log; one of the command line if None.
        root: Folder of everything that sweeps write; `SWEEP_ROOT` or else `mlruns` if None.

    Raises:
        NotFound: No sweep matches.
        WrongState: The sweep is neither stopped nor parked, or was not submitted.
    """
    with Workspace.at(root).ledger() as ledger:
        sweep_id = one_of(known_sweeps(ledger), name)
        asked = asked or Asked(COMMAND_LINE, "resume", sweep_id)
        submission = submissions.submission(ledger, sweep_id)
        if submission is not None and submission.state == "PARKED":
            submissions.release(ledger, sweep_id, asked=asked)
            return sweep_id, queue_settings.settings(ledger, sweep_id)
        return sweep_id, queue_settings.resume(ledger, sweep_id, asked=asked)


def _check_admin(ledger: Ledger, actor: str) -> None:
    active = {user.name: user.role for user in users(ledger) if user.is_active(ledger.now())}
    if active and active.get(actor) != "admin":
        got = f"{actor}, {f'a {active[actor]}' if actor in active else 'not a user'}"
        admins = ", ".join(name for name, role in active.items() if role == "admin")
        remedy = f"Ask {admins}." if admins else "Add one: `user add NAME --role admin`."
        raise NotAllowed("class urgent", "requires an admin", got, remedy)


def quota(
    name: str,
    *,
    weight: float | None = None,
    share: float | None = None,
    gpu_hours: float | None = None,
    sweeps: float | None = None,
    new: bool = False,
    asked: Asked | None = None,
    root: str | Path | None = None,
) -> Owner:
    """Change the given weight and quotas of an owner, and return all of them.

    Args:
        name: Name of the owner.
        weight: Weight relative to other owners; initially 1.
        share: Largest fraction of a cluster in use at once, from 0 to 1.
        gpu_hours: Largest number of GPU-hours a week; infinity for no limit.
        sweeps: Largest number of queued and running sweeps; infinity for no limit.
        new: Whether to allow an owner that is not a user and has no sweep.
        asked: Entry for the audit log; one of the command line if None.
        root: Folder of everything that sweeps write; `SWEEP_ROOT` or else `mlruns` if None.

    Raises:
        BadInput: A number is out of its range, or the ledger does not exist.
        NotFound: The owner is not a user and has no sweep, and `new` is false.
    """
    changes: dict[str, float | None] = {}
    if weight is not None:
        changes["weight"] = _parts("weight", weight, above=0.0)
    if share is not None:
        changes["most_share"] = _parts("share", share, at_most=1.0)
    if gpu_hours is not None:
        if not gpu_hours >= 0:
            raise BadInput("gpu_hours", "must be at least 0", f"{gpu_hours:g}", "Write a positive number.")
        changes["most_gpu_hours"] = gpu_hours if gpu_hours < float("inf") else None
    if sweeps is not None:
        changes["most_sweeps"] = _whole("sweeps", sweeps)
    with Workspace.at(root).ledger() as ledger:
        if not new and not claims.knows_owner(ledger, name):
            raise _unknown(ledger, name)
        if not changes:
            return claims.owners(ledger).get(name, Owner(name))
        given = {"weight": weight, "share": share, "gpu_hours": gpu_hours, "sweeps": sweeps}
        numbers = {what: number for what, number in given.items() if number is not None}
        detail = {what: "inf" if number == inf else number for what, number in numbers.items()}
        asked = asked or Asked(COMMAND_LINE, "quota", name, detail)
        return claims.set_owner(ledger, name, asked=asked, **changes)


def _unknown(ledger: Ledger, name: str) -> NotFound:
    known = {user.name for user in users(ledger)} | claims.owners(ledger).keys()
    known |= {sweep.owner for sweep in known_sweeps(ledger).values() if sweep.owner is not None}
    close = get_close_matches(name, known, 1)
    meant = f"Did you mean {close[0]}? " if close else ""
    remedy = f"{meant}Use `quota {name} --new` for an owner without a sweep."
    return NotFound("owner", "is neither a user nor the owner of a sweep", repr(name), remedy)


def _parts(what: str, number: float, *, above: float | None = None, at_most: float = 10_000.0) -> int:
    """Return a number as an integer in units of 1/10,000."""
    if not (0.0 <= number <= at_most and (above is None or round(number * UNIT) > above)):
        must = f"must be a number from 0{' (excluded)' if above is not None else ''} to {at_most:g}"
        raise BadInput(what, must, f"{number:g}", "Write a number in that range, such as 0.5.")
    return round(number * UNIT)


def _whole(what: str, number: float) -> int | None:
    """Return a number as an integer, or None for infinity."""
    if number == float("inf"):
        return None
    if not (0 <= number < 2**31 and number == int(number)):
        remedy = "Write a number such as 4, or inf for no limit."
        raise BadInput(what, "must be a whole number, at least 0", f"{number:g}", remedy)
    return int(number)
