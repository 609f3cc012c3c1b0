"""Ray Tune in the simulation: the real manager of actors, and a loop over trials around it.

The controller is Tune's where it starts, stops and kills actors. What it does with results, checkpoints and
files is left out.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ray.air.execution._internal.actor_manager import RayActorManager
from ray.tune.execution.tune_controller import TuneController

from orchestrator.assignment import Outcome
from orchestrator.schedule import ray_private, tuner
from orchestrator.schedule.adapters import SessionCallback
from orchestrator.schedule.warm_pool import WarmPool
from tests.simulation.kernel import Kernel
from tests.simulation.lending.session import SimulatedSession

CLEANUP_SECONDS = 20.0
"""Time after which Tune kills an actor that does not stop, in the middle of a sweep; 600 in the real one."""

REQUEST = "one processor"
"""The resources of each trial."""


class Trial:
    """A trial of Tune's, an attempt of ours."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.trial_id = config["assignment"]["attempt_id"]
        self.config, self.status, self.experiment_tag = config, "PENDING", ""
        self.placement_group_factory = REQUEST
        self.error_text = ""
        self.run_metadata = SimpleNamespace()

    def set_ray_actor(self, actor: Any) -> None:
        """Keep nothing."""


class Resources:
    """The resources of a machine, as Tune's manager of resources shows them.

    Args:
        count: How many trials have room.
    """

    def __init__(self, count: int) -> None:
        self._free, self._resource_cls = count, Acquired

    def request_resources(self, resource_request: str) -> None:
        """Wait for nothing."""

    cancel_resource_request = request_resources

    def has_resources_ready(self, resource_request: str) -> bool:
        return self._free > 0

    def acquire_resources(self, resource_request: str) -> Any:
        self._free -= 1
        return self._resource_cls(resource_request=resource_request)

    def free_resources(self, acquired_resource: Any) -> None:
        self._free += 1

    def get_resource_futures(self) -> list[Any]:
        return []

    def update_state(self) -> None:
        """Update nothing."""

    clear = update_state


class Acquired:
    """The resources of one trial."""

    def __init__(self, resource_request: str) -> None:
        self.resource_request = resource_request

    def annotate_remote_entities(self, classes: list[Any]) -> list[Any]:
        return classes


