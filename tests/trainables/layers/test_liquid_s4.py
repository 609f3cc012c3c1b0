"""Liquid-S4 against a float64 loop with dense matrices."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import pytest

from tests.trainables.layers.cases import apart, build, sequence
from tests.trainables.layers.graded import check
from tests.trainables.layers.structured_reference import s4
from trainables.layers import LAYERS

FORMS: list[Any] = [
    ("pb", 3, "convolution"),
    ("kb", 4, "convolution"),
    ("pb", 6, "convolution"),
    pytest.param("kb", 5, "convolution", marks=pytest.mark.slow),
    pytest.param("pb", 5, "sequential", marks=pytest.mark.slow),
    pytest.param("kb", 6, "sequential", marks=pytest.mark.slow),
    pytest.param("kb", 2, "convolution", marks=pytest.mark.slow),
    pytest.param("kb", 3, "sequential", marks=pytest.mark.slow),
    pytest.param("pb", 4, "sequential", marks=pytest.mark.slow),
]


@pytest.mark.slow
@pytest.mark.parametrize(("kernel", "order", "algorithm"), FORMS)
def test_loop(kernel: str, order: int, algorithm: str) -> None:
    """Outputs, norms of states and gradients equal those of a float64 loop over products of inputs."""
    reference = partial(s4, order=order, decays=kernel == "kb")
    check("liquid_s4", reference, kernel=kernel, order=order, algorithm=algorithm, dt_init=(0.1, 1.0))


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("order", [2, 4])
def test_step_of_decaying_products(order: int) -> None:
    """One input at a time from a carried state equals the kernels on products."""
    layer, u = build("liquid_s4", kernel="kb", order=order, dt_init=(0.1, 1.0)), sequence(33)

    @jax.jit
    def both(u: jax.Array) -> tuple[jax.Array, jax.Array]:
        return layer(u), jax.lax.scan(layer.step, layer.initial_state(), u)[1]

    whole, stepped = both(u)
    assert apart(stepped, whole) < 1e-5


def test_published_orders_are_choices() -> None:
    """5 on ListOps, 6 on Text, 2 on Retrieval, Pathfinder and Path-X, 3 on Image; source: table S1."""
    choices = LAYERS.settings("liquid_s4").options["order"].choices
    assert choices is not None
    assert {5, 6, 2, 3} <= set(choices)


def test_products_matter() -> None:
    """A layer of the same parameters without products gives something else."""
    sizes = {"dt_init": (0.1, 1.0)}
    plain, liquid = build("s4", **sizes), build("liquid_s4", **sizes)
    u = sequence(33)
    assert apart(jax.jit(liquid)(u), jax.jit(plain)(u)) > 1e-3
