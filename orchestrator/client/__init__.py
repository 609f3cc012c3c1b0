"""Client of sweeps: one protocol with two backends, over HTTP (here) and in this process (`api`)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.client import answers, http

__all__ = ["answers", "http"]


def __getattr__(name: str) -> Any:
    """Import a submodule on first use, so that `list` does not wait for other answers."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
