"""The engines that trials share, as actors of a real Ray, where devices of the host stand in for GPUs."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.schedule.engines import Engines
from tests.attempts import assignment

BEGINNING = """
import contextlib, os, signal, sys, time
import psutil
from dataclasses import replace
from pathlib import Path
from orchestrator.machines.hardware import Hardware
from orchestrator.schedule import environment
folder, devices = Path(sys.argv[1]), int(sys.argv[2])
environment.prepare(0.25, folder / "token")
import ray
from orchestrator.schedule import cluster, ray_private
from orchestrator.schedule.engines import Engines, SharedEngine
from tests.attempts import assignment

def shared(number, sweep="s", **changes):
    key = f"{sweep}-{number}"
    return assignment(folder, number, trial_key=key, attempt_id=f"{key}.1", **changes)

@ray.remote(num_cpus=0.1, max_concurrency=2)
class Worker:
    def __init__(self):
        self.engine = SharedEngine()
    def advance(self, assignment):
        return self.engine.advance(assignment)

def until(outcomes, condition):
    deadline = time.monotonic() + 200
    for outcome in outcomes:
        if condition(outcome):
            return outcome
        assert time.monotonic() < deadline, outcome

def answers(worker, assignment):
    while True:
        yield ray.get(worker.advance.remote(assignment))

def report(worker, assignment):
    return until(answers(worker, assignment), lambda outcome: not outcome.queued)

def free():
    return ray.available_resources().get("GPU", 0)

def processes():
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.cmdline()[:1] and process.cmdline()[0].startswith("ray::EngineActor"):
                if process.environ().get("SWEEP_TEST_MARK") == os.environ["SWEEP_TEST_MARK"]:
                    yield process.pid

def wait(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)

with cluster.connected(Hardware(cpus=2, gpus=devices), 0.25):
    engines = Engines(lambda: devices)
"""


def run(folder: Path, devices: int, body: str) -> list[str]:
    """Run a program under a Ray of its own; return the lines that it prints."""
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    indented = "".join(f"    {line}\n" for line in body.strip().splitlines())
    done = subprocess.run(
        [sys.executable, "-c", BEGINNING + indented, str(folder), str(devices)],
        env={
            **environment,
            "RAY_TMPDIR": str(folder),
            "SWEEP_HOST_DEVICES": str(devices),
            "SWEEP_TEST_MARK": str(folder),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


ACCOUNTS = """
first, worker = engines.seat(shared(1)), Worker.remote()
engines.ensure(first.attempt_id)
assert report(worker, first).step == 10
wait(lambda: free() == 0)
other = Engines(lambda: devices)
second = other.seat(shared(2, "other"))
other.ensure(second.attempt_id)
late = Worker.remote()
answer = late.advance.remote(second)
assert not ray.wait([answer], timeout=3)[0], "a second sweep must wait for the device"
engines.release(first.attempt_id)
engines.retire()
print(ray.get(answer).engine)
print(report(late, second).step, free())
other.release(second.attempt_id)
other.retire()
wait(lambda: free() == 1)
"""


def test_an_engine_holds_its_whole_device_as_long_as_it_lives(temporary: Path) -> None:
    """Ray offers the device of a resident engine to nobody; the next sweep waits, and gets all of it."""
    assert run(temporary, 1, ACCOUNTS) == ["other-engine-0", "10 0"]


STOPS = """
one, two = engines.seat(shared(1, "a")), engines.seat(shared(2, "b"))
workers = [Worker.remote(), Worker.remote()]
for seated, worker in zip((one, two), workers):
    engines.ensure(seated.attempt_id)
    assert report(worker, seated).step == 10
ray_private.publish_stop("a")
time.sleep(2.5)
print(report(workers[0], one).interrupted, report(workers[1], two).interrupted)
"""


def test_a_stop_of_one_sweep_interrupts_no_other(temporary: Path) -> None:
    assert run(temporary, 2, STOPS) == ["True False"]


RENEWED = """
worker = Worker.remote()
def again(attempt):
    seated = engines.seat(assignment(folder, 1, attempt=attempt))
    wait(lambda: engines._living(seated.engine) is None)
    engines.ensure(seated.attempt_id)
    assert report(worker, seated).step == 10
    return seated
def lose(seated):
    lost = report(worker, seated)
    assert not ray.wait([engines._actors[seated.engine].live], timeout=0)[1]
    cause = engines.cause_of(seated.attempt_id, lost.failure)
    engines.release(seated.attempt_id)
    return cause
for attempt in (1, 2):
    seated = again(attempt)
    (pid,) = processes()
    os.kill(pid, signal.SIGKILL)
    print(lose(seated))
for attempt in (3, 4):
    seated = again(attempt)
    print(engines.kill(seated.attempt_id), lose(seated))
