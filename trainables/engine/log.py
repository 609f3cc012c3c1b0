"""What the steps of a call report, written on the device."""

from __future__ import annotations

from typing import NamedTuple

import jax
from jax import Array
from jax import numpy as jnp

MOST_STEPS = 512
"""Steps that one call can record; a longer request is several calls."""


class StepMetrics(NamedTuple):
    """What one step reports, all scalars but the norms.

    Attributes:
        loss: mean over what is counted.
        metric: sum over what is counted.
        counted: sequences, or unpadded steps for an output by step.
        tokens: unpadded steps read.
        norms: (depth,) hidden-state norms; 0 unless recorded.
        rate: learning rate outside the recurrence.
    """

    loss: Array
    metric: Array
    counted: Array
    tokens: Array
    norms: Array
    rate: Array


class Log(NamedTuple):
    """What a call of several steps reports.

    Attributes:
        loss, metric, counted, tokens: of `StepMetrics`, (MOST_STEPS,).
        norms: (depth,), of the last step.
        rate: of the last step.
        step: updates the slot has done in all.
        finite: whether the slot is not frozen.
    """

    loss: Array
    metric: Array
    counted: Array
    tokens: Array
    norms: Array
    rate: Array
    step: Array
    finite: Array


def nothing(depth: int) -> StepMetrics:
    """Return the outcome of no batch, to add others to."""
    zero = jnp.float32(0)
    return StepMetrics(zero, zero, zero, jnp.int32(0), jnp.zeros(depth), zero)


def empty(depth: int) -> Log:
    """Return a log of no steps."""
    column = jnp.zeros(MOST_STEPS)
    return Log(
        loss=column,
        metric=column,
        counted=column,
        tokens=column.astype(jnp.int32),
        norms=jnp.zeros(depth),
        rate=jnp.float32(0),
        step=jnp.int32(0),
        finite=jnp.bool_(True),
    )


def noted(log: Log, index: Array, outcome: StepMetrics) -> Log:
    """Return the log with one step's outcome."""

    def written(column: Array, value: Array) -> Array:
        return jax.lax.dynamic_update_index_in_dim(column, value, index, axis=0)

    return log._replace(
        loss=written(log.loss, outcome.loss),
        metric=written(log.metric, outcome.metric),
        counted=written(log.counted, outcome.counted),
        tokens=written(log.tokens, outcome.tokens),
        norms=outcome.norms,
        rate=outcome.rate,
    )
