"""What holds for one layer alone: `model.layers`, and `<layer>.<name>` in `search`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.config import from_document
from orchestrator.ledger.sweeps.index import differences
from tests.orchestrator.config.files import VALID, edited, loaded, refused

SEARCH = """\
  layer: {choice: [rotrnn, lru]}
  rotrnn.theta_init.max: {choice: [pi/100, pi/10]}
  lru.d_state: {int: [64, 128]}
  learning_rate: {log_uniform: [1e-4, 1e-2]}
  recurrent_learning_rate: {log_uniform: [1e-4, 1e-2]}
budget: {trials: 8}
"""


def test_each_layer_has_its_own_sizes_options_and_ranges(tmp_path: Path) -> None:
    """Drawn values come first, then `layers`, then `model`, then the layer's defaults."""
    own = "layers: {lru: {r_init: [0.5, 0.9], d_state: 32, theta_init: [0, 1]}, rotrnn: {heads: 16}}"
    head = edited("heads: 8,", f"heads: 8, theta_init: [0, 0.5], {own},", VALID.partition("  gamma")[0])
    sweep = loaded(tmp_path, head + SEARCH)
    rates = {"learning_rate": 1e-3, "recurrent_learning_rate": 1e-3}
    rotrnn = sweep.settings({"layer": "rotrnn", "rotrnn.theta_init.max": 0.1, **rates}, 0).model
    assert (rotrnn.d_state, rotrnn.options["heads"]) == (64, 16)
    assert rotrnn.ranges == {"gamma_init": (0.5, 0.999), "theta_init": (0.0, 0.1)}
    lru = sweep.settings({"layer": "lru", "lru.d_state": 100, **rates}, 0).model
    assert (lru.d_state, lru.ranges) == (100, {"r_init": (0.5, 0.9), "theta_init": (0.0, 1.0)})
    assert sweep.active({"layer": "lru"}) == {"layer", "lru.d_state", *rates}
    assert sweep.active({"layer": "rotrnn"}) == {"layer", "rotrnn.theta_init.max", *rates}
    again = from_document(json.loads(json.dumps(sweep.document())))
    assert again.digest == sweep.digest


def test_a_fixed_layer_has_its_own_hyperparameters_too(tmp_path: Path) -> None:
    """Where every trial has the layer, `<layer>.<name>` is always drawn."""
    text = VALID.partition("  gamma")[0] + SEARCH
    text = edited(
        "  layer: {choice: [rotrnn, lru]}\n", "", edited("  lru.d_state: {int: [64, 128]}\n", "", text)
    )
    sweep = loaded(tmp_path, text)
    assert not sweep.search["rotrnn.theta_init.max"].when
    params = {"rotrnn.theta_init.max": 0.1, "learning_rate": 1e-3, "recurrent_learning_rate": 1e-3}
    assert sweep.settings(params, 0).model.ranges["theta_init"] == (0.0, 0.1)


RATES = {"learning_rate": 1e-3, "recurrent_learning_rate": 1e-3}
FIXED = VALID.partition("  gamma")[0] + SEARCH.partition("  learning")[1] + SEARCH.partition("  learning")[2]
SEARCHED = FIXED.replace("search:\n", "search:\n  layer: {choice: [lru, delta_net]}\n")


@pytest.mark.parametrize(
    ("text", "params"),
    [(FIXED, RATES), (SEARCHED, {"layer": "delta_net", **RATES})],
    ids=["fixed", "searched"],
)
def test_a_document_names_the_heads_of_a_delta_rule(
    tmp_path: Path, text: str, params: dict[str, object]
) -> None:
    text = text.replace("layer: rotrnn", "layer: delta_net").replace("heads: 8,", "")
    sweep = loaded(tmp_path, text)
    four = loaded(tmp_path, text, overrides=["model.layers.delta_net.heads=4"])
    assert sweep.settings(params, 0).model.options["heads"] == 1
    document = json.loads(json.dumps(sweep.document()))
    assert document["model"]["layers"] == {"delta_net": {"heads": 1}}
    assert from_document(document).document() == sweep.document()
    assert four.digest != sweep.digest
    assert differences(four.document(), document) == ["model.layers.delta_net.heads 4 -> 1"]


