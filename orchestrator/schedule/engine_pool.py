"""The driver's side of engines as processes: borrow one that is warm and idle, or create one.

Warm engines belong to the Ray that sweeps share on this machine, as warm workers do; on a cluster a driver
cannot see from another node whether it lives. There, and where nothing is kept warm, an engine ends with its
driver.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayActorError

from orchestrator.ledger.holder import Holder
from orchestrator.machines.warmth import SERVICE, warm_seconds
from orchestrator.schedule import environment, ray_private
from orchestrator.schedule.engine_actor import EngineActor
from orchestrator.schedule.imported_code import CODE
from orchestrator.schedule.loans import Loan
from orchestrator.schedule.shared_worker import ENGINES, LivingActor
from orchestrator.schedule.warm_pool import key_of

CLAIM_SECONDS = 1.0
"""Longest wait for the answer of an idle engine; one that takes longer is left."""


@dataclass(frozen=True)
class BorrowedEngine(LivingActor):
    """An engine that this driver has; it counts as ended as soon as it has been given back.

    Attributes:
        name: of its actor.
        loan: id of the loan.
    """

    name: str
    loan: str

    def run_errand(self, work: Callable[..., Any], *arguments: object) -> Any:
        """Return the reference to what `work` returns in the engine's process; see `EngineServer`."""
        return self.handle.run_errand.remote(self.loan, work, *arguments)

    def release(self, attempt_id: str) -> None:
        """Free the slot of an attempt, if it has one."""
        self.handle.release.remote(self.loan, attempt_id)

    def retire(self) -> None:
        """Give the engine back as soon as it has no attempt."""
        self.handle.retire.remote(self.loan)


class EnginePool:
    """Where a driver gets its engines from.

    Args:
        seconds: for which an engine stays that nobody has borrowed; 0 to keep none, and to use none.
        key: what an engine must have in common with a driver, as a digest; unused if none is kept.
    """

    def __init__(self, seconds: float = 0.0, key: str = "") -> None:
        self._seconds, self._key = seconds, key
        self._taken: dict[str, BorrowedEngine] = {}

    @classmethod
    def of(cls, compilations: str, program: str) -> EnginePool:
        """Return the pool of a sweep, with the warm engines of this machine if any are kept.

        Args:
            compilations: folder of JAX's persistent compilation cache.
            program: digest of the user's code that an engine imports, or ''.
        """
        seconds = 0.0 if os.environ.get("RAY_ADDRESS") else warm_seconds(0.0)
        return cls(seconds, key_of(environment.of_workers(1.0), compilations, program))

    def take(self, slots: int, labels: Mapping[str, str]) -> BorrowedEngine:
        """Return an engine that was idle, or else a new one, which waits until a node has a whole GPU free.

        Args:
            slots: K.
            labels: selector of its node.
        """
        # A trial has a share of the device's memory; their engine has all of it.
        service = os.environ.get(SERVICE, "")
        variables = ray_private.handed(environment.of_workers(1.0))
        loan = Loan(Holder.here().write(), service, variables, slots)
        name, handle = (self._claimed(loan) if self._seconds else None) or self._created(loan, labels)
        engine = BorrowedEngine(handle, handle.live.remote(loan.id), name, loan.id)
        if self._seconds:
            self._taken = {known: one for known, one in self._taken.items() if one.lives} | {name: engine}
        return engine

    def _claimed(self, loan: Loan) -> tuple[str, Any] | None:
        """Return the first idle engine of this code and environment that answers.

        One that this driver has is not asked: it is not idle, whatever it answers.
        """
        for actor in ray.util.list_named_actors(all_namespaces=True):
            name = actor["name"]
            if actor["namespace"] != ENGINES or not name.startswith(self._key):
                continue
            if name in self._taken and self._taken[name].lives:
                continue
            try:
                engine: Any = ray.get_actor(name, namespace=ENGINES)
                answer = engine.claim.remote(loan)
                if not ray.wait([answer], timeout=CLAIM_SECONDS)[0]:
                    engine.retire.remote(loan.id)  # in case that it is only slow
                elif ray.get(answer):
                    return name, engine
            except (ValueError, RayActorError):
                continue  # it has ended meanwhile
        return None

    def _created(self, loan: Loan, labels: Mapping[str, str]) -> tuple[str, Any]:
        name = f"{self._key}-{loan.id}"
        options: dict[str, Any] = {"lifetime": "detached"} if self._seconds else {}
        actor = ray.remote(EngineActor).options(
            name=name, namespace=ENGINES, num_cpus=0, num_gpus=1, label_selector=dict(labels), **options
        )
        return name, actor.remote(loan, self._seconds, CODE)
