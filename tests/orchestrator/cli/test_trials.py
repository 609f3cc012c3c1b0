"""The verbs `logs`, which prints the log of a trial's workers, and `show`, which prints its metrics."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.cli.app import run_command
from orchestrator.ledger.ledger import Ledger
from orchestrator.storage.paths import Paths
from tests import sweeps
from tests.orchestrator.ledger.examples import writer

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


def test_show_prints_what_a_script_has_reported(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    """A plain name is as good as one with a slash: here it is the objective."""
    ledger = Ledger.open(paths.ledger_url)
    key = sweeps.fill_script(ledger)
    ledger.close()
    assert run_command(["show", key, "--root", str(paths.root)]) == 0
    step = "  step 40: learning_rate 0.004, loss 0.25, seconds/evaluate 0.5, seconds/train 3"
    assert step in capsys.readouterr().out.splitlines()


def test_show_prints_of_how_a_network_was_trained_what_its_sweep_asks_for(
    paths: Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    def last_step() -> str:
        assert run_command(["show", COMPLETE, "--root", str(paths.root)]) == 0
        return [line for line in capsys.readouterr().out.splitlines() if line.startswith("  step ")][-1]

    shown = last_step()
    assert "val/accuracy" in shown
    assert not any(name in shown for name in ("learning_rate", "tokens_per_second"))
    ledger = Ledger.open(paths.ledger_url)
    record = sweeps.sweep_record()
    document = {**record.document, "constraints": {"tokens_per_second": {"at_least": 1_000}}}
    sweeps.writer_of(ledger).amend_sweep(document, record.digest, record.facts)
    ledger.close()
    shown = last_step()
    assert "tokens_per_second 2.3e+04" in shown
    assert "learning_rate" not in shown


@pytest.mark.parametrize(("changed_at", "version"), [(1e12, 1), (1.0, 2)])
def test_show_says_which_code_an_attempt_began_with_if_it_has_changed(
    paths: Paths, capsys: pytest.CaptureFixture[str], changed_at: float, version: int
) -> None:
    ledger = Ledger.open(paths.ledger_url)
    record = ledger.sweep(sweeps.SWEEP_ID)
    assert record is not None
    codes = [{"digest": 64 * "a", "at": 0.0}, {"digest": 64 * "b", "at": changed_at}]
    writer(ledger, record.id).amend_sweep(record.document, record.digest, {**record.facts, "code": codes})
    ledger.close()
    assert run_command(["show", COMPLETE, "--root", str(paths.root)]) == 0
    assert (
        f"attempt 1 began with version {version} of 2 of the code, which has changed since the sweep began: "
        f"{12 * 'ab'[version - 1]}\n"
    ) in capsys.readouterr().out
