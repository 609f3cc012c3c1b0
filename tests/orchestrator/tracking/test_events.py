"""Events are complete, plain JSON and free of secrets."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from orchestrator.tracking import events
from tests import sweeps


def test_sweep_started_carries_everything_declared() -> None:
    record = sweeps.sweep_record()
    event = events.sweep_started(record, sweeps.SPECIFICATION)
    tags = event.payload["tags"]
    assert (event.kind, event.run, event.at_ms) == ("start", record.id, 1_790_000_000_250)
    assert tags["sweep.digest"] == record.digest
    assert tags["sweep.profile"] == "laptop"
    assert tags["mlflow.source.git.commit"] == record.facts["git_commit"]
    assert tags["versions"] == "python 3.11.13, jax 0.10.2"
    assert tags["data.source"] == "embedded English passages"
    assert tags["data.comparable"] == "False"
    texts = dict(event.payload["texts"])
    assert json.loads(texts.pop("versions.json")) == record.facts["versions"]
    assert texts == {"search-space.yaml": "task: retrieval\n"}


def test_facts_that_are_not_declared_are_not_logged() -> None:
    facts = {"environment": {"TOKEN": "canary"}, "command": "sweep x --ledger postgresql://me:canary@db/x"}
    event = events.sweep_started(sweeps.sweep_record(facts=facts), sweeps.SPECIFICATION)
    assert "canary" not in json.dumps(event.payload)
    assert event.payload["tags"]["command"] == "sweep x --ledger postgresql://db/x"


def test_sizes_are_tags_and_no_curves() -> None:
    report = sweeps.reports(sweeps.trial(0))[0]
    sized = replace(report, metrics={"val/loss": 0.5, "size/parameters": 14650.0})
    _, event = events.of_report(sized)
    assert (event.kind, event.run) == ("tags", report.trial_key)
    assert event.payload == {"tags": {"size/parameters": "14650"}}
    assert events.points(sized).payload["values"] == {"val/loss": 0.5}
    later = replace(report, metrics={"val/loss": 0.5})
    assert events.of_report(later) == [events.points(later)]


def test_norms_before_the_first_step_are_points_of_step_0() -> None:
    report = sweeps.reports(sweeps.trial(0))[0]
    first = {"val/loss": 0.5, "hidden_norm/head/layer_0": 0.9, "initial_hidden_norm/head/layer_0": 0.8}
    _, event = events.of_report(replace(report, metrics=first))
    assert (event.kind, event.run) == ("metrics", report.trial_key)
    assert event.payload == {"step": 0, "values": {"hidden_norm/head/layer_0": 0.8}}
    drawn = events.points(replace(report, metrics=first)).payload
    assert drawn["values"] == {"val/loss": 0.5, "hidden_norm/head/layer_0": 0.9}


def test_trial_started_logs_the_hyperparameters() -> None:
    trial = sweeps.trial(4)
    event = events.trial_started(trial, sweeps.SPECIFICATION)
    assert event.run == trial.key
    assert event.payload["name"] == "4"
    assert event.payload["parameters"] == {
        "learning_rate": "0.005",
        "gamma_init.min": repr(trial.params["gamma_init.min"]),
        "theta_init.max": "1.0",
        "sweep:seed": "1004",
        "sweep:steps": "200",
    }


def test_what_the_service_adds_has_names_of_its_own() -> None:
    """A hyperparameter or a metric keeps its value, whatever it is called."""
    drawn = {"steps": 8, "seed": 3, "interval": 2, "objective": 0.5, "sweep.steps": 1, "digits": 2**53 + 1}
    trial = replace(sweeps.trial(4), params=drawn)
    parameters = events.trial_started(trial, sweeps.SPECIFICATION).payload["parameters"]
    assert {name: parameters[name] for name in drawn} == {name: repr(value) for name, value in drawn.items()}
    own = [events.OBJECTIVE, "reported:x", f"reported:{events.OBJECTIVE}"]
    reported = {name: float(at) for at, name in enumerate(["objective", "seconds/epoch", *own])}
    shown = events.curves(reported)
    assert [shown[name] for name in ("objective", "seconds/epoch")] == [0.0, 1.0]
    assert sorted(shown.values()) == sorted(reported.values())
    ended = events.trial_ended("s-1", "COMPLETE", None, 80, 0.75, 5).payload["values"]
    assert not ended.keys() & shown.keys()


def test_the_name_of_an_ended_run_has_its_value() -> None:
    """Which is all that a table of runs shows at first."""
    for key, name in (("s-15", "15 · 0.6261"), ("s-c0", "confirmation 0 · 0.6261")):
        ended = events.trial_ended(key, "COMPLETE", None, 80, 0.62612, 5)
        assert ended.payload["tags"][events.RUN_NAME] == name
    assert events.RUN_NAME not in events.trial_ended("s-15", "FAILED", "error", 80, None, 5).payload["tags"]


def test_states_become_mlflow_statuses() -> None:
    statuses = {
        state: events.trial_ended("s-1", state, None, 40, None, 5).payload["status"]
        for state in ("COMPLETE", "PRUNED", "FAILED", "PREEMPTED")
    }
    assert statuses == {
        "COMPLETE": "FINISHED",
        "PRUNED": "FINISHED",
        "FAILED": "FAILED",
        "PREEMPTED": "KILLED",
    }
    assert events.sweep_ended("s", "INTERRUPTED", 5).payload["status"] == "KILLED"


def test_the_end_has_cause_step_and_value() -> None:
    failed = events.trial_ended("s-1", "FAILED", "hung", 40, None, 5).payload
    assert failed["tags"] == {"trial.state": "FAILED", "trial.steps": "40", "trial.cause": "hung"}
    assert failed["values"] == {}
    assert events.trial_ended("s-1", "PRUNED", None, 80, 0.75, 5).payload["values"] == {"_objective": 0.75}


def test_durations_are_no_curves() -> None:
    event = events.metrics("s-1", 40, {"val/loss": 0.5, "seconds/train": 2.0}, 7)
    assert event.payload == {"step": 40, "values": {"val/loss": 0.5}}


def test_events_survive_json() -> None:
    trial = sweeps.trial(1)
    for event in (
        events.sweep_started(sweeps.sweep_record(), sweeps.SPECIFICATION),
        events.trial_started(trial, sweeps.SPECIFICATION),
        events.metrics(trial.key, 40, {"val/loss": 0.1 + 0.2}, 7),
        events.text(trial.key, "a\n", "notes/a.md", 7),
    ):
        assert json.loads(json.dumps(event.payload)) == event.payload


def test_a_hyperparameter_is_never_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if a variable that is named like a secret holds the same word; a cause of a failure hides it."""
    monkeypatch.setenv("MODEL_KEY", "bert-base-uncased")
    trial = sweeps.trial(0, params={"model": "bert-base-uncased"})
    started = events.trial_started(trial, sweeps.SPECIFICATION)
    assert started.payload["parameters"]["model"] == "bert-base-uncased"
    ended = events.trial_ended("copying-1", "FAILED", "no bert-base-uncased", 0, None, 0)
    assert ended.payload["tags"]["trial.cause"] == "no ***"
