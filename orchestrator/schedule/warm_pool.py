"""Warm workers as a driver sees them: it finds, claims, creates and returns those of its environment.

They belong to the Ray that sweeps share on this machine: on a cluster, a driver cannot see whether a borrower
on another node lives. A worker trains on processors, or on a GPU of its own, which it holds in Ray's
accounting while its process lives. A GPU that trials share belongs to an engine; see `engines`.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol

import ray
from ray.exceptions import RayError

from orchestrator.assignment import Assignment
from orchestrator.config.trainable import Trainable
from orchestrator.ledger.holder import Holder
from orchestrator.machines.idle_timeout import OWN_SECONDS, SERVICE, memory_is_short, warm_seconds
from orchestrator.schedule import environment, ray_private
from orchestrator.schedule.idle import CODE
from orchestrator.schedule.loans import Loan
from orchestrator.schedule.warm_worker import Environment, WarmWorker

NAMESPACE = "sweep-warm"
WITH_GPU = "sweep-warm-gpu"
"""Namespace of the workers that hold a GPU."""

CLAIM_SECONDS = 1.0
"""Timeout for the answers of idle workers."""

_OF_LIBRARIES = ("GLIBC_", "JAX_", "XLA_", "OMP_", "MKL_", "OPENBLAS_", "NUMEXPR_")
"""Prefixes of variables that count even if this process has set them itself."""

_OF_A_SWEEP = ("SWEEP_", "INVOCATION_ID", "OLDPWD", "PWD", "SHLVL", "_")
"""Prefixes of variables on which no computation depends."""


class Actors(Protocol):
    """Interface to the actors of a namespace; the simulation has its own implementation."""

    def names(self) -> list[str]:
        """Return the names of the living actors."""

    def find(self, name: str) -> Any:
        """Return the actor with a name, or None if it has ended."""

    def create(self, name: str, loan: Loan, seconds: float) -> Any:
        """Return a new actor with its first loan, under a unique name; `seconds` is its idle timeout."""

    def call(self, actor: Any, method: str, *arguments: object, **named: object) -> Any:
        """Call a method of an actor; return a reference to the answer."""

    def answers(self, references: Collection[Any], seconds: float) -> dict[Any, Any]:
        """Return the answers that arrive within `seconds`, by reference; a failed call has none."""

    def kill(self, actor: Any) -> None:
        """Kill an actor."""


class RayActors:
    """The warm workers of the joined Ray, with or without a GPU."""

    def __init__(self, *, has_gpu: bool) -> None:
        self._has_gpu, self._namespace = has_gpu, WITH_GPU if has_gpu else NAMESPACE
        options: dict[str, Any] = {"num_gpus": int(has_gpu), "concurrency_groups": {"control": 1}}
        self._class = ray.remote(num_cpus=0, **options)(WarmWorker)

    def names(self) -> list[str]:
        actors = ray.util.list_named_actors(all_namespaces=True)
        return [actor["name"] for actor in actors if actor["namespace"] == self._namespace]

    def find(self, name: str) -> Any:
        try:
            return ray.get_actor(name, namespace=self._namespace)
        except ValueError:
            return None

    def create(self, name: str, loan: Loan, seconds: float) -> Any:
        """Return a new worker; see `WarmWorker`."""
        named = self._class.options(name=name, namespace=self._namespace, lifetime="detached")
        return named.remote(loan, seconds, CODE, has_device=self._has_gpu)

    def call(self, actor: Any, method: str, *arguments: object, **named: object) -> Any:
        return getattr(actor, method).remote(*arguments, **named)

    def answers(self, references: Collection[Any], seconds: float) -> dict[Any, Any]:
        """Return the answers that arrive within `seconds`, by reference; a worker that has ended has none."""
        if not references:
            return {}
        found: dict[Any, Any] = {}
        for reference in ray.wait([*references], num_returns=len(references), timeout=seconds)[0]:
            with suppress(RayError):
                found[reference] = ray.get(reference)
        return found

    def kill(self, actor: Any) -> None:
        ray.kill(actor)


class Borrowed:
    """A worker on loan to this driver. Every call names the loan.

    Args:
        actors: Interface to the actors.
        name: Name of the worker.
        actor: Handle of the worker.
        loan: Id of the loan.
        environment: Environment of the driver, as `orchestrator.schedule.ray_private.handed` returns it. It
            is sent with the work, because one process works for several drivers.
    """

    def __init__(self, actors: Actors, name: str, actor: Any, loan: str, environment: Environment) -> None:
        self.name, self.actor, self.loan = name, actor, loan
        self.attempt_id = ""
        self._actors, self._environment, self._is_killed = actors, environment, False

    def begin(self, config: dict[str, Any], storage: Any) -> None:
        """Assign the worker to a trial."""
        self.attempt_id = Assignment.from_config(config).attempt_id
        self._call("begin", self._environment, config, storage)

    def train(self) -> Any:
        """Request the next report of the current attempt; return a reference, as the following methods do."""
        return self._call("train", self.attempt_id)

    def reset(self, config: dict[str, Any], storage: Any = None) -> Any:
        """Replace the ended attempt by the next one."""
        self.attempt_id = Assignment.from_config(config).attempt_id
        return self._call("reset", config, storage=storage)

    def save(self, folder: str | None = None) -> Any:
        """Save nothing; see `Worker.save_checkpoint`."""
        return self._call("save", folder)

    def get_auto_filled_metrics(self, *arguments: Any, **named: Any) -> Any:
        """Request the metrics that Tune adds to a report."""
        return self._call("get_auto_filled_metrics", *arguments, **named)

    def stop(self) -> Any:
        """Free the slot of the worker, which stays on loan until it is returned."""
        self.attempt_id = ""
        return self._call("stop")

    def run(self, work: Callable[..., Any], *arguments: object) -> Any:
        """Call a function in the worker; return a reference to its result."""
        return self._call("run", self._environment, work, *arguments)

    def give_back(self) -> None:
        """End the loan, unless the worker was killed and must not be lent again."""
        if not self._is_killed:
            self._call("return_unused")

    def kill(self) -> None:
        """Kill the worker; calls may still arrive before that takes effect."""
        self._is_killed = True
        self._actors.kill(self.actor)

    def _call(self, method: str, *arguments: object, **named: object) -> Any:
        return self._actors.call(self.actor, method, self.loan, *arguments, **named)


class WarmPool:
    """The warm workers of this driver: those that it has, and idle ones that it may claim.

    Args:
        seconds: Idle timeout of a worker.
        key: Digest of `key_of` that a worker and this driver must share; the worker's name begins with it.
        loan: Function that returns a new loan of this driver.
        actors: Interface to the actors.
        environment: Environment of this driver; see `Borrowed`.
        has_gpu: Whether a worker holds a GPU in Ray's accounting, so that Tune must request none.
    """

    def __init__(
        self,
        seconds: float,
        key: str,
        loan: Callable[[], Loan],
        actors: Actors,
        *,
        environment: Environment = MappingProxyType({}),
        has_gpu: bool = False,
    ) -> None:
        self._seconds, self._key, self._has_gpu = seconds, key, has_gpu
        self._loan, self._actors, self._environment = loan, actors, environment
        self._idle: list[Borrowed] = []
        self._lent: dict[str, Borrowed] = {}

    def lend(self, config: dict[str, Any], storage: Any) -> Borrowed | None:
        """Return a worker for a trial, or None if Tune must create one."""
        if (worker := self.take()) is not None:
            worker.begin(config, storage)
        return worker

    def take(self) -> Borrowed | None:
        """Return an idle worker, or else a new one.

        If memory is short, a new worker with a GPU ends with its trial, and no new worker without a GPU is
        created.
        """
        if not self._idle:
            self._claim()
        worker = self._idle.pop() if self._idle else self._created()
        if worker is not None:
            self._lent[worker.name] = worker
        return worker

    def give_back(self, worker: Borrowed) -> None:
        """End the loan of a worker that this driver no longer uses."""
        if self._lent.get(worker.name) is worker:
            del self._lent[worker.name]
            worker.give_back()

    def loan_of(self, attempt_id: str) -> str | None:
        """Return the loan of an attempt's worker, or None if the worker is not a warm one."""
        return next((one.loan for one in self._lent.values() if one.attempt_id == attempt_id), None)

    def close(self) -> None:
        """Return the unused workers to the pool, and kill those that may still be in use."""
        for worker in self._lent.values():
            worker.kill()
        self._lent.clear()
        while self._idle:
            self._idle.pop().give_back()

    def _claim(self) -> None:
        """Claim the idle workers of this code and environment: all of them, or one if they have a GPU.

        An unused GPU would be missed by others. Workers that this driver has are left out.
        """
        names = [name for name in self._actors.names() if name.startswith(self._key)]
        others = [name for name in names if name not in self._lent]
        for some in [[name] for name in others] if self._has_gpu else [others]:
            if not self._idle:
                self._claim_of(some)

    def _claim_of(self, names: list[str]) -> None:
        asked: dict[Any, Borrowed] = {}
        for name in names:
            if (actor := self._actors.find(name)) is not None:
                loan = self._loan()
                reference = self._actors.call(actor, "claim", loan)
                asked[reference] = self._borrowed(name, actor, loan)
        answers = self._actors.answers(asked.keys(), CLAIM_SECONDS)
        for reference, worker in asked.items():
            if reference not in answers:
                worker.give_back()  # it may only be slow
            elif answers[reference]:
                self._idle.append(worker)

    def _created(self) -> Borrowed | None:
        """Create a worker, after ending idle ones of other code or another environment."""
        is_short = memory_is_short()
        if is_short and not self._has_gpu:
            return None
        others = [name for name in self._actors.names() if not name.startswith(self._key)]
        if len(others) >= (os.cpu_count() or 1):
            for name in others:
                if (other := self._actors.find(name)) is not None:
                    self._actors.call(other, "make_room")
        name, loan = f"{self._key}-{uuid.uuid4().hex}", self._loan()
        actor = self._actors.create(name, loan, 0.0 if is_short else self._seconds)
        return self._borrowed(name, actor, loan)

    def _borrowed(self, name: str, actor: Any, loan: Loan) -> Borrowed:
        return Borrowed(self._actors, name, actor, loan.id, self._environment)


