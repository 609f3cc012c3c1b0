"""The verbs `user add`, `user list`, `user revoke` and `user log`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.cli.app import run_command


def test_a_user_is_added_listed_and_revoked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = ["--root", str(tmp_path / "mlruns")]
    assert run_command(["user", "add", "ada", "--role", "admin", *root]) == 0
    sentence, token = capsys.readouterr().out.splitlines()
    assert sentence.startswith("Created ada (admin) until 20")
    assert run_command(["user", "list", *root]) == 0
    assert "valid until" in capsys.readouterr().out
    assert run_command(["user", "revoke", "ada", *root]) == 0
    assert run_command(["user", "list", "--json", *root]) == 0
    shown = capsys.readouterr().out
    [user] = json.loads(shown.partition("\n")[2])
    assert user["revoked_at"] > 0
    assert run_command(["user", "log", *root]) == 0
    shown += capsys.readouterr().out
    assert "command line: user add ada role admin" in shown
    assert token not in shown


def test_a_wrong_role_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["user", "add", "ada", "--role", "root", "--root", str(tmp_path)]) == 2
    assert "must be one of viewer, member, admin" in capsys.readouterr().err


@pytest.mark.parametrize("days", ["nan", "0", "1e300"])
def test_days_without_a_printable_end_are_refused(
    tmp_path: Path, days: str, capsys: pytest.CaptureFixture[str]
) -> None:
    root = ["--root", str(tmp_path / "mlruns")]
    assert run_command(["user", "add", "ada", "--days", days, *root]) == 2
    assert "must be greater than 0 and at most 36,500, or `inf`" in capsys.readouterr().err
    assert not (tmp_path / "mlruns").exists()


def test_a_limit_that_no_database_takes_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["user", "log", "--limit", "9" * 20, "--root", str(tmp_path)]) == 2
    assert "--limit" in capsys.readouterr().err
