"""How the curves of the seeds of an arm become one number a seed.

A metric that ends with `*`, such as `hidden_norm/layer_*`, stands for one curve a layer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Curves:
    """The curves of one seed.

    Attributes:
        steps: (reports,) at which the seed reported.
        values: (layers, reports); one row for a metric without layers.
        best: index of the report with the best validation value.
    """

    steps: np.ndarray
    values: np.ndarray
    best: int


Reduce = Callable[[Sequence[Curves]], list[float]]
"""Returns one number a seed."""


def _at_best(seeds: Sequence[Curves]) -> list[float]:
    return [float(seed.values[:, seed.best].mean()) for seed in seeds]


def _mean(seeds: Sequence[Curves]) -> list[float]:
    return [float(seed.values.mean()) for seed in seeds]


def _last(seeds: Sequence[Curves]) -> list[float]:
    return [float(seed.values[:, -1].mean()) for seed in seeds]


def _drift(seeds: Sequence[Curves]) -> list[float]:
    return [float(np.mean(seed.values.std(axis=1) / seed.values.mean(axis=1))) for seed in seeds]


def _over_layers(seeds: Sequence[Curves]) -> list[float]:
    return [float(np.mean(seed.values.std(axis=0) / seed.values.mean(axis=0))) for seed in seeds]


def _over_seeds(seeds: Sequence[Curves]) -> list[float]:
    means = np.array(_mean(seeds))
    middle = float(np.median(means))
    return [float(abs(mean - middle) / middle) for mean in means]


REDUCTIONS: Mapping[str, Reduce] = {
    "value": _at_best,
    "mean": _mean,
    "last": _last,
    "drift": _drift,
    "layers": _over_layers,
    "seeds": _over_seeds,
}
"""By the names that `compare.of` may have.

`drift` is the deviation over training by the mean over training, averaged over the layers; `layers` the
deviation over the layers by their mean, averaged over training. `seeds` is the distance of a seed's mean from
the median of all seeds, by that median; comparing its means is the test of Brown and Forsythe for equal
spread.

Source: Brown & Forsythe, Journal of the American Statistical Association 69 (1974).
"""
