"""Tell a command or a webhook of a new best trial, of a failed one and of the end of a sweep."""

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

from orchestrator.driver.admission import Watcher
from orchestrator.errors import BadInput
from orchestrator.session.board import Progress

_TIMEOUT_SECONDS = 10.0
_AT_THE_END_SECONDS = 15.0

News = dict[str, Any]
"""What is told, as one JSON object; `event` is `best`, `failed` or `ended`."""


def sender(target: str) -> Callable[[bytes], None]:
    """Return what sends a message to `target`: an http(s) address gets a POST, a command its standard input.

    Raises:
        BadInput: if the target is neither.
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
    with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS):
        pass


def _run(words: list[str], message: bytes) -> None:
    subprocess.run(words, input=message, check=True, capture_output=True, timeout=_TIMEOUT_SECONDS)


class Notifier:
    """Sends messages from a thread of its own: a sweep waits for none of them, and none can fail it."""

    def __init__(self, target: str, complain: Callable[[str], None]) -> None:
        """Start the thread.

        Args:
            target: an http(s) address, or a command line.
            complain: shows one line to a person; called once, at the first message that does not arrive.

        Raises:
            BadInput: if the target is neither.
        """
        self._send, self._complain, self._complained = sender(target), complain, False
        self._messages: queue.SimpleQueue[News | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="notify", daemon=True)
        self._thread.start()

    def tell(self, news: News) -> None:
        """Send a message soon."""
        self._messages.put(news)

    def close(self) -> None:
        """Wait a moment until everything is sent."""
        self._messages.put(None)
        self._thread.join(_AT_THE_END_SECONDS)

    def _work(self) -> None:
        while (news := self._messages.get()) is not None:
            try:
                self._send(json.dumps(news).encode())
            except (OSError, HTTPException, subprocess.SubprocessError) as error:
                if not self._complained:
                    # Not the error's text: it may hold the address, and an address may hold a secret.
                    self._complain(f"--notify: a message was not taken ({type(error).__name__}).")
                self._complained = True


@dataclass
class Notified:
    """Shows a sweep to a person, and passes on what is worth a message.

    Attributes:
        watcher: the person's view.
        notifier: where messages go.
        metric: name of the objective.
    """

    watcher: Watcher
    notifier: Notifier
    metric: str
    _seen: Progress | None = field(default=None, init=False)

    def say(self, line: str) -> None:
        """Show one line that stays."""
        self.watcher.say(line)

    def loading(self, what: str, done: int, total: int) -> None:
        """Show how far the data set is prepared."""
        self.watcher.loading(what, done, total)

    def show(self, progress: Progress) -> None:
        """Show where the sweep stands; what was so before this run is no news."""
        before, self._seen = self._seen, progress
        if before is not None:
            for news in changes(before, progress, self.metric):
                self.notifier.tell(news)
        self.watcher.show(progress)

    def close(self) -> None:
        """Stop redrawing."""
        self.watcher.close()


def changes(before: Progress, now: Progress, metric: str) -> list[News]:
    """Return what is worth a message between two looks at a sweep."""
    found: list[News] = []
    if now.best_value is not None and now.best_value != before.best_value:
        found.append({"event": "best", "trial": now.best_key, "metric": metric, "value": now.best_value})
    failed = now.states.get("FAILED", 0)
    if failed > before.states.get("FAILED", 0):
        found.append({"event": "failed", "failed": failed, "trials": now.wanted})
    return found
