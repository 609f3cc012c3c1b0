"""What every layer of the registry is: (L, D) -> (L, D) on one unbatched sequence."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from flax import nnx
from jax import Array
from jax import numpy as jnp

from trainables.errors import Refusal
from trainables.settings import LayerSettings


class Layer(nnx.Module):
    """A sequence layer; batch and slots are the caller's `vmap`.

    Attributes:
        settings: what the layer accepts; the defaults of its constructor are taken from here.
        recurrent: names of the parameters trained at the recurrent rate, without weight decay.
        states_at_hand: whether the outputs are made from the states; if not, states cost extra.
        bidirectional: whether it reads the sequence backwards too.
    """

    settings: ClassVar[LayerSettings]
    recurrent: ClassVar[frozenset[str]]
    states_at_hand: ClassVar[bool] = True
    bidirectional: bool

    @abstractmethod
    def run(self, u: Array, length: Array | None = None) -> tuple[Array, Array]:
        """Return the outputs and the hidden states of a whole sequence.

        Args:
            u: (L, D).
            length: true length of the sequence, an int scalar; L if None. What stands at `length` and after
                it changes nothing before it, the reverse pass of a bidirectional layer included.

        Returns:
            Outputs (L, D), and the real numbers that forward states consist of, (L, any): the norm of a row
            is the norm of x_t, for a complex state has its real parts there, then its imaginary parts.
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

        Raises:
            Refusal: if the layer reads the sequence backwards too.
        """

    def __call__(self, u: Array, length: Array | None = None) -> Array:
        """Return the outputs (L, D) of a sequence u (L, D) with `length` true steps."""
        return self.run(u, length)[0]


class Fixed(nnx.BatchStat):
    """An array drawn once and never trained; kept with the running statistics of a model."""


def until(length: Array | None, u: Array) -> Array:
    """Return u (L, D) with zeros from step `length` on, so that a reverse pass starts at the true end."""
    if length is None:
        return u
    return jnp.where(jnp.arange(len(u))[:, None] < length, u, 0)


def backwards(length: Array | None, u: Array) -> Array:
    """Return u (L, D) with its `length` true steps in reverse order; its own inverse."""
    if length is None:
        return u[::-1]
    time = jnp.arange(len(u))
    return u[jnp.where(time < length, length - 1 - time, time)]


def only_looks_back(layer: Layer) -> None:
    """Raise `Refusal` if a layer cannot be stepped."""
    if layer.bidirectional:
        raise Refusal(
            f"{type(layer).__name__}.step",
            "the layer must only look back",
            "bidirectional=True",
            "Build it with bidirectional=False to run it one step at a time.",
        )
