"""minGRU: the gated recurrent unit without its state in the gates, which makes it a diagonal recurrence."""

from __future__ import annotations

import jax
from flax import nnx
from jax import Array
from jax import numpy as jnp

from trainables.layers.layer import GatedLayer, normal
from trainables.settings import GATED_ALGORITHM, Count, LayerSettings

GLOROT = nnx.initializers.glorot_normal()


class MinGRU(GatedLayer):
    """h_t = (1 - z_t) * h_{t-1} + z_t * g(W_h u_t) with z_t = sigmoid(W_z u_t), y_t = C h_t + D u_t.

    g(x) = x + 1/2 for x >= 0, else sigmoid(x): positive, so states are too.

    Parameters: W_z, W_h (N, D), C (D, N), D (D,); C_backward (D, N) if bidirectional.

    Source: Feng et al., Were RNNs all we needed?, 2024, section 3.1 and appendix B (g).
    """

    settings = LayerSettings(
        summary="minGRU: a gated recurrent unit whose gates read the input alone.",
        options={"algorithm": GATED_ALGORITHM},
        parameters=Count(("d_model", "d_state", "bidirectional"), lambda d, n, both: (3 + both) * n * d + d),
    )
    recurrent = frozenset({"W_z", "W_h"})

    def __init__(
        self,
        d_model: int,
        d_state: int,
        *,
        rngs: nnx.Rngs,
        bidirectional: bool = False,
        algorithm: str = settings.default("algorithm"),
    ) -> None:
        """Draw matrices by Glorot's rule.

        Args:
            d_model: Width D.
            d_state: State size N.
            rngs: Source of randomness; its keys may be traced.
            bidirectional: Whether the layer also reads the sequence backwards, with a read-out of its own.
            algorithm: Algorithm of the recurrence: "sequential", "associative", "pallas" or "auto".
        """
        self.bidirectional, self.algorithm = bidirectional, algorithm
        self.W_z = nnx.Param(GLOROT(rngs.params(), (d_state, d_model)))
        self.W_h = nnx.Param(GLOROT(rngs.params(), (d_state, d_model)))
        self.C = nnx.Param(GLOROT(rngs.params(), (d_model, d_state)))
        if bidirectional:
            self.C_backward = nnx.Param(GLOROT(rngs.params(), (d_model, d_state)))
        self.D = nnx.Param(normal(rngs.params(), (d_model,)))

    def coefficients(self) -> Array:
        """Return W_z and W_h stacked, (2 N, D), for one matrix product."""
        return jnp.concatenate([self.W_z[...], self.W_h[...]])

    def gates(self, coefficients: Array, u: Array) -> tuple[Array, Array]:
        """Return 1 - z and z * g(W_h u), (L, N) each; 1 - z is computed without cancellation."""
        update, candidate = jnp.split(u @ coefficients.T, 2, axis=-1)
        positive = jnp.where(candidate >= 0, candidate + 0.5, jax.nn.sigmoid(candidate))
        return jax.nn.sigmoid(-update), jax.nn.sigmoid(update) * positive

    def initial_state(self) -> Array:
        """Return the zero state (N,)."""
        return jnp.zeros(len(self.W_z))
