"""Settings of all tests, and fixtures that tests of several folders use."""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from orchestrator.system import SIGNALS, handled
from tests import postgres
from tests.shared_ray import own_ray

# Before the first import of JAX: no test may depend on a GPU, and workers of the suite share two cores.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
# The driver that a service keeps ready imports for three seconds, and most tests are over before it has.
os.environ.setdefault("SWEEP_WARM", "0")
# With their default niceness, Ray's workers and the service's drivers would get no processor time beside
# tests that compile.
os.environ.setdefault("RAY_worker_niceness", "0")
os.environ.setdefault("SWEEP_DRIVER_NICENESS", "0")

# What a process was started to ignore it ignores, and so do those that it starts: signals must reach the
# drivers of tests that run under `nohup`, or in the background of a script.
for ignored in set(SIGNALS) - set(handled()):
    signal.signal(ignored, signal.default_int_handler if ignored is signal.SIGINT else signal.SIG_DFL)

# What is drawn may not depend on the terminal or the CI service that runs the tests.
os.environ["TERM"] = "xterm"
for name in ("CI", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
    os.environ.pop(name, None)

# Tests run most programs a few times, so XLA compiles them in half the time and leaves them slow. The workers
# of real sweeps set their own flags; `XLA_FLAGS= pytest ...` runs the tests with optimised programs.
_UNOPTIMISED = ["--xla_backend_optimization_level=0", "--xla_llvm_disable_expensive_passes=true"]
if tuple(map(int, version("jaxlib").split(".")[:2])) < (0, 11):  # a later XLA ends the process at this one
    _UNOPTIMISED.append("--xla_cpu_use_fusion_emitters=false")
os.environ.setdefault("XLA_FLAGS", " ".join(_UNOPTIMISED))

# Compiled programs need not name the lines of Python that they come from.
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")

# With JAX, Ray and MLflow imported a collection looks at a million objects: a tenth of a test's time.
gc.set_threshold(100_000, 50, 100)

# Most of the time of many tests is compilation. What one test compiled, the others read: all workers of
# pytest-xdist, which inherit the variable, and all processes that they start.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    COMPILATIONS = tempfile.mkdtemp(prefix="compilations-")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = COMPILATIONS
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    atexit.register(shutil.rmtree, COMPILATIONS, ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests that start processes and mostly wait for them: the others fill their pauses."""
    items.sort(key=lambda item: item.get_closest_marker("end_to_end") is None)


@pytest.fixture(autouse=True)
def _usual_umask() -> Iterator[None]:
    """Begin each test with the same umask: what is called in its process may set that of a worker."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture(scope="session", autouse=True)
def _shared_ray() -> Iterator[None]:
    """Give each pytest-xdist worker a Ray of its own, which its tests share; end it after the last test."""
    folder = Path(tempfile.mkdtemp(prefix="ray-"))
    with own_ray(folder) as variables:
        os.environ.update(variables)
        yield
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.Server]:
    """Yield a PostgreSQL server that all tests share; its addresses hold a password."""
    programs, user = postgres.binaries(), postgres.unprivileged_user()
    if programs is None or user is None:
        pytest.skip("needs PostgreSQL (Debian: postgresql), and an account that may run it")
    server = postgres.Server(programs, user)
    yield server
    server.remove()


@pytest.fixture
def temporary() -> Iterator[Path]:
    """Yield a temporary folder with a short path, because Ray limits the length of its sockets' names."""
    folder = Path(tempfile.mkdtemp(prefix="ray-"))
    yield folder
    shutil.rmtree(folder)
