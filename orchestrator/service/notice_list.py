"""File with the targets of notifications that each owner has set; a root has one, of mode 600.

The ledger has none of them: anyone who knows the URL of a webhook can post to it, and viewers of a service
read the ledger, as does everyone who has a backup.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType

from orchestrator.driver.detached import NOTIFY
from orchestrator.driver.notice_targets import EVENTS, NoticeSetting, check_target
from orchestrator.errors import BadInput, NotFound, OverQuota

MOST_TARGETS = 10
"""Largest number of targets of an owner."""


def targets(file: Path) -> dict[str, list[NoticeSetting]]:
    """Return the targets of every owner who has set one."""
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    return {
        owner: [NoticeSetting(**{**each, "events": tuple(each["events"])}) for each in found]
        for owner, found in json.loads(text).items()
    }


def add(file: Path, owner: str, setting: NoticeSetting) -> list[NoticeSetting]:
    """Add a target of an owner, or replace its events; return all of the owner.

    Raises:
        BadInput: The target has none of the forms, an event is unknown, or the name is invalid.
        NotAllowed: The target is restricted.
        OverQuota: The owner has `MOST_TARGETS` targets.
    """
    check_target(setting.target, restricted=setting.restricted)
    if setting.name and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", setting.name):
        must = "must be letters, digits, - and _, at most 64"
        raise BadInput("--name", must, setting.name[:80], "For example --name team.")
    for event in setting.events:
        if event not in EVENTS:
            must = f"must be one of {', '.join(EVENTS)}"
            raise BadInput("--event", must, event[:80], "Leave it out for all events.")

    def change(own: list[NoticeSetting]) -> list[NoticeSetting]:
        others = [each for each in own if (each.name or each.target) != (setting.name or setting.target)]
        if len(others) >= MOST_TARGETS:
            must = f"may have at most {MOST_TARGETS} targets of notifications"
            raise OverQuota(f"owner {owner}", must, str(len(others)), "Remove one first.")
        return [*others, setting]

    return _change(file, owner, change)


def remove(file: Path, owner: str, number: int) -> list[NoticeSetting]:
    """Remove a target of an owner by its number, from 1; return the others.

    Raises:
        NotFound: The owner has no such target.
    """

    def change(own: list[NoticeSetting]) -> list[NoticeSetting]:
        if not 1 <= number <= len(own):
            remedy = "`sweep notify` lists the targets."
            must = (
                f"must be the number of a target, from 1 to {len(own)}"
                if own
                else "cannot be removed: there is none"
            )
            raise NotFound("target", must, str(number), remedy)
        return [each for place, each in enumerate(own, start=1) if place != number]

    return _change(file, owner, change)


def of_file(
    wanted: Mapping[str, Sequence[str]],
    own: Sequence[NoticeSetting],
    environment: Mapping[str, str] = MappingProxyType({}),
) -> tuple[list[NoticeSetting], list[str]]:
    """Return the targets that a search-space file names, and the names that are not set.

    Args:
        wanted: Events by target, as `SweepConfig.notify` has them.
        own: Targets of the owner of the sweep.
        environment: Variables of the owner, of which `SWEEP_NOTIFY_TEAM` sets the target `team`. None for a
            service, whose variables are not those of the owner.
    """
    found, unknown = list[NoticeSetting](), list[str]()
    by_name = {each.name: each for each in own if each.name}
    for name, events in wanted.items():
        if name.startswith("mailto:"):
            found.append(NoticeSetting(name, tuple(events)))
        elif name in by_name:
            found.append(replace(by_name[name], events=tuple(events)))
        elif target := environment.get(f"{NOTIFY}_{name.upper().replace('-', '_')}"):
            found.append(NoticeSetting(target, tuple(events), name=name))
        else:
            unknown.append(name)
    return found, unknown


def _change(
    file: Path, owner: str, change: Callable[[list[NoticeSetting]], list[NoticeSetting]]
) -> list[NoticeSetting]:
    with _locked(file):
        known = targets(file)
        own = change(known.get(owner, []))
        _write(file, {**known, owner: own})
    return own


def _write(file: Path, known: Mapping[str, Collection[NoticeSetting]]) -> None:
    document = {owner: [asdict(each) for each in own] for owner, own in known.items() if own}
    fresh = file.with_name(f"{file.name}.{os.getpid()}")
    fresh.touch(mode=0o600)
    fresh.write_text(json.dumps(document, indent=1), encoding="utf-8")
    fresh.replace(file)


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Let one thread or process at a time change a file, within a `with` block."""
    lock = os.open(file.with_suffix(".lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
