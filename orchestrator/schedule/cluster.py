"""Join the Ray of this machine or a cluster, and run single tasks on it."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import ray
from ray.exceptions import RayActorError, RayTaskError

from orchestrator.config.sweep_config import SweepConfig
from orchestrator.config.trainable import Trainable
from orchestrator.errors import NoCluster
from orchestrator.machines.hardware import Hardware
from orchestrator.machines.head import Head
from orchestrator.machines.joining import joined
from orchestrator.schedule import environment, ray_private, sent_code
from orchestrator.schedule.engines import BorrowedEngine
from orchestrator.schedule.loans import WrongLoan
from orchestrator.schedule.resources import no_answer
from orchestrator.schedule.warm_pool import WarmPool, pool
from orchestrator.training import costs as counting
from orchestrator.training import evaluation
from orchestrator.training.engine_cache import EngineCache, best_slots
from orchestrator.training.engine_server import Closed
from trainables.cost import Cost
from trainables.data.task import Signature
from trainables.trial import ProgramSettings, TrialSettings


@contextmanager
def connected(
    hardware: Hardware, code: Path | None = None, *, needs_gpu: bool = True, head: Head | None = None
) -> Iterator[Callable[[], NoCluster | None]]:
    """Join the cluster of RAY_ADDRESS, or the Ray that drivers share on this machine; leave it on exit.

    `orchestrator.schedule.environment.prepare` must have run before this module was imported.

    Args:
        hardware: Hardware of this machine that trials may use.
        code: Folder to send to the machines of a cluster, or None.
        needs_gpu: Whether trials use a GPU; if not, other processes may hold all GPUs of this machine.
        head: Head of this machine's Ray if the caller has joined it, which then leaves it too.

    Yields:
        A function that returns a refusal once the head of this machine's Ray has died, else None. Ray itself
        ends this process a minute later. The head of a cluster is not observed.

    Raises:
        NoCluster: The cluster or the Ray of this machine cannot be joined, or Ray does not start.
    """
    # The ledger has every error of a trial, with its cause; Tune would only list the attempts once more.
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    if address := os.environ.get("RAY_ADDRESS"):
        with _connected(address, sent_code.runtime_environment(code) if code else {}):
            yield lambda: None
    else:
        own = joined(hardware, environment.of_head(), needs_gpu=needs_gpu)
        with nullcontext(head) if head else own as used, _connected(used.address, _own_start(used)):
            yield partial(_death, used)


def _death(head: Head) -> NoCluster | None:
    if head.lives():
        return None
    must, remedy = "has ended while a sweep used it", "Run the same command again to resume the sweep."
    return NoCluster("the Ray of this machine", must, f"process {head.pid} has ended", remedy)


def _own_start(head: Head) -> dict[str, Any]:
    """Return the runtime environment of workers that must differ from the head, or an empty one."""
    own = {name: os.environ.get(name, "") for name in head.inherited}
    variables = {name: value for name, value in own.items() if value != head.inherited[name]}
    executable = {"py_executable": sys.executable} if sys.executable != head.executable else {}
    return {**executable, **({"env_vars": variables} if variables else {})}


@contextmanager
def _connected(address: str, runtime_environment: dict[str, Any]) -> Iterator[None]:
    """Join a Ray; try twice, because Ray's timeout is too short for a busy machine."""
    options: dict[str, Any] = {"logging_level": logging.CRITICAL, "log_to_driver": False}
    ray_private.forget_token()  # of a head that this process has used before
    try:
        for last in (False, True):
            try:
                job = ray_private.job()
                ray.init(address, job_config=job, runtime_env=runtime_environment or None, **options)
            except Exception as error:
                ray.shutdown()
                if last:
                    raise _not_joined(address, error) from error
            else:
                break
        yield
    finally:
        with suppress(Exception):  # the head, in whose memory it is, may be gone
            ray_private.withdraw_handed()
        ray.shutdown()


def _not_joined(address: str, error: Exception) -> NoCluster:
    got = next(iter(str(error).splitlines()), type(error).__name__)
    if os.environ.get("RAY_ADDRESS"):
        return no_answer(address, got)
    remedy = "Run the same command again, or end that Ray with `cluster ray --end`."
    return NoCluster("the Ray of this machine", f"cannot be joined at {address}", got, remedy)


