"""Paths on this machine, and the checkpoint store that every node can reach."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.storage import store

__all__ = ["store"]


def __getattr__(name: str) -> Any:
    """Import a submodule on first use, because `validate` needs neither NumPy nor fsspec."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
