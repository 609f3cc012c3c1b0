"""Downloads resume and are verified; archives are unpacked safely, and completely or not at all."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from orchestrator.data.fetching import fetch
from orchestrator.data.unpacking import unpack
from trainables.data.task import Remote
from trainables.errors import BadData


def packed(members: list[tarfile.TarInfo | tuple[str, bytes]], mode: str = "w:gz") -> bytes:
    """Return a tar archive of files and of given members."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
                continue
            info = tarfile.TarInfo(member[0])
            info.size = len(member[1])
            archive.addfile(info, io.BytesIO(member[1]))
    return buffer.getvalue()


GOOD = packed([("set/a.txt", b"alpha"), ("set/deep/b.txt", b"beta"), ("other/c.txt", b"c")])


class Site:
    """A web site that serves one file, with the faults of real sites.

    Attributes:
        content: content of the file.
        ranges: whether it answers requests for a part.
        cut: bytes after which it closes the connection, or None.
        status: HTTP status of answers without a range.
        asked: the Range headers of the requests so far.
    """

    def __init__(self, content: bytes) -> None:
        self.content, self.ranges, self.status = content, True, 200
        self.cut: int | None = None
        self.asked: list[str | None] = []
        self.url = ""


@pytest.fixture
def site() -> Iterator[Site]:
    served = Site(GOOD)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            served.asked.append(wanted)
            start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and served.ranges else 0
            if wanted and served.ranges and start >= len(served.content):
                self.send_error(416)
                return
            if served.status != 200:
                self.send_error(served.status)
                return
            body = served.content[start:]
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: served.cut])

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    served.url = f"http://127.0.0.1:{server.server_port}/set.tar.gz"
    yield served
    server.shutdown()
    thread.join()
    server.server_close()


def remote(site: Site, **changes: object) -> Remote:
    """Return the archive with its pinned size and checksum."""
    sha256 = hashlib.sha256(GOOD).hexdigest()
    whole = Remote(site.url, "set", sha256, len(GOOD), inside="set", unpacked=100, members=10)
    return replace(whole, **changes)  # type: ignore[arg-type]


def fetched(remote: Remote, folder: Path, given: Path | None = None) -> str | None:
    """Fetch the file, and return its checksum."""
    return fetch(remote, folder, lambda *_: None, given=given, open_url=urllib.request.urlopen).sha256


def left(folder: Path) -> set[str]:
    """Return the names of the files in the data folder, without locks."""
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    return {name for name in names if not name.endswith(".lock")}


def test_an_archive_is_fetched_once(site: Site, tmp_path: Path) -> None:
    assert fetched(remote(site), tmp_path) == hashlib.sha256(GOOD).hexdigest()
    assert left(tmp_path) == {"set/a.txt", "set/deep/b.txt", "downloads/set.tar.gz"}
    assert (tmp_path / "set/deep/b.txt").read_bytes() == b"beta"
    assert fetched(remote(site), tmp_path) is None
    assert len(site.asked) == 1


def test_progress_is_reported_in_bytes(site: Site, tmp_path: Path) -> None:
    calls: list[tuple[str, int, int]] = []
    fetch(remote(site), tmp_path, lambda *call: calls.append(call), open_url=urllib.request.urlopen)
    assert ("downloading set.tar.gz", len(GOOD), len(GOOD)) in calls
    assert any(what.startswith("unpacking") for what, _, _ in calls)


def test_an_interrupted_download_resumes(site: Site, tmp_path: Path) -> None:
    site.cut = 100
    with pytest.raises(BadData, match="run it again to resume"):
        fetched(remote(site), tmp_path)
    assert (tmp_path / "downloads/set.tar.gz.part").stat().st_size == 100
    site.cut = None
    assert fetched(remote(site), tmp_path)
    assert site.asked == [None, "bytes=100-"]
    assert "downloads/set.tar.gz.part" not in left(tmp_path)


def test_a_server_that_cannot_resume_starts_over(site: Site, tmp_path: Path) -> None:
    site.ranges = False
    (tmp_path / "downloads").mkdir()
    (tmp_path / "downloads/set.tar.gz.part").write_bytes(b"x" * 50)
    assert fetched(remote(site), tmp_path)


def test_a_complete_part_is_used_without_a_download(site: Site, tmp_path: Path) -> None:
    (tmp_path / "downloads").mkdir()
    (tmp_path / "downloads/set.tar.gz.part").write_bytes(GOOD)
    assert fetched(remote(site), tmp_path)
    assert (tmp_path / "set/a.txt").exists()


