"""Batching by hand: a recurrence sees all sequences of a batch at once.

Otherwise `vmap` would batch each step of a loop by itself and move time to the front of the arrays and back,
which costs more than the recurrence. It also allows an algorithm to be chosen by the true size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jax import Array
from jax import numpy as jnp
from jax.custom_batching import custom_vmap


def over_leading_axes(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make `vmap` put its axis in front of the arguments instead of tracing through `function`.

    Args:
        function: takes arrays with common leading axes, of which those of the first argument may be 1 and are
            then broadcast; returns arrays that have these leading axes too.
    """
    lifted = custom_vmap(function)

    @lifted.def_vmap
    def rule(size: int, batched: Sequence[bool], first: Array, *others: Array) -> tuple[Any, Any]:
        first = first if batched[0] else first[None]
        whole = [
            other if has_axis else jnp.broadcast_to(other, (size, *other.shape))
            for other, has_axis in zip(others, batched[1:], strict=True)
        ]
        answer = lifted(first, *whole)
        return answer, tuple(True for _ in answer) if isinstance(answer, tuple) else True

    return lifted
