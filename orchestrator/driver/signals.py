"""Signals of a driver: the first one asks every trial to save and stop, the second one ends the process.

Python installs and runs signal handlers in the main thread only. A driver in any other thread leaves the
handlers of its process as they are; a stop request ends it.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGINT, SIGTERM and SIGHUP raise KeyboardInterrupt: no trial runs yet that must be saved."""
    with _replaced(signal.default_int_handler):
        yield


@contextmanager
def handled(first: Callable[[str], None], last: Callable[[], None]) -> Iterator[None]:
    """Call `first` with the name of the first signal; at the second one, call `last` and exit with 130.

    Args:
        first: asks for an orderly end; must return at once.
        last: frees what would outlive this process.
    """
    received = 0

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal received
        received += 1
        if received == 1:
            first(signal.Signals(number).name)
            return
        last()
        os._exit(130)

    with _replaced(handle):
        yield


@contextmanager
def preserved() -> Iterator[None]:
    """Restore the handlers on exit, whatever the body has installed: Ray installs its own when it starts."""
    before = {name: signal.getsignal(name) for name in _SIGNALS}
    try:
        yield
    finally:
        _install(before)


@contextmanager
def _replaced(handler: Callable[[int, FrameType | None], Any]) -> Iterator[None]:
    with preserved():
        _install(dict.fromkeys(_SIGNALS, handler))
        yield


def _install(handlers: dict[signal.Signals, Any]) -> None:
    if threading.current_thread() is not threading.main_thread():
        return
    for name, handler in handlers.items():
        signal.signal(name, handler)
