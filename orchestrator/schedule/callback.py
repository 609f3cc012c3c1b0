"""Ray Tune's callbacks, seen from Tune: hand every outcome to the session."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import ray
from ray.tune import Callback
from ray.tune.experiment import Trial

from orchestrator.assignment import Outcome
from orchestrator.schedule.engines import Engines
from orchestrator.schedule.searcher import session_of
from orchestrator.session.session import Session

_CUT_OFF = "actor is temporarily unavailable"
"""What is said of a node's trials before it is declared dead; the death of a worker alone is told at once."""

_PHRASES = {
    "out of memory": ("running low on memory", "memory pressure"),
    "node lost": ("node has died", "node died", "node was dead", "NODE_DIED", "preempted", _CUT_OFF),
    "worker lost": ("The actor died", "The actor is dead", "worker process has died"),
}


class SessionCallback(Callback):
    """Tell the session what became of each attempt, and kill attempts that give no sign of life.

    Args:
        sweep_id: whose session to tell.
        deadline: seconds that an attempt may stay silent.
        tick: called at most every half second with the session, for progress and signals.
    """

    def __init__(self, sweep_id: str, deadline: float, tick: Callable[[Session], None]) -> None:
        self._sweep_id = sweep_id
        self._engines = Engines()
        self._deadline = deadline
        self._tick = tick
        self._ticked_at = 0.0

    def __getstate__(self) -> dict[str, Any]:
        return {"sweep_id": self._sweep_id}

    def on_trial_start(self, iteration: int, trials: list[Trial], trial: Trial, **_: Any) -> None:
        """Note that an attempt has found its place."""
        session_of(self._sweep_id).started(trial.trial_id)

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **_: Any
    ) -> None:
        """Commit an interval."""
        outcome = Outcome.from_result(result)
        if outcome.engine is not None:
            self._engines.note(trial.trial_id, outcome.engine)
        session_of(self._sweep_id).reported(trial.trial_id, outcome)

    def on_trial_complete(self, iteration: int, trials: list[Trial], trial: Trial, **_: Any) -> None:
        """Settle an attempt that ended in order."""
        self._engines.release(trial.trial_id)
        session_of(self._sweep_id).completed(trial.trial_id)
        forget_statistics(trial)

    def on_trial_error(self, iteration: int, trials: list[Trial], trial: Trial, **_: Any) -> None:
        """Settle or retry an attempt whose process died."""
        cause, message = cause_of(_error_text(trial))
        self._engines.release(trial.trial_id)
        session_of(self._sweep_id).failed(trial.trial_id, cause, message)
        forget_statistics(trial)

    def on_step_end(self, iteration: int, trials: list[Trial], **_: Any) -> None:
        """Look after deadlines and progress, at most twice a second."""
        now = time.monotonic()
        if now - self._ticked_at < 0.5:
            return
        self._ticked_at = now
        session = session_of(self._sweep_id)
        self._tick(session)
        for attempt_id in session.silent(self._deadline):
            self._kill(attempt_id, trials, session)

    def on_experiment_end(self, trials: list[Trial], **_: Any) -> None:
        """Let the engines leave: what comes after the search wants the devices."""
        self._engines.retire()

    def _kill(self, attempt_id: str, trials: list[Trial], session: Session) -> None:
        session.condemn(attempt_id, "hung")
        self._engines.kill(attempt_id)
        for trial in trials:
            actor = trial.temporary_state.ray_actor
            if trial.trial_id == attempt_id and actor is not None:
                ray.kill(actor)


def forget_statistics(trial: Trial) -> None:
    """Drop the running averages that Tune keeps of each metric of an attempt that has ended.

    They take 40 KiB an attempt and as much again in Tune's own state; the ledger has every report.
    """
    trial.run_metadata.metric_analysis, trial.run_metadata.metric_n_steps = {}, {}


def _error_text(trial: Trial) -> str:
    """Return what Ray wrote of a trial's end; the text file, for the pickled one is never loaded."""
    if trial.error_file is None:
        return "no error was recorded"
    with open(trial.error_file, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - Ray's own path string
        return file.read()


def cause_of(text: str) -> tuple[str, str]:
    """Return the cause and one line of Ray's description of a dead attempt.

    The phrases are those of Ray 2.60; its general advice names the OOM killer whatever has happened.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("Failure #")]
    message = lines[0] if lines else "no error was recorded"
    for cause, phrases in _PHRASES.items():
        if any(phrase in text for phrase in phrases):
            return cause, message
    return "error", message
