"""Every layer that a search-space file can name, under one contract (`trainables.layers.layer.Layer`)."""

from collections.abc import Mapping

from trainables.extensions import Registry
from trainables.layers.dense import LinearRNN, ReluRNN, TanhRNN
from trainables.layers.layer import Layer
from trainables.layers.lds import LDS
from trainables.layers.ldstack import LDStack
from trainables.layers.lru import LRU
from trainables.layers.lstm import LSTM
from trainables.layers.rotrnn import RotRNN
from trainables.layers.s4d import S4D
from trainables.layers.s5 import S5


def _layer(found: object) -> type[Layer]:
    if not (isinstance(found, type) and issubclass(found, Layer)):
        raise TypeError("it must be a subclass of trainables.layers.Layer")
    return found


LAYERS: Mapping[str, type[Layer]] = Registry(
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
    },
    "trainables.layers",
    _layer,
)
"""Layer classes by name: `LAYERS[name](d_model, d_state, *, rngs, bidirectional=False, **options)`."""

__all__ = ["LAYERS", "Layer"]
