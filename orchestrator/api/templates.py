"""Templates: search-space files with their schema, cluster files, and drafts for scripts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from types import MappingProxyType

from orchestrator.accounts import umask
from orchestrator.config import json_schema
from orchestrator.config.imports import argparse_draft
from orchestrator.errors import BadInput
from trainables.sources import text_of

SCHEMA = "schema.json"
"""Name of the JSON Schema, to which the first line of a search-space file refers."""

EXAMPLE_NAME = "example"

EXAMPLE = """\
# Copy memory: ten symbols, ten blanks, and the ten symbols again. No GPU and no download.
task: copy
data: {delay: 10, examples: 2_000}
model: {layer: lru, depth: 1, d_model: 16, d_state: 32}
training: {steps: 200, interval: 20, batch_size: 16}
evaluate: {examples: 200}
search:
  learning_rate: {log_uniform: [1e-3, 1e-1]}
  recurrent_learning_rate: {log_uniform: [1e-4, 1e-2]}
objective: {minimize: val/loss}
sampler: {tpe: {seed: 0}}
scheduler: {asha: {reduction: 4, grace: 0.2}}
budget: {trials: 8}
resources: {cpu: 1}
"""
"""A small search-space file that runs everywhere."""

_NODES = ("setup.sh", "node.sh")

CLUSTERS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "aws": ("aws.yaml", *_NODES, "spot.sh"),
        "gcp": ("gcp.yaml", *_NODES, "spot.sh"),
        "own-machines": ("own-machines.yaml", *_NODES),
        "slurm": ("slurm.sh", "setup.sh"),
        "service": ("sweep-serve.service",),
    }
)
"""Files of each kind of cluster that needs no checkout."""


def tasks() -> list[str]:
    """Return the names of the search-space templates; most are names of tasks."""
    return sorted(
        entry.name.removesuffix(".yaml")
        for entry in _shipped("search_spaces")
        if entry.name.endswith(".yaml")
    )


def search_space(name: str) -> str:
    """Return the text of a shipped search-space file.

    Args:
        name: Name of the file, one of `tasks`.

    Raises:
        BadInput: The name is unknown.
    """
    _check_name("search space", "must be the name of a search space", name, tasks())
    return _text("search_spaces", f"{name}.yaml")


def write_search_space(name: str, folder: str | Path = ".") -> list[Path]:
    """Write the search-space file of a task, and the JSON Schema with which editors complete and check it.

    The schema includes the tasks and layers of installed plugins, and replaces an existing one.

    Args:
        name: Name of the file, one of `tasks`.
        folder: Folder for the files; created if missing.

    Returns:
        The search-space file and the schema.

    Raises:
        BadInput: The name is unknown, or the file exists already.
    """
    _check_name("sweep init", "must be the name of a search space", name, tasks())
    text = _text("search_spaces", f"{name}.yaml")
    file, schema = Path(folder, f"{name}.yaml"), Path(folder, SCHEMA)
    _check_absent([file])
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    schema.write_text(json_schema.written(), encoding="utf-8")
    return [file, schema]


def write_cluster(kind: str, folder: str | Path = ".") -> list[Path]:
    """Write the files for a kind of cluster to `cluster` in a folder.

    Args:
        kind: Kind of cluster, one of `CLUSTERS`.
        folder: Folder that the cluster copies to every node; created if missing.

    Returns:
        The written files; the first one contains the values to fill in.

    Raises:
        BadInput: The kind is unknown, or a file exists already.
    """
    _check_name("--cluster", "must be a kind of cluster", kind, CLUSTERS)
    written = {Path(folder, "cluster", name): _text("cluster", name) for name in CLUSTERS[kind]}
    _check_absent(written)
    for file, text in written.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        if file.suffix == ".sh":
            file.chmod(0o777 & ~umask())
    return list(written)


def write_for_script(script: Path) -> tuple[Path, list[str]]:
    """Write a search-space file beside a Python script, from its options and what it reports or prints.

    Options of `argparse`, click and Hydra's configuration are read. The script is not run.

    Args:
        script: Path of the script.

    Returns:
        The file, named after the script, with `-` for what the name of a sweep cannot have; and what was
        guessed or is to be completed, a sentence each.

    Raises:
        BadInput: The script cannot be read, has no option that can be searched, or the file exists.
    """
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", script.stem).strip("-_")[:64]
    file = script.with_name(f"{name or 'sweep'}.yaml")
    text = argparse_draft.draft(_source_of(script), script.name, script.parent)
    _check_absent([file])
    file.write_text(text, encoding="utf-8")
    comments = [line.removeprefix("# ") for line in text.splitlines() if line.startswith("# ")]
    return file, comments[1:]


def _source_of(script: Path) -> str:
    try:
        return text_of(script)
    except (OSError, SyntaxError, ValueError) as error:
        raise BadInput(
            str(script), "must be a Python script", str(error), "Name the script itself."
        ) from None


def _shipped(folder: str) -> list[Traversable]:
    return list((files("orchestrator") / "files" / folder).iterdir())


def _text(folder: str, name: str) -> str:
    return (files("orchestrator") / "files" / folder / name).read_text(encoding="utf-8")


def _check_name(where: str, must: str, name: str, known: Iterable[str]) -> None:
    names = sorted(known)
    if name not in names:
        near = get_close_matches(name, names, n=1)
        remedy = f"Did you mean `{near[0]}`?" if near else f"Choose one of {', '.join(names)}."
        raise BadInput(where, must, f"`{name}`", remedy)


def _check_absent(written: Iterable[Path]) -> None:
    for file in written:
        if file.exists():
            remedy = "Choose another folder, or move the file away."
            raise BadInput(str(file), "already exists", "", remedy)
