"""`model.match`: each layer of a search with the wanted number of parameters."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.config import from_document
from orchestrator.config.networks import chosen_sizes
from tests.orchestrator.config.files import VALID, edited, loaded, refused
from trainables.cost import parameters
from trainables.data.task import Signature

LISTOPS = Signature("class", 10, 18, features=1, length=2048)
SEARCH = """\
  layer: {choice: [rotrnn, lru, s5]}
  learning_rate: {log_uniform: [1e-4, 1e-2]}
  recurrent_learning_rate: {log_uniform: [1e-4, 1e-2]}
budget: {trials: 8}
"""
HEAD = VALID.partition("  gamma")[0]
RATES = {"learning_rate": 1e-3, "recurrent_learning_rate": 1e-3}


def _file(match: str, search: str = SEARCH) -> str:
    return edited("heads: 8,", f"heads: 8, match: {match},", HEAD + search)


def test_every_layer_has_the_wanted_number(tmp_path: Path) -> None:
    """To 1 %; the document records the chosen sizes, and reading it again changes nothing."""
    sweep = loaded(tmp_path, _file("{parameters: 12_000}"))
    networks = {
        layer: sweep.settings({"layer": layer, **RATES}, 0).model for layer in ("rotrnn", "lru", "s5")
    }
    for layer, network in networks.items():
        assert network.layer == layer
        assert parameters(network, LISTOPS) == pytest.approx(12_000, rel=0.01)
    document = json.loads(json.dumps(sweep.document()))
    again = from_document(document)
    assert again.document() == document
    assert again.digest == sweep.digest
    words = chosen_sizes(document)
    assert words is not None
    assert words.startswith("12,000 parameters to 1 %: rotrnn with d_state ")
    assert f"lru with d_state {networks['lru'].d_state} and d_model {networks['lru'].d_model}" in words
    assert chosen_sizes(loaded(tmp_path).document()) is None


def test_a_file_without_it_keeps_its_identity(tmp_path: Path) -> None:
    """Earlier versions recorded no `match`: their sweeps keep their ids."""
    sweep = loaded(tmp_path)
    document = sweep.document()
    assert document["model"].pop("match") is None
    assert from_document(document).digest == sweep.digest


def test_it_can_be_overridden(tmp_path: Path) -> None:
    """A dotted key leads into `match`; `adjust` names the only size that changes."""
    sweep = loaded(tmp_path, overrides=["model.match.parameters=20_000", "model.match.adjust=d_model"])
    network = sweep.settings(sweep.published_params() or {}, 0).model
    assert network.d_state == loaded(tmp_path).model.d_state
    assert parameters(network, LISTOPS) == pytest.approx(20_000, rel=0.01)


@pytest.mark.parametrize(
    ("match", "old", "new", "phrases"),
    [
        ("{parameters: 0}", "", "", ["model.match.parameters must be"]),
        ("{parameters: 1000, adjust: depth}", "", "", ["model.match.adjust must be"]),
        (
            "{parameters: 100, adjust: d_state}",
            "",
            "",
            ["model.match: no d_state gives rotrnn 100 parameters to 1 %", "Write parameters: "],
        ),
        (
            "{parameters: 12_000}",
            "  learning_rate:",
            "  depth: {choice: [1, 2]}\n  learning_rate:",
            ["search.depth must keep 12,000 parameters in every network", "Do not search depth."],
        ),
        (
            "{parameters: 12_000}",
            "  learning_rate:",
            "  rotrnn.d_state: {int: [8, 64], step: 8}\n  learning_rate:",
            ["search.rotrnn.d_state must keep 12,000 parameters"],
        ),
    ],
)
def test_what_cannot_be_matched_is_refused(
    tmp_path: Path, match: str, old: str, new: str, phrases: list[str]
) -> None:
    """An error names the key, what must hold, what was found and what would be right."""
    search = edited(old, new, SEARCH) if old else SEARCH
    error = str(refused(tmp_path, _file(match, search)))
    for phrase in phrases:
        assert phrase in error
