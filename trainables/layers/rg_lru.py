"""RG-LRU: the real-gated linear recurrent unit of Griffin."""

from __future__ import annotations

from typing import NamedTuple

import jax
from flax import nnx
from jax import Array
from jax import numpy as jnp

from trainables.errors import Refusal
from trainables.layers.layer import Bounds, GatedLayer, between, normal, ring
from trainables.layers.recurrence import planar, polar
from trainables.settings import GATED_ALGORITHM, Count, LayerSettings, Option, Range, divisible

SHARPNESS = 8.0
"""Factor c by which an open gate forgets faster, in the paper's a^(c r)."""

SMALLEST = 1e-30
"""Value below which 1 - a^2 has no gradient, because that of its square root is infinite at 0.

The published code limits the slope of the square root to 1,000 for bfloat16.
"""

WIDTH = 64
"""Width of the dense blocks that the blocks of the gates are joined to."""


class Gates(NamedTuple):
    """Values that each sequence needs, computed from the parameters.

    Attributes:
        blocks: Weights of r and, below them, of i, joined to G blocks of m channels, (G, 2 m, m) with
            N = G * m: one product for both.
        speeds: -8 softplus(Lambda), (N,).
        out: C (D, N), or its real and negated imaginary parts side by side, (D, 2 N).
        out_backward: Read-out of the reverse direction, or None.
    """

    blocks: Array
    speeds: Array
    out: Array
    out_backward: Array | None


