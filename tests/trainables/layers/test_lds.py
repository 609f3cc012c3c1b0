"""LDS and LDStack as layers, against loops over their papers' equations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx
from jax import numpy as jnp

from tests.trainables.layers import reference
from tests.trainables.layers.cases import Floats, apart, build, exact, sequence
from tests.trainables.layers.stack import stacked_states
from trainables.errors import Refusal
from trainables.layers.layer import Fixed
from trainables.layers.recurrence.blocks import block_size


def _eigenvalues(kind: str, p: dict[str, Floats]) -> np.ndarray:
    """Return all eigenvalues, the partner of each in the second half; source: LDStack, figure 1."""
    if kind == "unit":
        half = np.exp(1j * p["theta"])
    elif kind == "standard":
        half = p["alpha"] + 1j * p["beta"]
    else:
        up, down = np.maximum(p["omega"], 0), np.maximum(-p["omega"], 0)
        return np.concatenate([p["alpha"] + 1j * down, p["alpha"] + up - 1j * down])
    return np.concatenate([half, half.conj()])


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("algorithm", ["sequential", "blocks"])
@pytest.mark.parametrize("kind", ["unit", "standard", "hinge"])
def test_system_a_channel(kind: str, algorithm: str) -> None:
    """Outputs and norms equal those of a loop over all N/D eigenvalues a channel, with a complex readout."""
    layer, u = build("lds", eigenvalues=kind, d_state=24, algorithm=algorithm), sequence(80)
    p, seen = exact(layer), np.asarray(u, np.float64)
    channel = np.tile(np.repeat(np.arange(4), 3), 2)
    states = reference.run(np.diag(_eigenvalues(kind, p)), np.eye(4)[channel] + 0j, seen)
    expected = (states @ (p["C_re"] + 1j * p["C_im"]).T).real + seen @ p["D"].T
    outputs, hidden = jax.jit(layer.run)(u)
    assert apart(outputs, expected) < 1e-5
    assert apart(np.linalg.norm(hidden, axis=1), np.linalg.norm(states, axis=1)) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["sequential", "blocks"])
@pytest.mark.parametrize("kind", ["unit", pytest.param("hinge", marks=pytest.mark.slow)])
def test_random_projections(kind: str, algorithm: str) -> None:
    """Outputs equal the average over copies of one system, each driven by one projection."""
    layer, u = build("lds", eigenvalues=kind, d_state=8, projections=3, algorithm=algorithm), sequence(80)
    p, seen = exact(layer), np.asarray(u, np.float64)
    assert isinstance(layer.projections, Fixed)
    expected = seen @ p["D"].T
    for j in range(3):
        weights = np.broadcast_to(p["projections"][j], (8, 4)) + 0j
        states = reference.run(np.diag(_eigenvalues(kind, p)), weights, seen)
        expected = expected + (states @ (p["C_re"][j] + 1j * p["C_im"][j]).T).real / 3
    assert apart(layer(u), expected) < 1e-5


def _gradients(
    options: dict[str, Any], shape: tuple[int, int], true: int, name: str = "lds"
) -> Callable[[str], Any]:
    """Return what compiles the gradients of a layer by parameters and inputs, for an algorithm."""
    sequences, length = shape
    u, towards = sequence(2 * sequences * length, options["d_model"]).reshape(2, sequences, length, -1)

    def compiled(algorithm: str) -> Any:
        graph, parameters, rest = nnx.split(build(name, algorithm=algorithm, **options), nnx.Param, ...)

        def loss(parameters: nnx.State, u: jax.Array) -> jax.Array:
            layer = nnx.merge(graph, parameters, rest)
            return jnp.vdot(jax.vmap(lambda u: layer(u, jnp.int32(true)))(u), towards)

        return jax.jit(jax.grad(loss, argnums=(0, 1))).lower(parameters, u).compile(), (parameters, u)

    return compiled


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("lds", {"d_model": 4, "d_state": 24, "eigenvalues": "unit"}),
        pytest.param("lds", {"d_model": 4, "d_state": 24, "eigenvalues": "hinge"}, marks=pytest.mark.slow),
        ("lds", {"d_model": 4, "d_state": 8, "eigenvalues": "hinge", "projections": 3}),
        pytest.param(
            "ldstack",
            {"d_model": 4, "d_state": 8, "projections": 3, "stack_depth": 3},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_gradients_of_blocks(name: str, options: dict[str, Any]) -> None:
    """In both directions, with padding, blocks have the gradients of the loop over all steps."""
    both = _gradients({**options, "bidirectional": True}, (2, 80), 70, name)
    by_steps, by_blocks = (jax.tree.leaves(run(*given)) for run, given in map(both, ["sequential", "blocks"]))
    for expected, actual in zip(by_steps, by_blocks, strict=True):
        assert apart(actual, expected) < 1e-5


@pytest.mark.slow
def test_blocks_form_no_states() -> None:
    """The gradient needs less than a fifth of the memory of its states."""
    options = {"d_model": 4, "d_state": 256, "eigenvalues": "hinge", "projections": 1}
    of = _gradients(options, (64, 784), 784)
    whole = 4 * 64 * 784 * 2 * 256
    memory = {name: of(name)[0].memory_analysis().temp_size_in_bytes for name in ("sequential", "blocks")}
    assert memory["sequential"] > whole
    assert memory["blocks"] < whole / 5


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="auto chooses by what was measured on a CPU")
@pytest.mark.parametrize(
    ("name", "options", "by_blocks"),
    [
        ("lds", {"d_model": 10, "d_state": 160}, True),
        ("lds", {"d_model": 10, "d_state": 784, "eigenvalues": "hinge", "projections": 1}, True),
        ("lds", {"d_model": 32, "d_state": 256}, True),
        ("lds", {"d_model": 32, "d_state": 64}, False),
        ("ldstack", {"d_model": 2, "d_state": 32}, True),
        ("ldstack", {"d_model": 2, "d_state": 128, "projections": 2}, False),
    ],
)
def test_auto_chooses_blocks_where_few_inputs_drive_many_states(
    name: str, options: dict[str, Any], by_blocks: bool
) -> None:
    """LDStack's systems of its three tasks run in blocks, wide layers of few states by steps."""
    by_default, by_steps = (
        nnx.eval_shape(partial(build, name, algorithm=algorithm, **options))
        for algorithm in ("auto", "sequential")
    )
    assert by_default.by_blocks is by_blocks
    assert not by_steps.by_blocks