def _stopped(worker: Borrowed) -> Any:
    """Stop a worker; return a reference to the answer.

    A worker that still waits for its GPU is killed: it would answer only once it has a GPU that it no longer
    needs.
    """
    if ray_private.node_of(worker.actor) is None:
        worker.kill()
        return ray.put(None)
    return worker.stop()


def handle_of(worker: Borrowed, warm: WarmPool, *, has_gpu: bool) -> Any:
    """Return the handle of a worker, which Tune takes for the actor of a trial.

    Args:
        worker: Worker of this driver.
        warm: Pool to which the worker is returned when Tune no longer uses it.
        has_gpu: Whether the worker holds a GPU.
    """
    methods: dict[str, Callable[..., Any]] = {
        "train": worker.train,
        "reset": worker.reset,
        "save": worker.save,
        "get_auto_filled_metrics": worker.get_auto_filled_metrics,
        "stop": partial(_stopped, worker) if has_gpu else worker.stop,
    }
    return ray_private.handle_with(worker.actor, methods, released=partial(warm.give_back, worker))


def of_this_ray(seconds: float, compilations: str, program: str = "", *, has_gpu: bool = False) -> WarmPool:
    """Return the warm workers of the joined Ray for a compilation cache and a program.

    `program` is a digest of the user's code that a worker imports, or ''.
    """
    variables = environment.of_workers(float(has_gpu))
    service = os.environ.get(SERVICE, "") if has_gpu else ""
    loan = partial(Loan, Holder.here().write(), service)
    key, actors = key_of(variables, compilations, program), RayActors(has_gpu=has_gpu)
    return WarmPool(seconds, key, loan, actors, environment=ray_private.handed(variables), has_gpu=has_gpu)


