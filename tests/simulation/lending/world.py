"""Drivers that share warm workers on one machine, and what disturbs them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from ray.air.execution._internal import actor_manager, event_manager
from ray.tune.execution import tune_controller

from orchestrator.ledger.holder import Holder
from orchestrator.schedule import (
    adapters,
    cluster,
    environment,
    idle,
    ray_private,
    tuner,
    warm_pool,
    warm_worker,
)
from orchestrator.schedule.loans import Loan
from orchestrator.schedule.warm_pool import RayActors, WarmPool
from orchestrator.schedule.warm_worker import WarmWorker
from tests.simulation.faults import Fault
from tests.simulation.kernel import Kernel, Process
from tests.simulation.lending.actors import ActorClass, Call, Ray, Server
from tests.simulation.lending.plan import Drive, Plan
from tests.simulation.lending.rules import Owner, Rules, attempt_of
from tests.simulation.lending.session import SimulatedEngines, SimulatedSession
from tests.simulation.lending.tune import Tune
from tests.simulation.lending.workers import SimulatedHost, Trainable
from tests.simulation.strikes import Strikes

TICK_SECONDS = 2.0
"""Longest time for which Tune waits for an event: the real one would fill most of a run with waits."""

AGAIN_SECONDS = 1.5
"""Longest time after which a driver that has ended begins again."""

CONTROL = {name for name, value in vars(WarmWorker).items() if hasattr(value, "__ray_concurrency_group__")}
"""Methods of a worker that run beside the others."""


class World:
    """The machine.

    Args:
        kernel: Kernel of the simulation.
        plan: Plan of the run.
        faults: Faults that are planned.

    Attributes:
        ray: Ray of the machine.
        rules: What must hold.
        is_closing: Whether the run is over, so that no process begins.
        unfinished: Function that names of the drivers that have more to do.
    """

    def __init__(self, kernel: Kernel, plan: Plan, faults: Sequence[Fault]) -> None:
        self._kernel, self._plan = kernel, plan
        self.rules = rules = Rules(kernel)
        begins = {WarmWorker: self._warm_worker}
        self.ray = ray = Ray(kernel, plan.latency, plan.start, faults, begins, CONTROL)
        ray.on_start, ray.on_send, ray.on_settled = self._started, self._sent, rules.settled
        ray.on_execute, ray.on_executed, ray.on_kill = self._is_free, self._executed, rules.kill
        self._strikes = Strikes(kernel, faults, {"memory short": self._fill_memory})
        self._short_until = 0.0
        self._processes: dict[int, Process] = {}
        self._sessions = {
            drive.name: [
                SimulatedSession(sweep, rules, self._now, float(plan.has_gpu)) for sweep in drive.sweeps
            ]
            for drive in plan.drives
        }
        self.is_closing = False
        self.unfinished = {drive.name for drive in plan.drives}

    def begin(self) -> None:
        """Let the drivers begin, and the faults strike."""
        self._strikes.begin()
        for drive in self._plan.drives:
            self._kernel.after(drive.begins_at, partial(self._begin, drive, drive.name))

    def _now(self) -> float:
        return self._kernel.now

    @contextmanager
    def simulated(self) -> Iterator[None]:
        """Let the product see this machine."""
        ray, clock = self.ray, SimpleNamespace(monotonic=self._now)
        replaced: list[tuple[Any, dict[str, Any]]] = [
            (warm_pool, {"ray": ray, "memory_is_short": self._memory_is_short}),
            (warm_pool, {"os": SimpleNamespace(cpu_count=lambda: self._plan.processors)}),
            (warm_worker, {"time": clock}),
            (idle, {"time": clock, "memory_is_short": self._memory_is_short}),
            (idle, {"os": SimpleNamespace(_exit=self._exit)}),
            (ray_private, {"node_of": ray.node, "wants_gpu": lambda: False}),
            (cluster, {"ray": ray}),
            (environment, {"of_workers": lambda gpu: {}}),
            (adapters, {"_error_text": lambda trial: trial.error_text}),
            (tuner, {"TICK_SECONDS": TICK_SECONDS}),
            (actor_manager, {"ray": ray, "time": clock}),
            (event_manager, {"ray": ray}),
            (tune_controller, {"time": clock}),
            (Holder, {"is_dead": lambda holder: not self._processes[holder.pid].alive}),
        ]
        with ExitStack() as stack:
            for owner, values in replaced:
                stack.enter_context(patch.multiple(owner, **values))
            yield

    def _memory_is_short(self) -> bool:
        return self._kernel.now < self._short_until

    def _fill_memory(self, fault: Fault) -> None:
        self._short_until = self._kernel.now + fault.seconds

    # ---------------------------------------------------------------- drivers

    def _begin(self, drive: Drive, name: str) -> None:
        """Begin a process of a driver."""
        if self.is_closing or self._kernel.errors:
            return
        process = self._kernel.process(name)
        owner = Owner(process)
        self.rules.owners.append(owner)
        pid = 1000 + len(self._processes)
        self._processes[pid] = process
        self._strikes.plan(process)
        process.on_end.append(partial(self._ended, drive, len(self._processes)))
        holder = Holder(pid, "machine", "place", pid, 0.0)
        self._kernel.start(process, partial(self._drive, drive, owner, holder.write()))

    def _ended(self, drive: Drive, number: int) -> None:
        self._kernel.trace(f"a process of {drive.name} has ended")
        if drive.name in self.unfinished:
            again = partial(self._begin, drive, f"{drive.name}.{number}")
            self._kernel.after(0.1 + self._kernel.random.random() * AGAIN_SECONDS, again)

    def _drive(self, drive: Drive, owner: Owner, holder: str) -> None:
        """Run the sweeps of a driver that are not over."""
        kernel = self._kernel
        made = ActorClass(self.ray, partial(self._own_worker, owner.process))
        self._note_end(drive)  # the process before may have ended just after its last report
        for session in self._sessions[drive.name]:
            if session.is_over:
                continue
            kernel.trace(f"runs {session.plan.id}")
            session.begin()
            engines: Any = SimulatedEngines()
            if session.plan.errand:
                self._run_errand(session.plan.id, self._pool(drive, owner, holder))
            with (
                adapters.registered(session, engines),  # type: ignore[arg-type]
                self._pool(drive, owner, holder) as warm,
            ):
                Tune(kernel, session, warm, made).run()
            kernel.trace(f"has run {session.plan.id}")
            self._note_end(drive)
            kernel.sleep(session.plan.pause)
            if drive.anew:
                return

    def _note_end(self, drive: Drive) -> None:
        if all(one.is_over for one in self._sessions[drive.name]):
            self.unfinished.discard(drive.name)

    @contextmanager
    def _pool(self, drive: Drive, owner: Owner, holder: str) -> Iterator[WarmPool]:
        """Yield the warm workers of a driver, as `warm_pool.pool` does."""
        has_gpu = self._plan.has_gpu
        actors = RayActors(has_gpu=has_gpu)
        loan = partial(Loan, holder, "", {})
        warm = WarmPool(self._plan.idle, f"key-{drive.key}", loan, actors, has_gpu=has_gpu)
        owner.pools.append(warm)
        try:
            yield warm
        finally:
            warm.close()
            owner.pools.remove(warm)

    def _run_errand(self, sweep_id: str, pool: Any) -> None:
        answer = cluster._answer(0, float(self._plan.has_gpu), pool, self._errand, sweep_id)
        if answer != sweep_id:
            self.rules.fail("foreign", f"the answer to {sweep_id} is {answer}")

    def _errand(self, sweep_id: str) -> str:
        """Do some work in a worker or a task."""
        kernel = self._kernel
        process = kernel.task.process
        server = next((one for one in self.ray.servers if one.process is process), None)
        for _ in range(2):
            if server is not None:
                assert server.executing is not None
                self.rules.check_use(server, server.executing.loan, f"works for {sweep_id}")
            kernel.sleep(kernel.random.random() * self._plan.interval)
        return sweep_id

    # ---------------------------------------------------------------- workers

    def _warm_worker(
        self, loan: Loan, seconds: float, code: str, server: Server, *, has_device: bool
    ) -> WarmWorker:
        trainable = partial(self._trainable, server)
        host = SimulatedHost(self._kernel, self.ray, server, trainable)
        return WarmWorker(loan, seconds, code, has_device=has_device, host=host)

    def _own_worker(self, driver: Process, server: Server, *, config: dict[str, Any], storage: Any) -> Any:
        """Return an actor of Tune's own, which ends with its driver."""
        end = partial(self.ray.end, server, "with its driver")
        driver.on_end.append(end)
        if not driver.alive:
            end()
        self.rules.assign(server, config["assignment"]["attempt_id"])
        return self._trainable(server, "", config)

    def _trainable(self, server: Server, loan: str, config: dict[str, Any]) -> Trainable:
        return Trainable(self._kernel, self.ray, self.rules, server, self._plan.interval, loan, config)

    def _exit(self, code: int) -> None:
        """End the worker that looks at its driver."""
        assert self.ray.looking is not None
        self.ray.end(self.ray.looking, "its driver is dead")

    def _started(self, server: Server) -> None:
        self._strikes.plan(server.process)

    # ---------------------------------------------------------------- what happens

    def _sent(self, server: Server, call: Call) -> None:
        if (attempt := attempt_of(call)) is not None:
            self.rules.assign(server, attempt)
        self.rules.sent(server, call)

    def _is_free(self, server: Server, call: Call) -> bool:
        """Return True if a worker has no loan and stays."""
        if not isinstance(server.instance, WarmWorker):
            return False
        return server.instance._lending.present is None and not server.instance._lending.is_leaving

    def _executed(self, server: Server, call: Call, value: Any, was_free: bool) -> None:
        if call.method == "__ray_ready__":
            return
        told = value if isinstance(value, bool | str) else "done"
        about = f"{call.method} by {call.loan[:6]} of {call.caller.name}"
        self._kernel.trace(f"{server.process.name}: {about}: {told}")
        if call.method == "claim":
            self.rules.claimed(server, call.loan, was_free=was_free, granted=bool(value))
        elif call.method == "return_unused":
            self.rules.withdrawn(call.loan)
