"""The delta rule: a matrix S (K, V) that maps keys to values, and replaces the value of a key at each step.

    S <- a_t S                                       a decay a_t in (0, 1], 1 without a gate
    S <- S + b_t k_t (v_t - S^T k_t)^T               a step of size b_t in (0, 2)
    o_t = S^T q_t                                    after every `every` steps

`wy_form` has the steps of a chunk as matrix products. All products are computed in full float32: in TF32, the
default of GPUs, gradients are off by up to one part in a hundred (docs/benchmarks/gated.md).

Source: Yang et al., Parallelizing linear transformers with the delta rule, 2024, section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import jax
from jax import Array
from jax import numpy as jnp

from trainables.layers.recurrence import pallas_delta
from trainables.layers.recurrence.wy_form import Steps, run_chunk_by_hand


def delta_rule(steps: Steps, state: Array, algorithm: str) -> tuple[Array, Array]:
    """Return the outputs of one head, (R / every, V), and its next state (K, V).

    Args:
        steps: Steps of the head. With several steps per output, the last one of each output answers its
            query.
        state: S before the first step, (K, V).
        algorithm: A name of `RULES`.
    """
    with jax.default_matmul_precision("highest"):
        return RULES[algorithm](steps, state)


def _sequential(steps: Steps, state: Array) -> tuple[Array, Array]:
    together = len(steps.keys) // len(steps.queries)
    grouped = jax.tree.map(lambda part: part.reshape(-1, together, *part.shape[1:]), steps[1:])

    def token(state: Array, now: tuple[Array, Any]) -> tuple[Array, Array]:
        query, (keys, values, sizes, log_decays) = now
        for step in range(together):
            if log_decays is not None:
                state = jnp.exp(log_decays[step]) * state
            missing = values[step] - keys[step] @ state
            state = state + jnp.outer(keys[step], sizes[step] * missing)
        return state, query @ state

    state, outputs = jax.lax.scan(token, state, (steps.queries, grouped))
    return outputs, state


RULES: Mapping[str, Callable[[Steps, Array], tuple[Array, Array]]] = MappingProxyType(
    {"sequential": _sequential, "chunked": run_chunk_by_hand, "pallas": pallas_delta.solve}
)
"""Algorithms by name: (steps, state) -> outputs, next state."""
