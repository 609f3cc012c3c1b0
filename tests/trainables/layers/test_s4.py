"""S4 against a float64 loop with dense matrices, and what it starts from."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx
from jax import numpy as jnp

from tests.trainables.layers import structured_reference
from tests.trainables.layers.cases import apart, build, exact
from tests.trainables.layers.graded import check
from trainables.errors import Refusal
from trainables.layers.s4 import hippo_legs, kernel


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("options", [{}, {"algorithm": "sequential", "copies": 2}])
def test_loop(options: dict[str, Any]) -> None:
    """Outputs, norms of states and gradients equal those of a float64 loop, by frequencies and by steps."""
    check("s4", structured_reference.s4, **options)


def test_parameters_can_be_set_from_outside() -> None:
    assert {path: value.shape for path, value in exact(build("s4", copies=2)).items()} == {
        "log_Lambda_re": (2, 8),
        "Lambda_im": (2, 8),
        "P": (2, 2, 8),
        "B": (2, 2, 8),
        "C": (4, 2, 8),
        "log_step": (4,),
        "D": (4,),
    }


def test_starts_from_hippo() -> None:
    """Lambda - P P* is HiPPO-LegS in the basis of its normal part, whose eigenvectors come in pairs."""
    size = 8
    n = np.arange(size)
    order = np.sqrt(2 * n + 1)
    hippo = -np.tril(np.outer(order, order), -1) - np.diag(n + 1)
    eigenvalues, low_rank, into = hippo_legs(size)
    diagonal, column = (np.concatenate([part, part.conj()]) for part in (eigenvalues, low_rank))
    turned = np.diag(diagonal) - np.outer(column, column.conj())
    np.testing.assert_allclose(np.poly(turned).real, np.poly(hippo), rtol=1e-9)
    assert np.abs(into.imag).max() <= 2


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("length", [1, 2, 5, 64])
def test_kernel_of_any_length(length: int) -> None:
    """The kernel is 2 Re(C A^t B), whatever the length: no value of later steps is folded into it."""
    layer = build("s4", dt_init=(0.001, 0.002))
    system = layer.coefficients()
    values = jax.jit(kernel, static_argnums=2)(system, system.out, length)
    expected = [
        [(d.out @ np.linalg.matrix_power(d.transition, t) @ d.into).real for t in range(length)]
        for d in structured_reference.systems(exact(layer))
    ]
    assert apart(values, np.transpose(expected)) < 1e-5


@pytest.mark.parametrize("name", ["s4", "liquid_s4"])
@pytest.mark.parametrize("value", [-60.0, -10.0, 0.0, 3.0])
def test_eigenvalues_decay_and_learn(name: str, value: float) -> None:
    """The real part is negative for every value of its parameter, and learns, however slow the mode is."""
    layer = build(name)
    layer.log_Lambda_re[...] = jnp.full_like(layer.log_Lambda_re[...], value)
    graph, arrays = nnx.split(layer)

    def real_part(arrays: Any) -> Any:
        return nnx.merge(graph, arrays).coefficients().eigenvalues.real

    assert np.all(real_part(arrays) < 0)
    gradient = jax.grad(lambda arrays: jnp.sum(real_part(arrays)))(arrays)["log_Lambda_re"][...]
    # One number of every channel reads each of the K copies, all of them the same here.
    np.testing.assert_allclose(gradient, -4 * np.exp(value), rtol=1e-5)


def test_refuses_impossible_sizes() -> None:
    """States come in pairs, and each channel reads one copy."""
    with pytest.raises(Refusal, match="must be even"):
        build("s4", d_state=7)
    with pytest.raises(Refusal, match="multiple of copies"):
        build("s4", copies=3)
