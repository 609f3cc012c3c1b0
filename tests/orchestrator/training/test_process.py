"""The environment of a training process, SIGTERM, and published stop requests."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
from importlib.metadata import version

import pytest
from jaxlib.xla_client import generate_pjrt_gpu_plugin_options

from orchestrator.schedule.environment import of_workers
from orchestrator.training.process import (
    DEPRECATED_MEMORY_FRACTION,
    NO_YNN,
    script_threads,
    worker_environment,
)


@pytest.mark.slow
def test_a_stop_request_comes_and_goes_for_its_attempts_alone_and_a_signal_stays() -> None:
    """Without a reachable head no request is seen; after SIGTERM the process still runs."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.programs.watched_process"], capture_output=True, text=True, check=True
    )
    nothing, requested = (False,) * 4, (True, True, False, False)
    one = (False, True, False, False)
    states = [nothing, requested, nothing, requested, nothing, one, (*one[:3], True)]
    assert done.stdout.strip() == str(states)


def test_a_trial_without_a_gpu_never_sees_one() -> None:
    assert worker_environment(0.0)["JAX_PLATFORMS"] == "cpu"


def test_jax_accepts_what_limits_the_memory_of_a_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """With an environment that it refuses, JAX warns and trains on the processors."""
    monkeypatch.setenv(DEPRECATED_MEMORY_FRACTION, "0.5")
    for name, value in of_workers(1 / 8).items():
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    assert generate_pjrt_gpu_plugin_options()["memory_fraction"] == 0.113


SEVEN_DIMENSIONS = """
import jax
from jax import numpy as jnp
ones = jnp.ones((3, 1, 2, 2, 8, 8, 8))
print(float(jax.jit(lambda left, right: jnp.sum(left * right, axis=3))(ones, ones).sum()))
"""


def test_a_program_of_arrays_with_seven_dimensions_runs_in_a_worker() -> None:
    """It ends a process that has JAX's defaults, on x86-64 with jaxlib 0.10.2."""

    def run(flags: str) -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ,
            **worker_environment(0.0),
            "JAX_COMPILATION_CACHE_DIR": "",
            "XLA_FLAGS": flags,
        }
        command = [sys.executable, "-c", SEVEN_DIMENSIONS]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    worker = worker_environment(0.0)["XLA_FLAGS"]
    assert run(worker).stdout == "6144.0\n"
    if version("jaxlib") == "0.10.2" and platform.machine() == "x86_64":
        assert run(worker.replace(NO_YNN, "")).returncode == -signal.SIGSEGV


def test_a_script_uses_the_cores_of_its_trial() -> None:
    """A worker on a CPU has one thread, and one on a GPU unless the variable is set for the sweep."""
    worker = worker_environment(0.0)
    assert script_threads(1.5, worker) == {}
    assert script_threads(4.0, worker) == {"OMP_NUM_THREADS": "4", "PJRT_NPROC": "4", "XLA_FLAGS": NO_YNN}
    assert script_threads(4.0, {"OMP_NUM_THREADS": "1", "XLA_FLAGS": "--own"}) == {"OMP_NUM_THREADS": "4"}
    assert script_threads(4.0, {"OMP_NUM_THREADS": "8"}) == {}


@pytest.mark.parametrize(("share", "fraction"), [(1 / 8, "0.113"), (1.0, "0.900"), (2.0, "0.900")])
def test_the_memory_of_a_trial_follows_its_share(share: float, fraction: str) -> None:
    assert set(worker_environment(share).values()) == {fraction}
