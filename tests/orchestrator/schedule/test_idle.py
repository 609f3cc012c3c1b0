"""Idle shutdown of warm processes, by time and by memory, without a Ray."""

from __future__ import annotations

import time
from collections import namedtuple

import psutil
import pytest

from orchestrator.schedule.idle import IdleShutdown

Memory = namedtuple("Memory", ["available", "total"])


def has_memory(monkeypatch: pytest.MonkeyPatch, available: int) -> None:
    """Let this machine have so many of 100 bytes available."""
    monkeypatch.setattr(psutil, "virtual_memory", lambda: Memory(available, 100))


@pytest.mark.parametrize(("available", "leaves"), [(9, True), (10, False), (90, False)])
def test_an_idle_process_leaves_when_less_than_a_tenth_of_the_memory_is_available(
    monkeypatch: pytest.MonkeyPatch, available: int, leaves: bool
) -> None:
    has_memory(monkeypatch, available)
    rules = IdleShutdown(seconds=600.0, has_device=False)
    assert rules.is_due(time.monotonic(), None) is leaves
    assert rules.is_in_the_way(None) is leaves


def test_an_idle_process_leaves_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    has_memory(monkeypatch, 90)
    rules = IdleShutdown(seconds=600.0, has_device=False)
    assert rules.is_due(time.monotonic() - 601.0, None)
    assert not rules.is_due(time.monotonic() - 1.0, None)
