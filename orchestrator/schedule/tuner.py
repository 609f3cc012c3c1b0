"""Run the attempts of one session under Ray Tune until none is left."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune import TuneError

from orchestrator.assignment import Assignment, Outcome
from orchestrator.ledger.sweeps.records import CurvePoint, channel_of, sweep_id_of, trial_key_of
from orchestrator.schedule import environment, ray_private, schedulers
from orchestrator.schedule.adapters import (
    TICK_SECONDS,
    NoProgress,
    SessionCallback,
    SessionSearch,
    SessionStopper,
    engines_of,
    registered,
    session_of,
)
from orchestrator.schedule.keyed import KeyedScheduler
from orchestrator.schedule.shares import ClusterShare
from orchestrator.schedule.warm_pool import WarmPool, handle_of, pool
from orchestrator.schedule.worker import Worker
from orchestrator.session.attempts import malformed
from orchestrator.session.session import Session
from orchestrator.training.process import EVERY
from trainables.errors import Refusal


def run(
    session: Session,
    share: ClusterShare,
    curves: Sequence[CurvePoint],
    *,
    deadline: float,
    tick: Callable[[Session], None],
    trainable: type[Worker] = Worker,
) -> None:
    """Run every attempt that the session launches; return when the session has finished.

    Args:
        session: Session that decides what is launched and receives every outcome.
        share: Share of the joined cluster, the same as the session's.
        curves: First objective in the reports of earlier runs of this sweep.
        deadline: Seconds without progress or report after which an attempt is killed.
        tick: Function that is called twice a second.
        trainable: Trainable of the attempts; benchmarks of the service pass one that trains nothing.

    Raises:
        Refusal: The ledger can no longer be written.
    """
    sweep_id = session.sweep.id
    channel = channel_of(sweep_id, session.ledger.id)
    asked: Collection[str] = ()

    def tick_and_publish(session: Session) -> None:
        nonlocal asked
        _renew(share, scheduler, session)
        tick(session)
        before, asked = asked, (EVERY,) if session.stopped else tuple(session.overdue)
        if before or asked:
            ray_private.publish_stop(channel, asked)

    _prepare_tune(session)
    ray_private.withdraw_stop(channel)
    scheduler = _scheduler(session, curves)
    gpu = session.sweep.resources.gpu
    idle = pool(gpu, str(session.paths.compilations), session.sweep.trainable)
    try:
        place = share.placement.avoiding
        with registered(session, share.engines, tick_and_publish, place), idle as warm:
            if trainable is Worker:
                scheduler.adopt = partial(_adopted, warm)
            tune.Tuner(
                _with_environment(trainable, gpu, asks_for_gpu=warm is None or trainable is not Worker),
                tune_config=tune.TuneConfig(
                    search_alg=SessionSearch(sweep_id),
                    scheduler=scheduler,
                    num_samples=-1,
                    reuse_actors=True,
                ),
                run_config=_run_config(sweep_id, session.paths.ray, deadline),
            ).fit()
    except TuneError as error:
        raise refusal_behind(error) or error from None
    finally:
        share.withdraw()
        ray_private.withdraw_stop(channel)


def _renew(share: ClusterShare, scheduler: KeyedScheduler, session: Session) -> None:
    """Renew the share of the cluster by what runs, and release the actors that other sweeps wait for.

    Tune forgets the trials that have ended.
    """
    if scheduler.controller is not None:
        share.look(scheduler.controller, session)
        ray_private.forget_ended_trials(scheduler.controller)
    share.renew(session)
    if share.has_idle(session) and scheduler.controller is not None:
        ray_private.release_idle_actors(scheduler.controller)


def _prepare_tune(session: Session) -> None:
    """Set what Ray Tune reads once in this process."""
    # By default Tune keeps one trial of a custom search algorithm pending, which would fill a cluster slowly.
    # While other sweeps use the cluster, the share limits the pending attempts to a few.
    os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = str(max(session.demand, 1))
    ray_private.count_no_callbacks()
    ray_private.keep_no_statistics()
    ray_private.withhold_keys()


def _scheduler(session: Session, curves: Sequence[CurvePoint]) -> KeyedScheduler:
    """Return the scheduler with the reports of earlier runs, whose decisions the session has applied."""
    session.take_requests()
    scheduler = schedulers.build(session.sweep, curves, session.searched, session.exempt)
    session.reasons = scheduler.reasons
    session.settle_stopped(scheduler.stopped)
    session.follow(scheduler.rungs)
    return scheduler


def _run_config(sweep_id: str, folder: Path, deadline: float) -> tune.RunConfig:
    """Return the settings of Ray Tune for a run, which neither retries an attempt nor saves a checkpoint."""
    return tune.RunConfig(
        name=sweep_id,
        storage_path=str(folder.resolve()),
        # The session retries an attempt, because it knows the cause of the failure.
        failure_config=tune.FailureConfig(max_failures=0),
        # Every report follows a durable checkpoint of our own.
        checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
        callbacks=[SessionCallback(sweep_id, deadline), NoProgress()],
        stop=SessionStopper(sweep_id),
        verbose=0,
    )


def _adopted(warm: WarmPool | None, controller: Any) -> None:
    """Configure Tune's controller: warm workers, longer waits for events, checked and dropped answers."""
    ray_private.lend_actors(controller, partial(_lent, warm))
    ray_private.wait_for_events(controller, TICK_SECONDS)
    ray_private.drop_read_answers(controller)
    ray_private.check_answers(controller, partial(_checked, warm))


