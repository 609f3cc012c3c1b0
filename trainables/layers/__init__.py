"""Every layer that a search-space file can name, under one contract (`trainables.layers.layer.Layer`)."""

from collections.abc import Mapping
from types import MappingProxyType

from trainables.layers.dense import LinearRNN, ReluRNN, TanhRNN
from trainables.layers.layer import Layer
from trainables.layers.lds import LDS
from trainables.layers.ldstack import LDStack
from trainables.layers.lru import LRU
from trainables.layers.lstm import LSTM
from trainables.layers.rotrnn import RotRNN
from trainables.layers.s4d import S4D
from trainables.layers.s5 import S5

LAYERS: Mapping[str, type[Layer]] = MappingProxyType(
    {
        "rotrnn": RotRNN,
        "lru": LRU,
        "s5": S5,
        "s4d": S4D,
        "linear_rnn": LinearRNN,
        "tanh_rnn": TanhRNN,
        "relu_rnn": ReluRNN,
        "lstm": LSTM,
        "lds": LDS,
        "ldstack": LDStack,
    }
)
"""Layer classes by name: `LAYERS[name](d_model, d_state, *, rngs, bidirectional=False, **options)`."""

__all__ = ["LAYERS", "Layer"]
