"""Parameters and states by shapes, and the work of a step by XLA, against formulas."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import jax
import pytest
from jax import numpy as jnp

from trainables.cost import Cost
from trainables.counting import Work, cost, work
from trainables.data.task import Signature
from trainables.trial import ModelSettings, TrainingSettings, TrialSettings

LISTOPS = Signature("class", classes=10, vocabulary=18, features=1, length=64)
DEPTH, BATCH = 2, 4


def _trial(layer: str, d_model: int, d_state: int, *, both: bool = False, **options: Any) -> TrialSettings:
    model = ModelSettings(layer, DEPTH, d_model, d_state, bidirectional=both, options=options)
    training = TrainingSettings(
        steps=10, interval=10, batch_size=BATCH, learning_rate=1e-3, recurrent_learning_rate=1e-3
    )
    return TrialSettings("listops", model, training, seed=0)


def _rotrnn(d: int, n: int, heads: int) -> int:
    head = n // heads
    return 2 * n * d + n * head + heads * (head // 2) + heads + d


# (layer, options, D, N, its parameters in one direction, those that a second direction adds, its state).
LAYERS: list[tuple[str, dict[str, Any], int, int, int, int, int]] = [
    ("rotrnn", {"heads": 8}, 32, 64, 4_680, 64 * 32, 64),
    ("rotrnn", {"heads": 32}, 128, 256, 67_872, 256 * 128, 256),
    ("rotrnn", {"heads": 4}, 24, 20, _rotrnn(24, 20, 4), 20 * 24, 24),
    ("lru", {}, 32, 35, 4_617, 2 * 35 * 32, 2 * 35),
    ("lru", {}, 128, 128, 66_048, 2 * 128 * 128, 2 * 128),
    ("lru", {}, 128, 256, 131_968, 2 * 256 * 128, 2 * 256),
    ("s5", {}, 32, 70, 4_617, 70 * 32, 70),
    ("s5", {}, 128, 256, 66_048, 256 * 128, 256),
    ("s4d", {}, 32, 72, 4_672, 72 * 32, 72 * 32),
    ("s4d", {}, 128, 256, 65_792, 256 * 128, 256 * 128),
    ("s4", {"copies": 32}, 32, 36, 4_672, 36 * 32, 36 * 32),
    ("liquid_s4", {"order": 3}, 32, 132, 4_684, 132 * 32, 132 * 32 + 2 * 32),
    ("s4", {}, 32, 132, 4_684, 132 * 32, 132 * 32),
    ("tanh_rnn", {}, 32, 20, 20**2 + 2 * 20 * 32 + 32, 20 * 32, 20),
    ("linear_rnn", {}, 32, 20, 20**2 + 2 * 20 * 32 + 32, 20 * 32, 20),
    ("lstm", {}, 32, 20, 4 * 20**2 + 5 * 20 * 32 + 4 * 20 + 32, 20 * 32, 2 * 20),
    ("gru", {}, 32, 20, 3 * 20**2 + 4 * 20 * 32 + 3 * 20 + 32, 20 * 32, 20),
    ("min_gru", {}, 32, 48, 3 * 48 * 32 + 32, 48 * 32, 48),
    ("rot_gated", {"heads": 8}, 32, 64, 4_680 + 32 * 32 + 8 * 32 + 8, 64 * 32, 64),
    ("rg_lru", {"heads": 4}, 32, 64, 2 * 64 * 32 + 2 * 64 * 16 + 3 * 64 + 32, 64 * 32, 64),
    ("s6", {"expand": 1}, 32, 16, 3 * 32**2 + 32 * (2 * 2 + 3 * 16 + 7), 32**2, 3 * 32 + 32 * 16),
    ("attention", {"context": 64}, 32, 16, 2 * 16 * 32 + 2 * 32**2, 32**2, 63 * 48 + 1),
    ("urnn", {}, 32, 20, 10 * 20 + 4 * 20 * 32 + 32, 2 * 20 * 32, 2 * 20),
    ("delta_net", {"heads": 4}, 32, 32, 4_616, 32 * 32, 3 * 96 + 32 * 8),
    ("lds", {"projections": 1}, 32, 20, 20 // 2 + 2 * 20 * 32 + 32**2, 2 * 20 * 32, 20),
    ("linoss", {}, 32, 20, 10 * (2 + 2 * 32) + 32, 10 * 32, 20),
    # Two networks of 2 N hidden units, and 3 matrices with the weights that choose one.
    (
        "pd_ssm",
        {"dictionary": 3},
        32,
        20,
        2 * (40 * 33 + 20 * 41) + 3 * (32 + 400) + 4 * 20 * 32 + 32,
        2 * 20 * 32,
        40,
    ),
    ("none", {}, 32, 20, 32, 0, 0),
]


ONE_WAY = {"none"}
FIRST = {layer: number for number, (layer, *_) in reversed([*enumerate(LAYERS)])}
CASES = [
    # The second direction of a layer at its other sizes is slow.
    pytest.param(*case, both, marks=pytest.mark.slow if both and number != FIRST[case[0]] else ())
    for number, case in enumerate(LAYERS)
    for both in (False, True)
    if not (both and case[0] in ONE_WAY)
]


@pytest.mark.parametrize(("layer", "options", "d", "n", "one", "more", "state", "both"), CASES)
def test_sizes_are_those_of_the_formulas(
    layer: str, options: dict[str, Any], d: int, n: int, one: int, more: int, state: int, both: bool
) -> None:
    size = cost(_trial(layer, d, n, both=both, **options), LISTOPS)
    of_layers = DEPTH * (one + more if both else one)
    assert size.layer_parameters == of_layers
    blocks = DEPTH * (2 * d + 2 * d**2 + 2 * d)
    ends = (LISTOPS.vocabulary + 1) * d + (d + 1) * LISTOPS.classes
    assert size.parameters == of_layers + blocks + ends
    assert size.state_floats == DEPTH * state * (2 if both else 1)
    assert (size.flops, size.bytes) == (None, None)


def test_recurrent_parameters_are_those_of_the_recurrent_rate() -> None:
    """RotRNN trains everything before the read-out at the recurrent rate: all but C and D."""
    d, n, heads = 32, 64, 8
    size = cost(_trial("rotrnn", d, n, heads=heads), LISTOPS)
    assert size.recurrent_parameters == DEPTH * (_rotrnn(d, n, heads) - n * d - d)
    assert cost(_trial("none", d, n), LISTOPS).recurrent_parameters == 0


def test_two_towers_and_real_inputs_change_the_ends() -> None:
    d, settings = 16, _trial("none", 16, 1)
    pairs = Signature("class", classes=2, vocabulary=30, features=1, length=64, towers=2)
    numbers = Signature("value", classes=1, vocabulary=None, features=3, length=64, metric="mse")
    inside = DEPTH * (d + 2 * d + 2 * d**2 + 2 * d)
    assert cost(settings, pairs).parameters == inside + 31 * d + (4 * d + 1) * d + (d + 1) * 2
    assert cost(settings, numbers).parameters == inside + 4 * d + (d + 1)


def test_a_matrix_product_is_counted_by_xla() -> None:
    traced = jax.jit(lambda a, b: a @ b).trace(jnp.ones((8, 16)), jnp.ones((16, 32)))
    assert work(traced.jaxpr) == Work(flops=2 * 8 * 16 * 32, bytes=4 * (8 * 16 + 16 * 32 + 8 * 32))


def test_a_loop_counts_as_often_as_it_runs() -> None:
    """As if it were unrolled; nested loops too."""
    matrix, times = jnp.ones((16, 16)), 7

    def once(x: jax.Array) -> jax.Array:
        return matrix @ x

    def nested(x: jax.Array) -> jax.Array:
        inner = lambda _, y: jax.lax.fori_loop(jnp.uint32(0), jnp.uint32(3), lambda _, z: once(z), y)  # noqa: E731
        return jax.lax.fori_loop(0, times, inner, x)

    def scanned(x: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda y, _: (once(y), None), x, length=times)[0]

    vector = jnp.ones(16)
    expected = work(jax.jit(once).trace(vector).jaxpr).flops
    assert expected == 2 * 16 * 16
    for function, runs in ((scanned, times), (nested, 3 * times)):
        counted = work(jax.jit(function).trace(vector).jaxpr).flops
        assert counted == pytest.approx(runs * expected, rel=0.02)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("layer", [pytest.param("rotrnn", marks=pytest.mark.slow), "tanh_rnn"])
def test_the_work_of_a_step_grows_with_the_length(layer: str) -> None:
    """Twice the length is twice the work, whatever runs as a loop; a step also updates the parameters."""
    long = Signature("class", classes=10, vocabulary=18, features=1, length=2 * LISTOPS.length)
    settings = _trial(layer, 32, 64)
    one, two = (cost(settings, signature, compiled=True) for signature in (LISTOPS, long))
    assert one.flops is not None
    assert two.flops is not None
    assert one.bytes is not None
    assert two.bytes is not None
    assert two.flops == pytest.approx(2 * one.flops, rel=0.15)
    assert two.bytes == pytest.approx(2 * one.bytes, rel=0.3)


def test_the_work_of_a_dense_recurrence_is_its_matrix_products() -> None:
    """Forward, by the state and by the weights: three products of 2 N (N + 2 D) operations a step."""
    d, n = 32, 64
    with_layer, without = (
        cost(_trial(name, d, n), LISTOPS, compiled=True).flops for name in ("tanh_rnn", "none")
    )
    assert with_layer is not None
    assert without is not None
    products = DEPTH * BATCH * LISTOPS.length * 3 * 2 * n * (n + 2 * d)
    assert with_layer - without == pytest.approx(products, rel=0.05)


@pytest.mark.slow
def test_the_count_does_not_depend_on_the_algorithm() -> None:
    counts = {
        cost(_trial("lru", 16, 16, algorithm=name), LISTOPS, compiled=True).flops
        for name in ("auto", "associative", "sequential")
    }
    assert len(counts) == 1


def test_documents_are_read_back() -> None:
    for size in (Cost(10, 6, 4, 2), Cost(10, 6, 4, 2, flops=1.5e6, bytes=2e6)):
        assert Cost.from_document(size.document()) == size
    assert Cost.from_document({**Cost(10, 6, 4, 2).document(), "parameters": 10.0}) == Cost(10, 6, 4, 2)


def test_a_cost_is_read_without_jax() -> None:
    code = "import sys; import trainables.cost; print('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
