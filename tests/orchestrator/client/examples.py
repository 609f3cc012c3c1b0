"""Answers of the client for tests that only show them."""

from __future__ import annotations

from dataclasses import fields

from orchestrator import Progress
from orchestrator.client.statuses import DetailedStatus, MlflowRun, Status


def detailed(**changes: object) -> DetailedStatus:
    """Return the status of a running sweep, with changes."""
    values: dict[str, object] = {
        "id": "retrieval-laptop-0123abcd",
        "state": "RUNNING",
        "reason": None,
        "task": "retrieval",
        "profile": "laptop",
        "driver": None,
        "trials": {},
        "waiting_for_mlflow": 0,
        "created_at": 0.0,
        "finished_at": None,
        "owner": None,
        "priority_class": "normal",
        "metric": "val/accuracy",
        "best_value": None,
        "best_trial": None,
        "on_front": None,
        "direction": "maximize",
        "progress": Progress({}, 12),
        "failures": {},
        "text": "",
        "weight": 1.0,
        "paused": False,
        "submission": None,
        "starts": None,
        "revision": "",
        "mlflow": MlflowRun("retrieval", None, None),
        "exit_code": None,
    }
    return DetailedStatus(**{**values, **changes})  # type: ignore[arg-type]


def listed(**changes: object) -> Status:
    """Return the same sweep as a list shows it."""
    values = detailed(**changes)
    return Status(**{each.name: getattr(values, each.name) for each in fields(Status)})
