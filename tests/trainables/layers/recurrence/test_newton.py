"""Newton's method over time against loops, in values and gradients, and where it does not converge."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from jax import Array
from jax import numpy as jnp

from tests.trainables.layers import gated_reference, reference
from tests.trainables.layers.cases import apart, build, sequence
from tests.trainables.layers.graded import check
from trainables.layers.recurrence import newton, newton_recurrence
from trainables.layers.rnn import gru_cell, lstm_cell, tanh_cell

N = 4
CELLS = {"tanh_rnn": tanh_cell, "gru": gru_cell, "lstm": lstm_cell}
LOOPS = {
    "tanh_rnn": lambda p, u: reference.dense(p, u, "tanh"),
    "gru": gated_reference.gru,
    "lstm": reference.lstm,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CELLS)
def test_layer(name: str) -> None:
    """Outputs, states and gradients of a layer equal a float64 loop and its differences."""
    check(name, LOOPS[name], algorithm="newton")


def _recurrence(name: str, length: int, seed: int, scale: float, size: int = N) -> tuple[Array, Array, Array]:
    """Return weights whose entries are `scale` / sqrt(N) large, a first state, and inputs."""
    draw = np.random.default_rng(seed)
    rows, state = {"tanh_rnn": ((), size), "gru": ((3,), size), "lstm": ((4,), 2 * size)}[name]
    weights = scale / size**0.5 * draw.standard_normal((*rows, size, size))
    first, inputs = 0.5 * draw.standard_normal(state), draw.standard_normal((length, *rows, size))
    if name == "lstm":
        weights, inputs = weights.reshape(-1, size), inputs.reshape(length, -1)
    return jnp.float32(weights), jnp.float32(first), jnp.float32(inputs)


def _loop(cell: newton.Cell, weights: Array, first: Array, inputs: Array) -> Array:
    def step(state: Array, now: Array) -> tuple[Array, Array]:
        state = cell(weights, state, now)
        return state, state

    return jax.lax.scan(step, first, inputs)[1]


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("length", [1, 2, 33, 300])
def test_loop(name: str, length: int) -> None:
    """States and all gradients are those of the loop, for a batch of seeds at once."""
    cell = CELLS[name]
    seeds = [_recurrence(name, length, seed, 0.8) for seed in range(5)]
    arguments = [jnp.stack(part) for part in zip(*seeds, strict=True)]
    towards = jnp.asarray(np.random.default_rng(9).standard_normal((length, seeds[0][1].size)), jnp.float32)

    def of_newton(*arguments: Array) -> tuple[Array, newton.Solved]:
        solved = newton_recurrence(cell, *arguments)
        return jnp.vdot(solved.states, towards), solved

    def of_loop(*arguments: Array) -> tuple[Array, Array]:
        states = _loop(cell, *arguments)
        return jnp.vdot(states, towards), states

    actual, solved = jax.jit(jax.vmap(jax.grad(of_newton, (0, 1, 2), has_aux=True)))(*arguments)
    expected, states = jax.jit(jax.vmap(jax.grad(of_loop, (0, 1, 2), has_aux=True)))(*arguments)
    assert not np.any(solved.fell_back)
    assert np.all(solved.residual <= newton.TOLERANCE)
    assert apart(solved.states, states) < 2e-6
    for one, other in zip(actual, expected, strict=True):
        assert apart(one, other) < 5e-6


@pytest.mark.slow
def test_dense_newton_in_float64() -> None:
    """States and gradients are those of one system of all L N equations, solved densely in float64."""
    weights, first, inputs = _recurrence("tanh_rnn", 40, 3, 1.0)
    a, x0, b = (np.asarray(part, np.float64) for part in (weights, first, inputs))
    states = np.zeros_like(b)
    for _ in range(40):
        before = np.concatenate([x0[None], states[:-1]])
        values = np.tanh(before @ a.T + b)
        system = np.eye(b.size)
        for t in range(1, 40):
            block = (1 - values[t] ** 2)[:, None] * a
            system[t * N : (t + 1) * N, (t - 1) * N : t * N] = -block
        states = states + np.linalg.solve(system, (values - states).ravel()).reshape(b.shape)
    assert np.max(np.abs(np.tanh(np.concatenate([x0[None], states[:-1]]) @ a.T + b) - states)) < 1e-14
    towards = np.random.default_rng(1).standard_normal(b.shape)
    through = np.linalg.solve(system.T, towards.ravel()).reshape(b.shape) * (1 - states**2)

    def loss(inputs: Array) -> tuple[Array, Array]:
        solved = newton_recurrence(tanh_cell, weights, first, inputs)
        return jnp.vdot(solved.states, jnp.float32(towards)), solved.states

    gradient, actual = jax.jit(jax.grad(loss, has_aux=True))(inputs)
    assert apart(actual, states) < 1e-6
    assert apart(gradient, through) < 3e-6


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("name", CELLS)
def test_the_adjoint_in_chunks(name: str) -> None:
    """The adjoint through chunks, which other devices run, gives the gradients of the loop."""
    cell, arguments = CELLS[name], _recurrence(name, 70, 0, 0.8)
    states = jax.jit(lambda *arguments: _loop(cell, *arguments))(*arguments)
    cotangent = jnp.asarray(np.random.default_rng(2).standard_normal(states.shape), jnp.float32)
    one, other = (
        jax.jit(lambda *arguments, size=size: newton.adjoint(cell, *arguments, size))(
            *arguments, states, cotangent
        )
        for size in (70, 8)
    )
    for first, second in zip(one, other, strict=True):
        assert apart(first, second) < 3e-6


def _primitives(program: Any) -> list[str]:
    """Return the names of all operations of a program, those inside others too."""
    names = []
    for equation in program.eqns:
        names.append(equation.primitive.name)
        for value in jax.tree.leaves(equation.params, is_leaf=lambda one: hasattr(one, "eqns")):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                names += _primitives(inner)
    return names


@pytest.mark.slow
def test_no_derivative_passes_through_the_iterations() -> None:
    """The forward pass iterates; the reverse pass is one loop over time and has no iteration."""
    arguments = _recurrence("gru", 64, 0, 0.8)
    states, back = jax.vjp(lambda *arguments: newton_recurrence(gru_cell, *arguments).states, *arguments)
    forward = jax.make_jaxpr(lambda *arguments: newton_recurrence(gru_cell, *arguments).states)(*arguments)
    assert _primitives(forward.jaxpr).count("while") == 3
    reverse = _primitives(jax.make_jaxpr(back)(states).jaxpr)
    assert reverse.count("while") == 0
    assert reverse.count("scan") == 1


CHAOTIC = {"tanh_rnn": 3.0, "gru": 8.0, "lstm": 12.0}
"""Sizes of weights with which neighbouring states part and never meet again."""


def _in_48_chunks(name: str, scale: float) -> tuple[Array, Array, Array]:
    """Return a recurrence with 16 numbers, or 32, of more chunks than Newton's method takes sweeps."""
    weights, first, inputs = _recurrence(name, 1500, 1, scale, size=16)
    return weights, first, 0.3 * inputs


