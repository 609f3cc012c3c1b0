"""Targets of notifications of owners: list, add and remove them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orchestrator.api.workspace import Workspace
from orchestrator.client.answers import NoticeTarget
from orchestrator.driver import preflight
from orchestrator.driver.admission import current_owner
from orchestrator.driver.notice_targets import NoticeSetting, shown
from orchestrator.ledger.people.audit import COMMAND_LINE, Asked
from orchestrator.service import notice_list


def listed(owner: str | None = None, *, root: str | Path | None = None) -> list[NoticeTarget]:
    """Return the targets of an owner.

    Args:
        owner: Owner; `SWEEP_OWNER` or else the user of this process if None.
        root: Folder of everything that sweeps write; `SWEEP_ROOT` or else `mlruns` if None.
    """
    known = notice_list.targets(Workspace.at(root).paths.notices)
    return _rows(known.get(owner or current_owner(), []))


def add(
    target: str,
    events: Sequence[str] = (),
    name: str = "",
    *,
    over_http: str | None = None,
    root: str | Path | None = None,
) -> list[NoticeTarget]:
    """Add a target, or replace its events; return all targets of its owner.

    Args:
        target: Target in one of the forms of `notice_targets`.
        events: Names of the events; all if empty.
        name: Name of the target in `notify:` of search-space files; '' for a target of all sweeps.
        over_http: User who has sent the target over HTTP, which restricts it; None for the owner of this
            process.
        root: Folder of everything that sweeps write; `SWEEP_ROOT` or else `mlruns` if None.

    Raises:
        BadInput: The target has none of the forms, an event is unknown, or the name is invalid.
        NotAllowed: The target is restricted.
        OverQuota: The owner has too many targets.
    """
    workspace, owner = Workspace.at(root), over_http or current_owner()
    preflight.check_paths(workspace.paths)
    workspace.paths.create()
    setting = NoticeSetting(target, tuple(events), restricted=over_http is not None, name=name)
    rows = _rows(notice_list.add(workspace.paths.notices, owner, setting))
    _note(workspace, owner, over_http, "notice add", where=shown(target), events=list(events))
    return rows


def remove(
    number: int, *, over_http: str | None = None, root: str | Path | None = None
) -> list[NoticeTarget]:
    """Remove a target by its number; return the other targets of its owner.

    Args:
        number: Number of the target.
        over_http: User who has sent the request over HTTP; None for the owner of this process.
        root: Folder of everything that sweeps write; `SWEEP_ROOT` or else `mlruns` if None.

    Raises:
        NotFound: The owner has no such target.
    """
    workspace, owner = Workspace.at(root), over_http or current_owner()
    rows = _rows(notice_list.remove(workspace.paths.notices, owner, number))
    _note(workspace, owner, over_http, "notice remove", number=number)
    return rows


def _rows(settings: Sequence[NoticeSetting]) -> list[NoticeTarget]:
    return [
        NoticeTarget(number, shown(each.target), each.events, each.name)
        for number, each in enumerate(settings, start=1)
    ]


def _note(workspace: Workspace, owner: str, actor: str | None, action: str, **detail: object) -> None:
    """Write an entry of the audit log, without the target's secret."""
    asked = Asked(actor or COMMAND_LINE, action, owner, detail)
    with workspace.ledger(create=True) as ledger:
        ledger.transact(lambda connection: asked.note(connection, ledger.now()))
