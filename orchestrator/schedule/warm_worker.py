"""A warm worker: a process that outlives its sweep, with JAX imported and compiled programs in memory.

It is a detached actor of the Ray that sweeps share on this machine. Tune's placement group holds a trial's
processors, as always. The process itself holds a GPU while it lives, as an engine does (`engine_actor`),
because JAX frees the GPU's memory only at the end of the process. It serves one sweep at a time and keeps
only the engine and the data set, which the next sweep uses if its static choice and its data are the same.
Drivers find it by its name, a digest of the code, the user's program and the environment. It ends with its
borrower or at its idle timeout; with a GPU it ends for every reason for which an idle engine does.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ray

from orchestrator.ledger.holder import Holder
from orchestrator.ledger.sweeps.records import Channel
from orchestrator.schedule import ray_private
from orchestrator.schedule.idle import CODE, IdleShutdown, end_if_abandoned, watch
from orchestrator.schedule.loans import Lending, Loan, WrongLoan
from orchestrator.schedule.worker import Worker
from orchestrator.training import engine_cache, process

POLL_SECONDS = 0.5
"""Interval of the checks for a dead borrower and for idle shutdown."""

Environment = Mapping[str, str | None]

_log = logging.getLogger(__name__)


class Host:
    """Interface of a warm worker to its process; the simulation replaces it."""

    def __init__(self) -> None:
        self._before, self._folder = dict(os.environ), Path.cwd()
        context = ray.get_runtime_context()
        self._self, self._name = context.current_actor, str(context.get_actor_name())

    def adopt(self, environment: Environment) -> None:
        """Set the environment of a driver."""
        ray_private.adopt(environment)
        engine_cache.keep().forget_files()

    def trainable(
        self, loan: str, environment: Environment, config: dict[str, Any], storage: Any
    ) -> _LentTrainable:
        """Return the trainable that serves a loan."""
        return _LentTrainable(loan, environment, config, storage)

    def restore(self) -> None:
        """Restore the environment and the working folder; only the engine stays."""
        os.environ.clear()
        os.environ.update(self._before)
        os.chdir(self._folder)

    def publish(self, borrower: str) -> None:
        """Publish the borrower of this process and its GPU; '' for none."""
        ray_private.publish_borrower(self._name, borrower)

    def end(self) -> None:
        """End this process."""
        ray.kill(self._self)

    def watch(self, look: Callable[[], None]) -> None:
        """Call a function every `POLL_SECONDS`."""
        watch(look, POLL_SECONDS)


class WarmWorker:
    """Actor of a warm worker: a trainable for Tune; drivers use the concurrency group `control`.

    Every call names its loan, and is refused if another loan is current; see `loans`.

    Args:
        loan: First loan, of the driver that creates the process.
        seconds: Idle timeout.
        code: Digest of the borrower's code; with other code than this process, the first loan is the last.
        has_device: Whether this process holds a GPU.
        host: Interface to the process.
    """

    def __init__(
        self,
        loan: Loan,
        seconds: float,
        code: str,
        *,
        has_device: bool = False,
        host: Host | None = None,
    ) -> None:
        self._rules = IdleShutdown(seconds if code == CODE else 0.0, has_device)
        self._host = Host() if host is None else host
        self._lock = threading.Lock()
        self._lending, self._idle_since = Lending(loan.id), time.monotonic()
        self._worker: _LentTrainable | None = None
        self._failure: BaseException | None = None
        self._belong(loan)
        self._host.watch(self._look)

    # ---------------------------------------------------------------- called by drivers, at any time

    @ray.method(concurrency_group="control")
    def claim(self, loan: Loan) -> bool:
        """Begin a loan; return False if this process is lent or about to exit, or the loan was withdrawn."""
        with self._lock:
            if not self._lending.claim(loan.id):
                return False
            self._belong(loan)
            return True

    @ray.method(concurrency_group="control")
    def return_unused(self, loan: str) -> None:
        """End an unused loan; one that has not begun never begins."""
        with self._lock:
            if self._lending.withdraw(loan):
                self._belong(None)
            elif self._lending.present == loan:
                _log.warning("loan %s cannot be returned: an attempt uses it", loan)

    @ray.method(concurrency_group="control")
    def make_room(self) -> None:
        """Exit if no driver has borrowed this process."""
        with self._lock:
            self._end_if_idle()

    # ---------------------------------------------------------------- called one after the other

    def begin(self, loan: str, environment: Environment, config: dict[str, Any], storage: Any) -> None:
        """Begin with the first trial of a loan; `reset` begins the others."""
        self._use(loan, environment)
        try:
            self._worker = self._host.trainable(loan, environment, config, storage)
            self._failure = None
        except BaseException as error:
            self._rest()
            self._failure = error
            raise

    def train(self, loan: str, attempt_id: str) -> Any:
        """Train an interval of an attempt and report, as in `ray.tune.Trainable`; so do the next methods."""
        trainable = self._lent(loan)
        if trainable.attempt_id != attempt_id:
            raise WrongLoan(f"attempt {attempt_id}", f"attempt {trainable.attempt_id}")
        return trainable.train()

    def reset(self, loan: str, new_config: dict[str, Any], storage: Any = None) -> Any:
        """Replace the ended assignment by the next one."""
        return self._lent(loan).reset(new_config, storage)

    def save(self, loan: str, checkpoint_dir: str | None = None) -> Any:
        """Save nothing; see `Worker.save_checkpoint`."""
        return self._lent(loan).save(checkpoint_dir)

    def get_auto_filled_metrics(self, loan: str, *arguments: Any, **named: Any) -> Any:
        """Return the metrics that Tune adds to a report."""
        return self._lent(loan).get_auto_filled_metrics(*arguments, **named)

    def stop(self, loan: str) -> None:
        """Free the slot. The driver ends the loan later, because Tune may still kill a stopped worker."""
        with self._lock:
            self._lending.check(loan)
        try:
            if self._worker is not None:
                self._worker.stop()
        finally:
            self._rest()

    def run(self, loan: str, environment: Environment, work: Callable[..., Any], *arguments: object) -> Any:
        """Return the result of `work`, called in the environment of a driver."""
        self._use(loan, environment)
        try:
            return work(*arguments)
        finally:
            self._rest()

    def _use(self, loan: str, environment: Environment) -> None:
        with self._lock:
            self._lending.use(loan)
        self._host.adopt(environment)

    def _lent(self, loan: str) -> _LentTrainable:
        with self._lock:
            self._lending.check(loan)
        if self._worker is None and self._failure is not None:
            must = "a warm worker must have begun an attempt before it is used"
            raise RuntimeError(must) from self._failure
        if self._worker is None:
            raise WrongLoan(f"{loan} before its first attempt", loan)  # the call of `begin` was lost
        return self._worker

    def _rest(self) -> None:
        """Reset the process after an attempt or other work; only the engine stays."""
        if self._worker is not None:
            process.forget(self._worker.channel)
        self._host.restore()
        with self._lock:
            self._worker = None
            self._lending.is_used = False

    def _belong(self, loan: Loan | None) -> None:
        """Set the borrower. The caller holds the lock, or is the only thread."""
        borrower = "" if loan is None else loan.borrower
        if self._rules.has_device:
            self._host.publish(borrower)
        self._borrower, self._idle_since = Holder.read(borrower), time.monotonic()
        if loan is not None:
            self._service = Holder.read(loan.service)

    # ---------------------------------------------------------------- its own end

    def _look(self) -> None:
        """Exit if the borrower is dead or the idle shutdown is due."""
        with self._lock:
            loan, borrower, idle_since = self._lending.present, self._borrower, self._idle_since
        if loan is not None:
            end_if_abandoned(borrower)
        elif self._rules.is_due(idle_since, self._service):
            with self._lock:
                self._end_if_idle()

    def _end_if_idle(self) -> None:
        """Exit unless a driver has borrowed this process. The caller holds the lock."""
        if self._lending.leave():
            self._host.end()


class _LentTrainable(Worker):
    """Trainable of a sweep in a warm worker."""

    def __init__(self, loan: str, environment: Environment, config: dict[str, Any], storage: Any) -> None:
        self._environment, self.loan = environment, loan
        super().__init__(config, storage)

    def setup(self, config: dict[str, Any]) -> None:  # type: ignore[override] # as Tune calls it
        """Store the first assignment."""
        super().setup(config, self._environment)

    @property
    def channel(self) -> Channel:
        """Channel of the sweep."""
        return self._assignment.channel

    @property
    def attempt_id(self) -> str:
        """Id of the current attempt."""
        return self._assignment.attempt_id