def idle_seconds(gpu: float, trainable: Trainable | None) -> float:
    """Return the idle timeout in seconds of the workers of a sweep; 0 keeps none.

    Without a service, a worker with a GPU is not kept, because others may wait for that GPU, nor one of a
    function or a command, which compiles nothing.

    Args:
        gpu: Share of a GPU of a trial.
        trainable: Trainable of the sweep; None for a network of this project.
    """
    is_script = trainable is not None and trainable.kind != "program"
    return 0.0 if os.environ.get("RAY_ADDRESS") else warm_seconds(0.0 if gpu or is_script else OWN_SECONDS)


@contextmanager
def pool(gpu: float, compilations: str, trainable: Trainable | None = None) -> Iterator[WarmPool | None]:
    """Yield the warm workers for trials with a share of a GPU, or None if these trials use none.

    A function or a command gets no warm worker with a GPU: it trains in a process of its own, which ends with
    the trial, so the worker would keep a GPU that it does not use. `trainable` is None for a network of this
    project.
    """
    seconds = idle_seconds(gpu, trainable)
    is_script = trainable is not None and trainable.kind != "program"
    if not seconds or 0 < gpu < 1 or (gpu and is_script):
        yield None
        return
    program = trainable.imported_code() if trainable else ""
    warm = of_this_ray(seconds, compilations, program, has_gpu=gpu > 0)
    try:
        yield warm
    finally:
        warm.close()


def key_of(variables: dict[str, str | None], compilations: str, program: str) -> str:
    """Return the digest of code, program, environment and cache that a warm process and its driver share."""
    ours = {
        name: value
        for name, value in variables.items()
        if name.startswith(_OF_LIBRARIES) or (name in environment.GIVEN and not name.startswith(_OF_A_SWEEP))
    }
    text = json.dumps([CODE, program, sys.executable, compilations, sorted(ours.items())])
    return hashlib.sha256(text.encode()).hexdigest()[:16]
