"""Idle timeout of warm processes."""

from __future__ import annotations

import os
from contextlib import suppress

import psutil

from orchestrator.errors import BadInput

WARM = "SWEEP_WARM"
"""Environment variable: idle timeout of warm processes in seconds."""

SERVICE = "SWEEP_WARM_SERVICE"
"""Environment variable: service of a driver, as `Holder.write` returns it. Idle engines end with it."""

WARM_SECONDS = 300.0
"""Idle timeout that the service sets."""

OWN_SECONDS = 20.0
"""Idle timeout of workers on processors without a service: until the end of their sweep, which evaluates its
best trial in the process that has compiled it. A new process takes as long as dozens of steps for that."""

RESERVE = 0.1
"""Share of free memory below which warm processes exit."""


def warm_seconds(default: float) -> float:
    """Return the idle timeout of warm processes in seconds; 0 keeps none.

    Args:
        default: Timeout if the environment sets none.

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
