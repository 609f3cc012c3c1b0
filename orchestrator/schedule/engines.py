"""Shared engines, one per device, as their driver sees them; `shared_worker` is the workers' side.

A driver borrows a warm idle engine or creates one. An engine serves one sweep, ledger, user and code version
at a time, and is returned or ends with its driver. It holds a whole device in Ray's accounting while its
process lives; the workers of its trials hold processors only.

Engines are kept warm only on the Ray that sweeps share on this machine: on a cluster, a driver cannot see
whether a borrower on another node lives.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import Any

import ray
from ray.exceptions import RayActorError

from orchestrator.assignment import Assignment
from orchestrator.ledger.holder import Holder
from orchestrator.machines.idle_timeout import SERVICE, warm_seconds
from orchestrator.schedule import environment, placement, ray_private
from orchestrator.schedule.engine_actor import EngineActor
from orchestrator.schedule.idle import CODE
from orchestrator.schedule.loans import Loan
from orchestrator.schedule.shared_worker import ENGINES, LivingActor, SharedWorkers
from orchestrator.schedule.warm_pool import key_of

CLAIM_SECONDS = 1.0
"""Timeout for the answer of an idle engine."""


@dataclass(frozen=True)
class BorrowedEngine(LivingActor):
    """An engine on loan to this driver; it counts as ended once it is returned.

    Attributes:
        name: Name of its actor.
        loan: Id of the loan.
    """

    name: str
    loan: str

    def run_errand(self, work: Callable[..., Any], *arguments: object) -> Any:
        """Call `work` in the engine's process and return a reference to the result; see `EngineServer`."""
        return self.handle.run_errand.remote(self.loan, work, *arguments)

    def release(self, attempt_id: str) -> None:
        """Free the slot of an attempt, if it has one."""
        self.handle.release.remote(self.loan, attempt_id)

    def retire(self) -> None:
        """Give the engine back as soon as no attempt uses it."""
        self.handle.retire.remote(self.loan)


class EnginePool:
    """Finds a warm idle engine for a driver, or creates one.

    Args:
        seconds: Idle timeout of an engine; 0 to keep none and to use none.
        key: Digest that an engine and its driver must share; unused if none is kept.
    """

    def __init__(self, seconds: float = 0.0, key: str = "") -> None:
        self._seconds, self._key = seconds, key
        self._taken: dict[str, BorrowedEngine] = {}

    @classmethod
    def of(cls, compilations: str, program: str) -> EnginePool:
        """Return the pool of a sweep, with the warm engines of this machine if any are kept."""
        seconds = 0.0 if os.environ.get("RAY_ADDRESS") else warm_seconds(0.0)
        return cls(seconds, key_of(environment.of_workers(1.0), compilations, program))

    def take(self, slots: int, labels: Mapping[str, str]) -> BorrowedEngine:
        """Return an idle engine, or else a new one, which waits for a node with a whole free GPU."""
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
        """Claim the first idle engine of this code and environment that answers and is not this driver's."""
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
                    engine.retire.remote(loan.id)  # it may only be slow
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


LATE_SECONDS = 2.0
"""Timeout for engines, which were asked before, to end their loans at the end of a sweep."""


