"""The client of sweeps: one protocol, with a backend over HTTP here and one in this process in `api`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.client import answers, http

__all__ = ["answers", "http"]


def __getattr__(name: str) -> Any:
    """Import a module of this package when it is first used: `list` must not wait for answers of others."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
