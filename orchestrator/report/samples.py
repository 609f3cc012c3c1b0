"""The sample of a sweep's test results, from which statistics are computed."""

from __future__ import annotations

import numpy as np

from orchestrator.ledger.scores import unpack
from orchestrator.report.noise import Sample
from orchestrator.report.summary import Summary


def sample_of(summary: Summary) -> Sample | None:
    """Return the test results of a sweep as a sample, or None if it has none."""
    results = summary.seeds.results
    if not results:
        return None
    packed = [result.scores for result in results]
    scores = [unpack(text) for text in packed if text is not None]
    return Sample(
        name=summary.sweep_id,
        values=np.array([result.value for result in results]),
        scores=np.array(scores) if len(scores) == len(packed) else None,
        data=summary.data_digest,
        share=summary.test_metric == "test/accuracy",
    )
