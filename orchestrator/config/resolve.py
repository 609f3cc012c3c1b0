"""From a file, a profile and overrides to one validated sweep."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from orchestrator.config import objectives as aims
from orchestrator.config import rules
from orchestrator.config.document import Node, parse_fragment, read_document, tree_of
from orchestrator.config.methods import check_installed, read_methods
from orchestrator.config.search import read_space
from orchestrator.config.sections import SLUG, SpaceFile
from orchestrator.config.source import shown
from orchestrator.config.sweep_config import SweepConfig
from orchestrator.config.validation_errors import complaint, from_pydantic, nearest
from orchestrator.errors import BadInput
from orchestrator.redaction import redacted

AUTOMATIC = "laptop"
"""The profile that is taken where there is no GPU, if the file has it."""

_MERGED = frozenset({"data", "model", "training", "evaluate", "search"})


def load(path: Path, *, profile: str | None, overrides: Sequence[str] = (), gpus: int) -> SweepConfig:
    """Read, resolve and validate a search-space file.

    Args:
        path: the file.
        profile: a name of the file's `profiles`; None or `full` for none; `auto` for `laptop` without a GPU.
        overrides: `key=value` each, applied after the profile, such as `training.steps=1000`.
        gpus: number of GPUs that there are; it decides `auto` and nothing else.

    Raises:
        BadInput: anything about the file, the profile or an override cannot be right.
    """
    _check_name(path.stem, shown(path), "the file's name", "Rename it: it names the sweep.")
    root, text = read_document(path)
    return _resolved(root, path.stem, profile, overrides, gpus, text)


def from_dict(document: Mapping[str, Any], *, name: str, profile: str | None, gpus: int) -> SweepConfig:
    """Resolve and validate a search-space file that is given as a mapping.

    Args:
        document: mappings, lists, numbers, strings, booleans and None, as the file would hold them.
        name: name of the sweep, as the stem of the file would be.
        profile: as in `load`.
        gpus: as in `load`.

    Raises:
        BadInput: anything about the mapping or the profile cannot be right; the error names the key.
    """
    _check_name(name, "name", "a sweep's name", "Choose another.")
    root = tree_of(document)
    text = json.dumps(root.plain(), indent=1)
    return _resolved(root, name, profile, (), gpus, text)


def _resolved(
    root: Node, name: str, profile: str | None, overrides: Sequence[str], gpus: int, text: str
) -> SweepConfig:
    chosen = _profile(root, profile, gpus)
    root = _with_profile(root, chosen)
    for override in overrides:
        root = _overridden(root, override)
    sweep = _sweep(root, name, chosen, text)
    check_installed(root, sweep.sampler)
    return sweep


def from_document(
    document: Mapping[str, Any], source_text: str = "", overrides: Sequence[str] = ()
) -> SweepConfig:
    """Return the sweep that `Sweep.document` wrote.

    Args:
        document: what it wrote.
        source_text: the file it was read from.
        overrides: `key=value` each, such as `budget.trials=128`.

    Raises:
        BadInput: the document is none of ours, or an override cannot be right.
    """
    fields = dict(document)
    name, profile = fields.pop("name"), fields.pop("profile", None)
    root = tree_of(fields, f"{name}, as recorded")
    for override in overrides:
        root = _overridden(root, override)
    return _sweep(root, name, profile, source_text)


def _check_name(name: str, where: str, what: str, remedy: str) -> None:
    if not re.fullmatch(SLUG, name):
        must = f"{what} must be letters, digits, - and _, at most 64"
        raise BadInput(where, must, f"`{shown(Path(name))[:80]}`", remedy)


def _profile(root: Node, wanted: str | None, gpus: int) -> str | None:
    declared = root.entries.get("profiles")
    names = _profile_names(root, declared)
    if wanted == "auto":
        return AUTOMATIC if gpus == 0 and AUTOMATIC in names else None
    if wanted in {None, "full"}:
        return None
    if wanted not in names:
        raise BadInput(
            "--profile", "must name a profile", repr(wanted)[:80], nearest(str(wanted), [*names, "full"])
        )
    return wanted


def _profile_names(root: Node, declared: Node | None) -> list[str]:
    if declared is None:
        return []
    if not isinstance(declared.value, dict):
        raise complaint(root, ("profiles",), "must be a mapping of profiles", "For example {laptop: {...}}.")
    for name, node in declared.entries.items():
        _check_profile(root, name, node)
    return list(declared.entries)


def _check_profile(root: Node, name: str, node: Node) -> None:
    path = ("profiles", name)
    if not re.fullmatch(SLUG, name) or name in {"full", "auto"}:
        must = "a profile's name must be letters, digits, - and _, and neither full nor auto"
        raise complaint(root, path, must, "Rename it.", f"`{name[:80]}`")
    if not isinstance(node.value, dict):
        raise complaint(root, path, "must be a mapping", f"For example {name}: {{budget: {{trials: 12}}}}.")
    for key in node.entries:
        if key not in SpaceFile.model_fields:
            must, remedy = "must be a known key", nearest(key, SpaceFile.model_fields)
            raise complaint(root, (*path, key), must, remedy, f"`{key}`")


def _with_profile(root: Node, name: str | None) -> Node:
    sections = {key: node for key, node in root.entries.items() if key != "profiles"}
    if name is not None:
        for key, node in root.at(("profiles", name)).entries.items():
            _lay_over(sections, key, node)
    return Node(sections, root.where)


def _lay_over(sections: dict[str, Node], key: str, node: Node) -> None:
    """Lay one section of a profile over the file's; `null` takes out what it stands for."""
    base = sections.get(key)
    if node.value is None:
        sections.pop(key, None)
    elif key in _MERGED and base and isinstance(base.value, dict) and isinstance(node.value, dict):
        entries = {**base.entries, **node.entries}
        taken_out = {name for name, item in node.entries.items() if item.value is None}
        kept = {name: item for name, item in entries.items() if name not in taken_out}
        sections[key] = Node(kept, base.where)
    else:
        sections[key] = node


