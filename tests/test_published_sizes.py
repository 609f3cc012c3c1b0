"""Numbers of parameters of the published tables: by the shapes of the released programs, and as printed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.experiment.file import Arm, load
from trainables.cost import parameters
from trainables.data.task import Signature, completed
from trainables.tasks import TASKS
from trainables.trial import ModelSettings

ROOT = Path(__file__).parents[1]


def arms(stem: str) -> dict[str, Arm]:
    experiment = load(ROOT / "experiments" / f"{stem}.yaml", profile=None, gpus=0)
    return {arm.name: arm for arm in experiment.arms}


def network(arm: Arm) -> tuple[ModelSettings, Signature]:
    """Return the network of an arm at its published size, and the signature of its task."""
    assert arm.sweep is not None
    settings = arm.sweep.network_settings(arm.sweep.largest(), seed=0)
    task = TASKS[settings.task]
    signature = task.outline(completed(settings.task, task.options, settings.task_options))
    assert signature is not None
    return settings.model, signature


def rotrnn(d: int, n: int, both: bool, heads: int = 32) -> int:
    """theta, gamma_log, M, B, C and C2, D: `rotrnn.py` of the authors' repository."""
    size = n // heads
    return heads * (size // 2) + heads + heads * size**2 + n * d + (1 + both) * d * n + d


def lru(d: int, n: int, both: bool) -> int:
    """nu_log, theta_log, gamma_log, B, C, D: LRU, appendix A; both parts of complex numbers."""
    return 3 * n + 2 * n * d + 2 * (1 + both) * d * n + d


def s5(d: int, p: int, both: bool) -> int:
    """Lambda, log_step, B, C, D for P/2 stored states: `ssm.py` of S5's repository."""
    half = p // 2
    return 2 * half + half + 2 * half * d + 2 * (1 + both) * d * half + d


LAYERS: dict[str, Callable[[int, int, bool], int]] = {"rotrnn": rotrnn, "lru": lru, "s5": s5}
GATES = {"full_glu": 2, "half_glu1": 1, "half_glu2": 1}


def blocks(model: ModelSettings) -> int:
    """Normalisation with scale and bias, layer, dense layers of the gate: `layers.py` of S5's repository."""
    d = model.d_model
    layer = LAYERS[model.layer](d, model.d_state, model.bidirectional)
    return model.depth * (layer + 2 * d + GATES[model.mixing] * (d * d + d))


def whole(model: ModelSettings, signature: Signature) -> int:
    """Encoder, blocks, the head of two documents, decoder: `seq_model.py` of S5's repository."""
    d, classes = model.d_model, signature.classes
    entries = signature.vocabulary or signature.features
    compared = 4 * d * d + d if signature.towers == 2 else 0
    return entries * d + d + blocks(model) + compared + d * classes + classes


@pytest.mark.parametrize("stem", ["rotrnn-table-1", "rotrnn-table-2", "lru-table-3"])
def test_networks_have_the_shapes_of_the_released_programs(stem: str) -> None:
    """RotRNN, LRU and S5 on all six tasks of Long Range Arena and on Speech Commands.

    LRA's tables print no numbers of parameters. S5's program has one-hot inputs of 20 numbers for ListOps,
    two more than there are tokens.
    """
    seen = set()
    for arm in arms(stem).values():
        model, signature = network(arm)
        if model.layer in LAYERS:
            computed = model.options.get("gamma") == "computed"
            without_gamma = model.depth * model.d_state if computed else 0
            assert parameters(model, signature) == whole(model, signature) - without_gamma, arm.name
            assert arm.sweep is not None
            seen.add((model.layer, arm.sweep.task))
    if stem == "rotrnn-table-1":
        tasks = ("listops", "text", "retrieval", "image", "pathfinder", "pathx")
        assert seen == {(layer, task) for layer in LAYERS for task in tasks}


def counted(name: str) -> int:
    return parameters(*network(arms("rotrnn-table-2")[name]))


@pytest.mark.parametrize(
    ("arm", "count", "printed"),
    [("s4", 306_595, 307), ("liquid-s4", 224_419, 224), ("lru-code", 283_139, 283)],
)
def test_sizes_on_speech_commands_are_the_printed_ones(arm: str, count: int, printed: int) -> None:
    """RotRNN, table 2, in thousands: three of six."""
    assert counted(arm) == count
    assert round(count / 1000) == printed


DEPTH, WIDTH, STATES = 6, 96, 128
"""Sizes of RotRNN (its table 3) and of S5 (its released configuration) on Speech Commands."""


def rotrnn_of(heads: int, numbers: int) -> int:
    """Return the size of RotRNN's network with so many heads, and so many numbers of M in each."""
    size = STATES // heads
    layer = rotrnn(WIDTH, STATES, True, heads) - heads * (size**2 - numbers)
    return counted("rotrnn") - DEPTH * (rotrnn(WIDTH, STATES, True) - layer)


def test_no_reading_of_the_text_or_the_code_alone_explains_rotrnn() -> None:
    """RotRNN, table 2: 284 K printed. docs/differences.md has the same readings."""
    assert counted("rotrnn") == counted("rotrnn-code") == rotrnn_of(32, 16) == 286_019
    assert rotrnn_of(32, 0) == 282_947  # the earlier layer, whose P is commented out
    assert rotrnn_of(32, 10) == 284_867  # the upper triangle of M with its diagonal
    assert rotrnn_of(32, 6) == 284_099  # the free numbers of M - M^T
    assert rotrnn_of(64, 4) == 284_675  # the default number of heads of the class
    assert rotrnn_of(64, 1) == 283_523
    of_d, of_norm = DEPTH * WIDTH, DEPTH * 2 * WIDTH
    assert counted("rotrnn") - of_d == 285_443
    assert counted("rotrnn") - of_norm == 284_867


def test_s5_is_printed_without_its_decoder_or_with_two_digits() -> None:
    """RotRNN, table 2, repeats 280 K from S5's paper. S5's program counts all parameters."""
    model, signature = network(arms("rotrnn-table-2")["s5"])
    encoder, decoder = 2 * WIDTH, WIDTH * 35 + 35
    assert counted("s5") == whole(model, signature) == 283_523
    assert float(f"{counted('s5'):.2g}") == 280_000
    assert counted("s5") - decoder == 280_128
    assert counted("s5") - encoder - decoder == blocks(model) == 279_936
    assert counted("s5") - DEPTH * (STATES // 2 - 1) == 283_145  # one step for all states, dt_global
    assert counted("s5") - DEPTH * 2 * WIDTH == 282_371  # no scale and bias of the normalisation


def test_s4d_is_printed_with_two_copies_of_its_systems_and_a_trained_input() -> None:
    """RotRNN, table 2, repeats 306 K: S4's released layer without its low rank P.

    The released layer has `n_ssm = 2` copies of A and B, which channels share. This project's has an A
    for each channel, and its B is 1.
    """
    copies, pairs, channels = 2, 64 // 2, 128
    of_p = DEPTH * 2 * copies * pairs
    assert counted("s4d") == 353_443
    released = counted("s4d") - DEPTH * 2 * pairs * channels + DEPTH * 2 * (2 * copies * pairs)
    assert released == counted("s4") - of_p == 305_827
