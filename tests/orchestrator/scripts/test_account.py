"""Scripts that run as another account than their worker: whose their files are, and what they can read."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.accounts import NOBODY
from orchestrator.assignment import Assignment, Outcome, SavedCheckpoint
from orchestrator.scripts.script_attempt import OwnProcess
from tests.attempts import assignment
from trainables import checkpoint
from trainables.trial import Clock, ScriptSettings

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, which alone can act as others")

SCRIPT = """
set -e
id -u > "$SWEEP_FOLDER/who"; id -g >> "$SWEEP_FOLDER/who"
grep NoNewPrivs /proc/self/status >> "$SWEEP_FOLDER/who"
echo "$HOME $USER" >> "$SWEEP_FOLDER/who"
for path in "$LEDGER_FILE" /proc/$PPID/environ; do cat "$path" > /dev/null 2>&1 && echo "read $path"; done
mv "$SWEEP_REPORTS" "$SWEEP_REPORTS.mine" 2> /dev/null && echo "moved the reports"
[ -z "$SWEEP_RESUME" ] || cat "$SWEEP_RESUME/who" > /dev/null
mkdir "$SWEEP_CHECKPOINT/next"
cp "$SWEEP_FOLDER/who" "$SWEEP_CHECKPOINT/next/who"
chmod 600 "$SWEEP_CHECKPOINT/next/who"
ln -s "$LEDGER_FILE" "$SWEEP_CHECKPOINT/next/link"
step=$((SWEEP_STEP + 2))
echo '{"step": '$step', "metrics": {"val/loss": 1.0}, "checkpoint": "next"}' >> "$SWEEP_REPORTS"
while [ ! -s "$SWEEP_ANSWERS" ]; do sleep 0.01; done
"""


@pytest.fixture
def opened() -> Iterator[Path]:
    """A folder that every account can enter, unlike those of pytest."""
    with tempfile.TemporaryDirectory(prefix="accounts-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def secret(opened: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = opened / "ledger.db"
    file.write_text("of the service")
    file.chmod(0o600)
    monkeypatch.setenv("LEDGER_FILE", str(file))
    return file


def assigned(opened: Path, tmp_path: Path, text: str = SCRIPT) -> Assignment:
    code = opened / "code"
    code.mkdir(exist_ok=True)
    (code / "train.sh").write_text(text)
    settings = ScriptSettings(
        function=None,
        command=("/bin/sh", "train.sh"),
        shell=False,
        folder=str(code),
        params={},
        training=Clock(4, 2),
        seed=0,
        disk=1 << 20,
    )
    own = assignment(tmp_path, 0, account=NOBODY)
    paths = {"checkpoints": str(tmp_path / "kept"), "log": str(tmp_path / "log")}
    return replace(own, settings=settings, resume=None, store=None, **paths)


def outcome(assigned: Assignment) -> Outcome:
    own = OwnProcess()
    try:
        return own.advance(assigned)
    finally:
        own.release()


def files(saved: SavedCheckpoint | None) -> dict[str, bytes]:
    assert saved is not None
    arrays, _ = checkpoint.load(Path(saved.path), saved.digest)
    return {name: array.tobytes() for name, array in arrays.items()}


def test_a_command_runs_as_its_account_and_reads_nothing_of_the_service(
    opened: Path, secret: Path, tmp_path: Path
) -> None:
    first = outcome(assigned(opened, tmp_path))
    log = (tmp_path / "log").read_text()
    assert first.failure is None, (first, log)
    assert "read " not in log
    assert "moved" not in log
    kept = files(first.checkpoint)
    assert kept.keys() == {"who"}, "the link is left out"
    assert kept["who"].decode().split() == ["65534", "65534", "NoNewPrivs:", "1", "/", "nobody"]
    again = assigned(opened, tmp_path)
    resumed = outcome(replace(again, attempt_id="s-0.2", resume=first.checkpoint))
    assert (resumed.failure, resumed.step) == (None, 4), (tmp_path / "log").read_text()


@pytest.mark.parametrize("kind", ["link", "open", "folder", "pipe"])
def test_what_takes_the_place_of_a_file_is_not_read(
    opened: Path, secret: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Between the look at a checkpoint and its reading the script may put something else where a file was.

    /proc/self/fd leads past the closed folders above what this process has open, such as its ledger.
    """
    own = OwnProcess()
    open_file = os.open
    swapped_names: list[str] = []
    secret.chmod(0o644)
    with secret.open() as ledger:

        def swapped(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
            if path == "who" and dir_fd is not None and path not in swapped_names:
                swapped_names.append(path)
                os.rename(path, "inner", src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
                match kind:
                    case "link":
                        os.symlink(secret, path, dir_fd=dir_fd)
                    case "open":
                        os.symlink(f"/proc/self/fd/{ledger.fileno()}", path, dir_fd=dir_fd)
                    case "folder":
                        os.mkdir(path, dir_fd=dir_fd)
                    case "pipe":
                        os.mkfifo(path, dir_fd=dir_fd)
            return open_file(path, flags, mode, dir_fd=dir_fd)

        try:
            monkeypatch.setattr(os, "open", swapped)
            answer = own.advance(assigned(opened, tmp_path))
        finally:
            monkeypatch.undo()
            own.release()
    assert answer.checkpoint is None
    assert answer.failure == "error"


@pytest.mark.parametrize("closed", ["code", "temporary"])
def test_what_an_account_cannot_enter_is_told(
    opened: Path, secret: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed: str
) -> None:
    given = assigned(opened, tmp_path)
    if closed == "code":
        (opened / "code").chmod(0o700)
    else:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # below a folder of pytest's, of mode 700
    answer = outcome(given)
    assert answer.failure == "error"
    expected = {
        "code": f"{opened}/code: Permission denied",
        "temporary": "must be in a folder that nobody can",
    }
    assert expected[closed] in str(answer.message)


def test_an_assignment_keeps_its_account() -> None:
    own = assignment(Path("/nowhere"), 0, account=NOBODY)
    sent = json.loads(json.dumps({"account": own.to_config()["assignment"]["account"]}))["account"]
    config = own.to_config()
    config["assignment"]["account"] = sent
    assert Assignment.from_config(config).account == NOBODY


@pytest.mark.parametrize(("mode", "is_read"), [(0o600, False), (0o644, True)])
def test_a_file_of_metrics_is_read_as_the_account(
    opened: Path, tmp_path: Path, mode: int, is_read: bool
) -> None:
    """A path of a file submitted over HTTP could otherwise name numbers that its owner may not read."""
    table = opened / "metrics.csv"
    table.write_text("step,val/loss\n2,1.0\n")
    table.chmod(mode)
    own = assigned(opened, tmp_path, "sleep 1")
    assert isinstance(own.settings, ScriptSettings)
    settings = replace(own.settings, metrics={"file": str(table)})
    first = outcome(replace(own, settings=settings, observed=("val/loss",)))
    if is_read:
        assert (first.failure, first.step, first.metrics["val/loss"]) == (None, 2, 1.0)
    else:
        assert "the metrics file must be a regular file of the script" in str(first.message)
        assert "1.0" not in (tmp_path / "log").read_text()
