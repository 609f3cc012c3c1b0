"""Safe unpacking of untrusted archives: regular files and folders only, inside one folder, up to a limit."""

from __future__ import annotations

import lzma
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from trainables.data.task import Progress
from trainables.errors import BadData

_COPY_BYTES = 1 << 20
_MEMBERS_A_REPORT = 1000
_LEAST_BYTES = 20
"""Minimum size of a packed archive; for a shorter file `tarfile` raises a TypeError."""

_DAMAGED = (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError)


def unpack(
    archive: Path, inside: str, target: Path, progress: Progress, *, most_bytes: int, most_members: int
) -> None:
    """Unpack one folder of a tar archive into an empty folder.

    Modes, owners and times in the archive are ignored.

    Args:
        archive: Tar file, uncompressed or packed with gzip, bzip2 or xz.
        inside: Folder of the archive that becomes `target`; "" for the whole archive.
        target: Folder to create; must not exist.
        progress: Progress in bytes of the archive.
        most_bytes: Maximum total size of the files.
        most_members: Maximum number of files and folders.

    Raises:
        BadData: The archive is damaged, lacks the folder, exceeds a limit, or has a member that is a link, a
            device, an absolute path, a path above its folder, or a repeated one.
    """
    if (size := archive.stat().st_size) < _LEAST_BYTES:
        must = "must be a complete tar archive"
        raise BadData(str(archive), must, f"{size} bytes", "Remove it and fetch again.")
    target.mkdir(parents=True)
    try:
        members = _unpack(archive, inside, target, progress, most_bytes, most_members)
    except _DAMAGED as error:
        got = str(error) or "an early end"
        raise BadData(
            str(archive), "must be a complete tar archive", got, "Remove it and fetch again."
        ) from error
    if not members:
        must = f"does not contain the folder {inside or '.'}"
        raise BadData(str(archive), must, "", "Check that it is the published archive.")


def _unpack(
    archive: Path, inside: str, target: Path, progress: Progress, most_bytes: int, most_members: int
) -> int:
    """Unpack, and return the number of members."""
    total, members = 0, 0
    for member, source in _members(archive, progress):
        name = _safe(archive, member, inside)
        if name is None:
            continue
        members, total = members + 1, total + member.size
        if members > most_members or total > most_bytes:
            must = f"must hold at most {most_members:,} members and {most_bytes:,} bytes"
            raise BadData(
                str(archive), must, f"more at {member.name}", "Check that it is the published archive."
            )
        _write(archive, member, source, target / name)
    return members


def _members(archive: Path, progress: Progress) -> Iterator[tuple[tarfile.TarInfo, tarfile.TarFile]]:
    """Yield each member while the archive is positioned at it."""
    size = archive.stat().st_size
    # As a stream, in one pass. `TarFile` keeps a list of all members, possibly millions, which is emptied
    # below. Python 3.13 has the argument `stream` for that.
    with archive.open("rb") as file, tarfile.open(fileobj=file, mode="r|*") as source:
        number = 0
        while (member := source.next()) is not None:
            if number % _MEMBERS_A_REPORT == 0:
                progress(f"unpacking {archive.name}", file.tell(), size)
            yield member, source
            source.members.clear()  # type: ignore[attr-defined]
            number += 1
    progress(f"unpacking {archive.name}", size, size)


def _safe(archive: Path, member: tarfile.TarInfo, inside: str) -> PurePosixPath | None:
    """Return the member's path below `inside`, or None if it is not below it; refuse unsafe members."""
    name = PurePosixPath(member.name)
    if name.is_absolute() or ".." in name.parts or "\\" in member.name or "\0" in member.name:
        _refuse(archive, member, "must stay inside the target folder")
    if not name.is_relative_to(inside):
        return None
    below = name.relative_to(inside)
    if not (member.isreg() or member.isdir()):
        _refuse(archive, member, "must be a regular file or a folder")
    return below if below.parts else None


def _write(archive: Path, member: tarfile.TarInfo, source: tarfile.TarFile, path: Path) -> None:
    try:
        if member.isdir():
            path.mkdir(parents=True, exist_ok=True)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        content = source.extractfile(member)
        assert content is not None, "it is a regular file"
        with path.open("xb") as file:
            shutil.copyfileobj(content, file, _COPY_BYTES)
    except (FileExistsError, NotADirectoryError):
        _refuse(archive, member, "must not occur twice")


def _refuse(archive: Path, member: tarfile.TarInfo, must: str) -> None:
    remedy = "Nothing was unpacked. Check that it is the published archive."
    raise BadData(f"{archive}: member {member.name!r}", must, _kind(member), remedy)


def _kind(member: tarfile.TarInfo) -> str:
    if member.issym() or member.islnk():
        return f"a link to {member.linkname!r}"
    return "a device" if member.isdev() else "this one"
