"""The JSON Schema of a search-space file, for editors: `python -m orchestrator.config.json_schema` writes it.

It is generated from the sections, the layers and the tasks, so that an editor completes valid keys and
underlines mistakes. Rules between fields are checked only by `load`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from orchestrator.config.hyperparameters import searchable
from orchestrator.config.sections import MERGED_SECTIONS, OWN_FIELDS, SLUG, SpaceFile, TrainableFile
from orchestrator.config.strategy import SAMPLERS, SCHEDULERS, options_section
from trainables.layers import LAYERS
from trainables.settings import LayerSettings, Option
from trainables.tasks import TASKS

DESTINATION = Path("search_spaces/schema.json")

_TASK, _OWN = "task", "trainable"
"""The two kinds of file."""

_NUMBER = r"(pi|[0-9][0-9_]*(\.[0-9]*)?([eE][-+]?[0-9]+)?|\.[0-9]+([eE][-+]?[0-9]+)?)"
# Editors read 50_000 and pi/10 as text, and so must let them pass where a number stands.
_EXPRESSION = {"type": "string", "pattern": rf"^[-+]?{_NUMBER}(\s*[*/]\s*{_NUMBER})*$"}
_REFERENCE = {"$ref": "#/$defs/Expression"}


def schema() -> dict[str, Any]:
    """Return the schema of a whole file."""
    raw, other = SpaceFile.model_json_schema(), TrainableFile.model_json_schema()
    sections = {name: _plain(part) for name, part in {**other.pop("$defs"), **raw.pop("$defs")}.items()}
    properties: dict[str, Any] = {
        name: _plain(part) for name, part in {**other["properties"], **raw["properties"]}.items()
    }
    trainings = {file: _plain(part["properties"]["training"]) for file, part in ((_TASK, raw), (_OWN, other))}
    properties["training"] = {"description": "How a trial is trained.", "type": "object"}
    properties["task"] = {**properties["task"], "enum": sorted(TASKS)}
    properties["sampler"] |= {"$ref": "#/$defs/Sampler"}
    properties["scheduler"] |= {"$ref": "#/$defs/Scheduler"}
    sections["Expression"] = _EXPRESSION
    sections["Sampler"] = _named({name: options_section("sampler", name) for name in SAMPLERS})
    sections["Scheduler"] = _named({name: options_section("scheduler", name) for name in SCHEDULERS})
    sections["ModelSection"] = _model(sections["ModelSection"])
    sections["PublishedSection"] |= _published()
    for direction in ("maximize", "minimize"):
        sections["ObjectiveSection"]["properties"][direction] = _one_or_more({"type": "string"})
    properties["known"] = _known(properties["known"])
    sections["Profile"] = _profile(properties, sections)
    properties["profiles"] = {
        "description": "Variants of the file by name; `laptop` is used on machines without a GPU.",
        "type": "object",
        "propertyNames": {"pattern": SLUG},
        "additionalProperties": {"$ref": "#/$defs/Profile"},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Search space of a sweep",
        "type": "object",
        "properties": properties,
        "required": sorted(set(raw["required"]) & set(other["required"])),
        "additionalProperties": False,
        "allOf": [
            _kind_of_file(trainings, raw["required"]),
            *(_task_options(name, task.options) for name, task in sorted(TASKS.items())),
        ],
        "$defs": sections,
    }


def _kind_of_file(trainings: Mapping[str, Any], required: Sequence[str]) -> dict[str, Any]:
    """Return the conditional rules for files with a `trainable` and for files with a task and a network."""
    left_out = dict.fromkeys(("task", "data", "model", "evaluate"), False)
    network = {
        "fixed": False,
        "training": trainings[_TASK],
        "search": {"propertyNames": {"enum": _searchable()}},
    }
    return {
        "if": {"required": ["trainable"]},
        "then": {"properties": {"training": trainings[_OWN], **left_out}},
        "else": {"properties": network, "required": list(required)},
    }


def _plain(part: Any) -> Any:
    """Return part of pydantic's schema without titles and with expressions allowed as numbers."""
    if isinstance(part, list):
        return [_plain(item) for item in part]
    if not isinstance(part, dict):
        return part
    kept = {name: _plain(item) for name, item in part.items() if name != "title" or isinstance(item, dict)}
    if kept.get("type") in {"number", "integer"}:
        around = {name: kept.pop(name) for name in ("description", "default", "examples") if name in kept}
        return {**around, "anyOf": [kept, _REFERENCE]}
    return kept


