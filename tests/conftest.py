"""Settings of all tests, and fixtures that tests of several folders use."""

from __future__ import annotations

import argparse
import gc
import os
import shutil
import signal
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

import pytest

from orchestrator.machines import head
from orchestrator.system import SIGNALS, handled
from orchestrator.training.process import NO_YNN
from tests import compiled, postgres, shared_ray

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
os.environ.setdefault("XLA_FLAGS", " ".join([*_UNOPTIMISED, NO_YNN]).rstrip())

# Compiled programs need not name the lines of Python that they come from.
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")

# With JAX, Ray and MLflow imported a collection looks at a million objects: a tenth of a test's time.
gc.set_threshold(100_000, 50, 100)

# Most of the time of many tests is compilation. What one test compiled, the others read: all workers of
# pytest-xdist, which inherit the variable, all processes that they start, and later runs.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    COMPILATIONS = compiled.folder(os.environ["XLA_FLAGS"])
    compiled.clean(COMPILATIONS)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(COMPILATIONS)
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"

STARTS_RAY = {"commands", "programs"}
"""Fixtures whose tests start Ray, with or without the marker `ray`."""

USES_SERVER = {"postgres_server", "postgres_url", "new_mlflow", "client", "reader", "issuer"}
"""Fixtures whose tests use PostgreSQL, MLflow or a server of HTTP."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that selects a share of the tests."""
    help_text = "run the share K of N of the selected tests: the N shares together are all of them"
    parser.addoption("--share", metavar="K/N", type=_share, help=help_text)


def _share(text: str) -> tuple[int, int]:
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise argparse.ArgumentTypeError(f"must be K/N with 1 <= K <= N, such as 3/8 (got {text})")
    return int(number), int(count)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Mark tests by what they use, order them, and leave out those of the other shares.

    The tests that start Ray come first: `--dist worksteal` then gives them to one worker, whose Ray they
    share. After them come the other tests that start processes and mostly wait: the rest fills their pauses.
    """
    cases: Counter[str] = Counter()
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if STARTS_RAY & fixtures:
            item.add_marker(pytest.mark.ray)
        if USES_SERVER & fixtures or "postgresql" in _texts(item):
            item.add_marker(pytest.mark.server)
        function = item.nodeid.partition("[")[0]
        few, some = item.get_closest_marker("slow_after"), item.get_closest_marker("slow_cases")
        if few is not None and cases[function] >= few.args[0]:
            item.add_marker(pytest.mark.slow)
        if some is not None and item.nodeid.partition("[")[2].removesuffix("]") in some.args:
            item.add_marker(pytest.mark.slow)
        cases[function] += 1
    items.sort(key=lambda item: 0 if _has(item, "ray") else 1 if _has(item, "end_to_end") else 2)
    yield  # the options -m and -k deselect tests
    if share := config.getoption("--share"):
        number, count = share
        own = dealt([item.nodeid for item in items], count)
        left_out = [item for item, other in zip(items, own, strict=True) if other != number]
        items[:] = [item for item, other in zip(items, own, strict=True) if other == number]
        config.hook.pytest_deselected(items=left_out)


def dealt(names: Sequence[str], count: int) -> list[int]:
    """Return the share, from 1 to `count`, of each test.

    The tests of a file, which take about equally long, are dealt out to all shares in turn. Another test in
    one file leaves the shares of the others as they are.
    """
    before: Counter[str] = Counter()
    shares = []
    for name in names:
        file = name.partition("::")[0]
        shares.append((zlib.crc32(file.encode()) + before[file]) % count + 1)
        before[file] += 1
    return shares


def _texts(item: pytest.Item) -> list[str]:
    """Return the parameters of a test that are texts."""
    case = getattr(item, "callspec", None)
    return [value for value in case.params.values() if isinstance(value, str)] if case else []


def _has(item: pytest.Item, marker: str) -> bool:
    return item.get_closest_marker(marker) is not None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Allow a Ray of its own only to a test that has the marker."""
    shared_ray.ALLOWED = _has(item, "ray")


@pytest.fixture(autouse=True)
def _marked_if_it_starts_ray(_shared_ray: None, _no_ray: Path) -> Iterator[None]:
    """Fail a test that starts Ray without the marker `ray`, so that `make test-fast` has none.

    Such a test gets another folder than the shared Ray's, so that it fails in every order of the tests.
    It looks after what the test replaces by `monkeypatch` is restored, which may be the user of this process.
    """
    if shared_ray.ALLOWED:
        yield
        return
    with pytest.MonkeyPatch.context() as patch, shared_ray.variables_of(_no_ray):
        patch.setenv(head.RUNTIME, str(_no_ray))
        yield
        started = head.running(shared_ray.runtime_folder_of(_no_ray))
        assert started is None, "This test starts Ray: mark it with pytest.mark.ray"


@pytest.fixture(autouse=True)
def _usual_umask() -> Iterator[None]:
    """Begin each test with the same umask: what is called in its process may set that of a worker."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture(scope="session", autouse=True)
def _shared_ray() -> Iterator[None]:
    """Give the processes of this pytest-xdist worker one Ray; the first test that needs it starts it."""
    folder = Path(tempfile.mkdtemp(prefix="ray-"))
    with shared_ray.variables_of(folder) as variables:
        os.environ.update(variables)
        yield
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def _no_ray() -> Iterator[Path]:
    """Yield the runtime folder of tests that may not start Ray."""
    folder = Path(tempfile.mkdtemp(prefix="ray-"))
    yield folder
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
