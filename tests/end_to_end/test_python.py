"""A sweep is run, stopped, resumed and evaluated from Python, outside the main thread."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.commands import ROOT, Commands

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow]

SCRIPT = """
import threading
from orchestrator import Exit, Observer, Sweep

def tiny():
    return Sweep.load(
        "search_spaces/listops.yaml",
        profile="laptop",
        overrides=[
            "training.steps=600", "training.interval=100", "model.d_model=16", "model.d_state=16",
            "model.heads=2", "data.length=48", "data.min_length=4", "data.max_length=40",
            "data.examples=1000", "data.held_out=200", "evaluate.examples=200",
            "budget.trials=2",
        ],
    )

class Stopper(Observer):
    def __init__(self, sweep):
        self.sweep, self.lines, self.closed = sweep, [], 0

    def say(self, line):
        self.lines.append(line)

    def show(self, progress):
        if progress.states.get("RUNNING") and not self.sweep.stopped:
            self.sweep.stopped = True
            print("stopping", self.sweep.stop().pid, flush=True)

    def close(self):
        self.closed += 1

def run(sweep, observer, codes):
    codes.append(sweep.run(observer))

sweep = tiny()
sweep.stopped = False
for expected in (Exit.RESUMABLE, Exit.COMPLETE):
    codes, observer = [], Stopper(sweep)
    thread = threading.Thread(target=run, args=(sweep, observer, codes))
    thread.start()
    thread.join()
    assert codes == [expected], (codes, observer.lines)
    assert observer.closed == 1
    assert any("Data: " in line for line in observer.lines), observer.lines
    print(sweep.state, flush=True)
assert any("Resuming" in line for line in observer.lines), observer.lines
assert len(sweep.trials) == 2
best = sweep.best
assert best.evaluate().equal
"""


def test_a_sweep_in_a_thread(commands: Commands) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=ROOT,
        env={
            **os.environ,
            "SWEEP_ROOT": str(commands.root),
            "SWEEP_DATA": str(commands.shared / "data"),
            "JAX_COMPILATION_CACHE_DIR": os.environ["JAX_COMPILATION_CACHE_DIR"],
            "SWEEP_TEST_MARK": commands.mark,
        },
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    words = done.stdout.split()
    assert words[0] == "stopping"
    assert words[2:] == ["INTERRUPTED", "COMPLETE"]
    assert Path(commands.root / "reports").is_dir()
