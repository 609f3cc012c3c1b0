"""Formulas of parameters against the networks themselves, and the sizes that reach a wanted number."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import pytest
from flax import nnx

from tests.trainables.layers.cases import OPTIONS, bidirectional_names
from trainables.cost import of_layer, parameters
from trainables.data.task import Signature
from trainables.errors import Refusal
from trainables.layers import LAYERS
from trainables.matching import TOLERANCE, matched
from trainables.model import Model
from trainables.settings import LayerSettings
from trainables.trial import ModelSettings

TOKENS = Signature("class", 10, 18, features=1, length=2048)
VALUES = Signature("value", 1, None, features=2, length=100, metric="mse")
TOWERS = Signature("class", 2, 97, features=1, length=400, towers=2)

LISTOPS = ModelSettings("rotrnn", 6, 128, 256, options={"heads": 32})
# A step of the width changes the first by 3 %; states of the second are multiples of twice the width.
TOO_COARSE = {("none", 15_000), ("lds", 15_000)}

COUNTED = [name for name in LAYERS if LAYERS.settings(name).parameters is not None]


def _trained(module: Any) -> int:
    state = nnx.state(nnx.eval_shape(lambda: module(rngs=nnx.Rngs(0))), nnx.Param)
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(state))


def _variants(declared: LayerSettings) -> Iterator[dict[str, Any]]:
    """Yield options that differ from the defaults in one choice each."""
    yield {}
    for name, option in declared.options.items():
        values = option.choices or ((not option.default,) if isinstance(option.default, bool) else (3,))
        if name not in {"algorithm", "activations", "heads", "blocks"}:
            yield from ({name: value} for value in values if value != option.default)


@pytest.mark.slow
@pytest.mark.parametrize("name", COUNTED)
def test_the_formula_of_a_layer(name: str) -> None:
    """It counts every parameter of the layer, at two sizes, with every option, in one direction and two."""
    declared, build = LAYERS.settings(name), LAYERS[name]
    for d_model, d_state in ((4, 16), (6, 48)):
        for options in ({**OPTIONS.get(name, {}), **variant} for variant in _variants(declared)):
            choices = {**{key: option.default for key, option in declared.options.items()}, **options}
            for both in (False, True) if name in bidirectional_names() else (False,):
                model = ModelSettings(name, 1, d_model, d_state, both, options=choices)
                sizes = {**vars(model), **choices}
                if not all(need.holds(*map(sizes.get, need.of)) for need in declared.needs):
                    continue
                layer = partial(build, d_model, d_state, bidirectional=both, **choices)
                assert of_layer(model) == _trained(layer), (d_model, d_state, both, options)


@pytest.mark.parametrize("signature", [TOKENS, VALUES, TOWERS], ids=["tokens", "values", "towers"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"depth": 3, "mixing": "half_glu1", "norm": "layer"},
        {"mixing": "half_glu2", "norm_position": "after"},
        {"mixing": "none", "norm": "none"},
        {"mixing": "gelu", "encoder": "none", "short_conv": 4, "gate": "silu"},
    ],
    ids=lambda changes: changes.get("mixing", "full_glu"),
)
def test_the_formula_of_a_network(changes: dict[str, Any], signature: Signature) -> None:
    """It counts encoder, blocks, towers and head too."""
    width = (signature.vocabulary or signature.features) if "encoder" in changes else 8
    model = replace(ModelSettings("lru", 2, width, 16).complete(), **changes)
    network = partial(Model, model, dict(model.ranges), signature)
    assert parameters(model, signature) == _trained(network)


def test_published_sizes_stay() -> None:
    """RotRNN on ListOps has 610,634 parameters: what asks for 610,000 finds it as it is."""
    assert parameters(LISTOPS, TOKENS) == 610_634
    assert matched(LISTOPS, TOKENS, 610_000) is LISTOPS


@pytest.mark.parametrize("wanted", [15_000, 100_000, 610_634, 5_000_000])
@pytest.mark.parametrize("name", COUNTED)
def test_every_layer_reaches_a_number(name: str, wanted: int) -> None:
    """To 1 %, by sizes that the layer can have; the other choices stay."""
    given = ModelSettings(name, 2, 32, 64, options=OPTIONS.get(name, {}))
    if (name, wanted) in TOO_COARSE:
        with pytest.raises(Refusal, match="Write parameters: "):
            matched(given, TOKENS, wanted)
        return
    found = matched(given, TOKENS, wanted)
    assert abs(parameters(found, TOKENS) - wanted) <= TOLERANCE * wanted
    assert replace(found, d_model=32, d_state=64) == given
    declared = LAYERS.settings(name)
    options = {key: option.default for key, option in declared.options.items()} | dict(found.options)
    choices = {**vars(found), **options}
    assert all(need.holds(*(choices[key] for key in need.of)) for need in declared.needs)


def test_the_closest_legal_state() -> None:
    """No other state of LRU is closer; RotRNN's is a multiple of its heads."""
    lru = matched(ModelSettings("lru", 6, 128, 256), TOKENS, 610_634, "d_state")
    off = [abs(parameters(replace(lru, d_state=lru.d_state + k), TOKENS) - 610_634) for k in (-1, 0, 1)]
    assert (lru.d_model, min(off)) == (128, off[1])
    rotrnn = matched(replace(LISTOPS, d_state=64), TOKENS, 610_634)
    assert (rotrnn.d_model, rotrnn.d_state) == (128, 256)


def test_what_cannot_be_reached_is_refused() -> None:
    """The error names the closest number, which can then be asked for."""
    with pytest.raises(Refusal, match="gives rotrnn 650,000 parameters to 1 %") as error:
        matched(LISTOPS, TOKENS, 650_000, "d_state")
    offered = int(error.value.remedy.split()[2].rstrip(","))
    assert matched(LISTOPS, TOKENS, offered, "d_state").d_state % 32 == 0
    wider = matched(LISTOPS, TOKENS, 650_000)
    assert (wider.d_state % 32, wider.d_model) != (0, 128)
    with pytest.raises(Refusal, match="d_state 64 and d_model 2"):
        matched(ModelSettings("none", 1, 2, 64, encoder="none"), VALUES, 1000)
