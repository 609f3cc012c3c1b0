"""How a driver leaves: in an orderly way when it is asked to, and in any case within seconds.

A signal only sets a flag, which the driver's loop reads between two steps. A thread of its own receives the
signals, even while the main thread is blocked in a call of a library, and ends the process if the main thread
does not. The same thread ends a process that has lost the lease of its sweep.

Python installs signal handlers in the main thread only. A driver in any other thread leaves the handlers of
its process as they are; a stop request ends it.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from types import FrameType, TracebackType
from typing import Any, TypeVar

from orchestrator.errors import Exit

Result = TypeVar("Result")

GRACE_SECONDS = 7.0
"""How long the main thread may take to leave: to save every trial, and to write the end of the sweep."""

LAST_SECONDS = 1.0
"""Longest time for each of the last steps of a process that is ended: its ledger, children and output."""

POLL_SECONDS = 0.1

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_TWICE = 130  # what a shell reports for a program that SIGINT has ended


class Departure:
    """Whether, why and since when a driver is to leave, held as a context manager.

    Attributes:
        reason: why, such as the name of a signal; None while the driver may go on.
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        self._received: SimpleQueue[str] = SimpleQueue()
        self._deadline = float("inf")
        self._last: Callable[[str], object] = lambda reason: None
        self._children: list[Callable[[], object]] = []
        self._before: dict[signal.Signals, Any] = {}
        self._over = threading.Event()
        self._ending = threading.Lock()
        self._pipe: tuple[int, int] | None = None
        self._thread = threading.Thread(target=self._watch, name="departure", daemon=True)

    def __enter__(self) -> Departure:
        if threading.current_thread() is threading.main_thread():
            reading, writing = os.pipe()
            os.set_blocking(writing, False)
            os.set_blocking(reading, False)
            self._pipe = (reading, writing)
            self._before = {name: signal.getsignal(name) for name in _SIGNALS}
            self._install()
            # The interpreter writes the number of each signal at once, whatever the main thread is doing.
            self._wakeup = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        if self._pipe is not None:
            signal.set_wakeup_fd(self._wakeup)
            for name, handler in self._before.items():
                signal.signal(name, handler)
            for end in self._pipe:
                os.close(end)

    def at_the_end(self, record: Callable[[str], object]) -> None:
        """Call `record` with the reason, for at most a second, before the process is ended."""
        self._last = record

    def kill_at_the_end(self, kill: Callable[[], object]) -> None:
        """Call `kill` before the process is ended: it ends processes that would outlive this one."""
        self._children.append(kill)

    def request(self, reason: str) -> None:
        """Ask the driver to leave within `GRACE_SECONDS`; the reason of the first call stands."""
        if self.reason is None:
            self._deadline = time.monotonic() + GRACE_SECONDS
            self.reason = reason

    def check(self) -> None:
        """Raise KeyboardInterrupt if the driver is to leave. Called where no running trial must be saved."""
        if self.reason is not None:
            raise KeyboardInterrupt(self.reason)

    def interruptible(
        self,
        call: Callable[[], Result],
        look: Callable[[], object] = lambda: None,
        *,
        poll_seconds: float = POLL_SECONDS,
    ) -> Result:
        """Return what `call` returns, from a thread that is abandoned when the driver is to leave.

        The thread lives until this context is left, because the kernel ends the processes of a local Ray
        together with the thread that has started them.

        Args:
            call: may block for any time, and may replace the signal handlers.
            look: called once a second meanwhile.
            poll_seconds: how soon a replaced handler is installed again.

        Raises:
            KeyboardInterrupt: the driver is to leave.
        """
        answers: SimpleQueue[tuple[Result | None, BaseException | None]] = SimpleQueue()

        def run() -> None:
            try:
                answers.put((call(), None))
            except BaseException as error:  # noqa: BLE001 - raised again in the calling thread
                answers.put((None, error))
            self._over.wait()

        threading.Thread(target=run, daemon=True).start()
        looked = time.monotonic()
        while True:
            with suppress(Empty):
                result, error = answers.get(timeout=poll_seconds)
                self._install()
                if error is not None:
                    raise error
                return result  # type: ignore[return-value]
            self._install()
            self.check()
            if time.monotonic() - looked > 1.0:
                look()
                looked = time.monotonic()

    def end(self, line: str, code: int = Exit.RESUMABLE) -> None:
        """End the process with one line and a code, whatever its other threads are doing; never return.

        The ledger is not written: this process may no longer write to it.
        """
        with self._ending:
            for kill in self._children:
                _briefly(kill)
            _briefly(lambda: print(line, flush=True))  # noqa: T201 - the observer may be blocked
            os._exit(code)

    def _install(self) -> None:
        if self._pipe is not None:
            for name in _SIGNALS:
                signal.signal(name, _noted)

    def _watch(self) -> None:
        while not self._over.wait(POLL_SECONDS):
            for name in self._signals():
                if self.reason is not None:
                    self.end(f"{name}: left at once.", _TWICE)
                self.request(name)
            if time.monotonic() > self._deadline:
                _briefly(partial(self._last, str(self.reason)))
                self.end(
                    f"{self.reason}: left after {GRACE_SECONDS:g} s; the same command resumes the sweep."
                )

    def _signals(self) -> list[str]:
        if self._pipe is None:
            return []
        with suppress(BlockingIOError):
            numbers = os.read(self._pipe[0], 64)
            return [signal.Signals(number).name for number in numbers if number in set(_SIGNALS)]
        return []


def _noted(number: int, frame: FrameType | None) -> None:
    """Do nothing: the interpreter has written the signal's number to the pipe already."""


def _briefly(step: Callable[[], object]) -> None:
    """Run a step in a thread for at most `LAST_SECONDS`, and ignore its errors."""

    def run() -> None:
        with suppress(Exception):
            step()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(LAST_SECONDS)
