"""The published settings behind the published figures: sizes of networks and their training, as data.

Sources: RotRNN, Table 3; LRU, Tables 8 and 9 and appendix D; the run files of S5's and S4's repositories.
What a paper does not state is left out, such as RotRNN's mixing and LRU's rates.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

from trainables.data.comparable import other_options
from trainables.layers import LAYERS
from trainables.tasks import TASKS
from trainables.trial import ModelSettings, TrainingSettings

SIZES = frozenset({"depth", "d_model", "d_state"})
"""They make another network even where a sweep searches them; other hyperparameters may be searched."""


@dataclass(frozen=True)
class Setting:
    """What a paper states of one network and its training.

    Attributes:
        source: paper and table.
        model: values of the section `model` of a search-space file.
        training: of its section `training`.
        data: of its section `data`.
    """

    source: str
    model: Mapping[str, Any]
    training: Mapping[str, Any]
    data: Mapping[str, Any]


def setting_of(layer: str, task: str) -> Setting | None:
    """Return the published setting of a layer on a task, or None if no paper states one."""
    return SETTINGS.get((layer, task))


def departures(setting: Setting, document: Mapping[str, Any], params: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what a trial has not as published, such as `depth 2 instead of 6`.

    A hyperparameter that the sweep searches may differ, because the published one was searched too; a size
    may not.

    Args:
        setting: that is published.
        document: the resolved specification of its sweep.
        params: the hyperparameters of the trial.
    """
    sections = {name: getattr(setting, name) for name in ("model", "training", "data")}
    return tuple(
        line
        for name, wanted in sections.items()
        for line in other_options(*_compared(wanted, _values(name, document, params), document["search"]))
    )


