"""The sample of a sweep's test results, from which statistics are computed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from orchestrator.ledger.scores import unpack
from orchestrator.report.noise import Sample
from orchestrator.report.seeds import SeedResult
from orchestrator.report.summary import Summary


def sample_of(summary: Summary) -> Sample | None:
    """Return the test results of a sweep as a sample, or None if it has none."""
    results = summary.seeds.results
    return sample_of_seeds(summary, summary.sweep_id, results) if results else None


def sample_of_seeds(summary: Summary, name: str, results: Sequence[SeedResult]) -> Sample:
    """Return test results of a sweep as a sample.

    Args:
        summary: of the sweep.
        name: of the sample.
        results: at least one.
    """
    packed = [result.scores for result in results]
    scores = [unpack(text) for text in packed if text is not None]
    return Sample(
        name=name,
        values=np.array([result.value for result in results]),
        scores=np.array(scores) if len(scores) == len(packed) else None,
        data=summary.data_digest,
        share=summary.test_metric == "test/accuracy",
    )
