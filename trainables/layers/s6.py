"""S6: the selective state space of Mamba, with the projections and the gate around it."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
from flax import nnx
from jax import Array
from jax import numpy as jnp

from trainables.layers.causal_conv import causal_conv, initial_conv
from trainables.layers.layer import ChunkedLayer, between, initial_step, normal
from trainables.layers.recurrence import pace, varying_recurrence
from trainables.settings import GATED_ALGORITHM, Count, LayerSettings, Option

WIDTH = 4
"""Steps that the convolution sees."""

State = tuple[Array, Array]
"""Rows before the convolution, (3, E), and the states h (E, N)."""


class Selection(NamedTuple):
    """What the input selects at each step.

    Attributes:
        step: dt, (S, E).
        into: B, (S, N).
        out: C, (S, N).
    """

    step: Array
    into: Array
    out: Array


class S6(ChunkedLayer):
    """Mamba's mixer: E = expand * D diagonal state spaces whose step, B and C depend on the input.

        x, z = in_proj u,  x <- SiLU(conv(x) + conv_bias),  dt, B, C = x_proj x
        dt <- softplus(dt_proj dt + dt_bias),  a = exp(-dt exp(A_log)), or 2 a - 1 if signed
        h <- a * h + dt x B^T,  y = out_proj ((h C + D * x) * SiLU(z))

    Parameters: in_proj (2 E, D), conv (E, 4), whose last column weighs the present step, conv_bias (E,),
    x_proj (R + 2 N, E) with R = ceil(D / 16), dt_proj (E, R), dt_bias (E,), A_log (E, N), D (E,), out_proj
    (D, E); out_proj_backward (D, E) if bidirectional.

    Initial values are the published code's for A_log = log(1..N), D = 1, dt_bias, dt_proj and conv. The other
    projections are normal with variance 1 / fan-in, as in all layers here, and conv_bias is 0; the code draws
    them uniformly, with a third of this variance, and conv_bias within 1/2. A_log and D are not decayed, as
    the code marks them, nor is dt_bias, which is trained at the recurrent rate.

    Source: Gu and Dao, Mamba, 2023, sections 3.2-3.4 and 3.6; state-spaces/mamba (Euler's rule for B, initial
    values, weight decay); Grazzi et al., 2024 (signed).
    """

    settings = LayerSettings(
        summary="S6: Mamba's selective state space, with its projections and gate.",
        options={
            "expand": Option(2, "Channels of the state space for each channel of the model.", at_least=1),
            "signed": Option(False, "Eigenvalues in (-1, 1) instead of (0, 1)."),
            "algorithm": GATED_ALGORITHM,
        },
        parameters=Count(
            ("d_model", "d_state", "bidirectional", "expand"),
            lambda d, n, both, e: e * d * ((3 + both) * d - 2 * (-d // 16) + 3 * n + 7),
        ),
    )
    recurrent = frozenset({"A_log", "dt_bias"})
    undecayed = frozenset({"D"})

    def __init__(
        self,
        d_model: int,
        d_state: int,
        *,
        rngs: nnx.Rngs,
        expand: int = settings.default("expand"),
        signed: bool = settings.default("signed"),
        bidirectional: bool = False,
        algorithm: str = settings.default("algorithm"),
    ) -> None:
        """Draw the parameters.

        Args:
            d_model: Width D.
            d_state: States N of each channel.
            rngs: Source of randomness; its keys may be traced.
            expand: E / D.
            signed: Whether eigenvalues reach -1.
            bidirectional: Whether the layer also reads the sequence backwards, with a read-out of its own.
            algorithm: Algorithm of the recurrence: "sequential", "associative", "pallas" or "auto".
        """
        self.signed, self.bidirectional, self.algorithm = signed, bidirectional, algorithm
        width, rank = expand * d_model, math.ceil(d_model / 16)
        self.in_proj = nnx.Param(normal(rngs.params(), (2 * width, d_model), 1 / d_model))
        self.conv = nnx.Param(initial_conv(rngs.params(), (width, WIDTH)))
        self.conv_bias = nnx.Param(jnp.zeros(width))
        self.x_proj = nnx.Param(normal(rngs.params(), (rank + 2 * d_state, width), 1 / width))
        bound = rank**-0.5
        self.dt_proj = nnx.Param(between(rngs.params(), (width, rank), (-bound, bound)))
        self.dt_bias = nnx.Param(initial_step(rngs.params(), (width,)))
        rates = jnp.log(jnp.arange(1, d_state + 1, dtype=jnp.float32))
        self.A_log = nnx.Param(jnp.broadcast_to(rates, (width, d_state)))
        self.D = nnx.Param(jnp.ones(width))
        self.out_proj = nnx.Param(normal(rngs.params(), (d_model, width), 1 / width))
        if bidirectional:
            self.out_proj_backward = nnx.Param(normal(rngs.params(), (d_model, width), 1 / width))

    @property
    def chunk_size(self) -> int:
        """Return the rows of a chunk; its states are large, (S, E, N). Source: docs/benchmarks/gated.md."""
        return pace(self.algorithm).size // 4

    def chunk(self, coefficients: None, state: State, u: Array) -> tuple[State, Array]:
        """Return the next state and the gated answers of all channels, (S, E)."""
        before, memory = state
        x, gate = jnp.split(u @ self.in_proj[...].T, 2, axis=1)
        x, before = causal_conv(self.conv[...], before, x)
        x = jax.nn.silu(x + self.conv_bias[...])
        selection = self._selected(x)
        decays = jnp.exp(-selection.step[:, :, None] * jnp.exp(self.A_log[...]))
        decays = 2 * decays - 1 if self.signed else decays
        inputs = (selection.step * x)[:, :, None] * selection.into[:, None]
        algorithm = pace(self.algorithm).algorithm
        states = varying_recurrence(decays, inputs, memory, algorithm=algorithm)
        answers = jnp.einsum("sen,sn->se", states, selection.out) + self.D[...] * x
        return (before, states[-1]), answers * jax.nn.silu(gate)

    def _selected(self, x: Array) -> Selection:
        states, rank = self.A_log.shape[1], self.dt_proj.shape[1]
        step, into, out = jnp.split(x @ self.x_proj[...].T, [rank, rank + states], axis=1)
        return Selection(jax.nn.softplus(step @ self.dt_proj[...].T + self.dt_bias[...]), into, out)

    def read(self, coefficients: None, states: Array, *, backward: bool) -> Array:
        """Return the outputs (S, D) of gated answers (S, E)."""
        weights = self.out_proj_backward if backward else self.out_proj
        return states @ weights[...].T

    def memory(self, state: State) -> Array:
        """Return the states h (E, N)."""
        return state[1]

    def initial_state(self) -> State:
        """Return zeros: rows before the convolution, and the states."""
        return jnp.zeros((WIDTH - 1, len(self.conv))), jnp.zeros(self.A_log.shape)
