"""The sweep service: specification, ledger, study, schedule, tracking, report.

>>> from orchestrator import Sweep
>>> Sweep.load("search_spaces/listops.yaml", profile="laptop").id
'listops-laptop-...'
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.api import Sweep

__all__ = ["Sweep"]


def __getattr__(name: str) -> Any:
    """Import `Sweep` when it is asked for: a verb that only looks must not wait for pandas and plotly."""
    if name != "Sweep":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from orchestrator.api import Sweep

    return Sweep
