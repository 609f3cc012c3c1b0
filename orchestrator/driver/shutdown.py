"""Orderly shutdown of a driver: it saves its trials and exits, within seconds in any case.

A signal only sets a flag, which the driver's loop reads between two steps. A separate thread receives the
signals, even while the main thread is blocked in a library call. It kills the process if the main thread
takes too long, or if the lease of the sweep is lost.

A driver outside the main thread of its process gets no signals; a stop request ends it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import NoReturn, TypeVar

from orchestrator.errors import Exit, Refusal
from orchestrator.system import SIGNALS, System, handled, interrupt

Result = TypeVar("Result")

GRACE_SECONDS = 6.0
"""Time limit for the main thread to save every trial and to record the end of the sweep."""

LAST_SECONDS = 1.0
"""Time limit for each of the last steps of a killed process: its ledger and children, then its output.

A process thus ends 8 s after a signal, within the promised 10 s even on a busy machine.
"""

POLL_SECONDS = 0.25
"""Time between two checks for a signal."""

LOSS_SECONDS = 0.5
"""Time between two checks for a loss, which take longer."""

_TWICE = 130  # the code of a shell for a program that SIGINT has ended


class Shutdown:
    """Watches for signals and losses, as a context manager, and limits the time of a shutdown.

    Example:

        with Shutdown() as shutdown:
            shutdown.at_the_end(lambda reason: record(reason))
            while shutdown.reason is None:
                work()

    Args:
        system: Clock, threads and signals of the process.
        poll_seconds: Interval of the checks for a signal.
        extra_seconds: Time beyond `GRACE_SECONDS` that the main thread may take.
        code: Exit code if the main thread takes longer.
        code_twice: Exit code at a second signal.
        remark: End of the line that is printed in both cases.

    Attributes:
        reason: Cause of the shutdown, such as the name of a signal; None before a request.
    """

    def __init__(
        self,
        system: System = System(),
        poll_seconds: float = POLL_SECONDS,
        *,
        extra_seconds: float = 0.0,
        code: int = Exit.RESUMABLE,
        code_twice: int = _TWICE,
        remark: str = "the same command resumes the sweep",
    ) -> None:
        self._system, self._poll_seconds, self._extra_seconds = system, poll_seconds, extra_seconds
        self._code, self._code_twice, self._remark = code, code_twice, remark
        self.reason: str | None = None
        self._received: SimpleQueue[str] = SimpleQueue()
        self._deadline = float("inf")
        self._last: Callable[[str], object] = lambda reason: None
        self._children: list[Callable[[], object]] = []
        self._lost: Callable[[], Refusal | None] = lambda: None
        self._over = system.event()
        self._ending = system.lock()
        self._signals = system.signals()
        self._thread = system.thread(self._watch, "shutdown")

    def __enter__(self) -> Shutdown:
        self._signals.catch()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        self._signals.release()

    def at_the_end(self, record: Callable[[str], object]) -> None:
        """Set the function that records the reason before the process is killed, within `LAST_SECONDS`."""
        self._last = record

    def kill_at_the_end(self, kill: Callable[[], object]) -> None:
        """Add a function that ends child processes before the process is killed."""
        self._children.append(kill)

    @contextmanager
    def unless(self, lost: Callable[[], Refusal | None]) -> Iterator[None]:
        """Within the `with` block, kill the process once `lost` returns an error.

        It is meant for losses, such as that of Ray, that block the main thread for ever or let a library kill
        it.
        """
        self._lost = lost
        try:
            yield
        finally:
            self._lost = lambda: None

    def request(self, reason: str) -> None:
        """Request the shutdown; the first reason is kept."""
        if self.reason is None:
            self._deadline = self._system.monotonic() + GRACE_SECONDS + self._extra_seconds
            self.reason = reason

    def check(self) -> None:
        """Raise KeyboardInterrupt if the shutdown was requested; only for places without running trials."""
        if self.reason is not None:
            raise KeyboardInterrupt(self.reason)

    def interruptible(
        self,
        call: Callable[[], Result],
        look: Callable[[], object] = lambda: None,
    ) -> Result:
        """Return the result of `call`, run in a thread that is abandoned at a shutdown.

        Args:
            call: Function that may block and may replace the signal handlers.
            look: Function that is called once a second meanwhile.

        Raises:
            KeyboardInterrupt: The shutdown was requested.
        """
        answers: SimpleQueue[tuple[Result | None, BaseException | None]] = SimpleQueue()

        def run() -> None:
            try:
                answers.put((call(), None))
            except BaseException as error:  # noqa: BLE001 - raised again in the calling thread
                answers.put((None, error))

        threading.Thread(target=run, daemon=True).start()
        looked = time.monotonic()
        while True:
            with suppress(Empty):
                result, error = answers.get(timeout=POLL_SECONDS)
                self._signals.install()
                if error is not None:
                    raise error
                return result  # type: ignore[return-value]
            self._signals.install()
            self.check()
            if time.monotonic() - looked > 1.0:
                look()
                looked = time.monotonic()

    def end(self, line: str, code: int | None = None, record: str | None = None) -> None:
        """Kill the process with one line and an exit code, whatever its other threads are doing.

        Args:
            line: Line to print.
            code: Exit code; None for the code of a late shutdown.
            record: Reason to record in the ledger; None if this process may no longer write to it.
        """
        last = [] if record is None else [partial(self._last, record)]
        with self._ending:
            self._briefly(*self._children, *last)
            self._briefly(lambda: self._system.print(line))  # the observer may be blocked
            self._system.exit(self._code if code is None else code)

    def _watch(self) -> None:
        looked_at = float("-inf")
        while not self._over.wait(self._poll_seconds):
            for name in self._signals.caught():
                if self.reason is not None:
                    self.end(f"{name}: left at once; {self._remark}.", self._code_twice, self.reason)
                self.request(name)
            now = self._system.monotonic()
            if now - looked_at >= LOSS_SECONDS:
                looked_at = now
                if (loss := self._lost()) is not None:
                    self.end(str(loss), record=f"the loss of {loss.where}")
            if now > self._deadline:
                seconds = GRACE_SECONDS + self._extra_seconds
                line = f"{self.reason}: left after {seconds:g} s; {self._remark}."
                self.end(line, record=self.reason)

    def _briefly(self, *steps: Callable[[], object]) -> None:
        """Run steps in parallel threads for at most `LAST_SECONDS`, and ignore their errors."""

        def run(step: Callable[[], object]) -> None:
            with suppress(Exception):
                step()

        until = self._system.monotonic() + LAST_SECONDS
        threads = [self._system.thread(partial(run, step), "last step") for step in steps]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, until - self._system.monotonic()))


def run_and_exit(
    run: Callable[[Sequence[str]], int], arguments: Sequence[str], interrupted: int = Exit.RESUMABLE
) -> NoReturn:
    """Run a command line that drives or serves sweeps, and exit with its code whatever signal comes.

    Before and after a driver, a signal has nothing to save, but must not end the process with a code of its
    own: a batch system would take a complete sweep for a crash, and systemd a stopped service for a failed
    one. Signals that this process ignores from the start, as under `nohup`, stay ignored.

    Args:
        run: Function that runs the command line and returns its exit code.
        arguments: Command line.
        interrupted: Exit code after a signal outside a driver and a service.
    """
    for name in handled():
        signal.signal(name, interrupt)
    try:
        code = run(arguments)
    except KeyboardInterrupt:
        code = interrupted
    exit_at_once(code)


def exit_at_once(code: int) -> NoReturn:
    """Exit immediately, skipping the interpreter's shutdown; signals no longer change the code.

    The sweep is over and its files are closed. The interpreter's shutdown would take a second and wait for
    every request that a service is still answering; meanwhile a signal can change the code, and threads of
    libraries have crashed.
    """
    for name in SIGNALS:
        signal.signal(name, signal.SIG_IGN)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # as of a process that was started without it
            with suppress(OSError, ValueError):  # its reader has gone
                stream.flush()
    os._exit(code)
