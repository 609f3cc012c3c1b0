"""The driver's side of warm workers: find those of this code and environment, claim, create, return.

They belong to the Ray that sweeps share on this machine, and train on its processors only: a process that
stays would keep the memory of a GPU, and on a cluster a driver cannot see from another node whether it lives.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import ray
from ray.exceptions import RayError

from orchestrator.ledger.holder import Holder
from orchestrator.machines.warmth import memory_is_short, warm_seconds
from orchestrator.schedule import environment
from orchestrator.schedule.imported_code import CODE
from orchestrator.schedule.warm_worker import WarmWorker

NAMESPACE = "sweep-warm"
CLAIM_SECONDS = 1.0
"""Longest wait for the answers of idle workers; one that takes longer is left."""

_OF_LIBRARIES = ("JAX_", "XLA_", "OMP_", "MKL_", "OPENBLAS_", "NUMEXPR_")
"""Beginnings of variables that count even if this process has set them itself."""

_OF_A_SWEEP = ("SWEEP_", "INVOCATION_ID", "OLDPWD", "PWD", "SHLVL", "_")
"""Beginnings of variables that no computation depends on."""


class WarmPool:
    """The warm workers that this driver may use, and those that it has.

    Args:
        seconds: for which a worker stays that nobody uses.
        compilations: folder of JAX's persistent compilation cache, which a process uses until it ends.
        program: digest of the user's code that the process imports, or ''.
    """

    def __init__(self, seconds: float, compilations: str, program: str = "") -> None:
        self._seconds, self._environment = seconds, environment.of_workers(0)
        self._key = key_of(self._environment, compilations, program)
        self._me = Holder.here().write()
        self._claimed: list[Any] = []
        groups = {"control": 1}
        self._class = ray.remote(num_cpus=0, concurrency_groups=groups)(WarmWorker)  # type: ignore[call-overload]

    def lend(self, arguments: dict[str, Any]) -> Any:
        """Return a worker that has become that of a trial, or None if Tune is to create one.

        Args:
            arguments: of the trainable: `config` and `storage`.
        """
        if (worker := self.take()) is not None:
            worker.begin.remote(self._environment, arguments["config"], arguments["storage"])
        return worker

    def take(self) -> Any:
        """Return a worker of this driver: one that was idle, or else a new one; None if memory is short."""
        if not self._claimed:
            self._claim()
        if self._claimed:
            return self._claimed.pop()
        return None if memory_is_short() else self._created()

    def close(self) -> None:
        """Return the workers that were claimed and not used."""
        while self._claimed:
            self._claimed.pop().return_unused.remote(self._me)

    def _claim(self) -> None:
        """Claim the idle workers of this code and environment, all at once."""
        claims = {
            worker.claim.remote(self._me): worker
            for name in _names()
            if name.startswith(self._key)
            if (worker := _worker(name)) is not None
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

    def _created(self) -> Any:
        """Create a worker; idle ones of other code or another environment make room for it."""
        others = [name for name in _names() if not name.startswith(self._key)]
        if len(others) >= (os.cpu_count() or 1):
            for name in others:
                if (other := _worker(name)) is not None:
                    other.make_room.remote()
        named = self._class.options(
            name=f"{self._key}-{uuid.uuid4().hex}", namespace=NAMESPACE, lifetime="detached"
        )
        return named.remote(self._seconds, CODE, self._me)


@contextmanager
def pool(gpu: float, compilations: str, program: str = "") -> Iterator[WarmPool | None]:
    """Yield the warm workers for trials with a share of a GPU, or None if these use none.

    Args:
        gpu: share of a GPU of a trial.
        compilations: folder of JAX's persistent compilation cache.
        program: digest of the user's code that a worker imports, or ''.
    """
    seconds = warm_seconds(0.0)
    if not seconds or gpu or os.environ.get("RAY_ADDRESS"):
        yield None
        return
    warm = WarmPool(seconds, compilations, program)
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


def _names() -> list[str]:
    actors = ray.util.list_named_actors(all_namespaces=True)
    return [actor["name"] for actor in actors if actor["namespace"] == NAMESPACE]


def _worker(name: str) -> Any:
    try:
        return ray.get_actor(name, namespace=NAMESPACE)
    except ValueError:
        return None  # it has ended meanwhile
