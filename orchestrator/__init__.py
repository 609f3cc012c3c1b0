"""Hyperparameter sweeps that lose nothing: one search-space file, one command or one call.

>>> from orchestrator import Sweep
>>> Sweep.load("search_spaces/listops.yaml", profile="laptop").id
'listops-laptop-...'
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from orchestrator.errors import (
    BadData,
    BadInput,
    Busy,
    Damaged,
    DamagedCheckpoint,
    NoCluster,
    NoSpace,
    NoStore,
    Refusal,
)
from orchestrator.exits import Exit

if TYPE_CHECKING:
    from orchestrator.api.cluster import available
    from orchestrator.api.observer import Observer, Progress
    from orchestrator.api.status import Status, status, sweeps
    from orchestrator.api.sweep import Sweep
    from orchestrator.api.trial import Trial
    from orchestrator.api.upkeep import check, collect_garbage, recover

__all__ = [
    "BadData",
    "BadInput",
    "Busy",
    "Damaged",
    "DamagedCheckpoint",
    "Exit",
    "NoCluster",
    "NoSpace",
    "NoStore",
    "Observer",
    "Progress",
    "Refusal",
    "Status",
    "Sweep",
    "Trial",
    "available",
    "check",
    "collect_garbage",
    "recover",
    "status",
    "sweeps",
]

_MODULES = {
    "Observer": "observer",
    "Progress": "observer",
    "Status": "status",
    "Sweep": "sweep",
    "Trial": "trial",
    "available": "cluster",
    "check": "upkeep",
    "collect_garbage": "upkeep",
    "recover": "upkeep",
    "status": "status",
    "sweeps": "status",
}
"""Modules of `orchestrator.api` by the names they define, imported when a name is first used."""


def __getattr__(name: str) -> Any:
    """Import a name of the API when it is first used: workers and quick verbs need not wait for it."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"orchestrator.api.{_MODULES[name]}"), name)
