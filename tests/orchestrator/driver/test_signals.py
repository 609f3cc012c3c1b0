"""A signal interrupts a driver that starts, and asks one that runs trials for an orderly end."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from orchestrator.driver import signals


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_interrupts_a_driver_that_starts(name: str) -> None:
    before = signal.getsignal(signal.Signals[name])
    with pytest.raises(KeyboardInterrupt), signals.interruptible():
        os.kill(os.getpid(), signal.Signals[name])
    assert signal.getsignal(signal.Signals[name]) is before


def test_the_first_signal_asks_for_an_end_and_does_not_interrupt() -> None:
    received: list[str] = []
    with signals.interruptible(), signals.handled(received.append, lambda: None):
        os.kill(os.getpid(), signal.SIGTERM)
    assert received == ["SIGTERM"]


def test_handlers_that_another_library_installs_are_replaced_by_ours() -> None:
    with signals.interruptible():
        ours = signal.getsignal(signal.SIGTERM)
        with signals.preserved():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        assert signal.getsignal(signal.SIGTERM) is ours


def test_a_thread_that_is_not_the_main_one_leaves_the_handlers_alone() -> None:
    before = signal.getsignal(signal.SIGTERM)
    during: list[object] = []

    def drive() -> None:
        with signals.interruptible(), signals.handled(lambda name: None, lambda: None):
            during.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=drive)
    thread.start()
    thread.join()
    assert during == [before]
    assert signal.getsignal(signal.SIGTERM) is before