def _values(section: str, document: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a section, with the defaults of the layer or the task and the hyperparameters."""
    own = document.get(section) or {}
    if section == "data":
        defaults = {name: option.default for name, option in TASKS[document["task"]].options.items()}
    elif section == "model":
        declared = LAYERS.settings(params.get("layer", own["layer"]))
        chosen = {name: declared.default(name) for name in (*declared.options, *declared.ranges)}
        defaults = {**_defaults(ModelSettings), **chosen}
    else:
        defaults = _defaults(TrainingSettings)
    return {**defaults, **own, **params}


def _defaults(settings: type[ModelSettings] | type[TrainingSettings]) -> dict[str, Any]:
    """Return what documents of earlier versions leave out."""
    return {field.name: field.default for field in fields(settings) if field.default is not MISSING}


def _compared(
    wanted: Mapping[str, Any], values: Mapping[str, Any], search: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the published values that count, and those of the trial, ready to be compared."""
    searched = {name.partition(".")[0] for name in search} - SIZES
    counted = {name: value for name, value in wanted.items() if name not in searched}
    return (
        {name: _brief(value) for name, value in counted.items()},
        {name: _brief(values.get(name)) for name in counted},
    )


def _brief(value: Any) -> Any:
    """Return a value without the digits that distinguish nothing, and a range as a text."""
    if isinstance(value, list | tuple):
        return f"{value[0]:.4g} to {value[1]:.4g}"
    return f"{value:.4g}" if isinstance(value, float) else value


def _settings() -> Iterator[tuple[tuple[str, str], Setting]]:
    for task in _ROTRNN:
        yield ("rotrnn", task), _rotrnn(task)
    for task in _LRU:
        yield ("lru", task), _lru(task)
        for layer in ("linear_rnn", "tanh_rnn", "relu_rnn"):
            if task not in ("pathfinder", "pathx"):
                yield (layer, task), _dense(task)
    for task in _S5:
        yield ("s5", task), _s5(task)
    for task in _S4D:
        yield ("s4d", task), _s4d(task)


_COLOUR = {"lru": {"image": {"colour": True}}, "other": {"image": {"colour": False}}}
_BOTH_WAYS = ("pathfinder", "pathx")
"""Tasks on which RotRNN and LRU read in both directions."""

_ROTRNN: Mapping[str, tuple[Any, ...]] = {
    # D, N, rate, recurrent rate, batch, decay, dropout, steps, gamma_init, theta_init
    "listops": (128, 256, 1e-3, 1e-3, 32, 0.05, 0.0, 80_000, (0.5, 0.999), math.pi / 100),
    "text": (256, 192, 1e-3, 1e-3, 32, 0.05, 0.1, 50_000, (0.5, 0.8), math.pi / 10),
    "retrieval": (128, 256, 1e-4, 1e-5, 32, 0.01, 0.1, 50_000, (0.5, 0.999), 2 * math.pi),
    "image": (512, 384, 4.5e-3, 1e-3, 50, 0.05, 0.1, 250_000, (0.99, 0.999), 2 * math.pi),
    "pathfinder": (192, 256, 4.5e-3, 1e-3, 64, 0.03, 0.05, 500_000, (0.1, 0.9999), math.pi / 10),
    "pathx": (192, 256, 4.5e-3, 1e-3, 32, 0.03, 0.2, 250_000, (0.999, 0.9999), math.pi / 10),
    "speech_commands": (96, 128, 8e-3, 1e-3, 16, 0.04, 0.1, 212_000, (0.1, 0.9999), math.pi / 10),
}


def _rotrnn(task: str) -> Setting:
    width, state, rate, recurrent, batch, decay, dropout, steps, gamma, theta = _ROTRNN[task]
    # The text says that Speech Commands is read in one direction; by its number of parameters, in both.
    directions = {} if task == "speech_commands" else {"bidirectional": task in _BOTH_WAYS}
    model = {
        "depth": 6, "d_model": width, "d_state": state, "heads": 32, "dropout": dropout,
        "gamma_init": gamma, "theta_init": (0.0, theta), **directions,
    }  # fmt: skip
    training = {
        "steps": steps, "batch_size": batch, "learning_rate": rate, "recurrent_learning_rate": recurrent,
        "weight_decay": decay,
    }  # fmt: skip
    return Setting("RotRNN, Table 3", model, training, _COLOUR["other"].get(task, {}))


_LRU: Mapping[str, tuple[Any, ...]] = {
    # D, N, steps, batch, dropout, r_init
    "image": (512, 384, 180_000, 50, 0.1, (0.9, 0.999)),
    "listops": (128, 256, 80_000, 32, 0.0, (0.0, 0.99)),
    "text": (256, 192, 50_000, 32, 0.1, (0.5, 0.9)),
    "retrieval": (128, 256, 100_000, 64, 0.1, (0.5, 0.9)),
    "pathfinder": (192, 256, 500_000, 64, 0.0, (0.9, 0.999)),
    "pathx": (128, 256, 250_000, 32, 0.0, (0.999, 0.9999)),
}


def _dense(task: str) -> Setting:
    width, state, steps, batch, dropout, _ = _LRU[task]
    model = {"depth": 6, "d_model": width, "d_state": state, "dropout": dropout, "mixing": "full_glu"}
    training = {"steps": steps, "batch_size": batch, "weight_decay": 0.05}
    return Setting("LRU, Tables 8 and 9", model, training, _COLOUR["lru"].get(task, {}))


def _lru(task: str) -> Setting:
    dense, ring = _dense(task), _LRU[task][-1]
    model = {
        **dense.model,
        "mixing": "half_glu1" if task == "pathx" else "full_glu",
        "bidirectional": task in _BOTH_WAYS,
        "r_init": ring,
        "theta_init": (0.0, math.pi / 10 if task == "pathx" else 2 * math.pi),
    }
    return Setting(dense.source, model, dense.training, dense.data)


_S5: Mapping[str, tuple[Any, ...]] = {
    # blocks of the network, D, N, blocks of A, mixing, dropout, recurrent rate, rate, batch, steps, decay
    "listops": (8, 128, 16, 8, "half_glu2", 0.0, 1e-3, 3e-3, 50, 76_800, 0.04),
    "text": (6, 256, 192, 12, "half_glu2", 0.1, 1e-3, 4e-3, 50, 17_500, 0.07),
    "retrieval": (6, 128, 256, 16, "half_glu1", 0.0, 1e-3, 2e-3, 32, 91_900, 0.05),
    "image": (6, 512, 384, 3, "half_glu1", 0.1, 1e-3, 4.5e-3, 50, 225_000, 0.07),
    "pathfinder": (6, 192, 256, 8, "half_glu1", 0.05, 9e-4, 4.5e-3, 64, 500_000, 0.03),
    "pathx": (6, 128, 256, 16, "half_glu1", 0.0, 6e-4, 1.8e-3, 32, 375_000, 0.06),
    "speech_commands": (6, 96, 128, 16, "half_glu1", 0.1, 2e-3, 8e-3, 16, 212_000, 0.04),
}


def _s5(task: str) -> Setting:
    depth, width, state, blocks, mixing, dropout, recurrent, rate, batch, steps, decay = _S5[task]
    model = {
        "depth": depth, "d_model": width, "d_state": state, "blocks": blocks, "mixing": mixing,
        "dropout": dropout, "bidirectional": True, "norm": "batch", "norm_position": "before",
    }  # fmt: skip
    training = {
        "steps": steps, "batch_size": batch, "learning_rate": rate, "recurrent_learning_rate": recurrent,
        "weight_decay": decay,
    }  # fmt: skip
    return Setting("S5's repository", model, training, _COLOUR["other"].get(task, {}))


_S4D: Mapping[str, tuple[Any, ...]] = {
    # D, N, norm after the layer or before it, dropout, rate, batch, steps, decay
    "listops": (256, 4, "after", 0.0, 1e-2, 32, 120_000, 0.05),
    "text": (256, 4, "before", 0.0, 1e-2, 16, 50_000, 0.05),
    "retrieval": (256, 4, "before", 0.0, 1e-2, 64, 50_000, 0.05),
    "image": (512, 64, "after", 0.1, 1e-2, 50, 180_000, 0.05),
    "pathfinder": (256, 64, "before", 0.0, 4e-3, 64, 500_000, 0.03),
    "pathx": (256, 64, "before", 0.0, 1e-3, 16, 500_000, 0.05),
    "speech_commands": (128, 64, "before", 0.0, 1e-2, 16, 200_000, 0.05),
}


def _s4d(task: str) -> Setting:
    width, state, position, dropout, rate, batch, steps, decay = _S4D[task]
    model = {
        "depth": 6, "d_model": width, "d_state": state, "mixing": "full_glu", "dropout": dropout,
        "bidirectional": True, "norm": "batch", "norm_position": position,
    }  # fmt: skip
    training = {
        "steps": steps, "batch_size": batch, "learning_rate": rate, "recurrent_learning_rate": 1e-3,
        "weight_decay": decay,
    }  # fmt: skip
    return Setting("S4's repository", model, training, _COLOUR["other"].get(task, {}))


SETTINGS: Mapping[tuple[str, str], Setting] = dict(_settings())
"""By layer and task, the setting of the paper of the layer; reproductions by others do not print theirs."""
