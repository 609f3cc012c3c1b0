"""Idle timeout of warm processes."""

from __future__ import annotations

import os
from contextlib import suppress

import psutil

from orchestrator.errors import BadInput

WARM = "SWEEP_WARM"
"""Environment variable: seconds without a sweep for which a process is kept that only saves time."""

SERVICE = "SWEEP_WARM_SERVICE"
"""Environment variable: the service that has started a driver, as `Holder.write` returns it. With it idle
engines end."""

WARM_SECONDS = 300.0
"""Idle timeout that the service sets; without a service nothing is kept by default."""

RESERVE = 0.1
"""Share of the memory below which processes that only save time make room."""


def warm_seconds(default: float) -> float:
    """Return the idle timeout of warm processes in seconds; 0 keeps none.

    Args:
        default: Seconds if the environment does not say.

    Raises:
        BadInput: `SWEEP_WARM` is not a number of seconds.
    """
    text = os.environ.get(WARM) or str(default)
    with suppress(ValueError):
        if (seconds := float(text)) >= 0:
            return seconds
    raise BadInput(
        WARM, "must be a number of seconds, at least 0", repr(text), "Write 0 to keep no idle processes."
    )


def memory_is_short() -> bool:
    """Return True if less than a tenth of this machine's memory is available."""
    memory = psutil.virtual_memory()
    return bool(memory.available < RESERVE * memory.total)
