"""Trace a training step of settings: every shape is checked, and nothing is compiled."""

from __future__ import annotations

import jax
import numpy as np

from trainables.engine.calls import Calls
from trainables.engine.network import NetworkProgram, Sequences
from trainables.rehearsal import drawn, signature_of
from trainables.trial import TrialSettings


def trace(settings: TrialSettings) -> None:
    """Trace one training step on drawn examples.

    Raises:
        Refusal: the settings cannot be trained.
    """
    batch = settings.training.batch_size * settings.training.accumulate
    data = drawn(signature_of(settings), batch)
    program = NetworkProgram(settings, data.signature, True, batch)
    examples = Sequences(data.train.inputs, data.train.lengths, data.train.targets)  # type: ignore[arg-type]
    jax.eval_shape(Calls(program).advance, program.shapes(), np.int32(1), examples)
