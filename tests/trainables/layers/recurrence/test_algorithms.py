"""Every algorithm of the diagonal recurrence against float64 loops, in value and gradient."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest
from jax import Array
from jax import numpy as jnp
from numpy.typing import NDArray

from tests.trainables.layers.cases import LOWERED_HERE, apart
from trainables.layers.recurrence import (
    ALGORITHMS,
    in_chunks,
    kernels,
    planar,
    recurrence,
    varying_recurrence,
)
from trainables.layers.recurrence.varying import SOLVERS, pace

N = 6
Complex = NDArray[np.complex128]


def _problem(length: int, moduli: tuple[float, float] = (0.1, 0.9999)) -> tuple[Array, Array, Array]:
    """Return decays (2, N) spread over the moduli, inputs and cotangents (L, 2, N)."""
    draw = np.random.default_rng(length)
    moduli_of = 1 - np.geomspace(1 - moduli[0], 1 - moduli[1], N)
    decays = moduli_of * np.exp(1j * draw.uniform(0, 2 * np.pi, N))
    inputs, cotangents = draw.standard_normal((2, length, 2, N), np.float32)
    return (
        planar(jnp.float32(decays.real), jnp.float32(decays.imag)),
        jnp.array(inputs),
        jnp.array(cotangents),
    )


def _complex(planes: Any) -> Complex:
    exact = np.asarray(planes, np.float64)
    return exact[..., 0, :] + 1j * exact[..., 1, :]


def _reference(decays: Complex, inputs: Complex, cotangents: Complex) -> tuple[Complex, Complex, Complex]:
    """Return states, gradients by the decay of every step and by the inputs; decays (L, N)."""
    states, state = [], np.zeros_like(inputs[0])
    for decay, now in zip(decays, inputs, strict=True):
        state = decay * state + now
        states.append(state)
    gradients = np.zeros_like(inputs)
    later = np.zeros_like(inputs[0])
    for t in range(len(inputs) - 1, -1, -1):
        gradients[t] = later = cotangents[t] + later
        later = decays[t].conj() * later
    before = np.array([np.zeros_like(inputs[0]), *states[:-1]])
    return np.array(states), before.conj() * gradients, gradients


@partial(jax.jit, static_argnames=("algorithm", "reverse"))
def _results(
    decay: Array, inputs: Array, cotangents: Array, algorithm: str, reverse: bool
) -> tuple[Array, tuple[Array, Array]]:
    states, pull = jax.vjp(
        lambda decay, inputs: recurrence(decay, inputs, algorithm=algorithm, reverse=reverse), decay, inputs
    )
    return states, pull(cotangents)


CASES = [(1, False), (7, False), (7, True), (100, True), (1024, True), (4096, False)]
OF_PALLAS = (100, True)
"""The case of Pallas's interpreter that is not slow: 100 steps are chunks of several `AHEAD`s, and more."""

INVARIANT = [
    pytest.param(
        algorithm,
        *case,
        marks=[pytest.mark.slow] if algorithm == "pallas" and case != OF_PALLAS else [],
    )
    for algorithm in ALGORITHMS
    for case in CASES
]


def _slow_pallas(algorithms: Iterable[str]) -> list[Any]:
    return [
        pytest.param(algorithm, marks=[pytest.mark.slow] if algorithm == "pallas" else [])
        for algorithm in algorithms
    ]


@pytest.mark.slow_after(7)
@pytest.mark.parametrize(("algorithm", "length", "reverse"), INVARIANT)
def test_invariant(algorithm: str, length: int, reverse: bool) -> None:
    """States and gradients equal those of a float64 loop, in both directions."""
    moduli, tolerance = ((0.1, 0.999), 1e-5) if length < 4096 else ((0.1, 0.9999), 1e-4)
    decay, inputs, cotangents = _problem(length, moduli)
    states, (of_decay, of_inputs) = _results(decay, inputs, cotangents, algorithm, reverse)
    turn = slice(None, None, -1) if reverse else slice(None)
    expected, of_decays, gradients = _reference(
        np.broadcast_to(_complex(decay), (length, N)), _complex(inputs)[turn], _complex(cotangents)[turn]
    )
    assert apart(_complex(states)[turn], expected) < tolerance
    assert apart(_complex(of_inputs)[turn], gradients) < tolerance
    assert apart(_complex(of_decay), of_decays.sum(axis=0)) < tolerance