def _named(models: Mapping[str, type[BaseModel]]) -> dict[str, Any]:
    """Return the schema of `name` or `{name: {options}}`."""
    options = {name: _plain(model.model_json_schema()) for name, model in models.items()}
    one = {"type": "object", "properties": options, "additionalProperties": False}
    return {"anyOf": [{"enum": list(options)}, {**one, "minProperties": 1, "maxProperties": 1}]}


def _one_or_more(item: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [item, {"type": "array", "items": item, "minItems": 1}]}


def _searchable() -> list[str]:
    return sorted({name for layer in LAYERS for name in searchable(layer)})


def _model(section: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of `model` with the keys of every layer."""
    properties = dict(section["properties"])
    properties["layer"] = {**properties["layer"], "enum": sorted(LAYERS)}
    sizes = {name: properties[name] for name in OWN_FIELDS}
    by_layer = {layer: _keys(LAYERS.settings(layer)) for layer in sorted(LAYERS)}
    alone = {layer: _closed({**sizes, **keys}) for layer, keys in by_layer.items()}
    properties["layers"] = {**properties["layers"], **_closed(alone)}
    names = sorted({name for keys in by_layer.values() for name in keys})
    for name in names:
        properties[name] = _any_of(keys[name] for keys in by_layer.values() if name in keys)
    return {**section, "properties": properties, "additionalProperties": False}


def _keys(layer: LayerSettings) -> dict[str, Any]:
    """Return the options and ranges of a layer."""
    pair = {"type": "array", "items": _plain({"type": "number"}), "minItems": 2, "maxItems": 2}
    ranges = {name: {"description": spec.summary, **pair} for name, spec in layer.ranges.items()}
    return {name: _option(option) for name, option in layer.options.items()} | ranges


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _any_of(variants: Iterable[Any]) -> Any:
    different = list({json.dumps(variant, sort_keys=True): variant for variant in variants}.values())
    return different[0] if len(different) == 1 else {"anyOf": different}


def _option(option: Option) -> dict[str, Any]:
    about: dict[str, Any] = {"description": option.summary, "default": option.default}
    if option.choices is not None:
        return {**about, "enum": list(option.choices)}
    types = {bool: "boolean", int: "integer", float: "number", str: "string"}
    kind: dict[str, Any] = {"type": types[type(option.default)]}
    if option.at_least is not None:
        kind["minimum"] = option.at_least
    return {**about, **_plain(kind)}


def _known(listed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of `known`: one source or several, each a word or a mapping."""
    about = {name: listed[name] for name in ("description", "default", "examples")}
    one = {"anyOf": [{"type": "string"}, listed["items"]]}
    return {**about, "anyOf": [one, {"type": "array", "items": one, "maxItems": listed["maxItems"]}]}


def _published() -> dict[str, Any]:
    return {"patternProperties": {"^test/": _plain({"type": "number"})}, "additionalProperties": False}


def _task_options(name: str, options: Mapping[str, Option]) -> dict[str, Any]:
    """Return the rule for `data`, of the file and of its profiles, where the task is `name`."""
    known = {key: _option(option) for key, option in options.items()}
    data = {
        "properties": {key: _or_null(part) for key, part in known.items()},
        "additionalProperties": False,
    }
    profiles = {"additionalProperties": {"properties": {"data": {"anyOf": [data, {"type": "null"}]}}}}
    return {
        "if": {"properties": {"task": {"const": name}}},
        "then": {"properties": {"data": data, "profiles": profiles}},
    }


def _or_null(part: Any) -> Any:
    return {"anyOf": [part, {"type": "null"}]}


def _profile(properties: Mapping[str, Any], sections: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a profile: partial sections, and null for removed ones."""
    parts = {name: _or_null(_in_part(name, part, sections)) for name, part in properties.items()}
    return {"type": "object", "properties": parts, "additionalProperties": False}


def _in_part(name: str, part: Mapping[str, Any], sections: dict[str, Any]) -> Any:
    if name not in MERGED_SECTIONS or name in {"data", "fixed"}:
        return part
    if name == "search":
        return {**part, "minProperties": 0, "additionalProperties": _or_null(part["additionalProperties"])}
    names = ("TrainingSection", "ClockSection") if name == "training" else (_referenced(part),)
    known = {key: kept for section in names for key, kept in sections[section]["properties"].items()}
    fields = {key: _or_null(kept) for key, kept in known.items()}
    return {"type": "object", "properties": fields, "additionalProperties": False}


def _referenced(part: Mapping[str, Any]) -> str:
    return str(part["$ref"]).removeprefix("#/$defs/")


def written() -> str:
    """Return the text of the published file."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    DESTINATION.write_text(written(), encoding="utf-8")