class RGLRU(GatedLayer):
    """A diagonal recurrence with a recurrence gate r and an input gate i, y_t = C h_t + D u_t.

        x_t = B u_t,  r_t = sigmoid(W_a x_t + b_a),  i_t = sigmoid(W_x x_t + b_x)
        log a_t = -8 r_t softplus(Lambda),  h_t = a_t * h_{t-1} + sqrt(1 - a_t^2) * (i_t * x_t)

    Parameters: B (N, D), W_a, W_x (H, N/H, N/H), b_a, b_x (N,), Lambda (N,), C (D, N), D (D,); C_backward
    (D, N) if bidirectional. The gates are dense in each of H blocks. Complex: N complex channels that turn by
    r_t theta in each step, with theta (N,) and y_t = Re((C + i C_im) h_t) + D u_t, C_im (D, N).

    The published code divides the first input of a sequence by sqrt(1 - a^2) and starts without it; here
    h = 0 before the first step, as in every other layer.

    Paper and code initialise Lambda differently. The paper draws exp(-8 softplus(Lambda)), the decay of an
    open gate, uniformly from [0.9, 0.999]. The code draws exp(-softplus(Lambda)) from the ring of these
    radii: an open gate decays by 0.43 to 0.992, a half-open one by 0.656 to 0.996. `r_init` draws as the code
    does; with (0.9^(1/8), 0.999^(1/8)) it has the paper's range, with another distribution within it.

    Source: De et al., Griffin, 2024, section 2.4 and appendix A; google-deepmind/recurrentgemma (the initial
    gates and Lambda); the complex form follows appendix B, with a gate on the angle.
    """

    settings = LayerSettings(
        summary="RG-LRU: a diagonal recurrence with gates (Griffin, section 2.4).",
        options={
            "heads": Option(
                16, "Number of blocks H of the gates; d_state must be divisible by it.", at_least=1
            ),
            "complex": Option(False, "Complex channels, whose angles the recurrence gate sets too."),
            "algorithm": GATED_ALGORITHM,
        },
        ranges={
            "r_init": Range(
                (0.9, 0.999), (0.0, 1.0), True, "Initial exp(-softplus(Lambda)), uniform by area."
            ),
        },
        needs=(divisible("d_state", "heads"),),
        parameters=Count(
            ("d_model", "d_state", "bidirectional", "heads", "complex"),
            lambda d, n, both, h, complex: (
                n * d + (1 + complex) * (1 + both) * n * d + d + 2 * n * (n // h) + (3 + complex) * n
            ),
        ),
    )
    recurrent = frozenset({"B", "W_a", "W_x", "b_a", "b_x", "Lambda", "theta"})

    def __init__(
        self,
        d_model: int,
        d_state: int,
        *,
        rngs: nnx.Rngs,
        heads: int = settings.default("heads"),
        complex: bool = settings.default("complex"),
        r_init: Bounds = settings.default("r_init"),
        bidirectional: bool = False,
        algorithm: str = settings.default("algorithm"),
    ) -> None:
        """Draw the parameters as the published code does.

        Args:
            d_model: Width D.
            d_state: Channels N, real or complex.
            rngs: Source of randomness; its keys may be traced.
            heads: Number of blocks H of the gates, a divisor of N.
            complex: Whether channels are complex, with angles up to 0.1 pi at first.
            r_init: Range of exp(-softplus(Lambda)), within (0, 1); a half-open gate decays by its fourth
                power. May be traced.
            bidirectional: Whether the layer also reads the sequence backwards, with a read-out of its own.
            algorithm: Algorithm of the recurrence: "sequential", "associative", "pallas" or "auto".

        Raises:
            Refusal: N is not a multiple of H.
        """
        if heads < 1 or d_state % heads:
            must, found = "d_state must be a multiple of heads", f"d_state={d_state}, heads={heads}"
            raise Refusal("RGLRU: heads", must, found, f"Choose a divisor of {d_state}.")
        self.bidirectional, self.algorithm, self.planes = bidirectional, algorithm, complex
        size = d_state // heads
        self.B = nnx.Param(normal(rngs.params(), (d_state, d_model), 1 / d_model))
        self.W_a = nnx.Param(normal(rngs.params(), (heads, size, size), 1 / size))
        self.W_x = nnx.Param(normal(rngs.params(), (heads, size, size), 1 / size))
        self.b_a, self.b_x = nnx.Param(jnp.zeros(d_state)), nnx.Param(jnp.zeros(d_state))
        self.Lambda = nnx.Param(jnp.log(jnp.expm1(ring(rngs.params(), (d_state,), r_init))))
        shape, variance = (d_model, d_state), 1 / d_state
        self.C = nnx.Param(normal(rngs.params(), shape, variance))
        if bidirectional:
            self.C_backward = nnx.Param(normal(rngs.params(), shape, variance))
        if complex:
            self.theta = nnx.Param(between(rngs.params(), (d_state,), (0.0, 0.1 * jnp.pi)))
            self.C_im = nnx.Param(normal(rngs.params(), shape, variance))
            if bidirectional:
                self.C_backward_im = nnx.Param(normal(rngs.params(), shape, variance))
        self.D = nnx.Param(normal(rngs.params(), (d_model,)))

    def coefficients(self) -> Gates:
        """Return the gates' weights in wide blocks, the slowest decays and the read-outs."""
        backward = self._out("C_backward") if self.bidirectional else None
        blocks = jnp.concatenate([joined(self.W_a[...]), joined(self.W_x[...])], axis=1)
        return Gates(blocks, -SHARPNESS * jax.nn.softplus(self.Lambda[...]), self._out("C"), backward)

    def gates(self, coefficients: Gates, u: Array) -> tuple[Array, Array]:
        """Return a and sqrt(1 - a^2) * (i * x), (L, N) or planes (L, 2, N)."""
        x = u @ self.B[...].T
        count, _, width = coefficients.blocks.shape
        both = jnp.einsum("gij,lgj->lgi", coefficients.blocks, x.reshape(len(u), count, width))
        forget, take = (part.reshape(len(u), -1) for part in jnp.split(both, 2, axis=2))
        forget, take = jax.nn.sigmoid(forget + self.b_a[...]), jax.nn.sigmoid(take + self.b_x[...])
        log_decay = coefficients.speeds * forget
        power = jnp.maximum(-jnp.expm1(2 * log_decay), SMALLEST)
        decay, inputs = jnp.exp(log_decay), jnp.sqrt(power) * (take * x)
        if not self.planes:
            return decay, inputs
        return polar(decay, forget * self.theta[...]), planar(inputs, jnp.zeros_like(inputs))

    def read(self, coefficients: Gates, states: Array, *, backward: bool) -> Array:
        """Return C h, or Re((C + i C_im) h), (L, D)."""
        out = coefficients.out_backward if backward else coefficients.out
        assert out is not None
        return states.reshape(len(states), -1) @ out.T

    def initial_state(self) -> Array:
        """Return the zero state (N,), or planes (2, N)."""
        return jnp.zeros((2, len(self.Lambda)) if self.planes else len(self.Lambda))

    def _out(self, name: str) -> Array:
        weights = getattr(self, name)[...]
        if not self.planes:
            return weights
        return jnp.concatenate([weights, -getattr(self, f"{name}_im")[...]], axis=1)


def joined(blocks: Array) -> Array:
    """Merge blocks (H, n, n) into fewer block-diagonal matrices of at most `WIDTH` channels.

    Products of many small matrices are slow on a processor.

    Returns:
        (H / k, k n, k n), for the largest divisor k of H with k n <= `WIDTH`, or 1.
    """
    heads, size, _ = blocks.shape
    together = max(k for k in range(1, heads + 1) if heads % k == 0 and (k == 1 or k * size <= WIDTH))
    apart = blocks.reshape(-1, together, size, size)
    wide = jnp.einsum("gkij,kl->gkilj", apart, jnp.eye(together))
    return wide.reshape(-1, together * size, together * size)
