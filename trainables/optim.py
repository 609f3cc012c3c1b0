"""Losses, and an optimiser in groups under one schedule; every hyperparameter may be a traced number.

Losses and metrics are sums and counts, so that batches, micro-batches and masked rows add up exactly. The
recurrent parameters that a layer names have a rate of their own and no weight decay. Everything else is
decayed if the optimiser has a weight decay, biases and normalisation included: the public implementations
behind the papers' tables (S5, and the RotRNN authors' fork of it) apply AdamW to that whole group without a
mask. Only what a layer names as undecayed is left out, where its publication marks single parameters (S6).
`GROUPINGS` has the groups of those implementations, which differ from what the papers say.

Source: RotRNN, table 3 (GLR, LR, WD); LRU, appendix (no decay on recurrent parameters); S5's released program
for the other groupings and for the schedule `s5`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from types import MappingProxyType
from typing import NamedTuple, TypeAlias, cast

import jax
import optax
from jax import Array
from jax import numpy as jnp

from trainables.data.task import IGNORED
from trainables.settings import Grouping, Schedule
from trainables.trial import OPTIMIZERS, TrainingSettings

Moments: TypeAlias = optax.OptState
"""The state of an optimiser: a tree of vectors (P,) and scalars."""


class Sums(NamedTuple):
    """Weighted sums over sequences or, for an output by step, over the steps with a target."""

    loss: Array
    metric: Array
    counted: Array


def step_mask(lengths: Array, length: int) -> Array:
    """Return (..., L) booleans, true where a step lies inside its sequence of true length (...,)."""
    return jnp.arange(length) < lengths[..., None]


def classification(logits: Array, targets: Array, weights: Array) -> Sums:
    """Sum cross-entropy (nats) and right answers.

    Args:
        logits: (..., C).
        targets: (...,) int, classes.
        weights: (...,), 0 for predictions that do not count.
    """
    kept = weights > 0
    chosen = jax.nn.one_hot(targets, logits.shape[-1], dtype=logits.dtype)
    losses = jax.nn.logsumexp(logits, axis=-1) - jnp.sum(chosen * logits, axis=-1)
    right = jnp.argmax(logits, axis=-1) == targets
    return Sums(jnp.sum(jnp.where(kept, losses, 0) * weights), jnp.sum(right * weights), jnp.sum(weights))


def margin(logits: Array, targets: Array, weights: Array) -> Array:
    """Return the sum of the differences between the logits of the targets and the means of all logits.

    Multiplied by s, it is the term that label smoothing by s adds to the cross-entropy. The arguments are
    those of `classification`.

    Source: Szegedy et al., Rethinking the Inception architecture, 2016, section 7.
    """
    kept = weights > 0
    chosen = jax.nn.one_hot(targets, logits.shape[-1], dtype=logits.dtype)
    margins = jnp.sum(chosen * logits, axis=-1) - jnp.mean(logits, axis=-1)
    return jnp.sum(jnp.where(kept, margins, 0) * weights)


def regression(predictions: Array, targets: Array, weights: Array) -> Sums:
    """Sum squared errors.

    Args:
        predictions: (B, 1).
        targets: (B,) float.
        weights: (B,), 0 for predictions that do not count.
    """
    squares = jnp.where(weights > 0, (predictions[..., 0] - targets) ** 2, 0) * weights
    total = jnp.sum(squares)
    return Sums(total, total, jnp.sum(weights))


LOSSES: Mapping[str, Callable[[Array, Array, Array], Sums]] = MappingProxyType(
    {"class": classification, "steps": classification, "value": regression}
)
"""The loss of each `Signature.output`."""


def weights_of(output: str, examples: Array, lengths: Array, targets: Array) -> Array:
    """Return the weight of each prediction: (B,), or (B, L) for an output by step.

    Args:
        output: `Signature.output`.
        examples: (B,), 1 for an example that counts and 0 for one that fills a batch.
        lengths: (B,) true lengths; used for an output by step.
        targets: (B,), or (B, L) for an output by step; a step whose target is `IGNORED` counts 0.
    """
    if output != "steps":
        return examples
    return examples[:, None] * (step_mask(lengths, targets.shape[-1]) & (targets != IGNORED))


class Rates(NamedTuple):
    """Hyperparameters of one update, all scalars.

    Attributes:
        learning_rate: Learning rate of the parameters outside the recurrence, at this step.
        recurrent_learning_rate: Learning rate of the recurrent parameters, at this step.
        weight_decay: Decoupled weight decay of the groups that decay, which is multiplied by their rate.
    """

    learning_rate: Array
    recurrent_learning_rate: Array
    weight_decay: Array


def _cosine(way: Array) -> Array:
    return 0.5 * (1 + jnp.cos(jnp.pi * way))


def _linear(way: Array) -> Array:
    return 1 - way


SCHEDULES: Mapping[Schedule, Callable[[Array], Array]] = MappingProxyType(
    {
        "cosine": _cosine,
        "linear": _linear,
        "constant": jnp.ones_like,
        "plateau": jnp.ones_like,
        "s5": _cosine,
    }
)
"""Schedules by name: a function of the progress from warm-up to last step, 0 to 1, to a share of the peak.

