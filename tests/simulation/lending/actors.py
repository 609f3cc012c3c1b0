"""A simulated Ray: actors and tasks in processes of their own, and messages that are late, lost or overtaken.

What Ray guarantees, and all that is assumed: a call is executed once at most; the calls of one process to the
default group of one actor are executed in their order, one after the other; those to another group run beside
them, one at a time, in any order. A call that is lost fails in its caller, whether it has been or will be
executed or not. A kill takes effect some time after it was asked for, before or after any call.
"""

from __future__ import annotations

import itertools
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

from ray.exceptions import ActorDiedError, ActorUnavailableError, RayTaskError

from tests.simulation.faults import Fault
from tests.simulation.kernel import Kernel, Process, Signal

NOTICE_SECONDS = 0.3
"""Longest time after which the death of a process is noticed."""

KILL_SECONDS = (0.05, 0.05, 2.0)
"""Longest times until a kill takes effect: it goes through the head of Ray, and a call does not."""

UNAVAILABLE_SECONDS = 1.0
"""Longest time after which a lost call fails."""

_UNAVAILABLE = "The actor is temporarily unavailable: the connection was lost"


class Reference:
    """The answer to a call, once it has come.

    Args:
        number: Number that no other reference has.
        owner: The process that waits for it.
    """

    def __init__(self, number: int, owner: Process) -> None:
        self.number, self.owner = number, owner
        self.is_ready = False
        self.value: Any = None
        self.error: Exception | None = None

    def __hash__(self) -> int:
        return self.number


@dataclass(eq=False)
class Call:
    """A call on its way.

    Attributes:
        method: Its name.
        arguments: Arguments by position.
        named: Named by name.
        caller: Process.
        reference: Reference to the answer.
        is_lost: Whether its caller has been, or will be, notified of the loss.
        delay: Delay by which the answer is late.
    """

    method: str
    arguments: tuple[Any, ...]
    named: dict[str, Any]
    caller: Process
    reference: Reference
    is_lost: bool = False
    delay: float = 0.0

    @property
    def loan(self) -> str:
        """Return the id of the loan that it names, or ''."""
        loan = self.arguments[0] if self.arguments else ""
        return getattr(loan, "id", loan if isinstance(loan, str) else "")


@dataclass(eq=False)
class Server:
    """The process of an actor.

    Attributes:
        process: Process of the actor.
        name: Name by which drivers find it, or ''.
        namespace: Namespace of the name.
        instance: The actor, once it has started.
        queue: Function that calls of the default group that it has not executed.
        calls: All calls without an answer.
        waiting: Function that calls that have come before it has started.
        more: Sent when there is another call in the queue.
        executing: The call of the default group that it executes, or the last one.
        is_doomed: Whether a kill is on its way.
        end: Why it has ended.
    """

    process: Process
    name: str
    namespace: str
    instance: Any = None
    queue: list[Call] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    waiting: list[Call] = field(default_factory=list)
    more: Signal = field(default_factory=Signal)
    executing: Call | None = None
    is_doomed: bool = False
    end: str = ""


class Method:
    """A method of a handle."""

    def __init__(self, remote: Callable[..., Reference]) -> None:
        self.remote = remote


class Handle:
    """A handle of an actor.

    Args:
        ray: Ray that has the actor.
        server: The actor's process.
    """

    def __init__(self, ray: Ray, server: Server) -> None:
        self.ray, self.server = ray, server

    def __getattr__(self, name: str) -> Method:
        if name.startswith("_") and name != "__ray_ready__":
            raise AttributeError(name)
        return Method(partial(self.ray.call, self.server, name))


class ActorClass:
    """A class of actors: `begin` starts the process of one."""

    def __init__(self, ray: Ray, begin: Callable[..., Any], name: str = "", namespace: str = "") -> None:
        self._ray, self._begin, self._name, self._namespace = ray, begin, name, namespace

    def options(self, *, name: str, namespace: str, lifetime: str) -> ActorClass:
        return ActorClass(self._ray, self._begin, name, namespace)

    def remote(self, *arguments: Any, **named: Any) -> Handle:
        begin = partial(self._begin, *arguments, **named)
        return self._ray.create(begin, self._name, self._namespace)


