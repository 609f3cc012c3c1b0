"""Functions that experiments measure draw other seeds where some are left out."""

from __future__ import annotations

from benchmarks import approximations, gain


def test_seeds_that_were_seen_are_left_out() -> None:
    """Ten seeds after five are none of the five, and the first of them is the sixth."""
    for depth in (2, 8):
        seen = [approximations.start(depth=depth, seed=seed)["value"] for seed in range(6)]
        drawn = [approximations.start(depth=depth, seed=seed, skip=5)["value"] for seed in range(10)]
        assert drawn[0] == seen[5]
        assert not set(drawn) & set(seen[:5])
    ring = {"r_min": 0.5, "r_max": 0.9, "states": 50, "length": 40}
    seen = [gain.ratio(**ring, seed=seed)["value"] for seed in range(6)]
    drawn = [gain.ratio(**ring, seed=seed, skip=5)["value"] for seed in range(10)]
    assert drawn[0] == seen[5]
    assert not set(drawn) & set(seen[:5])
