"""The losses and metrics of single steps since the last report, which a checkpoint between reports holds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class PerStep(NamedTuple):
    """The losses and metrics of n steps, on the host: arrays (n,), float32.

    Attributes:
        loss: Mean over the counted predictions.
        metric: Sum over the counted predictions.
        counted: Number of sequences, or of steps with a target for an output by step.
    """

    loss: np.ndarray
    metric: np.ndarray
    counted: np.ndarray

    def after(self, earlier: PerStep) -> PerStep:
        """Return the earlier steps, followed by these."""
        return PerStep(*(np.concatenate(columns) for columns in zip(earlier, self, strict=True)))
