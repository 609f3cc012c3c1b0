"""Shared engines, and warm workers with a GPU, as actors of a real Ray.

Processors of this machine take the place of GPUs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.machines.idle_timeout import WARM
from orchestrator.schedule.engines import EnginePool, Engines
from tests.attempts import assignment
from tests.shared_ray import own_ray

DEFINITIONS = """
import contextlib, io, json, os, signal, subprocess, sys, time, traceback
import psutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from orchestrator.machines.hardware import Hardware
from orchestrator.machines.head import running, runtime_folder
from orchestrator.schedule import environment
folder = Path(sys.argv[1])
environment.prepare(folder / "token")
import ray
from orchestrator.ledger.holder import Holder
from orchestrator.schedule import cluster, orphaned_actors, ray_private
from orchestrator.schedule.engines import EnginePool
from orchestrator.schedule.engines import Engines
from orchestrator.schedule.loans import Loan, WrongLoan
from orchestrator.schedule.shared_worker import SharedEngine
from orchestrator.schedule.warm_pool import handle_of, of_this_ray
from orchestrator.system import System
from tests.attempts import assignment
from trainables import checkpoint

def shared(number, sweep="s", **changes):
    key = f"{sweep}-{number}"
    return assignment(folder, number, trial_key=key, attempt_id=f"{key}.1", **changes)

@ray.remote(num_cpus=0.1, max_concurrency=2)
class Worker:
    def __init__(self):
        self.engine = SharedEngine(ray.get_runtime_context().get_actor_id())
    async def advance(self, assignment):
        return await self.engine.advance(assignment)

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
    return until(answers(worker, assignment), lambda outcome: not outcome.queued and not outcome.training)

def idle(pool, sweep):
    # Leave an engine that was borrowed and given back; return its process.
    engines = Engines(lambda: 1, pool)
    seated = engines.seat(shared(1, sweep))
    engines.ensure(seated.attempt_id)
    wait(engines.nodes)
    engines.release(seated.attempt_id)
    engines.retire()
    wait(lambda: engines.idle is None)
    (pid,) = processes()
    return pid

def worker_pool(compilations="same", seconds=600.0):
    return of_this_ray(seconds, compilations, has_gpu=True)

def used(pool):
    # Leave a worker that a driver has used; return its process.
    worker = pool.take()
    pid = ray.get(worker.run(os.getpid))
    pool.give_back(worker)
    named = [actor["name"] for actor in ray.util.list_named_actors(all_namespaces=True)]
    wait(lambda: any(ray_private.published_borrower(name) == "" for name in named))  # has got it
    return pid

def other_process():
    sleeper = subprocess.Popen(["sleep", "600"])
    return sleeper, replace(Holder.here(), pid=sleeper.pid, start=System().start_of(sleeper.pid)).write()

def end(sleeper):
    sleeper.kill()
    sleeper.wait()

def free():
    return ray.available_resources().get("GPU", 0)

