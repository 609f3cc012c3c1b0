"""Signals of a driver: the first asks everybody to save and leave, the second ends the process group.

Python runs signal handlers in the main thread only. A driver in any other thread leaves the handlers of its
process as they are; a stop request ends it.
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
def breaking_off() -> Iterator[None]:
    """Let every signal that asks for an end raise KeyboardInterrupt: nothing runs yet that must be saved."""
    with _replaced(signal.default_int_handler):
        yield


@contextmanager
def handled(first: Callable[[str], None], last: Callable[[], None]) -> Iterator[None]:
    """Call `first` with the name of the first signal, and `last` and then leave at the second.

    Args:
        first: asks for an orderly end; must return at once.
        last: frees what would outlive this process.
    """
    seen = 0

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal seen
        seen += 1
        if seen == 1:
            first(signal.Signals(number).name)
            return
        last()
        os._exit(130)

    with _replaced(handle):
        yield


@contextmanager
def _replaced(handler: Callable[[int, FrameType | None], Any]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {name: signal.signal(name, handler) for name in _SIGNALS}
    try:
        yield
    finally:
        for name, previous in before.items():
            signal.signal(name, previous)