def _overridden(root: Node, override: str) -> Node:
    key, equals, text = override.partition("=")
    key = key.strip()
    if not equals or not key:
        raise BadInput(
            "--set", "must be key=value", repr(override)[:80], "For example --set training.steps=1000."
        )
    where = f"--set {key[:80]}"
    value = parse_fragment(text, where)
    return _placed(root, key, Node(value.value, where, value.text), where)


def _placed(node: Node, key: str, value: Node, where: str) -> Node:
    """Return the tree with `value` at a dotted key; names that hold dots themselves are found first."""
    if not isinstance(node.value, dict):
        remedy = "For example --set training.steps=1000."
        raise BadInput(where, "must name a key inside a mapping", node.shown(), remedy)
    entries = dict(node.entries)
    known = [name for name in entries if key == name or key.startswith(f"{name}.")]
    section = key.partition(".")[0]
    name = max(known, key=len) if known else section if section in SpaceFile.model_fields else key
    if name != key:
        entries[name] = _placed(entries.get(name, Node({}, where)), key[len(name) + 1 :], value, where)
    elif value.value is None:
        entries.pop(name, None)
    else:
        entries[name] = value
    return Node(entries, node.where)


def _sweep(root: Node, name: str, profile: str | None, text: str) -> SweepConfig:
    try:
        file = SpaceFile.model_validate(root.plain())
    except ValidationError as error:
        raise from_pydantic(error, SpaceFile, root) from None
    task_options = rules.read_task_options(root, file)
    space = read_space(root, file.search)
    model = rules.read_model(root, file.model, space)
    rules.check_training(root, file.training, space)
    rules.check_resources(root, file.resources)
    objectives = aims.read_objectives(root, file)
    sampler, scheduler = read_methods(root, file, space, len(objectives))
    return SweepConfig(
        name=name,
        profile=profile,
        task=file.task,
        task_options=task_options,
        model=model,
        training=file.training,
        evaluate=file.evaluate,
        search=space,
        objectives=objectives,
        constraints=aims.read_constraints(root, file),
        sampler=sampler,
        scheduler=scheduler,
        budget=file.budget,
        resources=file.resources,
        confirm=file.confirm,
        published=aims.read_published(root, file, space),
        warm_start=tuple(file.warm_start),
        source_text=redacted(text),
    )
