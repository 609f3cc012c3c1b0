"""Notifications of a new best trial, failed trials and the end, which a driver sends to one target."""

from __future__ import annotations

import queue
import subprocess
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from http.client import HTTPException
from smtplib import SMTPException

from orchestrator.driver.log import Observer
from orchestrator.driver.notice_targets import Message, sender
from orchestrator.errors import BadInput, Exit, Refusal, exit_of
from orchestrator.session.board import Progress

LAST_SECONDS = 15.0
"""Longest wait for a slow target at the end of a run."""

MOST_WAITING = 100
"""Largest number of messages that wait for a slow target; further ones are lost."""

FAILURES = (OSError, HTTPException, SMTPException, subprocess.SubprocessError, BadInput)
"""Errors of a message that could not be sent."""


class Notifier:
    """Sends messages in its own thread, so that a slow or failing target does not delay the sweep.

    The first failure is reported by `warn`.

    Args:
        target: The target.
        warn: Function that receives a line about the first failure.
        restricted: Whether the target is restricted, as in `sender`.

    Raises:
        BadInput: The target has none of the forms.
        NotAllowed: The target is restricted.
    """

    def __init__(self, target: str, warn: Callable[[str], None], *, restricted: bool = False) -> None:
        self._send, self._warn, self._warned = sender(target, restricted=restricted), warn, False
        self._messages: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="notify", daemon=True)
        self._thread.start()

    def send(self, message: Message) -> None:
        """Queue a message and return at once; it is lost if `MOST_WAITING` others wait."""
        if self._messages.qsize() < MOST_WAITING:
            self._messages.put(message)

    def close(self, seconds: float = LAST_SECONDS) -> None:
        """Wait until every message has been sent, at most for a time in seconds."""
        self._messages.put(None)
        self._thread.join(seconds)

    def _work(self) -> None:
        while (message := self._messages.get()) is not None:
            try:
                self._send(message)
            except FAILURES as error:
                if not self._warned:
                    # The error's text may hold the address, and the address a secret.
                    reason = str(error) if isinstance(error, BadInput) else type(error).__name__
                    self._warn(f"--notify: a message could not be sent ({reason}).")
                self._warned = True


@dataclass(frozen=True)
class Seen:
    """Snapshot of what notifications report about a sweep.

    Attributes:
        best_key: Key of the best trial so far, or None.
        best_value: Its value, or None.
        failed: Number of failed trials.
        trials: Expected number of trials at the end.
        stuck: Keys of running trials that have not reported for much longer than usual.
    """

    best_key: str | None = None
    best_value: float | None = None
    failed: int = 0
    trials: int = 0
    stuck: frozenset[str] = frozenset()

    @classmethod
    def of(cls, progress: Progress) -> Seen:
        """Return the snapshot of a sweep's progress."""
        failed = progress.states.get("FAILED", 0)
        return cls(progress.best_key, progress.best_value, failed, progress.wanted)


@dataclass
class Notified(Observer):
    """Passes everything on to another observer, and sends changes to a notifier.

    Attributes:
        observer: Other observer.
        notifier: Sender of the messages.
        sweep_id: ID of the sweep.
        metric: Name of the objective.
    """

    observer: Observer
    notifier: Notifier
    sweep_id: str
    metric: str
    _before: Seen | None = field(default=None, init=False)

    def say(self, line: str) -> None:
        self.observer.say(line)

    def loading(self, what: str, done: int, total: int) -> None:
        self.observer.loading(what, done, total)

    def show(self, progress: Progress) -> None:
        """Pass the progress on, and send the changes since the first progress of this run."""
        before, self._before = self._before, Seen.of(progress)
        if before is not None:
            for message in changes(self.sweep_id, self.metric, before, self._before):
                self.notifier.send(message)
        self.observer.show(progress)

    def close(self) -> None:
        self.observer.close()


def run_notified(
    target: str | None, sweep_id: str, metric: str, observer: Observer, run: Callable[[Observer], Exit]
) -> Exit:
    """Run a sweep with `run`, and send its changes and its end to a target; None sends nothing.

    Raises:
        BadInput: The target has none of the forms of `notice_targets`.
    """
    if target is None:
        return run(observer)
    with closing(Notifier(target, observer.say)) as notifier:
        try:
            code = run(Notified(observer, notifier, sweep_id, metric))
        except Refusal as refusal:
            notifier.send(ended(sweep_id, exit_of(refusal)))
            raise
        notifier.send(ended(sweep_id, code))
    return code


def ended(sweep_id: str, code: Exit) -> Message:
    """Return the message about the end of a run with an exit code."""
    return {"event": "ended", "sweep": sweep_id, "exit": int(code), "result": code.name.lower()}


def changes(sweep_id: str, metric: str, before: Seen, now: Seen) -> list[Message]:
    """Return the messages about the changes between two moments of a sweep.

    Args:
        sweep_id: ID of the sweep.
        metric: Name of the objective.
        before: Earlier moment.
        now: Later moment.
    """
    messages: list[Message] = []
    if now.best_value is not None and now.best_value != before.best_value:
        best = {"trial": now.best_key, "metric": metric, "value": now.best_value}
        messages.append({"event": "best", "sweep": sweep_id, **best})
    if now.failed > before.failed:
        messages.append({"event": "failed", "sweep": sweep_id, "failed": now.failed, "trials": now.trials})
    if stuck := sorted(now.stuck - before.stuck):
        messages.append({"event": "stuck", "sweep": sweep_id, "trials": stuck})
    return messages
