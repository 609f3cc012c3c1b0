"""The values of an arm as a sample, from which statistics are computed."""

from __future__ import annotations

import numpy as np

from orchestrator.experiment.results import ArmResult
from orchestrator.ledger.scores import unpack
from orchestrator.report.history import SCORED
from orchestrator.report.noise import Sample, mean_of
from orchestrator.report.statistics import estimated


def is_scored(metric: str) -> bool:
    """Return True if the score of every test example belongs to a metric."""
    return metric in SCORED


def sample_of(arm: ArmResult, metric: str) -> Sample:
    """Return the values of an arm, with the scores of test examples where they are recorded for each seed.

    Args:
        arm: with at least one value.
        metric: what arms are compared by.
    """
    packed = [seed.scores for seed in arm.seeds]
    is_whole = is_scored(metric) and all(packed)
    return Sample(
        name=arm.name,
        values=np.array(arm.values),
        scores=np.array([unpack(text) for text in packed]) if is_whole else None,
        data=arm.data_digest,
        share=metric.startswith("test/accuracy"),
    )


def interval_of(sample: Sample) -> tuple[float, float] | None:
    """Return the interval of a mean with the noise of seeds and of test examples, if both are known."""
    if not mean_of(sample).complete:
        return None
    found = estimated(sample)
    assert found.low is not None
    assert found.high is not None
    return float(found.low), float(found.high)
