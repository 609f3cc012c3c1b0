"""Checks before a start: every path and address is ours, and unfinished trials find their checkpoints."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from orchestrator.errors import BadInput
from orchestrator.ledger.connect import NETWORK_FILE_SYSTEMS, file_system, is_file, parse
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.records import UNFINISHED_TRIAL
from orchestrator.storage import store
from orchestrator.storage.paths import Paths
from orchestrator.tracking import address


def check(paths: Paths, sweep_id: str | None = None) -> None:
    """Refuse invalid addresses, folders that others can change, and symbolic links; write nothing.

    The root itself may be a link, so that it can be on a larger disk.

    Args:
        paths: where everything is written.
        sweep_id: of a sweep whose own folders are checked too.

    Raises:
        BadInput: names the first path or address that is wrong.
    """
    parse(paths.ledger_url)
    address.check(paths.tracking_uri)
    if paths.store:
        store.check(paths.store)
    if paths.root.exists():
        _refuse_foreign(paths.root)
    for folder in _folders(paths, sweep_id):
        if folder.is_symlink():
            got = f"a symbolic link to {folder.readlink()}"
            raise BadInput(str(folder), "must be a folder under its root", got, "Remove the link.")
    if paths.token.is_symlink() or (paths.token.exists() and _mode(paths.token) & 0o077):
        got = "a symbolic link" if paths.token.is_symlink() else f"mode {_mode(paths.token):o}"
        remedy = f"Run `chmod 600 {paths.token}`, or remove it: the next run creates a new one."
        raise BadInput(str(paths.token), "must be a file readable by its owner alone", got, remedy)


def check_shared(paths: Paths) -> None:
    """Refuse paths of this host alone, for a cluster of several hosts.

    Raises:
        BadInput: names the path and how to share it.
    """
    if is_file(parse(paths.ledger_url)):
        raise BadInput(
            "ledger",
            "must be on a server where a sweep runs on several hosts, so that all of them can read it",
            f"a SQLite file, {paths.ledger_url}",
            "Set SWEEP_LEDGER=postgresql://user@host/database; `make up` starts one.",
        )
    if not paths.store and file_system(paths.root) not in NETWORK_FILE_SYSTEMS:
        raise BadInput(
            "checkpoints",
            "must be on storage that all hosts share: a trial may resume on another host",
            f"the local disk, {paths.root}",
            "Set SWEEP_CHECKPOINTS=s3://bucket/sweeps, or file:///... on a disk that all hosts share.",
        )


def check_checkpoints(paths: Paths, ledger: Ledger, sweep_id: str) -> None:
    """Refuse to resume a sweep if this machine has none of its unfinished trials' checkpoints.

    Raises:
        BadInput: if they are on another machine; here every trial would start over.
        NoStore: if the shared store does not answer.
    """
    unfinished = {trial.key for trial in ledger.trials(sweep_id) if trial.state in UNFINISHED_TRIAL}
    rows = [row for row in ledger.checkpoints(sweep_id) if row.kind == "last" and row.trial_key in unfinished]
    if rows and not any(store.holds(paths, sweep_id, row.trial_key, row.path) for row in rows):
        raise BadInput(
            f"checkpoints of {sweep_id}",
            "must be on this machine or in the shared store",
            f"none of {len(rows)}, such as {rows[0].path}",
            "Resume it where they are, or with the SWEEP_CHECKPOINTS that it had; `--new` starts over.",
        )


def _folders(paths: Paths, sweep_id: str | None) -> Iterator[Path]:
    yield from (paths.artifacts, paths.ray, paths.checkpoints(""), paths.log("", "").parent)
    if sweep_id is not None:
        own = paths.checkpoints(sweep_id)
        yield from (own, paths.ray / sweep_id, paths.report(sweep_id), paths.log(sweep_id, "").parent)
        if own.is_dir() and not own.is_symlink():
            yield from own.glob("*")


def _refuse_foreign(root: Path) -> None:
    status = root.stat()
    if status.st_uid not in (os.geteuid(), 0):
        got = f"the folder of user {status.st_uid}"
        raise BadInput(str(root), "must belong to the user who runs the sweep", got, "Name another --root.")
    if status.st_mode & stat.S_IWOTH:
        remedy = f"Run `chmod o-w {root}`."
        raise BadInput(str(root), "must not be writable by other users", f"mode {_mode(root):o}", remedy)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)
