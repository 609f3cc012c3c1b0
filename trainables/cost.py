"""Costs of a network: parameters, state, arithmetic and memory traffic. This module does not import JAX."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from trainables.errors import Refusal
from trainables.layers import LAYERS
from trainables.settings import Mixing

if TYPE_CHECKING:
    from trainables.data.task import Signature
    from trainables.trial import ModelSettings


@dataclass(frozen=True)
class Cost:
    """The size of one static choice for one task's signature, and the work of one training step.

    Attributes:
        parameters: Trained numbers of the whole network.
        layer_parameters: Trained numbers of the sequence layers of all blocks.
        recurrent_parameters: Parameters of the layers that are trained at the recurrent rate.
        state_floats: Real numbers that all blocks together carry from one time step to the next, in both
            directions if bidirectional; a complex number counts twice.
        flops: Floating-point operations of one optimiser update; None if they were not counted.
        bytes: Bytes that its kernels read and write; None if they were not counted.
    """

    parameters: int
    layer_parameters: int
    recurrent_parameters: int
    state_floats: int
    flops: float | None = None
    bytes: float | None = None

    def document(self) -> dict[str, Any]:
        """Return the known numbers by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @staticmethod
    def from_document(document: Mapping[str, Any]) -> Cost:
        """Return the cost from its document; JSON or metrics may have turned integers into floats."""
        sizes = {name: int(document[name]) for name in SIZES}
        return Cost(**sizes, **{name: document[name] for name in ("flops", "bytes") if name in document})


_MIXERS: Mapping[Mixing, int] = {"full_glu": 2, "half_glu1": 1, "half_glu2": 1, "gelu": 0, "none": 0}
"""Dense layers of width D of a block, by `mixing`."""


def parameters(model: ModelSettings, signature: Signature) -> int:
    """Return the number of trained numbers of a network, from the formulas that its layer declares.

    Raises:
        Refusal: The layer declares no formula.
    """
    width = model.d_model
    norm = 0 if model.norm == "none" else 2 * width
    block = of_layer(model) + norm + _MIXERS[model.mixing] * (width * width + width)
    block += (model.short_conv + 1) * width if model.short_conv else 0
    block += 0 if model.gate == "none" else width * width + width
    rows = signature.vocabulary or signature.features
    encoder = (rows + 1) * width if model.encoder == "dense" else 0
    towers = (4 * width + 1) * width if signature.towers == 2 else 0
    return encoder + model.depth * block + towers + (width + 1) * signature.classes


def of_layer(model: ModelSettings) -> int:
    """Return the number of trained numbers of one sequence layer.

    Raises:
        Refusal: The layer declares no formula.
    """
    declared = LAYERS.settings(model.layer)
    count = declared.parameters
    if count is None:
        must = f"the layer {model.layer} must declare how many parameters it has"
        remedy = "Give its class `settings.parameters`, or the size itself."
        raise Refusal("model.layer", must, "no formula", remedy)
    options = {name: option.default for name, option in declared.options.items()} | dict(model.options)
    return count.number(*(options[name] if name in options else getattr(model, name) for name in count.of))


SIZES = ("parameters", "layer_parameters", "recurrent_parameters", "state_floats")
"""The numbers of a `Cost` that shapes alone determine."""