That of `plateau` is multiplied by the `scale` of a `Plateau`, which depends on the losses. That of `s5` has a
progress of its own.
"""

Plateau: TypeAlias = optax.contrib.ReduceLROnPlateauState
"""The state of the schedule `plateau`, all scalars.

Source: LDStack's notebook, which has Keras's `ReduceLROnPlateau("loss", 0.5, 2)`.
"""

LEAST_GAIN = 1e-4
"""Least decrease of the mean loss that counts as an improvement; Keras's `min_delta`."""


def first_plateau(training: TrainingSettings) -> Plateau | None:
    """Return the state of the schedule before the first step; None unless it is `plateau`."""
    if training.schedule != "plateau":
        return None
    return cast("Plateau", _reduction(training).init(jnp.float32(0)))


def next_plateau(training: TrainingSettings, plateau: Plateau, loss: Array) -> Plateau:
    """Return the state of the schedule after a step with this training loss.

    After every `interval` steps, their mean loss is compared with the lowest one so far. After
    `plateau_patience` intervals in a row without an improvement, `scale` is multiplied by `plateau_factor`.
    """
    return cast("Plateau", _reduction(training).update(jnp.float32(0), plateau, value=loss)[1])


def _reduction(training: TrainingSettings) -> optax.GradientTransformationExtraArgs:
    return optax.contrib.reduce_on_plateau(
        factor=training.plateau_factor,
        patience=training.plateau_patience,
        rtol=0.0,
        atol=LEAST_GAIN,
        accumulation_size=training.interval,
    )


def schedule(step: Array, steps: Array, warmup: Array, shape: Schedule = "cosine") -> Array:
    """Return the share of the peak rate at a step: a linear rise, then the shape.

    It is a share because `optax.warmup_cosine_decay_schedule` cannot take a traced peak.

    Args:
        step: Updates done before this one.
        steps: Length of the whole schedule, in updates.
        warmup: Share of `steps` that rises; the last step of the rise has the peak rate.
        shape: Name of `SCHEDULES`.
    """
    rise = warmup * steps
    if shape == "s5":
        return _released(step, steps, rise)
    rising = (step + 1) / jnp.maximum(rise, 1)
    fallen = jnp.clip((step - rise) / jnp.maximum(steps - rise, 1), 0, 1)
    return jnp.where(step < rise, jnp.minimum(rising, 1), SCHEDULES[shape](fallen))


def _released(step: Array, steps: Array, rise: Array) -> Array:
    """Return the share of the peak rate at a step as S5's released program has it.

    The program writes a rate after each step, from the number of that step, so the first step has the peak
    rate and every other one the rate of the step before. Its cosine counts from the first step of the warm-up
    and ends after `steps - rise`, so that it begins below the peak, and the rate of the last `rise` steps
    is 0.

    Source: S5's repository, `train.py` and `train_helpers.py`.
    """
    before = step - 1.0
    fallen = SCHEDULES["s5"](jnp.clip(before / jnp.maximum(steps - rise, 1), 0, 1))
    share = jnp.where(before < rise, (before + 1) / jnp.maximum(rise, 1), fallen)
    return jnp.where(step == 0, 1.0, jnp.minimum(share, 1))