def test_another_checksum_is_refused_before_anything_is_unpacked(site: Site, tmp_path: Path) -> None:
    site.content = GOOD[:-4] + b"evil"
    with pytest.raises(BadData, match=r"must have the SHA-256 \w+ \(got \w+\)"):
        fetched(remote(site), tmp_path)
    assert left(tmp_path) == set()
    site.content = GOOD
    assert fetched(remote(site), tmp_path)


def test_another_size_is_refused(site: Site, tmp_path: Path) -> None:
    site.content = GOOD + b"more"
    with pytest.raises(BadData, match=r"bytes \(got "):
        fetched(remote(site), tmp_path)


def test_without_a_network_one_line_says_what_to_put_where(tmp_path: Path) -> None:
    def no_network(*_: object, **__: object) -> None:
        raise urllib.error.URLError(OSError("Name or service not known"))

    wanted = Remote("http://nowhere.invalid/set.tar.gz", "set", "ab" * 32, 1234, inside="set")
    with pytest.raises(BadData) as refused:
        fetch(wanted, tmp_path, lambda *_: None, open_url=no_network)
    line = str(refused.value)
    assert "\n" not in line
    for part in (wanted.url, "Name or service not known", "1,234 bytes", "ab" * 32):
        assert part in line
    assert str(tmp_path / "downloads" / "set.tar.gz") in line


def test_a_missing_page_is_reported(site: Site, tmp_path: Path) -> None:
    site.status = 404
    with pytest.raises(BadData, match=r"must be reachable \(got 404 Not Found\)\. Without a network"):
        fetched(remote(site), tmp_path)


def test_an_empty_answer_is_refused(site: Site, tmp_path: Path) -> None:
    site.content = b""
    with pytest.raises(BadData, match=r"must be a complete tar archive \(got 0 bytes\)"):
        fetched(remote(site, sha256=None, size=None), tmp_path)


def test_a_file_put_in_place_by_hand_is_verified_and_used(site: Site, tmp_path: Path) -> None:
    (tmp_path / "downloads").mkdir()
    (tmp_path / "downloads/set.tar.gz").write_bytes(GOOD[:-1])
    with pytest.raises(BadData, match="Remove it and fetch again"):
        fetched(remote(site), tmp_path)
    (tmp_path / "downloads/set.tar.gz").write_bytes(GOOD)
    assert fetched(remote(site), tmp_path)
    assert site.asked == []


def test_a_given_file_or_its_folder_is_used(site: Site, tmp_path: Path) -> None:
    local = tmp_path / "local"
    local.mkdir()
    (local / "set.tar.gz").write_bytes(GOOD)
    assert fetched(remote(site), tmp_path / "one", given=local / "set.tar.gz")
    assert fetched(remote(site), tmp_path / "two", given=local)
    assert left(tmp_path / "two") == {"set/a.txt", "set/deep/b.txt"}
    with pytest.raises(BadData, match=r"does not exist"):
        fetched(remote(site), tmp_path / "three", given=local / "nothing")
    assert site.asked == []


def test_an_unpublished_checksum_is_recorded_and_compared_later(site: Site, tmp_path: Path) -> None:
    wanted = remote(site, sha256=None, size=None)
    checksum = fetched(wanted, tmp_path)
    record = tmp_path / "downloads/set.tar.gz.sha256"
    assert record.read_text() == f"{checksum}  set.tar.gz\n"
    (tmp_path / "set").rename(tmp_path / "old")
    (tmp_path / "downloads/set.tar.gz").unlink()
    site.content = packed([("set/a.txt", b"changed")])
    with pytest.raises(BadData, match="must have the SHA-256"):
        fetched(wanted, tmp_path)


def test_a_plain_file_is_downloaded_to_its_place(site: Site, tmp_path: Path) -> None:
    wanted = remote(site, place="mnist/set.tar.gz", inside=None)
    assert fetched(wanted, tmp_path)
    assert left(tmp_path) == {"mnist/set.tar.gz"}
    other = tmp_path / "other"
    assert fetched(wanted, other, given=tmp_path / "mnist")
    assert left(other) == {"mnist/set.tar.gz"}


def test_the_remains_of_a_dead_fetch_are_deleted(site: Site, tmp_path: Path) -> None:
    (tmp_path / ".set.stage" / "content").mkdir(parents=True)
    (tmp_path / ".set.stage" / "content" / "half").write_text("")
    fetched(remote(site), tmp_path)
    assert not (tmp_path / ".set.stage").exists()
    assert not (tmp_path / "set" / "half").exists()


