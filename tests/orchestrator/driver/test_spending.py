"""Warnings before a sweep spends anything."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator import Sweep
from orchestrator.api.planning import planned
from orchestrator.config.sweep_config import SweepConfig
from orchestrator.driver.preflight import Estimate
from orchestrator.driver.spending import over_budget, warnings
from orchestrator.ledger.ledger import Ledger
from orchestrator.sharing.pool_rows import Owner
from orchestrator.sharing.usage import week_of
from tests.orchestrator.ledger.examples import create_sweep, sweep_record, trial_record, writer
from tests.orchestrator.session.sessions import SPACE

NOW = 1_790_000_000.0
HOUR = Estimate("earlier-0badcafe", 3600.0, 0)


def _sweep(folder: Path, text: str = SPACE.replace("BUDGET", "8"), name: str = "space.yaml") -> Sweep:
    file = folder / name
    file.write_text(text)
    return Sweep.load(file, root=folder / "runs", profile=None)


def _limited(folder: Path, gpu: float = 0.0, **budget: Any) -> SweepConfig:
    what = _sweep(folder).specification
    resources = what.resources.model_copy(update={"gpu": gpu})
    return replace(what, budget=what.budget.model_copy(update=budget), resources=resources)


@pytest.mark.parametrize(("hours", "is_short"), [(1.9, True), (2.0, False)])
def test_hours_are_those_of_all_trials_over_how_many_run_at_once(
    tmp_path: Path, hours: float, *, is_short: bool
) -> None:
    found = list(over_budget(_limited(tmp_path, hours=hours), HOUR, 4, Owner("ada"), NOW))
    assert bool(found) == is_short
    if found:
        assert found[0].startswith(
            "budget.hours is 1.9, but 8 trials of 3600 s (measured in earlier-0badcafe)"
        )


@pytest.mark.parametrize(("gpu_hours", "is_short"), [(3.9, True), (4.0, False)])
def test_gpu_hours_count_the_share_of_a_gpu(tmp_path: Path, gpu_hours: float, *, is_short: bool) -> None:
    found = list(over_budget(_limited(tmp_path, 0.5, gpu_hours=gpu_hours), HOUR, 4, Owner("ada"), NOW))
    assert [text.split(" is ")[0] for text in found] == ["budget.gpu_hours"] * is_short


@pytest.mark.parametrize(("week", "is_short"), [(week_of(NOW), True), (week_of(NOW) - 1, False)])
def test_a_quota_counts_the_use_of_this_week_only(tmp_path: Path, week: int, *, is_short: bool) -> None:
    owner = Owner("ada", most_gpu_hours=9.0, week=week, week_gpu_seconds=2 * 3600)
    found = list(over_budget(_limited(tmp_path, 1.0), HOUR, 4, owner, NOW))
    assert [text.split(", but")[0] for text in found] == [
        "ada has 7 of 9 GPU-hours left this week"
    ] * is_short


def _recorded(sweep: Sweep, metrics: dict[str, float] | None = None) -> Ledger:
    """Record a sweep as its driver would, with a report of a trial if it has metrics."""
    sweep.workspace.paths.create()
    ledger = Ledger.open(sweep.workspace.paths.ledger_url)
    what = sweep.specification
    create_sweep(ledger, sweep_record(id=sweep.id, document=what.document(), digest=what.digest))
    if metrics:
        write, trial = writer(ledger, sweep.id), trial_record(sweep_id=sweep.id)
        write.add_trial(trial)
        write.record_report(write.start_attempt(trial.key).id, 10, metrics, [], [], "node-1")
    return ledger


def test_a_copy_under_another_name_repeats_a_sweep(tmp_path: Path) -> None:
    first = _sweep(tmp_path)
    _recorded(first).close()
    copy = _sweep(tmp_path, SPACE.replace("BUDGET", "99"), "copy.yaml")
    plan = planned(copy, sizes=False)
    assert [text.partition(".")[0] for text in plan.warnings] == [f"it repeats {first.id}, which is RUNNING"]
    assert f"warning: {plan.warnings[0]}" in plan.lines


def test_another_space_repeats_nothing(tmp_path: Path) -> None:
    _recorded(_sweep(tmp_path)).close()
    other = _sweep(tmp_path, SPACE.replace("BUDGET", "8").replace("1e-2", "1e-3"), "other.yaml")
    assert planned(other, sizes=False).warnings == ()


COMMAND = """
trainable: {command: [python, train.py, "--lr={lr}"]}
training: {steps: 30, interval: 10}
search: {lr: {log_uniform: [1e-4, 1e-2]}}
objective: {minimize: METRIC}
sampler: {random: {seed: 3}}
scheduler: none
budget: {trials: 8}
resources: {cpu: 1}
"""


@pytest.mark.parametrize(
    ("metric", "ending"),
    [
        ("val_los", ["Did you mean val_loss?"]),
        ("reward", ["It has reported accuracy, val_loss."]),
        ("val_loss", []),
    ],
)
def test_an_objective_that_the_same_code_has_not_reported_is_a_warning(
    tmp_path: Path, metric: str, ending: list[str]
) -> None:
    (tmp_path / "train.py").write_text("")
    first = _sweep(tmp_path, COMMAND.replace("METRIC", "accuracy"))
    ledger = _recorded(first, {"val_loss": 0.5, "accuracy": 0.1})
    now = _sweep(tmp_path, COMMAND.replace("METRIC", metric), "now.yaml")
    found = warnings(now.specification, ledger, None, 1, "ada")
    ledger.close()
    assert [text.partition("code. ")[2] for text in found] == ending
    assert all(f"{metric} was not reported in {first.id}" in text for text in found)
