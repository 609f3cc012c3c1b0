"""Adapters between a session and Ray Tune: a search algorithm, a stopper and a callback.

Tune pickles them, so they hold only the id of their sweep. The session, with its database connection, is in a
registry of the driver's process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from ray.tune import Callback
from ray.tune.experiment import Experiment, Trial
from ray.tune.progress_reporter import TrialProgressCallback
from ray.tune.search import SearchAlgorithm
from ray.tune.stopper import Stopper

from orchestrator.assignment import Assignment, Outcome, shown_as
from orchestrator.schedule import ray_private
from orchestrator.schedule.engines import Engines
from orchestrator.schedule.loans import WRONG_LOAN
from orchestrator.session.attempts import not_finite
from orchestrator.session.session import Session

TICK_SECONDS = 0.5
"""Shortest time between two ticks."""

_SESSIONS: dict[str, Session] = {}
_ENGINES: dict[str, Engines] = {}
_TICKERS: dict[str, Ticker] = {}
_PLACING: dict[str, Callable[[Assignment], Assignment]] = {}


class Ticker:
    """Calls `tick(session)` at most every `TICK_SECONDS`, less often if Tune is busy."""

    def __init__(self, tick: Callable[[Session], None], session: Session) -> None:
        self._tick, self._session = tick, session
        self._ticked_at = float("-inf")

    def __call__(self) -> bool:
        """Tick if it is time; return True if so."""
        now = time.monotonic()
        if now - self._ticked_at < TICK_SECONDS:
            return False
        self._ticked_at = now
        self._tick(self._session)
        return True


def _anywhere(assignment: Assignment) -> Assignment:
    return assignment


@contextmanager
def registered(
    session: Session,
    engines: Engines,
    tick: Callable[[Session], None] = lambda _: None,
    place: Callable[[Assignment], Assignment] = _anywhere,
) -> Iterator[None]:
    """Register a session and its engines for the search algorithm, the stopper and the callback.

    Args:
        session: Session of the sweep.
        engines: Engines of the sweep.
        tick: Function that is called with the session every `TICK_SECONDS`, less often if Tune is busy.
        place: Function that adds the nodes to avoid to an assignment.
    """
    sweep_id = session.sweep.id
    _SESSIONS[sweep_id], _ENGINES[sweep_id] = session, engines
    _TICKERS[sweep_id], _PLACING[sweep_id] = Ticker(tick, session), place
    try:
        yield
    finally:
        del _SESSIONS[sweep_id], _ENGINES[sweep_id], _TICKERS[sweep_id], _PLACING[sweep_id]


def session_of(sweep_id: str) -> Session:
    """Return the registered session of a sweep.

    Raises:
        KeyError: No driver of this process runs that sweep.
    """
    return _SESSIONS[sweep_id]


def engines_of(sweep_id: str) -> Engines:
    """Return the registered engines of a sweep; see `session_of`."""
    return _ENGINES[sweep_id]


class SessionSearch(SearchAlgorithm):
    """Search algorithm of Ray Tune that creates one Tune trial for each attempt of a session."""

    def __init__(self, sweep_id: str) -> None:
        self._sweep_id = sweep_id
        self._experiment: Experiment | None = None
        self._finished = False

    def add_configurations(self, experiments: Any) -> None:
        """Store the experiment; Tune calls this once with a list of one."""
        (self._experiment,) = experiments

    def next_trial(self) -> Trial | None:
        """Return a Tune trial with the id of the next attempt, or None if nothing can be launched now.

        While no trial runs, Tune calls only this method, once a second, so it also ticks.
        """
        _TICKERS[self._sweep_id]()
        experiment = self._experiment
        assert experiment is not None, "Tune adds the experiment before it asks for trials"
        if self.is_finished() or (assignment := session_of(self._sweep_id).next_assignment()) is None:
            return None
        seated = engines_of(self._sweep_id).seat(_PLACING[self._sweep_id](assignment))
        return Trial(
            experiment.run_identifier,
            config=seated.to_config(),
            trial_id=assignment.attempt_id,
            experiment_tag=assignment.attempt_id,
            storage=experiment.storage,
            checkpoint_config=experiment.checkpoint_config,
        )

    def is_finished(self) -> bool:
        """Return True if no further attempt will ever be launched."""
        return self._finished or session_of(self._sweep_id).finished

    def set_finished(self) -> None:
        """Launch nothing more; Tune calls this when it stops the whole experiment."""
        self._finished = True


class SessionStopper(Stopper):
    """Ends the attempts of a stopping session at their next report, and the experiment after the last one.

    It also ends an attempt that is shed for another sweep, and one whose objective is not finite. Tune asks
    the stopper before the scheduler, and hides from the scheduler a report at which the stopper ends an
    attempt: `KeyedScheduler` replays it.
    """

    def __init__(self, sweep_id: str) -> None:
        self._sweep_id = sweep_id

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Return True if the session is stopping or sheds the attempt, or an objective is not finite."""
        if result["training"]:
            return False  # its progress is not saved yet
        session = session_of(self._sweep_id)
        shown = map(shown_as, session.sweep.finite_metrics)
        if session.stopped is not None or not_finite(result, *shown):
            return True
        is_report = not result["queued"] and not result["done"]
        return is_report and session.sheds(trial_id)

    def stop_all(self) -> bool:
        """Return True if the session is stopping and no attempt runs."""
        session = session_of(self._sweep_id)
        return session.stopped is not None and not session.running


