"""The driver's side of warm workers: find those of this code and environment, claim, create, return.

They belong to the Ray that sweeps share on this machine: on a cluster a driver cannot see from another node
whether it lives. A worker trains on processors, or on a GPU of its own, which it holds in Ray's accounts as
long as its process lives. A GPU that trials share belongs to an engine; see `engine_pool`.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import ray
from ray.exceptions import RayError

from orchestrator.config.trainable import Trainable
from orchestrator.ledger.holder import Holder
from orchestrator.machines.warmth import SERVICE, memory_is_short, warm_seconds
from orchestrator.schedule import environment, ray_private
from orchestrator.schedule.imported_code import CODE
from orchestrator.schedule.warm_worker import WarmWorker

NAMESPACE = "sweep-warm"
WITH_GPU = "sweep-warm-gpu"
"""Namespace of the workers that hold a GPU."""

CLAIM_SECONDS = 1.0
"""Longest wait for the answers of idle workers; one that takes longer is left."""

_OF_LIBRARIES = ("GLIBC_", "JAX_", "XLA_", "OMP_", "MKL_", "OPENBLAS_", "NUMEXPR_")
"""Beginnings of variables that count even if this process has set them itself."""

_OF_A_SWEEP = ("SWEEP_", "INVOCATION_ID", "OLDPWD", "PWD", "SHLVL", "_")
"""Beginnings of variables that no computation depends on."""


class WarmPool:
    """The warm workers that this driver may use, and those that it has.

    Args:
        seconds: for which a worker stays that nobody uses.
        compilations: folder of JAX's persistent compilation cache, which a process uses until it ends.
        program: digest of the user's code that the process imports, or ''.
        has_gpu: whether a worker has a GPU, which it holds in Ray's accounts: then Tune must ask for none.
    """

    def __init__(
        self, seconds: float, compilations: str, program: str = "", *, has_gpu: bool = False
    ) -> None:
        self._seconds, self._has_gpu = seconds, has_gpu
        self._environment = environment.of_workers(float(has_gpu))
        self._key = key_of(self._environment, compilations, program)
        self._namespace = WITH_GPU if has_gpu else NAMESPACE
        self._me, self._service = Holder.here().write(), os.environ.get(SERVICE, "") if has_gpu else ""
        self._claimed: list[Any] = []
        options: dict[str, Any] = {"num_gpus": int(has_gpu), "concurrency_groups": {"control": 1}}
        self._class = ray.remote(num_cpus=0, **options)(WarmWorker)

    def lend(self, arguments: dict[str, Any]) -> Any:
        """Return a worker that has become that of a trial, or None if Tune is to create one.

        Args:
            arguments: of the trainable: `config` and `storage`.
        """
        if (worker := self.take()) is None:
            return None
        worker.begin.remote(self._environment, arguments["config"], arguments["storage"])
        if not self._has_gpu:
            return worker
        return ray_private.handle_with(worker, {"stop": partial(_stopped, worker)})

    def take(self) -> Any:
        """Return a worker of this driver: one that was idle, or else a new one.

        If memory is short, a new one with a GPU ends with its trial, and None takes the place of another one.
        """
        if not self._claimed:
            self._claim()
        if self._claimed:
            return self._claimed.pop()
        if self._has_gpu:
            return self._created(0.0 if memory_is_short() else self._seconds)
        return None if memory_is_short() else self._created(self._seconds)

    def close(self) -> None:
        """Return the workers that were claimed and not used."""
        while self._claimed:
            self._claimed.pop().return_unused.remote(self._me)

    def _claim(self) -> None:
        """Claim the idle workers of this code and environment: all at once, or the first one with a GPU.

        A GPU that is claimed and not used would be missed by others.
        """
        names = [name for name in self._names() if name.startswith(self._key)]
        for some in [[name] for name in names] if self._has_gpu else [names]:
            if not self._claimed:
                self._claim_of(some)

    def _claim_of(self, names: list[str]) -> None:
        claims = {
            worker.claim.remote(self._me, self._service): worker
            for name in names
            if (worker := self._worker(name)) is not None
        }
        done, late = (
            ray.wait(list(claims), num_returns=len(claims), timeout=CLAIM_SECONDS) if claims else ([], [])
        )
        for answer in done:
            with suppress(RayError):  # it has ended meanwhile
                if ray.get(answer):
                    self._claimed.append(claims[answer])
        for answer in late:
            claims[answer].return_unused.remote(self._me)

    def _created(self, seconds: float) -> Any:
        """Create a worker; idle ones of other code or another environment make room for it."""
        others = [name for name in self._names() if not name.startswith(self._key)]
        if len(others) >= (os.cpu_count() or 1):
            for name in others:
                if (other := self._worker(name)) is not None:
                    other.make_room.remote()
        named = self._class.options(
            name=f"{self._key}-{uuid.uuid4().hex}", namespace=self._namespace, lifetime="detached"
        )
        return named.remote(seconds, CODE, self._me, self._service, has_device=self._has_gpu)

    def _names(self) -> list[str]:
        actors = ray.util.list_named_actors(all_namespaces=True)
        return [actor["name"] for actor in actors if actor["namespace"] == self._namespace]

    def _worker(self, name: str) -> Any:
        try:
            return ray.get_actor(name, namespace=self._namespace)
        except ValueError:
            return None  # it has ended meanwhile


def _stopped(worker: Any) -> Any:
    """Stop a worker; return a reference to the answer.

    One that still waits for its GPU ends: it would answer only once it has a GPU that no trial waits for.
    """
    if ray_private.node_of(worker) is None:
        ray.kill(worker)
        return ray.put(None)
    return worker.stop.remote()


@contextmanager
def pool(gpu: float, compilations: str, trainable: Trainable | None = None) -> Iterator[WarmPool | None]:
    """Yield the warm workers for trials with a share of a GPU, or None if these use none.

    The worker of a function or a command would keep a GPU that it does not use: the memory is that of the
    trial's own process, which ends with the trial.

    Args:
        gpu: share of a GPU of a trial.
        compilations: folder of JAX's persistent compilation cache.
        trainable: what the trials run; None for a network of this project.
    """
    seconds, is_script = warm_seconds(0.0), trainable is not None and trainable.kind != "program"
    if not seconds or 0 < gpu < 1 or (gpu and is_script) or os.environ.get("RAY_ADDRESS"):
        yield None
        return
    program = trainable.imported_code() if trainable else ""
    warm = WarmPool(seconds, compilations, program, has_gpu=gpu > 0)
    try:
        yield warm
    finally:
        warm.close()


def key_of(variables: dict[str, str | None], compilations: str, program: str) -> str:
    """Return what a process must have in common with a driver that is to use it, as a digest.

    Args:
        variables: of `orchestrator.schedule.environment.of_workers`.
        compilations: folder of JAX's persistent compilation cache.
        program: digest of the user's code that the process imports, or ''.
    """
    ours = {
        name: value
        for name, value in variables.items()
        if name.startswith(_OF_LIBRARIES) or (name in environment.GIVEN and not name.startswith(_OF_A_SWEEP))
    }
    text = json.dumps([CODE, program, sys.executable, compilations, sorted(ours.items())])
    return hashlib.sha256(text.encode()).hexdigest()[:16]
