"""Loading of search-space files: a file or a mapping, a profile and overrides become one validated sweep."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.config import objectives, rules
from orchestrator.config.document import UNKNOWN_KEY, LocatedValue, Violation, nearest, tree_of
from orchestrator.config.feasible import MOST_LISTED, check_relations, check_setting, read_relations
from orchestrator.config.known import read_known
from orchestrator.config.mistakes import read_with_all_mistakes
from orchestrator.config.sections import (
    FILE_SECTIONS,
    MERGED_SECTIONS,
    SLUG,
    EvaluateSection,
    SpaceFile,
    TrainableFile,
    validated,
)
from orchestrator.config.space import Distribution, read_space
from orchestrator.config.strategy import SAMPLERS, check_installed, check_mutations, read_strategy, repeats
from orchestrator.config.sweep_config import FIRST, Objective, SweepConfig
from orchestrator.config.trainable import read_trainable
from orchestrator.config.yaml_reader import parse_document, parse_fragment, read_document
from orchestrator.errors import BadInput
from orchestrator.process_secrets import redacted
from orchestrator.text_file import shown

AUTOMATIC = "laptop"
"""The profile that `auto` means where there is no GPU, if the file has it."""


def load(path: Path, *, profile: str | None, overrides: Sequence[str] = (), gpus: int) -> SweepConfig:
    """Read, resolve and validate a search-space file.

    Args:
        path: Path of the file.
        profile: Name of the file's `profiles`; None or `full` for none; `auto` for `laptop` without a GPU.
        overrides: `key=value` each, applied after the profile, such as `training.steps=1000`.
        gpus: Number of GPUs; it decides `auto` and nothing else.

    Raises:
        BadInput: The file, the profile or an override is wrong.
    """
    check_name(path.stem, shown(path), "the file's name", "Rename it: it names the sweep.")
    root, text = read_document(path)
    return _resolved(root, path.stem, profile, overrides, gpus, text, path.resolve().parent)


def from_dict(document: Mapping[str, Any], *, name: str, profile: str | None, gpus: int) -> SweepConfig:
    """Resolve and validate a search-space file that is given as a mapping.

    Args:
        document: Mappings, lists, numbers, strings, booleans and None, as the file would hold them.
        name: Name of the sweep, as the stem of the file would be.
        profile: As in `load`.
        gpus: Number of GPUs, as in `load`.

    Raises:
        BadInput: The mapping or the profile is wrong; the error names the key.
    """
    check_name(name, "name", "a sweep's name", "Choose another.")
    root = tree_of(document)
    return _resolved(root, name, profile, (), gpus, json.dumps(root.plain(), indent=1), Path.cwd())


def from_tree(
    root: LocatedValue, *, name: str, profile: str | None = None, overrides: Sequence[str] = ()
) -> SweepConfig:
    """Validate a search-space file that was put together from parts of other files.

    Args:
        root: Sections of the file, without `profiles`; an error names the line that a value came from.
        name: Name of the sweep.
        profile: Name under which the sweep is smaller than published, or None.
        overrides: `key=value` each, such as `resources.gpu=1`.

    Raises:
        BadInput: A section or an override is wrong.
    """
    check_name(name, "name", "a sweep's name", "Choose another.")
    for override in overrides:
        root = _overridden(root, override, "--set ")
    sweep = _validated(root, name, profile, json.dumps(root.plain(), indent=1))
    with root.pointing():
        _check_known(sweep)
        _check_budget(sweep)
        check_installed(sweep.sampler)
        check_mutations(sweep.search, sweep.scheduler)
        _check_settings(sweep)
    return sweep


def from_document(
    document: Mapping[str, Any], source_text: str = "", overrides: Sequence[str] = ()
) -> SweepConfig:
    """Return the sweep of a `SweepConfig.document`.

    Args:
        document: Document of the sweep.
        source_text: File it was read from.
        overrides: `key=value` each, such as `budget.trials=128`.

    Raises:
        BadInput: The document or an override is not valid.
    """
    fields = dict(document)
    name, profile = fields.pop("name"), fields.pop("profile", None)
    trainable = fields.get("trainable")
    if trainable is not None:
        fields["trainable"] = {key: value for key, value in trainable.items() if key != "free"}
        if isinstance(recorded := fields.get("objective"), Mapping):
            fields["objective"] = _in_order(recorded)
    root = tree_of(fields, f"{name}, as recorded")
    for override in overrides:
        root = _overridden(root, override, "")
    return _validated(root, name, profile, source_text, recorded=trainable)


def _in_order(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Restore the order of the objectives in a document with sorted keys."""
    directions = sorted(recorded.keys() - {FIRST}, key=lambda name: name != recorded.get(FIRST, "maximize"))
    return {direction: recorded[direction] for direction in directions}


