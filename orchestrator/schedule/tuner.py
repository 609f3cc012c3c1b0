"""Run the attempts of one session under Ray Tune until none is left."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from ray import tune
from ray.tune import TuneError
from ray.tune.stopper import Stopper

from orchestrator.ledger.records import ReportRecord
from orchestrator.schedule import schedulers, wish
from orchestrator.schedule import searcher as search
from orchestrator.schedule.callback import SessionCallback
from orchestrator.schedule.keyed import histories
from orchestrator.schedule.view import View
from orchestrator.schedule.worker import Worker
from orchestrator.session.session import Session
from trainables.errors import Refusal


def refusal_behind(error: BaseException) -> Refusal | None:
    """Return what the ledger refused in a callback; Tune makes a text of whatever is raised there."""
    before = error.__cause__ or error.__context__
    return before if isinstance(before, Refusal) or before is None else refusal_behind(before)


class _SessionStopper(Stopper):
    """End each attempt of a stopping session at its next report, and the experiment after the last one."""

    def __init__(self, sweep_id: str) -> None:
        self._sweep_id = sweep_id

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return search.session_of(self._sweep_id).stopped is not None

    def stop_all(self) -> bool:
        session = search.session_of(self._sweep_id)
        return session.stopped is not None and not session.running


def run(
    session: Session,
    reports: Sequence[ReportRecord],
    *,
    deadline: float,
    tick: Callable[[Session], None],
    trainable: type[Worker] = Worker,
) -> None:
    """Run every attempt that the session launches; returns when the session has finished.

    Args:
        session: decides what is launched and takes every outcome.
        reports: of earlier runs of this sweep.
        deadline: seconds that an attempt may stay silent before it is killed.
        tick: called twice a second, for progress and signals.
        trainable: what trains; benchmarks of the service hand in one that does nothing.

    Raises:
        Refusal: if the ledger can no longer be written.
    """
    sweep = session.sweep
    view = View(sweep.resources.cpu, sweep.resources.gpu)
    session.capacity, session.lack = view.capacity, view.lack
    # Tune keeps one trial of a custom search algorithm pending; a cluster would fill one by one.
    os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = str(max(session.demand, 1))
    search.register(session)
    wish.forget(sweep.id)

    def looking(session: Session) -> None:
        view.ask_for(session.demand)
        tick(session)
        if session.stopped:
            wish.wish(sweep.id)

    scheduler = schedulers.build(sweep, histories(reports))
    session.settle_stopped(scheduler.stopped)
    try:
        tune.Tuner(
            trainable,
            tune_config=tune.TuneConfig(
                search_alg=search.SessionSearch(sweep.id),
                scheduler=scheduler,
                num_samples=-1,
                reuse_actors=True,
            ),
            run_config=tune.RunConfig(
                name=sweep.id,
                storage_path=str(session.paths.ray.resolve()),
                # A retry is re-issued by the session, with its cause known.
                failure_config=tune.FailureConfig(max_failures=0),
                callbacks=[SessionCallback(sweep.id, deadline, looking)],
                stop=_SessionStopper(sweep.id),
                verbose=0,
            ),
        ).fit()
    except TuneError as error:
        raise refusal_behind(error) or error from None
    finally:
        view.ask_for(0)
        wish.forget(sweep.id)
        search.forget(sweep.id)
