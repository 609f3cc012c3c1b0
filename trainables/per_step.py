"""What single steps have counted since a trial reported last: a checkpoint between two reports holds it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class PerStep(NamedTuple):
    """What each of n steps has counted, on the host: arrays (n,), float32.

    Attributes:
        loss: Mean over what is counted.
        metric: Sum over what is counted.
        counted: Sequences, or steps with a target for an output by step.
    """

    loss: np.ndarray
    metric: np.ndarray
    counted: np.ndarray

    def after(self, earlier: PerStep) -> PerStep:
        """Return the earlier steps and then these."""
        return PerStep(*(np.concatenate(columns) for columns in zip(earlier, self, strict=True)))
