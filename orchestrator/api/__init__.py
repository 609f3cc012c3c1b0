"""Python API of this machine, which `orchestrator` exports and the command line calls.

>>> from orchestrator import api
>>> api.status.sweeps(root="mlruns")  # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.api import (
        bill,
        clusters,
        findings,
        live,
        loaded_sweep,
        local_trial,
        maintenance,
        notice_admin,
        planning,
        priorities,
        replays,
        serving,
        user_admin,
    )

__all__ = [
    "bill",
    "clusters",
    "findings",
    "live",
    "loaded_sweep",
    "local_trial",
    "maintenance",
    "notice_admin",
    "planning",
    "priorities",
    "replays",
    "serving",
    "user_admin",
]


def __getattr__(name: str) -> Any:
    """Import a submodule on first use, so that `list` does not wait for the driver's checks."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
