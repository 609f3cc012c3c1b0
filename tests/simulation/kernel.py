"""A deterministic kernel: simulated processes, whose threads take turns, under one simulated time.

Every thread of a simulated process is a greenlet: all of them run in one real thread, one at a time. A
thread may lose its turn at a *point*: before and after each SQL statement, before each file operation, at
each message and each wait. At a point time passes, and a fault may strike: the process is killed, paused or
gets a signal. A killed process unwinds by an exception, and each further point in it raises again, so that
nothing that it still runs has an effect. Everything is decided by one random generator, so that a seed
determines a run.
"""

from __future__ import annotations

import heapq
import itertools
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from greenlet import getcurrent, greenlet

POINT_SECONDS = 0.004
"""Longest time that passes at a point."""


class Killed(BaseException):
    """Raised at the points of a process that has been killed."""


class Exited(BaseException):
    """Raised to end a process with an exit code.

    Attributes:
        code: Code of the process.
    """

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@dataclass
class Process:
    """A simulated process.

    Attributes:
        name: Unique.
        began: Time when it was started.
        alive: Whether it has not ended.
        points: Number of points that it has passed.
        commits: Number of transactions that it has committed.
        paused_until: Time at which a pause of the whole process ends.
        paused_at: End of its last pause.
        strike: Function that is called at each point with the process; applies the faults that are due.
        on_end: Function that is called when the process has ended, by a kill or by itself.
        code: Exit code, or None if it was killed or runs.
        signals: Function that names of the signals that it has caught and not read; None if a signal kills
            it.
        tasks: Its threads that have not ended.
    """

    name: str
    began: float
    alive: bool = True
    points: int = 0
    commits: int = 0
    paused_until: float = 0.0
    paused_at: float = float("-inf")
    strike: Callable[[Process], None] | None = None
    on_end: list[Callable[[], None]] = field(default_factory=list)
    code: int | None = None
    signals: list[str] | None = None
    tasks: list[Task] = field(default_factory=list)


class Signal:
    """A queue of threads that wait for something to happen."""

    def __init__(self) -> None:
        self.waiting: list[Task] = []


class Task:
    """A thread of a simulated process."""

    def __init__(self, process: Process, name: str, run: Callable[[], object]) -> None:
        self.process, self.name, self.run = process, name, run
        self.entry = 0
        self.waits_for: Signal | None = None
        self.woken = False
        self.stack: greenlet


