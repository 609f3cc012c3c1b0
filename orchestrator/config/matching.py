"""`model.match`: the size that gives each layer of a search the wanted number of parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from orchestrator.config.document import Violation
from orchestrator.config.networks import names_of_networks
from orchestrator.config.sections import MatchSection, ModelSection
from orchestrator.config.space import Distribution, combinations, size
from orchestrator.config.sweep_config import model_settings
from trainables.cost import parameters
from trainables.data.task import Signature
from trainables.errors import Refusal
from trainables.matching import TOLERANCE, matched, matches

MOST_NETWORKS = 10_000

_SIZES = ("d_state", "d_model")


def matched_sizes(
    model: ModelSection,
    match: MatchSection,
    layers: Iterable[str],
    signature: Signature,
    space: Mapping[str, Distribution],
) -> ModelSection:
    """Return the network with the chosen size of each layer among `layers`; those that fit already stay.

    Args:
        model: the network, with its pooling.
        match: what is wanted.
        layers: that trials may have.
        signature: of the task.
        space: what is searched.

    Raises:
        Violation: a layer cannot reach the number, or a searched choice changes it.
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
    """Return the sizes of the networks of a sweep in words, or None if its file does not match them.

    Args:
        document: of the sweep.
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
        must = f"must stand beside a search of at most {MOST_NETWORKS:,} networks"
        raise Violation(("model", "match"), must, f"Search fewer values of {choices}.")
    for drawn in combinations(space, names):
        network = model_settings(model, {"layer": model.layer, **drawn})
        if not matches(network, signature, match.parameters):
            values = ", ".join(f"{name} {value}" for name, value in drawn.items())
            got = f"{parameters(network, signature):,} with {values}"
            must = f"must leave every network its {match.parameters:,} parameters (model.match)"
            raise Violation(("search", _first_of(drawn)), must, f"Do not search {choices}.", got)


def _first_of(drawn: Mapping[str, object]) -> str:
    return next(name for name in drawn if name != "layer")