@pytest.mark.parametrize(
    ("sizes", "steps"), [((10, 80, 10), 16), ((1, 784, 10), 64), ((32, 128, 32), 8), ((32, 192, 32), 8)]
)
def test_blocks_are_as_long_as_was_fastest(sizes: tuple[int, int, int], steps: int) -> None:
    """For inputs, states and outputs of copy memory, psMNIST, a wide layer and LDStack on adding."""
    assert block_size(*sizes) == steps


def test_size_of_the_copy_task() -> None:
    """Ten systems of size 16 have the published 3,380 trainable numbers."""
    layer = build("lds", d_model=10, d_state=160)
    assert sum(value.size for value in jax.tree.leaves(nnx.state(layer, nnx.Param))) == 3380
    theta = np.asarray(layer.theta[...])
    assert theta.shape == (80,)
    assert abs(theta).max() <= 2 * np.pi
    assert np.std(theta) == pytest.approx(4 * np.pi / 12**0.5, rel=0.2)


def _by_the_paper(p: dict[str, Floats], u: Floats, depth: int) -> Floats:
    """Return h of the last layer; source: LDStack, section 5, "LDStack details", loop by loop."""
    eigenvalues = _eigenvalues("hinge", p)
    elu = lambda a: np.where(a > 0, a, np.expm1(np.minimum(a, 0)))  # noqa: E731
    back = [(p["W_re"] + 1j * p["W_im"]) @ g for g in p["projections"]]
    corrections = np.zeros((len(u), len(eigenvalues)))
    for _ in range(depth):
        hidden, deviations = np.zeros_like(corrections), np.zeros_like(corrections)
        states = [np.zeros(len(eigenvalues), np.complex128) for _ in back]
        for t, now in enumerate(u):
            linear = np.zeros(len(eigenvalues))
            for j, g in enumerate(p["projections"]):
                step = eigenvalues * states[j] + g @ now
                states[j] = step + np.linalg.solve(back[j], corrections[t])
                linear += (back[j] @ step).real / len(back)
                hidden[t] += (back[j] @ states[j]).real / len(back)
            deviations[t] = elu(linear) - linear
        corrections = deviations
    return hidden


@pytest.mark.slow
def test_ldstack() -> None:
    """Outputs equal corrected systems run in a loop, one projection and one layer after the other."""
    layer = build("ldstack", d_state=8, stack_depth=3, projections=2)
    u = sequence(40)
    p, seen = exact(layer), np.asarray(u, np.float64)
    hidden = _by_the_paper(p, seen, 3)
    outputs, states = jax.jit(layer.run)(u)
    assert apart(states, hidden) < 1e-4
    assert apart(outputs, hidden @ p["C"].T + seen * p["D"]) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("depth", [1, 4])
def test_ldstack_of_one_input_is_the_plain_stack(depth: int) -> None:
    """With one input nothing is lost by projecting: the stack of equation 6 for W's own (A, B)."""
    layer = build("ldstack", d_model=1, d_state=8, stack_depth=depth, projections=1, rho="tanh")
    layer.projections[...] = jnp.ones((1, 1))
    p = exact(layer)
    basis = (p["W_re"] + 1j * p["W_im"])[:, :, 0]
    transition = basis @ np.diag(_eigenvalues("hinge", p)) @ np.linalg.inv(basis)
    weights = basis.sum(axis=1)
    assert abs(transition.imag).max() < 1e-5
    assert abs(weights.imag).max() < 1e-5
    u = sequence(50, 1)
    arrays = jnp.float32(transition.real), jnp.float32(weights.real[:, None])
    expected = jax.jit(lambda u: stacked_states(*arrays, jnp.tanh, u, depth)[-1])(u)
    assert apart(jax.jit(lambda u: layer.run(u)[1])(u), expected) < 1e-4


def test_refuses_uneven_systems() -> None:
    """Every system needs an even number of eigenvalues."""
    with pytest.raises(Refusal, match="even number of states"):
        build("lds", d_model=4, d_state=12)
    with pytest.raises(Refusal, match="must be even"):
        build("ldstack", d_state=7)
