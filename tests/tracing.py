"""Trace programs of settings on drawn examples: every shape is checked, and nothing is compiled."""

from __future__ import annotations

import jax
import numpy as np

from trainables.engine.calls import Calls
from trainables.engine.network import NetworkProgram, Sequences
from trainables.rehearsal import drawn, signature_of
from trainables.trial import TrialSettings


def trace_step(settings: TrialSettings) -> None:
    """Trace one training step.

    Raises:
        Refusal: the settings cannot be trained.
    """
    program, examples = _of(settings)
    rows = np.arange(program.batch, dtype=np.int32)
    jax.eval_shape(program.step, program.shapes(), examples, rows)


def trace_evaluation(settings: TrialSettings) -> None:
    """Trace the network without its gradient, in a third of the time of a step.

    Raises:
        Refusal: the settings cannot be trained.
    """
    program, examples = _of(settings)
    trained = program.shapes().trained
    memory = jax.eval_shape(Calls(program).start, trained)
    counts = np.ones(len(examples.lengths), np.float32)
    jax.eval_shape(Calls(program).evaluate, trained, memory, examples, counts, np.int32(1))


def _of(settings: TrialSettings) -> tuple[NetworkProgram, Sequences]:
    batch = settings.training.batch_size * settings.training.accumulate
    data = drawn(signature_of(settings), batch, whole=settings.training.carry_state)
    program = NetworkProgram.of(settings, data.signature, data.train)
    return program, Sequences(data.train.inputs, data.train.lengths, data.train.targets)  # type: ignore[arg-type]