@pytest.fixture
def _short_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unroll two steps in a kernel instead of eight, which compile three times as fast."""
    monkeypatch.setattr(kernels, "AHEAD", 2)


@pytest.mark.slow_after(2)
@pytest.mark.usefixtures("_short_groups")
@pytest.mark.parametrize("algorithm", SOLVERS)
def test_varying(algorithm: str) -> None:
    """The same holds if the decay differs from step to step, from a state before the first step."""
    _check_varying(algorithm, 100)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", SOLVERS)
@pytest.mark.parametrize(("length", "channels"), [(1, 6), (7, 6), (64, 6), (65, 6), (100, 130), (1000, 1)])
def test_varying_at_the_edges_of_tiles(algorithm: str, length: int, channels: int) -> None:
    """The same of one step, of whole chunks and a step more, and of more channels than a block has."""
    _check_varying(algorithm, length, channels)


def _check_varying(algorithm: str, length: int, channels: int = N) -> None:
    shape = length + 1, 2, channels
    decays, inputs, cotangents = np.random.default_rng(length).standard_normal((3, *shape), np.float32)
    decays = decays * 0.5

    @jax.jit
    def results(decays: Array, inputs: Array, cotangents: Array) -> Any:
        def states(decays: Array, inputs: Array, initial: Array) -> Array:
            return varying_recurrence(decays, inputs, initial, planes=True, algorithm=algorithm)

        answers, pull = jax.vjp(states, decays[1:], inputs[1:], inputs[0])
        return answers, pull(cotangents[1:])

    states, (of_decays, of_inputs, of_initial) = results(decays, inputs, cotangents)
    # The state before is that of a step more, whose own output nothing reads.
    cotangents[0] = 0
    expected = _reference(_complex(decays), _complex(inputs), _complex(cotangents))
    assert apart(_complex(states), expected[0][1:]) < 1e-5
    assert apart(_complex(of_decays), expected[1][1:]) < 1e-5
    assert apart(_complex(of_inputs), expected[2][1:]) < 1e-5
    assert apart(_complex(of_initial), expected[2][0]) < 1e-5


@pytest.mark.usefixtures("_short_groups")
@pytest.mark.parametrize("algorithm", _slow_pallas(SOLVERS))
def test_varying_real(algorithm: str) -> None:
    """Real numbers are the complex ones without an imaginary part."""
    solve = jax.jit(partial(varying_recurrence, algorithm=algorithm), static_argnames="planes")
    decays, inputs = np.random.default_rng(0).uniform(-1, 1, (2, 50, N)).astype(np.float32)
    imaginary = ((0, 0), (0, 1), (0, 0))
    complex_decays, complex_inputs = (np.pad(series[:, None], imaginary) for series in (decays, inputs))
    whole = solve(complex_decays, complex_inputs, complex_inputs[0], planes=True)
    assert apart(solve(decays, inputs, inputs[0]), whole[:, 0]) < 1e-6


@pytest.mark.slow
def test_chunks_remember_states_between_them_alone() -> None:
    """Answers and gradients are those of one chunk, at a length that is no multiple, with less memory."""
    draw = np.random.default_rng(0)
    rows, weights = (jnp.asarray(draw.standard_normal((4000, 1)), jnp.float32) for _ in range(2))
    wide = jnp.asarray(draw.standard_normal(64), jnp.float32)

    def loss(rows: Array, size: int) -> tuple[Array, Array]:
        def chunk(state: Array, rows: Array) -> tuple[Array, Array]:
            states = varying_recurrence(jax.nn.sigmoid(rows * wide), jnp.sin(rows * wide), state)
            return states[-1], jnp.cos(states) @ wide[:, None]

        answers = in_chunks(chunk, jnp.zeros(64), rows, size)
        return jnp.vdot(answers, weights), answers

    graded = [jax.jit(jax.grad(partial(loss, size=size), has_aux=True)) for size in (64, 4000)]
    for one, other in zip(*(function(rows) for function in graded), strict=True):
        assert apart(one, other) < 1e-5
    few, many = (function.lower(rows).compile().memory_analysis().temp_size_in_bytes for function in graded)
    assert few < many / 3


@pytest.mark.skipif(
    jax.default_backend() != "cpu", reason="on an H100 it took twice the size of what it reads"
)
def test_chunks_of_a_batch_are_not_copied() -> None:
    """Beside its answers, a batch takes no room of the size of what it reads, nor do its gradients."""
    rows = jnp.ones((4, 4096, 16))

    def chunk(state: Array, rows: Array) -> tuple[Array, Array]:
        return state + jnp.sum(rows, axis=0), jnp.sin(rows + state)

    def loss(rows: Array, weights: Array) -> Array:
        return jnp.vdot(jax.vmap(lambda rows: in_chunks(chunk, jnp.zeros(16), rows, 32))(rows), weights)

    analysis = jax.jit(jax.grad(loss)).lower(rows, rows).compile().memory_analysis()
    assert analysis.temp_size_in_bytes < 1.5 * rows.nbytes


@pytest.mark.parametrize("reverse", [False, True])
def test_initial_state(reverse: bool) -> None:
    """A run in two pieces, the state carried over, equals one run."""
    decay, inputs, _ = _problem(20)
    whole = recurrence(decay, inputs, reverse=reverse)
    cut, carried = (inputs[:8], whole[8]) if reverse else (inputs[12:], whole[11])
    piece = recurrence(decay, cut, initial=carried, reverse=reverse)
    assert apart(piece, whole[:8] if reverse else whole[12:]) < 1e-6


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("algorithm", _slow_pallas(ALGORITHMS))
def test_batches_and_slots(algorithm: str) -> None:
    """`vmap` over a batch and over slots, decays shared or not, equals loops, gradients included."""
    decay, inputs, _ = _problem(3 * 2 * 24)
    batches = inputs.reshape(3, 2, 24, 2, N)
    decays = decay * jnp.array([1.0, 0.9, 0.5])[:, None, None]

    def loss(decay: Array, batch: Array) -> Array:
        return jnp.sum(jnp.sin(jax.vmap(lambda one: recurrence(decay, one, algorithm=algorithm))(batch)))

    def loop(decay: Array, batch: Array) -> Array:
        return sum(
            (jnp.sum(jnp.sin(recurrence(decay, one, algorithm=algorithm))) for one in batch), jnp.float32(0)
        )

    together = jax.jit(jax.vmap(jax.value_and_grad(loss, argnums=(0, 1))))(decays, batches)
    alone = jax.jit(jax.value_and_grad(loop, argnums=(0, 1)))
    for slot in range(3):
        expected = jax.tree.leaves(alone(decays[slot], batches[slot]))
        for one, other in zip(jax.tree.leaves(together), expected, strict=True):
            assert apart(one[slot], other) < 1e-5


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("algorithm", _slow_pallas(ALGORITHMS))
def test_bfloat16(algorithm: str) -> None:
    """Activations in bfloat16 are read and written, the state is carried in float32: 2^-8 relative."""
    decay, inputs, _ = _problem(512, (0.1, 0.999))
    narrow = inputs.astype(jnp.bfloat16)
    states = jax.jit(partial(recurrence, algorithm=algorithm))(decay, narrow)
    assert states.dtype == jnp.bfloat16
    wide = jax.jit(recurrence)(decay, narrow.astype(jnp.float32))
    assert apart(states, wide) < 2**-8


@pytest.mark.slow
def test_auto_is_the_measured_algorithm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few channels over a long time: chunked, on a CPU, else sequential; on a GPU pallas; or associative."""

    def program(algorithm: str, length: int, channels: int) -> str:
        inputs = jnp.zeros((length, 2, channels))
        return (
            jax.jit(partial(recurrence, algorithm=algorithm))
            .lower(jnp.zeros((2, channels)), inputs)
            .as_text()
        )

    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    assert program("auto", 2048, 8) == program("chunked", 2048, 8) != program("sequential", 2048, 8)
    assert program("auto", 2048, 32) == program("sequential", 2048, 32)
    assert program("auto", 256, 8) == program("sequential", 256, 8)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert program("auto", 64, 4) == program("pallas", 64, 4) != program("associative", 64, 4)
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    # Another length, for JAX remembers what "auto" was at the one before.
    assert program("auto", 128, 4) == program("associative", 128, 4) != program("sequential", 128, 4)


