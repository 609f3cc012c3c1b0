"""Every algorithm of the delta rule against a float64 loop, in value and gradient, and its GPU kernels."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import numpy as np
import pytest
from jax import Array
from jax import numpy as jnp
from numpy.typing import NDArray

from tests.trainables.layers.cases import LOWERED_HERE, apart
from trainables.layers.recurrence import in_chunks
from trainables.layers.recurrence.delta_rule import RULES, delta_rule
from trainables.layers.recurrence.wy_form import Steps

Floats = NDArray[np.float64]
Arrays = tuple[Steps, Array]


def _problem(count: int, together: int, keys: int, values: int) -> tuple[Arrays, tuple[Array, Array]]:
    """Return steps with unit keys and a state, and cotangents of outputs and of the last state."""
    draw = np.random.default_rng(count)
    directions = draw.standard_normal((count, keys))
    steps = Steps(
        queries=draw.standard_normal((count // together, keys)),
        keys=directions / np.linalg.norm(directions, axis=1, keepdims=True),
        values=draw.standard_normal((count, values)),
        sizes=draw.uniform(0, 2, count),
        log_decays=-draw.exponential(0.1, count),
    )
    states = draw.standard_normal((2, keys, values))
    towards = draw.standard_normal((count // together, values))
    given: Any = (steps, states[0]), (towards, states[1])
    return jax.tree.map(jnp.float32, given)


def _reference(steps: Any, state: Floats, of_outputs: Floats, of_state: Floats) -> tuple[Any, Any]:
    """Return outputs and the last state, and the gradients by all steps and the first state."""
    q, k, v, b, log_a = (np.asarray(part, np.float64) for part in steps)
    together, a, states, outputs = len(k) // len(q), np.exp(log_a), [np.asarray(state, np.float64)], []
    for t in range(len(k)):
        faded = a[t] * states[-1]
        states.append(faded + b[t] * np.outer(k[t], v[t] - faded.T @ k[t]))
        if t % together == together - 1:
            outputs.append(states[-1].T @ q[t // together])
    gradients = [np.zeros_like(part) for part in (q, k, v, b, log_a)]
    of_q, of_k, of_v, of_b, of_log_a = gradients
    later = np.asarray(of_state, np.float64)
    for t in reversed(range(len(k))):
        if t % together == together - 1:
            towards = np.asarray(of_outputs[t // together], np.float64)
            of_q[t // together] = states[t + 1] @ towards
            later = later + np.outer(q[t // together], towards)
        faded = a[t] * states[t]
        missing = v[t] - faded.T @ k[t]
        of_v[t] = b[t] * (later.T @ k[t])
        of_b[t] = k[t] @ later @ missing
        of_k[t] = b[t] * (later @ missing) - faded @ of_v[t]
        of_faded = later - np.outer(k[t], of_v[t])
        of_log_a[t] = np.sum(of_faded * faded)
        later = a[t] * of_faded
    return (np.array(outputs), states[-1]), (Steps(*gradients), later)


def _graded(algorithm: str, given: Arrays, towards: tuple[Array, Array]) -> Any:
    answers, pull = jax.vjp(partial(delta_rule, algorithm=algorithm), *given)
    return answers, pull(towards)


SMALL = (40, 1, 5, 3)
EDGES = [(1, 1, 1, 1), (32, 1, 16, 16), (33, 1, 17, 65), (66, 3, 20, 130), (100, 2, 33, 64)]
CASES = [
    pytest.param("pallas", SMALL),
    # The tests of the layers run the other two.
    *(pytest.param(algorithm, SMALL, marks=pytest.mark.slow) for algorithm in RULES if algorithm != "pallas"),
    *(pytest.param("pallas", shape, marks=pytest.mark.slow) for shape in EDGES),
]


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(("algorithm", "shape"), CASES)
def test_loop(algorithm: str, shape: tuple[int, int, int, int]) -> None:
    """Outputs, states and all gradients equal those of a float64 loop, also where no tile is full."""
    given, towards = _problem(*shape)
    actual = jax.jit(partial(_graded, algorithm))(given, towards)
    expected = _reference(*given, *towards)
    for one, other in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        assert apart(one, other) < 1e-5


@pytest.mark.parametrize("algorithm", ["sequential", "chunked"])
def test_products_are_exact_on_a_gpu(algorithm: str) -> None:
    """No product of values or gradients is left to the default precision, which is TF32 on a GPU."""
    given, towards = _problem(*SMALL)
    _assert_exact(jax.jit(partial(_graded, algorithm)).lower(given, towards).as_text())


def test_products_of_chunks_are_exact_on_a_gpu() -> None:
    """The same in a loop over chunks: there JAX traces the forward pass after the call has ended."""

    def chunk(state: Array, rows: Steps) -> tuple[Array, Array]:
        outputs, state = delta_rule(rows, state, "chunked")
        return state, outputs

    (steps, state), _ = _problem(*SMALL)
    graded = jax.grad(lambda steps: jnp.sum(in_chunks(chunk, state, steps, 16) ** 2))
    _assert_exact(jax.jit(graded).lower(steps).as_text())


def _assert_exact(program: str) -> None:
    products = [line for line in program.splitlines() if "dot_general" in line]
    assert products
    assert not [line for line in products if "precision = [HIGHEST, HIGHEST]" not in line]


@pytest.mark.slow
@LOWERED_HERE
def test_kernels_lower_for_a_gpu() -> None:
    """For a GPU the heads of a batch are one kernel each way, and no loop of XLA's."""
    given, towards = jax.tree.map(
        lambda part: jnp.broadcast_to(part, (3, 2, *part.shape)), _problem(70, 2, 20, 70)
    )
    graded = jax.jit(jax.vmap(jax.vmap(partial(_graded, "pallas"))))
    program = graded.trace(given, towards).lower(lowering_platforms=("cuda",)).as_text()
    assert program.count("@__gpu$xla.gpu.triton") == 2
    assert "while" not in program
