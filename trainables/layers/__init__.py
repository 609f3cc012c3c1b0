"""The layers that a search-space file can name. This module does not import JAX."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainables.layers.declared import DECLARED
from trainables.registry import DeclaredRegistry, subclass_of
from trainables.settings import LayerSettings

if TYPE_CHECKING:
    from trainables.layers.layer import Layer

LAYERS: DeclaredRegistry[type[Layer], LayerSettings] = DeclaredRegistry(
    {
        "rotrnn": "trainables.layers.rotrnn:RotRNN",
        "lru": "trainables.layers.lru:LRU",
        "s5": "trainables.layers.s5:S5",
        "s4": "trainables.layers.s4:S4",
        "liquid_s4": "trainables.layers.liquid_s4:LiquidS4",
        "s4d": "trainables.layers.s4d:S4D",
        "linear_rnn": "trainables.layers.rnn:LinearRNN",
        "tanh_rnn": "trainables.layers.rnn:TanhRNN",
        "relu_rnn": "trainables.layers.rnn:ReluRNN",
        "lstm": "trainables.layers.rnn:LSTM",
        "gru": "trainables.layers.rnn:GRU",
        "min_gru": "trainables.layers.min_gru:MinGRU",
        "rot_gated": "trainables.layers.rot_gated:RotGated",
        "rg_lru": "trainables.layers.rg_lru:RGLRU",
        "s6": "trainables.layers.s6:S6",
        "delta_net": "trainables.layers.delta_net:DeltaNet",
        "gated_delta_net": "trainables.layers.delta_net:GatedDeltaNet",
        "delta_product": "trainables.layers.delta_net:DeltaProduct",
        "attention": "trainables.layers.attention:Attention",
        "urnn": "trainables.layers.urnn:URNN",
        "linoss": "trainables.layers.linoss:LinOSS",
        "pd_ssm": "trainables.layers.pd_ssm:PDSSM",
        "lds": "trainables.layers.lds:LDS",
        "ldstack": "trainables.layers.ldstack:LDStack",
        "none": "trainables.layers.memoryless:Memoryless",
    },
    "trainables.layers",
    subclass_of("trainables.layers.layer:Layer"),
    declared=LayerSettings,
    generated=DECLARED,
)
"""Layer classes by name: `LAYERS[name](d_model, d_state, *, rngs, bidirectional=False, **options)`."""