class Engines:
    """Shared engines of a driver: assigns one to every attempt, creates it, frees slots and kills it.

    The driver frees slots itself, because the worker of a stopped trial is not called again before it gets
    the next trial, and a dead worker frees nothing.

    Args:
        devices: Function that returns the number of devices that the sweep may use.
        pool: Pool of the engines.

    Attributes:
        workers: Worker processes of the trials.
        closing: Ids of the nodes where engines give up their devices: no attempt gets a slot there.
    """

    def __init__(self, devices: Callable[[], int], pool: EnginePool = EnginePool()) -> None:
        self._devices, self._pool = devices, pool
        self.workers = SharedWorkers()
        self.closing: frozenset[str] = frozenset()
        self._seats: dict[str, Assignment] = {}
        self._entered: set[str] = set()
        self._tested: set[str] = set()
        self._victims: set[str] = set()
        self._actors: dict[str, BorrowedEngine] = {}
        self._located: dict[str, tuple[BorrowedEngine, str]] = {}

    def seat(self, assignment: Assignment) -> Assignment:
        """Return the assignment with the name of the shared engine for its attempt, if any.

        Engines that run the attempt's program are filled first, then devices without an engine. An attempt of
        another program waits in the queue of the engine with the fewest attempts. An engine that is to give
        up its device gets no attempt.
        """
        if assignment.slots == 1:
            return assignment
        seated = replace(assignment, engine=self._choose(assignment))
        self._seats[assignment.attempt_id] = seated
        return seated

    def _choose(self, assignment: Assignment) -> str:
        leaving = {name for name, (_, node) in self._located.items() if node in self.closing}
        seated = (one.engine for one in self._seats.values())
        used = Counter(name for name in seated if name and name not in leaving)
        names = (f"{assignment.channel}-engine-{index}" for index in count())
        unused = (name for name in names if name not in used and name not in leaving)
        engines = [*sorted(used), *islice(unused, max(0, max(1, self._devices()) - len(used)))]
        program = assignment.settings.static()
        same = {one.engine for one in self._seats.values() if one.settings.static() == program}
        free = [name for name in engines if used[name] < assignment.slots] or engines

        def preference(name: str) -> tuple[bool, bool, int]:
            return name not in same, used[name] > 0, used[name]

        return min(free, key=preference)

    def ensure(self, attempt_id: str) -> bool:
        """Create the engine of an attempt unless it is alive; return False if the attempt shares none."""
        if (seated := self._seats.get(attempt_id)) is None:
            return False
        assert seated.engine is not None, "a seated attempt has an engine"
        if self._living(seated.engine) is None:
            engine = self._pool.take(seated.slots, placement.selector(seated.avoided))
            self._actors[seated.engine] = engine
            ray_private.publish_engine(seated.engine, engine.name, engine.loan)
        return True

    def entered(self, attempt_id: str) -> None:
        """Record that an attempt's engine has a device, where its next interval runs."""
        self._entered.add(attempt_id)

    def tested(self, attempt_id: str, *, alone: bool) -> None:
        """Record whether an attempt is tested alone in its engine."""
        (self._tested.add if alone else self._tested.discard)(attempt_id)

    def cause_of(self, attempt_id: str, failure: str | None) -> str | None:
        """Return the cause of a failure: `engine crash` if this attempt has killed its engine.

        It is blamed if no other attempt was in the engine, or if the engine trained this attempt alone.
        """
        return self._cause_of_lost_engine(attempt_id) if failure == "engine lost" else failure

    def _cause_of_lost_engine(self, attempt_id: str) -> str:
        others = self._others(attempt_id)
        self._victims |= others - self._tested
        innocent = attempt_id not in self._tested and (others or attempt_id in self._victims)
        return "engine lost" if innocent else "engine crash"

    def cause_of_lost_worker(self, attempt_id: str, *, again: bool) -> str:
        """Return the cause of an attempt's end after the death of the worker process of its engine's trials.

        That process runs no code of the trials, so each has only lost its slot. A repeated death without
        progress of the trial (`again`) counts as the death of the engine, so that the trial ends at last.
        """
        return self._cause_of_lost_engine(attempt_id) if again else "slot lost"

    def kill(self, attempt_id: str) -> str:
        """Kill the engine of a silent attempt; return the cause of that attempt's end.

        The cause is `hung` if no other attempt is in the engine. Otherwise any of them may hang: the cause of
        all is `engine lost`, and each resumes from its checkpoint.
        """
        seated = self._seats.get(attempt_id)
        if seated is not None and (engine := self._living(seated.engine)) is not None:
            ray.kill(engine.handle)
        return "hung" if self._cause_of_lost_engine(attempt_id) == "engine crash" else "engine lost"

    def release(self, attempt_id: str) -> None:
        """Free the slot of an attempt, if it shares an engine.

        An engine that waits for a device without an attempt ends: it would keep waiting for nodes that its
        first attempt did not avoid.
        """
        seated = self._seats.pop(attempt_id, None)
        self.workers.left(attempt_id)
        for attempts in (self._entered, self._tested, self._victims):
            attempts.discard(attempt_id)
        if seated is not None and (engine := self._living(seated.engine)) is not None:
            engine.release(attempt_id)
            name = seated.engine
            if name and name not in self.in_use and not ray_private.node_of(engine.handle):
                ray.kill(self._actors.pop(name).handle)
                ray_private.withdraw_engine(name)

    def _others(self, attempt_id: str) -> set[str]:
        """Return the other attempts that have entered the engine of an attempt."""
        engine = self._seats[attempt_id].engine if attempt_id in self._seats else None
        sharing = {name for name, seated in self._seats.items() if seated.engine == engine}
        return (sharing & self._entered) - {attempt_id}

    @property
    def in_use(self) -> Set[str]:
        """Engines in which an attempt has a slot or waits for one."""
        return {seated.engine for seated in self._seats.values() if seated.engine}

    def engine_of(self, attempt_id: str) -> str | None:
        """Return the engine that an attempt shares, or None if it shares none."""
        seated = self._seats.get(attempt_id)
        return seated.engine if seated else None

    def nodes(self) -> Mapping[str, str]:
        """Return the ids of the nodes on which the engines have a device, by engine."""
        living = {name: engine for name in self._actors if (engine := self._living(name)) is not None}
        for name, engine in living.items():
            known, _ = self._located.get(name, (None, None))
            if known is not engine and (node := ray_private.node_of(engine.handle)) is not None:
                self._located[name] = engine, node
        return {name: node for name, (engine, node) in self._located.items() if living.get(name) is engine}

    def retire_idle(self) -> None:
        """Retire idle engines, so that another sweep gets their devices."""
        self._retire(self._actors.keys() - self.in_use)

    @property
    def idle(self) -> BorrowedEngine | None:
        """Engine with a device and no attempt, or None."""
        for name in self.nodes().keys() - self.in_use:
            return self._living(name)
        return None

    def retire(self) -> None:
        """Retire every engine."""
        self._retire(self._actors)

    def retire_but_one(self) -> None:
        """Retire all engines but an idle one, which can evaluate."""
        kept = self.idle
        self._retire(name for name in self._actors if kept is None or self._living(name) is not kept)

    def close(self) -> None:
        """Kill every engine that was not returned, as after an interrupted sweep."""
        living = [engine for name in self._actors if (engine := self._living(name)) is not None]
        if not living:
            return
        late = ray.wait([one.live for one in living], num_returns=len(living), timeout=LATE_SECONDS)[1]
        for engine in living:
            if engine.live in late:
                ray.kill(engine.handle)

    def _retire(self, engines: Iterable[str]) -> None:
        for engine in engines:
            if (borrowed := self._living(engine)) is not None:
                borrowed.retire()
            ray_private.withdraw_engine(engine)

    def _living(self, engine: str | None) -> BorrowedEngine | None:
        """Return the named engine if it is alive."""
        borrowed = self._actors.get(engine) if engine else None
        return borrowed if borrowed is not None and borrowed.lives else None
