"""Kills orphaned actors: hung processes without a driver that keep a GPU which others wait for.

A process with a GPU exits with its driver, or later when anything waits for a GPU. A process that hangs or
was stopped (SIGSTOP) does neither, and Ray would wait for ever. Every driver whose trials use GPUs of this
machine therefore looks for orphans. It reads only what they have published, sends no requests, and leaves
processes with a living driver alone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import ray
from ray.exceptions import RayError, RpcError

from orchestrator.ledger.holder import Holder
from orchestrator.schedule import ray_private
from orchestrator.schedule.shared_worker import ENGINES
from orchestrator.schedule.warm_pool import WITH_GPU

HUNG_SECONDS = 10.0
"""Time limit for a process without a driver while something waits for a GPU; most end within 1 s."""

LOOK_SECONDS = 1.0
END_SECONDS = 2.0
"""Timeout for the last look when a driver ends."""


class Lookout:
    """Kills orphaned actors after a grace period.

    Args:
        say: Function that is called with a line about each killed process.
        seconds: Grace period.
    """

    def __init__(self, say: Callable[[str], None], seconds: float = HUNG_SECONDS) -> None:
        self._say, self._seconds = say, seconds
        self._since: dict[tuple[str, str], float] = {}

    def look(self) -> None:
        """Kill the orphaned actors whose grace period is over."""
        now = time.monotonic()
        staying = _without_driver() if ray_private.wants_gpu() else []
        self._since = {one: self._since.get(one, now) for one in staying}
        for (name, namespace), since in self._since.items():
            if now - since >= self._seconds:
                self._end(name, namespace)

    def _end(self, name: str, namespace: str) -> None:
        with suppress(ValueError):  # it has ended meanwhile
            actor = ray.get_actor(name, namespace=namespace)
            pid = ray_private.process_of(actor)
            ray.kill(actor)  # Ray kills the process after five seconds if it does not answer
            self._say(f"Process {pid} of an earlier sweep hangs: killed it to free its GPU.")


def _without_driver() -> list[tuple[str, str]]:
    """Return name and namespace of the orphaned actors."""
    actors = ray.util.list_named_actors(all_namespaces=True)
    named = [
        (actor["name"], actor["namespace"]) for actor in actors if actor["namespace"] in (ENGINES, WITH_GPU)
    ]
    return [one for one in named if _is_without_driver(ray_private.published_borrower(one[0]))]


def _is_without_driver(borrower: str | None) -> bool:
    if borrower is None:
        return False  # it still waits for its device
    holder = Holder.read(borrower)
    return borrower == "" or (holder is not None and holder.is_dead())


@contextmanager
def ended(say: Callable[[str], None], seconds: float = HUNG_SECONDS) -> Iterator[None]:
    """Kill orphaned actors within a `with` block, in which the Ray of this machine is joined.

    Another thread calls `say` with a line about each killed process.
    """
    lookout, over = Lookout(say, seconds), threading.Event()

    def run() -> None:
        while not over.wait(LOOK_SECONDS):
            with suppress(RayError, RpcError):  # the head does not answer
                lookout.look()

    thread = threading.Thread(target=run, name="hung processes", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(END_SECONDS)