@pytest.mark.parametrize(
    ("platform", "algorithm"), [("cpu", "sequential"), ("gpu", "pallas"), ("tpu", "associative")]
)
def test_auto_of_a_varying_recurrence_is_the_measured_algorithm(
    platform: str, algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop in short chunks on a CPU, kernels on a GPU; elsewhere what no device is bad at."""
    monkeypatch.setattr(jax, "default_backend", lambda: platform)
    assert pace("auto", 8) == pace(algorithm, 8)
    assert pace("associative").algorithm == "associative"


@pytest.mark.slow
@LOWERED_HERE
def test_kernels_lower_for_a_gpu() -> None:
    """For a GPU the Pallas algorithm is six Triton kernels, three each way, and no loop of XLA's."""
    decay, inputs, cotangents = _problem(100)
    traced = _results.trace(decay, inputs, cotangents, "pallas", False)
    program = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert program.count("@__gpu$xla.gpu.triton") == 6
    assert "while" not in program


@pytest.mark.slow
@LOWERED_HERE
@pytest.mark.parametrize("planes", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_varying_kernels_lower_for_a_gpu(planes: bool) -> None:
    """The same of the varying recurrence, for slots of batches, which are axes of the kernels' grids."""
    series = jnp.zeros((2, 3, 100, 2, N))
    solve = partial(varying_recurrence, planes=planes, algorithm="pallas")

    def graded(decays: Array, inputs: Array) -> Any:
        states, pull = jax.vjp(jax.vmap(jax.vmap(solve)), decays, inputs, inputs[:, :, 0])
        return pull(states)

    program = jax.jit(graded).trace(series, series).lower(lowering_platforms=("cuda",)).as_text()
    assert program.count("@__gpu$xla.gpu.triton") == 6
    assert "while" not in program
