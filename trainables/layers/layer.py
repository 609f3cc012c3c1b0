"""What every layer of the registry is: (L, D) -> (L, D) on one unbatched sequence."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from flax import nnx
from jax import Array
from jax import numpy as jnp


class Layer(nnx.Module):
    """A sequence layer; batch and slots are the caller's `vmap`.

    Attributes:
        recurrent: names of the parameters trained at the recurrent rate, without weight decay.
    """

    recurrent: ClassVar[frozenset[str]]

    @abstractmethod
    def run(self, u: Array, length: Array | None = None) -> tuple[Array, Array]:
        """Return the outputs and the hidden states of a whole sequence.

        Args:
            u: (L, D).
            length: true length of the sequence, an int scalar; L if None. What stands at `length` and after
                it changes nothing before it, the reverse pass of a bidirectional layer included.

        Returns:
            Outputs (L, D), and forward states (L, N), real or complex.
        """

    @abstractmethod
    def initial_state(self) -> Any:
        """Return the state before the first step."""

    @abstractmethod
    def step(self, state: Any, u: Array) -> tuple[Any, Array]:
        """Advance by one step: inference as an RNN, for layers that only look back.

        Args:
            state: what `initial_state` or the step before returned.
            u: (D,).

        Returns:
            The next state, and the output (D,).
        """

    def __call__(self, u: Array, length: Array | None = None) -> Array:
        """Return the outputs (L, D) of a sequence u (L, D) with `length` true steps."""
        return self.run(u, length)[0]


def until(length: Array | None, u: Array) -> Array:
    """Return `u` (L, D) with zeros from step `length` on, so that a reverse pass starts at the true end."""
    if length is None:
        return u
    return jnp.where(jnp.arange(u.shape[0])[:, None] < length, u, 0)
