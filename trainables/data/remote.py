"""Where published data can be had: addresses, sizes and pinned sums."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Remote:
    """One file that is fetched.

    Attributes:
        url: where it is published.
        place: what it becomes in the data folder: a file, or a folder unpacked from an archive.
        sha256: its published sum, or None where none is published.
        size: its bytes, or None where they are not published.
        inside: for an archive, the folder in it that becomes `place`; "" for all of it, None for a file
            that is kept as it is.
        unpacked: bytes that the unpacked part may have at most.
        members: files and folders that the unpacked part may have at most.
    """

    url: str
    place: str
    sha256: str | None
    size: int | None
    inside: str | None = None
    unpacked: int = 0
    members: int = 0

    @property
    def name(self) -> str:
        """The file's own name."""
        return self.url.rsplit("/", 1)[-1]


def long_range_arena(inside: str, place: str, *, unpacked: int, members: int) -> Remote:
    """Return one folder of Long Range Arena's only archive; its authors publish no sum."""
    return Remote(
        url="https://storage.googleapis.com/long-range-arena/lra_release.gz",
        place=place,
        sha256=None,
        size=None,
        inside=inside,
        unpacked=unpacked,
        members=members,
    )
