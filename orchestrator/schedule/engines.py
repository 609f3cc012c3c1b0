"""Shared engines, one a device, as their driver sees them; for the workers' side see `shared_worker`.

The driver borrows or creates them (`engine_pool`), so an engine belongs to one sweep, ledger, user and code
version at a time, and is given back or ends with its driver at the latest. An engine holds a whole device in
Ray's accounts as long as its process lives; the workers of its trials hold processors only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import replace
from itertools import count, islice

import ray

from orchestrator.assignment import Assignment
from orchestrator.schedule import placement, ray_private
from orchestrator.schedule.engine_pool import BorrowedEngine, EnginePool
from orchestrator.schedule.shared_worker import SharedWorkers

LATE_SECONDS = 2.0
"""Longest wait for engines to be given back at the end of a sweep; they have been asked before."""


class Engines:
    """The driver's shared engines: it chooses one for every attempt, creates it, frees slots and kills.

    The worker of a stopped trial is not called again before it gets the next trial, and a dead worker frees
    nothing.

    Args:
        devices: returns how many devices the sweep may use.
        pool: where engines come from.

    Attributes:
        workers: the processes of their trials' workers.
        closing: ids of the nodes on which engines give up their devices: no attempt gets a slot there.
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
        """Return the assignment with the name of the engine that its attempt is to share, if it shares one.

        Engines that run the attempt's program are filled first, then devices without an engine; an attempt of
        another program waits in the queue of the engine with the fewest attempts. An engine that is to give
        up its device gets none: its trials start again on another device.
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
        """Get the engine of an attempt unless it lives; return False if the attempt shares none."""
        if (seated := self._seats.get(attempt_id)) is None:
            return False
        assert seated.engine is not None, "a seated attempt has an engine"
        if self._living(seated.engine) is None:
            engine = self._pool.take(seated.slots, placement.selector(seated.avoided))
            self._actors[seated.engine] = engine
            ray_private.publish_engine(seated.engine, engine.name, engine.loan)
        return True

    def entered(self, attempt_id: str) -> None:
        """Note that an attempt's engine has a device, and that its next interval runs there."""
        self._entered.add(attempt_id)

    def tested(self, attempt_id: str, *, alone: bool) -> None:
        """Note whether an attempt's engine trains nothing else now."""
        (self._tested.add if alone else self._tested.discard)(attempt_id)

    def cause_of(self, attempt_id: str, failure: str | None) -> str | None:
        """Return the cause of a failure: `engine crash` if it is this attempt that an engine has died of.

        That is known if no other attempt was in the engine, or the attempt was the one that it trained.
        """
        return self._cause_of_lost_engine(attempt_id) if failure == "engine lost" else failure

    def _cause_of_lost_engine(self, attempt_id: str) -> str:
        others = self._others(attempt_id)
        self._victims |= others - self._tested
        innocent = attempt_id not in self._tested and (others or attempt_id in self._victims)
        return "engine lost" if innocent else "engine crash"

    def cause_of_lost_worker(self, attempt_id: str, *, again: bool) -> str:
        """Return the cause of an attempt's end after the death of the worker process of its engine's trials.

        That process runs no code of any of them, so each has only lost its slot. If it dies again and again
        without progress of the trial, that counts as the death of the engine, so that the trial ends at last.

        Args:
            attempt_id: of the attempt.
            again: whether the trial has lost its slot before, and made no progress since.
        """
        return self._cause_of_lost_engine(attempt_id) if again else "slot lost"

    def kill(self, attempt_id: str) -> str:
        """Kill the engine in which an attempt is silent; return the cause of that attempt's end.

        It is `hung` if no other attempt is in the engine. Otherwise any of them may hang: the cause of all is
        `engine lost`, and each resumes from its checkpoint.
        """
        seated = self._seats.get(attempt_id)
        if seated is not None and (engine := self._living(seated.engine)) is not None:
            ray.kill(engine.handle)
        return "hung" if self._cause_of_lost_engine(attempt_id) == "engine crash" else "engine lost"

    def release(self, attempt_id: str) -> None:
        """Free the slot of an attempt, if it shares an engine.

        An engine that still waits for a device, and that no trial waits for any more, ends: it would wait on
        for the nodes that its first attempt did not avoid.
        """
        seated = self._seats.pop(attempt_id, None)
        self.workers.left(attempt_id)
        for attempts in (self._entered, self._tested, self._victims):
            attempts.discard(attempt_id)
        if seated is not None and (engine := self._living(seated.engine)) is not None:
            engine.release(attempt_id)
            name = seated.engine
            if name and name not in self.in_use and not ray_private.node_of(engine.handle):
                self._end(name)

    def _others(self, attempt_id: str) -> set[str]:
        """Return the other attempts that have entered the engine of an attempt."""
        engine = self._seats[attempt_id].engine if attempt_id in self._seats else None
        sharing = {name for name, seated in self._seats.items() if seated.engine == engine}
        return (sharing & self._entered) - {attempt_id}

    @property
    def in_use(self) -> Set[str]:
        """The engines in which an attempt has a slot or waits for one."""
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
        """Let the engines end that no attempt uses, so that another sweep gets their devices."""
        self._retire(self._actors.keys() - self.in_use)

    @property
    def idle(self) -> BorrowedEngine | None:
        """An engine that has a device and no attempt, or None."""
        for name in self.nodes().keys() - self.in_use:
            return self._living(name)
        return None

    def retire(self) -> None:
        """Ask every engine to end as soon as it has no attempt."""
        self._retire(self._actors)

    def retire_but_one(self) -> None:
        """Ask all engines but an idle one to end as soon as they have no attempt: it can evaluate."""
        kept = self.idle
        self._retire(name for name in self._actors if kept is None or self._living(name) is not kept)

    def close(self) -> None:
        """End every engine that is not given back, as at the end of a sweep that was cut off."""
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

    def _end(self, engine: str) -> None:
        ray.kill(self._actors.pop(engine).handle)
        ray_private.withdraw_engine(engine)

    def _living(self, engine: str | None) -> BorrowedEngine | None:
        """Return an engine, or None if this driver has none of that name, or no longer."""
        borrowed = self._actors.get(engine) if engine else None
        return borrowed if borrowed is not None and borrowed.lives else None
