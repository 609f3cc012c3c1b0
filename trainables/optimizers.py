"""The optimisers that a search-space file can name. This module does not import Optax."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True)
class Optimizer:
    """An optimiser of Optax, without its learning rate and weight decay.

    Attributes:
        scale: Name of the Optax function whose transformation turns a gradient into a direction.
        decays: Whether the optimiser has a decoupled weight decay.
        options: Arguments of the function.
    """

    scale: str
    decays: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)


OPTIMIZERS: Mapping[str, Optimizer] = MappingProxyType(
    {
        "adamw": Optimizer("scale_by_adam", decays=True),
        "adam": Optimizer("scale_by_adam"),
        "adamax": Optimizer("scale_by_adamax"),
        "adamaxw": Optimizer("scale_by_adamax", decays=True),
        "amsgrad": Optimizer("scale_by_amsgrad"),
        "lion": Optimizer("scale_by_lion", decays=True),
        "nadam": Optimizer("scale_by_adam", options={"nesterov": True}),
        "nadamw": Optimizer("scale_by_adam", decays=True, options={"nesterov": True}),
        "radam": Optimizer("scale_by_radam"),
        "rmsprop": Optimizer("scale_by_rms"),
        "sgd": Optimizer("identity"),
    }
)
"""Optimisers by their names in Optax, with Optax's defaults."""
