"""Networks of a search: the combinations of static choices, and the sizes that `model.match` chooses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from orchestrator.config.document import Violation
from orchestrator.config.sections import MatchSection, ModelSection
from orchestrator.config.space import Distribution, combinations, size
from orchestrator.config.sweep_config import SweepConfig, model_settings
from trainables.cost import parameters
from trainables.data.task import Signature
from trainables.errors import Refusal
from trainables.layers import LAYERS
from trainables.matching import TOLERANCE, matched, matches
from trainables.trial import TrialSettings

MOST_NETWORKS = 10_000

_SIZES = ("d_state", "d_model")
_FREE_OR_NOT_OF_A_LAYER = {"dropout", "layer"}


def static_names(sweep: SweepConfig) -> frozenset[str]:
    """Return the searched names that change the network of a trial, and not only its initial numbers."""
    return names_of_networks(sweep.search, layers(sweep))


def names_of_networks(search: Iterable[str], layers: Iterable[str]) -> frozenset[str]:
    """Return the searched names that change the network for at least one of the layers."""
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
    return size(sweep.search, static_names(sweep))


def networks(sweep: SweepConfig) -> list[TrialSettings]:
    """Return the settings of one trial for each network of the search.

    Everything else is as in the largest trial of the search.
    """
    largest = sweep.network_settings(sweep.largest(), seed=0)
    drawn = [replace(largest, model=model) for model in sweep.networks(static_names(sweep))]
    return list({trial.static(): trial for trial in drawn}.values())


def matched_sizes(
    model: ModelSection,
    match: MatchSection,
    layers: Iterable[str],
    signature: Signature,
    space: Mapping[str, Distribution],
) -> ModelSection:
    """Return the network with the chosen size of each layer among `layers`; those that fit already stay.

    Args:
        model: Settings of the network, pooling included.
        match: Wanted number of parameters.
        layers: Layers that trials may have.
        signature: Signature of the task.
        space: Distributions of the searched hyperparameters.

    Raises:
        Violation: A layer cannot reach the number, or a searched choice changes it.
    """
    own = dict(model.layers)
    for layer in layers:
        given = model_settings(model, {"layer": layer})
        try:
            chosen = matched(given, signature, match.parameters, match.adjust)
        except Refusal as error:
            raise Violation(("model", "match"), error.must, error.remedy, error.got) from None
        for name in _SIZES:
            if getattr(chosen, name) != getattr(given, name):
                own[layer] = {**own.get(layer, {}), name: getattr(chosen, name)}
    result = model.model_copy(update={"layers": own})
    _check_search(result, match, frozenset(layers), signature, space)
    return result


def chosen_sizes(document: Mapping[str, Any]) -> str | None:
    """Describe the sizes that `model.match` has chosen, or return None without `model.match`.

    Args:
        document: Document of the sweep.
    """
    model = document.get("model", {})
    if not model.get("match"):
        return None
    searched = document["search"].get("layer", {}).get("choice")
    sizes = []
    for layer in searched or [model["layer"]]:
        own = {**model, **model["layers"].get(layer, {})}
        sizes.append(f"{layer} with " + " and ".join(f"{name} {own[name]}" for name in _SIZES))
    return f"{model['match']['parameters']:,} parameters to {100 * TOLERANCE:g} %: {'; '.join(sizes)}"


def _check_search(
    model: ModelSection,
    match: MatchSection,
    layers: frozenset[str],
    signature: Signature,
    space: Mapping[str, Distribution],
) -> None:
    """Refuse searched choices that change the number of parameters."""
    names = names_of_networks(space, layers)
    choices = ", ".join(sorted(names - {"layer"}))
    if not 0 < size(space, names) <= MOST_NETWORKS:
        must = f"requires a search of at most {MOST_NETWORKS:,} networks"
        raise Violation(("model", "match"), must, f"Search fewer values of {choices}.")
    for drawn in combinations(space, names):
        network = model_settings(model, {"layer": model.layer, **drawn})
        if not matches(network, signature, match.parameters):
            values = ", ".join(f"{name} {value}" for name, value in drawn.items())
            got = f"{parameters(network, signature):,} with {values}"
            must = f"must keep {match.parameters:,} parameters in every network (model.match)"
            raise Violation(("search", _first_of(drawn)), must, f"Do not search {choices}.", got)


def _first_of(drawn: Mapping[str, object]) -> str:
    return next(name for name in drawn if name != "layer")
