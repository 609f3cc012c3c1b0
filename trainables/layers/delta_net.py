"""DeltaNet, Gated DeltaNet and DeltaProduct: a matrix a head, updated by the delta rule."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import jax
from flax import nnx
from jax import Array
from jax import numpy as jnp

from trainables.layers.causal_conv import causal_conv, initial_conv
from trainables.layers.layer import ChunkedLayer, between, initial_step, normal
from trainables.layers.recurrence.delta_rule import delta_rule
from trainables.layers.recurrence.wy_form import Steps
from trainables.settings import DELTA_ALGORITHM, DELTA_HEADS, Count, LayerSettings, Option, divisible

WIDTH = 4
"""Steps that the convolutions see."""

STEPS: Mapping[str, int] = MappingProxyType({"sequential": 32, "chunked": 32, "auto": 32, "pallas": 1024})
"""Steps of the delta rule in a chunk, by algorithm; the kernels cut theirs again."""

STEPS_ON_A_GPU: Mapping[str, int] = MappingProxyType({**STEPS, "chunked": 64, "auto": 64})
"""Steps in a chunk on a GPU, where each chunk costs kernel launches. Source: docs/benchmarks/gated.md."""

FEW = 64
"""On a CPU, heads with fewer numbers than this run in a loop. Source: docs/benchmarks/gated.md."""

State = tuple[Array, Array]
"""Rows before the convolutions, (3, R), and the matrices S (H, N/H, D/H)."""


class Projections(NamedTuple):
    """Values that each sequence needs, computed from the parameters, for J steps of the delta rule a row.

    Attributes:
        into: W_q, W_k and W_v stacked, (R, D) with R = N + J (N + D).
        conv: Weights of their convolutions, (R, 4).
        sizes: W_beta, (J H, D).
    """

    into: Array
    conv: Array
    sizes: Array


class DeltaNet(ChunkedLayer):
    """DeltaNet: H matrices S (N/H, D/H) that learn to answer v_t to k_t.

        q, k, v = SiLU(conv(W u)), q and k divided by sqrt(sum of squares + 1e-6) a head
        beta = sigmoid(W_beta u), doubled if signed
        S <- S + beta k (v - S^T k)^T,  y = out_proj RMSNorm(S^T q)

    Parameters: W_q, W_k (N, D), W_v (D, D), conv_q, conv_k (N, 4), conv_v (D, 4), whose last columns weigh
    the present step, W_beta (H, D), norm (D/H,), out_proj (D, D); out_proj_backward (D, D) if bidirectional.

    W_beta sets the eigenvalues 1 - beta of the transition and is therefore trained as eigenvalues are in all
    layers here: at the recurrent rate, without weight decay. The published code decays it.

    Source: Yang et al., Parallelizing linear transformers with the delta rule, 2024; fla-org's
    flash-linear-attention (convolutions, norms); Grazzi et al., 2024 (signed: eigenvalues in [-1, 1]).
    """

    settings = LayerSettings(
        summary="DeltaNet: matrices updated by the delta rule, with N numbers in all keys.",
        options={
            "heads": DELTA_HEADS,
            "signed": Option(False, "Steps of up to 2, so that eigenvalues reach -1."),
            "algorithm": DELTA_ALGORITHM,
        },
        needs=(divisible("d_state", "heads"), divisible("d_model", "heads")),
        parameters=Count(
            ("d_model", "d_state", "bidirectional", "heads"),
            lambda d, n, both, h: 2 * n * (d + 4) + d * (d + 4 + h) + d // h + (1 + both) * d * d,
        ),
    )
    recurrent = frozenset({"W_beta"})
    householders: int | None = None
    W_q: nnx.Param
    W_k: nnx.Param
    W_v: nnx.Param
    conv_q: nnx.Param
    conv_k: nnx.Param
    conv_v: nnx.Param

    def __init__(
        self,
        d_model: int,
        d_state: int,
        *,
        rngs: nnx.Rngs,
        heads: int = settings.default("heads"),
        signed: bool = settings.default("signed"),
        bidirectional: bool = False,
        algorithm: str = settings.default("algorithm"),
    ) -> None:
        """Draw the parameters.

        Args:
            d_model: Width D; also the channels of all values.
            d_state: Channels N of all keys.
            rngs: Source of randomness; its keys may be traced.
            heads: Number of heads H, a divisor of N and D.
            signed: Whether beta is doubled.
            bidirectional: Whether the layer also reads the sequence backwards, with a read-out of its own.
            algorithm: Algorithm of the delta rule: "sequential", "chunked", "pallas" or "auto".
        """
        self.heads, self.signed = heads, signed
        self.bidirectional, self.algorithm = bidirectional, algorithm
        many = () if self.householders is None else (self.householders,)
        for name, rows, steps in (("q", d_state, ()), ("k", d_state, many), ("v", d_model, many)):
            weights = normal(rngs.params(), (*steps, rows, d_model), 1 / d_model)
            setattr(self, f"W_{name}", nnx.Param(weights))
            setattr(self, f"conv_{name}", nnx.Param(initial_conv(rngs.params(), (*steps, rows, WIDTH))))
        self.W_beta = nnx.Param(normal(rngs.params(), (*many, heads, d_model), 1 / d_model))
        self.norm = nnx.Param(jnp.ones(d_model // heads))
        self.out_proj = nnx.Param(normal(rngs.params(), (d_model, d_model), 1 / d_model))
        if bidirectional:
            self.out_proj_backward = nnx.Param(normal(rngs.params(), (d_model, d_model), 1 / d_model))

    @property
    def chunk_size(self) -> int:
        """Return the number of rows in a chunk of the delta rule's steps."""
        steps = STEPS_ON_A_GPU if jax.default_backend() == "gpu" else STEPS
        return max(1, steps[self.algorithm] // (self.householders or 1))

    def coefficients(self) -> Projections:
        """Return the projections, joined for one matrix product."""
        width = self.W_q.shape[-1]
        parts = (self.W_q, self.W_k, self.W_v), (self.conv_q, self.conv_k, self.conv_v)
        into, conv = (
            jnp.concatenate([part[...].reshape(-1, columns) for part in row])
            for row, columns in zip(parts, (width, WIDTH), strict=True)
        )
        return Projections(into, conv, self.W_beta[...].reshape(-1, width))

    def chunk(self, coefficients: Projections, state: State, u: Array) -> tuple[State, Array]:
        """Return the next state and the normalised answers of all heads, (S, D)."""
        before, memory = state
        projected, before = causal_conv(coefficients.conv, before, u @ coefficients.into.T)
        steps = self.steps(coefficients, jax.nn.silu(projected), u)
        rule = jax.vmap(lambda steps, memory: delta_rule(steps, memory, self._rule(len(u))))
        answers, memory = rule(steps, memory)
        return (before, memory), self.normalised(u, answers.swapaxes(0, 1))

    def steps(self, coefficients: Projections, x: Array, u: Array) -> Steps:
        """Return the delta rule's steps of all heads, (H, ...), for activated projections x (S, R)."""
        keys, values = self.W_q.shape[0], self.W_q.shape[1]
        count = self.householders or 1
        query, key, value = jnp.split(x, [keys, keys + count * keys], axis=1)
        sizes = jax.nn.sigmoid(u @ coefficients.sizes.T).reshape(-1, self.heads)
        log_decays = self.log_decays(u)
        return Steps(
            queries=_unit(_heads(query, keys, self.heads)),
            keys=_unit(_heads(key, keys, self.heads)),
            values=_heads(value, values, self.heads),
            sizes=((2 if self.signed else 1) * sizes).T,
            log_decays=None if log_decays is None else log_decays.T,
        )

    def log_decays(self, u: Array) -> Array | None:
        """Return log a of every step, (J S, H); None for a layer without decays, such as this one."""
        return None

    def normalised(self, u: Array, answers: Array) -> Array:
        """Return answers (S, H, D/H), normalised a head, as (S, D)."""
        power = jnp.mean(answers**2, axis=-1, keepdims=True)
        return (answers * jax.lax.rsqrt(power + 1e-5) * self.norm[...]).reshape(len(u), -1)

    def read(self, coefficients: Projections, states: Array, *, backward: bool) -> Array:
        """Return the outputs (S, D) of normalised answers (S, D)."""
        weights = self.out_proj_backward if backward else self.out_proj
        return states @ weights[...].T

    def memory(self, state: State) -> Array:
        """Return the memory matrices of a state."""
        return state[1]

    def initial_state(self) -> State:
        """Return zeros: rows before the convolutions, and the matrices."""
        (keys, width), count = self.W_q.shape, self.householders or 1
        matrices = jnp.zeros((self.heads, keys // self.heads, width // self.heads))
        return jnp.zeros((WIDTH - 1, keys + count * (keys + width))), matrices

    def _rule(self, rows: int) -> str:
        if rows == 1:
            return "sequential"
        if self.algorithm != "auto":
            return self.algorithm
        keys, width = self.W_q.shape
        few = keys * width < FEW * self.heads**2 and jax.default_backend() == "cpu"
        return "sequential" if few else "chunked"


class GatedDeltaNet(DeltaNet):
    """Gated DeltaNet: DeltaNet with a decay a head, and a gate on its answers.

    S <- a S before each step, log a = -exp(A_log) softplus(W_alpha u + dt_bias); answers times SiLU(W_g u).

    Parameters: those of `DeltaNet`, and W_alpha (H, D), dt_bias, A_log (H,), W_g (D, D). A_log, dt_bias,
    W_alpha and W_beta set eigenvalues, so they are trained at the recurrent rate, without weight decay. The
    published code decays W_alpha and W_beta.

    Source: Yang et al., Gated delta networks, 2024, section 3 and figure 1; fla-org's
    flash-linear-attention (initial values). Their values are twice as wide as the model; here they are D.
    """

    settings = LayerSettings(
        summary="Gated DeltaNet: the delta rule with a decay a head.",
        options={
            "heads": DELTA_HEADS,
            "signed": Option(False, "Steps of up to 2, so that eigenvalues reach -1."),
            "algorithm": DELTA_ALGORITHM,
        },
        needs=(divisible("d_state", "heads"), divisible("d_model", "heads")),
        parameters=Count(
            ("d_model", "d_state", "bidirectional", "heads"),
            lambda d, n, both, h: 2 * n * (d + 4) + d * (d + 4 + 2 * h) + d // h + 2 * h + (2 + both) * d * d,
        ),
    )
    recurrent = frozenset({"W_beta", "W_alpha", "dt_bias", "A_log"})

    def __init__(
        self,
        d_model: int,
        d_state: int,
        *,
        rngs: nnx.Rngs,
        heads: int = settings.default("heads"),
        signed: bool = settings.default("signed"),
        bidirectional: bool = False,
        algorithm: str = settings.default("algorithm"),
    ) -> None:
        """Draw the parameters; arguments as those of `DeltaNet`."""
        super().__init__(
            d_model,
            d_state,
            rngs=rngs,
            heads=heads,
            signed=signed,
            bidirectional=bidirectional,
            algorithm=algorithm,
        )
        self.W_alpha = nnx.Param(normal(rngs.params(), (heads, d_model), 1 / d_model))
        self.A_log = nnx.Param(jnp.log(between(rngs.params(), (heads,), (0.0, 16.0))))
        self.dt_bias = nnx.Param(initial_step(rngs.params(), (heads,)))
        self.W_g = nnx.Param(normal(rngs.params(), (d_model, d_model), 1 / d_model))

    def log_decays(self, u: Array) -> Array:
        """Return log a of every step, (S, H)."""
        rates = jax.nn.softplus(u @ self.W_alpha[...].T + self.dt_bias[...])
        return -jnp.exp(self.A_log[...]) * rates

    def normalised(self, u: Array, answers: Array) -> Array:
        """Return answers, normalised a head and gated, (S, D)."""
        return super().normalised(u, answers) * jax.nn.silu(u @ self.W_g[...].T)


class DeltaProduct(DeltaNet):
    """DeltaProduct: J steps of the delta rule for each input, with keys, values and sizes of their own.

    Parameters: those of `DeltaNet`, with W_k (J, N, D), W_v (J, D, D), conv_k (J, N, 4), conv_v (J, D, 4) and
    W_beta (J, H, D).

    Source: Siems et al., DeltaProduct, 2025, section 3.
    """

    settings = LayerSettings(
        summary="DeltaProduct: several steps of the delta rule for each input.",
        options={
            "heads": DELTA_HEADS,
            "householders": Option(2, "Steps of the delta rule J for each input.", at_least=1),
            "signed": Option(True, "Steps of up to 2, so that eigenvalues reach -1."),
            "algorithm": DELTA_ALGORITHM,
        },
        needs=(divisible("d_state", "heads"), divisible("d_model", "heads")),
        parameters=Count(
            ("d_model", "d_state", "bidirectional", "heads", "householders"),
            lambda d, n, both, h, many: (
                n * (d + 4) + many * ((n + d) * (d + 4) + h * d) + d // h + (1 + both) * d * d
            ),
        ),
    )

    def __init__(
        self,
        d_model: int,
        d_state: int,
        *,
        rngs: nnx.Rngs,
        heads: int = settings.default("heads"),
        householders: int = settings.default("householders"),
        signed: bool = settings.default("signed"),
        bidirectional: bool = False,
        algorithm: str = settings.default("algorithm"),
    ) -> None:
        """Draw the parameters; `householders` is J, other arguments are as those of `DeltaNet`."""
        self.householders = householders
        super().__init__(
            d_model,
            d_state,
            rngs=rngs,
            heads=heads,
            signed=signed,
            bidirectional=bidirectional,
            algorithm=algorithm,
        )


def _heads(rows: Array, width: int, heads: int) -> Array:
    """Split the channels of rows (S, J width) to steps of heads, (H, J S, width / H)."""
    return rows.reshape(-1, heads, width // heads).swapaxes(0, 1)


def _unit(rows: Array) -> Array:
    return rows * jax.lax.rsqrt(jnp.sum(rows**2, axis=-1, keepdims=True) + 1e-6)
