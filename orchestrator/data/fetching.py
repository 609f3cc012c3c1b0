"""Bring a task's published files into the data folder.

A file is downloaded to `downloads/`, verified, unpacked beside its place and moved there whole; what is there
is not fetched again. A file put into `downloads/` by hand is taken like a downloaded one.
"""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.data.downloading import Open, download, verify
from orchestrator.data.unpacking import unpack
from trainables.data.remote import Remote
from trainables.data.task import Progress
from trainables.errors import BadData

DOWNLOADS = "downloads"


@dataclass(frozen=True)
class Fetched:
    """What became of one file.

    Attributes:
        place: where it is now.
        sha256: of the file that was fetched; None if everything was there before.
        pinned: whether that is a published sum; if not, it has been written beside the file.
    """

    place: Path
    sha256: str | None
    pinned: bool


def fetch(
    remote: Remote, folder: Path, progress: Progress, *, given: Path | None = None, open_url: Open
) -> Fetched:
    """Fetch one file and put it in place.

    Args:
        remote: the file.
        folder: the data folder.
        progress: in bytes.
        given: a file of the user's own, or the folder it is in, instead of a download.
        open_url: the network.

    Raises:
        BadData: it cannot be had, or is not what was published.
    """
    place, downloads = folder / remote.place, folder / DOWNLOADS
    if given is not None:
        path = given / remote.name if given.is_dir() else given
        if not path.is_file():
            raise BadData(str(path), "must be a file", "no such file", "Name the file that you have.")
    else:
        path = downloads / remote.name if remote.inside is not None else place
    with _alone(downloads / f"{remote.name}.lock"):
        if place.exists():
            return Fetched(place, None, remote.sha256 is not None)
        record = downloads / f"{remote.name}.sha256"
        known = replace(remote, sha256=remote.sha256 or _recorded(record))
        if not path.is_file():
            download(known, path, progress, open_url)
        found = verify(known, path)
        if remote.sha256 is None:
            record.write_text(f"{found}  {remote.name}\n")
        if path != place:
            _put(remote, path, place, progress)
    return Fetched(place, found, remote.sha256 is not None)


def _put(remote: Remote, path: Path, place: Path, progress: Progress) -> None:
    """Unpack or copy a verified file, and move it into its place whole."""
    stage = place.with_name(f".{place.name}.stage")
    # Holding the lock, nobody else unpacks: what stands here was left by a process that died.
    shutil.rmtree(stage, ignore_errors=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(place.parent).free
    if free < remote.unpacked:
        must = f"must have {remote.unpacked:,} bytes free to unpack {remote.name}"
        raise BadData(
            str(place.parent), must, f"{free:,}", "Make room, or choose another folder with --data."
        )
    try:
        if remote.inside is None:
            stage.mkdir()
            shutil.copyfile(path, stage / place.name)
            (stage / place.name).replace(place)
        else:
            caps = {"most_bytes": remote.unpacked, "most_members": remote.members}
            unpack(path, remote.inside, stage / "content", progress, **caps)
            (stage / "content").replace(place)
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _recorded(record: Path) -> str | None:
    """Return the sum that an earlier fetch got, where nobody publishes one."""
    return record.read_text().split()[0] if record.is_file() else None


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold a lock, so that two fetches of one file take turns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
