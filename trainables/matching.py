"""Sizes with which a network has a requested number of parameters. This module does not import JAX."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from trainables.cost import parameters
from trainables.data.task import Signature
from trainables.errors import Refusal
from trainables.layers import LAYERS
from trainables.trial import ModelSettings

Size = Literal["d_state", "d_model"]

TOLERANCE = 0.01
"""Largest relative difference from the requested number of parameters."""

LARGEST = 2**20
"""Largest size that is tried."""

_NEIGHBOURS = 2048
"""Distance from the best size, on either side, within which legal sizes are tried."""


def matches(model: ModelSettings, signature: Signature, wanted: int) -> bool:
    """Return True if a network has the requested number of parameters, within `TOLERANCE`."""
    return abs(parameters(model, signature) - wanted) <= TOLERANCE * wanted


def matched(
    model: ModelSettings, signature: Signature, wanted: int, adjust: Size | None = None
) -> ModelSettings:
    """Return a network with a requested number of parameters.

    A network that has this number, such as a published one, does not change. Otherwise its `d_state` changes.
    If no `d_state` reaches the number, `d_model` changes too, as little as possible.

    Args:
        model: Network.
        signature: Signature of the task.
        wanted: Number of parameters.
        adjust: Only size that may change, or None.

    Raises:
        Refusal: No legal size comes within `TOLERANCE`, or the layer declares no formula.
    """
    if matches(model, signature, wanted):
        return model
    tried = []
    for network in _candidates(model, signature, wanted, adjust):
        if matches(network, signature, wanted):
            return network
        tried.append(network)
    best = min(tried, key=lambda network: abs(parameters(network, signature) - wanted), default=model)
    count = parameters(best, signature)
    sizes = adjust or "d_state or d_model"
    raise Refusal(
        "model.match",
        f"no {sizes} gives {model.layer} {wanted:,} parameters to {100 * TOLERANCE:g} %",
        f"{count:,} at best, with d_state {best.d_state} and d_model {best.d_model}",
        f"Write parameters: {count}, or change an option of the layer that its sizes must suit.",
    )


def _candidates(
    model: ModelSettings, signature: Signature, wanted: int, adjust: Size | None
) -> Iterator[ModelSettings]:
    """Yield networks that may have the number, those with the least changes first."""
    is_fixed = model.encoder == "none"  # The width is then that of the task's arrays.
    widths = (
        [model.d_model]
        if adjust == "d_state" or is_fixed
        else sorted(
            range(max(1, model.d_model // 2), 2 * model.d_model + 1), key=lambda d: abs(d - model.d_model)
        )
    )
    if adjust != "d_model":
        for width in widths:
            yield from closest(replace(model, d_model=width), signature, wanted, "d_state")
    if adjust != "d_state" and not is_fixed:
        yield from closest(model, signature, wanted, "d_model")


def closest(model: ModelSettings, signature: Signature, wanted: int, size: Size) -> list[ModelSettings]:
    """Return the network whose number of parameters is closest to the wanted one, other sizes unchanged.

    Returns:
        One network, or none if no legal size is near the one at which the number is exceeded.
    """

    def resized(value: int) -> ModelSettings:
        return replace(model, d_state=value) if size == "d_state" else replace(model, d_model=value)

    def distance(value: int) -> int:
        return abs(parameters(resized(value), signature) - wanted)

    if distance(1) == distance(LARGEST):
        return []  # The size changes nothing: the layer `none` has no state.
    low, high = 0, 1
    while high < LARGEST and parameters(resized(high), signature) < wanted:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        is_below = parameters(resized(middle), signature) < wanted
        low, high = (middle, high) if is_below else (low, middle)
    below = range(low, max(0, low - _NEIGHBOURS), -1)
    above = range(high, min(LARGEST, high + _NEIGHBOURS) + 1)
    legal = [value for side in (below, above) for value in _first_legal(model, size, side)]
    return [resized(min(legal, key=distance))] if legal else []


def _first_legal(model: ModelSettings, size: Size, values: range) -> Iterator[int]:
    """Yield the first of some values that the layer can have, if there is one."""
    declared = LAYERS.settings(model.layer)
    options = {name: option.default for name, option in declared.options.items()} | dict(model.options)
    for value in values:
        choices = {**vars(model), **options, size: value}
        if all(need.holds(*(choices[name] for name in need.of)) for need in declared.needs):
            yield value
            return