class Groups(NamedTuple):
    """The positions of the groups in a vector of parameters; the first one has the general rate and decay.

    Attributes:
        undecayed: Position of the first parameter with the general rate and no weight decay.
        recurrent: Position of the first recurrent parameter, with a rate of its own and no weight decay.
        recurrent_decayed: Position of the first parameter with the recurrent rate and weight decay.
    """

    undecayed: int
    recurrent: int
    recurrent_decayed: int


class Members(NamedTuple):
    """Names of a layer's parameters outside the first group.

    Attributes:
        undecayed: Those with the general rate and no weight decay.
        recurrent: Those with the recurrent rate and no weight decay.
        recurrent_decayed: Those with the recurrent rate and weight decay.
    """

    undecayed: Set[str] = frozenset()
    recurrent: Set[str] = frozenset()
    recurrent_decayed: Set[str] = frozenset()


_EIGENVALUES = frozenset({"Lambda_re", "Lambda_im", "theta_log", "nu_log", "gamma_log"})
_STEPS = frozenset({"log_step"})
_INPUTS = frozenset({"B", "B_re", "B_im"})
_OUTPUTS = frozenset({"C", "C_re", "C_im", "C_backward", "C_backward_re", "C_backward_im", "D"})

GROUPINGS: Mapping[Grouping, Members] = MappingProxyType(
    {
        "standard": Members(recurrent=_EIGENVALUES | _STEPS | _INPUTS),
        "dt_global": Members(recurrent=_EIGENVALUES | _INPUTS),
        "BandCdecay": Members(recurrent=_EIGENVALUES | _STEPS, recurrent_decayed=_INPUTS),
        "BfastandCdecay": Members(recurrent=_EIGENVALUES | _STEPS),
        "noBCdecay": Members(recurrent=_EIGENVALUES | _STEPS | _INPUTS | _OUTPUTS),
    }
)
"""Groups of S5's released program by its names; `layer`, what the layer declares, is not one of them.

The program goes by names of parameters, which the RotRNN authors' fork extends by those of LRU and by
`gamma_log`. RotRNN's `theta` and `M` are on none of its lists, so they have the general rate and decay.
`dt_global` is `standard` with the option of that name.

Source: `train_helpers.py` of S5's repository and of the fork (`raresdolga/s5`).
"""


def layer_path(names: Set[str]) -> Callable[[tuple[str, ...]], bool]:
    """Return a function that is True for the paths of a layer's parameters of these names.

    Args:
        names: Layer's `recurrent` or `undecayed`.
    """
    return lambda path: "layer" in path and path[-1] in names


def transformation(optimizer: str) -> optax.GradientTransformation:
    """Return the Optax transformation of gradients into directions for a name of `OPTIMIZERS`."""
    declared = OPTIMIZERS[optimizer]
    scale: Callable[..., optax.GradientTransformation] = getattr(optax, declared.scale)
    return scale(**declared.options)


def clipped(gradients: Array, largest: Array) -> Array:
    """Return gradients (P,), shrunk to a norm of `largest` if theirs is greater."""
    norm = jnp.sqrt(jnp.sum(gradients * gradients))
    return jnp.where(norm < largest, gradients, gradients / norm * largest)


def updated(
    params: Array, gradients: Array, moments: Moments, groups: Groups, rates: Rates, optimizer: str
) -> tuple[Array, Moments]:
    """Return parameters and moments after one update.

    Args:
        params: (P,), one group after the other.
        gradients: (P,).
        moments: State of the optimiser's `transformation`.
        groups: Positions of the groups.
        rates: Scalars, traced or not; the weight decay is unused by an optimiser without one.
        optimizer: Name of `OPTIMIZERS`.
    """
    directions, moments = transformation(optimizer).update(gradients, moments, params)
    places = jax.lax.iota(jnp.int32, params.size)
    rate = jnp.where(places >= groups.recurrent, rates.recurrent_learning_rate, rates.learning_rate)
    if not OPTIMIZERS[optimizer].decays:
        return params - rate * directions, moments
    is_undecayed = (places >= groups.undecayed) & (places < groups.recurrent_decayed)
    decay = jnp.where(is_undecayed, 0, rates.weight_decay)
    return params - rate * (directions + decay * params), moments
