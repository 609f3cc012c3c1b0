"""Search-space files: from YAML to a frozen, validated sweep."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.config import strategy, trainable
    from orchestrator.config.resolve import from_dict, from_document, load
    from orchestrator.config.space import Distribution
    from orchestrator.config.sweep_config import Objective, SweepConfig

__all__ = [
    "Distribution",
    "Objective",
    "SweepConfig",
    "from_dict",
    "from_document",
    "load",
    "strategy",
    "trainable",
]

_MODULES = {
    "Distribution": "space",
    "Objective": "sweep_config",
    "SweepConfig": "sweep_config",
    "from_dict": "resolve",
    "from_document": "resolve",
    "load": "resolve",
}
"""Modules of this package by the names they define."""


def __getattr__(name: str) -> Any:
    """Import a name or a submodule on first use, so that `list`, which reads no file, need not wait."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_MODULES.get(name, name)}")
    return getattr(module, name) if name in _MODULES else module
