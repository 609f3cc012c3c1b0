"""Two sweeps of one user share the Ray of a machine: neither slows, ends or configures the other."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from orchestrator.ledger.ledger import Ledger
from orchestrator.machines.head import running, runtime_folder
from orchestrator.training.process import worker_environment
from tests.end_to_end.commands import ROOT, SMALL, Commands, finish, wait_for
from tests.packages import installed
from tests.shared_ray import own_ray, runtime_folder_of

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(900)]

ONE_CPU = [*SMALL, "--quiet", "--set", "scheduler={none: {}}", "--set", "sampler={random: {seed: 1}}"]
ENDLESS = [*ONE_CPU, "--set", "training.steps=100_000", "--set", "budget.trials=1"]
LONG = [*ONE_CPU, "--set", "training.steps=400", "--set", "budget.trials=1"]
SPACE = """
task: copy
data: {delay: 6, examples: 400, held_out: 40}
model: {layer: loud, depth: 1, d_model: 8, d_state: 16}
training: {steps: 20, interval: 10, batch_size: 8, learning_rate: 1e-3, recurrent_learning_rate: 1e-3}
evaluate: {examples: 40}
search: {learning_rate: {choice: [1e-3, 2e-3]}}
objective: {minimize: val/loss}
sampler: {random: {seed: 1}}
scheduler: {none: {}}
budget: {trials: 1}
resources: {cpu: 1}
"""
LAYER = """
import contextlib, json, os, pathlib
from trainables.layers.lds import LDS
from trainables.settings import LayerSettings, Option
NAMES = ("OF_SWEEP_1", "OF_SWEEP_2", "OMP_NUM_THREADS", "XLA_FLAGS")

class Loud(LDS):
    settings = LayerSettings(
        "Records its environment.", {"says": Option("nothing", "Unused.", choices=("nothing",))}
    )

    def __init__(self, *sizes, says="nothing", **options):
        super().__init__(*sizes, **options)
        # The worker trains before any other process constructs the layer.
        with contextlib.suppress(FileExistsError), open(os.environ["SEEN"], "x") as file:
            json.dump({name: os.environ.get(name) for name in NAMES}, file)
