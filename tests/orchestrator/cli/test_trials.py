"""The verbs `logs`, which prints the log of a trial's workers, and `show`, which prints its metrics."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator import output
from orchestrator.cli.app import run_command
from orchestrator.config import load
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.sweeps.records import REPEATS, SIMILARITY, CheckpointRecord
from orchestrator.output import escaped
from orchestrator.scripts.script_process import CLIENT
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


@pytest.mark.parametrize(
    "words", [["0"], [sweeps.SWEEP_ID, "0"], ["retrieval", "0"], ["retrieval-0"], [COMPLETE]]
)
@pytest.mark.parametrize("verb", ["show", "logs"])
def test_a_trial_is_named_by_its_number(
    paths: Paths, capsys: pytest.CaptureFixture[str], verb: str, words: list[str]
) -> None:
    """Of the newest sweep, or of the one that is named before it, by its id or its beginning."""
    assert run_command([verb, COMPLETE, "--root", str(paths.root)]) == 0
    expected = capsys.readouterr().out
    assert run_command([verb, *words, "--root", str(paths.root)]) == 0
    assert capsys.readouterr().out == expected


def test_the_log_of_a_sweep_is_that_of_its_drivers(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    log = paths.driver_log(sweeps.SWEEP_ID)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(written := "Every trial has ended.\n" * 10_000, encoding="utf-8")
    assert run_command(["logs", sweeps.SWEEP_ID, "--root", str(paths.root)]) == 0
    assert capsys.readouterr().out == written


def test_of_two_kept_checkpoints_one_is_called_the_best(
    paths: Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    """The best checkpoint before it is kept too, as a second one to go back to."""
    ledger = Ledger.open(paths.ledger_url)
    key = sweeps.fill_script(ledger)
    (attempt,) = ledger.trial_attempts(key)
    reports = writer(ledger, key.rpartition("-")[0])
    for step, loss in ((80, 0.2), (120, 0.1), (160, 0.3)):
        saved = CheckpointRecord(
            key, step, "best" if loss < 0.3 else "last", f"saved/{step}", "beef" * 16, 1, {}
        )
        reports.record_report(attempt.id, step, {"loss": loss}, [saved])
    ledger.close()
    assert run_command(["show", key, "--root", str(paths.root)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0].strip() for line in lines if line.startswith("  step ")] == [
        *("step 40", "step 80", "step 120 (best)", "step 160")
    ]
    assert [line.strip() for line in lines if line.startswith("  checkpoint")] == [
        *(
            "checkpoint (last): saved/160",
            "checkpoint (best): saved/120",
            "checkpoint (best before): saved/80",
        )
    ]


def test_show_prints_the_first_the_best_and_the_last_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trial = replace(sweeps.trial(0), best_step=120)
    root = str(sweeps.filled(tmp_path / "mlruns", [trial]).root)
    steps = {}
    for options in ([], ["--all"]):
        assert run_command(["show", COMPLETE, *options, "--root", root]) == 0
        lines = capsys.readouterr().out.splitlines()
        steps[len(options)] = [line.split(":")[0].strip() for line in lines if line.startswith("  step ")]
        assert (f"  2 more reports: `sweep show {COMPLETE} --all`" in lines) is (not options)
    assert steps[0] == ["step 40", "step 120 (best)", "step 200"]
    assert steps[1] == ["step 40", "step 80", "step 120 (best)", "step 160", "step 200"]


@pytest.mark.parametrize(
    ("words", "told"),
    [(["99"], "-99 is not the key"), (["0", "1", "2"], "3 words"), (["nosuch", "0"], "0 sweeps")],
)
def test_a_number_of_no_trial_is_refused(
    paths: Paths, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    assert run_command(["logs", *words, "--root", str(paths.root)]) == 2
    assert told in capsys.readouterr().err


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


def test_show_names_the_source_of_a_repeated_setting_and_its_similarity(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trials = [replace(sweeps.trial(0), system_attrs={REPEATS: "results.csv"}), sweeps.trial(1)]
    root = str(sweeps.filled(tmp_path / "mlruns", trials).root)
    assert run_command(["show", trials[0].key, "--root", root]) == 0
    assert "  repeats a setting of results.csv" in capsys.readouterr().out.splitlines()
    ledger = Ledger.open(Paths(tmp_path / "mlruns").ledger_url)
    record = ledger.sweep(sweeps.SWEEP_ID)
    assert record is not None
    found = {"results.csv": {"results": 40, "shared": 4, "correlation": 0.4, "weight": 0.0}}
    facts = {**record.facts, SIMILARITY: found}
    sweeps.writer_of(ledger).amend_sweep(record.document, record.digest, facts)
    ledger.close()
    assert run_command(["show", trials[0].key, "--root", root]) == 0
    line = "  repeats a setting of results.csv: rank correlation 0.40 on 4 shared settings"
    assert [each for each in capsys.readouterr().out.splitlines() if each.startswith(line)]


def test_show_prints_the_command_of_a_trial_for_a_shell(
    paths: Paths, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    params = sweeps.trial(0).params
    file = tmp_path / "digits.yaml"
    searched = {name: {"choice": [value]} for name, value in params.items()}
    words = ["python", "my train.py", "{args}", "--steps={steps}"]
    document = {"trainable": {"command": words}, "search": searched, "objective": {"minimize": "loss"}}
    file.write_text(
        json.dumps({**document, "training": {"steps": 80, "interval": 40}, "budget": {"trials": 1}})
    )
    ledger = Ledger.open(paths.ledger_url)
    key = sweeps.fill_script(ledger, load(file, profile=None, overrides=(), gpus=0).document())
    trial = ledger.trial(key)
    ledger.close()
    assert trial is not None
    assert run_command(["show", key, "--root", str(paths.root)]) == 0
    options = [f"--{name}={params[name]}" for name in sorted(params)]
    path = f'PYTHONPATH={CLIENT}"${{PYTHONPATH:+:$PYTHONPATH}}"'
    variables = f"{path} SWEEP_SEED={trial.seed} SWEEP_STEPS=80 SWEEP_INTERVAL=40"
    line = shlex.join(["python", "my train.py", *options, "--steps=80"])
    assert f"  by hand: cd {tmp_path} && {variables} {line}" in capsys.readouterr().out.splitlines()


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
    assert "tokens_per_second 23000" in shown
    assert "learning_rate" not in shown


HOSTILE = "\x1b]0;title\x07\x1b[2J\x9b31m\rover\x08\x7f\u202egpj\u2066\u2028"
SHOWN = r"\x1b]0;title\x07\x1b[2J\x9b31m\rover\x08\x7f\u202egpj\u2066\u2028"
"""What a terminal would execute, and how it is shown."""


@pytest.fixture
def hostile(tmp_path: Path) -> Paths:
    """Return a root with a sweep whose first trial has such names, causes and a log."""
    failed = replace(
        sweeps.trial(3, "FAILED"), cause=f"cause {HOSTILE}", params={f"name {HOSTILE}": f"value {HOSTILE}"}
    )
    paths = sweeps.filled(tmp_path / "mlruns", [sweeps.trial(0), failed])
    log = paths.log(sweeps.SWEEP_ID, FAILED)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_bytes(f"2026-11-21 12:00:00Z attempt 1: {HOSTILE}\n\ttab\r\n".encode())
    return paths


def _on_a_terminal(*words: str) -> bytes:
    """Return what a terminal receives of a command."""
    reading, writing = pty.openpty()
    command = [sys.executable, "-m", "orchestrator.sweep", *words]
    with subprocess.Popen(command, stdout=writing, stderr=writing, env={**os.environ, "COLUMNS": "1000"}):
        os.close(writing)
        received = b""
        with suppress(OSError):  # the end of the command
            while part := os.read(reading, 65_536):
                received += part
    os.close(reading)
    return received


VERBS = (
    ["logs", FAILED],
    ["show", FAILED],
    ["show", FAILED, "--json"],
    ["status", sweeps.SWEEP_ID],
    ["status", sweeps.SWEEP_ID, "--json"],
    ["list"],
    ["list", "--json"],
    ["queue"],
    ["report", sweeps.SWEEP_ID],
    ["check"],
    ["show", HOSTILE],
    ["stop", HOSTILE],
)


@pytest.mark.parametrize("words", VERBS, ids=range(len(VERBS)))
def test_no_verb_prints_what_a_terminal_executes(
    hostile: Paths, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    run_command([*words, "--root", str(hostile.root)])
    printed = "".join(capsys.readouterr())
    assert printed
    assert escaped(printed) == printed
    if words[0] in {"logs", "stop"} or (words[0] == "show" and words[-1] != "--json"):
        assert SHOWN in printed


def test_a_log_keeps_its_lines_and_tabs(hostile: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["logs", FAILED, "--root", str(hostile.root)]) == 0
    assert capsys.readouterr().out == f"2026-11-21 12:00:00Z attempt 1: {SHOWN}\n\ttab\n"


@pytest.mark.slow
def test_a_terminal_receives_no_order_but_rich_s_own(hostile: Paths) -> None:
    """Its own are colours, which end with an `m`; the hostile ones do other things."""
    received = _on_a_terminal("show", FAILED, "--root", str(hostile.root))
    assert SHOWN.encode() in received
    assert not re.search(rb"\x1b(?!\[[\d;]*m)|\x07|\x08|\x7f|\xc2\x9b", received)


@pytest.mark.slow
def test_a_raw_log_goes_to_a_file_and_to_no_terminal(hostile: Paths, tmp_path: Path) -> None:
    words = ["logs", FAILED, "--raw", "--root", str(hostile.root)]
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator.sweep", *words], capture_output=True, check=True
    )
    assert HOSTILE.encode() in done.stdout
    refused = _on_a_terminal(*words)
    assert b"--raw must write to a file or a pipe (got a terminal)" in refused
    assert b"\x1b]0;" not in refused


def test_every_verb_prints_by_the_console_that_escapes() -> None:
    """Another console, or a write of its own, would show what it is given as it is."""
    own = re.compile(r"rich\.console import (\w+, )*Console\b|std(out|err)\.write")
    for file in sorted(Path(output.__file__).parent.glob("*.py")):
        assert file.name == "output.py" or not own.search(file.read_text()), file


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