"""


def test_an_engine_is_created_anew_after_each_death(temporary: Path) -> None:
    """Whether its process was killed from outside or by the driver, driver and worker reach the next one."""
    lost = ["engine crash", "engine crash", "hung engine crash", "hung engine crash"]
    assert run(temporary, 1, RENEWED) == lost


TERMINATED = """
worker, other = Worker.remote(), Worker.remote()
first, second = engines.seat(shared(1)), engines.seat(shared(2))
for seated, its in ((first, worker), (second, other)):
    engines.ensure(seated.attempt_id)
    assert report(its, seated).step == 10
(pid,) = processes()
os.kill(pid, signal.SIGTERM)
saved = [report(worker, first), report(other, second)]
print([(outcome.interrupted, outcome.checkpoint is not None, outcome.failure) for outcome in saved])
for seated in (first, second):
    engines.release(seated.attempt_id)
wait(lambda: engines._living(first.engine) is None)
resumed = engines.seat(assignment(folder, 1, attempt=2, resume=saved[0].checkpoint))
engines.ensure(resumed.attempt_id)
print(saved[0].step >= 10, report(worker, resumed).step)
"""


def test_a_terminated_engine_saves_its_trials_and_leaves_its_device(temporary: Path) -> None:
    """Its machine is about to be taken away; another engine goes on from the checkpoints."""
    saved = (True, True, None)
    assert run(temporary, 1, TERMINATED) == [str([saved, saved]), "True 20"]


QUEUED = """
model = replace(shared(2).settings.model, d_model=16)
first = engines.seat(shared(1))
queued = engines.seat(shared(2, settings=replace(first.settings, model=model)))
engines.ensure(first.attempt_id)
workers = [Worker.remote(), Worker.remote()]
assert report(workers[0], first).step == 10
assert ray.get(workers[1].advance.remote(queued)).engine == first.engine
answer = workers[1].advance.remote(queued)
time.sleep(2)
ray_private.publish_stop(first.sweep_id)
published = time.monotonic()
outcome = ray.get(answer)
print(outcome.queued, time.monotonic() - published < 2)
"""


def test_a_queued_trial_sees_a_stop_request_within_two_seconds(temporary: Path) -> None:
    """It is of another program than the trial in the slot; the request reaches it without any shared file."""
    assert run(temporary, 1, QUEUED) == ["True True"]


def seated(engines: Engines, folder: Path, number: int, **changes: Any) -> str:
    engine = engines.seat(assignment(folder, number, **changes)).engine
    assert engine is not None
    return engine.rpartition("-")[2]


def test_attempts_fill_the_engine_of_their_program_before_another_device(tmp_path: Path) -> None:
    """Four slots a device: the fifth takes the second device; another program takes an empty one first."""
    engines = Engines(lambda: 2)
    assert [seated(engines, tmp_path, number) for number in range(5)] == ["0", "0", "0", "0", "1"]
    engines.release("s-2.1")
    assert seated(engines, tmp_path, 5) in {"0", "1"}
    settings = assignment(tmp_path, 0).settings
    wide = replace(settings, model=replace(settings.model, d_model=16))
    apart = Engines(lambda: 2)
    assert [seated(apart, tmp_path, 0), seated(apart, tmp_path, 1, settings=wide)] == ["0", "1"]
    assert [seated(apart, tmp_path, 2, settings=wide), seated(apart, tmp_path, 3)] == ["1", "0"]


def test_an_attempt_with_a_device_of_its_own_gets_no_engine(tmp_path: Path) -> None:
    whole = assignment(tmp_path, 1, gpu=1.0)
    assert Engines(lambda: 2).seat(whole) is whole


def test_a_lost_engine_is_charged_only_to_the_attempt_that_must_have_caused_it(tmp_path: Path) -> None:
    """With several in it none is charged; one that is tested alone is, and so is one without neighbours."""
    engines = Engines(lambda: 1)
    names = ["s-0.1", "s-1.1", "s-2.1"]
    for number, name in enumerate(names):
        engines.seat(assignment(tmp_path, number))
        engines.entered(name)
    for name in names:
        assert engines.cause_of(name, "engine lost") == "engine lost"
        engines.release(name)
    for number in (0, 1):
        engines.seat(assignment(tmp_path, number, attempt=2))
        engines.entered(f"s-{number}.2")
    engines.tested("s-1.2", alone=True)
    assert engines.cause_of("s-0.2", "engine lost") == "engine lost"
    engines.release("s-0.2")
    assert engines.cause_of("s-1.2", "engine lost") == "engine crash"
    engines.release("s-1.2")
    engines.seat(assignment(tmp_path, 2, attempt=2))
    engines.entered("s-2.2")
    assert engines.cause_of("s-2.2", "engine lost") == "engine crash"
    assert engines.cause_of("s-2.2", "error") == "error"