def with_slots(sweep: SweepConfig, data: str, compilations: str) -> SweepConfig:
    """Return a sweep with the GPU share that follows from its number of slots.

    With `slots: auto`, a GPU of the cluster measures which number is fastest.
    """
    slots = sweep.resources.slots
    if slots is None:
        return sweep
    if slots != "auto":
        return replace(sweep, resources=sweep.resources.shared_by(slots))
    # Traced hyperparameters change no size, and a learning rate at its upper end may diverge.
    free = sweep.trainable.free if sweep.trainable else ()
    settings = sweep.settings(sweep.largest(lowest=free), seed=0)
    task = ray.remote(num_gpus=1)(_in_environment)
    variables = ray_private.handed(environment.of_workers(1.0))
    best: int = ray.get(task.remote(variables, _best_slots, settings, data, compilations))
    return replace(sweep, resources=sweep.resources.shared_by(best))


def _best_slots(settings: TrialSettings | ProgramSettings, data: str, compilations: str) -> int:
    return best_slots(sent_code.with_folder(settings), data, compilations)


class EvaluationRequest(NamedTuple):
    """Arguments of `orchestrator.training.evaluation.evaluate`."""

    folder: str
    digest: str
    data: str
    split: str
    compilations: str
    stored: str | None = None
    program_folder: str | None = None
    trial: str | None = None


def evaluate(
    request: EvaluationRequest,
    cpu: float,
    gpu: float,
    trainable: Trainable | None,
    engine: BorrowedEngine | None,
) -> dict[str, Any]:
    """Evaluate a checkpoint in an idle engine or a Ray task; see `orchestrator.training.evaluation.evaluate`.

    Args:
        request: Names of the checkpoint and the split.
        cpu: Processors of the task, which Ray accounts for on a cluster.
        gpu: Share of a GPU of the task.
        trainable: Program whose code the task imports, or None.
        engine: Idle engine of the sweep, which has compiled most of the evaluation already, or None.

    Raises:
        Exception: Error of the evaluation, without Ray's wrapper, which hides the number of an OSError.
    """
    # An evaluation takes seconds, so on this machine it does not wait for processors that sweeps hold.
    accounted = cpu if os.environ.get("RAY_ADDRESS") else 0
    warm = pool(gpu, request.compilations, trainable)
    target = trainable.target if trainable else ""
    answer: dict[str, Any] = _answer(accounted, gpu, warm, _evaluated, target, request, engine=engine)
    return answer


def _evaluated(
    target: str | tuple[str, ...], request: EvaluationRequest, *, cache: EngineCache | None = None
) -> dict[str, Any]:
    if request.program_folder is not None:
        request = request._replace(program_folder=sent_code.found(request.program_folder, target))
    return evaluation.evaluate(*request, cache=cache)


def work(settings: Mapping[str, TrialSettings], signature: Signature, compilations: str) -> dict[str, Cost]:
    """Count the size and the FLOPs per step of each network, in a Ray task on a CPU.

    Args:
        settings: Settings of the trials, by key; the result has the same keys.
        signature: Signature of their task.
        compilations: Folder of JAX's persistent compilation cache.

    Raises:
        Refusal: The answer belongs to other trials.
        Exception: Error of the task, without Ray's wrapper.
    """
    warm = pool(0, compilations)
    answer: dict[str, Cost] = _answer(0, 0, warm, counting.work, settings, signature, compilations)
    counting.check_names(answer, settings)
    return answer


def _answer(
    cpu: float,
    gpu: float,
    idle: AbstractContextManager[WarmPool | None],
    work: Callable[..., Any],
    *arguments: object,
    engine: BorrowedEngine | None = None,
) -> Any:
    """Return the result of `work` in an engine or a warm worker, or in a task if there is none or it dies."""
    variables = ray_private.handed(environment.of_workers(gpu))
    try:
        if engine is not None:
            with suppress(RayActorError, Closed, WrongLoan):
                return ray.get(engine.run_errand(work, *arguments))
        with idle as warm, suppress(RayActorError):
            if warm is not None and (worker := warm.take()) is not None:
                answer = worker.run(work, *arguments)
                ray.wait([answer])
                warm.give_back(worker)
                return ray.get(answer)
        return ray.get(
            ray.remote(num_cpus=cpu, num_gpus=gpu)(_in_environment).remote(variables, work, *arguments)
        )
    except RayTaskError as error:
        raise error.cause from error


def _in_environment(variables: Mapping[str, str | None], work: Callable[..., Any], *arguments: object) -> Any:
    """Set the environment of a worker and return the result of `work`; JAX is not imported before."""
    ray_private.adopt(variables)
    return work(*arguments)
