"""The private interfaces of Ray that this project uses, checked with Ray 2.60.0. No other module uses one.

None has a public equivalent that works on every cluster; a comment gives the reason for each.
tests/orchestrator/schedule/test_ray_private.py fails when one of them changes.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from copy import copy
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
from ray._private.services import canonicalize_bootstrap_address
from ray._private.state import state
from ray._private.worker import global_worker
from ray._raylet import (  # type: ignore[attr-defined]
    GCS_AUTOSCALER_CLUSTER_CONFIG_KEY,
    GCS_AUTOSCALER_STATE_NAMESPACE,
    AuthenticationTokenLoader,
    GcsClient,
)
from ray.core.generated.autoscaler_pb2 import (  # type: ignore[attr-defined]
    ClusterConfig,
    GetClusterResourceStateReply,
)
from ray.experimental.internal_kv import (
    _internal_kv_del,
    _internal_kv_get,
    _internal_kv_initialized,
    _internal_kv_put,
    internal_kv_get_gcs_client,
)
from ray.job_config import JobConfig
from ray.tune.schedulers import AsyncHyperBandScheduler
from ray.util import placement_group_table

from orchestrator import process_secrets
from orchestrator.ledger.sweeps.records import Channel
from orchestrator.schedule.environment import KEYS_OF_STORE
from orchestrator.training import process

if TYPE_CHECKING:
    # Tune takes a second to import, and the state of a cluster can be read without it.
    from ray.tune.experiment import Trial

CHECKED_VERSION = "2.60.0"

Environment = Mapping[str, str | None]

_ALIVE = 0

# ------------------------------------------------------------------ stop requests and engines
# They are keys of the cluster's key-value store. The public way to share state among all processes of a
# cluster is an actor: one more process for one bit.


def publish_stop(channel: Channel, attempts: Collection[str]) -> None:
    """Ask the workers and engines of a sweep, on any node, to save and end attempts.

    A call replaces the request before it.

    Args:
        channel: Channel of the sweep.
        attempts: Ids of the attempts, or `process.EVERY`.
    """
    _internal_kv_put(_stop_key(channel), json.dumps(sorted(attempts)).encode())


def withdraw_stop(channel: Channel) -> None:
    """Withdraw the stop request of a sweep, if there is one."""
    _internal_kv_del(_stop_key(channel))


def published_stop(channel: Channel) -> Collection[str]:
    """Return the ids of a sweep's attempts that must end; none in a process that Ray has not started."""
    written: bytes | None = _internal_kv_get(_stop_key(channel)) if _internal_kv_initialized() else None
    return frozenset(json.loads(written)) if written else ()


def publish_engine(engine: str, actor: str, loan: str) -> None:
    """Publish the actor of an engine and the loan of that actor."""
    _internal_kv_put(_engine_key(engine), json.dumps([actor, loan]).encode())


def withdraw_engine(engine: str) -> None:
    """Withdraw the name of an engine's actor."""
    _internal_kv_del(_engine_key(engine))


def published_engine(engine: str) -> tuple[str, str] | None:
    """Return the name of an engine's actor and its loan, or None without an actor."""
    written: bytes | None = _internal_kv_get(_engine_key(engine))
    if not written:
        return None
    actor, loan = json.loads(written)
    return actor, loan


def publish_borrower(actor: str, borrower: str) -> None:
    """Publish the driver that has a process with a GPU, so that other drivers can find orphaned actors.

    `borrower` is the driver as `Holder.write` returns it, or '' for none.
    """
    _internal_kv_put(_borrower_key(actor), borrower.encode())


def published_borrower(actor: str) -> str | None:
    """Return the driver that has a process, '' if none has it, or None if the process has not started."""
    written: bytes | None = _internal_kv_get(_borrower_key(actor))
    return None if written is None else written.decode()


_POOL_KEY = b"sweep-pool"


def pool_id() -> str:
    """Return the random id of the joined cluster, drawn by the first driver that asks for it."""
    _internal_kv_put(_POOL_KEY, uuid.uuid4().hex.encode(), overwrite=False)
    drawn = _internal_kv_get(_POOL_KEY)
    assert drawn is not None, "the key was written just now"
    return bytes(drawn).decode()