class Ray:
    """What the product uses of the module `ray`, as processes of the simulation see it.

    Args:
        kernel: Kernel of the simulation.
        latency: Longest time that a message takes.
        start: Longest time that a process takes to start.
        faults: Faults of the run; those that name a method strike its calls.
        begins: Begins for each class of actors, returns the actor: called in its process with the server
            first.
        control: Function that names of the methods of the other group, by class.

    Attributes:
        servers: Servers of all actors so far.
        looking: The server whose process looks whether it is to end.
        on_start: Function that is called with each new server.
        on_send: Function that is called with a server and a call.
        on_execute: Function that is called with a server and a call before it is executed.
        on_executed: Function that is called with a server, a call, the answer, and what `on_execute` has
            returned.
        on_settled: Function that is called with a server and a call whose answer has come.
        on_kill: Function that is called with the server when a kill is asked for; what it returns is called
            before the effect.
    """

    def __init__(
        self,
        kernel: Kernel,
        latency: float,
        start: float,
        faults: Sequence[Fault],
        begins: dict[type, Callable[..., Any]],
        control: Collection[str],
    ) -> None:
        self._kernel, self._latency, self._start = kernel, latency, start
        self._begins, self._control = begins, control
        self._faults = {(fault.actor, int(fault.point)): fault for fault in faults}
        self._counts: Counter[str] = Counter()
        self._numbers = itertools.count(1)
        self._signals: dict[str, Signal] = {}
        self._last: dict[tuple[str, str], float] = {}
        self.servers: list[Server] = []
        self.looking: Server | None = None
        self.on_start: Callable[[Server], None]
        self.on_send: Callable[[Server, Call], None]
        self.on_execute: Callable[[Server, Call], bool]
        self.on_executed: Callable[[Server, Call, Any, bool], None]
        self.on_settled: Callable[[Server, Call], None]
        self.on_kill: Callable[[Server], Callable[[], None]]
        self.util = SimpleNamespace(list_named_actors=self._named)
        self.actor, self.ObjectRef = SimpleNamespace(ActorClass=ActorClass), Reference

    def strikes(self, what: str) -> Fault | None:
        """Return the fault that strikes the next call or event of a name, if one does."""
        number = self._counts[what]
        self._counts[what] += 1
        fault = self._faults.get((what, number))
        if fault is not None:
            self._kernel.trace(f"FAULT {fault}")
        return fault

    # ---------------------------------------------------------------- the module

    def remote(self, **_: Any) -> Callable[[Any], Any]:
        """Return what makes a class of actors, or a task."""
        return self._made

    def _made(self, thing: Any) -> Any:
        if thing in self._begins:
            return ActorClass(self, self._begins[thing])
        return Method(partial(self._task, thing))

    def put(self, value: Any) -> Reference:
        reference = Reference(next(self._numbers), self._kernel.task.process)
        reference.is_ready, reference.value = True, value
        return reference

    def wait(
        self, references: Collection[Reference], num_returns: int = 1, timeout: float | None = None
    ) -> tuple[list[Reference], list[Reference]]:
        kernel = self._kernel
        kernel.point()
        if not references:
            return [], []
        until = None if timeout is None else kernel.now + timeout
        signal = self._signals.setdefault(kernel.task.process.name, Signal())
        while True:
            ready = [one for one in references if one.is_ready]
            left = None if until is None else until - kernel.now
            if len(ready) >= num_returns or (left is not None and left <= 0):
                ready = ready[:num_returns]
                return ready, [one for one in references if one not in ready]
            kernel.wait(signal, left)

    def get(self, reference: Reference) -> Any:
        self.wait([reference])
        if reference.error is not None:
            raise reference.error
        return reference.value

    def get_actor(self, name: str, namespace: str) -> Handle:
        self._kernel.point()
        for server in self.servers:
            if server.name == name and server.namespace == namespace and server.process.alive:
                return Handle(self, server)
        raise ValueError(name)

    def _named(self, all_namespaces: bool) -> list[dict[str, str]]:
        self._kernel.point()
        return [
            {"name": one.name, "namespace": one.namespace}
            for one in self.servers
            if one.process.alive and one.name
        ]

    def kill(self, handle: Handle) -> None:
        kernel, server = self._kernel, handle.server
        kernel.point()
        check = self.on_kill(server)
        server.is_doomed = True
        fault = self.strikes("kill")
        sender = kernel.task.process.name

        def take_effect() -> None:
            if server.process.alive:
                check()
                self.end(server, f"killed by {sender}")

        delay = kernel.random.random() * kernel.random.choice(KILL_SECONDS)
        kernel.after(delay + (fault.seconds if fault else 0.0), take_effect)

    def node(self, handle: Handle) -> str | None:
        """Return where an actor runs, or None while it has not started."""
        self._kernel.point()
        return None if handle.server.instance is None else "node"

    # ---------------------------------------------------------------- processes

    def create(self, begin: Callable[[Server], Any], name: str, namespace: str) -> Handle:
        """Start a process for an actor; return its handle at once."""
        kernel = self._kernel
        kernel.point()
        process = kernel.process(f"worker-{len(self.servers) + 1}")
        server = Server(process, name, namespace)
        self.servers.append(server)
        process.on_end.append(partial(self._ended, server))
        kernel.start(process, partial(self._serve, server, begin))
        self.on_start(server)
        return Handle(self, server)

    def end(self, server: Server, why: str) -> None:
        """End the process of an actor."""
        server.end = server.end or why
        self._kernel.kill(server.process)

    def _serve(self, server: Server, begin: Callable[[Server], Any]) -> None:
        kernel = self._kernel
        kernel.sleep(kernel.random.random() * self._start)
        server.instance = begin(server)
        kernel.trace("has started")
        for call in server.waiting:
            if call.method in self._control:
                kernel.after(self._delay(), partial(self._control_executed, server, call))
            else:
                server.queue.append(call)
        while True:
            while not server.queue:
                kernel.wait(server.more)
            call = server.executing = server.queue.pop(0)
            self._executed(server, call)

    def _ended(self, server: Server) -> None:
        server.end = server.end or "by a fault"
        self._kernel.trace(f"{server.process.name} has ended: {server.end}")
        for call in server.calls:
            self._kernel.after(
                self._kernel.random.random() * NOTICE_SECONDS, partial(self._died, server, call)
            )

    def _task(self, function: Callable[..., Any], *arguments: Any) -> Reference:
        kernel = self._kernel
        kernel.point()
        reference = Reference(next(self._numbers), kernel.task.process)

        def run() -> None:
            kernel.sleep(kernel.random.random() * self._start)
            value = function(*arguments)
            kernel.after(self._delay(), partial(self._resolve, reference, value, None))

        kernel.start(kernel.process(f"task-{reference.number}"), run)
        return reference

    # ---------------------------------------------------------------- messages

    def call(self, server: Server, method: str, *arguments: Any, **named: Any) -> Reference:
        """Send a call; return a reference to its answer."""
        kernel = self._kernel
        kernel.point()
        caller = kernel.task.process
        reference = Reference(next(self._numbers), caller)
        call = Call(method, arguments, named, caller, reference)
        server.calls.append(call)
        self.on_send(server, call)
        delay, fault = self._delay(), self.strikes(method)
        if fault is not None and fault.kind.startswith("lost"):
            call.is_lost = True
            error = ActorUnavailableError(_UNAVAILABLE, None)
            kernel.after(
                kernel.random.random() * UNAVAILABLE_SECONDS, partial(self._settle, server, call, None, error)
            )
            if fault.kind == "lost call":
                return reference
        if fault is not None and fault.kind == "late answer":
            call.delay = fault.seconds
        elif fault is not None:
            delay += fault.seconds * kernel.random.choice((0.0, 1.0)) if call.is_lost else fault.seconds
        arrives_at = kernel.now + delay
        if method not in self._control:
            way = (caller.name, server.process.name)
            arrives_at = self._last[way] = max(arrives_at, self._last.get(way, 0.0))
        kernel.after(arrives_at - kernel.now, partial(self._arrive, server, call))
        return reference

    def _delay(self) -> float:
        return 0.002 + self._kernel.random.random() * self._latency

    def _arrive(self, server: Server, call: Call) -> None:
        if not server.process.alive:
            self._died(server, call)
        elif server.instance is None:
            server.waiting.append(call)
        elif call.method in self._control:
            self._control_executed(server, call)
        else:
            server.queue.append(call)
            self._kernel.send(server.more)

    def _control_executed(self, server: Server, call: Call) -> None:
        """Execute a call of the other group, once its process is not paused."""
        if (paused := server.process.paused_until - self._kernel.now) > 0:
            self._kernel.after(paused, partial(self._control_executed, server, call))
        elif server.process.alive:
            self._executed(server, call)

    def _executed(self, server: Server, call: Call) -> None:
        value: Any = None
        error: Exception | None = None
        before = self.on_execute(server, call)
        try:
            if call.method != "__ray_ready__":
                value = getattr(server.instance, call.method)(*call.arguments, **call.named)
        except Exception as raised:  # noqa: BLE001 - as Ray does
            text = "".join(traceback.format_exception_only(raised))
            error = RayTaskError(call.method, text, raised, proctitle="worker", pid=1, ip="node")
            self._kernel.trace(f"{server.process.name} raises in {call.method}: {text.strip()}")
        self.on_executed(server, call, value, before)
        self._kernel.after(self._delay() + call.delay, partial(self._settle, server, call, value, error))

    def _died(self, server: Server, call: Call) -> None:
        self._settle(server, call, None, ActorDiedError())

    def _settle(self, server: Server, call: Call, value: Any, error: Exception | None) -> None:
        """Bring the first answer to a call; a process may die between its answer and its arrival."""
        if call in server.calls:
            server.calls.remove(call)
            self._resolve(call.reference, value, error)
            self.on_settled(server, call)

    def _resolve(self, reference: Reference, value: Any, error: Exception | None) -> None:
        reference.is_ready, reference.value, reference.error = True, value, error
        if (signal := self._signals.get(reference.owner.name)) is not None:
            self._kernel.send(signal)
