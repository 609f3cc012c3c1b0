"""A batch of events folds to one change a run, within MLflow's limits."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlflow.utils import validation

from orchestrator.tracking import events
from orchestrator.tracking.events import (
    KEY_LENGTH,
    Point,
    by_run,
    chunks,
    fold,
    is_number,
    legal_name,
    shortened,
)
from tests import sweeps


def test_a_trial_in_one_batch_is_one_change() -> None:
    trial = sweeps.trial(2)
    curve = [
        events.metrics(trial.key, row.step, {"val/accuracy": 0.5}, row.step) for row in sweeps.reports(trial)
    ]
    end = events.trial_ended(trial.key, "COMPLETE", None, 200, 0.5, 999)
    change = fold(trial.key, [events.trial_started(trial, sweeps.SPECIFICATION), *curve, end])
    assert change.name == "2"
    assert change.points == [
        *(Point("val/accuracy", 0.5, step, step) for step in (40, 80, 120, 160, 200)),
        Point("_objective", 0.5, 999, 200),
    ]
    assert (change.status, change.ended_ms) == ("FINISHED", 999)
    assert change.tags["trial.state"] == "COMPLETE"


def test_runs_keep_the_order_in_which_they_are_named() -> None:
    batch = [events.metrics(run, 1, {"a": 1.0}, 1) for run in ("s-1", "s-0", "s-1", "s-2")]
    grouped = by_run(batch)
    assert list(grouped) == ["s-1", "s-0", "s-2"]
    assert grouped["s-1"] == [batch[0], batch[2]]


def test_the_last_status_counts() -> None:
    trial = sweeps.trial(0)
    end = events.trial_ended(trial.key, "PREEMPTED", "interrupted", 40, None, 5)
    change = fold(trial.key, [end, events.trial_started(trial, sweeps.SPECIFICATION)])
    assert change.status == "RUNNING"
    assert change.ended_ms is None
    assert change.tags["trial.state"] == "RUNNING"


def test_non_finite_values_become_tags() -> None:
    change = fold("s-1", [events.metrics("s-1", 40, {"val/loss": float("nan"), "train/loss": 0.5}, 1)])
    assert change.points == [Point("train/loss", 0.5, 1, 40)]
    assert change.tags == {"non-finite.val/loss": "nan at step 40"}


@pytest.mark.parametrize("name", ["val/accuracy", "hidden_norm/layer_0", "gamma_init.min", "a b-c_d:e"])
def test_legal_names_stay(name: str) -> None:
    assert legal_name(name) == name


@given(st.text(max_size=300))
def test_every_name_becomes_legal(name: str) -> None:
    legal = legal_name(name)
    validation._validate_metric_name(legal)
    validation._validate_param_name(legal)
    assert 0 < len(legal) <= KEY_LENGTH


@pytest.mark.parametrize("name", ["../../x", "/etc/x", "a//b", "x" * 400, "50%", "a\nb", "", ".."])
def test_illegal_names_become_legal_and_stay_distinct(name: str) -> None:
    legal = legal_name(name)
    assert legal != name
    assert legal != legal_name(name + "'")


def test_long_texts_are_cut_with_a_marker() -> None:
    cut = shortened(string.ascii_letters * 200, 6000)
    assert len(cut) == 6000
    assert cut.endswith("[... 10400 characters in all]")
    assert shortened("x" * 6000, 6000) == "x" * 6000


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), -float("inf"), None, "1", True, pytest.param(10**400, id="huge")]
)
def test_values_that_mlflow_cannot_draw(value: object) -> None:
    assert not is_number(value)


def test_chunks_lose_nothing() -> None:
    assert list(chunks(range(7), 3)) == [[0, 1, 2], [3, 4, 5], [6]]
