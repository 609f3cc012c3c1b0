"""Sizes counted by a process of its own, as `validate` shows them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.api.local_sweep import Sweep
from orchestrator.cli.app import run_command
from orchestrator.errors import BadInput, Refusal
from orchestrator.schedule import cluster
from orchestrator.training.costs import check_names
from trainables.cost import Cost
from trainables.data.task import Signature, completed
from trainables.tasks import TASKS

SPACE = """\
task: copy
data: {delay: 6, examples: 400, held_out: 40}
model: {layer: lru, depth: 1, d_model: 8, d_state: 4}
training: {steps: 40, interval: 10, batch_size: 8, recurrent_learning_rate: 1e-3}
search:
  learning_rate: {log_uniform: [1e-3, 3e-2]}
  layer: {choice: [lru, none]}
  r_init.max: {uniform: [0.9, 0.99], when: {layer: lru}}
  d_state: {choice: [4, 6], when: {layer: lru}}
  batch_size: {choice: [4, 8]}
budget: {trials: 4}
"""
SIGNATURE = Signature("class", classes=2, vocabulary=5, features=1, length=8)
ENDS = 11 * 8 + 9 * 9
BLOCK = 2 * 8 + 2 * 8 * 8 + 2 * 8


def _sweep(folder: Path, text: str = SPACE) -> Sweep:
    file = folder / "space.yaml"
    file.write_text(text)
    return Sweep.load(file, profile=None, root=folder / "mlruns", data=folder / "data")


def _lru(n: int) -> Cost:
    layer = 4 * n * 8 + 3 * n + 8
    # All but the real and imaginary parts of C, and D, are trained at the recurrent rate.
    return Cost(ENDS + BLOCK + layer, layer, layer - 2 * n * 8 - 8, 2 * n)


@pytest.mark.slow
def test_every_network_of_a_search_has_its_size(tmp_path: Path) -> None:
    """Rates, ranges and batch sizes make no other network; nothing is written."""
    networks = _sweep(tmp_path).networks()
    assert {(n.model.layer, n.model.d_state): n.cost for n in networks} == {
        ("lru", 4): _lru(4),
        ("lru", 6): _lru(6),
        ("none", 4): Cost(ENDS + BLOCK + 8, 8, 0, 0),
    }
    assert [path.name for path in tmp_path.iterdir()] == ["space.yaml"]


@pytest.mark.slow
def test_the_work_of_a_step_is_counted_on_request(tmp_path: Path) -> None:
    (network,) = _sweep(tmp_path, SPACE.replace("[lru, none]", "[lru]").replace("[4, 6]", "[4]")).networks(
        work=True
    )
    assert network.cost.flops is not None
    assert network.cost.bytes is not None
    assert network.cost.flops > 6 * 8 * 26 * BLOCK


def test_too_many_networks_are_refused(tmp_path: Path) -> None:
    many = SPACE.replace("{choice: [4, 6], when", "{int: [4, 200], when")
    with pytest.raises(BadInput, match="at most 64 combinations"):
        _sweep(tmp_path, many).networks()


@pytest.mark.slow
def test_the_vocabulary_is_that_of_encoded_data_where_there_is_any(tmp_path: Path) -> None:
    """Else that of the published data."""
    options = {"length": 32, "passage": 32, "pairs": 20, "held_out": 10}
    text = SPACE.replace("task: copy", "task: retrieval").replace(SPACE.splitlines()[1], f"data: {options}")
    sweep, task = _sweep(tmp_path, text), TASKS["retrieval"]
    published = task.outline(completed("retrieval", task.options, options))
    assert published is not None
    assert published.vocabulary is not None
    before = sweep.networks()[0].cost.parameters
    encoded = task.load(options, tmp_path / "data").signature
    assert encoded.vocabulary not in (None, published.vocabulary)
    assert sweep.networks()[0].cost.parameters - before == 8 * (encoded.vocabulary - published.vocabulary)


@pytest.mark.slow
@pytest.mark.parametrize("words", [[], pytest.param(["--json"], marks=pytest.mark.slow)])
def test_validate_shows_the_sizes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    _sweep(tmp_path)
    places = ["--data", str(tmp_path / "data"), "--root", str(tmp_path / "mlruns")]
    assert run_command(["validate", str(tmp_path / "space.yaml"), *places, *words]) == 0
    out = capsys.readouterr().out
    if words:
        sizes = {network["parameters"] for network in json.loads(out)["networks"]}
        assert sizes == {_lru(4).parameters, _lru(6).parameters, ENDS + BLOCK + 8}
    else:
        assert f"  lru, depth 1, d_model 8, d_state 6: {_lru(6).parameters} parameters (" in out


def test_a_count_of_other_networks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By their names, whatever their number."""
    check_names({"b": 1, "a": 2}, {"a": 1, "b": 2})
    for answer in ({"a": 1}, {"a": 1, "c": 1}, {}):
        with pytest.raises(Refusal, match="the answer of a count must be about a, b"):
            check_names(answer, {"a": 1, "b": 2})
    monkeypatch.setattr(cluster, "_answer", lambda *_: {"s-9": Cost(1, 1, 1, 1)})
    settings = _sweep(tmp_path).specification.network_settings({}, seed=0)
    with pytest.raises(Refusal, match=r"must be about s-0 \(got s-9\)"):
        cluster.work({"s-0": settings}, SIGNATURE, "")
