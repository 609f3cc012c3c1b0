"""Sizes of simulated sweeps: short and long ones, and those that promote, end early or try requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.simulation.faults import Severity
from tests.simulation.sweeps import Variant, endings, promotions, requests, variants


@dataclass(frozen=True)
class Size:
    """A size of sweeps.

    Attributes:
        variants: One of which a seed runs.
        severity: Severity of the faults.
    """

    variants: Sequence[Variant]
    severity: Severity


SIZES = {
    "short": Size(
        variants(trials=2, confirmed_trials=1, reports=2, lone_reports=5),
        Severity(
            drivers=1,
            workers=1,
            dooms=4,
            pauses=(5.0, 60.0),
            outages=(3.0, 30.0),
            silences=(3.0, 30.0, 300.0),
            full=(3.0, 30.0),
            delays=(2.0, 10.0),
        ),
    ),
    "long": Size(
        variants(trials=3, confirmed_trials=3, reports=3, lone_reports=6),
        Severity(
            drivers=3,
            workers=2,
            dooms=5,
            pauses=(5.0, 30.0, 60.0, 120.0),
            outages=(3.0, 30.0, 120.0, 900.0),
            silences=(3.0, 30.0, 120.0, 900.0),
            full=(3.0, 30.0, 120.0),
            delays=(2.0, 10.0, 30.0),
        ),
    ),
    "promotion": Size(
        promotions(trials=4, confirmed_trials=3),
        Severity(
            drivers=2,
            workers=1,
            dooms=4,
            pauses=(5.0, 60.0),
            outages=(3.0, 30.0),
            silences=(3.0, 30.0, 300.0),
            full=(3.0, 30.0),
            delays=(2.0, 10.0),
        ),
    ),
    "ending": Size(
        endings(trials=6, confirmed_trials=6),
        Severity(
            drivers=2,
            workers=1,
            dooms=4,
            pauses=(5.0, 60.0),
            outages=(3.0, 30.0),
            silences=(3.0, 30.0, 300.0),
            full=(3.0, 30.0),
            delays=(2.0, 10.0),
        ),
    ),
    "request": Size(
        requests(trials=4, confirmed_trials=3),
        Severity(
            drivers=3,
            workers=1,
            dooms=4,
            pauses=(5.0, 60.0),
            outages=(3.0, 30.0),
            silences=(3.0, 30.0, 300.0),
            full=(3.0, 30.0),
            delays=(2.0, 10.0),
        ),
    ),
}
"""By name."""
