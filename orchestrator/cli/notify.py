"""Send a new best trial, a failed trial and the end of a sweep to a command or a webhook."""

from __future__ import annotations

import json
import queue
import shlex
import subprocess
import threading
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from orchestrator import Observer, Progress
from orchestrator.errors import BadInput, Exit

TIMEOUT_SECONDS = 10.0
_LAST_SECONDS = 15.0

Message = dict[str, Any]
"""What is sent, as one JSON object; `event` is `best`, `failed` or `ended`."""


def sender(target: str) -> Callable[[bytes], None]:
    """Return a function that sends bytes to a target, by POST or to the standard input of a command.

    Args:
        target: an http(s) address, or a command line.

    Raises:
        BadInput: the target is neither.
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
    """Sends messages from a thread of its own, so that a slow or failing target cannot hold up a sweep."""

    def __init__(self, target: str, warn: Callable[[str], None]) -> None:
        """Start the thread.

        Args:
            target: an http(s) address, or a command line.
            warn: called once with one line, at the first message that cannot be sent.

        Raises:
            BadInput: the target is neither.
        """
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
    """Passes everything on to another observer, and sends what has changed to a notifier.

    Attributes:
        observer: the other observer.
        notifier: where messages go.
        metric: name of the objective.
    """

    observer: Observer
    notifier: Notifier
    metric: str
    _before: Progress | None = field(default=None, init=False)

    def say(self, line: str) -> None:
        """Pass a message on."""
        self.observer.say(line)

    def loading(self, what: str, done: int, total: int) -> None:
        """Pass on how much of a data set has been prepared."""
        self.observer.loading(what, done, total)

    def show(self, progress: Progress) -> None:
        """Pass the progress on, and send what has changed since the first progress of this run."""
        before, self._before = self._before, progress
        if before is not None:
            for message in changes(before, progress, self.metric):
                self.notifier.send(message)
        self.observer.show(progress)

    def close(self) -> None:
        """Close the other observer."""
        self.observer.close()


def ended(sweep_id: str, code: Exit) -> Message:
    """Return the message about the end of a run.

    Args:
        sweep_id: of the sweep.
        code: with which the command ends.
    """
    return {"event": "ended", "sweep": sweep_id, "exit": int(code), "result": code.name.lower()}


def changes(before: Progress, now: Progress, metric: str) -> list[Message]:
    """Return the messages about what has changed between two moments of a sweep."""
    messages: list[Message] = []
    if now.best_value is not None and now.best_value != before.best_value:
        messages.append({"event": "best", "trial": now.best_key, "metric": metric, "value": now.best_value})
    failed = now.states.get("FAILED", 0)
    if failed > before.states.get("FAILED", 0):
        messages.append({"event": "failed", "failed": failed, "trials": now.wanted})
    return messages