def test_heads_that_the_file_names_are_not_named_again(tmp_path: Path) -> None:
    text = FIXED.replace("layer: rotrnn", "layer: delta_net")
    sweep = loaded(tmp_path, text)
    assert sweep.document()["model"]["layers"] == {}
    assert sweep.settings(RATES, 0).model.options["heads"] == 8
    assert loaded(tmp_path, FIXED).document()["model"]["layers"] == {}


@pytest.mark.parametrize(
    ("old", "new", "phrase"),
    [
        ("heads: 8,", "heads: 8, layers: {lur: {}},", "model.layers.lur must name a layer"),
        ("heads: 8,", "heads: 8, layers: {lru: {heads: 4}},", "or a key of the layer lru (got `heads`)"),
        ("heads: 8,", "heads: 8, layers: {lru: {depth: 4}},", "or a key of the layer lru (got `depth`)"),
        (
            "heads: 8,",
            "heads: 8, layers: {lru: {d_state: 0}},",
            "lru.d_state must be a whole number, at least 1",
        ),
        ("heads: 8,", "heads: 8, layers: {lru: {r_init: [0.5, 2]}},", "must lie between 0 and 1"),
        (
            "heads: 8,",
            "heads: 8, layers: {lru: {r_init: [0.9, 0.5]}},",
            "lru.r_init: r_init.min < r_init.max",
        ),
        (
            "heads: 8,",
            "heads: 8, layers: {rotrnn: {heads: 12}},",
            "rotrnn.heads: in the layer rotrnn, d_state must be divisible",
        ),
        ("{choice: [pi/100", "{when: {layer: lru}, choice: [pi/100", "when.layer must be rotrnn"),
        ("rotrnn.theta_init.max", "s5.dt_init.max", "search.s5.dt_init.max is not a hyperparameter"),
        ("rotrnn.theta_init.max", "rotrnn.theta_int.max", "Did you mean `rotrnn.theta_init.max`?"),
        (
            "  lru.d_state",
            "  theta_init.max: {choice: [1]}\n  lru.d_state",
            "theta_init.max must be searched once",
        ),
        (
            "lru.d_state: {int: [64, 128]}",
            "rotrnn.heads: {choice: [8, 12]}",
            "search.rotrnn.heads: in the layer rotrnn, d_state must",
        ),
    ],
)
def test_what_holds_for_one_layer_is_checked(tmp_path: Path, old: str, new: str, phrase: str) -> None:
    """An error names the key of the layer that it comes from."""
    text = VALID.partition("  gamma")[0] + SEARCH
    assert phrase in str(refused(tmp_path, edited(old, new, text)))


def test_what_holds_for_one_layer_can_be_overridden(tmp_path: Path) -> None:
    """A dotted key leads into `layers`, whether the file has it or not."""
    sweep = loaded(tmp_path, overrides=["model.layers.lru.d_state=32", "model.layers.lru.r_init=[0.1, 0.9]"])
    assert sweep.model.layers == {"lru": {"d_state": 32, "r_init": [0.1, 0.9]}}
    assert sweep.settings(sweep.published_params() or {}, 0) == loaded(tmp_path).settings(
        sweep.published_params() or {}, 0
    )


def test_the_rate_of_recurrent_parameters_is_needed_only_where_a_layer_has_some(tmp_path: Path) -> None:
    rate = "  recurrent_learning_rate: {log_uniform: [1e-4, 1e-2]}\n"
    head = VALID.partition("  gamma")[0].replace("heads: 8, ", "").replace("heads: 8,", "")
    search = "  layer: {choice: [rotrnn, none]}\n  learning_rate: {log_uniform: [1e-4, 1e-2]}\n"
    end = "budget: {trials: 8}\n"
    error = refused(tmp_path, head + search + end)
    assert error.where.endswith(" training.recurrent_learning_rate")
    conditional = rate.replace("1e-2]", "1e-2], when: {layer: rotrnn}")
    sweep = loaded(tmp_path, head + search + conditional + end)
    params = {"layer": "none", "learning_rate": 1e-3}
    training = sweep.network_settings(params, 0).training
    assert (training.learning_rate, training.recurrent_learning_rate) == (1e-3, 1e-3)
    alone = loaded(tmp_path, head + search.replace("[rotrnn, none]", "[none, attention]") + end)
    assert alone.network_settings(params, 0).training.recurrent_learning_rate == 1e-3
    again = from_document(json.loads(json.dumps(alone.document())))
    assert again.digest == alone.digest