class Tune:
    """Runs the attempts of one session until none is left.

    Args:
        kernel: Kernel of the simulation.
        session: Session whose attempts it runs.
        warm: Workers that it may use.
        made: Class of the actors that it creates itself.
    """

    RAISE = TuneController.RAISE

    _remove_actor = TuneController._remove_actor
    _actor_stopped = TuneController._actor_stopped
    _actor_failed = TuneController._actor_failed
    _schedule_trial_task = TuneController._schedule_trial_task
    _maybe_reuse_cached_actor = TuneController._maybe_reuse_cached_actor
    _on_trial_reset = TuneController._on_trial_reset
    _cleanup_stopping_actors = TuneController._cleanup_stopping_actors
    _cleanup_trials = TuneController._cleanup_trials

    def __init__(self, kernel: Kernel, session: SimulatedSession, warm: WarmPool, made: Any) -> None:
        self._kernel, self._session, self._made = kernel, session, made
        self._actor_manager = RayActorManager(resource_manager=Resources(session.plan.at_once))  # type: ignore[arg-type]
        self._callback = SessionCallback(session.plan.id, float("inf"))
        self._fail_fast, self._print_trial_errors = False, False
        self._actor_cleanup_timeout, self._actor_force_cleanup_timeout = CLEANUP_SECONDS, 10
        self._earliest_stopping_actor = float("inf")
        self._stopping_actors: dict[Any, float] = {}
        self._started_actors: set[Any] = set()
        self._actor_to_trial: dict[Any, Trial] = {}
        self._trial_to_actor: dict[Trial, Any] = {}
        self._pending_trials: set[Trial] = set()
        self._paused_trials: set[Trial] = set()
        self._resetting_trials: set[Trial] = set()
        self._cached: list[Any] = []
        self._actor_cache = SimpleNamespace(
            has_cached_object=lambda request: bool(self._cached),
            pop_cached_object=lambda request: self._cached.pop(),
        )
        tuner._adopted(warm, self)

    def run(self) -> None:
        """Run every attempt, then let the actors end, or kill them."""
        while not self._session.is_over or self._trial_to_actor:
            self._launch()
            if not self._actor_manager.next(timeout=0.1):
                self._kernel.sleep(0.2)
            if self._wanted() < len(self._cached) or self._kernel.random.random() < 0.02:
                ray_private.release_idle_actors(self)
            self._cleanup_stopping_actors(force_all=False)
        self._cleanup_trials()

    def _wanted(self) -> int:
        """Return for how many trials an actor is of use that has become free."""
        return self._session.waiting() + len(self._pending_trials)

    def _launch(self) -> None:
        """Launch attempts: one more than there is room for, as Tune does."""
        while len(self._session.running) <= self._session.plan.at_once:
            if (config := self._session.next_assignment()) is None:
                break
            trial = Trial(config)
            self._pending_trials.add(trial)
            if self._maybe_reuse_cached_actor(trial):
                continue
            actor = self._actor_manager.add_actor(
                self._made,
                {"config": config, "storage": None},
                REQUEST,  # type: ignore[arg-type]
                on_start=self._actor_started,
                on_stop=self._actor_stopped,
                on_error=self._actor_failed,
            )
            self._trial_to_actor[trial], self._actor_to_trial[actor] = actor, trial
        for trial in [one for one in self._trial_to_actor if one in self._pending_trials]:
            if self._cached and self._trial_to_actor[trial] not in self._started_actors:
                self._maybe_reuse_cached_actor(trial)

    def _schedule_trial_reset(
        self, trial: Trial, new_config: dict[str, Any], new_experiment_tag: str
    ) -> None:
        self._resetting_trials.add(trial)
        self._schedule_trial_task(
            trial=trial,  # type: ignore[arg-type]
            method_name="reset",
            args=(new_config,),
            kwargs={"storage": None},
            on_result=self._on_trial_reset,  # type: ignore[arg-type]
            on_error=self._trial_task_failure,  # type: ignore[arg-type]
        )

    def _actor_started(self, tracked_actor: Any, log: str = "STARTED") -> None:
        self._started_actors.add(tracked_actor)
        trial = self._actor_to_trial[tracked_actor]
        self._pending_trials.discard(trial)
        self._callback.on_trial_start(0, [], trial)  # type: ignore[arg-type]
        trial.status = "RUNNING"
        self._train(trial)

    def _train(self, trial: Trial) -> None:
        self._schedule_trial_task(
            trial=trial,  # type: ignore[arg-type]
            method_name="train",
            on_result=self._on_training_result,  # type: ignore[arg-type]
            on_error=self._trial_task_failure,  # type: ignore[arg-type]
        )

    def _on_training_result(self, trial: Trial, result: dict[str, Any]) -> None:
        self._callback.on_trial_result(0, [], trial, result)  # type: ignore[arg-type]
        row = self._session.running.get(trial.trial_id)
        if Outcome.from_result(result).done or row is None or row.step >= row.last:
            self._callback.on_trial_complete(0, [], trial)  # type: ignore[arg-type]
            self._schedule_trial_stop(trial)
        else:
            self._train(trial)

    def _trial_task_failure(self, trial: Trial, exception: Exception) -> None:
        if trial.status in {"RUNNING", "PENDING"}:
            trial.error_text = str(exception)
            self._schedule_trial_stop(trial, exception)
            self._callback.on_trial_error(0, [], trial)  # type: ignore[arg-type]

    def _schedule_trial_stop(self, trial: Trial, exception: Exception | None = None) -> None:
        if trial.status == "ERROR":
            return
        trial.status = "ERROR" if exception else "TERMINATED"
        self._pending_trials.discard(trial)
        if (actor := self._trial_to_actor.get(trial)) is None:
            return
        self._actor_manager.clear_actor_task_futures(actor)
        self._trial_to_actor.pop(trial)
        self._actor_to_trial.pop(actor)
        if not exception and self._wanted() > len(self._cached):
            self._cached.append(actor)
        else:
            self._remove_actor(actor)

    def _set_trial_status(self, trial: Trial, status: str) -> None:
        trial.status = status

    def _unstage_trial_with_resources(self, trial: Trial) -> None:
        """Unstage nothing."""

    def _cleanup_cached_actors(self, force_all: bool = False) -> None:
        while self._cached:
            actor = self._cached.pop()
            actor.set_on_stop(None)
            actor.set_on_error(None)
            self._remove_actor(actor)