def _resolved(
    root: LocatedValue,
    name: str,
    profile: str | None,
    overrides: Sequence[str],
    gpus: int,
    text: str,
    folder: Path,
) -> SweepConfig:
    chosen = profile_of(root, profile, gpus)
    root = with_profile(root, chosen)
    for override in overrides:
        root = _overridden(root, override, "--set ")
    sweep = read_with_all_mistakes(lambda file: _validated(file, name, chosen, text, folder), root)
    with root.pointing():
        _check_budget(sweep)
        check_installed(sweep.sampler)
        check_mutations(sweep.search, sweep.scheduler)
        _check_settings(sweep)
    return sweep


def _check_known(sweep: SweepConfig) -> None:
    """Refuse sources of known results, which only a file of one sweep may name."""
    for index, known in enumerate(sweep.known):
        if known.results is None:
            must = "must hold its results in a part of another file"
            raise Violation(("known", index), must, "Write {source: ..., results: [...]}.", known.source)


def _check_budget(sweep: SweepConfig) -> None:
    """Refuse a continuation in a file: the best trials are known once the sweep has finished."""
    if sweep.budget.longer is not None:
        must = "must be left out of a file, because it continues trials of a finished sweep"
        raise Violation(("budget", "longer"), must, "Use `--extend steps=20000 --top 4` then.", "`longer`")


def _check_settings(sweep: SweepConfig) -> None:
    """Check the relations, and the settings to try first."""
    check_relations(sweep.feasible)
    if SAMPLERS.settings(sweep.sampler.name).finite and sweep.require and sweep.feasible.count is None:
        must = f"must be left out, or the grid must have at most {MOST_LISTED:,} combinations"
        raise Violation(("require",), must, "Search fewer values.")
    published = sweep.published_params()
    if published is not None:
        check_setting(sweep.feasible, published, ("published", "values"))
    earlier = {} if published is None else {sweep.feasible.key(published): "the published values"}
    for index, point in enumerate(sweep.first):
        check_setting(sweep.feasible, point, ("try", index))
        key = sweep.feasible.key(point)
        if key in earlier and point.keys() == sweep.active(point) and not repeats(sweep):
            must = "must differ from the settings before it, unless `repeat: true`"
            raise Violation(("try", index), must, "Remove it.", f"the same as {earlier[key]}")
        earlier.setdefault(key, f"the setting {index + 1} of `try`")


def check_name(name: str, where: str, what: str, remedy: str) -> None:
    """Check that a name, such as the stem of a search-space file, can be that of a sweep.

    Raises:
        BadInput: It has other characters than those of a slug, or too many.
    """
    if not re.fullmatch(SLUG, name):
        must = f"{what} must be letters, digits, - and _, at most 64"
        raise BadInput(where, must, f"`{shown(Path(name))[:80]}`", remedy)


def _profile_names(declared: LocatedValue | None) -> list[str]:
    if declared is None:
        return []
    if not isinstance(declared.value, dict):
        raise Violation(("profiles",), "must be a mapping of profiles", "For example {laptop: {...}}.")
    for name, node in declared.entries.items():
        _check_profile(name, node)
    return list(declared.entries)


