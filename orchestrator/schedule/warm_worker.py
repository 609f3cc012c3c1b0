"""A worker process that outlives its sweep: JAX is imported, and the compiled programs stay in memory.

It is a detached actor of the Ray that sweeps share on this machine. The processors of a trial are held by
Tune's placement group, as always; a GPU is held by the process itself, as long as it lives, like that of an
engine (`engine_actor`): JAX gives its memory back only when the process ends. It belongs to one sweep at a
time, and keeps of it only its engine and data set, which the next one uses if it has the same static choice
and the same data. Drivers find it by its name, which holds a digest of the code, of the user's program and of
the environment; another version of the code never uses it. It ends with the process that has borrowed it, and
when it has not been borrowed for a while; one with a GPU ends for every reason for which an idle engine does.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ray

from orchestrator.ledger.holder import Holder
from orchestrator.ledger.keys import Channel
from orchestrator.schedule import ray_private
from orchestrator.schedule.imported_code import CODE
from orchestrator.schedule.leaving import Leaving, end_if_abandoned, watch
from orchestrator.schedule.worker import Worker
from orchestrator.training import engine_cache, process

POLL_SECONDS = 0.5
"""Time between two looks at whether the borrower lives, and whether an idle worker is to leave."""

Environment = Mapping[str, str | None]


class WarmWorker:
    """The process; Tune calls the methods of a trainable, and drivers those of the group `control`.

    Args:
        seconds: without a borrower after which it ends.
        code: digest of the borrower's code; a worker that has imported other code serves only this borrower.
        borrower: the driver that creates it, as `Holder.write` returns it.
        service: that has started this driver, in the same form, or ''; a worker with a GPU ends with it.
        has_device: whether this process holds a GPU.
    """

    def __init__(
        self, seconds: float, code: str, borrower: str, service: str = "", *, has_device: bool = False
    ) -> None:
        self._rules = Leaving(seconds if code == CODE else 0.0, has_device)
        self._before, self._folder = dict(os.environ), Path.cwd()
        self._lock = threading.Lock()
        self._idle_since, self._leaving = time.monotonic(), False
        self._worker: _Lent | None = None
        context = ray.get_runtime_context()
        self._self, self._name = context.current_actor, str(context.get_actor_name())
        self._belong(borrower, service)
        watch(self._look, POLL_SECONDS)

    # ---------------------------------------------------------------- called by drivers, at any time

    @ray.method(concurrency_group="control")
    def claim(self, borrower: str, service: str = "") -> bool:
        """Belong to a driver from now on, unless another one has this worker; return whether it does.

        Args:
            borrower: the driver.
            service: that has started it, or ''.
        """
        with self._lock:
            if self._borrower is not None or self._leaving:
                return False
            self._belong(borrower, service)
            return self._borrower is not None

    @ray.method(concurrency_group="control")
    def return_unused(self, borrower: str) -> None:
        """Belong to nobody again, if this driver has claimed the worker and has not used it."""
        with self._lock:
            if self._borrower == Holder.read(borrower) and self._worker is None:
                self._belong_to_nobody()

    @ray.method(concurrency_group="control")
    def make_room(self) -> None:
        """End this process if no driver has it."""
        with self._lock:
            self._end_if_idle()

    # ---------------------------------------------------------------- called one after the other

    def begin(self, environment: Environment, config: dict[str, Any], storage: Any) -> None:
        """Become the worker of a trial, and of those that follow by `reset`."""
        self._adopt(environment)
        self._worker = _Lent(environment, config, storage)

    def train(self) -> Any:
        """Train one interval and report; as all that follows, see `ray.tune.Trainable`."""
        return self._lent.train()

    def reset(self, new_config: dict[str, Any], storage: Any = None) -> Any:
        """Replace the assignment that has ended by the next one."""
        return self._lent.reset(new_config, storage)

    def save(self, checkpoint_dir: str | None = None) -> Any:
        """Save nothing; see `Worker.save_checkpoint`."""
        return self._lent.save(checkpoint_dir)

    def get_auto_filled_metrics(self, *arguments: Any, **named: Any) -> Any:
        """Return what Tune adds to a report."""
        return self._lent.get_auto_filled_metrics(*arguments, **named)

    def stop(self) -> None:
        """Free the slot, and belong to nobody."""
        try:
            self._lent.stop()
        finally:
            self._give_back()

    def run(self, environment: Environment, work: Callable[..., Any], *arguments: object) -> Any:
        """Return what `work` returns, and belong to nobody again."""
        self._adopt(environment)
        try:
            return work(*arguments)
        finally:
            self._give_back()

    def _adopt(self, environment: Environment) -> None:
        process.adopt(environment)
        engine_cache.keep().forget_files()

    @property
    def _lent(self) -> _Lent:
        if self._worker is None:
            raise RuntimeError("a warm worker must have begun an attempt before it is used")
        return self._worker

    def _give_back(self) -> None:
        """Keep nothing of the sweep but its engine."""
        if self._worker is not None:
            process.forget(self._worker.channel)
        os.environ.clear()
        os.environ.update(self._before)
        os.chdir(self._folder)
        with self._lock:
            self._worker = None
            self._belong_to_nobody()

    def _belong(self, borrower: str, service: str) -> None:
        """Belong to a driver; called with the lock, or before there is another thread."""
        if self._rules.has_device:
            ray_private.publish_borrower(self._name, borrower)
        self._borrower, self._service = Holder.read(borrower), Holder.read(service)

    def _belong_to_nobody(self) -> None:
        if self._rules.has_device:
            ray_private.publish_borrower(self._name, "")
        self._borrower, self._idle_since = None, time.monotonic()

    # ---------------------------------------------------------------- its own end

    def _look(self) -> None:
        """End this process with its borrower, or if it is idle and has no reason to stay."""
        with self._lock:
            borrower, idle_since = self._borrower, self._idle_since
        if borrower is not None:
            end_if_abandoned(borrower)
        elif self._rules.is_due(idle_since, self._service):
            with self._lock:
                self._end_if_idle()

    def _end_if_idle(self) -> None:
        """End this process unless a driver has it; called with the lock, so that none gets it meanwhile."""
        if self._borrower is None:
            self._leaving = True
            ray.kill(self._self)


class _Lent(Worker):
    """The trainable of a sweep in a warm worker."""

    def __init__(self, environment: Environment, config: dict[str, Any], storage: Any) -> None:
        self._environment = environment
        super().__init__(config, storage)

    def setup(self, config: dict[str, Any]) -> None:  # type: ignore[override] # as Tune calls it
        """Keep the first assignment."""
        super().setup(config, self._environment)

    @property
    def channel(self) -> Channel:
        """Channel of the sweep."""
        return self._assignment.channel
