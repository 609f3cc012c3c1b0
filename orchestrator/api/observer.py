"""What a running sweep reports to the code that runs it."""

from __future__ import annotations

import logging

from orchestrator.session.board import Progress

__all__ = ["Observer", "Progress"]

_LOG = logging.getLogger("orchestrator")


class Observer:
    """Receives the messages and the progress of a sweep; a subclass overrides the methods it needs.

    The methods are called in the thread that runs the sweep, which waits for them.
    """

    def say(self, line: str) -> None:
        """Receive one message. Here: log it at level INFO under the name `orchestrator`."""
        _LOG.info(line)

    def loading(self, what: str, done: int, total: int) -> None:
        """Receive how much of a data set has been prepared. Here: do nothing."""

    def show(self, progress: Progress) -> None:
        """Receive the progress of the sweep, about twice a second. Here: do nothing."""

    def close(self) -> None:
        """Called once, when no trial runs any more. Here: do nothing."""
