"""Vectorisation by hand: an algorithm always sees every sequence that runs beside it.

Without it `vmap` would batch each step of a loop on its own and move time to the front of the arrays and
back, which costs more than the recurrence. It also lets an algorithm be chosen by the true size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jax import Array
from jax import numpy as jnp
from jax.custom_batching import custom_vmap


def over_leading_axes(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let `vmap` put its axis in front of the arguments instead of tracing through `function`.

    Args:
        function: takes arrays whose leading axes correspond; those of the first may be 1, to be broadcast.
            Returns arrays that all have the leading axes.
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
