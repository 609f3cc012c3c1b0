"""Two segments, the second from the state after the first, are one sequence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx
from jax import Array
from jax import numpy as jnp

from tests.trainables.layers.cases import (
    NAMES,
    apart,
    bidirectional_names,
    build,
    built,
    sequence,
)
from trainables.errors import Refusal
from trainables.layers.layer import Layer

FIRST, SECOND = 6, 39
"""Lengths of the segments: the second fills one chunk and begins another."""

FORMS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    *((name, {}) for name in NAMES),
    ("lru", {"dense": True}),
    ("rot_gated", {"start": "learned"}),
    ("rg_lru", {"complex": True}),
    ("s4", {"algorithm": "sequential"}),
    ("s4d", {"algorithm": "sequential"}),
    ("liquid_s4", {"order": 3, "kernel": "kb"}),
    ("delta_net", {"algorithm": "chunked"}),
)
"""Layers, and options under which they carry a state in a way of their own."""

FAST = {"rotrnn", "rg_lru", "lstm"}
"""Layers whose cases are not slow: a state of each kind, with and without decays that depend on the input."""

CASES = [
    pytest.param(
        form,
        id=" ".join([name, *(f"{key}={value}" for key, value in options.items())]),
        marks=[] if name in FAST and not options else [pytest.mark.slow],
    )
    for form, (name, options) in enumerate(FORMS)
]


def in_two(layer: Layer, u: Array) -> tuple[Array, Array]:
    """Return outputs of two segments and the hidden states; gradients pass from the second to the first."""
    first, states, state = layer.run_from(layer.initial_state(), u[:FIRST])
    second, later, _ = layer.run_from(state, u[FIRST:])
    return jnp.concatenate([first, second]), jnp.concatenate([states, later])


def forgetful(layer: Layer, u: Array) -> Array:
    """Return the outputs of two segments that both start with the initial state."""
    parts = (layer.carry(layer.initial_state(), part)[0] for part in (u[:FIRST], u[FIRST:]))
    return jnp.concatenate(list(parts))


def exchanged(layer: Layer, u: Array) -> Array:
    """Return the outputs of the segments, the second of which was read first."""
    second, state = layer.carry(layer.initial_state(), u[FIRST:])
    return jnp.concatenate([layer.carry(state, u[:FIRST])[0], second])


def with_steps(layer: Layer, u: Array) -> tuple[Array, list[Any]]:
    """Return the outputs of a step, a segment and a step, and the states between and after them."""
    state, first = layer.step(layer.initial_state(), u[0])
    rows, between = layer.carry(state, u[1:-1])
    after, last = layer.step(between, u[-1])
    return jnp.concatenate([first[None], rows, last[None]]), [layer.initial_state(), between, after]


def answers(form: int) -> dict[str, Any]:
    """Return what a layer answers to one sequence, and to its parts, and both gradients."""
    name, options = FORMS[form]
    graph, arrays = nnx.split(build(name, **options))
    u, weights = sequence(FIRST + SECOND), sequence(FIRST + SECOND, seed=2)

    def of_one(arrays: Any, u: Array) -> tuple[Array, Array]:
        return nnx.merge(graph, arrays).run(u)

    def of_two(arrays: Any, u: Array) -> tuple[Array, Array]:
        return in_two(nnx.merge(graph, arrays), u)

    @jax.jit
    def run(arrays: Any) -> dict[str, Any]:
        layer = nnx.merge(graph, arrays)
        found: dict[str, Any] = {
            "forgetful": forgetful(layer, u),
            "exchanged": exchanged(layer, u),
            "with steps": with_steps(layer, u),
        }
        for key, read in (("one", of_one), ("two", of_two)):
            outputs, back, states = jax.vjp(read, arrays, u, has_aux=True)
            of_arrays, of_u = back(weights)
            gradients = {**nnx.to_pure_dict(nnx.filter_state(of_arrays, nnx.Param)), "u": of_u}
            found[key] = outputs, gradients, jnp.linalg.norm(states, axis=1)
        return found

    return jax.device_get(run(arrays))


@pytest.mark.slow
@pytest.mark.parametrize("form", CASES)
def test_two_segments_are_one_sequence(form: int) -> None:
    """Outputs, norms of hidden states and all gradients are those of the whole sequence.

    The comparison would show a state that is lost, and segments in another order. Segments and steps may
    follow one another, for their states have one structure.
    """
    found, remembers = answers(form), FORMS[form][0] != "none"
    (outputs, gradients, norms), (carried, of_carried, carried_norms) = found["one"], found["two"]
    assert apart(carried, outputs) < 1e-5
    assert apart(carried_norms, norms) < 1e-5
    assert bool(np.all(norms > 0)) == remembers
    for path, gradient in gradients.items():
        assert apart(of_carried[path], gradient) < 1e-5, path
    for wrong in ("forgetful", "exchanged"):
        assert (apart(found[wrong], outputs) > 1e-3) == remembers, wrong
    stepped, states = found["with steps"]
    assert apart(stepped, outputs) < 1e-5
    first, *others = (jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), state) for state in states)
    assert all(other == first for other in others)


@pytest.mark.slow_after(4)
@pytest.mark.parametrize("name", bidirectional_names())
def test_two_directions_carry_no_state(name: str) -> None:
    with pytest.raises(Refusal, match="must be causal"):
        built(name, True).carry(built(name).initial_state(), sequence(FIRST))
