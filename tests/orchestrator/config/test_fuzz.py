"""Loading any file gives a sweep or a refusal in one line, never another exception."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.config import SweepConfig, load
from orchestrator.config.sections import SpaceFile
from orchestrator.config.yaml_reader import parse_document
from orchestrator.errors import BadInput
from tests.orchestrator.config.files import VALID

FOLDER = Path(tempfile.mkdtemp())
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(
        ["~", "on", "012", "pi/10", "2*pi", "1/0", ".inf", "-.nan", "1e400", "1_0", "!!str x", "&a 1",
         "*a", "<<", "[", "{", "}", "- ", ": ", "#", "|", ">", "%", "@", "`", "'", '"', "\x00", "\ud7ff",
         "\u2028", "rotrnn", "lru", "listops", "tpe", "grid", "cmaes", "pbt", "asha", "none", "val/loss"]
    ),
)  # fmt: skip
KEYS = st.one_of(
    st.sampled_from(
        [*SpaceFile.model_fields, "profiles", "laptop", "layer", "heads", "depth", "uniform", "int", "choice",
         "when", "step", "gamma_init", "gamma_init.min", "gamma_init.max", "theta_init.max", "dropout",
         "seed", "steps", "values", "test/accuracy", "maximize", "mutations", "at_least",
         "gpu", "length", "blocks", "projections", "r_init", "r_init.min", "algorithm"]
    ),
    st.text(max_size=8),
)  # fmt: skip
TREES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=12,
)


def _written(tree: Any) -> str:
    """Write a tree as flow YAML without quoting anything, so that hostile scalars reach the scanner."""
    if isinstance(tree, dict):
        return "{" + ", ".join(f"{key}: {_written(value)}" for key, value in tree.items()) + "}"
    if isinstance(tree, list):
        return "[" + ", ".join(map(_written, tree)) + "]"
    return str(tree)


def _paths(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [path, *(deeper for key, value in items for deeper in _paths(value, (*path, key)))]


def _replaced(tree: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copy = dict(tree) if isinstance(tree, dict) else list(tree)
    copy[path[0]] = _replaced(copy[path[0]], path[1:], value)
    return copy


PLAIN: Any = parse_document(VALID, "valid").plain()
PATHS = _paths(PLAIN)


@st.composite
def mutations(draw: st.DrawFn) -> str:
    """Draw the valid file with a few values replaced, and perhaps a key added."""
    tree = PLAIN
    for path in draw(st.lists(st.sampled_from(PATHS[1:]), min_size=1, max_size=3)):
        if path in _paths(tree):
            tree = _replaced(tree, path, draw(TREES))
    mappings = [path for path in _paths(tree) if isinstance(_at(tree, path), dict)]
    if draw(st.booleans()) and mappings:
        path = draw(st.sampled_from(mappings))
        tree = _replaced(tree, path, {**_at(tree, path), draw(KEYS): draw(TREES)})
    return "\n".join(f"{key}: {_written(value)}" for key, value in tree.items())


def _at(tree: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        tree = tree[key]
    return tree


@st.composite
def splices(draw: st.DrawFn) -> bytes:
    """Draw the bytes of the valid file with a piece replaced by random bytes."""
    data = VALID.encode()
    start = draw(st.integers(0, len(data)))
    end = draw(st.integers(start, min(len(data), start + 40)))
    return data[:start] + draw(st.binary(max_size=12)) + data[end:]


FILES = st.one_of(mutations(), splices(), st.binary(max_size=200), TREES.map(_written))
OVERRIDES = st.lists(
    st.tuples(st.sampled_from([".".join(map(str, path)) for path in PATHS[1:]]), SCALARS).map(
        lambda pair: f"{pair[0]}={pair[1]}"
    ),
    max_size=2,
)


def _load(content: str | bytes, overrides: list[str], gpus: int) -> None:
    """Load one file; its sweep must be usable, or its refusal one short line."""
    path = FOLDER / "fuzz.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
    try:
        sweep = load(path, profile="auto", overrides=overrides, gpus=gpus)
    except BadInput as error:
        line = str(error)
        assert len(line) < 2000
        assert line.isprintable()
        return
    assert isinstance(sweep, SweepConfig)
    assert len(sweep.id) < 200
    if (params := sweep.published_params()) is not None:
        sweep.settings(params, sweep.trial_seed(0, params))


COMMON = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}


@settings(max_examples=300, derandomize=True, **COMMON)
@given(FILES, OVERRIDES, st.integers(0, 1))
def test_never_a_traceback(content: str | bytes, overrides: list[str], gpus: int) -> None:
    """Load a few hundred hostile files, the same ones in every run."""
    _load(content, overrides, gpus)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@settings(max_examples=10_000, **COMMON)
@given(FILES, OVERRIDES, st.integers(0, 1))
def test_never_a_traceback_in_ten_thousand(content: str | bytes, overrides: list[str], gpus: int) -> None:
    """Load ten thousand hostile files."""
    _load(content, overrides, gpus)