class SessionCallback(Callback):
    """Passes the events of each attempt on to the session, and kills silent attempts.

    Args:
        sweep_id: Id of the session's sweep.
        deadline: Seconds without progress or report after which an attempt is killed.
    """

    def __init__(self, sweep_id: str, deadline: float) -> None:
        self._sweep_id = sweep_id
        self._deadline = deadline

    def __getstate__(self) -> dict[str, Any]:
        return {"sweep_id": self._sweep_id}

    def on_trial_start(self, iteration: int, trials: list[Trial], trial: Trial, **_: Any) -> None:
        """Report that a worker has taken an attempt, unless its engine still needs a device."""
        if not self._engines.ensure(trial.trial_id):
            session_of(self._sweep_id).started(trial.trial_id)

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **_: Any
    ) -> None:
        """Report an outcome."""
        outcome, session = Outcome.from_result(result), session_of(self._sweep_id)
        if outcome.queued and outcome.engine is None:
            self._engines.ensure(trial.trial_id)
            # An attempt that waits for its first engine has not started; one that has lost its engine has.
            if (run := session.running.get(trial.trial_id)) is not None and run.started:
                session.reported(trial.trial_id, outcome)
            return
        if outcome.queued:
            self._engines.entered(trial.trial_id)
        if outcome.alone or outcome.metrics:
            self._engines.tested(trial.trial_id, alone=outcome.alone)
        cause = self._engines.cause_of(trial.trial_id, outcome.failure)
        session.reported(trial.trial_id, replace(outcome, failure=cause))

    def on_trial_complete(self, iteration: int, trials: list[Trial], trial: Trial, **_: Any) -> None:
        """Report the end of an attempt whose process lives."""
        self._engines.release(trial.trial_id)
        session_of(self._sweep_id).completed(trial.trial_id)

    def on_trial_error(self, iteration: int, trials: list[Trial], trial: Trial, **_: Any) -> None:
        """Report an attempt whose process has died."""
        session = session_of(self._sweep_id)
        text = _error_text(trial)
        cause, message = ray_private.cause_of_death(text)
        if WRONG_LOAN in text:
            cause = session.refuse(trial.trial_id, message)
        elif cause == "worker lost":
            message = " ".join(filter(None, (message, ray_private.last_words(text))))
        if cause in ray_private.DEATHS_OF_A_PROCESS and self._engines.engine_of(trial.trial_id) is not None:
            again = session.has_lost_its_slot(trial.trial_id)
            cause = self._engines.cause_of_lost_worker(trial.trial_id, again=again)
        self._engines.release(trial.trial_id)
        session.failed(trial.trial_id, cause, message)

    def on_step_end(self, iteration: int, trials: list[Trial], **_: Any) -> None:
        """Tick, and kill silent attempts."""
        if not _TICKERS[self._sweep_id]():
            return
        session = session_of(self._sweep_id)
        for attempt_id in session.silent(self._deadline):
            self._kill(attempt_id, trials, session)

    def on_experiment_end(self, trials: list[Trial], **_: Any) -> None:
        """Retire the engines; keep one if the test split is evaluated next."""
        session = session_of(self._sweep_id)
        over = session.stopped is None or session.stopped.state == "COMPLETE"
        if over and session.sweep.evaluates_test:
            self._engines.retire_but_one()
        else:
            self._engines.retire()

    @property
    def _engines(self) -> Engines:
        return engines_of(self._sweep_id)

    def _kill(self, attempt_id: str, trials: list[Trial], session: Session) -> None:
        session.condemn(attempt_id, self._engines.kill(attempt_id))
        if self._engines.workers.give_up(attempt_id):
            return
        for trial in trials:
            if trial.trial_id == attempt_id and (actor := ray_private.actor_of(trial)) is not None:
                ray.kill(actor)


class NoProgress(TrialProgressCallback):
    """Prints nothing. Tune's own, which it adds otherwise, also keeps every trial with its last result."""

    def on_trial_result(self, *_: Any, **__: Any) -> None:
        """Ignore a result."""

    def on_trial_complete(self, *_: Any, **__: Any) -> None:
        """Ignore the end of a trial."""

    def on_trial_error(self, *_: Any, **__: Any) -> None:
        """Ignore a failed trial."""


def _error_text(trial: Trial) -> str:
    """Return the text of a trial's error file; the pickled error is never loaded."""
    if trial.error_file is None:
        return "no error was recorded"
    return Path(trial.error_file).read_text(encoding="utf-8", errors="replace")
