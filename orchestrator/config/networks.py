"""The networks that a search can draw: one for each combination of the static choices of a model."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.config import space
from orchestrator.config.sections import ModelSection
from orchestrator.config.sweep_config import SweepConfig
from trainables.layers import LAYERS
from trainables.trial import TrialSettings

_FREE_OR_NOT_OF_A_LAYER = {"dropout", "layer"}


def static_names(sweep: SweepConfig) -> frozenset[str]:
    """Return the searched names that change the network of a trial, and not only its initial numbers."""
    return frozenset(name for name in sweep.search if name == "layer" or _is_static(name, sweep))


def _is_static(name: str, sweep: SweepConfig) -> bool:
    for layer in layers(sweep):
        own = {*ModelSection.model_fields, *LAYERS.settings(layer).options} - _FREE_OR_NOT_OF_A_LAYER
        if name.removeprefix(f"{layer}.") in own:
            return True
    return False


def layers(sweep: SweepConfig) -> tuple[str, ...]:
    """Return the names of the layers that trials may have."""
    searched = sweep.search.get("layer")
    return tuple(map(str, searched.choices)) if searched else (sweep.model.layer,)


def count(sweep: SweepConfig) -> int:
    """Return the number of combinations that `networks` considers; 0 if a static choice is continuous."""
    return space.size(sweep.search, static_names(sweep))


def networks(sweep: SweepConfig) -> list[TrialSettings]:
    """Return settings of one trial for each network that the search can draw.

    All else is as in the largest trial of the search.
    """
    largest = sweep.settings(sweep.largest(), seed=0)
    drawn = [replace(largest, model=model) for model in sweep.networks(static_names(sweep))]
    return list({trial.static(): trial for trial in drawn}.values())