def _engine_key(engine: str) -> bytes:
    return f"sweep-engine-{engine}".encode()


def _borrower_key(actor: str) -> bytes:
    return f"sweep-borrower-{actor}".encode()


def _private_key(name: str) -> bytes:
    return f"sweep-private-{name}".encode()


def _stop_key(channel: Channel) -> bytes:
    return f"sweep-stop-{channel}".encode()


# ------------------------------------------------------------------ the environment of workers
# Tune and Ray may write the arguments of a trial or an actor to files. The key-value store is only in the
# memory of the head, and reading it needs the token.

HANDED = "SWEEP_HANDED"
"""Environment variable of a worker: name of the entry that holds its secret variables."""

_SENDER = uuid.uuid4().hex


def handed(variables: Environment) -> Environment:
    """Return the variables of a worker without secrets, which are stored in the memory of the head.

    Args:
        variables: Variables of a worker, as `orchestrator.schedule.environment.of_workers` returns them.
            `adopt` restores all of them.
    """
    values = {name: value for name, value in variables.items() if value is not None}
    open_ = process_secrets.of_trials(values)
    secret = {name: value for name, value in values.items() if open_.get(name) != value}
    if not secret:
        return variables
    name = f"{_SENDER}-{hashlib.sha256(repr(sorted(secret)).encode()).hexdigest()[:8]}"
    _internal_kv_put(_private_key(name), json.dumps(secret).encode())
    return {**{name: value for name, value in variables.items() if name not in secret}, HANDED: name}


def adopt(variables: Environment) -> None:
    """Set the environment of this worker to the variables that were passed to `handed`; see `process.adopt`.

    Raises:
        RuntimeError: The driver has left and withdrawn the secret variables.
    """
    secret: dict[str, str] = {}
    if name := variables.get(HANDED):
        written = _internal_kv_get(_private_key(name))
        if written is None:
            raise RuntimeError("the driver whose environment this worker needs has ended")
        secret = json.loads(written)
    process.adopt({**variables, **secret, HANDED: None})


def withdraw_handed() -> None:
    """Delete the secret variables that this process has stored for workers."""
    _internal_kv_del(_private_key(_SENDER), del_by_prefix=True)


# ------------------------------------------------------------------ a cluster that was not joined
# `ray.init` joins as a job, and `ray.util.state` needs the dashboard, which may not run.


@dataclass(frozen=True)
class ClusterState:
    """The nodes of a cluster.

    Attributes:
        nodes: Address and resources of each node that is alive.
        addable: Resources of each kind of node that an autoscaler may add.
    """

    nodes: list[tuple[str, dict[str, float]]]
    addable: list[dict[str, float]]


def cluster_state(address: str) -> ClusterState:
    """Return the nodes of the cluster at `host:port`, without joining it.

    Raises:
        ray.exceptions.AuthenticationError: The cluster refuses the token of this process.
        ray.exceptions.RpcError: The cluster does not answer.
    """
    client = GcsClient(address=address)
    nodes = [
        (node.node_manager_address, dict(node.resources_total))
        for node in client.get_all_node_info().values()
        if node.state == _ALIVE
    ]
    config = client.internal_kv_get(
        GCS_AUTOSCALER_CLUSTER_CONFIG_KEY.encode(), GCS_AUTOSCALER_STATE_NAMESPACE.encode()
    )
    groups = ClusterConfig.FromString(config).node_group_configs if config else ()
    return ClusterState(nodes, [dict(group.resources) for group in groups if group.max_count != 0])


def host_and_port(address: str) -> str:
    """Return `host:port` of a cluster's head as `ray.init` resolves it; `localhost` is also a valid address.

    Raises:
        ValueError: The address is invalid, or is `auto` or `local`: Ray would read the address from a file
            that every account of this machine can write.
    """
    if address in {"auto", "local"}:
        raise ValueError(f"{address} must be the host:port of a head")
    return canonicalize_bootstrap_address(address) or address