def _check_profile(name: str, node: LocatedValue) -> None:
    path = ("profiles", name)
    if not re.fullmatch(SLUG, name) or name in {"full", "auto"}:
        must = "a profile's name must be letters, digits, - and _, and neither full nor auto"
        raise Violation(path, must, "Rename it.", f"`{name[:80]}`")
    if not isinstance(node.value, dict):
        raise Violation(path, "must be a mapping", f"For example {name}: {{budget: {{trials: 12}}}}.")
    for key in node.entries:
        if key not in FILE_SECTIONS:
            remedy = nearest(key, FILE_SECTIONS)
            raise Violation((*path, key), UNKNOWN_KEY, remedy, "")


def budget_in(text: str, profile: str | None) -> Any:
    """Return the budget of a file under a profile, or None if it is unknown."""
    try:
        return with_profile(parse_document(text, "the file"), profile).entries["budget"].plain()
    except (BadInput, Violation, KeyError):
        return None


def with_profile(root: LocatedValue, name: str | None) -> LocatedValue:
    """Return the tree of a file without `profiles`, with one of them applied if there is one."""
    sections = {key: node for key, node in root.entries.items() if key != "profiles"}
    file = LocatedValue(sections, root.where)
    return file if name is None else merged(file, root.at(("profiles", name)))


def merged(root: LocatedValue, changes: LocatedValue) -> LocatedValue:
    """Return the tree of a file with changes merged like a profile."""
    sections = dict(root.entries)
    for key, node in changes.entries.items():
        _apply(sections, key, node)
    return LocatedValue(sections, root.where)


def profile_of(root: LocatedValue, wanted: str | None, gpus: int) -> str | None:
    """Return the name of the profile of a file to apply, or None for the file as it stands.

    Args:
        root: Sections of the file.
        wanted: Profile, as in `load`.
        gpus: Number of GPUs, as in `load`.

    Raises:
        BadInput: The file has no such profile, or its profiles are wrong.
    """
    with root.pointing():
        return choose_profile(_profile_names(root.entries.get("profiles")), wanted, gpus)


def choose_profile(names: Collection[str], wanted: str | None, gpus: int) -> str | None:
    """Return the name of the profile to apply, or None for the file as it stands.

    Args:
        names: Names of the profiles that the file has.
        wanted: Profile, as in `load`.
        gpus: Number of GPUs, as in `load`.

    Raises:
        BadInput: The file has no such profile.
    """
    if wanted == "auto":
        return AUTOMATIC if gpus == 0 and AUTOMATIC in names else None
    if wanted in {None, "full"}:
        return None
    if wanted not in names:
        remedy = nearest(str(wanted), [*names, "full"])
        raise BadInput("--profile", "must name a profile", repr(wanted)[:80], remedy)
    return wanted


def _apply(sections: dict[str, LocatedValue], key: str, node: LocatedValue) -> None:
    """Merge one section of a profile; `null` removes a key."""
    base = sections.get(key)
    if node.value is None:
        sections.pop(key, None)
    elif key in MERGED_SECTIONS and base and isinstance(base.value, dict) and isinstance(node.value, dict):
        entries = {**base.entries, **node.entries}
        removed = {name for name, item in node.entries.items() if item.value is None}
        kept = {name: item for name, item in entries.items() if name not in removed}
        sections[key] = LocatedValue(kept, base.where)
    else:
        sections[key] = node


def _overridden(root: LocatedValue, override: str, option: str) -> LocatedValue:
    """Return the tree with one override applied."""
    key, equals, text = override.partition("=")
    key = key.strip()
    if not equals or not key:
        remedy = "For example --set training.steps=1000."
        raise BadInput("--set", "must be key=value", repr(override)[:80], remedy)
    where = f"{option}{key[:80]}"
    value = parse_fragment(text, where)
    return _replaced(root, key, LocatedValue(value.value, where if option else "", value.text), where)


