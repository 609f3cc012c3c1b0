"""Applies the faults of a run when they are due, and remembers which attempts they excuse."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from tests.simulation.cluster import Actor
from tests.simulation.faults import KILL_AFTER_COMMIT, Fault
from tests.simulation.kernel import Kernel, Process
from tests.simulation.violation import Violation

LEAVE_SECONDS = 10.0
"""Longest time for which a driver may run after a signal."""

AT_ONCE_SECONDS = 4.0
"""Longest time for which a driver may run after a second signal: it looks for signals once a second."""

IMPATIENT = 3
"""Every so many points, a signal is followed by a second one."""


class Strikes:
    """The faults of a run.

    Args:
        kernel: Kernel of the simulation.
        faults: Faults that were planned.
        world: World for each kind of fault that strikes no single process, the function that applies it.

    Attributes:
        count: Number of faults that have struck.
        excused: Ids of the attempts whose workers were struck: they may be charged to their trials.
    """

    def __init__(
        self, kernel: Kernel, faults: Sequence[Fault], world: Mapping[str, Callable[[Fault], object]]
    ) -> None:
        self._kernel, self._faults, self._world = kernel, faults, world
        self.count = 0
        self.excused: set[str] = set()

    def begin(self) -> None:
        """Schedule the faults that strike no single process."""
        for fault in self._faults:
            if fault.actor == "world":
                self._kernel.after(fault.point, partial(self._strike_world, fault))

    def plan(self, process: Process, actor: Actor | None = None) -> None:
        """Let the faults of a new process strike at their points.

        Args:
            process: Process of a driver or a worker.
            actor: Actor of a worker.
        """
        due = sorted(
            (fault for fault in self._faults if fault.actor == process.name),
            key=lambda fault: fault.point,
        )
        at_points = [fault for fault in due if fault.kind != KILL_AFTER_COMMIT]
        after_commits = [fault for fault in due if fault.kind == KILL_AFTER_COMMIT]
        if not due:
            return

        def strike(process: Process) -> None:
            while at_points and process.points > at_points[0].point:
                self._strike(at_points.pop(0), process, actor)
            while after_commits and process.commits > after_commits[0].point:
                self._strike(after_commits.pop(0), process, actor)

        process.strike = strike

    def expect_end(self, process: Process, why: str, seconds: float) -> None:
        """Record a violation if a process has not ended in `seconds`, unless it was paused meanwhile."""
        self._kernel.after(seconds, partial(self._check_end, process, why, seconds))

    def _strike_world(self, fault: Fault) -> None:
        self._note(fault)
        self._world[fault.kind](fault)

    def _strike(self, fault: Fault, process: Process, actor: Actor | None) -> None:
        self._note(fault)
        if actor is not None:
            self.excused.add(actor.attempt_id)
        if fault.kind == "pause":
            self._kernel.pause(process, fault.seconds)
        elif fault.kind == "signal" and process.signals is not None:
            process.signals.append("SIGTERM")
            self.expect_end(process, "a signal", LEAVE_SECONDS)
            if fault.point % IMPATIENT == 0:
                self._kernel.after(1.0, partial(self._signal_again, process))
        elif actor is not None and fault.kind == "doom":
            actor.worker.is_doomed = True
        elif actor is not None and fault.kind == "lost answer":
            actor.worker.loses_answer = True
        else:
            self._kernel.kill(process)

    def _signal_again(self, process: Process) -> None:
        if process.alive and process.signals is not None:
            self._kernel.trace(f"SIGINT for {process.name}, too")
            self._kernel.hurried_at = self._kernel.now
            process.signals.append("SIGINT")
            self.expect_end(process, "a second signal", AT_ONCE_SECONDS)

    def _note(self, fault: Fault) -> None:
        self.count += 1
        self._kernel.trace(f"FAULT {fault}")

    def _check_end(self, process: Process, why: str, seconds: float) -> None:
        if process.alive and process.paused_at < self._kernel.now - seconds:
            text = f"{process.name} still runs {seconds:g} s after {why}"
            self._kernel.errors.append((process, Violation("leaves", text)))