def _lent(warm: WarmPool | None, arguments: dict[str, Any]) -> Any:
    """Return the handle of a worker for a trial, or None if Tune must create one.

    Tune pickles this function with the scheduler, so it looks up the engines by their sweep, as `_checked`
    looks up the session.
    """
    assignment = Assignment.from_config(arguments["config"])
    if assignment.slots > 1:
        return engines_of(assignment.sweep_id).workers.lend(assignment)
    if warm is None or (worker := warm.lend(arguments["config"], arguments["storage"])) is None:
        return None
    return handle_of(worker, warm, has_gpu=assignment.gpu > 0)


def _checked(warm: WarmPool | None, attempt_id: str, result: Any) -> Exception | None:
    """Return the error in a worker's answer for an attempt, or None.

    The loan of an engine is checked by the process that calls the engine; see `shared_worker`.
    """
    try:
        outcome = Outcome.from_result(result)
    except Exception as error:  # noqa: BLE001 - whatever a worker sends, it is an outcome of its trial
        return ValueError(f"a worker must answer with an outcome (got {error!r})")
    sweep_id = sweep_id_of(trial_key_of(attempt_id))
    session, loan = session_of(sweep_id), None
    if engines_of(sweep_id).engine_of(attempt_id) is None:
        loan = (warm.loan_of(attempt_id) if warm is not None else None) or ""
    if refused := session.refused(attempt_id, outcome, loan):
        return RuntimeError(refused)
    is_report = not (outcome.queued or outcome.training or outcome.failure)
    if is_report and (why := malformed(outcome, session.sweep.metric)):
        return ValueError(f"a report must {why}")
    return None


def _with_environment(trainable: type[Worker], gpu_share: float, *, asks_for_gpu: bool) -> type[Worker]:
    """Return a subclass of the trainable whose workers first set the environment of this driver."""
    variables = ray_private.handed(environment.of_workers(gpu_share))
    wrapped: type[Worker] = tune.with_parameters(trainable, environment=variables)
    # Ray names a worker's process after it, by which `machines/drain.py` finds the process.
    wrapped.__qualname__, wrapped.asks_for_gpu = trainable.__qualname__, asks_for_gpu
    return wrapped


def refusal_behind(error: BaseException) -> Refusal | None:
    """Return the refusal that a callback raised, or None; Tune's error has only its text."""
    before = error.__cause__ or error.__context__
    return before if isinstance(before, Refusal) or before is None else refusal_behind(before)