class Kernel:
    """Runs tasks one at a time, in the order of simulated time; durations are random.

    Args:
        seed: Seed of all that is random.
        trace: Function that receives the time, the actor and what happened.

    Attributes:
        now: Seconds of simulated time.
        current: The task that runs.
        thread: Identifier of the real thread that runs every task.
        errors: Processes that an exception ended, with the exception; violations of invariants among them.
        hurried_at: Time when a process was last sent a second signal; it may leave without waiting for
            anyone.
    """

    def __init__(self, seed: str, trace: Callable[[float, str, str], None]) -> None:
        self.now = 0.0
        self.random = random.Random(seed)
        self.current: Task | None = None
        self.errors: list[tuple[Process, BaseException]] = []
        self.hurried_at = float("-inf")
        self._trace = trace
        self._processes: list[Process] = []
        self._heap: list[tuple[float, int, Task | None]] = []
        self._timers: dict[int, Callable[[], object]] = {}
        self._entries = itertools.count(1)
        self._scheduler = getcurrent()
        self.thread = threading.get_ident()
        self._limit = float("inf")

    def count(self) -> int:
        """Return a number that it has not returned before."""
        return next(self._entries)

    def process(self, name: str) -> Process:
        """Return a new process without threads."""
        process = Process(name, self.now)
        self._processes.append(process)
        return process

    def living(self, prefix: str) -> list[Process]:
        """Return the processes that have not ended and whose names begin so."""
        return [process for process in self._processes if process.alive and process.name.startswith(prefix)]

    def start(self, process: Process, run: Callable[[], object], name: str = "main") -> Task:
        """Start a thread of a process."""
        task = Task(process, name, run)
        process.tasks.append(task)
        task.stack = greenlet(lambda: self._main(task), parent=self._scheduler)
        self._push(task, self.now)
        return task

    def run(self, until: float) -> None:
        """Run until no task can run, or the time has come."""
        self._limit = until
        while (task := self._next()) is not None:
            self.current = task
            task.stack.switch()
        self.current = None

    def after(self, seconds: float, action: Callable[[], object]) -> None:
        """Call a function that passes no point, in so many seconds, outside every process."""
        entry = next(self._entries)
        self._timers[entry] = action
        heapq.heappush(self._heap, (self.now + seconds, entry, None))

    def fail(self, error: Exception) -> None:
        """Record an error of the running process, or of none, and let nothing run after it.

        Raised, it would end in the handlers of the product, whose threads outlive every error.
        """
        process = self.current.process if self.current else Process("world", self.now)
        self.errors.append((process, error))
        self._limit = float("-inf")

    def close(self) -> None:
        """Kill every process, so that no thread is left."""
        for process in self._processes:
            self.kill(process)
        self.run(float("inf"))

    def trace(self, text: str) -> None:
        """Add a line about the running process to the trace."""
        self._trace(self.now, self.current.process.name if self.current else "world", text)

    # ---------------------------------------------------------------- called by tasks

    @property
    def task(self) -> Task:
        """Return the running task."""
        assert self.current is not None, "called by a task"
        return self.current

    def point(self) -> None:
        """Let time pass, faults strike and others run; raise Killed in a process that is dead."""
        assert self.current is not None, "called by a task"  # not `task`: this is the busiest function
        process = self.current.process
        if process.alive:
            process.points += 1
            if process.strike is not None:
                process.strike(process)
        if not process.alive:
            raise Killed
        self.sleep(self.random.random() * POINT_SECONDS)

    def sleep(self, seconds: float) -> None:
        """Let others run for so many seconds."""
        assert self.current is not None, "called by a task"
        process, until = self.current.process, self.now + seconds
        if not process.alive:
            raise Killed
        is_next = not self._heap or self._heap[0][0] > until
        if is_next and process.paused_until <= until <= self._limit:
            self.now = until
            return
        self._push(self.task, until)
        self._yield()

    def wait(self, signal: Signal, seconds: float | None = None) -> bool:
        """Wait until a signal is sent, or at most so many seconds; return True if it was sent."""
        task = self.task
        if not task.process.alive:
            raise Killed
        task.waits_for, task.woken, task.entry = signal, False, 0
        signal.waiting.append(task)
        if seconds is not None:
            self._push(task, self.now + seconds)
        self._yield()
        return task.woken

    def send(self, signal: Signal) -> None:
        """Wake every task that waits for a signal."""
        for task in list(signal.waiting):
            self._unwait(task)
            task.woken = True
            self._push(task, self.now)

    def join(self, process: Process) -> None:
        """Wait until a process has ended."""
        ended = Signal()
        process.on_end.append(lambda: self.send(ended))
        while process.alive:
            self.wait(ended)

    def pause(self, process: Process, seconds: float) -> None:
        """Let no thread of a process run for so many seconds, once each has reached a point."""
        process.paused_until = max(process.paused_until, self.now + seconds)
        process.paused_at = process.paused_until

    def kill(self, process: Process) -> None:
        """End a process at once; its threads unwind without effect."""
        if not process.alive:
            return
        process.alive, process.paused_until = False, 0.0
        for task in process.tasks:
            if task is not self.current:
                self._unwait(task)
                self._push(task, self.now)
        for notify in process.on_end:
            notify()

    def end(self, process: Process, code: int) -> None:
        """End the running process with a code; never return."""
        process.code = code
        self.kill(process)
        raise Killed

    # ---------------------------------------------------------------- switching

    def _push(self, task: Task, at: float) -> None:
        task.entry = next(self._entries)
        heapq.heappush(self._heap, (at, task.entry, task))

    def _unwait(self, task: Task) -> None:
        if task.waits_for is not None:
            task.waits_for.waiting.remove(task)
            task.waits_for = None

    def _next(self) -> Task | None:
        """Remove and return the task that runs next, and let time pass until then."""
        while self._heap:
            at, entry, task = self._heap[0]
            if at > self._limit:
                return None
            if task is None:
                heapq.heappop(self._heap)
                self.now, self.current = max(self.now, at), None
                self._timers.pop(entry)()
            elif entry != task.entry:  # it was woken before this entry was due
                heapq.heappop(self._heap)
            elif task.process.paused_until > at:
                heapq.heappop(self._heap)
                self._push(task, task.process.paused_until)
            else:
                heapq.heappop(self._heap)
                task.entry = 0
                self.now = max(self.now, at)
                self._unwait(task)
                return task
        return None

    def _yield(self) -> None:
        """Let the next task run; return when it is this one's turn again."""
        task = self.task
        if (following := self._next()) is not task:
            self.current = following
            (self._scheduler if following is None else following.stack).switch()
        self.current = task
        if not task.process.alive:
            raise Killed

    def _main(self, task: Task) -> None:
        """Run a task to its end."""
        process = task.process
        try:
            if process.alive:
                task.run()
        except Killed:
            pass
        except Exited as exited:
            process.code = exited.code
            self.kill(process)
        except BaseException as error:  # noqa: BLE001 - the simulation reports it
            self.errors.append((process, error))
            self.kill(process)
        process.tasks.remove(task)
        if not process.tasks:
            self.kill(process)
