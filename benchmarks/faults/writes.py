"""R13: the n-th write and all later ones fail; afterwards the disk holds the old or the new state."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.faults.preload import library
from benchmarks.faults.table import Dose, Row, Tally
from orchestrator.ledger.integrity import verify
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.sweeps.records import CheckpointRecord
from orchestrator.ledger.sweeps.writer import SweepWriter
from tests.orchestrator.ledger.examples import create_sweep, sweep_record, trial_record, writer
from trainables import checkpoint

STEPS = 12
SWEEP = "copy-0123abcd"
KEY = f"{SWEEP}-0"
ERRORS = (errno.ENOSPC, errno.EIO)


def failing_writes(dose: Dose) -> list[Row]:
    """Save and report in processes whose n-th write fails, for every n; then check what was stored."""
    folder = dose.folder / "writes"
    folder.mkdir()
    command = [sys.executable, "-m", "benchmarks.faults.writes", str(folder), str(dose.writes)]
    environment = {**os.environ, "LD_PRELOAD": str(library(dose.folder))}
    ran = subprocess.run(command, env=environment, check=False, stdout=subprocess.PIPE, text=True)
    tally = Tally()
    if ran.returncode:
        tally.expect(False, f"the process exited with {ran.returncode}")
        return [tally.row("the n-th write fails", "the cases run", ran.stdout[-300:])]
    cases = json.loads(ran.stdout.splitlines()[-1])
    torn = [case for case in cases if case["torn"]]
    tally.expect(not torn, f"{len(torn)} torn: {torn[:2]}")
    reached = sum(case["failed"] for case in cases)
    behind = sum(case["acknowledged"] > case["kept"] for case in cases)
    tally.expect(not behind, f"{behind} lost acknowledged reports")
    kept = sorted({case["kept"] for case in cases})
    seen = f"{len(cases)} cases, {reached} cut short, {kept[0]} to {kept[-1]} of {STEPS} reports kept; "
    seen += f"{len(torn)} torn, {behind} behind what was acknowledged"
    must = "old or new, never torn; nothing lost that was acknowledged"
    return [
        tally.row(f"the n-th write fails, n = 1..{dose.writes}, full disk and I/O error by turns", must, seen)
    ]


def main(folder: Path, writes: int) -> None:
    """Try every n in a forked child process, so that the modules are imported only once."""
    begun = folder / "begun"
    _begin(begun)
    cases = [_case(shutil.copytree(begun, folder / f"{n:03d}"), n) for n in range(1, writes + 1)]
    print(json.dumps(cases))


def _case(folder: Path, n: int) -> dict[str, Any]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        acknowledged = _work(folder, n, writing)
        os._exit(0 if acknowledged == STEPS else 1)
    os.close(writing)
    with os.fdopen(reading, "rb") as acknowledgements:
        acknowledged = len(acknowledgements.read())
    failed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0
    return {"n": n, "acknowledged": acknowledged, "failed": failed, **_read_by_a_child(folder)}


def _begin(folder: Path) -> None:
    """Create a ledger with a trial and close it: SQLite connections must not be carried across a fork."""
    ledger = Ledger.open(_url(folder))
    create_sweep(ledger, sweep_record(id=SWEEP))
    write = writer(ledger, SWEEP)
    write.add_trial(trial_record(key=KEY, sweep_id=SWEEP, total_steps=STEPS))
    write.start_attempt(KEY)
    ledger.close()


def _work(folder: Path, n: int, acknowledgements: int) -> int:
    """Report steps with checkpoints until a write fails; write a byte per acknowledged report to a pipe."""
    acknowledged = 0
    try:
        ledger = Ledger.open(_url(folder))
        write = writer(ledger, SWEEP)
        ctypes.CDLL(None).fail_from(ctypes.c_long(n), ERRORS[n % 2])
        for step in range(1, STEPS + 1):
            _report(write, folder, step)
            os.write(acknowledgements, b".")
            acknowledged = step
    except Exception:  # noqa: BLE001 - a failing disk may raise anything
        return acknowledged
    return acknowledged


def _report(write: SweepWriter, folder: Path, step: int) -> None:
    stem = folder / "checkpoints" / KEY / f"step-{step}"
    saved = checkpoint.save(stem, {"weights": np.full(50, float(step))}, {"step": step})
    row = CheckpointRecord(KEY, step, "last", str(saved.folder), saved.digest, saved.bytes, {})
    write.record_report(f"{KEY}.1", step, {"val/accuracy": step / STEPS}, [row])


def _read_by_a_child(folder: Path) -> dict[str, Any]:
    """Read everything as the next driver does, in a child process whose disk does not fail."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.close(reading)
        os.write(writing, json.dumps(_read(folder)).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer: dict[str, Any] = json.loads(pipe.read() or b'{"torn": "no answer", "kept": 0}')
    os.wait()
    return answer


def _read(folder: Path) -> dict[str, Any]:
    try:
        ledger = Ledger.open(_url(folder))
        verify(ledger, SWEEP)
        reports = ledger.trial_reports(KEY)
        assert [report.step for report in reports] == list(range(1, len(reports) + 1)), (
            "a gap between reports"
        )
        for row in ledger.trial_checkpoints(KEY):
            arrays, facts = checkpoint.load(Path(row.path), row.digest)
            assert arrays["weights"][0] == facts["step"] == row.step, "the checkpoint of another step"
        return {"torn": "", "kept": len(reports)}
    except Exception as error:  # noqa: BLE001 - any error is a finding
        return {"torn": f"{type(error).__name__}: {error}"[:200], "kept": 0}


def _url(folder: Path) -> str:
    return f"sqlite:///{folder / 'sweeps.db'}"


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
