"""Relations between hyperparameters, the settings that satisfy them, and settings to try first."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.config import from_document, load
from orchestrator.config.feasible import FeasibleSpace
from orchestrator.config.relations import RelationError, read_relation
from orchestrator.config.space import chosen, ranged
from orchestrator.config.strategy import most_trials
from orchestrator.config.sweep_config import SweepConfig
from orchestrator.errors import BadInput
from tests.orchestrator.config.files import edited, loaded

FILE = """
trainable: {{function: train.py:train}}
search:
  width: {{int: [1, 8]}}
  heads: {{int: [1, 8]}}
  rate: {{log_uniform: [1e-5, 1e-1]}}
  kind: {{choice: [sgd, adam]}}
  momentum: {{uniform: [0.5, 0.9], when: {{kind: sgd}}}}
fixed: {{largest: 40, name: net}}
training: {{steps: 100, interval: 10}}
objective: {{minimize: val/loss}}
budget: {{trials: 4}}
{more}
"""


def read(folder: Path, more: str = "", *overrides: str) -> SweepConfig:
    file = folder / "space.yaml"
    file.write_text(FILE.format(more=more))
    return load(file, profile=None, overrides=overrides, gpus=1)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("a >= 2 * b", True),
        ("a > 2 * b", False),
        ("b < a", True),
        ("1 < b < a <= 4", True),
        ("a - b - 1 == 1", True),
        ("a / b / 2 == 1", True),
        ("a - (b - 1) == 3", True),
        ("-a + 5 != b", True),
        ("a * pi > 12.5", True),
        ("c.d <= 1e-3", True),
        ("a / zero > 1", False),
        ("50_000 > a", True),
        ("word > 1", True),
        ("flag > 1", True),
        ("missing > 1", True),
        ("nothing > 1", True),
    ],
)
def test_relations(text: str, holds: bool) -> None:
    """A relation that has no number for one of its names does not apply."""
    values: dict[str, Any] = {"a": 4, "b": 2, "c.d": 1e-3, "zero": 0, "word": "x", "flag": True}
    assert read_relation(text).holds({**values, "nothing": None}) is holds


@pytest.mark.parametrize(
    ("text", "must"),
    [
        ("", "name or a number"),
        ("a", "must compare sums"),
        ("a < b c", "must compare sums"),
        ("a = b", "must consist of"),
        ("a < __import__('os')", "must consist of"),
        ("a < b ** 2", "name or a number"),
        ("(a < b", "close each bracket"),
        ("a < b)", "must compare sums"),
        ("1 < 2", "must name a hyperparameter"),
        ("a < 012", "must have numbers"),
        ("a < 1e999", "must have numbers"),
        ("a <" + " a +" * 100 + "1", "at most 250"),
    ],
)
def test_what_is_no_relation(text: str, must: str) -> None:
    with pytest.raises(RelationError, match=must):
        read_relation(text)


@given(st.text(alphabet="ab12.()+-*/<>=! e_pi", max_size=40))
def test_any_text_is_a_relation_or_is_refused(text: str) -> None:
    try:
        relation = read_relation(text)
    except RelationError:
        return
    assert read_relation(relation.text) == relation
    relation.holds(dict.fromkeys(relation.names, 2))


def test_every_value_of_a_trial_can_be_compared(tmp_path: Path) -> None:
    """Searched and fixed ones, and the length of a trial."""
    sweep = read(tmp_path, 'require: ["width >=2*heads", "largest > 4 * width", "width < steps"]')
    assert sweep.require[0].text == "width >= 2 * heads"
    feasible, rng = sweep.feasible, random.Random(0)
    for _ in range(200):
        found = feasible.found(rng)
        assert found is not None
        assert 2 * found["heads"] <= found["width"] < 10
    broken = feasible.broken({"width": 3, "heads": 2, "rate": 1e-3, "kind": "adam"})
    assert broken is not None
    assert broken.shown({"width": 3, "heads": 2}) == "width 3, heads 2"
    again = from_document(json.loads(json.dumps(sweep.document(), sort_keys=True)))
    assert (again.require, again.digest) == (sweep.require, sweep.digest)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            'require: ["width > 2 * hads"]',
            "space.yaml:13: require must name searched hyperparameters, or other values of the file "
            "(got `hads`). Did you mean `heads`?",
        ),
        (
            'require: ["kind > 2"]',
            "space.yaml:13: require must compare numbers (got kind, which is never a number). "
            "Take it out of the relation.",
        ),
        (
            'require: ["width > 8", "heads > 1"]',
            "space.yaml:13: require: some setting must satisfy `width > 8` and the 1 other relation (got "
            "none of 10,000 random draws does, for example width 8). Widen the search, or loosen the "
            "relation.",
        ),
        (
            'require: ["width >= 2 * heads"]\n'
            "published: {source: A, values: {width: 3, heads: 2, rate: 1e-3, kind: adam}}",
            "space.yaml:14: published.values must satisfy the relation `width >= 2 * heads` "
            "(got width 3, heads 2). Change the values, or the relation.",
        ),
        (
            'require: ["width >= 2 * heads"]\ntry: [{width: 3, heads: 2}]',
            "space.yaml:14: try must satisfy the relation `width >= 2 * heads` (got width 3, heads 2). "
            "Change the values, or the relation.",
        ),
        ("try: [{}]", "must give a value for a searched hyperparameter"),
        ("try: [{rate: 1}]", "try.rate must lie in its search, log_uniform [1e-05, 0.1]"),
        ("try: [{learning_rate: 1}]", "try.learning_rate must be searched"),
        ("try: [{momentum: 0.6}]", "try.momentum must come with a value of kind, on which momentum depends"),
        ("try: [{momentum: 0.6, kind: adam}]", "try.momentum must be active under the other values"),
        (
            "try: [{width: 1, heads: 1, rate: 1e-2, kind: adam}, "
            "{kind: adam, width: 1.0, heads: 1, rate: 1e-2}]",
            "must differ from the settings before it, unless `repeat: true` "
            "(got the same as the setting 1 of `try`)",
        ),
    ],
)
def test_wrong_settings(tmp_path: Path, more: str, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        read(tmp_path, more)
    assert message in str(caught.value)


def test_a_small_space_is_listed(tmp_path: Path) -> None:
    """A relation that one of 64 combinations satisfies is found; one that none satisfies is refused."""
    search = "search={width: {int: [1, 8]}, heads: {int: [1, 8]}}"
    only = read(tmp_path, 'require: ["width - heads == 7"]', search)
    assert (only.feasible.count, most_trials(only.document())) == (1, 1)
    with pytest.raises(BadInput, match="none of the 64 combinations does"):
        read(tmp_path, 'require: ["width - heads == 8"]', search)
    assert read(tmp_path, "", search).feasible.count == 64


def test_a_setting_may_be_repeated_on_request(tmp_path: Path) -> None:
    search = "search={width: {int: [1, 2]}}"
    assert most_trials(read(tmp_path, "", search).document()) == 2
    assert most_trials(read(tmp_path, "repeat: true", search).document()) == 4
    seeds = "search={width: {int: [1, 2]}, seed: {choice: [0]}}"
    assert most_trials(read(tmp_path, "", seeds).document()) == 4


def test_a_large_grid_has_no_relations(tmp_path: Path) -> None:
    search = "search={width: {int: [1, 1000]}, heads: {int: [1, 1000]}}"
    with pytest.raises(BadInput, match="at most 100,000 combinations"):
        read(tmp_path, 'require: ["width > heads"]\nsampler: grid', search)


def test_relations_between_the_sizes_of_a_network(tmp_path: Path) -> None:
    """A relation excludes combinations that the layer refuses, and the ends of a range that cross."""
    free = edited("gamma_init.max: {choice: [0.99, 0.999]}", "gamma_init.max: {uniform: [0.5, 0.99]}")
    published = "gamma_init.max: 0.999,", "gamma_init.max: 0.95,"
    free = edited(*published, free)
    with pytest.raises(BadInput, match="must hold for every draw"):
        loaded(tmp_path, free)
    bound = edited("objective:", 'require: ["gamma_init.min < gamma_init.max"]\nobjective:', free)
    sweep = loaded(tmp_path, bound)
    rng = random.Random(0)
    for _ in range(100):
        found = sweep.feasible.found(rng)
        assert found is not None
        assert found["gamma_init.min"] < found["gamma_init.max"]
    sizes = edited(
        "  gamma_init.min:", "  d_state: {choice: [8, 64]}\n  heads: {choice: [4, 16]}\n  gamma_init.min:"
    )
    sizes = edited("values: {", "values: {d_state: 64, heads: 4, ", sizes)
    with pytest.raises(BadInput, match="d_state"):
        loaded(tmp_path, sizes)
    bound = loaded(tmp_path, edited("objective:", 'require: ["d_state >= 2 * heads"]\nobjective:', sizes))
    drawn = list(bound.networks(frozenset({"d_state", "heads"})))
    assert sorted((network.d_state, network.options["heads"]) for network in drawn) == [
        (8, 4),
        (64, 4),
        (64, 16),
    ]
    largest = bound.largest(lowest={"d_state"})
    assert bound.feasible.broken(largest) is None


def test_equal_settings_have_one_key() -> None:
    space = FeasibleSpace({"x": ranged("uniform", 0.0, 0.9, 0.3), "y": chosen([1, True, "1", [1]])})
    assert space.key({"x": 0.3 * 3, "y": 1}) == space.key({"x": 0.9, "y": 1.0})
    assert len({space.key({"x": 0.0, "y": value}) for value in space.search["y"].choices}) == 4
