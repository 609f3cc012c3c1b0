"""The contract of every layer of the registry."""

from __future__ import annotations

import inspect
import itertools
import subprocess
import sys
from functools import cache
from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx
from jax import Array
from jax import numpy as jnp

from tests.trainables.layers.cases import (
    NAMES,
    RELATED,
    REPRESENTATIVE,
    D,
    algorithms,
    apart,
    bidirectional_names,
    build,
    built,
    sequence,
)
from trainables.errors import Refusal
from trainables.layers import LAYERS
from trainables.layers.layer import ChunkedLayer
from trainables.layers.recurrence import kernels

L, TRUE = 33, 20
BOTH_WAYS = bidirectional_names()
WAYS = [
    *((name, False) for name in NAMES),
    *(
        pytest.param(name, True, marks=[] if name in REPRESENTATIVE else [pytest.mark.slow])
        for name in BOTH_WAYS
    ),
]
OF_ROTRNN = {"lru", "s5"}
"""Layers that hand their arrays to the same recurrence as RotRNN."""

LONG = [
    pytest.param(name, marks=[] if name in REPRESENTATIVE else [pytest.mark.slow], id=name) for name in NAMES
]
WITH_ALGORITHMS = [
    pytest.param(
        name,
        algorithm,
        # Layers only hand arrays to kernels, which take seconds to compile for the interpreter.
        marks=[pytest.mark.slow] if name in RELATED | OF_ROTRNN or algorithm == "pallas" else [],
    )
    for name in NAMES
    for algorithm in algorithms(name)
    if algorithm != "sequential"
]


@cache
def _run(name: str, bidirectional: bool) -> Any:
    """Return the compiled (u, length) -> (outputs, states) of a shared layer, padding and all."""
    return jax.jit(built(name, bidirectional).run)


@pytest.mark.parametrize("name", NAMES)
def test_the_generated_declaration_is_that_of_the_class(name: str) -> None:
    read, imported = LAYERS.settings(name), LAYERS[name].settings
    assert read == imported
    for one, other in zip(read.needs, imported.needs, strict=True):
        smallest = [read.options[name].at_least if name in read.options else 1 for name in one.of]
        choices = list(itertools.product(*(range(int(least or 0), 25) for least in smallest)))
        assert [one.holds(*choice) for choice in choices] == [other.holds(*choice) for choice in choices]


@pytest.mark.parametrize("name", NAMES)
def test_a_layer_with_recurrent_parameters_says_so(name: str) -> None:
    """A file must give their rate, and only then."""
    assert LAYERS.settings(name).recurrent_rate == bool(LAYERS[name].recurrent)


@pytest.mark.parametrize("name", NAMES)
def test_constructor_accepts_what_is_declared(name: str) -> None:
    """The keywords of a layer are its options and ranges, with the declared defaults."""
    settings, parameters = LAYERS.settings(name), inspect.signature(LAYERS[name].__init__).parameters
    own = {"self", "d_model", "d_state", "rngs", "bidirectional"}
    assert parameters.keys() - own == settings.options.keys() | settings.ranges.keys()
    for option in parameters.keys() - own:
        assert parameters[option].default == settings.default(option), option
    assert settings.summary.endswith(".")


