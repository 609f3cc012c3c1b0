"""The data verbs list, check and fetch the files of data sets."""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest

from orchestrator.cli.app import run_command
from orchestrator.errors import Exit
from tests.published import cifar, idx, imdb, mnist
from trainables.tasks import TASKS


def run(capsys: pytest.CaptureFixture[str], *words: str, data: Path) -> tuple[int, str, str]:
    """Run `sweep data ...`; return exit code, output and errors."""
    code = run_command(["data", *words, "--data", str(data)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_list_gives_the_state_of_each_data_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mnist(tmp_path)
    code, out, _ = run(capsys, "list", "--json", data=tmp_path)
    printed = json.loads(out)
    assert code == Exit.COMPLETE
    assert printed.keys() == TASKS.keys()
    assert printed["smnist"]["data"] == "here"
    assert printed["smnist"]["bytes"] == sum(path.stat().st_size for path in (tmp_path / "mnist").iterdir())
    assert printed["copy"] == {
        "data": "generated",
        "source": printed["copy"]["source"],
        "bytes": 0,
        "missing": "",
        "published": [],
    }
    (archive,) = printed["text"]["published"]
    assert (archive["bytes"], archive["sha256"][:8]) == (84_125_825, "c40f74a1")
    assert printed["listops"]["published"][0]["sha256"] is None
    assert printed["text"]["data"] == "missing"
    assert "data fetch text" in printed["text"]["missing"]


def test_list_is_a_table_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "list", data=tmp_path / "nowhere")
    assert code == Exit.COMPLETE
    assert all(any(line.startswith(name) for line in out.splitlines()) for name in TASKS)
    assert "cifar-10-binary.tar.gz, 170,052,171 bytes, SHA-256 c4a38c50" in out
    assert "lra_release.gz, no size published, no published checksum" in out
    assert list(tmp_path.iterdir()) == []


def test_check_prints_files_sizes_and_checksums(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = mnist(tmp_path) / "t10k-labels-idx1-ubyte"
    code, out, _ = run(capsys, "check", "smnist", data=tmp_path)
    assert code == Exit.COMPLETE
    assert f"{path}: 28 bytes, SHA-256 {hashlib.sha256(path.read_bytes()).hexdigest()}" in out
    assert "40 + 20 images instead of 60,000 + 10,000" in out
    assert not (tmp_path / ".cache").exists()


def test_check_of_a_tree_counts_its_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    imdb(tmp_path)
    _, out, _ = run(capsys, "check", "text", data=tmp_path)
    (line,) = (line for line in out.splitlines() if "train/neg: 12 files," in line)
    assert "SHA-256" not in line


def test_check_can_read_every_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cifar(tmp_path)
    code, out, _ = run(capsys, "check", "image", "--encode", "--set", "colour=true", "--json", data=tmp_path)
    printed = json.loads(out)
    assert code == Exit.COMPLETE
    assert "colour" in printed["source"]
    assert printed["sizes"] == {"train": 45, "validation": 5, "test": 10}
    assert printed["digest"] == TASKS["image"].load({"colour": True}, tmp_path).digest
    _, out, _ = run(capsys, "check", "image", "--encode", "--set", "colour=true", data=tmp_path)
    assert printed["digest"] in out
    assert "45 / 5 / 10" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("check", "imag"), "Did you mean `image`?"),
        (("fetch", "imag"), "Did you mean `image`?"),
        (("check", "text"), "data fetch text"),
        (("check", "copy", "--set", "delay"), "must be NAME=VALUE"),
        (("check", "copy", "--set", "delay=long"), "must be a value of type int (got 'long')"),
        (("check", "copy", "--set", "delay=0"), "must be at least 1 (got 0)"),
        (("check", "copy", "--set", "dealy=3"), "Did you mean delay?"),
        (("check", "image", "--set", "colour=maybe"), "must be a value of type bool (got 'maybe')"),
        (("fetch", "text", "--sha256", "ab"), "requires a file to verify"),
        (("fetch", "copy", "--sha256", "ab"), "requires a file to verify"),
        (("fetch", "copy", "--from", "a.tar"), "generates its data and reads no files"),
        (("fetch", "text", "--from", "/nowhere.tar"), "does not exist"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
) -> None:
    code, out, err = run(capsys, *words, data=tmp_path)
    assert code == Exit.BAD_INPUT
    assert out == ""
    assert len(err.splitlines()) == 1
    assert message in err


def test_a_bad_row_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = mnist(tmp_path) / "train-labels-idx1-ubyte"
    idx(labels, np.full(40, 11))
    code, _, err = run(capsys, "check", "smnist", "--encode", data=tmp_path)
    assert code == Exit.BAD_INPUT
    assert err == f"{labels}: row 0 must hold labels 0 to 9 (got 11). Fetch the file again.\n"


def test_fetch_accepts_a_local_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file is another archive of the published tree, accepted by its checksum."""
    imdb(tmp_path / "made")
    archive = tmp_path / "mine.tar.xz"
    with tarfile.open(archive, "w:xz") as packing:
        packing.add(tmp_path / "made" / "aclImdb", "aclImdb")
    data = tmp_path / "data"
    code, _, err = run(capsys, "fetch", "text", "--from", str(archive), data=data)
    assert code == Exit.BAD_INPUT
    assert "must have 84,125,825 bytes" in err
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    words = ("fetch", "text", "--from", str(archive), "--sha256", sha256)
    code, out, _ = run(capsys, *words, data=data)
    assert code == Exit.COMPLETE
    assert sha256 in out
    assert len(TASKS["text"].load({}, data).test) == 24
    code, out, _ = run(capsys, *words, data=data)
    assert "already present" in out


def test_fetching_a_generated_data_set_does_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, "fetch", "copy", data=tmp_path)
    assert code == Exit.COMPLETE
    assert out == "copy: generated; nothing to fetch\n"


def test_pinned_files_are_complete() -> None:
    """Every task that reads files names their addresses, and every pinned checksum is a SHA-256."""
    for name, task in TASKS.items():
        for remote in task.remotes:
            assert remote.url.startswith(("https://", "http://")), name
            assert remote.sha256 is None or len(bytes.fromhex(remote.sha256)) == 32, name
            assert (remote.inside is None) == (remote.unpacked == 0 == remote.members), name
    generated = {name for name, task in TASKS.items() if not task.remotes}
    by_length = {"copy", "adding", "parity", "modular", "group_words"}
    assert generated == by_length | {"pathfinder16", "mqar", "selective_copy", "induction"}


def test_a_sum_of_ones_own_is_not_called_published(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is the user who vouches for the file."""
    imdb(tmp_path / "made")
    archive = tmp_path / "mine.tar.xz"
    with tarfile.open(archive, "w:xz") as packing:
        packing.add(tmp_path / "made" / "aclImdb", "aclImdb")
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest().upper()
    words = ("fetch", "text", "--from", str(archive), "--sha256", sha256)
    _, out, _ = run(capsys, *words, data=tmp_path / "data")
    assert "(as given by --sha256)" in out
    assert "published" not in out
