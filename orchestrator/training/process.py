"""Environment, signals and stop requests of the processes that train.

This module does not import JAX, so that drivers, and workers that share an engine, can use it.
"""

from __future__ import annotations

import faulthandler
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path

from orchestrator.accounts import umask
from orchestrator.ledger.sweeps.records import Channel
from orchestrator.machines.hardware import host_devices
from trainables.trial import memory_share

POLL_SECONDS = 1.0
"""Poll interval in seconds for a published stop request."""

EVERY = "*"
"""Name for all attempts of a sweep in a stop request."""


class _StopRequest:
    """The stop request of one sweep; `attempts` are the ids that were read last, or `EVERY`."""

    def __init__(self, channel: Channel, published: Callable[[Channel], Collection[str]]) -> None:
        self._channel, self._published = channel, published
        self.attempts: Collection[str] = ()

    def read(self) -> None:
        """Read the request; it counts as empty while the head is unreachable."""
        try:
            self.attempts = self._published(self._channel)
        except Exception:  # noqa: BLE001 - described above
            self.attempts = ()


_terminating = threading.Event()
_stop_requests: dict[Channel, _StopRequest] = {}


DEPRECATED_MEMORY_FRACTION = "XLA_PYTHON_CLIENT_MEM_FRACTION"
"""Deprecated name of `XLA_CLIENT_MEM_FRACTION`. If both are set, JAX warns and ignores the GPUs."""


# XLA's fusions for YNNPACK end the process at arrays of seven dimensions, such as those of `delta_product` in
# slots (jax-ml/jax, issues 39257 and 40412: jaxlib 0.10.2 and 0.11.0). A later XLA may not know the flag.
_IS_KNOWN = tuple(map(int, version("jaxlib").split(".")[:2])) < (0, 12)
NO_YNN = "--xla_cpu_experimental_ynn_fusion_type=" if _IS_KNOWN else ""
"""Flag of XLA without which a program of arrays with seven dimensions may end its process."""

_ONE_THREAD = f"--xla_cpu_multi_thread_eigen=false {NO_YNN}".rstrip()
_XLA_THREADS = "PJRT_NPROC"
_THREADS = "OMP_NUM_THREADS"

MPS_PIPES = "CUDA_MPS_PIPE_DIRECTORY"
"""Environment variable: folder of the pipes of NVIDIA's Multi-Process Service."""


def worker_environment(gpu_share: float) -> dict[str, str]:
    """Return the environment variables of a process that trains or evaluates; JAX and XLA read them.

    On a CPU, XLA is limited to one thread per process, because one trial on each core is faster than several
    trials on all cores, and because what XLA compiles, and so the last digits of a trial, would depend on the
    number of cores. `script_threads` replaces the limit for scripts.

    Args:
        gpu_share: Share of a GPU that the process may use; 0 for the CPU.
    """
    if gpu_share <= 0 or host_devices():
        return {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": _ONE_THREAD, _XLA_THREADS: "1", _THREADS: "1"}
    return {"XLA_CLIENT_MEM_FRACTION": f"{memory_share(gpu_share):.3f}"}


def script_threads(cpu: float, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which OpenMP, PyTorch, NumPy and JAX in a script use the cores of its trial.

    Its worker has the limit of one thread of `worker_environment`, or on a GPU that of Ray, whose workers
    hold no cores. Another number that is set for a sweep on GPUs remains.

    Args:
        cpu: Cores of the trial.
        environment: Environment of the worker.
    """
    if (threads := int(cpu)) < 2 or environment.get(_THREADS, "1") != "1":
        return {}
    limits = {_THREADS: str(threads)}
    if environment.get("XLA_FLAGS") == _ONE_THREAD:
        limits |= {"XLA_FLAGS": NO_YNN, _XLA_THREADS: str(threads)}
    return limits


def mps_environment(gpu: float) -> dict[str, str]:
    """Return the variables with which a process uses NVIDIA's Multi-Process Service (MPS) of its machine.

    They are empty for whole GPUs, and where no control daemon has made its pipe. A process that finds no
    daemon behind the pipe uses its GPU without MPS.

    Args:
        gpu: GPUs of the process, or its share of one, which also limits its part of the multiprocessors.

    Source: NVIDIA, Multi-Process Service, environment variables.
    """
    folder = Path(os.environ.get(MPS_PIPES) or "/tmp/nvidia-mps")
    if not 0 < gpu < 1 or not (folder / "control").exists():
        return {}
    return {MPS_PIPES: str(folder), "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(math.ceil(100 * gpu - 1e-6))}


def adopt(environment: Mapping[str, str | None]) -> None:
    """Set the environment of this worker before the first import of JAX; None removes a variable."""
    for name, value in environment.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    os.umask(umask())


@cache
def handle_sigterm() -> None:
    """Record SIGTERM instead of exiting. Idempotent, and may be called from any thread.

    A machine sends SIGTERM before it is taken away; trials are saved in the minute or two that follow. The
    code of an asynchronous actor runs outside the main thread, but only the main thread can install and run a
    handler of `signal`. The handler of `faulthandler` has neither limit: it writes a traceback to a pipe.
    """
    reading, writing = os.pipe()
    faulthandler.register(signal.SIGTERM, writing, all_threads=False)
    threading.Thread(target=_note, args=(reading,), name="signals", daemon=True).start()


def watch(channel: Channel, published: Callable[[Channel], Collection[str]]) -> None:
    """Poll for the stop request that the driver of a sweep publishes.

    Args:
        channel: Channel of the sweep.
        published: Function that returns the ids of a channel's attempts that must save and exit now, or
            `EVERY`; it may raise while the head is unreachable.
    """
    if channel not in _stop_requests:
        request = _stop_requests[channel] = _StopRequest(channel, published)
        threading.Thread(target=_poll, args=(request, channel), name="stop requests", daemon=True).start()


def forget(channel: Channel) -> None:
    """Stop polling for the stop request of a sweep."""
    _stop_requests.pop(channel, None)


def stop_requested(channel: Channel, attempt_id: str) -> bool:
    """Return True if the driver of a watched sweep wants an attempt to save and exit."""
    request = _stop_requests.get(channel)
    return request is not None and (EVERY in request.attempts or attempt_id in request.attempts)


def may_begin(channel: Channel, attempt_id: str) -> bool:
    """Return False if the driver of a watched sweep has asked an attempt to stop before it has begun.

    The request is read again, because the last poll may be `POLL_SECONDS` old. A stopping driver drops the
    attempts that no worker has taken, but Ray Tune still starts their workers. With an old request, they
    would train and leave a checkpoint that is not in the ledger.
    """
    if (request := _stop_requests.get(channel)) is not None:
        request.read()
    return not stop_requested(channel, attempt_id)


def terminating() -> bool:
    """Return True if this process has received SIGTERM; it must then begin no attempt."""
    return _terminating.is_set()


def _note(pipe: int) -> None:
    while os.read(pipe, 4096):
        _terminating.set()


def _poll(request: _StopRequest, channel: Channel) -> None:
    while _stop_requests.get(channel) is request:
        request.read()
        time.sleep(POLL_SECONDS)
