"""Published test accuracies on the long-sequence tasks, and departures from the settings behind them.

`published.toml` holds the data. Sources: RotRNN, Tables 1 to 3; LRU, Tables 3, 6, 8 and 9 and appendix D; the
run files of S5's and S4's repositories.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from importlib.resources import files
from math import isclose
from typing import Any

from orchestrator.ledger.sweeps.records import SweepRecord
from trainables.data.comparable import other_options
from trainables.layers import LAYERS
from trainables.tasks import TASKS
from trainables.trial import ModelSettings, TrainingSettings

SIZES = frozenset({"depth", "d_model", "d_state"})
"""Settings that must equal the published ones even if the sweep searches them."""


@dataclass(frozen=True)
class Figure:
    """One published test accuracy.

    Attributes:
        layer: A name of `trainables.layers.LAYERS`.
        task: A name of `trainables.tasks.TASKS`.
        accuracy: Share of correct answers.
        error: Standard error, or None where the paper prints none.
        source: Paper and table.
        note: Condition that comparable results share, or ''.
    """

    layer: str
    task: str
    accuracy: float
    error: float | None
    source: str
    note: str = ""

    @property
    def is_reproduction(self) -> bool:
        """Whether it was measured by others than the authors of the layer, who do not publish the setting."""
        return self.note.startswith("reproduced by")


@dataclass(frozen=True)
class PublishedSetting:
    """The published setting of one network and its training.

    Attributes:
        source: Paper and table.
        model: Values of the section `model` of a search-space file.
        training: Values of its section `training`.
        data: Values of its section `data`.
    """

    source: str
    model: Mapping[str, Any]
    training: Mapping[str, Any]
    data: Mapping[str, Any]


def _figures(document: Mapping[str, Any]) -> Iterator[Figure]:
    for group in document["figures"]:
        for task, printed in group["percent"].items():
            value, error = printed if isinstance(printed, list) else (printed, None)
            notes = (group.get("note", ""), group.get("image", "") if task == "image" else "")
            yield Figure(
                layer=group["layer"],
                task=task,
                accuracy=value / 100,
                error=None if error is None else error / 100,
                source=group["source"],
                note="; ".join(filter(None, notes)),
            )


def _settings(document: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], PublishedSetting]]:
    for group in document["settings"]:
        for task, sections in group.items():
            if task not in ("source", "layers"):
                own = (sections["model"], sections["training"], sections.get("data", {}))
                for layer in group["layers"]:
                    yield (layer, task), PublishedSetting(group["source"], *own)


_DOCUMENT = tomllib.loads(files("orchestrator.report").joinpath("published.toml").read_text("utf-8"))

FIGURES = tuple(_figures(_DOCUMENT))

SETTINGS: Mapping[tuple[str, str], PublishedSetting] = dict(_settings(_DOCUMENT))
"""Setting in the paper of each layer, by layer and task; reproductions by others do not print theirs."""


def figures(layer: str, task: str) -> list[Figure]:
    """Return the published accuracies of a layer on a task, in the order of `FIGURES`."""
    return [figure for figure in FIGURES if (figure.layer, figure.task) == (layer, task)]


def figure_of(layer: str, task: str, accuracy: float, source: str) -> Figure | None:
    """Return the published figure that a source cites, or None.

    Figures in the cited tables come first, then the authors' figures that another paper quotes. Other tables
    of the same paper may print the same number for another setting.

    Args:
        layer: A name of `trainables.layers.LAYERS`.
        task: A name of `trainables.tasks.TASKS`.
        accuracy: Accuracy as printed.
        source: Paper and table, or several tables, such as `LRU, Tables 1 and 6`.
    """
    paper, tables = _cited(source)
    cited = [(figure, *_cited(figure.source)) for figure in figures(layer, task)]
    own = [figure for figure, of, numbers in cited if of == paper and numbers <= tables]
    quoted = [figure for figure, of, _ in cited if of != paper and not figure.is_reproduction]
    return next((figure for figure in (*own, *quoted) if isclose(figure.accuracy, accuracy)), None)


def _cited(source: str) -> tuple[str, frozenset[str]]:
    """Return the paper of a source, and the numbers of its tables."""
    paper, _, tables = source.partition(",")
    return paper, frozenset(re.findall(r"\d+", tables))


def departures(layer: str, document: Mapping[str, Any], params: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the differences of a trial from the published setting, such as `depth 2 instead of 6`.

    Hyperparameters that the sweep searches may differ, except for sizes, because the published ones were
    searched too. The result is None if no setting of the layer on the task is published.

    Args:
        layer: Layer of the trial.
        document: Resolved specification of the sweep.
        params: Hyperparameters of the trial.
    """
    setting = SETTINGS.get((layer, str(document.get("task"))))
    if setting is None:
        return None
    sections = {name: getattr(setting, name) for name in ("model", "training", "data")}
    return tuple(
        line
        for name, wanted in sections.items()
        for line in other_options(*_compared(wanted, values(name, document, params), document["search"]))
    )


def obstacles(sweep: SweepRecord, params: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the differences of a sweep from the published setting; its profile where none is published.

    Args:
        sweep: Record of the sweep.
        params: Hyperparameters of the trial that represents it; empty before there is one.
    """
    document = sweep.document
    layer = params.get("layer", document.get("model", {}).get("layer"))
    found = departures(str(layer), document, params)
    if found is None:
        return (f"profile {sweep.profile}",) if sweep.profile else ()
    return found


def is_as_published(sweep: SweepRecord, params: Mapping[str, Any]) -> bool:
    """Return True if published figures belong beside a sweep: same data, network and training.

    Sweeps of functions and commands have no data of ours, so only their profile counts.
    """
    is_own = "trainable" in sweep.document or bool(sweep.facts.get("comparable", False))
    return is_own and not obstacles(sweep, params)


def values(section: str, document: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a section, with the defaults of the layer or task and the hyperparameters.

    Args:
        section: `data`, `model` or `training`.
        document: Resolved specification of a sweep of a network.
        params: Hyperparameters of a trial.
    """
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
    return {field.name: field.default for field in fields(settings) if field.default is not MISSING}


def _compared(
    wanted: Mapping[str, Any], values: Mapping[str, Any], search: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the published values that a trial must have and its own values, rounded alike."""
    searched = {name.partition(".")[0] for name in search} - SIZES
    counted = {name: value for name, value in wanted.items() if name not in searched}
    return (
        {name: _brief(value) for name, value in counted.items()},
        {name: _brief(values.get(name)) for name in counted},
    )


def _brief(value: Any) -> Any:
    """Return a number with four significant digits, and a range as a text."""
    if isinstance(value, list | tuple):
        return f"{value[0]:.4g} to {value[1]:.4g}"
    return f"{value:.4g}" if isinstance(value, float) else value
