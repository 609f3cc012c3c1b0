"""Notifications of a new best trial, a failed trial and the end, sent to a command or a webhook."""

from __future__ import annotations

import json
import queue
import shlex
import subprocess
import threading
import urllib.request
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from orchestrator.driver.log import Observer
from orchestrator.errors import BadInput, Exit, Refusal, exit_of
from orchestrator.session.board import Progress

NOTIFY = "SWEEP_NOTIFY"
"""Environment variable: default of `--notify`."""

TIMEOUT_SECONDS = 10.0
_LAST_SECONDS = 15.0

Message = dict[str, Any]
"""A JSON object; its `event` is `best`, `failed` or `ended`."""


def sender(target: str) -> Callable[[bytes], None]:
    """Return a function that sends bytes by POST to an http(s) address, or to a command's standard input.

    Raises:
        BadInput: The target is neither an address nor a command line.
    """
    if urlsplit(target).scheme in ("http", "https"):
        return lambda message: _post(target, message)
    try:
        words = shlex.split(target)
    except ValueError as error:
        words, got = [], f"{target} ({error})"
    else:
        got = target or "nothing"
    if not words:
        must = "must be an http(s) address or a command"
        raise BadInput("--notify", must, got, "For example --notify 'mail -s sweep me@example.org'.")
    return lambda message: _run(words, message)


def _post(address: str, message: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(address, message, headers)
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS):
        pass


def _run(words: list[str], message: bytes) -> None:
    subprocess.run(words, input=message, check=True, capture_output=True, timeout=TIMEOUT_SECONDS)


class Notifier:
    """Sends messages in its own thread, so that a slow or failing target does not delay the sweep.

    The first failure is reported by `warn`.

    Raises:
        BadInput: The target is neither an http(s) address nor a command line.
    """

    def __init__(self, target: str, warn: Callable[[str], None]) -> None:
        self._send, self._warn, self._warned = sender(target), warn, False
        self._messages: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="notify", daemon=True)
        self._thread.start()

    def send(self, message: Message) -> None:
        """Queue a message and return at once."""
        self._messages.put(message)

    def close(self) -> None:
        """Wait until every message has been sent, at most 15 s."""
        self._messages.put(None)
        self._thread.join(_LAST_SECONDS)

    def _work(self) -> None:
        while (message := self._messages.get()) is not None:
            try:
                self._send(json.dumps(message).encode())
            except (OSError, HTTPException, subprocess.SubprocessError) as error:
                if not self._warned:
                    # The error's text may hold the address, and the address a secret.
                    self._warn(f"--notify: a message could not be sent ({type(error).__name__}).")
                self._warned = True


@dataclass
class Notified(Observer):
    """Passes everything on to another observer, and sends changes to a notifier.

    Attributes:
        observer: Other observer.
        notifier: Sender of the messages.
        metric: Name of the objective.
    """

    observer: Observer
    notifier: Notifier
    metric: str
    _before: Progress | None = field(default=None, init=False)

    def say(self, line: str) -> None:
        self.observer.say(line)

    def loading(self, what: str, done: int, total: int) -> None:
        self.observer.loading(what, done, total)

    def show(self, progress: Progress) -> None:
        """Pass the progress on, and send the changes since the first progress of this run."""
        before, self._before = self._before, progress
        if before is not None:
            for message in changes(before, progress, self.metric):
                self.notifier.send(message)
        self.observer.show(progress)

    def close(self) -> None:
        self.observer.close()


def run_notified(
    target: str | None, sweep_id: str, metric: str, observer: Observer, run: Callable[[Observer], Exit]
) -> Exit:
    """Run a sweep with `run`, and send its changes and its end to a target; None sends nothing.

    Raises:
        BadInput: The target is neither an http(s) address nor a command line.
    """
    if target is None:
        return run(observer)
    with closing(Notifier(target, observer.say)) as notifier:
        try:
            code = run(Notified(observer, notifier, metric))
        except Refusal as refusal:
            notifier.send(ended(sweep_id, exit_of(refusal)))
            raise
        notifier.send(ended(sweep_id, code))
    return code


def ended(sweep_id: str, code: Exit) -> Message:
    """Return the message about the end of a run with an exit code."""
    return {"event": "ended", "sweep": sweep_id, "exit": int(code), "result": code.name.lower()}


def changes(before: Progress, now: Progress, metric: str) -> list[Message]:
    """Return the messages about the changes between two moments of a sweep."""
    messages: list[Message] = []
    if now.best_value is not None and now.best_value != before.best_value:
        messages.append({"event": "best", "trial": now.best_key, "metric": metric, "value": now.best_value})
    failed = now.states.get("FAILED", 0)
    if failed > before.states.get("FAILED", 0):
        messages.append({"event": "failed", "failed": failed, "trials": now.wanted})
    return messages
