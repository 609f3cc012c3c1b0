"""The process of a device's shared engine: an actor that is lent to one driver at a time.

Its process holds the whole device in Ray's accounting while it lives, also without a driver. Another process
gets the device only after this one has ended and freed the device's memory.

On the Ray that sweeps share, the actor is detached and outlives its sweep, with JAX imported and its last
program compiled. It exits when anything in the cluster waits for a GPU, at its idle timeout, when memory is
short, when the service that started its last borrower ends, or when its borrower dies.
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
"""Interval of the checks for a dead borrower and for idle shutdown."""


class EngineActor:
    """Actor of a shared engine. A loan ends when the driver has retired the engine and no attempt is left.

    Args:
        loan: First loan.
        seconds: Idle timeout; 0 to end with the first loan.
        code: Digest of the borrower's code; with other code than this process, the first loan is the last.
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
        """Begin a loan; return False if this process is lent or about to exit, or the loan was withdrawn."""
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
        """Wait until a loan is over; the call fails if the process ends before."""
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
        """Return the result of `work`, called with this process's `EngineCache` as `cache`."""
        server = self._server_of(loan)
        return await asyncio.wrap_future(server.run_errand(lambda cache: work(*arguments, cache=cache)))

    async def release(self, loan: str, attempt_id: str) -> None:
        """Free the slot of an attempt, if it has one."""
        with suppress(WrongLoan):
            self._server_of(loan).release(attempt_id)

    async def retire(self, loan: str) -> None:
        """End a loan as soon as no attempt holds a slot or is queued for one.

        A loan that is over stays over, and one that has not begun never begins.
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
        """Reset the process between two loans; return False if it must exit instead."""
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
        """Exit if the borrower is dead or the idle shutdown is due."""
        with self._changing:
            loan, borrower, idle_since = self._lending.present, self._borrower, self._idle_since
        if loan is not None:
            end_if_abandoned(borrower)
        elif self._rules.is_due(idle_since, self._service):
            with self._changing:
                if self._lending.leave():
                    ray.kill(self._self)
