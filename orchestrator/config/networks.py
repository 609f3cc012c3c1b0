"""The networks that a search can draw: one for each combination of the static choices of a model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from orchestrator.config import space
from orchestrator.config.sections import ModelSection
from orchestrator.config.sweep_config import SweepConfig
from trainables.layers import LAYERS
from trainables.trial import TrialSettings

_FREE_OR_NOT_OF_A_LAYER = {"dropout", "layer"}


def static_names(sweep: SweepConfig) -> frozenset[str]:
    """Return the searched names that change the network of a trial, and not only its initial numbers."""
    return names_of_networks(sweep.search, layers(sweep))


def names_of_networks(search: Iterable[str], layers: Iterable[str]) -> frozenset[str]:
    """Return those of some searched names that change the network of a trial with one of some layers."""
    own = {
        layer: {*ModelSection.model_fields, *LAYERS.settings(layer).options} - _FREE_OR_NOT_OF_A_LAYER
        for layer in layers
    }
    return frozenset(
        name
        for name in search
        if name == "layer" or any(name.removeprefix(f"{layer}.") in names for layer, names in own.items())
    )


def layers(sweep: SweepConfig) -> tuple[str, ...]:
    """Return the names of the layers that trials may have."""
    searched = sweep.search.get("layer")
    return tuple(map(str, searched.choices)) if searched else (sweep.network.layer,)


def count(sweep: SweepConfig) -> int:
    """Return the number of combinations that `networks` considers; 0 if a static choice is continuous."""
    return space.size(sweep.search, static_names(sweep))


def networks(sweep: SweepConfig) -> list[TrialSettings]:
    """Return settings of one trial for each network that the search can draw.

    All else is as in the largest trial of the search.
    """
    largest = sweep.network_settings(sweep.largest(), seed=0)
    drawn = [replace(largest, model=model) for model in sweep.networks(static_names(sweep))]
    return list({trial.static(): trial for trial in drawn}.values())
