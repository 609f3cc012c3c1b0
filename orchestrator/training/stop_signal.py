"""Whether this process was told to save its trials and go: by a signal, or by its sweep's driver.

A machine that is taken away says so with SIGTERM, and the minute or two that follow are for saving.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType

LOOK_SECONDS = 1.0

_told_to_go = threading.Event()
_asked_to_stop = threading.Event()


def watch(wished: Callable[[], bool]) -> None:
    """Heed SIGTERM, and look from time to time whether the driver wishes every trial to stop.

    Args:
        wished: tells whether it does; may raise while nobody can tell.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _go)
    threading.Thread(target=_look, args=(wished,), name="leave", daemon=True).start()


def asked() -> bool:
    """Tell whether trials are to be saved and left."""
    return _told_to_go.is_set() or _asked_to_stop.is_set()


def told_to_go() -> bool:
    """Tell whether this process will be ended, so that it must begin nothing more."""
    return _told_to_go.is_set()


def _go(number: int, frame: FrameType | None) -> None:
    _told_to_go.set()


def _look(wished: Callable[[], bool]) -> None:
    while True:
        try:
            stop = wished()
        except Exception:  # noqa: BLE001 - the head may be away; nobody wishes anything then
            stop = False
        _asked_to_stop.set() if stop else _asked_to_stop.clear()
        time.sleep(LOOK_SECONDS)
