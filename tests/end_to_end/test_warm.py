"""Sweeps that a service starts in processes it has kept: the same bits as in new ones, and no old code."""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from orchestrator.errors import Exit
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.queue import submissions
from orchestrator.storage.paths import Paths
from tests.end_to_end.commands import ROOT, SMALL, Commands, finish, wait_for
from tests.shared_ray import own_ray
from trainables import checkpoint

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow]

TWO = [*SMALL, "--set", "budget.trials=2", "--set", "scheduler=none"]
TIMES = ("seconds/", "tokens_per_second", "slots/busy")


def results(root: Path, sweep_id: str) -> list[Any]:
    """Return what a sweep has measured, and the bytes of the weights that it has kept."""
    found: list[Any] = []
    with closing(Ledger.open(f"sqlite:///{root}/sweeps.db")) as ledger:
        for trial in ledger.trials(sweep_id, "search"):
            for report in ledger.reports(sweep_id):
                if report.trial_key == trial.key:
                    kept = {
                        name: value for name, value in report.metrics.items() if not name.startswith(TIMES)
                    }
                    found.append((trial.number, report.step, kept))
            for row in ledger.trial_checkpoints(trial.key):
                arrays, _ = checkpoint.load(Path(row.path), row.digest)
                weights = {name: np.asarray(array).tobytes() for name, array in arrays.items()}
                found.append((trial.number, row.kind, row.step, weights))
        found += [(row.step, row.metrics, row.scores) for row in ledger.evaluations(sweep_id)]
    return found


def workers(root: Path, sweep_id: str) -> set[int]:
    """Return the processes that have trained a sweep, by the logs of its trials."""
    logs = Paths(root).log(sweep_id, "any").parent.glob("*.log")
    return {int(pid) for log in logs for pid in re.findall(r"started at .* process (\d+)", log.read_text())}


def test_kept_processes_change_no_bit_and_run_no_old_code(commands: Commands, temporary: Path) -> None:
    commands.project = temporary / "project"
    for name in ("orchestrator", "trainables"):
        shutil.copytree(ROOT / name, commands.project / name, ignore=shutil.ignore_patterns("__pycache__"))
    with own_ray(temporary) as variables:
        environment = {**variables, "PYTHONPATH": str(commands.project)}
        warm = {**environment, "SWEEP_WARM": "600"}
        cold = commands.folder / "cold"
        code, printed = commands.run(*TWO, "--here", **environment, SWEEP_ROOT=str(cold))
        assert code == Exit.COMPLETE, printed
        with closing(Ledger.open(f"sqlite:///{cold}/sweeps.db")) as ledger:
            expected = results(cold, ledger.sweeps()[0].id)

        service = commands.start("serve", **warm)
        wait_for(lambda: (commands.root / "serve.json").exists())
        known: set[str] = set()

        def ready() -> int:
            """Return the process that waits for the next sweep: it has started threads, and reads a pipe."""
            found: list[int] = []

            def is_ready() -> bool:
                waiting = [one for one in commands.alive() if "--prewarm" in one.cmdline()]
                found[:] = [
                    one.pid
                    for one in waiting
                    if one.num_threads() > 1 and "pipe_read" in Path(f"/proc/{one.pid}/wchan").read_text()
                ]
                return bool(found)

            wait_for(is_ready)
            return found[0]

        def drive() -> tuple[int, set[int]]:
            """Submit the sweep again, check its results, and return its driver and its workers."""
            code, printed = commands.run(*TWO, "--new", **warm)
            assert code == Exit.COMPLETE, printed
            with closing(commands.ledger) as ledger:
                [sweep_id] = {sweep.id for sweep in ledger.sweeps()} - known
                known.add(sweep_id)
                entry = submissions.submission(ledger, sweep_id)
            assert entry is not None
            assert entry.driver is not None
            assert entry.starts == 1
            assert results(commands.root, sweep_id) == expected
            return entry.driver.pid, workers(commands.root, sweep_id)

        _, first = drive()
        killed = ready()
        os.kill(killed, signal.SIGKILL)
        driver, second = drive()
        assert driver != killed
        assert second <= first
        waiting = ready()
        driver, third = drive()
        assert driver == waiting
        assert third <= first
        waiting = ready()
        with (commands.project / "trainables" / "__init__.py").open("a") as file:
            file.write("# changed\n")
        driver, fourth = drive()
        assert driver != waiting
        assert not fourth & first
        service.terminate()
        assert finish(service)[0] == Exit.COMPLETE


@pytest.mark.parametrize("gpu", ["1/2", "1"])
def test_the_process_of_a_gpu_serves_the_next_sweep_with_the_same_bits_and_ends_with_a_killed_driver(
    commands: Commands, temporary: Path, gpu: str
) -> None:
    """It is an engine of two slots, or the worker of one trial at a time."""
    given = [*TWO, "--set", f"resources={{gpu: {gpu}, cpu: 0.5}}"]
    with own_ray(temporary) as variables:
        environment = {**variables, "SWEEP_HOST_DEVICES": "1"}
        known: set[str] = set()

        def drive(seconds: str) -> tuple[list[Any], set[int]]:
            """Run the sweep; return its results and the processes that have trained it."""
            code, printed = commands.run(*given, "--new", **environment, SWEEP_WARM=seconds)
            assert code == Exit.COMPLETE, printed
            with closing(commands.ledger) as ledger:
                [sweep_id] = {sweep.id for sweep in ledger.sweeps()} - known
            known.add(sweep_id)
            return results(commands.root, sweep_id), workers(commands.root, sweep_id)

        cold, _ = drive("0")
        first, processes = drive("600")
        second, again = drive("600")
        assert first == second == cold
        assert len(processes) == 1
        assert again == processes
        [kept] = processes
        endless = ["--set", "training.steps=100_000"]
        driver = commands.start(*given, *endless, "--new", **environment, SWEEP_WARM="600")
        with closing(commands.ledger) as ledger:

            def reported() -> bool:
                return any(ledger.reports(one.id) for one in ledger.sweeps() if one.id not in known)

            wait_for(reported)
        assert psutil.pid_exists(kept)
        driver.kill()
        wait_for(lambda: not psutil.pid_exists(kept))


@pytest.mark.parametrize("gpu", ["1/2", "1"])
def test_what_keeps_a_gpu_warm_ends_with_a_killed_service(
    commands: Commands, temporary: Path, gpu: str
) -> None:
    with own_ray(temporary) as variables:
        environment = {**variables, "SWEEP_HOST_DEVICES": "1", "SWEEP_WARM": "600"}
        service = commands.start("serve", **environment)
        wait_for(lambda: (commands.root / "serve.json").exists())
        code, printed = commands.run(*TWO, "--set", f"resources={{gpu: {gpu}, cpu: 0.5}}", **environment)
        assert code == Exit.COMPLETE, printed
        with closing(commands.ledger) as ledger:
            [sweep] = ledger.sweeps()
        [kept] = workers(commands.root, sweep.id)
        time.sleep(2)  # four looks
        assert psutil.pid_exists(kept)
        service.kill()
        wait_for(lambda: not psutil.pid_exists(kept), 20)