def processes(title="ray::EngineActor"):
    for process in psutil.Process(running(runtime_folder()).pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if process.cmdline()[:1] and process.cmdline()[0].startswith(title):
                yield process.pid

def wait(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)

def gone(pid):
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    return True
"""

PROGRAMS = """
with cluster.connected(Hardware(cpus=2, gpus=2)):
    for line in sys.stdin:
        body, devices = json.loads(line)
        others = ray.util.placement_group([{"GPU": 2 - devices}]) if devices < 2 else None
        wait(lambda: free() == devices)
        names, printed, failure = {**globals(), "engines": Engines(lambda: devices)}, io.StringIO(), None
        try:
            with contextlib.redirect_stdout(printed):
                exec(body, names)
        except BaseException:
            failure = traceback.format_exc()
        for actor in ray.util.list_named_actors(all_namespaces=True):
            with contextlib.suppress(ValueError):
                ray.kill(ray.get_actor(actor["name"], namespace=actor["namespace"]))
        names.clear()
        if others is not None:
            ray.util.remove_placement_group(others)
        wait(lambda: free() == 2)
        print(json.dumps([printed.getvalue().splitlines(), failure]), file=sys.__stdout__, flush=True)
"""

Run = Callable[[str], list[str]]


def without_address() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}


@pytest.fixture(scope="module")
def programs() -> Iterator[Callable[[str, int], list[str]]]:
    """Start a Ray with two devices; yield a function that runs a program there and returns what it prints.

    Of a program that may have one device, the other one is held meanwhile.
    """
    with tempfile.TemporaryDirectory(prefix="ray-") as folder:
        yield from _programs(Path(folder))


def _programs(folder: Path) -> Iterator[Callable[[str, int], list[str]]]:
    with own_ray(folder) as variables, (folder / "errors").open("w+") as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", DEFINITIONS + PROGRAMS, str(folder)],
            env={**without_address(), **variables, "SWEEP_HOST_DEVICES": "2"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None

        def run(body: str, devices: int) -> list[str]:
            print(json.dumps([body, devices]), file=process.stdin, flush=True)
            answer = process.stdout.readline()
            assert answer, (folder / "errors").read_text()
            lines, failure = json.loads(answer)
            assert failure is None, failure
            return list(lines)

        yield run
        process.communicate(timeout=60)
        assert process.returncode == 0, (folder / "errors").read_text()


@pytest.fixture
def with_one_device(programs: Callable[[str, int], list[str]]) -> Run:
    """Run a program that has one device."""
    return lambda body: programs(body, 1)


@pytest.fixture
def with_two_devices(programs: Callable[[str, int], list[str]]) -> Run:
    """Run a program that has two devices."""
    return lambda body: programs(body, 2)


ACCOUNTS = """
first, worker = engines.seat(shared(1, "first")), Worker.remote()
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


@pytest.mark.slow
def test_an_engine_holds_its_whole_device_as_long_as_it_lives(with_one_device: Run) -> None:
    """Ray offers the device to no other sweep while the engine lives; the next sweep waits for all of it."""
    assert with_one_device(ACCOUNTS) == ["other@l-engine-0", "10 0"]


LOCATED = """
first = engines.seat(shared(1, "first"))
engines.ensure(first.attempt_id)
wait(lambda: engines.nodes())
other = Engines(lambda: devices)
second = other.seat(shared(2, "other"))
other.ensure(second.attempt_id)
print(engines.nodes() == {first.engine: ray.nodes()[0]["NodeID"]}, other.nodes())
ray.kill(engines._actors[first.engine].handle)
wait(lambda: not engines.nodes())
"""


@pytest.mark.slow
def test_the_node_of_an_engine_is_known_while_it_has_a_device(with_one_device: Run) -> None:
    """The other one waits for the device, and so has no node."""
    assert with_one_device(LOCATED) == ["True {}"]


CLOSING = """
engines = Engines(lambda: 1)
first = engines.seat(shared(1))
engines.ensure(first.attempt_id)
wait(engines.nodes)
engines.closing = frozenset(engines.nodes().values())
second = engines.seat(shared(2))
print(*(one.engine.rpartition("-")[2] for one in (first, second)))
engines.ensure(second.attempt_id)
engines.release(first.attempt_id)
engines.retire_idle()
wait(lambda: engines.nodes().keys() == {second.engine})
"""


@pytest.mark.slow
def test_an_engine_that_is_to_give_up_its_device_gets_no_attempt_and_ends(with_one_device: Run) -> None:
    """The sweep may use one device only: the other attempt gets that of a new engine, once it is free."""
    assert with_one_device(CLOSING) == ["0 1"]


EVALUATES = """
def where(*, cache):
    return os.getpid()

first, worker = engines.seat(shared(1, "scored")), Worker.remote()
engines.ensure(first.attempt_id)
outcome = report(worker, first)
print(engines.idle)
engines.release(first.attempt_id)
engines.retire_but_one()
saved = outcome.checkpoint
request = cluster.EvaluationRequest(
    saved.path, saved.digest, first.data, "validation", first.compilations
)
answer = cluster.evaluate(request, 1.0, 0.25, None, engines.idle)
print(answer["step"], abs(answer["metrics"]["loss"] - outcome.metrics["val/loss"]) < 1e-6)
print([ray.get(engines.idle.run_errand(where))] == [*processes()])
gone = engines.idle
engines.retire()
wait(lambda: engines.idle is None)
damaged = request._replace(digest="0" * 64)
try:
    cluster.evaluate(damaged, 1.0, 0.25, None, gone)
except Exception as error:
    print(type(error).__name__)
"""


@pytest.mark.slow
def test_an_idle_engine_evaluates_in_its_own_process_and_another_one_once_it_has_ended(
    with_one_device: Run,
) -> None:
    """It has imported what an evaluation needs, which takes seconds."""
    assert with_one_device(EVALUATES) == ["None", "10 True", "True", "DamagedCheckpoint"]


AVOIDING = """
engines = Engines(lambda: 1)
here = ray.get_runtime_context().get_node_id()
first = engines.seat(replace(shared(1), avoided=(here,)))
engines.ensure(first.attempt_id)
engines.release(first.attempt_id)
second = engines.seat(shared(2))
engines.ensure(second.attempt_id)
wait(engines.nodes)
print(first.engine == second.engine, *(node == here for node in engines.nodes().values()))
"""


@pytest.mark.slow
def test_an_engine_that_waits_for_another_node_is_replaced_once_the_hold_is_over(
    with_one_device: Run,
) -> None:
    """Nobody is in it any more; it would go on waiting for a node that its first attempt had not avoided."""
    assert with_one_device(AVOIDING) == ["True True"]


STOPS = """
drivers = [Engines(lambda: 1), Engines(lambda: 1)]
one, two = (drivers[at].seat(shared(at, ledger="ab"[at])) for at in (0, 1))
workers = [Worker.remote(), Worker.remote()]
for driver, seated, worker in zip(drivers, (one, two), workers):
    driver.ensure(seated.attempt_id)
    assert (first := report(worker, seated)).step == 10, first
print(len([*processes()]))
ray_private.publish_stop(one.channel, ["*"])
time.sleep(2.5)
print(report(workers[0], one).interrupted, report(workers[1], two).interrupted)
"""


@pytest.mark.slow
def test_a_stop_in_one_ledger_interrupts_no_trial_of_another(with_two_devices: Run) -> None:
    """The sweeps come from one file and so have the same id; each has its own engine and its own requests."""
    assert with_two_devices(STOPS) == ["2", "True False"]


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
    # The driver may learn of the death a moment after the worker.
    wait(lambda: engines._living(seated.engine) is None)
    cause = engines.cause_of(seated.attempt_id, lost.failure)
    engines.release(seated.attempt_id)
    return cause
seated = again(1)
(pid,) = processes()
os.kill(pid, signal.SIGKILL)
print(lose(seated))
seated = again(2)
print(engines.kill(seated.attempt_id), lose(seated))
again(3)
"""


@pytest.mark.slow
def test_an_engine_is_created_anew_after_each_death(with_one_device: Run) -> None:
    """Driver and worker reach its replacement, whether the driver or another process killed it."""
    assert with_one_device(RENEWED) == ["engine crash", "hung engine crash"]


TERMINATED = """
worker, other = Worker.remote(), Worker.remote()
first, second = engines.seat(shared(1, "ended")), engines.seat(shared(2, "ended"))
for seated, its_worker in ((first, worker), (second, other)):
    engines.ensure(seated.attempt_id)
    assert report(its_worker, seated).step == 10
(pid,) = processes()
os.kill(pid, signal.SIGTERM)
saved = [report(worker, first), report(other, second)]
print([(outcome.interrupted, outcome.checkpoint is not None, outcome.failure) for outcome in saved])
for seated in (first, second):
    engines.release(seated.attempt_id)
wait(lambda: engines._living(first.engine) is None)
again = assignment(folder, 1, attempt=2, resume=saved[0].checkpoint)
resumed = engines.seat(replace(again, trial_key="ended-1", attempt_id="ended-1.2"))
engines.ensure(resumed.attempt_id)
print(saved[0].step >= 10, report(worker, resumed).step)
"""


@pytest.mark.slow
def test_a_terminated_engine_saves_its_trials_and_leaves_its_device(with_one_device: Run) -> None:
    """Its machine is about to be taken away; another engine goes on from the checkpoints."""
    saved = (True, True, None)
    assert with_one_device(TERMINATED) == [str([saved, saved]), "True 20"]


QUEUED = """
model = replace(shared(2).settings.model, d_model=16)
first = engines.seat(shared(1, "queue"))
queued = engines.seat(shared(2, "queue", settings=replace(first.settings, model=model)))
engines.ensure(first.attempt_id)
workers = [Worker.remote(), Worker.remote()]
assert report(workers[0], first).step == 10
assert ray.get(workers[1].advance.remote(queued)).engine == first.engine
answer = workers[1].advance.remote(queued)
time.sleep(2)
ray_private.publish_stop(first.channel, ["*"])
published = time.monotonic()
outcome = ray.get(answer)
print(outcome.queued, time.monotonic() - published < 2)
"""


@pytest.mark.slow
def test_a_queued_trial_sees_a_stop_request_within_two_seconds(with_one_device: Run) -> None:
    """It needs another program than the trial in the slot; the request needs no shared file."""
    assert with_one_device(QUEUED) == ["True True"]


SEATS = """
from orchestrator.assignment import Outcome
attempts = [engines.seat(shared(number, "seats")) for number in range(3)]
for seated in attempts:
    engines.ensure(seated.attempt_id)
seats = [engines.workers.lend(seated) for seated in attempts[:2]]
def trained(seat):
    while True:
        outcome = Outcome.from_result(ray.get(seat.train.remote()))
        if not outcome.queued and not outcome.training:
            return outcome
print([trained(seat).step for seat in seats], [isinstance(seat, ray.actor.ActorHandle) for seat in seats])
print(len({seat._ray_actor_id for seat in seats}), [ray.get(seat.__ray_ready__.remote()) for seat in seats])
print(ray.get(seats[0].reset.remote(attempts[2].to_config(), storage=None)), trained(seats[0]).step)
print(trained(seats[1]).step)
ray.get(seats[1].stop.remote())
again = trained(seats[1])
print(again.step, again.done)
"""


@pytest.mark.slow
def test_the_trials_of_an_engine_share_one_process_that_waits_for_them(with_one_device: Run) -> None:
    """Tune gets a handle for each of them; a trial whose slot was freed starts again."""
    lines = ["[10, 10] [True, True]", "1 [True, True]", "True 10", "20", "10 False"]
    assert with_one_device(SEATS) == lines


GIVEN_UP = """
from orchestrator.assignment import Outcome
earlier = {*processes("ray::SharedWorker")}  # of another test, that may still be ending
holders = Engines(lambda: devices)
holders.ensure(holders.seat(shared(2, "holder")).attempt_id)
wait(lambda: free() == 0)
first, other = [engines.seat(shared(number, "silent")) for number in range(2)]
engines.ensure(first.attempt_id)  # it waits for the device
seat = engines.workers.lend(first)
ray.get(engines.workers.of(first.engine).give_up.remote("another attempt"))  # its process answers
def silent():
    return ray.wait([answer], timeout=2)[0] == []
answer = seat.train.remote()
print(silent(), engines.workers.give_up(first.attempt_id), Outcome.from_result(ray.get(answer)).failure)
engines.release(first.attempt_id)
print(engines.workers.give_up(first.attempt_id))
seat = engines.workers.lend(other)
answer = seat.train.remote()
(hung,) = {*processes("ray::SharedWorker")} - earlier
os.kill(hung, signal.SIGSTOP)
print(silent(), engines.workers.give_up(other.attempt_id))
try:
    ray.get(answer)
except ray.exceptions.RayActorError as error:
    print("worker lost" == ray_private.cause_of_death(str(error))[0])
answer = engines.workers.lend(other).train.remote()
wait(lambda: {*processes("ray::SharedWorker")} - {hung} - earlier)
"""


@pytest.mark.slow
def test_a_silent_attempt_is_given_up_and_a_process_that_hangs_is_killed(with_one_device: Run) -> None:
    """The next attempt gets another process."""
    assert with_one_device(GIVEN_UP) == ["True True engine lost", "False", "True True", "True"]


REUSED = """
def sweep(name, pool):
    engines = Engines(lambda: 1, pool)
    attempts = [engines.seat(shared(number, name, gpu=0.5)) for number in range(2)]
    for seated in attempts:
        engines.ensure(seated.attempt_id)
    with ThreadPoolExecutor() as threads:
        outcomes = [*threads.map(report, [Worker.remote(), Worker.remote()], attempts)]
    (pid,) = processes()
    for seated in attempts:
        engines.release(seated.attempt_id)
    engines.retire()
    wait(lambda: engines.idle is None)
    return pid, [kept(outcome) for outcome in outcomes], sum(o.metrics["seconds/compile"] for o in outcomes)
def kept(outcome):
    times = ("seconds/", "tokens_per_second", "slots/")
    arrays, _ = checkpoint.load(Path(outcome.checkpoint.path), outcome.checkpoint.digest)
    weights = {name: array.tobytes() for name, array in arrays.items()}
    return weights, {name: value for name, value in outcome.metrics.items() if not name.startswith(times)}
_, cold, _ = sweep("cold", EnginePool())
wait(lambda: free() == 1)
first, same, compiled = sweep("first", EnginePool(60.0, "same"))
print(cold == same, compiled > 0, free(), [*processes()] == [first])
second, same, compiled = sweep("second", EnginePool(60.0, "same"))
print(cold == same, compiled, second == first)
"""


@pytest.mark.slow
def test_a_second_sweep_gets_the_engine_of_the_first_and_the_bits_of_a_new_one(with_one_device: Run) -> None:
    """It keeps its device in Ray's accounts, and compiles nothing for the second sweep."""
    assert with_one_device(REUSED) == ["True True 0 True", "True 0.0 True"]


COMMAND = """
@ray.remote(num_gpus=1)
def exists(pid):
    return psutil.pid_exists(pid)
pid = idle(EnginePool(600.0, "same"), "first")
print(free(), ray.get(exists.remote(pid)))
"""


@pytest.mark.slow
def test_an_idle_engine_is_gone_before_a_command_runs_on_its_device(with_one_device: Run) -> None:
    """The command asks Ray for a GPU, which waits for no other reason."""
    assert with_one_device(COMMAND) == ["0 False"]


LEAVES = """
pid = idle(EnginePool(600.0, "same"), "first")
other = Engines(lambda: 1, EnginePool(600.0, "other"))
seated = other.seat(shared(2, "other"))
other.ensure(seated.attempt_id)
wait(other.nodes)
print(psutil.pid_exists(pid), pid in processes())
other.release(seated.attempt_id)
other.retire()
wait(lambda: other.idle is None)
(pid,) = processes()
group = ray.util.placement_group([{"GPU": 0.25}])
ray.get(group.ready(), timeout=60)
print(psutil.pid_exists(pid))
ray.util.remove_placement_group(group)
idle(EnginePool(0.5, "same"), "third")
wait(lambda: free() == 1)
"""


@pytest.mark.slow
def test_an_idle_engine_leaves_for_other_code_for_a_share_of_its_device_and_in_time(
    with_one_device: Run,
) -> None:
    """Engines of other code never meet; a trial of another sweep may want a part of the device."""
    assert with_one_device(LEAVES) == ["False False", "False"]


HUNG = """
def waiting(name):
    engines = Engines(lambda: 1, EnginePool(600.0, name))
    seated = engines.seat(shared(2, name))
    engines.ensure(seated.attempt_id)
    wait(ray_private.wants_gpu)
    return engines, seated
def stopped(pid):
    os.kill(pid, signal.SIGSTOP)
    return pid
for leave in (lambda: idle(EnginePool(600.0, "same"), "first"), lambda: used(worker_pool())):
    pid, said = stopped(leave()), []
    engines, seated = waiting("other")
    with orphaned_actors.ended(said.append, 1.0):
        wait(engines.nodes)
    print(psutil.pid_exists(pid), [str(pid) in line and "hangs" in line for line in said])
    engines.release(seated.attempt_id)
    engines.retire()
    wait(lambda: engines.idle is None)
engines, seated = Engines(lambda: 1, EnginePool(600.0, "other")), shared(2, "other")
engines.ensure(engines.seat(seated).attempt_id)
wait(engines.nodes)
stopped(*processes())
waiting("third")
orphaned_actors.Lookout(said.append, 0.0).look()
print(len(said), engines.nodes() != {})
"""


@pytest.mark.slow
def test_an_idle_engine_that_hangs_is_ended_once_something_waits_for_its_device(
    with_one_device: Run,
) -> None:
    """So is an idle worker. Another engine has stopped, too, but its driver judges that itself."""
    assert with_one_device(HUNG) == ["False [True]", "False [True]", "1 True"]


WORKER = """
@ray.remote(num_gpus=1)
def exists(pid):
    return psutil.pid_exists(pid)
first = used(worker_pool())
print(free(), [*processes("ray::WarmWorker")] == [first], used(worker_pool()) == first)
print(ray.get(exists.remote(first)))
"""


def test_an_idle_worker_keeps_its_gpu_in_the_accounts_of_ray_and_is_gone_before_a_command_runs_there(
    with_one_device: Run,
) -> None:
    """Another sweep of the same code uses its process."""
    assert with_one_device(WORKER) == ["0 True True", "False"]


LEAVE = """
worker = used(worker_pool())
engine = idle(EnginePool(600.0, "same"), "first")
print(psutil.pid_exists(worker))
elsewhere = used(worker_pool("elsewhere"))
print(psutil.pid_exists(engine), [*processes("ray::WarmWorker")] == [elsewhere])
worker = used(worker_pool())
print(psutil.pid_exists(elsewhere))
"""


@pytest.mark.slow
def test_idle_workers_and_engines_leave_for_each_other(with_one_device: Run) -> None:
    """So do workers with another compilation cache."""
    assert with_one_device(LEAVE) == ["False", "False True", "False"]


ENDS = """
sleeper, borrower = other_process()
pool = worker_pool()
made = pool._loan
pool._loan = lambda: replace(made(), borrower=borrower)
ray.get(pool.take().run(os.getpid))
time.sleep(1)
(pid,) = processes("ray::WarmWorker")
end(sleeper)
wait(lambda: not psutil.pid_exists(pid))
sleeper, os.environ["SWEEP_WARM_SERVICE"] = other_process()
pid = used(worker_pool())
time.sleep(1)
print(psutil.pid_exists(pid))
end(sleeper)
wait(lambda: not psutil.pid_exists(pid))
del os.environ["SWEEP_WARM_SERVICE"]
pid = used(worker_pool(seconds=0.5))
wait(lambda: not psutil.pid_exists(pid))
"""


@pytest.mark.slow
def test_a_worker_with_a_gpu_ends_with_its_driver_and_an_idle_one_with_the_service_and_in_time(
    with_one_device: Run,
) -> None:
    """Nobody has asked it to."""
    assert with_one_device(ENDS) == ["True"]


ONE_EACH = """
pools = [worker_pool() for _ in range(4)]
workers = [pool.take() for pool in pools[:2]]
pids = ray.get([worker.run(os.getpid) for worker in workers])
for pool, worker in zip(pools, workers):
    pool.give_back(worker)
print([len(pool._idle) + len(pool._lent) for pool in pools])
again = ray.get([pool.take().run(os.getpid) for pool in pools[2:]])
print(set(again) == set(pids))
"""


@pytest.mark.slow
def test_a_driver_claims_no_more_workers_with_a_gpu_than_it_uses(with_two_devices: Run) -> None:
    """Another driver gets the second one."""
    assert with_two_devices(ONE_EACH) == ["[0, 0, 0, 0]", "True"]


STOPPED_WORKER = """
holders = Engines(lambda: 1)
held = holders.seat(shared(1, "holder"))
holders.ensure(held.attempt_id)
wait(holders.nodes)
waiting = worker_pool()
handle = handle_of(waiting.lend(shared(2, gpu=1.0).to_config(), None), waiting, has_gpu=True)
wait(ray_private.waits_for_gpu)
print(ray.get(handle.stop.remote()))
wait(lambda: not ray_private.wants_gpu())
print(ray_private.waits_for_gpu(), ray_private.node_of(handle))
"""


def test_a_worker_that_waits_for_a_gpu_ends_with_its_trial(with_one_device: Run) -> None:
    """It would answer only once it has a GPU, and then nobody needs it."""
    assert with_one_device(STOPPED_WORKER) == ["None", "False None"]


WAITED_FOR = """
holders = Engines(lambda: 1, EnginePool(600.0, "holder"))
held = holders.seat(shared(1, "holder"))
holders.ensure(held.attempt_id)
wait(holders.nodes)
sleeper, borrower = other_process()
loan = Loan(borrower, "", environment.of_workers(1.0), 4)
name, waits = EnginePool(600.0, "same")._created(loan, {})
end(sleeper)
other = Engines(lambda: 1, EnginePool(600.0, "other"))
seated = other.seat(shared(2, "other"))
other.ensure(seated.attempt_id)
print(ray_private.published_borrower(name), other.nodes())
holders.release(held.attempt_id)
holders.retire()
wait(other.nodes)
print(ray_private.node_of(waits))
"""


@pytest.mark.slow
def test_an_engine_whose_driver_was_killed_while_it_waited_ends_once_it_has_its_device(
    with_one_device: Run,
) -> None:
    """The sweep that has waited behind it gets the device next."""
    assert with_one_device(WAITED_FOR) == ["None {}", "None"]


KILLED = """
sleeper, borrower = other_process()
pool = EnginePool(600.0, "same")
loan = Loan(borrower, "", environment.of_workers(1.0), 4)
name, actor = pool._created(loan, {})
wait(lambda: ray_private.node_of(actor))
time.sleep(1)
(pid,) = processes()
end(sleeper)
wait(lambda: not psutil.pid_exists(pid))
wait(lambda: free() == 1)
sleeper, os.environ["SWEEP_WARM_SERVICE"] = other_process()
pid = idle(pool, "served")
time.sleep(1)
print(psutil.pid_exists(pid))
end(sleeper)
wait(lambda: not psutil.pid_exists(pid))
del os.environ["SWEEP_WARM_SERVICE"]
"""


@pytest.mark.slow
def test_an_engine_ends_with_a_driver_that_is_killed_and_an_idle_one_with_the_service(
    with_one_device: Run,
) -> None:
    """Nobody has asked it to."""
    assert with_one_device(KILLED) == ["True"]


HEAD = """
with cluster.connected(Hardware(cpus=2, gpus=1)):
    pid = idle(EnginePool(600.0, "same"), "first")
    os.kill(running(runtime_folder()).pid, signal.SIGKILL)
    wait(lambda: gone(pid))
    os._exit(0)  # which would wait for the head
"""


@pytest.mark.ray
@pytest.mark.slow
def test_an_idle_engine_ends_with_the_head(temporary: Path) -> None:
    """Ray's own processes for workers end, which would take a busy engine with them as well."""
    with own_ray(temporary) as variables:
        done = subprocess.run(
            [sys.executable, "-c", DEFINITIONS + HEAD, str(temporary)],
            env={**without_address(), **variables, "SWEEP_HOST_DEVICES": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr


LATE = """
pool = EnginePool(600.0, "same")
engines = Engines(lambda: 1, pool)
seated, worker = engines.seat(shared(1, "early")), Worker.remote()
engines.ensure(seated.attempt_id)
wait(engines.nodes)
early = engines._living(seated.engine)
assert until(answers(worker, seated), lambda outcome: outcome.engine).queued
engines.release(seated.attempt_id)
engines.retire()
wait(lambda: engines.idle is None)
engines.ensure(seated.attempt_id)
late = Engines(lambda: 1, pool)
other = late.seat(shared(1, "late"))
late.ensure(other.attempt_id)
wait(late.nodes)
lent = late._living(other.engine)
print(lent.name == early.name, lent.loan == early.loan)
early.retire()
early.release(other.attempt_id)
print(ray.get(worker.advance.remote(seated)).queued, late._living(other.engine) is lent)
def errand(*, cache):
    return 1
request = early.run_errand(errand)
try:
    ray.get(request)
except WrongLoan as error:
    print(type(error.cause).__name__, ray.get(lent.run_errand(errand)))
print(ray.get(lent.handle.claim.remote(Loan("", "", {}, 4))))
late.close()
wait(lambda: free() == 1)
"""


@pytest.mark.slow
def test_calls_of_an_earlier_loan_do_not_reach_the_sweep_that_has_the_engine_now(
    with_one_device: Run,
) -> None:
    """An attempt of the earlier sweep that comes late is queued; an engine that is not given back ends."""
    assert with_one_device(LATE) == ["True False", "True True", "WrongLoan 1", "False"]


def seated(engines: Engines, folder: Path, number: int, **changes: Any) -> str:
    engine = engines.seat(assignment(folder, number, **changes)).engine
    assert engine is not None
    return engine.rpartition("-")[2]


def test_attempts_fill_the_engine_of_their_program_before_another_device(tmp_path: Path) -> None:
    """With four slots per device, the fifth attempt takes another device, as does another program."""
    engines = Engines(lambda: 2)
    assert [seated(engines, tmp_path, number) for number in range(5)] == ["0", "0", "0", "0", "1"]
    engines.release("s-2.1")
    assert seated(engines, tmp_path, 5) in {"0", "1"}
    settings = assignment(tmp_path, 0).settings
    wide = replace(settings, model=replace(settings.model, d_model=16))
    apart = Engines(lambda: 2)
    assert [seated(apart, tmp_path, 0), seated(apart, tmp_path, 1, settings=wide)] == ["0", "1"]
    assert [seated(apart, tmp_path, 2, settings=wide), seated(apart, tmp_path, 3)] == ["1", "0"]


def test_engines_in_use_count_first_when_a_share_shrinks(tmp_path: Path) -> None:
    """The sweep keeps the engines that have attempts, whatever their names, and begins no other one."""
    share = [3]
    engines = Engines(lambda: share[0])
    settings = assignment(tmp_path, 0).settings
    programs = [replace(settings, model=replace(settings.model, d_model=size)) for size in (8, 16, 32)]
    assert [seated(engines, tmp_path, k, settings=programs[k]) for k in range(3)] == ["0", "1", "2"]
    engines.release("s-0.1")
    share[0] = 2
    assert seated(engines, tmp_path, 3, settings=programs[0]) in {"1", "2"}
    assert len(engines.in_use) == 2


@pytest.mark.parametrize(
    ("variables", "kept"), [({}, 0.0), ({WARM: "9"}, 9.0), ({WARM: "9", "RAY_ADDRESS": "host:1"}, 0.0)]
)
def test_no_engine_is_kept_warm_unasked_or_on_a_cluster(
    variables: dict[str, str], kept: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (WARM, "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert EnginePool.of("compilations", "")._seconds == kept


def test_an_attempt_with_its_own_device_gets_no_shared_engine(tmp_path: Path) -> None:
    whole = assignment(tmp_path, 1, gpu=1.0)
    assert Engines(lambda: 2).seat(whole) is whole


def test_a_lost_engine_is_charged_only_to_the_attempt_that_must_have_caused_it(tmp_path: Path) -> None:
    """An attempt is charged only if it was in the engine alone."""
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
