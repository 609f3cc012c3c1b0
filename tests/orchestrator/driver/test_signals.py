"""What a signal does depends on whether there is anything to save."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from orchestrator.driver import signals


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_driver_that_only_begins_breaks_off(name: str) -> None:
    before = signal.getsignal(signal.Signals[name])
    with pytest.raises(KeyboardInterrupt), signals.breaking_off():
        os.kill(os.getpid(), signal.Signals[name])
    assert signal.getsignal(signal.Signals[name]) is before


def test_the_first_signal_asks_and_does_not_break_off() -> None:
    asked: list[str] = []
    with signals.breaking_off(), signals.handled(asked.append, lambda: None):
        os.kill(os.getpid(), signal.SIGTERM)
    assert asked == ["SIGTERM"]


def test_a_thread_that_is_not_the_main_one_leaves_the_handlers_alone() -> None:
    before = signal.getsignal(signal.SIGTERM)
    during: list[object] = []

    def drive() -> None:
        with signals.breaking_off(), signals.handled(lambda name: None, lambda: None):
            during.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=drive)
    thread.start()
    thread.join()
    assert during == [before]
    assert signal.getsignal(signal.SIGTERM) is before
