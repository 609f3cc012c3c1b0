"""Every layer that a search-space file can name, under one contract (`trainables.layers.layer.Layer`)."""

from collections.abc import Mapping
from types import MappingProxyType

from trainables.layers.layer import Layer
from trainables.layers.rotrnn import RotRNN

LAYERS: Mapping[str, type[Layer]] = MappingProxyType({"rotrnn": RotRNN})
"""Layer classes by name: `LAYERS[name](d_model, d_state, *, rngs, bidirectional=False, **options)`."""

__all__ = ["LAYERS", "Layer"]
