"""Reports of training: step by step on the device, and in total for the caller of an engine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import numpy as np
from jax import Array
from jax import numpy as jnp

from trainables.per_step import PerStep
from trainables.stretches import Stretch, merged

MOST_STEPS = 512
"""Largest number of steps of one device call."""


class StepMetrics(NamedTuple):
    """The report of one step; all fields are scalars.

    Attributes:
        loss: Mean over the counted predictions.
        metric: Sum over the counted predictions.
        counted: Number of sequences, or of steps with a target for an output by step.
        tokens: Unpadded steps read.
        rate: Learning rate outside the recurrence.
    """

    loss: Array
    metric: Array
    counted: Array
    tokens: Array
    rate: Array


class StepLog(NamedTuple):
    """The report of a call of several steps.

    Attributes:
        loss, metric, counted, tokens: Fields of `StepMetrics` for each step, (MOST_STEPS,).
        rate: Rate of the last step.
        step: Total number of updates of the slot.
        taken: Number of updates in this call.
        finite: False if the slot is frozen.
    """

    loss: Array
    metric: Array
    counted: Array
    tokens: Array
    rate: Array
    step: Array
    taken: Array
    finite: Array


def nothing() -> StepMetrics:
    """Return the outcome of zero batches, to which others are added."""
    zero = jnp.float32(0)
    return StepMetrics(zero, zero, zero, jnp.int32(0), zero)


def empty() -> StepLog:
    """Return a log of no steps."""
    column = jnp.zeros(MOST_STEPS)
    return StepLog(
        loss=column,
        metric=column,
        counted=column,
        tokens=column.astype(jnp.int32),
        rate=jnp.float32(0),
        step=jnp.int32(0),
        taken=jnp.int32(0),
        finite=jnp.bool_(True),
    )


def noted(log: StepLog, index: Array, outcome: StepMetrics) -> StepLog:
    """Return the log with one step's outcome added."""

    def written(column: Array, value: Array) -> Array:
        return jax.lax.dynamic_update_index_in_dim(column, value, index, axis=0)

    return log._replace(
        loss=written(log.loss, outcome.loss),
        metric=written(log.metric, outcome.metric),
        counted=written(log.counted, outcome.counted),
        tokens=written(log.tokens, outcome.tokens),
        rate=outcome.rate,
    )


@dataclass(frozen=True)
class TrainReport:
    """Training of one slot since its steps were requested.

    Attributes:
        step: Updates done in all.
        steps: Updates done since the request.
        per_step: Losses and metrics of these steps, and of the earlier steps that `after` adds.
        learning_rate: Learning rate of the last step, outside the recurrence.
        tokens: Unpadded steps of sequences read.
        finite: False if a loss or gradient was not finite: the slot is frozen at the step before it.
        train_seconds: Wall-clock time of its rounds without compilation, divided among the slots of a round.
        compile_seconds: Wall-clock time of compilation since the slot's last report.
        stretches: Programs that trained these steps.
    """

    step: int
    steps: int
    per_step: PerStep
    learning_rate: float
    tokens: int
    finite: bool
    train_seconds: float
    compile_seconds: float
    stretches: tuple[Stretch, ...]

    # Sums are taken in float64 over single steps, so that they do not depend on how training was split.

    @property
    def loss(self) -> float:
        """Mean training loss; NaN if the slot froze."""
        return float(np.mean(self.per_step.loss.astype(np.float64))) if self.finite else math.nan

    @property
    def metric(self) -> float:
        """Training accuracy or mean squared error; NaN if the slot froze."""
        metric, counted = (np.sum(column.astype(np.float64)) for column in self.per_step[1:])
        return float(metric / counted) if self.finite else math.nan

    def after(self, earlier: PerStep) -> TrainReport:
        """Return the report with the loss and the metric of earlier steps that were not reported.

        Args:
            earlier: Steps since the last report by attempts that were stopped.
        """
        return replace(self, per_step=self.per_step.after(earlier))

    def curve(
        self,
        scores: Mapping[str, float],
        norms: Mapping[str, float] | None = None,
        solutions: Mapping[str, float] | None = None,
    ) -> dict[str, float]:
        """Return the new point of each curve by name.

        Args:
            scores: Scores of the validation after this training.
            norms: Result of `Engine.hidden_norms` after this training.
            solutions: Result of `Engine.solutions` after this training.
        """
        # A program need not score its training examples, and its only score may be the loss.
        scored = [] if math.isnan(self.metric) else [name for name in scores if name != "loss"]
        trained = {f"train/{name}": self.metric for name in scored}
        return {
            **{f"val/{name}": value for name, value in scores.items()},
            "train/loss": self.loss,
            **trained,
            "learning_rate": self.learning_rate,
            **{f"hidden_norm/{name}": value for name, value in (norms or {}).items()},
            **{f"newton/{name}": value for name, value in (solutions or {}).items()},
        }


def cut(log: StepLog) -> StepLog:
    """Return the log of a slot on the host, without the rows of steps that it did not take."""
    columns = ("loss", "metric", "counted", "tokens")
    return log._replace(**{name: getattr(log, name)[: int(log.taken)] for name in columns})


def joined(
    calls: Sequence[tuple[StepLog, Stretch]], train_seconds: float, compile_seconds: float
) -> TrainReport:
    """Return the report of one slot's consecutive calls."""
    logs = [log for log, _ in calls]
    last = logs[-1]
    per_step = PerStep(*(np.concatenate([getattr(log, name) for log in logs]) for name in PerStep._fields))
    return TrainReport(
        step=int(last.step),
        steps=len(per_step.loss),
        per_step=per_step,
        learning_rate=float(last.rate),
        tokens=sum(int(np.sum(log.tokens, dtype=np.int64)) for log in logs),
        finite=bool(last.finite),
        train_seconds=train_seconds,
        compile_seconds=compile_seconds,
        stretches=merged(stretch for _, stretch in calls),
    )
