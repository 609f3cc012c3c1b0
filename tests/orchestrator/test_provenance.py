"""The origin of a sweep: the commit, and files as they were at a commit."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from orchestrator.provenance import file_at, git_commit

CONTENT = "\n# pins\nnumpy==2.4.6\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with one commit of one file."""
    (tmp_path / "lock.txt").write_text(CONTENT)
    who = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    for arguments in (("init",), ("add", "lock.txt"), (*who, "commit", "-m", "Pin numpy")):
        subprocess.run(["git", "-C", tmp_path, *arguments], check=True, capture_output=True)
    return tmp_path


def test_a_file_is_read_as_it_was_committed(folder: Path) -> None:
    """With its first and last newlines."""
    (folder / "lock.txt").write_text("changed")
    assert file_at(folder, "HEAD", "lock.txt") == CONTENT
    assert file_at(folder, "HEAD", "none.txt") is None


def test_a_commit_is_one_word_and_says_whether_files_have_changed(folder: Path) -> None:
    commit = git_commit(folder)
    assert len(commit) == 40
    (folder / "lock.txt").write_text("changed")
    assert git_commit(folder) == f"{commit}+changes"
