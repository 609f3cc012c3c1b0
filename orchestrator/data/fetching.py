"""Fetch a task's published files into the data folder: download, verify, unpack, move into place.

A file is downloaded to `downloads/`, verified, unpacked beside its final folder and moved there whole. Files
that are in place are not fetched again. A file that a user puts into `downloads/` is treated as downloaded.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from filelock import FileLock

from orchestrator.data.unpacking import unpack
from trainables.data.task import Progress, Remote
from trainables.errors import BadData

DOWNLOADS = "downloads"

_CHUNK_BYTES = 1 << 20
TIMEOUT_SECONDS = 30
_PARTIAL_CONTENT = 206
_RANGE_BEYOND_THE_END = 416
_NETWORK = (http.client.HTTPException, OSError)
"""Errors of opening an address and of receiving from it, but not of writing the file."""

Open = Callable[..., http.client.HTTPResponse]


@dataclass(frozen=True)
class Fetched:
    """The result of fetching one file.

    Attributes:
        place: Path of the file or folder in the data folder.
        sha256: SHA-256 of the fetched file; None if it was in place before.
        pinned: Whether the file has the published checksum; False if none is published, or the user gave
            another.
    """

    place: Path
    sha256: str | None
    pinned: bool


def fetch(
    remote: Remote,
    folder: Path,
    progress: Progress,
    *,
    given: Path | None = None,
    sha256: str | None = None,
    open_url: Open,
) -> Fetched:
    """Fetch one file and put it in place.

    The checksum of the first fetch is written to `downloads/` if none is published and `sha256` is None.

    Args:
        remote: File to fetch.
        folder: Data folder.
        progress: Progress in bytes.
        given: Local file, or its folder, to use instead of a download.
        sha256: SHA-256 of that file in upper or lower case, if it is not the published one.
        open_url: Function that opens a request.

    Raises:
        BadData: The file cannot be downloaded, or is not the published one.
    """
    place, downloads = folder / remote.place, folder / DOWNLOADS
    if given is not None:
        path = given / remote.name if given.is_dir() else given
        if not path.is_file():
            raise BadData(str(path), "does not exist", "", "Name the file that you have downloaded.")
    else:
        path = downloads / remote.name if remote.inside is not None else place
    downloads.mkdir(parents=True, exist_ok=True)
    with FileLock(downloads / f"{remote.name}.lock"):  # two fetches of one file take turns
        if place.exists():
            return Fetched(place, None, remote.sha256 is not None)
        record = downloads / f"{remote.name}.sha256"
        known = _known(remote, sha256, record)
        if not path.is_file():
            download(known, path, progress, open_url)
        actual = verify(known, path)
        if remote.sha256 is None and sha256 is None:
            record.write_text(f"{actual}  {remote.name}\n")
        if path != place:
            _put(remote, path, place, progress)
    return Fetched(place, actual, actual == remote.sha256)


def _put(remote: Remote, path: Path, place: Path, progress: Progress) -> None:
    """Unpack or copy a verified file, and move the result into place whole."""
    stage = place.with_name(f".{place.name}.stage")
    # No other process unpacks under the lock: an existing stage was left by a process that died.
    shutil.rmtree(stage, ignore_errors=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(place.parent).free
    if free < remote.unpacked:
        must = f"must have {remote.unpacked:,} bytes free to unpack {remote.name}"
        raise BadData(
            str(place.parent), must, f"{free:,}", "Free some space, or choose another folder with --data."
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


def _known(remote: Remote, sha256: str | None, record: Path) -> Remote:
    """Return a file with its expected size and checksum, from the user, the publisher or an earlier fetch."""
    if sha256 is not None:
        return replace(remote, sha256=sha256.lower(), size=None)
    if remote.sha256 is not None or not record.is_file():
        return remote
    return replace(remote, sha256=record.read_text().split()[0])


def download(remote: Remote, path: Path, progress: Progress, open_url: Open = urllib.request.urlopen) -> None:
    """Download a file to `<path>.part`, verify it, and rename it.

    An interrupted download is resumed if the server allows it.

    Raises:
        BadData: The server cannot be reached, or the file has another size or checksum than published.
    """
    part = path.with_name(f"{path.name}.part")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        _receive(remote, part, progress, open_url)
        verify(remote, part)
    except _Unreachable as error:
        raise BadData(remote.url, "must be reachable", str(error), by_hand(remote, path)) from error
    except BadData:
        # Resuming a download with wrong bytes would fail again.
        part.unlink()
        raise
    part.replace(path)


class _Unreachable(Exception):
    """The network has failed; the text has its error message."""


def verify(remote: Remote, path: Path) -> str:
    """Return the SHA-256 of a file, after comparing size and checksum with the published ones.

    Raises:
        BadData: The size or the checksum differs.
    """
    size = path.stat().st_size
    if remote.size is not None and size != remote.size:
        raise BadData(
            str(path), f"must have {remote.size:,} bytes", f"{size:,}", "Remove it and fetch again."
        )
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    if remote.sha256 is not None and sha256 != remote.sha256:
        raise BadData(
            str(path), f"must have the SHA-256 {remote.sha256}", sha256, "Remove it and fetch again."
        )
    return sha256


def by_hand(remote: Remote, path: Path) -> str:
    """Return instructions for a machine without a network."""
    known = [
        f"{remote.size:,} bytes" if remote.size else "",
        f"SHA-256 {remote.sha256}" if remote.sha256 else "",
    ]
    details = ", ".join(filter(None, known))
    return f"Without a network, put it{f' ({details})' if details else ''} at {path} and run this again."


def _receive(remote: Remote, part: Path, progress: Progress, open_url: Open) -> None:
    start = part.stat().st_size if part.exists() else 0
    response = _opened(remote, start, open_url)
    if response is None:
        return
    with response:
        resumed = response.status == _PARTIAL_CONTENT
        done = start if resumed else 0
        total = done + int(response.headers.get("Content-Length") or 0)
        with part.open("ab" if resumed else "wb") as file:
            while chunk := _read(response):
                file.write(chunk)
                done += len(chunk)
                progress(f"downloading {remote.name}", done, max(total, done))
            file.flush()
            os.fsync(file.fileno())
    if done < total:
        raise _Unreachable(f"a connection that ended {total - done:,} bytes early; run it again to resume")


def _opened(remote: Remote, start: int, open_url: Open) -> http.client.HTTPResponse | None:
    """Request a file from byte `start` on; return None if the server answers that the file ends there."""
    request = urllib.request.Request(remote.url, headers={"User-Agent": "rotrnn-sweeps"})
    if start:
        request.add_header("Range", f"bytes={start}-")
    try:
        return open_url(request, timeout=TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        if error.code == _RANGE_BEYOND_THE_END and start:
            return None
        raise _Unreachable(f"{error.code} {error.reason}") from error
    except _NETWORK as error:
        raise _Unreachable(str(getattr(error, "reason", error)) or type(error).__name__) from error


def _read(response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read(_CHUNK_BYTES)
    except _NETWORK as error:
        raise _Unreachable(f"{str(error) or type(error).__name__}; run it again to resume") from error
