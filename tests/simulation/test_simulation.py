"""Simulated sweeps under faults: every invariant holds, and a seed replays exactly."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from orchestrator.tracking import child
from tests.simulation import runs
from tests.simulation.faults import KILL_AFTER_COMMIT, REQUEST, Fault
from tests.simulation.known import is_known
from tests.simulation.result import Result
from tests.simulation.runs import LENDING, SERVICE, shrunk
from tests.simulation.simulation import simulate, undisturbed
from tests.simulation.sizes import SIZES

FIRST_SEED, CHUNKS, SEEDS = 2000, 1, 50
"""First seed of short sweeps, tests that run them, seeds of each. `make test` runs the seeds before it."""

WARM_SEEDS = 10
"""Seeds after which a process has opened everything that it keeps open."""

LONG_SEEDS, FAST_LONG_SEEDS = 24, 6
"""Seeds whose long sweeps run too, and those of `make test`."""

KEPT_LONG_SEEDS = (1307, 3901, 4564, 12679)
"""Seeds that found a driver which gave up while another was stopped in a transaction, or a charged outage."""

SERVICE_CHUNKS, SERVICE_SEEDS = 2, 12
"""Tests that run services, and seeds of each."""

KEPT_SERVICE_SEEDS = (40, 176, 265, 349)
"""Seeds that found a pause that was too short, waits for a clock, and two wrong ends of submissions."""

KEPT_SHORT_SEEDS = (101085,)
"""Seeds that found a checkpoint that was given up because its copy on this machine vanished."""

KEPT_REQUEST_SEEDS = (1565,)
"""Seeds that found a request that had waited for a file which `recover` replaced."""

LENDING_SEEDS = 300
"""Seeds of lent workers of each run of the tests; `make test` runs 2,000 first."""

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""A killed process leaves its files open, as a real one does; the collection after each run closes them."""


@pytest.mark.slow  # `make test` runs 2,000 other seeds first
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_invariant_holds_under_faults(chunk: int) -> None:
    """A run leaves no file open either: many seeds run in one process."""
    seeds = range(FIRST_SEED + chunk * SEEDS, FIRST_SEED + (chunk + 1) * SEEDS)
    for seed in seeds[:WARM_SEEDS]:
        _require_invariants(seed, "short")
    handles = _handles()
    for seed in seeds[WARM_SEEDS:]:
        _require_invariants(seed, "short")
    assert _handles() == handles


def _handles() -> list[str]:
    """Return what the files are that this process has open."""
    with os.scandir("/proc/self/fd") as links:
        return sorted(str(Path(link.path).readlink()) for link in links)


@pytest.mark.parametrize(
    "seed",
    [
        *[pytest.param(i, marks=pytest.mark.slow if i >= FAST_LONG_SEEDS else ()) for i in range(LONG_SEEDS)],
        *KEPT_LONG_SEEDS,
    ],
)
def test_every_invariant_holds_in_a_long_sweep(seed: int) -> None:
    _require_invariants(seed, "long")


@pytest.mark.parametrize("seed", KEPT_SHORT_SEEDS)
def test_a_defect_of_a_short_sweep_stays_fixed(seed: int) -> None:
    _require_invariants(seed, "short")


@pytest.mark.parametrize("seed", KEPT_REQUEST_SEEDS)
def test_a_defect_of_requests_stays_fixed(seed: int) -> None:
    _require_invariants(seed, "request")


@pytest.mark.parametrize("chunk", range(SERVICE_CHUNKS))
def test_every_invariant_of_the_service_holds_under_faults(chunk: int) -> None:
    for seed in range(chunk * SERVICE_SEEDS, (chunk + 1) * SERVICE_SEEDS):
        _require_invariants(seed, SERVICE)


@pytest.mark.parametrize("seed", KEPT_SERVICE_SEEDS)
def test_a_defect_of_the_service_stays_fixed(seed: int) -> None:
    _require_invariants(seed, SERVICE)


@pytest.mark.slow  # `make test` runs 2,000 other seeds first
def test_every_invariant_of_lent_workers_holds_under_faults() -> None:
    """What the invariants are about happens, too: a run in which nothing is lent would satisfy them."""
    told = "\n".join(
        line.text
        for seed in range(2000, 2000 + LENDING_SEEDS)
        for line in _require_invariants(seed, LENDING).trace
    )
    claims = (r"claim by \w+ of driver-1: True", r"claim by \w+ of driver-1: False")
    ends = (r"ended: idle", r"ended: by a fault", r"ended: its driver is dead", r"ended: killed by driver-\d")
    calls = (r"return_unused by", r"make_room by", r"reset by", r"run by", r"FAULT lost call", r"loses s1x")
    for what in (*claims, *ends, *calls):
        assert re.search(what, told), what