def test_reading_declarations_imports_no_jax() -> None:
    """A search-space file is validated in milliseconds, so neither JAX nor a layer may be imported."""
    code = (
        "import sys\n"
        "from trainables.layers import LAYERS\n"
        "for name in LAYERS: LAYERS.settings(name)\n"
        "print([module for module in sys.modules if module.split('.')[0] in {'jax', 'flax', 'numpy'}"
        " or module.startswith('trainables.layers.') and module != 'trainables.layers.declared'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.slow_after(4)
@pytest.mark.parametrize(("name", "bidirectional"), WAYS)
def test_shapes_and_padding(name: str, bidirectional: bool) -> None:
    """(L, D) -> (L, D); rows after the true end change no row before it."""
    run, u = _run(name, bidirectional), sequence(L)
    outputs, states = run(u, TRUE)
    assert outputs.shape == (L, D)
    assert states.shape[0] == L
    assert outputs.dtype == states.dtype == jnp.float32
    loud, loud_states = run(u.at[TRUE:].set(1e3), TRUE)
    np.testing.assert_array_equal(loud[:TRUE], outputs[:TRUE])
    np.testing.assert_array_equal(loud_states[:TRUE], states[:TRUE])
    short = jax.jit(built(name, bidirectional))(u[:TRUE])
    assert apart(short, outputs[:TRUE]) < 3e-6


@pytest.mark.slow_after(4)
@pytest.mark.parametrize(("name", "bidirectional"), WAYS)
def test_causality(name: str, bidirectional: bool) -> None:
    """One direction reads nothing ahead; two directions do, and both ends then matter everywhere."""
    u, run = sequence(L), _run(name, bidirectional)
    later = u.at[TRUE:].add(1.0)
    change = apart(run(later, L)[0][:TRUE], run(u, L)[0][:TRUE])
    assert change > 1e-3 if bidirectional else change < 3e-6


@pytest.mark.parametrize("name", NAMES)
def test_parameters(name: str) -> None:
    """Parameters are float32, and the recurrent ones exist, except where nothing recurs."""
    parameters = _parameters(name, False)
    assert all(value.dtype == jnp.float32 for value in parameters.values())
    assert bool(built(name).recurrent & set(parameters)) == (name not in {"none", "attention"})
    assert not built(name).recurrent & {"C", "C_re", "C_im", "D"}
    assert built(name).undecayed <= parameters.keys() - built(name).recurrent


@pytest.mark.slow_after(12)
@pytest.mark.parametrize("name", BOTH_WAYS)
def test_parameters_of_two_directions(name: str) -> None:
    """A second direction adds read-outs alone."""
    one, two = _parameters(name, False), _parameters(name, True)
    added = {key: value.shape for key, value in two.items() if key not in one}
    assert added
    assert all(value.dtype == jnp.float32 for value in two.values())
    assert all(shape == one[key.replace("_backward", "")].shape for key, shape in added.items())


def _parameters(name: str, bidirectional: bool) -> dict[str, Array]:
    return nnx.to_pure_dict(nnx.state(built(name, bidirectional), nnx.Param))


@pytest.mark.slow_after(3)
@pytest.mark.parametrize("name", NAMES)
def test_stepping(name: str) -> None:
    """One token at a time from a carried state equals the whole sequence, also in the norms of states.

    Attention records the norm of all that a row sees, one row more than it carries: test_gated.py has it.
    """
    layer, u = built(name), sequence(L)

    def step(state: Any, row: Array) -> tuple[Any, tuple[Array, Array]]:
        coefficients = layer.coefficients()
        inputs = jax.tree.map(lambda rows: rows[0], layer.inputs(coefficients, row[None]))
        carried, read = layer.advance(coefficients, state, inputs)
        hidden = layer.memory(carried) if isinstance(layer, ChunkedLayer) else layer.real(_row(read))
        after, outputs = layer.step(state, row)
        return after, (outputs, jnp.linalg.norm(jnp.ravel(hidden)))

    outputs, norms = jax.jit(lambda u: jax.lax.scan(step, layer.initial_state(), u)[1])(u)
    expected, states = _run(name, False)(u, L)
    assert apart(outputs, expected) < 1e-5
    assert name == "attention" or apart(norms, np.linalg.norm(states, axis=1)) < 1e-5
    assert bool(np.all(norms > 0)) == (name != "none")


def _row(read: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[None], read)


@pytest.mark.parametrize("name", BOTH_WAYS)
def test_two_directions_cannot_be_stepped(name: str) -> None:
    with pytest.raises(Refusal, match="must be causal"):
        built(name, True).step(built(name).initial_state(), sequence(L)[0])


@cache
def _graded(name: str, algorithm: str) -> tuple[Array, dict[str, Array]]:
    """Return the outputs of 1,000 steps, and the gradients of their product with fixed numbers.

    alpha and omega are parts of one complex number and are kept together: the gradient turns an eigenvalue
    near the unit circle, hardly moves it outwards, and is known to the precision of the whole.
    """
    u, weights = sequence(1000), sequence(1000, seed=2)

    def loss(layer: Any) -> tuple[Array, Array]:
        outputs = layer(u)
        return jnp.sum(outputs * weights), outputs

    graph, arrays = nnx.split(build(name, algorithm=algorithm))
    graded = jax.grad(lambda arrays: loss(nnx.merge(graph, arrays)), has_aux=True)
    gradients, outputs = jax.jit(graded)(arrays)
    by_path = nnx.to_pure_dict(nnx.filter_state(gradients, nnx.Param))
    if "omega" in by_path:
        by_path["eigenvalues"] = jnp.stack([by_path.pop("alpha"), by_path.pop("omega")])
    return outputs, by_path


@pytest.fixture
def _small_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unroll no steps in Pallas's kernels, which compile three times as fast.

    A layer only hands arrays to them; test_algorithms.py shows that the unrolled ones are right.
    """
    monkeypatch.setattr(kernels, "AHEAD", 1)


@pytest.mark.slow_after(3)
@pytest.mark.usefixtures("_small_kernels")
@pytest.mark.parametrize(("name", "algorithm"), WITH_ALGORITHMS)
def test_algorithms_agree(name: str, algorithm: str) -> None:
    """Every algorithm gives the sequential one's outputs and gradients, at a length that is no power of 2.

    Each gradient may be 1e-5 from the exact one, as in `graded.check`, and two may err in opposite
    directions: those of `delta_net` by W_beta are 6.9e-6 and 6.6e-6 from float64's, and 1.35e-5 from each
    other.
    """
    outputs, gradients = _graded(name, "sequential")
    actual, actual_gradients = _graded(name, algorithm)
    assert apart(actual, outputs) < 1e-5
    for path, value in gradients.items():
        assert apart(actual_gradients[path], value) < 2e-5, path


@pytest.mark.slow
@pytest.mark.parametrize("name", LONG)
def test_finite_gradients_of_long_sequences(name: str) -> None:
    """Nothing overflows in 16,384 steps, forward or back."""
    layer, u = build(name, d_model=2, d_state=8), sequence(16_384, 2)
    gradients, of_u = nnx.jit(nnx.grad(lambda layer, u: jnp.mean(layer(u) ** 2), argnums=(0, 1)))(layer, u)
    for path, value in nnx.to_pure_dict(nnx.state(gradients, nnx.Param)).items():
        assert np.isfinite(value).all(), path
        assert np.any(value != 0), path
    assert np.isfinite(of_u).all()


@pytest.mark.slow_after(3)
@pytest.mark.parametrize("name", LONG)
def test_slots_equal_a_loop(name: str) -> None:
    """Drawing and running several trials at once, their ranges traced, equals one after the other."""
    u = sequence(2 * L).reshape(2, L, D)
    lengths = jnp.array([L, TRUE])
    shrunk = {
        range_name: jnp.array([[low, (low + high) / 2], [low, high]])
        for range_name, spec in LAYERS.settings(name).ranges.items()
        for low, high in [spec.default]
    }

    def trial(seed: Array, ranges: dict[str, Array]) -> Array:
        layer = build(name, seed=jax.random.key(seed), **{key: (v[0], v[1]) for key, v in ranges.items()})
        return jax.vmap(layer)(u, lengths)

    together = jax.jit(jax.vmap(trial))(jnp.arange(2), shrunk)
    alone = jax.jit(trial)
    for slot in range(2):
        expected = alone(jnp.int32(slot), {key: values[slot] for key, values in shrunk.items()})
        assert apart(together[slot], expected) < 1e-5