def job() -> JobConfig:
    """Return the settings of a driver whose workers do not search its working folder for modules.

    They search the folder of this package, unless it is installed in `site-packages`.
    """
    own = Path(__file__).parents[2]
    config = JobConfig()
    config._py_driver_sys_path = _Fixed([] if own.name == "site-packages" else [str(own)])
    return config


class _Fixed(list[str]):
    """A list that ignores what Ray adds to it."""

    def extend(self, values: Iterable[str]) -> None:
        """Add nothing."""


def forget_token() -> None:
    """Let this process read Ray's token again at the next join; by default Ray reads it once."""
    AuthenticationTokenLoader.instance().reset_cache()


# ------------------------------------------------------------------ the nodes of the joined cluster
# `ray.nodes()` has neither free resources nor draining nodes, and `ray.util.state` needs the dashboard.


def free_resources() -> dict[str, dict[str, float]]:
    """Return the free resources by node id."""
    free: dict[str, dict[str, float]] = state.available_resources_per_node()
    return free


def draining_nodes() -> set[str]:
    """Return the ids of the draining nodes, on which Ray places nothing more."""
    return set(state.get_draining_nodes())


def wants_gpu() -> bool:
    """Return True if an actor, a task or a placement group of the cluster waits for a GPU or a share of one.

    The raylets report it a few times a second. Only the autoscaler and the dashboard have it publicly.
    """
    reply = GetClusterResourceStateReply.FromString(internal_kv_get_gcs_client().get_cluster_resource_state())
    waiting = reply.cluster_resource_state
    groups = (request for group in waiting.pending_gang_resource_requests for request in group.requests)
    single = (pending.request for pending in waiting.pending_resource_requests)
    return any(request.resources_bundle.get("GPU") for request in chain(groups, single))


def node_of(actor: Any) -> str | None:
    """Return the id of an actor's node, or None while the actor waits for one."""
    row = state.actor_table(actor._actor_id.hex())
    return row["Address"]["NodeID"] if row.get("State") == "ALIVE" else None


def process_of(actor: Any) -> int:
    """Return the process id of an actor; 0 while the actor waits for a node."""
    return int(state.actor_table(actor._actor_id.hex()).get("Pid", 0))


def waits_for_gpu() -> bool:
    """Return True if an actor of this job waits, and something in the cluster waits for a GPU."""
    job = ray.get_runtime_context().get_job_id()
    return wants_gpu() and bool(state.actor_table(None, ray.JobID.from_hex(job), "PENDING_CREATION"))


def has_placement_group() -> bool:
    """Return True if Ray has placed a placement group of this job; such an id ends with the job's."""
    job = ray.get_runtime_context().get_job_id()
    groups = placement_group_table().items()
    return any(name.endswith(job) and group["state"] == "CREATED" for name, group in groups)


# ------------------------------------------------------------------ Tune's controller
# With `reuse_actors` Tune keeps the actor of an ended trial for the next one, even if there is none. It has
# no public way to free the actor's resources.


def release_idle_actors(controller: Any) -> None:
    """End the actors that Tune's controller keeps for the next trial."""
    controller._cleanup_cached_actors(force_all=True)


# Tune has no public way to find the node of a trial, or to withdraw a trial that waits for resources. A
# trial's request to Ray is fixed when the trial is added.


