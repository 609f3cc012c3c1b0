"""The verb `logs` prints the log of a trial's workers, and from the ledger the attempts on other machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.cli.app import run_command
from orchestrator.ledger.ledger import Ledger
from orchestrator.storage.paths import Paths
from tests import sweeps

COMPLETE, FAILED = f"{sweeps.SWEEP_ID}-0", f"{sweeps.SWEEP_ID}-3"


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """Return a root with a sweep and no log."""
    return sweeps.filled(tmp_path / "mlruns")


def test_logs_prints_attempts_on_other_machines_from_the_ledger(
    paths: Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["logs", COMPLETE, "--root", str(paths.root)]) == 0
    lines = capsys.readouterr().out.splitlines()
    done = sweeps.trial(0)
    assert "attempt 1: launched" in lines[0]
    assert len(lines) == 2 + len(sweeps.reports(done))
    assert f"attempt 1: step {done.step}: " in lines[-2]
    assert f"val/accuracy {sweeps.accuracy(0, done.step):.6g}" in lines[-2]
    assert lines[-1].endswith("attempt 1: ENDED")


def test_logs_prints_why_an_attempt_ended(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["logs", FAILED, "--root", str(paths.root)]) == 0
    assert f"attempt 1: FAILED {sweeps.trial(3, 'FAILED').cause}" in capsys.readouterr().out


def test_logs_prints_the_log_of_a_worker_of_this_machine(
    paths: Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    log = paths.log(sweeps.SWEEP_ID, COMPLETE)
    log.parent.mkdir(parents=True, exist_ok=True)
    written = "2026-11-21 12:00:00Z attempt 1: started at step 0\n[0.5] is no markup\n"
    log.write_text(written, encoding="utf-8")
    assert run_command(["logs", COMPLETE, "--root", str(paths.root)]) == 0
    assert capsys.readouterr().out == written


def test_logs_of_a_trial_that_never_ran(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["logs", "unknown", "--root", str(paths.root)]) == 2
    assert "unknown" in capsys.readouterr().err


def test_a_cause_with_brackets_is_printed_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rich would read `[b,n]` as a style, and `[/tmp/x]` as the end of one."""
    cause = "error: ValueError: shapes [b,n] of [/tmp/x]"
    trials = [sweeps.trial(0), sweeps.trial(3, "FAILED", cause=cause)]
    root = str(sweeps.filled(tmp_path / "mlruns", trials).root)
    assert run_command(["show", FAILED, "--root", root]) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert f"FAILED ({cause})" in first
    assert f"  attempt 1: FAILED on 127.0.0.1 {cause}" in lines or f"  attempt 1: FAILED {cause}" in lines


def test_a_reason_with_brackets_is_printed_as_it_is(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    reason = "no space left for [/data/x]"
    ledger = Ledger.open(paths.ledger_url)
    sweeps.writer_of(ledger).set_sweep_state("INTERRUPTED", reason)
    ledger.close()
    assert run_command(["status", "--root", str(paths.root)]) == 0
    assert f"INTERRUPTED ({reason})" in capsys.readouterr().out
