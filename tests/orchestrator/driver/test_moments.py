"""A signal at any moment ends a driver in time; nothing is lost, and the sweep can be resumed.

`python -m benchmarks.faults moments` tries 500 moments, and others with a real Ray.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.orchestrator.driver.moments import LEFT_SECONDS, Moment, block_and_interrupt, interrupt, warm

SEEDS, FAST_SEEDS = 20, 4
"""Moments that are tried, and those of `make test`: each phase with each signal."""


@pytest.fixture(scope="module", autouse=True)
def _warm(tmp_path_factory: pytest.TempPathFactory) -> None:
    warm(tmp_path_factory.mktemp("moments") / "warm")


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed",
    [pytest.param(seed, marks=pytest.mark.slow if seed >= FAST_SEEDS else ()) for seed in range(SEEDS)],
)
def test_a_signal_at_any_moment_ends_the_driver_and_loses_nothing(tmp_path: Path, seed: int) -> None:
    left = interrupt(tmp_path / "sweep", Moment.drawn(seed))
    assert left.code == (0 if left.complete else 4)
    assert left.seconds < LEFT_SECONDS


def test_a_driver_that_has_no_time_to_save_ends_its_attempts_in_the_ledger(tmp_path: Path) -> None:
    """They are not charged, and `check` finds nothing wrong before the next run."""
    code, findings, attempts = block_and_interrupt(tmp_path / "sweep")
    assert (code, findings) == (4, [])
    assert [(attempt.state, attempt.cause) for attempt in attempts] == [("LOST", "driver lost")]