def nodes_of(controller: Any, trials: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return the ids of the nodes on which trials have their processors, by trial id; rank 0's is the first.

    A trial whose actor is lent may run on another node. Trials that wait for resources are left out.
    """
    placed = controller._actor_manager._live_actors_to_ray_actors_resources
    groups = {
        trial.trial_id: placed[actor][1].placement_group
        for trial, actor in controller._trial_to_actor.items()
        if trial.trial_id in trials and actor in placed
    }
    tables = {name: placement_group_table(group)["bundles_to_node_id"] for name, group in groups.items()}
    return {
        name: tuple(node for _, node in sorted(table.items()))
        for name, table in tables.items()
        if table.get(0)
    }


def waiting_for_resources(controller: Any, trials: Collection[str]) -> list[str]:
    """Return those of the given trials that Tune has added and that have no resources yet."""
    placed = controller._actor_manager._live_actors_to_ray_actors_resources
    return [
        trial.trial_id
        for trial in controller._pending_trials
        if trial.trial_id in trials and controller._trial_to_actor.get(trial) not in placed
    ]


def take_back(controller: Any, trials: Collection[str]) -> None:
    """Withdraw trials of `waiting_for_resources`; Tune ends them as if they were stopped."""
    for trial in [trial for trial in controller._pending_trials if trial.trial_id in trials]:
        if trial in controller._staged_trials:
            # Tune does not do this itself, and would keep an actor for a trial that never starts.
            controller._unstage_trial_with_resources(trial)
        controller.stop_trial(trial)


# Tune starts a new actor for each trial and cannot be given a running one. It calls `remote` of the classes
# that `annotate_remote_entities` returns, so these can be replaced.


@dataclass(frozen=True)
class _LentClass:
    """An actor class that lends a running actor if there is one, and creates one otherwise."""

    created: Any
    lend: Callable[[dict[str, Any]], Any]

    def remote(self, **arguments: Any) -> Any:
        """Return the handle of an actor."""
        return self.lend(arguments) or self.created.remote(**arguments)


def lend_actors(controller: Any, lend: Callable[[dict[str, Any]], Any]) -> None:
    """Let Tune's controller use actors that it has not created.

    Tune releases an actor by `stop`, or kills it, also after `stop`. The function `released` of `handle_with`
    is called when Tune will neither stop nor kill the actor again. It is not called for a killed actor,
    because a kill may take effect after the call.

    Args:
        controller: Controller that has started no actor yet.
        lend: Function that returns the handle of an actor with the methods of a trainable, given the
            arguments of the trainable, or None if Tune must create one.
    """
    actors = controller._actor_manager
    manager, resolve, kill = actors._resource_manager, actors._actor_stop_resolved, actors._try_kill_actor
    acquire = manager._resource_cls

    def acquired(**arguments: Any) -> Any:
        resources = acquire(**arguments)
        annotate = resources.annotate_remote_entities
        resources.annotate_remote_entities = lambda classes: [
            _LentClass(one, lend) for one in annotate(classes)
        ]
        return resources

    def resolved(tracked_actor: Any) -> None:
        actor, _ = actors._live_actors_to_ray_actors_resources[tracked_actor]
        resolve(tracked_actor)
        if (released := vars(actor).get(_RELEASED)) is not None:
            released()

    def killed() -> bool:
        for tracked_actor in actors._live_actors_to_kill:
            actor, _ = actors._live_actors_to_ray_actors_resources[tracked_actor]
            vars(actor).pop(_RELEASED, None)
        is_killed: bool = kill()
        return is_killed

    manager._resource_cls, actors._actor_stop_resolved = acquired, resolved
    actors._try_kill_actor = killed


# Tune waits at most 0.1 s for an event, then asks for the next trial and writes its state: ten times a second
# in every driver, while trials train. It has no setting for this timeout.


def wait_for_events(controller: Any, seconds: float) -> None:
    """Let Tune's controller wait at least `seconds` for the next event; every event still ends the wait."""
    manager = controller._actor_manager
    wait = manager.next
    manager.next = lambda timeout: wait(timeout=max(timeout, seconds))


# Tune keeps every answer of an actor until the actor ends, with `reuse_actors` until the sweep ends. Each
# report takes 0.4 KiB of Ray's store in the driver's memory, besides Ray's record of the call.


def drop_read_answers(controller: Any) -> None:
    """Let Tune's controller drop the answers of an actor that it has read when it calls the actor again."""
    manager = controller._actor_manager
    schedule, unread = manager.schedule_actor_task, manager._actor_task_events._tracked_futures

    def scheduled(tracked_actor: Any, *arguments: Any, **options: Any) -> Any:
        answers = manager._tracked_actors_to_task_futures[tracked_actor]
        answers.difference_update([answer for answer in answers if answer not in unread])
        return schedule(tracked_actor, *arguments, **options)

    manager.schedule_actor_task = scheduled


# Tune keeps every trial until the sweep ends: its configuration, last result, request for resources, answers
# and state as text. It goes through all of them for each event, and writes all states to its state file. The
# ledger has every trial, and no sweep is resumed from that file.


def forget_ended_trials(controller: Any) -> None:
    """Let Tune's controller drop the trials that have ended and have no actor, except the newest.

    Without any trial it would read them from its state file at the end.
    """
    ended = [
        trial
        for trial in controller._trials[:-1]
        if trial.is_finished() and trial not in controller._trial_to_actor
    ]
    for trial in ended:
        controller._trials.remove(trial)
        controller._trial_metadata.pop(trial.trial_id, None)
        for kept in (
            controller._stopped_trials,
            controller._failed_trials,
            controller._live_trials,
            controller._trials_to_cache,
        ):
            kept.discard(trial)


@dataclass(frozen=True)
class _Method:
    """A method of a handle that runs in this process; Tune calls its `remote`."""

    remote: Callable[..., Any]


_RELEASED = "_sweep_released"


def handle_with(
    actor: Any, answers: Mapping[str, Callable[..., Any]], released: Callable[[], object] | None = None
) -> Any:
    """Return a copy of an actor's handle, with some methods replaced by functions of this process.

    Tune takes the copy for the actor of one trial, although the actor may serve several. `ray.kill` of the
    copy kills the actor.

    Args:
        actor: Handle of an actor.
        answers: Functions that return a reference, by the name of the method that they replace.
        released: Function that is called when Tune no longer uses the handle; see `lend_actors`.
    """
    handle = copy(actor)
    vars(handle).update({name: _Method(answer) for name, answer in answers.items()})
    vars(handle)[_RELEASED] = released
    return handle


# An answer of an actor reaches the scheduler before any callback. It is therefore checked before Tune
# processes it, so that an invalid answer or one of another trial has no effect.


def check_answers(controller: Any, check: Callable[[str, Any], Exception | None]) -> None:
    """Let Tune's controller treat an invalid answer of an actor as a failed call.

    Args:
        controller: Tune's controller.
        check: Function that returns the error in the result of a trial, given the trial's id, or None.
    """
    on_result, on_error = controller._on_training_result, controller._trial_task_failure

    def checked(trial: Trial, result: Any) -> None:
        if (error := check(trial.trial_id, result)) is None:
            on_result(trial, result)
        else:
            on_error(trial, exception=error)

    controller._on_training_result = checked


# ------------------------------------------------------------------ Tune's telemetry
# With any callback, Tune imports MLflow and three other trackers for its usage statistics, even if these are
# off. That costs a driver 1.3 s and memory.


def count_no_callbacks() -> None:
    """Disable Tune's telemetry about callbacks."""
    from ray.air._internal import usage  # imports Tune

    usage.tag_callbacks = lambda callbacks: False


# ------------------------------------------------------------------ Tune's statistics
# Tune keeps running averages of each number in a report. They take 40 KiB per attempt until the end of the
# sweep, as much in Tune's state file, and time at each report. The ledger has every report.


def keep_no_statistics() -> None:
    """Disable Tune's running averages of metrics."""
    from ray.tune.trainable.metadata import _TrainingRunMetadata  # imports Tune

    _TrainingRunMetadata.update_metric = lambda self, metric, value, step=1: None  # type: ignore[method-assign]


# ------------------------------------------------------------------ Tune's runtime environment
# Tune starts workers with the driver's keys of an S3 store in their environment, which every process of the
# user and everybody with access to the cluster can read.


def withhold_keys() -> None:
    """Let Tune start workers without the keys of an S3 store, which they get later from `handed`."""
    from ray.tune.execution import class_cache  # imports Tune

    class_cache.ENV_VARS_TO_PROPAGATE = class_cache.ENV_VARS_TO_PROPAGATE - KEYS_OF_STORE


# ------------------------------------------------------------------ the rungs of Hyperband


def rung_of(rule: AsyncHyperBandScheduler, trial: Any, step: float) -> Mapping[str, float]:
    """Return the values at the rung of a trial's report by trial ID, larger ones better, its own among them.

    Args:
        rule: Scheduler that has compared the report.
        trial: Trial that has reported.
        step: Step of the report, at or after the first rung of the trial's bracket.
    """
    rungs = rule._trial_info[trial.trial_id]._rungs  # the highest rung first
    return next(values for milestone, values in rungs if step >= milestone)


# ------------------------------------------------------------------ the end of an attempt
# Ray's exceptions have no field for the cause of an actor's death, and Tune writes only their text to a file.

_UNREACHABLE = "actor is temporarily unavailable"
"""Ray's phrase for an actor whose node does not answer and is not declared dead yet."""

DEATH_PHRASES = {
    "out of memory": ("running low on memory", "memory pressure"),
    "node lost": ("node has died", "node died", "NODE_DIED", "preempted", _UNREACHABLE),
    "worker lost": ("The actor died", "The actor is dead", "worker process has died"),
}
"""Phrases in Ray's error texts, by the cause of an attempt's end; the first match decides."""


DEATHS_OF_A_PROCESS = ("out of memory", "worker lost")
"""Causes of an attempt's end after which the node is still alive."""


def cause_of_death(text: str) -> tuple[str, str]:
    """Return the cause of an attempt's end and a message of one line.

    Args:
        text: Text of the error file that Tune writes for a trial. Ray's general advice in it mentions the OOM
            killer after every death, so that phrase is not evidence.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("Failure #")]
    message = lines[0] if lines else "no error was recorded"
    for cause, phrases in DEATH_PHRASES.items():
        if any(phrase in text for phrase in phrases):
            return cause, message
    return "error", message


_PROCESS = re.compile(r"^\s*pid: (\d+)$.*^\s*ip: (\S+)$", re.MULTILINE | re.DOTALL)
"""Pattern of the process id and the machine in the text of Ray's error."""

_DUMP = re.compile(r"\*\*\* SIG[A-Z]+ received")
_FATAL = "Fatal Python error"
_MARK = re.compile(r":(job_id|actor_name|task_name):")
"""Patterns of the lines that Ray writes into the log of a process."""

_READ = 65_536
"""Bytes that are read at the end of a log."""

_SHOWN = 500
"""Characters of a line that are shown."""


def last_words(text: str) -> str:
    """Return a sentence with the last line of a dead process, or with its place; '' without a process.

    A library that ends the process, such as XLA for an unknown flag, gives the reason only there. The public
    way to read logs is the dashboard, which may not run.
    """
    if (found := _PROCESS.search(text)) is None:
        return ""
    pid, address = found.groups()
    name, node = f"worker-*-{pid}.err", global_worker.node
    try:
        logs = [] if node is None else list(Path(node.get_logs_dir_path()).glob(name))
        if logs and address == node.node_ip_address:
            words = end_of(_tail(max(logs, key=lambda log: log.stat().st_mtime)))
            return f"It wrote last: {words}" if words else ""
    except OSError:
        pass  # Ray belongs to another user, or its log has just been removed
    return f"What it wrote last is in {name}, among Ray's logs on {address}."


def _tail(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _READ))
        return file.read().decode(errors="replace")


def end_of(log: str) -> str:
    """Return the last line that a process wrote before a fatal signal, and the name of the signal."""
    lines = [line.strip() for line in log.splitlines() if line.strip() and not _MARK.match(line)]
    dumps = (index for index, line in enumerate(lines) if _DUMP.search(line) or line.startswith(_FATAL))
    end = next(dumps, len(lines))
    fatal = [line for line in lines[end:] if line.startswith(_FATAL)]
    return "; ".join(line[:_SHOWN] for line in [*lines[:end][-1:], *fatal[:1]])


def actor_of(trial: Trial) -> Any:
    """Return the handle of the actor that runs a Tune trial, or None; only the setter is public."""
    return trial.temporary_state.ray_actor
