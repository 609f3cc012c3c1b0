"""Ray Tune's search algorithm, seen from Tune: asks the session for the next attempt.

The Tuner pickles its search algorithm, so this object holds only the sweep's id; the session, with its
database connection, stays in a registry of the driver's process.
"""

from __future__ import annotations

import copy
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.experiment.config_parser import _create_trial_from_spec
from ray.tune.search import Searcher
from ray.tune.search.search_generator import SearchGenerator

from orchestrator.session.session import Session

_SESSIONS: dict[str, Session] = {}


def register(session: Session) -> None:
    """Make a session reachable for the search algorithm and the callback of its sweep."""
    _SESSIONS[session.sweep.id] = session


def forget(sweep_id: str) -> None:
    """Drop the session of a sweep that has ended."""
    _SESSIONS.pop(sweep_id, None)


def session_of(sweep_id: str) -> Session:
    """Return the live session of a sweep.

    Raises:
        KeyError: if no driver of this process runs that sweep.
    """
    return _SESSIONS[sweep_id]


class _NoSearcher(Searcher):
    """`SearchGenerator` insists on a searcher; the session proposes instead."""

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        return None

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        return None


class SessionSearch(SearchGenerator):
    """Create one Ray Tune trial for each attempt that the session wants to launch."""

    def __init__(self, sweep_id: str) -> None:
        super().__init__(_NoSearcher())
        self._sweep_id = sweep_id
        self._stopped = False

    def create_trial_if_possible(self, experiment_spec: dict[str, Any]) -> Trial | None:
        """Return a Ray Tune trial under the attempt's own id, or None if nothing is to be launched now."""
        assignment = session_of(self._sweep_id).next_assignment()
        if assignment is None:
            return None
        spec = copy.copy(experiment_spec)
        spec["config"] = assignment.to_config()
        return _create_trial_from_spec(
            spec, self._parser, trial_id=assignment.attempt_id, experiment_tag=assignment.attempt_id
        )

    def is_finished(self) -> bool:
        """Tell Tune whether no further attempt will ever come."""
        return self._stopped or session_of(self._sweep_id).finished

    def set_finished(self) -> None:
        """Propose nothing more: Tune is stopping the whole experiment."""
        self._stopped = True

    def get_state(self) -> dict[str, Any]:
        """Return nothing to keep: the ledger is the state."""
        return {}

    def save_to_dir(self, dirpath: str, session_str: str = "", **_: Any) -> None:
        """Write nothing: the ledger is the state."""
