"""The memory of this machine, for processes that are only kept because they save time."""

from __future__ import annotations

import psutil

RESERVE = 0.1
"""Share of the memory below which processes that only save time make room."""


def is_short() -> bool:
    """Return True if less than a tenth of this machine's memory is available."""
    memory = psutil.virtual_memory()
    return memory.available < RESERVE * memory.total
