"""Why a session launches nothing more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.ledger.records import SweepState, TrialState
from orchestrator.session.progress import SETTLED

HOPELESS_AFTER = 8
"""A sweep whose first settled trials, this many, have all failed is stopped: the next ones would fail too."""


@dataclass(frozen=True)
class Stop:
    """Why a session launches nothing more.

    Attributes:
        reason: for people.
        state: what the sweep then is: INTERRUPTED, PAUSED until somebody makes room, or COMPLETE.
    """

    reason: str
    state: SweepState


def hopeless(states: Iterable[TrialState]) -> bool:
    """Tell whether many trials have settled, and all have failed."""
    settled = Counter(state for state in states if state in SETTLED)
    return settled["FAILED"] >= HOPELESS_AFTER and settled["FAILED"] == settled.total()
