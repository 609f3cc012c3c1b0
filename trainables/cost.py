"""What a network takes: parameters, state, arithmetic and memory traffic. This module does not import JAX."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Cost:
    """The size of one static choice for one task's signature, and the work of one training step.

    Attributes:
        parameters: trained numbers of the whole network.
        layer_parameters: trained numbers of the sequence layers of all blocks.
        recurrent_parameters: those of them that are trained at the recurrent rate.
        state_floats: real numbers that all blocks together carry from one time step to the next, in both
            directions if bidirectional; a complex number counts twice.
        flops: floating-point operations of one optimiser update; None if they were not counted.
        bytes: bytes that its kernels read and write; None likewise.
    """

    parameters: int
    layer_parameters: int
    recurrent_parameters: int
    state_floats: int
    flops: float | None = None
    bytes: float | None = None

    def document(self) -> dict[str, Any]:
        """Return the numbers that were counted, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @staticmethod
    def from_document(document: Mapping[str, Any]) -> Cost:
        """Return what `document` wrote; JSON or a metric may have made whole numbers real ones."""
        sizes = {name: int(document[name]) for name in SIZES}
        return Cost(**sizes, **{name: document[name] for name in ("flops", "bytes") if name in document})


SIZES = ("parameters", "layer_parameters", "recurrent_parameters", "state_floats")
"""The numbers of a `Cost` that shapes alone determine."""
