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
"""Settings that change results only by rounding."""


def changes(whole: Mapping[str, Any], small: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the changes from one resolved specification to another, such as `depth 2 instead of 6`."""
    sections = ("data", "model", "training")
    given = [(values(name, whole, {}), values(name, small, {})) for name in sections]
    searched = [
        {f"search of {name}": kind for name, kind in part["search"].items()} for part in (whole, small)
    ]
    pairs = [({"task": whole["task"]}, {"task": small["task"]}), *given, searched]
    lines: list[str] = []
    for pair in pairs:
        names = dict.fromkeys(name for part in pair for name in part if name not in _OF_RUNNING)
        lines += other_options(*({name: _text(part.get(name)) for name in names} for part in pair))
    return tuple(lines)


def _text(value: Any) -> Any:
    """Return numbers unchanged and other values as texts, so that a range is not read as several values."""
    if isinstance(value, Mapping):
        return "; ".join(f"{name} {given}" for name, given in value.items())
    return value if isinstance(value, int | float) else "none" if value is None else str(value)


def from_paper(
    published: StatedFigure | None, document: Mapping[str, Any], params: Mapping[str, Any], cost: Cost | None
) -> Iterator[str]:
    """Yield the differences of a sweep from the network and the training of a published figure.

    Args:
        published: Published figure, or None.
        document: Resolved specification of the sweep.
        params: Hyperparameters of a representative trial.
        cost: Size of the network, or None if it is unknown.
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