def test_a_full_disk_is_reported_before_unpacking(site: Site, tmp_path: Path) -> None:
    with pytest.raises(BadData, match=r"must have 10,000,000,000,000,000 bytes free to unpack"):
        fetched(remote(site, unpacked=10**16), tmp_path)
    assert not (tmp_path / "set").exists()


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.mark.parametrize(
    ("member", "must"),
    [
        (
            special("set/link", tarfile.SYMTYPE, "/etc/passwd"),
            r"regular file or a folder \(got a link to '/",
        ),
        (special("set/link", tarfile.LNKTYPE, "set/a.txt"), r"regular file or a folder \(got a link"),
        (special("set/null", tarfile.CHRTYPE), r"regular file or a folder \(got a device\)"),
        (special("set/disk", tarfile.BLKTYPE), r"regular file or a folder \(got a device\)"),
        (special("set/pipe", tarfile.FIFOTYPE), r"regular file or a folder \(got a device\)"),
        (("/set/a.txt", b"x"), "must stay inside"),
        (("set/../../a.txt", b"x"), "must stay inside"),
        (("../set/a.txt", b"x"), "must stay inside"),
        (("set/..\\a.txt", b"x"), "must stay inside"),
        (("set/a.txt", b"again"), "must not occur twice"),
        (("set/a.txt/b.txt", b"x"), "must not occur twice"),
        (("set/big", b"x" * 101), r"at most 10 members and 100 bytes \(got more at set/big\)"),
    ],
)
@pytest.mark.parametrize("mode", ["w:gz", "w:xz", "w"])
def test_a_hostile_archive_puts_nothing_in_place(
    tmp_path: Path, member: tarfile.TarInfo | tuple[str, bytes], must: str, mode: str
) -> None:
    archive = tmp_path / "set.tar.gz"
    archive.write_bytes(packed([("set/a.txt", b"alpha"), member], mode))
    wanted = Remote("http://nowhere.invalid/set.tar.gz", "set", None, None, "set", unpacked=100, members=10)
    folder = tmp_path / "data"
    with pytest.raises(BadData, match=must):
        fetched(wanted, folder, given=archive)
    assert not (folder / "set").exists()
    assert not (folder / ".set.stage").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"data", "set.tar.gz"}


def test_more_members_than_the_limit_are_refused(tmp_path: Path) -> None:
    archive = tmp_path / "set.tar"
    archive.write_bytes(packed([(f"set/{number}", b"") for number in range(11)], "w"))
    with pytest.raises(BadData, match="at most 10 members"):
        unpack(archive, "set", tmp_path / "out", lambda *_: None, most_bytes=100, most_members=10)


@pytest.mark.parametrize("mode", ["w:gz", "w:xz", "w:bz2", "w"])
def test_a_truncated_archive_is_refused(tmp_path: Path, mode: str) -> None:
    content = packed([("set/a.txt", bytes(range(256)) * 400), ("set/b.txt", bytes(range(256)) * 400)], mode)
    for part in (len(content) // 2, 3, 0):
        archive = tmp_path / f"{part}.tar"
        archive.write_bytes(content[:part])
        with pytest.raises(BadData, match="must be a complete tar archive"):
            unpack(
                archive, "set", tmp_path / f"out{part}", lambda *_: None, most_bytes=10**6, most_members=10
            )


def test_an_archive_without_the_folder_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "set.tar"
    archive.write_bytes(packed([("else/a.txt", b"")], "w"))
    with pytest.raises(BadData, match=r"does not contain the folder set"):
        unpack(archive, "set", tmp_path / "out", lambda *_: None, most_bytes=100, most_members=10)


def test_a_whole_archive_is_unpacked_to_one_folder(tmp_path: Path) -> None:
    """Speech Commands is packed in this way: `./word/file`, without a top-level folder."""
    archive = tmp_path / "set.tar"
    archive.write_bytes(packed([("./bed/a.wav", b"a"), ("./list.txt", b"l")], "w"))
    unpack(archive, "", tmp_path / "out", lambda *_: None, most_bytes=100, most_members=10)
    assert left(tmp_path / "out") == {"bed/a.wav", "list.txt"}


def test_modes_in_an_archive_are_ignored(tmp_path: Path) -> None:
    info = tarfile.TarInfo("set/run.sh")
    info.mode = 0o6777
    archive = tmp_path / "set.tar"
    archive.write_bytes(packed([info], "w"))
    unpack(archive, "set", tmp_path / "out", lambda *_: None, most_bytes=100, most_members=10)
    assert (tmp_path / "out/run.sh").stat().st_mode & 0o7111 == 0
