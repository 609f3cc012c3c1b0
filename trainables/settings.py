"""Declarations of layers: static options, initialisation ranges, and rules between sizes.

A layer class assigns one `LayerSettings` to its attribute `settings`. Here the expression uses only literals
and the names of this module, so that `trainables.declare` can copy it to a module without JAX.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Interval = tuple[float, float]

Pooling = Literal["mean", "last"]
"""Pooling of the outputs at all steps: their mean, or the last one."""

Mixing = Literal["full_glu", "half_glu1", "half_glu2", "gelu", "none"]
"""Mixing after the output x of a layer, with g = GELU(x): Dense(g) * sigmoid(Dense(g)),
g * sigmoid(Dense(g)), x * sigmoid(Dense(g)), g alone, or x alone."""

Gate = Literal["none", "silu", "gelu"]
"""Activation of the gate Dense(u) that multiplies the outputs of a layer; u is the input of its block."""

Norm = Literal["batch", "layer", "none"]
NormPosition = Literal["before", "after"]
"""Position of the normalisation: before the layer of a block, or after its skip connection."""

EncoderKind = Literal["dense", "none"]

Schedule = Literal["cosine", "linear", "constant", "plateau", "s5"]
"""Course of the learning rates after the warm-up; `s5` is that of S5's released program, warm-up included."""

Grouping = Literal["layer", "standard", "dt_global", "BandCdecay", "BfastandCdecay", "noBCdecay"]
"""Which parameters of a layer have the recurrent rate, and which decay: those that the layer declares, or
those of a configuration of S5's released program, under its name there."""

GROUPED_LAYERS = ("rotrnn", "lru", "s5")
"""Layers whose parameters have the names that S5's program, or the RotRNN authors' fork of it, goes by."""


@dataclass(frozen=True)
class Range:
    """An initialisation range `(low, high)` of a layer: free, searched as `<name>.min` and `<name>.max`.

    Attributes:
        default: Published range, used where a file gives none.
        within: Bounds of both ends.
        open_ends: Whether the bounds themselves are excluded.
        summary: One sentence for `--help` and the reference page, with units.
    """

    default: Interval
    within: Interval
    open_ends: bool
    summary: str

    def holds(self, value: float) -> bool:
        """Return True if `value` is a legal end of the range."""
        low, high = self.within
        return low < value < high if self.open_ends else low <= value <= high

    @property
    def phrase(self) -> str:
        """Return the bounds of a legal end in words, such as `between 0 and 1, both excluded`."""
        low, high = self.within
        return f"between {low:g} and {high:g}{', both excluded' if self.open_ends else ''}"


def range_ends(name: str) -> tuple[str, str]:
    """Return the names of both ends of a range in `search`, such as `theta_init.min` and `theta_init.max`."""
    return f"{name}.min", f"{name}.max"


LARGEST_OPTION = 2**20
"""Largest value of an option that is a whole number, unless it declares another one."""

LARGEST_SEED = 2**32 - 1
"""Largest seed of a data set."""

MOST_EXAMPLES = 10**8
"""Most examples of a split, a hundred times those of the largest published data."""


@dataclass(frozen=True)
class Option:
    """A static option of a layer or of a task, each value of which has its own compiled program.

    Attributes:
        default: Value used where a file gives none; its type is the option's type.
        summary: One sentence for `--help` and the reference page.
        choices: Legal values, if there are few.
        at_least: Smallest legal value of a numeric option.
        at_most: Largest legal value of a whole number; larger values are refused before
            anything is allocated.
    """

    default: Any
    summary: str
    choices: tuple[Any, ...] | None = None
    at_least: float | None = None
    at_most: int = LARGEST_OPTION


@dataclass(frozen=True)
class Need:
    """A rule between static choices of a layer, which is checked before anything is compiled.

    Two needs are equal if they read the same choices and state the same rule.

    Attributes:
        of: Static choices that the rule reads: `d_model`, `d_state`, `bidirectional` or options.
        holds: Function of their values, in the order of `of`; returns True if they keep the rule.
        must: Rule in words, such as "d_state must be divisible by heads".
    """

    of: tuple[str, ...]
    holds: Callable[..., bool] = field(compare=False)
    must: str


@dataclass(frozen=True)
class Count:
    """The number of parameters of a layer, as a function of its static choices.

    Two counts are equal if they read the same choices.

    Attributes:
        of: Static choices that the count depends on: `d_model`, `d_state`, `bidirectional` or options.
        number: Function of their values, in the order of `of`; non-decreasing in every size.
    """

    of: tuple[str, ...]
    number: Callable[..., int] = field(compare=False)


@dataclass(frozen=True)
class LayerSettings:
    """The settings that a layer accepts.

    Attributes:
        summary: One sentence for `--help` and the reference page.
        options: Static options by name.
        ranges: Initialisation ranges by name.
        needs: Rules between sizes and options.
        parameters: Number of parameters; without it, `model.match` cannot choose the size of the layer.
        recurrent_rate: Whether any of its parameters is trained at the recurrent rate, which a file must give
            only then.
    """

    summary: str
    options: Mapping[str, Option] = field(default_factory=dict)
    ranges: Mapping[str, Range] = field(default_factory=dict)
    needs: tuple[Need, ...] = ()
    parameters: Count | None = None
    recurrent_rate: bool = True

    def default(self, name: str) -> Any:
        """Return the default of an option or a range, which the constructor of the layer also uses."""
        return (self.options[name] if name in self.options else self.ranges[name]).default


def divisible(number: str, divisor: str) -> Need:
    """Return the need that the static choice `number` is a multiple of the static choice `divisor`."""
    return Need((number, divisor), lambda n, d: n % d == 0, f"{number} must be divisible by {divisor}")


TWO_PI = 2 * math.pi

DENSE_PARAMETERS = Count(
    ("d_model", "d_state", "bidirectional"), lambda d, n, both: n * n + (2 + both) * n * d + d
)

ALGORITHM = Option(
    "auto",
    "Algorithm of the recurrence; auto is the fastest one by device and size; pallas is for GPUs.",
    choices=("auto", "sequential", "chunked", "associative", "pallas"),
)
BLOCKS_ALGORITHM = Option(
    "auto",
    "blocks skips the states inside blocks of steps, others compute all states; auto is the fastest.",
    choices=("auto", "blocks", "sequential", "chunked", "associative", "pallas"),
)
DENSE_ALGORITHM = Option(
    "auto",
    "Algorithm of the recurrence; auto is the fastest one.",
    choices=("auto", "sequential", "associative"),
)
RNN_ALGORITHM = Option(
    "auto",
    "One step after the other (auto), or in parallel over time by Newton's method.",
    choices=("auto", "sequential", "newton"),
)
DENSE_START = Option(
    "bounded",
    "How A is drawn: Glorot's matrix as it is, or shrunk where its 1,024th power would grow.",
    choices=("bounded", "glorot"),
)
GATED_ALGORITHM = Option(
    "auto",
    "Algorithm of the recurrence in chunks of time; auto is the fastest one by device; pallas is for GPUs.",
    choices=("auto", "sequential", "associative", "pallas"),
)
DELTA_ALGORITHM = Option(
    "auto",
    "Algorithm of the delta rule; auto is the fastest one by device and size of a head; pallas is for GPUs.",
    choices=("auto", "sequential", "chunked", "pallas"),
)
DELTA_HEADS = Option(
    1,
    "Number of heads H, divisors of d_state and d_model. A head recalls as many values as it has channels.",
    at_least=1,
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
