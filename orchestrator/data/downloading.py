"""Download a file to the end, resuming what an earlier attempt left, and verify its sum."""

from __future__ import annotations

import hashlib
import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from trainables.data.remote import Remote
from trainables.data.task import Progress
from trainables.errors import BadData

_CHUNK_BYTES = 1 << 20
_TIMEOUT_SECONDS = 30
_PARTIAL_CONTENT = 206
_RANGE_BEYOND_THE_END = 416
_NETWORK = (http.client.HTTPException, OSError)
"""What opening an address and reading from it may raise; writing the file is not among it."""

Open = Callable[..., http.client.HTTPResponse]


def download(remote: Remote, path: Path, progress: Progress, open_url: Open = urllib.request.urlopen) -> None:
    """Download a file beside its place, verify it, and move it there whole.

    What an interrupted attempt left in `<path>.part` is gone on with, if the server allows it.

    Args:
        remote: the file.
        path: where it goes.
        progress: in bytes.
        open_url: opens a request; the network.

    Raises:
        BadData: the server cannot be reached, or what it sent has another size or sum than published.
    """
    part = path.with_name(f"{path.name}.part")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        _receive(remote, part, progress, open_url)
        verify(remote, part)
    except _Unreachable as error:
        raise BadData(remote.url, "must be reachable", str(error), by_hand(remote, path)) from error
    except BadData:
        # Going on with wrong bytes could never end well.
        part.unlink()
        raise
    part.replace(path)


class _Unreachable(Exception):
    """Raised when the network fails, with what it said."""


def verify(remote: Remote, path: Path) -> str:
    """Return the SHA-256 of a file, which must be the published one if one is published.

    Raises:
        BadData: size or sum differ.
    """
    size = path.stat().st_size
    if remote.size is not None and size != remote.size:
        raise BadData(
            str(path), f"must have {remote.size:,} bytes", f"{size:,}", "Remove it and fetch again."
        )
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if remote.sha256 is not None and found != remote.sha256:
        raise BadData(
            str(path), f"must have the SHA-256 {remote.sha256}", found, "Remove it and fetch again."
        )
    return found


def by_hand(remote: Remote, path: Path) -> str:
    """Say which file to put where on a machine without a network."""
    known = [
        f"{remote.size:,} bytes" if remote.size else "",
        f"SHA-256 {remote.sha256}" if remote.sha256 else "",
    ]
    said = ", ".join(filter(None, known))
    return f"Without a network, put it{f' ({said})' if said else ''} at {path} and run this again."


def _receive(remote: Remote, part: Path, progress: Progress, open_url: Open) -> None:
    have = part.stat().st_size if part.exists() else 0
    response = _opened(remote, have, open_url)
    if response is None:
        return
    with response:
        resumed = response.status == _PARTIAL_CONTENT
        done = have if resumed else 0
        total = done + int(response.headers.get("Content-Length") or 0)
        with part.open("ab" if resumed else "wb") as file:
            while chunk := _read(response):
                file.write(chunk)
                done += len(chunk)
                progress(f"downloading {remote.name}", done, max(total, done))
            file.flush()
            os.fsync(file.fileno())
    if done < total:
        raise _Unreachable(f"a connection that ended {total - done:,} bytes early; run it again to go on")


def _opened(remote: Remote, have: int, open_url: Open) -> http.client.HTTPResponse | None:
    """Ask for a file from byte `have` on; None where the server says that there is no more."""
    request = urllib.request.Request(remote.url, headers={"User-Agent": "rotrnn-sweeps"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        return open_url(request, timeout=_TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        if error.code == _RANGE_BEYOND_THE_END and have:
            return None
        raise _Unreachable(f"{error.code} {error.reason}") from error
    except _NETWORK as error:
        raise _Unreachable(str(getattr(error, "reason", error)) or type(error).__name__) from error


def _read(response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read(_CHUNK_BYTES)
    except _NETWORK as error:
        raise _Unreachable(f"{str(error) or type(error).__name__}; run it again to go on") from error
