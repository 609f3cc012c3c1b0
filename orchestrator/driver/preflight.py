"""Where a sweep writes must be ours: no link that leads elsewhere, no folder that others can change."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from orchestrator.errors import BadInput
from orchestrator.ledger.connect import NETWORK_FILE_SYSTEMS, file_system, is_file, parse
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.records import FINISHED_TRIAL
from orchestrator.storage import store
from orchestrator.storage.paths import Paths
from orchestrator.tracking import address


def check(paths: Paths, sweep_id: str | None = None) -> None:
    """Refuse addresses that cannot be, folders that others can change, and links; nothing is made.

    The root itself may be a link, for that is how a large disk is named.

    Args:
        paths: where everything is written.
        sweep_id: of the sweep whose own folders are looked at too.

    Raises:
        BadInput: naming the first such folder.
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
        remedy = f"Run `chmod 600 {paths.token}`, or remove it: a new one is made."
        raise BadInput(str(paths.token), "must be a file for its owner's eyes only", got, remedy)


def check_shared(paths: Paths) -> None:
    """Refuse what holds on one host alone, for a cluster of several.

    Raises:
        BadInput: naming what every host must reach, and how.
    """
    if is_file(parse(paths.ledger_url)):
        raise BadInput(
            "ledger",
            "must be on a server where a sweep runs on several hosts, so that each can ask it how it stands",
            f"a SQLite file, {paths.ledger_url}",
            "Set SWEEP_LEDGER=postgresql://user@host/database; `make up` starts one.",
        )
    if not paths.store and file_system(paths.root) not in NETWORK_FILE_SYSTEMS:
        raise BadInput(
            "checkpoints",
            "must be where every host reaches them: a trial may go on on another one",
            f"the local disk, {paths.root}",
            "Set SWEEP_CHECKPOINTS=s3://bucket/sweeps, or file:///... on a disk that all hosts share.",
        )


def check_at_hand(paths: Paths, ledger: Ledger, sweep_id: str) -> None:
    """Refuse to go on where none of the checkpoints is that the unfinished trials have reached.

    Raises:
        BadInput: they are on another machine; here every trial would begin anew.
        NoStore: the store does not answer.
    """
    unfinished = {trial.key for trial in ledger.trials(sweep_id) if trial.state not in FINISHED_TRIAL}
    rows = [row for row in ledger.checkpoints(sweep_id) if row.kind == "last" and row.trial_key in unfinished]
    if rows and not any(store.holds(paths, sweep_id, row.trial_key, row.path) for row in rows):
        raise BadInput(
            f"checkpoints of {sweep_id}",
            "must be where this machine reaches them",
            f"none of {len(rows)}, such as {rows[0].path}",
            "Resume it where they are, or with the SWEEP_CHECKPOINTS that it had; `--new` begins anew.",
        )


def _folders(paths: Paths, sweep_id: str | None) -> Iterator[Path]:
    yield from (paths.artifacts, paths.ray, paths.checkpoints(""), paths.log("", "").parent)
    if sweep_id is not None:
        own = paths.checkpoints(sweep_id)
        yield from (own, paths.ray / sweep_id, paths.report(sweep_id), paths.log(sweep_id, "").parent)
        if own.is_dir() and not own.is_symlink():
            yield from own.glob("*")


def _refuse_foreign(root: Path) -> None:
    found = root.stat()
    if found.st_uid not in (os.geteuid(), 0):
        got = f"the folder of user {found.st_uid}"
        raise BadInput(str(root), "must belong to whoever runs a sweep in it", got, "Name another --root.")
    if found.st_mode & stat.S_IWOTH:
        remedy = f"Run `chmod o-w {root}`."
        raise BadInput(str(root), "must not be writable for everybody", f"mode {_mode(root):o}", remedy)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)
