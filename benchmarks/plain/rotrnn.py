"""The small RotRNN as a user would implement it from the paper: the recurrence in its printed form.

The associative scan carries gamma and theta, and computes a rotation at each of its levels.
Source: RotRNN, section 3.3 and appendix B.
"""

from __future__ import annotations

from typing import Any

import jax
import optax
from flax import nnx
from jax import Array
from jax import numpy as jnp


class RotRNN(nnx.Module):
    """One layer, (L, D) -> (L, D)."""

    def __init__(self, width: int, states: int, heads: int, low: float, high: float, *, rngs: nnx.Rngs):
        size = states // heads
        key = rngs.params
        self.heads = heads
        gamma = jnp.sqrt(jax.random.uniform(key(), (heads,)) * (high**2 - low**2) + low**2)
        self.gamma_log = nnx.Param(jnp.log(-jnp.log(gamma)))
        self.theta = nnx.Param(jax.random.uniform(key(), (heads, size // 2), maxval=2 * jnp.pi))
        self.M = nnx.Param(jax.random.normal(key(), (heads, size, size)))
        self.B = nnx.Param(jax.random.normal(key(), (heads, size, width)) / jnp.sqrt(width))
        self.C = nnx.Param(jax.random.normal(key(), (width, states)) / jnp.sqrt(states))
        self.D = nnx.Param(jax.random.normal(key(), (width,)))

    def __call__(self, u: Array) -> Array:
        length = len(u)
        gamma = jnp.exp(-jnp.exp(self.gamma_log[...]))
        orthogonal = jax.scipy.linalg.expm(self.M[...] - self.M[...].transpose(0, 2, 1))
        power = jnp.sum(self.B[...] ** 2, axis=(1, 2))
        weights = jnp.sqrt((1 - gamma**2) / power)[:, None, None] * self.B[...]
        turned = jnp.einsum("hji,hjd->hid", orthogonal, weights)
        inputs = jnp.einsum("hid,ld->lhi", turned, u)
        gammas = jnp.broadcast_to(gamma, (length, *gamma.shape))
        thetas = jnp.broadcast_to(self.theta[...], (length, *self.theta[...].shape))
        _, _, states = jax.lax.associative_scan(_operator, (gammas, thetas, inputs))
        states = jnp.einsum("hij,lhj->lhi", orthogonal, states).reshape(length, -1)
        return states @ self.C[...].T + self.D[...] * u


def _operator(left: tuple[Array, Array, Array], right: tuple[Array, Array, Array]) -> Any:
    gamma, theta, states = left
    more, further, after = right
    even, odd = states[..., ::2], states[..., 1::2]
    cos, sin = jnp.cos(further), jnp.sin(further)
    rotated = jnp.stack([cos * even - sin * odd, sin * even + cos * odd], axis=-1).reshape(states.shape)
    return gamma * more, theta + further, more[..., None] * rotated + after


class Block(nnx.Module):
    """Normalise, recur, GELU, dropout, GLU, dropout, skip."""

    def __init__(self, width: int, states: int, heads: int, low: float, high: float, *, rngs: nnx.Rngs):
        self.norm = nnx.BatchNorm(width, momentum=0.95, rngs=rngs)
        self.layer = RotRNN(width, states, heads, low, high, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, broadcast_dims=(1,), rngs=rngs)
        self.value = nnx.Linear(width, width, rngs=rngs)
        self.gate = nnx.Linear(width, width, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        hidden = self.dropout(jax.nn.gelu(jax.vmap(self.layer)(self.norm(x))))
        return x + self.dropout(self.value(hidden) * jax.nn.sigmoid(self.gate(hidden)))


class Model(nnx.Module):
    """Two blocks between an embedding and a linear head; mean pooling over the true length."""

    def __init__(self, low: float, high: float, *, rngs: nnx.Rngs):
        self.embed = nnx.Embed(18, 32, rngs=rngs)
        self.blocks = nnx.List([Block(32, 64, 8, low, high, rngs=rngs) for _ in range(2)])
        self.head = nnx.Linear(32, 10, rngs=rngs)

    def __call__(self, tokens: Array, lengths: Array) -> Array:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        mask = jnp.arange(x.shape[1]) < lengths[:, None]
        return self.head(jnp.sum(x * mask[..., None], axis=1) / lengths[:, None])


def loss_of(model: Model, tokens: Array, lengths: Array, targets: Array) -> tuple[Array, Array]:
    """Return the mean loss of a batch, and its accuracy."""
    logits = model(tokens, lengths)
    loss = optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()
    return loss, (jnp.argmax(logits, -1) == targets).mean()
