"""What layers accept: static options, free initialisation ranges, and what their sizes must keep.

This module imports neither JAX nor the layers, so that a search-space file is validated in milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainables.extensions import Registry

Interval = tuple[float, float]


@dataclass(frozen=True)
class Range:
    """An initialisation range `(low, high)` of a layer: free, searched as `<name>.min` and `<name>.max`.

    Attributes:
        default: the published range, where the file names none.
        within: the bounds both ends must lie in.
        open_ends: whether the bounds themselves are excluded.
        summary: one sentence for `--help` and the reference page, with units.
    """

    default: Interval
    within: Interval
    open_ends: bool
    summary: str

    def holds(self, value: float) -> bool:
        """Tell whether one end of the range may be `value`."""
        low, high = self.within
        return low < value < high if self.open_ends else low <= value <= high


@dataclass(frozen=True)
class Option:
    """A static option of a layer (it changes the program).

    Attributes:
        default: the value where the file names none; its type is the option's type.
        choices: the legal values, if they are few.
        at_least: the smallest legal number, for numeric options.
        summary: one sentence for `--help` and the reference page.
    """

    default: Any
    summary: str
    choices: tuple[Any, ...] | None = None
    at_least: float | None = None


@dataclass(frozen=True)
class Need:
    """What must hold between the static choices of a layer, checked before anything is compiled.

    Attributes:
        of: the static choices it reads: `d_model`, `d_state`, `bidirectional` or options of the layer.
        holds: given the value of each of them, in the order of `of`, tells whether they go together.
        must: the rule in words, such as "d_state must be divisible by heads".
    """

    of: tuple[str, ...]
    holds: Callable[..., bool]
    must: str


@dataclass(frozen=True)
class LayerSettings:
    """What a layer accepts: static options, free initialisation ranges, and what its sizes must keep."""

    summary: str
    options: Mapping[str, Option] = field(default_factory=dict)
    ranges: Mapping[str, Range] = field(default_factory=dict)
    needs: tuple[Need, ...] = ()


def divisible(number: str, divisor: str) -> Need:
    """Return the need that the static choice `number` is a multiple of the static choice `divisor`."""
    return Need((number, divisor), lambda n, d: n % d == 0, f"{number} must be divisible by {divisor}")


TWO_PI = 2 * math.pi

FORM = Option(
    "auto",
    "Form of the recurrence; auto is the fastest one by device and size; pallas is for GPUs.",
    choices=("auto", "sequential", "chunked", "associative", "pallas"),
)
DENSE_FORM = Option(
    "auto", "Form of the recurrence; auto is the fastest one.", choices=("auto", "sequential", "associative")
)
ACTIVATIONS = Option(
    "float32",
    "Type in which a recurrence reads and keeps its states; bfloat16 moves RotRNN's outputs by up to 1 %.",
    choices=("float32", "bfloat16"),
)
ANGLES = Range((0.0, TWO_PI), (0.0, TWO_PI), False, "Rotation angles, in radians a step, uniform.")
STEPS = Range((0.001, 0.1), (0.0, 1e3), True, "Step of the discretisation, log-uniform.")
DISCRETISATION = Option("zoh", "From continuous time to steps.", choices=("zoh", "bilinear"))
EVEN = Need(("d_state",), lambda n: n % 2 == 0, "d_state must be even")


def _layer_settings(found: object) -> LayerSettings:
    if not isinstance(found, LayerSettings):
        raise TypeError("it must be a LayerSettings")
    return found


LAYER_SETTINGS: Registry[LayerSettings] = Registry(
    {
        "rotrnn": LayerSettings(
            summary="RotRNN: H heads of rotations with one decay each (RotRNN, section 3).",
            options={
                "heads": Option(32, "Number of heads H; d_state must be divisible by it.", at_least=1),
                "form": FORM,
                "activations": ACTIVATIONS,
            },
            ranges={
                "gamma_init": Range((0.5, 0.999), (0.0, 1.0), True, "Decay a head is initialised in."),
                "theta_init": ANGLES,
            },
            needs=(
                divisible("d_state", "heads"),
                Need(("d_state", "heads"), lambda n, h: n >= 2 * h, "d_state must be at least 2 * heads"),
            ),
        ),
        "lru": LayerSettings(
            summary="LRU: N complex channels on a ring, with a learned normaliser (LRU, section 3).",
            options={
                "stable": Option(True, "Keep moduli below 1 by a second exponential."),
                "normalise": Option(True, "Scale each channel's input by a learned gamma."),
                "dense": Option(False, "A dense real transition instead (table 1)."),
                "form": FORM,
                "activations": ACTIVATIONS,
            },
            ranges={
                "r_init": Range(
                    (0.0, 0.99), (0.0, 1.0), False, "Moduli of the eigenvalues, uniform by area."
                ),
                "theta_init": ANGLES,
            },
        ),
        "s5": LayerSettings(
            summary="S5: one diagonal state-space model of P states, P/2 stored (S5, section 3).",
            options={
                "blocks": Option(1, "Copies J of HiPPO-N that the transition starts from.", at_least=1),
                "discretisation": DISCRETISATION,
                "readout_init": Option(
                    "lecun_normal",
                    "Distribution of C.",
                    choices=("lecun_normal", "trunc_standard_normal", "complex_normal"),
                ),
                "clip_eigenvalues": Option(False, "Keep real parts of the eigenvalues below -1e-4."),
                "form": FORM,
                "activations": ACTIVATIONS,
            },
            ranges={"dt_init": STEPS},
            needs=(
                Need(
                    ("d_state", "blocks"),
                    lambda n, j: n % (2 * j) == 0,
                    "d_state must be divisible by 2 * blocks",
                ),
            ),
        ),
        "s4d": LayerSettings(
            summary="S4D: a diagonal state-space model of N states a channel, N/2 stored (S4D, section 4).",
            options={
                "spectrum": Option("legs", "What A starts from.", choices=("legs", "inv", "lin")),
                "discretisation": DISCRETISATION,
                "form": Option(
                    "auto",
                    "Fourier convolution, which auto is, or a form of the recurrence.",
                    choices=("auto", "convolution", "sequential", "chunked", "associative", "pallas"),
                ),
            },
            ranges={"dt_init": STEPS},
            needs=(EVEN,),
        ),
        "linear_rnn": LayerSettings(
            summary="A dense linear RNN (LRU, section 3.1).", options={"form": DENSE_FORM}
        ),
        "tanh_rnn": LayerSettings(summary="A vanilla RNN (LRU, section 3.1)."),
        "relu_rnn": LayerSettings(summary="A vanilla RNN with rectified units (LRU, section 3.1)."),
        "lstm": LayerSettings(summary="A long short-term memory with N cells."),
        "lds": LayerSettings(
            summary="LDS: reachable systems given by their N eigenvalues alone (LDStack, section 3).",
            options={
                "eigenvalues": Option(
                    "unit", "How they are parameterised.", choices=("unit", "standard", "hinge")
                ),
                "projections": Option(
                    0, "Random projections r of the input; 0 for a system a channel.", at_least=0
                ),
                "form": FORM,
            },
            needs=(
                Need(
                    ("d_state", "d_model", "projections"),
                    lambda n, d, r: n % (2 if r else 2 * d) == 0,
                    "d_state must be divisible by 2 * d_model, or by 2 with projections",
                ),
            ),
        ),
        "ldstack": LayerSettings(
            summary="LDStack: a nonlinear RNN of n units from corrected linear systems (LDStack, section 5).",
            options={
                "rho": Option("elu", "The nonlinearity.", choices=("elu", "tanh", "relu")),
                "stack_depth": Option(2, "Linear layers; 1 is a plain LDS.", at_least=1),
                "projections": Option(6, "Random projections r of the input.", at_least=1),
                "form": FORM,
            },
            needs=(EVEN,),
        ),
    },
    "trainables.layer_settings",
    _layer_settings,
)
"""One entry a layer of `trainables.layers.LAYERS`; a contract test holds the two together."""
