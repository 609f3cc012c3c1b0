"""Accounts as which the code of users runs: who has one, and what the service opens with its rights."""

from __future__ import annotations

import grp
import os
import pwd
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.accounts import NOBODY, account_of, check_closed, files_as, umask
from orchestrator.errors import BadInput

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, which alone can act as others")


@pytest.fixture
def opened() -> Iterator[Path]:
    """A folder that every account can enter, unlike those of pytest."""
    with tempfile.TemporaryDirectory(prefix="accounts-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@needs_root
def test_a_thread_opens_what_an_account_may_read_and_nothing_else(opened: Path) -> None:
    own, group, everybody = (opened / name for name in ("own", "group", "everybody"))
    for file, mode in ((own, 0o600), (group, 0o640), (everybody, 0o644)):
        file.write_text("a secret")
        file.chmod(mode)  # of root's user and group
    with files_as(NOBODY):
        assert everybody.read_text() == "a secret"
        for closed in (own, group):
            with pytest.raises(PermissionError):
                closed.read_text()
        with pytest.raises(PermissionError):
            (opened / "new").touch()
        with pytest.raises(PermissionError):
            Path("/proc/self/environ").read_bytes()
    assert own.read_text() == "a secret"


@needs_root
def test_the_working_folder_of_a_process_leads_past_no_closed_folder(opened: Path) -> None:
    """Root may follow the links of every process in /proc, also those of accounts that keep theirs closed."""
    closed = opened / "home"
    (closed / "code").mkdir(parents=True)
    (closed / "code" / "secret").write_text("of Bob")
    closed.chmod(0o700)
    bob = 47_012
    process = subprocess.Popen(["sleep", "60"], cwd=closed / "code", user=bob, group=bob, extra_groups=[])
    try:
        link = Path(f"/proc/{process.pid}/cwd/secret")
        assert link.read_text() == "of Bob"
        with files_as(NOBODY), pytest.raises(PermissionError):
            link.read_text()
        assert link.read_text() == "of Bob", "the rights of this thread are back"
    finally:
        process.kill()
        process.wait()


@needs_root
def test_other_threads_keep_their_rights_and_an_error_gives_this_one_its_own_back(opened: Path) -> None:
    own, begin = opened / "own", threading.Event()
    own.write_text("a secret")
    own.chmod(0o600)
    read: list[str] = []
    thread = threading.Thread(target=lambda: begin.wait() and read.append(own.read_text()))
    thread.start()
    with files_as(NOBODY):
        begin.set()
        thread.join()
    assert read == ["a secret"]
    with pytest.raises(PermissionError), files_as(NOBODY):
        own.read_text()
    assert own.read_text() == "a secret"


@needs_root
def test_files_that_are_made_are_the_accounts(opened: Path) -> None:
    (opened / "below").mkdir()
    os.chown(opened / "below", NOBODY.uid, NOBODY.gid)
    with files_as(NOBODY):
        (opened / "below" / "file").touch()
    made = (opened / "below" / "file").stat()
    assert (made.st_uid, made.st_gid) == (NOBODY.uid, NOBODY.gid)


def test_none_changes_nothing(tmp_path: Path) -> None:
    with files_as(None):
        (tmp_path / "file").touch()
    assert (tmp_path / "file").stat().st_uid == os.geteuid()


def test_only_members_of_the_group_have_an_account() -> None:
    nobody = pwd.getpwnam("nobody")
    group = grp.getgrgid(nobody.pw_gid).gr_name
    assert account_of("nobody", group).uid == nobody.pw_uid
    assert nobody.pw_gid in account_of("nobody", group).groups
    with pytest.raises(BadInput, match="nobody, who is not in it"):
        account_of("nobody", "daemon")
    for owner in ("no-such-account", "a\0b"):
        with pytest.raises(BadInput, match="no such account or group"):
            account_of(owner, group)
    with pytest.raises(BadInput, match="no such account or group"):
        account_of("nobody", "no-such-group")


def test_root_is_nobodys_account() -> None:
    with pytest.raises(BadInput, match="must be an account without root privileges"):
        account_of("root", grp.getgrgid(0).gr_name)


@pytest.mark.parametrize(("text", "bits"), [(None, 0o077), ("", 0o077), ("027", 0o027), ("0022", 0o022)])
def test_files_are_closed_unless_a_setting_opens_them(
    monkeypatch: pytest.MonkeyPatch, text: str | None, bits: int
) -> None:
    monkeypatch.delenv("SWEEP_UMASK", raising=False)
    if text is not None:
        monkeypatch.setenv("SWEEP_UMASK", text)
    assert umask() == bits


@pytest.mark.parametrize("text", ["0", "020", "u=rwx", "-1", "777", "089"])
def test_a_setting_with_which_others_could_write_is_refused(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("SWEEP_UMASK", text)
    with pytest.raises(
        BadInput,
        match=rf"SWEEP_UMASK must be an octal umask that denies write access to others \(got '{text}'\)",
    ):
        umask()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_file_of_a_secret_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "server.key"
    file.touch()
    file.chmod(mode)
    with pytest.raises(
        BadInput, match=rf"--key must be readable by its owner alone \(got mode {mode:04o} of .*chmod 600"
    ):
        check_closed("--key", file)
    file.chmod(0o600)
    check_closed("--key", file)
