"""The process of a device's shared engine: an actor that one driver at a time has, by a loan.

It holds a whole device in Ray's accounts as long as it lives, also while no driver has it: whatever needs the
device can start only once this process, and with it all that it holds of the device's memory, is gone.

Where processes are kept warm, the actor is detached, and stays when its sweep has ended, with JAX imported
and its last program compiled. It ends as soon as anything in the cluster waits for a GPU; when nobody has
borrowed it for a while; when memory is short; with the service that has started its last borrower; and with
its borrower, if that dies while it has it.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray

from orchestrator.assignment import Assignment, Outcome
from orchestrator.ledger.holder import Holder
from orchestrator.ledger.sweeps.records import Channel
from orchestrator.schedule import ray_private, sent_code
from orchestrator.schedule.idle import CODE, IdleShutdown, end_if_abandoned, watch
from orchestrator.schedule.loans import Lending, Loan, WrongLoan
from orchestrator.training import engine_cache, process
from orchestrator.training.engine_server import EngineServer

POLL_SECONDS = 0.25
"""Time between two looks at whether the borrower lives, and whether an idle engine is to leave."""


class EngineActor:
    """Actor of a shared engine. A loan lasts until the driver retires the engine and it has no attempt left.

    Args:
        loan: The first one.
        seconds: Seconds without a loan after which the process ends; 0 to end with the first one.
        code: Digest of the borrower's code; an actor that has imported other code serves only this borrower.
    """

    def __init__(self, loan: Loan, seconds: float, code: str) -> None:
        self._rules = IdleShutdown(seconds if code == CODE else 0.0, has_device=True)
        self._before, self._folder = dict(os.environ), Path.cwd()
        context = ray.get_runtime_context()
        self._self, self._name = context.current_actor, str(context.get_actor_name())
        self._changing = threading.Condition()
        self._idle_since, self._lending = 0.0, Lending(loan.id)
        process.handle_sigterm()
        self._begin(loan)
        threading.Thread(target=self._run, name="engine", daemon=True).start()
        if seconds:
            watch(self._look, POLL_SECONDS)

    # ---------------------------------------------------------------- called by drivers

    async def claim(self, loan: Loan) -> bool:
        """Begin a loan, unless there is one, it has been withdrawn, or this process is about to end.

        Returns:
            Whether it has begun.
        """
        with self._changing:
            if not self._lending.claim(loan.id):
                return False
            self._begin(loan)
            self._changing.notify()
            return True

    async def ready(self, loan: str) -> None:
        """Return once the process has its device."""
        self._server_of(loan)

    async def live(self, loan: str) -> None:
        """Return when a loan is over; the call fails if the process ends before."""
        with self._changing:
            over = self._over if self._lending.present == loan else None
        if over is not None:
            await asyncio.shield(asyncio.wrap_future(over))

    async def advance(self, loan: str, assignment: Assignment, worker: str, first: bool) -> Outcome:
        """Train an attempt to its next report; see `EngineServer.advance`."""
        server = self._server_of(loan)
        self._channels.add(assignment.channel)
        process.watch(assignment.channel, ray_private.published_stop)
        here = sent_code.on_this_machine(assignment)
        outcome = await server.advance(here, worker, first=first)
        return replace(outcome, node=socket.gethostname(), engine=assignment.engine, loan=loan)

    async def run_errand(self, loan: str, work: Callable[..., Any], *arguments: object) -> Any:
        """Return the result of `work`, called with the cache of this process as `cache`."""
        server = self._server_of(loan)
        return await asyncio.wrap_future(server.run_errand(lambda cache: work(*arguments, cache=cache)))

    async def release(self, loan: str, attempt_id: str) -> None:
        """Free the slot of an attempt, if it has one."""
        with suppress(WrongLoan):
            self._server_of(loan).release(attempt_id)

    async def retire(self, loan: str) -> None:
        """End a loan as soon as no attempt holds a slot or is queued for one.

        One that is over stays so, and one that has not begun yet never begins.
        """
        with self._changing:
            if self._lending.present == loan:
                self._server.retire()
            else:
                self._lending.withdraw(loan)

    def _server_of(self, loan: str) -> EngineServer:
        with self._changing:
            self._lending.check(loan)
            return self._server

    # ---------------------------------------------------------------- the loans, one after the other

    def _begin(self, loan: Loan) -> None:
        """Begin to serve a driver. The caller holds the lock, or is the only thread."""
        ray_private.publish_borrower(self._name, loan.borrower)
        ray_private.adopt(loan.environment)
        cache = engine_cache.keep()
        cache.forget_files()
        self._borrower, self._service = Holder.read(loan.borrower), Holder.read(loan.service)
        self._over: Future[None] = Future()
        self._channels: set[Channel] = set()
        self._server = EngineServer(loan.slots, cache=cache)

    def _run(self) -> None:
        try:
            self._server.run()
            while self._given_back():
                with self._changing:
                    self._changing.wait_for(lambda: self._lending.present is not None)
                self._server.run()
        finally:
            ray.kill(self._self)

    def _given_back(self) -> bool:
        """Reset the process between two loans; return False if it must end instead."""
        in_the_way = not self._rules.seconds or self._rules.is_in_the_way(self._service)
        with self._changing:
            if self._server.failed or in_the_way:
                self._lending.is_leaving = True
                return False
            self._server.close()
            for channel in self._channels:
                process.forget(channel)
            os.environ.clear()
            os.environ.update(self._before)
            os.chdir(self._folder)
            ray_private.publish_borrower(self._name, "")
            assert self._lending.present is not None, "the server has run for a loan"
            self._lending.end(self._lending.present)
            self._borrower = None
            self._idle_since = time.monotonic()
            self._over.set_result(None)
            return True

    # ---------------------------------------------------------------- its own end

    def _look(self) -> None:
        """End this process if its borrower is dead, or if its idle shutdown is due."""
        with self._changing:
            loan, borrower, idle_since = self._lending.present, self._borrower, self._idle_since
        if loan is not None:
            end_if_abandoned(borrower)
        elif self._rules.is_due(idle_since, self._service):
            with self._changing:
                if self._lending.leave():
                    ray.kill(self._self)