@pytest.mark.slow
@pytest.mark.parametrize("name", CELLS)
def test_weights_that_diverge_fall_back(name: str) -> None:
    """A chaotic recurrence is run by the loop, bit for bit, beside one in the batch that is solved."""
    cell, both = CELLS[name], [_in_48_chunks(name, scale) for scale in (0.5, CHAOTIC[name])]
    arguments = [jnp.stack(part) for part in zip(*both, strict=True)]
    solved = jax.jit(jax.vmap(lambda *arguments: newton_recurrence(cell, *arguments)))(*arguments)
    np.testing.assert_array_equal(solved.fell_back, [False, True])
    assert solved.residual[1] > newton.TOLERANCE
    loop = jax.jit(jax.vmap(lambda *arguments: _loop(cell, *arguments)))(*arguments)
    np.testing.assert_array_equal(solved.states[1], loop[1])
    assert apart(solved.states[0], loop[0]) < 2e-6


@pytest.mark.slow
def test_corrections_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where corrections grow from chunk to chunk, guesses stay near the states, of modulus 1 at most."""

    def residual() -> float:
        # Another function each time, because JAX keeps the program of one that it has traced.
        solve = jax.jit(lambda *arguments: newton_recurrence(tanh_cell, *arguments).residual)
        return float(solve(*_in_48_chunks("tanh_rnn", CHAOTIC["tanh_rnn"])))

    assert residual() < 10
    monkeypatch.setattr(newton, "TRUST", np.inf)
    jax.clear_caches()
    assert residual() > 1e3


@pytest.mark.slow
@pytest.mark.parametrize("name", CELLS)
def test_carried_states(name: str) -> None:
    """Two segments, and single steps, continue from the state of the one before."""
    layer, u = build(name, algorithm="newton"), sequence(50)
    whole, _ = jax.jit(layer.run)(u)

    def in_two(u: Array) -> Array:
        first, state = layer.carry(layer.initial_state(), u[:20])
        second, state = layer.carry(state, u[20:49])
        last = layer.step(state, u[49])[1]
        return jnp.concatenate([first, second, last[None]])

    assert apart(jax.jit(in_two)(u), whole) < 2e-6


@pytest.mark.slow
def test_both_directions_and_padding() -> None:
    """With padding and two directions, the outputs of true steps are those of the sequential layer."""
    one, other = (
        build("gru", bidirectional=True, algorithm=algorithm) for algorithm in ("newton", "sequential")
    )
    actual, expected = (np.asarray(jax.jit(layer.run)(sequence(40), 23)[0])[:23] for layer in (one, other))
    assert apart(actual, expected) < 2e-6