"""


@pytest.fixture
def second(tmp_path: Path, shared_folder: Path, commands: Commands) -> Commands:
    """Return commands of a second sweep, with a root of its own; `commands` checks what is left of both."""
    return Commands(tmp_path / "second", shared_folder, commands.mark, processes=commands.processes)


def states(commands: Commands) -> tuple[str | None, str | None]:
    """Return the state of the only sweep and its reason; None before it has begun."""
    if not (commands.root / "sweeps.db").exists():
        return None, None
    for sweep in commands.ledger.sweeps():
        return sweep.state, sweep.reason
    return None, None


def reports(ledger: Ledger) -> int:
    """Return the number of reports in a ledger."""
    return sum(len(ledger.reports(sweep.id)) for sweep in ledger.sweeps())


def training(commands: Commands) -> bool:
    """Return True once the only sweep has reported."""
    return states(commands)[0] is not None and reports(commands.ledger) > 0


def stopped(commands: Commands, driver: subprocess.Popen[str]) -> None:
    """Stop the only sweep and wait for its driver."""
    code, output = commands.run("stop", commands.ledger.sweeps()[0].id)
    assert code == 0, output
    code, output = finish(driver)
    assert code == 4, output


SIGNALS = [
    signal.SIGKILL,
    pytest.param(signal.SIGINT, marks=pytest.mark.slow),
    pytest.param(signal.SIGTERM, marks=pytest.mark.slow),
]


@pytest.mark.slow
@pytest.mark.parametrize("number", SIGNALS, ids=str)
def test_the_end_of_one_driver_leaves_the_other_sweep_undisturbed(
    commands: Commands, second: Commands, number: signal.Signals
) -> None:
    """The other one keeps its worker and its attempt; the workers of the ended driver are gone."""
    first, other = commands.start(*ENDLESS), second.start(*ENDLESS)
    wait_for(lambda: training(commands) and training(second), seconds=400)
    head = running(runtime_folder())
    assert head is not None
    workers = {process.pid for process in commands.titled("ray::Worker")}
    assert len(workers) == 2, "each sweep has a trial, and one Ray has both"
    os.kill(first.pid, number)
    finish(first)
    wait_for(lambda: len(commands.titled("ray::Worker")) == 1, seconds=30)
    before = reports(second.ledger)
    wait_for(lambda: reports(second.ledger) > before + 2)
    assert {process.pid for process in commands.titled("ray::Worker")} < workers
    stopped(second, other)
    assert [attempt.cause for attempt in second.ledger.attempts(second.ledger.sweeps()[0].id)] == [
        "interrupted"
    ]
    assert running(runtime_folder()) == head


@pytest.mark.slow
def test_a_sweep_waits_for_another_uncharged_and_gets_its_processors(
    commands: Commands, second: Commands
) -> None:
    """The processors are counted once: the second sweep is WAITING until the first one has ended."""
    cpus = len(os.sched_getaffinity(0))
    first = commands.start(*ENDLESS, "--set", f"resources={{cpu: {cpus}}}")
    wait_for(lambda: training(commands), seconds=400)
    other = second.start(*ONE_CPU, "--set", "budget.trials=1")
    wait_for(lambda: states(second)[0] == "WAITING", seconds=400)
    assert "no free node with 1 CPU; 1 node, 0 free" in str(states(second)[1])
    assert len(commands.titled("ray::Worker")) == 1
    stopped(commands, first)
    code, output = finish(other, timeout=400)
    assert code == 0, output
    (attempt,) = second.ledger.attempts(second.ledger.sweeps()[0].id)
    assert attempt.taken_at is not None
    assert attempt.taken_at - attempt.started_at > 5, "the wait is not part of what the attempt costs"


@pytest.mark.slow
def test_test_is_evaluated_while_another_sweep_holds_all_processors(
    commands: Commands, second: Commands
) -> None:
    everything = ["--set", f"resources={{cpu: {len(os.sched_getaffinity(0))}}}"]
    minutes = ["--set", "training.steps=20_000", "--set", "training.interval=200"]
    first = commands.start(*LONG, *minutes, *everything)
    wait_for(lambda: training(commands), seconds=400)
    other = second.start(*ENDLESS, *everything)
    wait_for(lambda: states(second)[0] == "WAITING", seconds=400)
    assert first.poll() is None, "the second sweep waits for it"
    code, output = finish(first, timeout=400)
    assert code == 0, output
    assert len(commands.ledger.evaluations(commands.ledger.sweeps()[0].id)) == 1
    wait_for(lambda: training(second), seconds=400)
    stopped(second, other)


@pytest.mark.slow
def test_the_environment_of_one_sweep_does_not_reach_another(commands: Commands, temporary: Path) -> None:
    """The first sweep starts Ray, the second one joins it; each has a variable and a package of its own."""
    seen = []
    with own_ray(temporary) as ray:
        for number in (1, 2):
            site = commands.folder / f"site-{number}"
            installed(site, {"trainables.layers": {"loud": "loud:Loud"}}, {"loud.py": LAYER}, "loud")
            file = commands.folder / f"space-{number}.yaml"
            file.write_text(SPACE)
            own = {f"OF_SWEEP_{number}": "set", "SEEN": str(site / "seen"), "PYTHONPATH": f"{site}:{ROOT}"}
            code, output = commands.run(str(file), "--quiet", timeout=400, **own, **ray)
            assert code == 0, output
            seen.append(json.loads((site / "seen").read_text()))
            head = running(runtime_folder_of(temporary))
            assert head is not None
            seen[-1]["head"] = head.pid
    assert seen[0].pop("head") == seen[1].pop("head")
    common = {name: worker_environment(0.0)[name] for name in ("XLA_FLAGS", "OMP_NUM_THREADS")}
    assert seen == [
        {"OF_SWEEP_1": "set", "OF_SWEEP_2": None, **common},
        {"OF_SWEEP_1": None, "OF_SWEEP_2": "set", **common},
    ]


@pytest.mark.slow
def test_the_death_of_ray_ends_a_driver_and_the_same_command_resumes(
    commands: Commands, temporary: Path
) -> None:
    with own_ray(temporary) as ray:
        driver = commands.start(*LONG, **ray)
        wait_for(lambda: training(commands), seconds=400)
        head = running(runtime_folder_of(temporary))
        assert head is not None
        os.kill(head.pid, signal.SIGKILL)
        code, output = finish(driver, timeout=15)
        assert code == 4, output
        assert f"process {head.pid} has ended" in output
        assert states(commands) == ("INTERRUPTED", "stopped by the loss of the Ray of this machine")
        code, output = commands.run(*LONG, timeout=400, **ray)
        assert code == 0, output


@pytest.mark.slow
def test_nothing_remains_of_a_ray_that_does_not_linger(commands: Commands, temporary: Path) -> None:
    code, output = commands.run(
        *ONE_CPU, "--set", "budget.trials=1", SWEEP_RUNTIME=str(temporary), SWEEP_RAY_LINGER="0"
    )
    assert code == 0, output
    wait_for(lambda: not _mentioning(temporary), seconds=30)


def _mentioning(folder: Path) -> list[psutil.Process]:
    """Return the processes whose command line names a runtime folder or the folder of its Ray."""
    return [
        process for process in psutil.process_iter(["cmdline"]) if str(folder) in str(process.info["cmdline"])
    ]
