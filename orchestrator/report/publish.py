"""What MLflow is told at the end of a sweep: its numbers, report, pictures and best model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orchestrator.ledger.records import FINISHED_SWEEP, Event
from orchestrator.report.answer import answer, notes
from orchestrator.report.card import model_of
from orchestrator.report.history import History
from orchestrator.report.summary import Summary
from orchestrator.tracking import events


def publication(history: History, summary: Summary, files: Sequence[Path], at_ms: int) -> list[Event]:
    """Return the events that close a sweep's run in MLflow.

    Args:
        history: of the sweep in its last state.
        summary: of the same.
        files: what to keep with the run, at the root of its artifacts.
        at_ms: when the sweep ended, in milliseconds since 1970.
    """
    run = summary.sweep_id
    note = "\n\n".join(
        [
            answer(summary),
            *(f"- {line}" for line in notes(summary)),
        ]
    )
    told = [
        events.tags(run, {"mlflow.note.content": note, "sweep.trials": _states(summary)}, at_ms),
        *(events.artifact(run, file, "", at_ms) for file in files),
    ]
    if summary.chosen is not None:
        key = summary.chosen.row.key
        told.append(events.tags(run, {"chosen.trial": key}, at_ms))
        told.append(events.tags(key, {"trial.chosen": "yes"}, at_ms))
    model = model_of(history, summary, at_ms)
    if model is not None:
        told.append(model)
    ended = events.sweep_ended(run, summary.state, at_ms, reason=summary.reason, results=_results(summary))
    return [*told, *events.trials_left(history.trials, at_ms), ended]


def _states(summary: Summary) -> str:
    return ", ".join(f"{count} {state.lower()}" for state, count in sorted(summary.states.items()))


def _results(summary: Summary) -> dict[str, float]:
    """Return a sweep's figures at its end; one that is interrupted would draw others beside them later."""
    chosen = summary.chosen
    if chosen is None or summary.state not in FINISHED_SWEEP:
        return {}
    found = {events.OBJECTIVE: chosen.row.value, **chosen.test}
    return {name: value for name, value in found.items() if value is not None}
