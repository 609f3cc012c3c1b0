"""Reasons why results cannot be compared with those of a paper: other settings, data or sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.experiment.verdict import StatedFigure
from orchestrator.report.published import departures, figure_of, values
from trainables.cost import Cost
from trainables.data.comparable import other_options

TOLERANCE = 0.02
"""Largest relative difference from a published number of parameters, which is often rounded."""

_OF_RUNNING = frozenset({"interval", "remat", "accumulate", "algorithm"})
"""Settings that change results by no more than rounding."""


def changes(whole: Mapping[str, Any], small: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the differences between two resolved specifications of an arm, such as `depth 2 instead of 6`.

    Args:
        whole: Specification without a profile.
        small: Specification with a profile.
    """
    sections = ("data", "model", "training")
    given = [(values(name, whole, {}), values(name, small, {})) for name in sections]
    searched = [
        {f"search of {name}": kind for name, kind in part["search"].items()} for part in (whole, small)
    ]
    task = ({"task": whole["task"]}, {"task": small["task"]})
    return tuple(line for pair in (task, *given, searched) for line in _changed(*pair))


def _changed(whole: Mapping[str, Any], small: Mapping[str, Any]) -> list[str]:
    names = [name for name in dict.fromkeys((*whole, *small)) if name not in _OF_RUNNING]
    wanted, found = ({name: _text(part.get(name)) for name in names} for part in (whole, small))
    return other_options(wanted, found)


def _text(value: Any) -> Any:
    """Return numbers unchanged and other values as texts, so that a range is not read as several values."""
    if isinstance(value, Mapping):
        return "; ".join(f"{name} {given}" for name, given in value.items())
    return value if isinstance(value, int | float) else "none" if value is None else str(value)


def from_paper(
    published: StatedFigure | None, document: Mapping[str, Any], params: Mapping[str, Any], cost: Cost | None
) -> Iterator[str]:
    """Yield the differences of a network and its training from the paper that prints a figure.

    Args:
        published: Published figure, or None.
        document: Resolved specification of the sweep.
        params: Hyperparameters of a trial that represents the sweep.
        cost: Size of the network, or None if it is not recorded.
    """
    if published is None:
        return
    wanted, found = published.layer_parameters, None if cost is None else cost.layer_parameters
    if wanted is not None and found is not None and abs(found - wanted) > TOLERANCE * wanted:
        yield f"{found:,} parameters in the layers instead of {wanted:,}"
    layer, task = str(params.get("layer", document["model"]["layer"])), str(document["task"])
    figure = None if published.value is None else figure_of(layer, task, published.value, published.source)
    if figure is not None and figure.is_reproduction:
        yield f"the setting of the figure is not printed ({figure.source}, {figure.note})"
    elif figure is not None:
        yield from departures(layer, document, params) or ()
