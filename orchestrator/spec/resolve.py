"""From a file, a profile and overrides to one validated sweep."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from orchestrator.errors import BadInput
from orchestrator.spec import aims, rules
from orchestrator.spec.complaints import complaint, from_pydantic, nearest
from orchestrator.spec.document import Node, parse_fragment, read_document
from orchestrator.spec.methods import check_installed
from orchestrator.spec.model import Sweep
from orchestrator.spec.sections import SLUG, SpaceFile

AUTOMATIC = "laptop"
"""The profile that is taken where there is no GPU, if the file has it."""

_MERGED = frozenset({"data", "model", "training", "evaluate", "search"})


def load(path: Path, *, profile: str | None, overrides: Sequence[str] = (), gpus: int) -> Sweep:
    """Read, resolve and validate a search-space file.

    Args:
        path: the file.
        profile: a name of the file's `profiles`; None or `full` for none; `auto` for `laptop` where there is no GPU.
        overrides: `key=value` each, applied after the profile, such as `training.steps=1000`.
        gpus: number of GPUs that there are; it decides `auto` and nothing else.

    Raises:
        BadInput: anything about the file, the profile or an override cannot be right.
    """
    _check_name(path)
    root, text = read_document(path)
    chosen = _profile(root, profile, gpus)
    root = _with_profile(root, chosen)
    for override in overrides:
        root = _overridden(root, override)
    sweep = _sweep(root, path.stem, chosen, text)
    check_installed(root, sweep.sampler)
    return sweep


def from_document(document: Mapping[str, Any], source_text: str = "") -> Sweep:
    """Return the sweep that `Sweep.document` wrote.

    Raises:
        BadInput: the document is none of ours.
    """
    fields = dict(document)
    name, profile = fields.pop("name"), fields.pop("profile", None)
    return _sweep(_tree(fields, f"{name}, as recorded"), name, profile, source_text)


def _tree(value: Any, where: str) -> Node:
    if isinstance(value, Mapping):
        return Node({key: _tree(item, where) for key, item in value.items()}, where)
    if isinstance(value, list):
        return Node(tuple(_tree(item, where) for item in value), where)
    return Node(value, where, str(value))


def _check_name(path: Path) -> None:
    if not re.fullmatch(SLUG, path.stem):
        must = (
            "the file's name must be letters, digits, - and _, at most 64, beginning with a letter or digit"
        )
        shown = str(path).encode("unicode_escape").decode()[:200]
        raise BadInput(shown, must, repr(path.stem)[:80], "Rename it: a sweep is named by its file.")


def _profile(root: Node, wanted: str | None, gpus: int) -> str | None:
    assert isinstance(root.value, dict)
    declared = root.value.get("profiles")
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
        raise complaint(
            root, ("profiles",), "must be a mapping of profiles", "For example profiles: {laptop: {...}}."
        )
    for name, node in declared.value.items():
        path = ("profiles", name)
        if not re.fullmatch(SLUG, name) or name in {"full", "auto"}:
            must = "a profile's name must be letters, digits, - and _, and neither full nor auto"
            raise complaint(root, path, must, "Rename it.", repr(name)[:80])
        if not isinstance(node.value, dict):
            raise complaint(
                root, path, "must be a mapping", f"For example {name}: {{budget: {{trials: 12}}}}."
            )
        for key in node.value:
            if key == "profiles" or key not in SpaceFile.model_fields:
                raise complaint(
                    root, (*path, key), "is not a known key", nearest(key, SpaceFile.model_fields), f"`{key}`"
                )
    return list(declared.value)


def _with_profile(root: Node, name: str | None) -> Node:
    assert isinstance(root.value, dict)
    sections = {key: node for key, node in root.value.items() if key != "profiles"}
    if name is not None:
        overlay = root.value["profiles"].at((name,))
        assert isinstance(overlay.value, dict)
        for key, node in overlay.value.items():
            _merge(sections, key, node)
    return Node(sections, root.where)


def _merge(sections: dict[str, Node], key: str, node: Node) -> None:
    """Lay one section of a profile over the file's; `null` takes a key out."""
    base = sections.get(key)
    both = base is not None and isinstance(base.value, dict) and isinstance(node.value, dict)
    if node.value is None:
        sections.pop(key, None)
    elif key in _MERGED and base is not None and both:
        entries = {**_entries(base), **_entries(node)}
        sections[key] = Node(
            {name: item for name, item in entries.items() if not _taken_out(item, node, name)}, base.where
        )
    else:
        sections[key] = node


def _taken_out(item: Node, overlay: Node, name: str) -> bool:
    return item.value is None and name in _entries(overlay)


def _entries(node: Node) -> dict[str, Node]:
    assert isinstance(node.value, dict)
    return node.value


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
        raise BadInput(
            where, "must name a key of a mapping", node.shown(), "For example --set training.steps=1000."
        )
    entries = dict(node.value)
    known = [name for name in entries if key == name or key.startswith(f"{name}.")]
    name = max(known, key=len, default=key)
    if not known and key.partition(".")[0] in SpaceFile.model_fields:
        name = key.partition(".")[0]
        entries[name] = Node({}, where)
    if key == name:
        entries[name] = value
        if value.value is None:
            del entries[name]
    else:
        entries[name] = _placed(entries[name], key[len(name) + 1 :], value, where)
    return Node(entries, node.where)


def _sweep(root: Node, name: str, profile: str | None, text: str) -> Sweep:
    try:
        file = SpaceFile.model_validate(root.plain())
    except ValidationError as error:
        raise from_pydantic(error, SpaceFile, root) from None
    rules.check_task(root, file)
    space = rules.read_space(root, file)
    rules.check_model(root, file, space)
    objectives = aims.read_objectives(root, file)
    constraints = aims.read_constraints(root, file)
    sampler, scheduler = aims.read_methods(root, file, space, len(objectives))
    published = aims.read_published(root, file, space)
    aims.check_amounts(root, file)
    return Sweep(
        name=name,
        profile=profile,
        task=file.task,
        task_options=file.data,
        model=file.model,
        training=file.training,
        evaluate=file.evaluate,
        search=space,
        objectives=objectives,
        constraints=constraints,
        sampler=sampler,
        scheduler=scheduler,
        budget=file.budget,
        resources=file.resources,
        confirm=file.confirm,
        published=published,
        warm_start=tuple(file.warm_start),
        source_text=text,
    )