def _require_invariants(seed: int, size: str) -> Result[Any]:
    result = runs.simulate(seed, size)
    if result.violation is not None and not is_known(result.violation):
        replay = f"`python -m tests.simulation {seed} --size {size}` replays this:"
        pytest.fail(f"{replay}\n{shrunk(result)}", pytrace=False)
    return result


@pytest.mark.parametrize(
    ("seed", "size"), [(1, "short"), (11, "short"), (52, "short"), (1, SERVICE), (0, LENDING)]
)
def test_a_seed_replays_exactly(seed: int, size: str) -> None:
    """Also what the product draws by itself: its waits for MLflow in seed 11, names of files in seed 52."""
    assert str(runs.simulate(seed, size)) == str(runs.simulate(seed, size))


def test_a_service_is_killed_twice_and_its_drivers_are_adopted() -> None:
    """The first two services end after the start of a driver; the third one ends its submission."""
    faults = [Fault("kill after commit", f"serve-{number}", commits) for number, commits in ((1, 9), (2, 2))]
    result = runs.simulate(2, SERVICE, faults)
    assert result.violation is None, result
    killed = [line.actor for line in result.trace if line.text.startswith("FAULT kill")]
    assert killed == ["serve-1", "serve-2"]
    ended = [line.actor for line in result.trace if line.text.endswith(" has ended with code 0.")]
    assert set(ended) == {"serve-3"}


def test_what_a_service_delivers_reaches_the_simulated_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """In seed 8 a sweep ends with events pending. A real process would be slow, and see the real clock."""
    started: list[str] = []

    def start() -> None:
        started.append("a real process")
        raise child.DeliveryError(started[-1])

    monkeypatch.setattr(child, "Child", start)
    result = runs.simulate(8, SERVICE)
    assert result.violation is None, result
    assert started == []
    received = [line for line in result.trace if "pending records to MLflow" in line.text]
    assert {line.actor.partition("-")[0] for line in received} == {"serve"}


@pytest.mark.slow
def test_a_request_outlives_the_driver_that_was_about_to_try_it() -> None:
    """Two drivers die around the commit that takes the request; one of the three tries it, once."""
    takers = set()
    seed = next(seed for seed in range(100) if runs.simulate(seed, "request", ()).variant.requests == 1)
    for commits in range(3, 26):
        faults = [Fault(KILL_AFTER_COMMIT, f"driver-{number}", commits) for number in (1, 2)]
        result = runs.simulate(seed, "request", [*faults, Fault(REQUEST, "world", 3)])
        assert result.violation is None, result
        assert any(line.text.startswith("has requested") for line in result.trace)
        taken = [line.actor for line in result.trace if "delete wanted_setting" in line.text]
        assert len(taken) == 1, result
        takers.update(taken)
    assert takers == {"driver-1", "driver-2", "driver-3"}


@pytest.mark.slow  # each seed with faults is compared with its variant without any
@pytest.mark.parametrize("size", SIZES)
def test_every_variant_completes_without_faults(size: str) -> None:
    for variant in SIZES[size].variants:
        assert {trial.state for trial in undisturbed(variant).trials} <= {"COMPLETE", "PRUNED"}


def test_a_fault_strikes_where_it_is_planned() -> None:
    result = simulate(1, faults=[Fault("kill", "driver-1", 100)])
    assert [line.actor for line in result.trace if line.text.startswith("FAULT kill")] == ["driver-1"]
    assert any(line.actor == "driver-2" for line in result.trace)


def test_a_ledger_is_not_rebuilt_on_a_full_disk() -> None:
    result = simulate(20163, faults=[Fault("disk full", "world", 0.0, 30.0), Fault("recover", "world", 4.0)])
    assert result.violation is None, result
    assert any(
        line.actor == "recoverer" and "refuses" in line.text and "needs space" in line.text
        for line in result.trace
    )


def test_a_checkpoint_outlives_the_worker_that_first_made_a_folder_of_its_sweep() -> None:
    """That worker is paused before it has flushed the folder's name, and then the power fails."""
    faults = [Fault("pause", "worker-1", 7, 60.0), Fault("power loss", "world", 8.0)]
    result = simulate(14160, faults=faults)
    assert result.violation is None, result


@pytest.mark.parametrize("kind", ["store vanishes", "disk full"])
def test_an_outage_pauses_a_driver_that_evaluates_test(kind: str) -> None:
    """The disk that is full is one of several machines', so seeds are tried until one pauses."""
    for seed in range(10, 40):
        evaluated = next(
            line.at for line in simulate(seed, faults=[]).trace if "insert evaluation" in line.text
        )
        result = simulate(seed, faults=[Fault(kind, "world", evaluated - 0.5, 30.0)])
        assert result.violation is None, result
        if any(line.text.startswith("says: The sweep is paused: ") for line in result.trace):
            return
    pytest.fail("no seed of 30 pauses in the evaluation")
