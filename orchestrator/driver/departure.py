"""How a driver leaves: in an orderly way when it is asked to, and in any case within seconds.

A signal only sets a flag, which the driver's loop reads between two steps. A thread of its own receives the
signals, even while the main thread is blocked in a call of a library, and ends the process if the main thread
does not. The same thread ends a process that has lost the lease of its sweep.

A driver that does not run in the main thread of its process gets no signals; a stop request ends it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import TypeVar

from orchestrator.errors import Exit, Refusal
from orchestrator.system import System

Result = TypeVar("Result")

GRACE_SECONDS = 6.0
"""How long the main thread may take to leave: to save every trial, and to write the end of the sweep."""

LAST_SECONDS = 1.0
"""Longest time for the last steps of a process that is ended: its ledger and children, then its output.

A process has thus ended 8 s after a signal, which leaves a busy machine 2 s of the 10 that are promised.
"""

POLL_SECONDS = 0.25
"""Time between two looks for a signal."""

LOSS_SECONDS = 0.5
"""Time between two looks for a loss, which take longer."""

_TWICE = 130  # what a shell reports for a program that SIGINT has ended


class Departure:
    """Whether, why and since when a driver is to leave, held as a context manager.

    Args:
        system: of the driver's process.
        poll_seconds: time between two looks for a signal.
        extra_seconds: for which the main thread may take longer than `GRACE_SECONDS` to leave.
        code: of the exit if the main thread takes longer still.
        code_twice: of the exit at a second signal.
        remark: what the line that is printed in both cases says about the rest.

    Attributes:
        reason: why, such as the name of a signal; None while the driver may go on.
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
        self._thread = system.thread(self._watch, "departure")

    def __enter__(self) -> Departure:
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
        """Call `record` with the reason, for at most `LAST_SECONDS`, before the process is ended."""
        self._last = record

    def kill_at_the_end(self, kill: Callable[[], object]) -> None:
        """Call `kill` before the process is ended: it ends processes that would outlive this one."""
        self._children.append(kill)

    @contextmanager
    def unless(self, lost: Callable[[], Refusal | None]) -> Iterator[None]:
        """End the process once `lost` returns a refusal, until the `with` block is left.

        For the loss of something without which the main thread may block for ever, or be ended by a library.
        """
        self._lost = lost
        try:
            yield
        finally:
            self._lost = lambda: None

    def request(self, reason: str) -> None:
        """Ask the driver to leave in time; the reason of the first call stands."""
        if self.reason is None:
            self._deadline = self._system.monotonic() + GRACE_SECONDS + self._extra_seconds
            self.reason = reason

    def check(self) -> None:
        """Raise KeyboardInterrupt if the driver is to leave. Called where no running trial must be saved."""
        if self.reason is not None:
            raise KeyboardInterrupt(self.reason)

    def interruptible(
        self,
        call: Callable[[], Result],
        look: Callable[[], object] = lambda: None,
    ) -> Result:
        """Return what `call` returns, from a thread that is abandoned when the driver is to leave.

        Args:
            call: may block for any time, and may replace the signal handlers.
            look: called once a second meanwhile.

        Raises:
            KeyboardInterrupt: the driver is to leave.
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
        """End the process with one line and a code, whatever its other threads are doing; never return.

        Args:
            line: printed at the end.
            code: of the exit; None for that of a late end.
            record: the reason to record in the ledger; None if this process may no longer write to it.
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
        """Run steps side by side, in threads, for at most `LAST_SECONDS`, and ignore their errors."""

        def run(step: Callable[[], object]) -> None:
            with suppress(Exception):
                step()

        until = self._system.monotonic() + LAST_SECONDS
        threads = [self._system.thread(partial(run, step), "last step") for step in steps]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, until - self._system.monotonic()))