def _replaced(
    node: LocatedValue, key: str, value: LocatedValue, where: str, path: tuple[str, ...] = ()
) -> LocatedValue:
    """Return the tree with `value` at a dotted key; an existing name that holds dots is preferred."""
    if not isinstance(node.value, dict):
        remedy = "For example --set training.steps=1000."
        raise BadInput(where, "must name a key inside a mapping", node.shown(), remedy)
    entries = dict(node.entries)
    known = [name for name in entries if key == name or key.startswith(f"{name}.")]
    first = key.partition(".")[0]
    is_mapping = _is_mapping((*path, first)) and "." in key
    name = max(known, key=len) if known else first if is_mapping else key
    if name != key:
        inner = entries.get(name, LocatedValue({}, where))
        entries[name] = _replaced(inner, key[len(name) + 1 :], value, where, (*path, name))
    elif value.value is None:
        entries.pop(name, None)
    else:
        entries[name] = value
    return LocatedValue(entries, node.where)


def _is_mapping(path: tuple[str, ...]) -> bool:
    """Return True for a section of the file, for `model.match`, `model.layers` and a layer in it."""
    if len(path) == 1:
        return path[0] in FILE_SECTIONS
    return path == ("model", "match") or (path[:2] == ("model", "layers") and len(path) <= 3)


def _validated(
    root: LocatedValue,
    name: str,
    profile: str | None,
    text: str,
    folder: Path = Path(),
    recorded: Mapping[str, Any] | None = None,
) -> SweepConfig:
    """Return the validated sweep."""
    with root.pointing():
        if "trainable" in root.entries:
            return _of_trainable(root, name, profile, text, folder, recorded)
        file = validated(SpaceFile, root.plain())
        task_options = rules.read_task_options(file)
        space = read_space(file.search)
        require = read_relations(file.require)
        model = rules.read_model(file, space, require)
        training = rules.read_training(file, model, space)
        rules.check_resources(file.resources)
        goals = objectives.read_objectives(file)
        return SweepConfig(
            name=name,
            profile=profile,
            task=file.task,
            task_options=task_options,
            model=model,
            training=training,
            evaluate=file.evaluate,
            search=space,
            objectives=goals,
            source_text=redacted(text),
            require=require,
            **_of_study(file, space, goals, rules.mutable(file, space), task_options),
        )


def _of_trainable(
    root: LocatedValue,
    name: str,
    profile: str | None,
    text: str,
    folder: Path,
    recorded: Mapping[str, Any] | None,
) -> SweepConfig:
    """Return the validated sweep of a file with a function, a command or a program."""
    for key in ("task", "data", "model", "evaluate"):
        if key in root.entries:
            must = "cannot be combined with `trainable`"
            raise Violation((key,), must, f"Remove `{key}`, or `trainable`.", f"`{key}`")
    file = validated(TrainableFile, root.plain())
    space = read_space(file.search)
    trainable = read_trainable(file, space, folder, recorded)
    rules.check_share(file.resources)
    named = root.at(("objective",)).value
    goals = objectives.read_named_objectives(file, list(named) if isinstance(named, dict) else [])
    return SweepConfig(
        name=name,
        profile=profile,
        task=trainable.name,
        task_options={},
        model=None,
        training=file.training,
        evaluate=EvaluateSection(),
        search=space,
        objectives=goals,
        source_text=redacted(text),
        trainable=trainable,
        fixed=file.fixed,
        require=read_relations(file.require),
        **_of_study(file, space, goals, trainable.changeable, {}),
    )


def _of_study(
    file: SpaceFile | TrainableFile,
    space: Mapping[str, Distribution],
    goals: tuple[Objective, ...],
    mutable: frozenset[str],
    task_options: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the fields of `SweepConfig` that files of both kinds determine alike, after their checks."""
    rules.check_confirm(file.confirm, len(goals))
    sampler, scheduler = read_strategy(file, space, len(goals), mutable)
    objectives.check_compared(file, goals, scheduler)
    return {
        "constraints": objectives.read_constraints(file),
        "sampler": sampler,
        "scheduler": scheduler,
        "budget": file.budget,
        "resources": file.resources,
        "confirm": file.confirm,
        "published": objectives.read_published(file, space, task_options),
        "warm_start": tuple(file.warm_start),
        "known": read_known(file, space, goals),
        "first": objectives.read_points(file.first, space),
        "repeat": file.repeat,
        "reports": objectives.read_reports(file, goals),
        "prefers": objectives.check_single(file, goals),
        "notify": rules.read_notify(file),
    }
