"""Layers whose eigenvalues may exceed 1 in modulus: states that overflow in the padding leave no trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx
from jax import Array
from jax import numpy as jnp

from tests.trainables.layers.cases import D, apart, build, sequence

TRUE, L = (20, 7), 4096
"""1.05 ** 20 is 2.7, and 1.05 ** 4096 overflows."""


def _s5(layer: Any) -> None:
    layer.log_step[...] = jnp.zeros_like(layer.log_step[...])
    layer.Lambda_re[...] = layer.Lambda_re[...].at[0].set(0.05)


def _lru(layer: Any) -> None:
    layer.nu[...] = layer.nu[...].at[0].set(-np.log(1.05))


def _cartesian(layer: Any) -> None:
    layer.Lambda_re[...], layer.Lambda_im[...] = (
        part[...].at[0].set(value) for part, value in ((layer.Lambda_re, 0.8), (layer.Lambda_im, 0.68))
    )


def _dense(layer: Any) -> None:
    transition = np.asarray(layer.A[...], np.float64)
    layer.A[...] = jnp.float32(1.06 / np.abs(np.linalg.eigvals(transition)).max() * transition)


def _rectified(layer: Any) -> None:
    # Positive entries, so that units stay above 0 and the state grows by 1.06 a step.
    transition = np.abs(np.asarray(layer.A[...], np.float64))
    layer.A[...] = jnp.float32(1.06 / np.abs(np.linalg.eigvals(transition)).max() * transition)


def _outwards(layer: Any) -> None:
    layer.alpha[...] = layer.alpha[...].at[0].set(1.05)


def _stiff(layer: Any) -> None:
    # With step^2 A above 4, here 4.0046, the eigenvalues are real and one is -1.07.
    layer.step_logit[...] = jnp.full_like(layer.step_logit[...], 4.0)
    layer.A[...] = 4.0046 / jax.nn.sigmoid(layer.step_logit[...]) ** 2


FREE = {"stable": False}


def _slow(*case: Any) -> Any:
    """Return a case that takes a part of the code that another layer runs too, and seconds to compile."""
    return pytest.param(*case, marks=pytest.mark.slow)


CASES: list[Any] = [
    ("s5", {"blocks": 1}, _s5),
    _slow("s5", {"blocks": 1, "algorithm": "chunked"}, _s5),
    ("s5", {"blocks": 1, "bidirectional": True}, _s5),
    ("lru", FREE, _lru),
    _slow("lru", {**FREE, "algorithm": "associative"}, _lru),
    ("lru", {**FREE, "bidirectional": True}, _lru),
    _slow("lru", {**FREE, "bidirectional": True, "algorithm": "associative"}, _lru),
    _slow("lru", {**FREE, "cartesian": True}, _cartesian),
    ("lru", {"dense": True}, _dense),
    _slow("lru", {"dense": True, "bidirectional": True}, _dense),
    _slow("linear_rnn", {}, _dense),
    ("linear_rnn", {"algorithm": "associative"}, _dense),
    _slow("linear_rnn", {"bidirectional": True}, _dense),
    ("relu_rnn", {}, _rectified),
    ("linoss", {"discretisation": "imex", "algorithm": "associative"}, _stiff),
    _slow("linoss", {"discretisation": "imex", "bidirectional": True}, _stiff),
    ("lds", {"eigenvalues": "standard", "algorithm": "sequential"}, _outwards),
    _slow("lds", {"eigenvalues": "standard", "algorithm": "blocks", "bidirectional": True}, _outwards),
    _slow("lds", {"eigenvalues": "hinge", "algorithm": "sequential", "bidirectional": True}, _outwards),
    _slow("ldstack", {"algorithm": "sequential"}, _outwards),
    _slow("ldstack", {"algorithm": "blocks", "bidirectional": True}, _outwards),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options", "grow"), CASES)
def test_padding_leaves_gradients_as_they_are(
    name: str, options: dict[str, Any], grow: Callable[[Any], None]
) -> None:
    """Outputs and gradients of a short sequence in a long row equal those of the sequence alone.

    Left to itself, the state overflows in the padding, and infinity times the gradient 0 there is nan.
    """
    layer = build(name, **options)
    grow(layer)
    graph, arrays = nnx.split(layer)
    u, weights = sequence(2 * L).reshape(2, L, D), sequence(2 * L, seed=2).reshape(2, L, D)

    def loss(arrays: Any, u: Array, lengths: Array) -> tuple[Array, Array]:
        outputs = jax.vmap(nnx.merge(graph, arrays))(u, lengths)
        is_true = jnp.arange(L)[:, None] < lengths[:, None, None]
        return jnp.sum(jnp.where(is_true, outputs, 0) * weights), outputs

    def alone(arrays: Any, u: Array) -> tuple[Array, list[Array]]:
        layer = nnx.merge(graph, arrays)
        outputs = [layer(row[:true]) for row, true in zip(u, TRUE, strict=True)]
        return sum(jnp.vdot(y, w[: len(y)]) for y, w in zip(outputs, weights, strict=True)), outputs

    graded, graded_alone = (jax.jit(jax.grad(f, argnums=(0, 1), has_aux=True)) for f in (loss, alone))
    (of_arrays, of_u), outputs = graded(arrays, u, jnp.array(TRUE))
    (expected, expected_of_u), expected_outputs = graded_alone(arrays, u)
    for true, actual, wanted in zip(TRUE, outputs, expected_outputs, strict=True):
        assert apart(actual[:true], wanted) < 1e-5
    assert apart(of_u, expected_of_u) < 1e-5
    actual_of = nnx.to_pure_dict(nnx.filter_state(of_arrays, nnx.Param))
    for path, value in nnx.to_pure_dict(nnx.filter_state(expected, nnx.Param)).items():
        assert np.any(value != 0), path
        assert apart(actual_of[path], value) < 1e-5, path
    assert np.isfinite(outputs).all(), "what follows the layer multiplies its outputs too"


@pytest.mark.slow_after(3)
@pytest.mark.parametrize(("name", "options", "grow"), CASES)
def test_the_cases_grow(name: str, options: dict[str, Any], grow: Callable[[Any], None]) -> None:
    """Without padding the states of as many steps do overflow: the test above tests something."""
    layer = build(name, **options)
    grow(layer)
    outputs = np.asarray(jax.jit(layer)(sequence(L)))
    assert np.isfinite(outputs[: TRUE[0]]).all() or options.get("bidirectional")
    assert not np.isfinite(outputs).all()
