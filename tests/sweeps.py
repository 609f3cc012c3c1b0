"""The records of a small realistic sweep, for the tests of tracking and report; nothing is random."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.sweeps.records import (
    AttemptRecord,
    CheckpointRecord,
    EvaluationRecord,
    ReportRecord,
    SweepRecord,
    TrialRecord,
)
from orchestrator.ledger.sweeps.writer import SweepWriter
from orchestrator.report.history import History
from orchestrator.storage.paths import Paths
from orchestrator.tracking import events
from tests.orchestrator.ledger import examples
from tests.orchestrator.ledger.examples import create_sweep

SWEEP_ID = "retrieval-laptop-0123abcd"
CREATED = 1_790_000_000.25
INTERVAL, STEPS, LAYERS = 40, 200, 2

SPECIFICATION: Any = SimpleNamespace(
    task="retrieval",
    metric="val/accuracy",
    direction="maximize",
    source_text="task: retrieval\n",
    kind="rotrnn",
    subject="rotrnn on retrieval",
    known=(),
)
"""The fields of an `orchestrator.config.sweep_config.SweepConfig` that events use."""


def sweep_record(**changes: object) -> SweepRecord:
    """Return the sweep."""
    record = SweepRecord(
        id=SWEEP_ID,
        name="retrieval",
        profile="laptop",
        task="retrieval",
        document={
            "name": "retrieval",
            "profile": "laptop",
            "task": "retrieval",
            "model": {"layer": "rotrnn", "depth": LAYERS, "d_model": 32, "d_state": 64, "heads": 8},
            "training": {
                "steps": STEPS,
                "interval": INTERVAL,
                "batch_size": 32,
                "recurrent_learning_rate": 1e-3,
            },
            "evaluate": {"examples": 512},
            "search": {
                "learning_rate": {"log_uniform": [1e-4, 1e-1]},
                "gamma_init.min": {"uniform": [0.1, 0.9]},
                "theta_init.max": {"choice": [0.1, 1.0, 2 * math.pi]},
            },
            "objective": {"maximize": ["val/accuracy"]},
            "sampler": {"tpe": {"seed": 0}},
            "scheduler": {"asha": {"reduction": 4}},
            "budget": {"trials": 8},
            "resources": {"gpu": 0.0, "cpu": 1.0},
            "confirm": {"seeds": 0},
            "published": {
                "source": "RotRNN, Tables 1 and 3",
                "values": {"learning_rate": 1e-3, "gamma_init.min": 0.5, "theta_init.max": 2 * math.pi},
                "test/accuracy": 0.899,
            },
        },
        digest="0123abcd" * 8,
        state="COMPLETE",
        reason=None,
        data_source="embedded English passages",
        data_digest="feed" * 16,
        facts={
            "git_commit": "c0ffee" * 6 + "c0ff",
            "versions": {"python": "3.11.13", "jax": "0.10.2"},
            "command": "sweep search_spaces/retrieval.yaml",
            "sampler_seed": 0,
            "comparable": False,
            "note": "not AAN: its accuracy does not compare with the paper's",
            "chance": {"validation": 0.502, "test": 0.504},
            "metric": "val/accuracy",
            "direction": "maximize",
            "specification": SPECIFICATION.source_text,
        },
        created_at=CREATED,
        finished_at=CREATED + 360.0,
    )
    return replace(record, **changes)  # type: ignore[arg-type]


def trial(number: int, state: str = "COMPLETE", **changes: object) -> TrialRecord:
    """Return trial `number`; later trials are slightly better."""
    steps = {"COMPLETE": STEPS, "PRUNED": 2 * INTERVAL, "FAILED": INTERVAL}.get(state, INTERVAL)
    record = TrialRecord(
        key=f"{SWEEP_ID}-{number}",
        sweep_id=SWEEP_ID,
        number=number,
        role="search",
        state=state,  # type: ignore[arg-type]
        cause="non-finite: val/accuracy is nan" if state == "FAILED" else None,
        params={
            "learning_rate": 1e-3 * (1 + number % 90),
            "gamma_init.min": 0.1 + 0.8 * ((0.37 * number + 0.5) % 1.0),
            "theta_init.max": (0.1, 1.0, 2 * math.pi)[number % 3],
        },
        system_attrs={},
        seed=1000 + number,
        value=None if state == "FAILED" else accuracy(number, steps),
        best_step=None if state == "FAILED" else steps,
        step=steps,
        total_steps=STEPS,
        attempts=1,
        created_at=CREATED + 30.0 * number,
        finished_at=CREATED + 30.0 * number + 0.1 * steps,
    )
    return replace(record, **changes)  # type: ignore[arg-type]


def trials() -> list[TrialRecord]:
    """Return eight trials: five complete, two pruned, one failed."""
    states = ["COMPLETE", "PRUNED", "COMPLETE", "FAILED", "COMPLETE", "PRUNED", "COMPLETE", "COMPLETE"]
    return [trial(number, state) for number, state in enumerate(states)]


def accuracy(number: int, step: int) -> float:
    """Return the validation accuracy of a trial at a step."""
    reached = 0.02 * (number + 1) if number < 9 else 0.18 + 0.3 * (1 - math.exp(-(number - 8) / 200))
    return 0.5 + reached * (1 - math.exp(-step / 80))


def reports(record: TrialRecord) -> list[ReportRecord]:
    """Return the curve of a trial, one report per interval."""
    attempt, created_at = f"{record.key}.1", record.created_at
    return [
        ReportRecord(record.key, step, attempt, _metrics(record.number, step), created_at + 0.1 * step)
        for step in range(INTERVAL, record.step + 1, INTERVAL)
    ]


def _metrics(number: int, step: int) -> dict[str, float]:
    value = accuracy(number, step)
    heads = {
        f"hidden_norm/head/layer_{layer}": 3.0 + layer + 0.05 * number + 0.2 * math.log1p(step / 40)
        for layer in range(LAYERS)
    }
    wholes = {name.replace("head", "state"): 2 * value for name, value in heads.items()}
    expected = {name.replace("head", "expected"): 1.0 for name in heads}
    initial = {f"initial_{name}": 0.5 for name in (*heads, *wholes, *expected)} if step == INTERVAL else {}
    norms = {**heads, **wholes, **expected, **initial}
    return {
        "train/loss": 1.3 - value,
        "train/accuracy": value + 0.03,
        "val/loss": 1.25 - value,
        "val/accuracy": value,
        "learning_rate": 1e-3 * (1 + number) * min(1.0, step / 80),
        "tokens_per_second": 21_000.0 + 10 * step,
        **norms,
        "seconds/train": 3.0,
        "seconds/compile": 4.0 if number < 2 and step == INTERVAL else 0.0,
        "seconds/evaluate": 0.5,
    }


def attempts(records: Sequence[TrialRecord]) -> list[AttemptRecord]:
    """Return one attempt for each trial."""
    state = {"FAILED": "FAILED"}
    return [
        AttemptRecord(
            f"{record.key}.1",
            record.key,
            1,
            state.get(record.state, "ENDED"),  # type: ignore[arg-type]
            record.cause,
            "127.0.0.1",
            record.created_at,
            record.finished_at,
        )
        for record in records
    ]


def history(records: Sequence[TrialRecord] | None = None, **changes: object) -> History:
    """Return the history of the sweep; its best complete trial was evaluated on the test split."""
    members = tuple(records or trials())
    best = _best(members)
    return History(
        sweep=sweep_record(**changes),
        trials=members,
        reports={record.key: reports(record) for record in members},
        attempts={record.key: attempts([record]) for record in members},
        checkpoints={
            record.key: [checkpoint(record, f"checkpoints/{record.key}")]
            for record in members
            if record.best_step
        },
        evaluations={best.key: [evaluation(best)]},
    )


def _best(records: Sequence[TrialRecord]) -> TrialRecord:
    complete = [record for record in records if record.state == "COMPLETE"]
    return max(complete, key=lambda record: record.value or 0.0)


def checkpoint(record: TrialRecord, path: str) -> CheckpointRecord:
    """Return the best checkpoint of a trial."""
    assert record.best_step is not None
    return CheckpointRecord(record.key, record.best_step, "best", path, "beef" * 16, 123_456, {})


def fill(
    ledger: Ledger, folder: Path, records: Sequence[TrialRecord] | None = None, *, evaluated: bool = True
) -> None:
    """Write the sweep to a ledger as a driver does, without its last state.

    With `evaluated`, the best complete trial was evaluated on the test split.
    """
    members = list(records or trials())
    record = sweep_record(state="RUNNING", finished_at=None)
    create_sweep(ledger, record, events=[events.sweep_started(record, SPECIFICATION)])
    writer = writer_of(ledger)
    for trial_record in members:
        run_trial(writer, trial_record, folder)
    if not evaluated:
        return
    best = _best(members)
    test = evaluation(best)
    point = events.metrics(best.key, test.step, test.metrics, events.milliseconds(test.at))
    writer.add_evaluation(test, events=[point])


def fill_script(ledger: Ledger, document: Mapping[str, Any] | None = None) -> str:
    """Write a sweep of a function, whose objective is `loss`; return the key of its trial, which runs."""
    sweep = sweep_record(
        id="digits-0badf00d",
        task="train.py:train",
        document=document
        or {
            "name": "digits",
            "trainable": {"function": "train.py:train", "folder": "/code"},
            "objective": {"minimize": ["loss"]},
        },
        state="RUNNING",
        facts={**sweep_record().facts, "metric": "loss", "direction": "minimize"},
        finished_at=None,
    )
    create_sweep(ledger, sweep)
    writer = examples.writer(ledger, sweep.id)
    key = f"{sweep.id}-0"
    writer.add_trial(
        trial(
            0,
            "WAITING",
            key=key,
            sweep_id=sweep.id,
            value=None,
            best_step=None,
            step=0,
            attempts=0,
            finished_at=None,
        )
    )
    attempt = writer.start_attempt(key)
    metrics = {"loss": 0.25, "learning_rate": 0.004, "seconds/train": 3.0, "seconds/evaluate": 0.5}
    writer.record_report(attempt.id, INTERVAL, metrics)
    return key


def writer_of(ledger: Ledger) -> SweepWriter:
    """Return a writer of the sweep, as if its driver had just taken the lease."""
    return examples.writer(ledger, SWEEP_ID)


def filled(root: Path, records: Sequence[TrialRecord] | None = None) -> Paths:
    """Create a root whose ledger holds the sweep, with stubs of its checkpoints."""
    paths = Paths(root)
    paths.create()
    ledger = Ledger.open(paths.ledger_url)
    fill(ledger, paths.checkpoints(SWEEP_ID), records)
    ledger.close()
    return paths


def start_trial(writer: SweepWriter, done: TrialRecord, folder: Path) -> AttemptRecord:
    """Write a trial from its start to its last report, with a checkpoint if it has a value."""
    initial: dict[str, Any] = {
        "value": None,
        "best_step": None,
        "step": 0,
        "attempts": 0,
        "finished_at": None,
    }
    waiting = replace(done, state="WAITING", cause=None, **initial)
    writer.add_trial(waiting, events=[events.trial_started(waiting, SPECIFICATION)])
    attempt = writer.start_attempt(waiting.key)
    for row in reports(done):
        saved = [checkpoint(done, _saved(folder, done))] if row.step == done.best_step else []
        writer.record_report(attempt.id, row.step, row.metrics, saved, at=row.at)
    return attempt


def run_trial(writer: SweepWriter, done: TrialRecord, folder: Path) -> None:
    """Write a trial from its start to its final state, with a checkpoint if it has a value."""
    attempt = start_trial(writer, done, folder)
    at = events.milliseconds(done.finished_at or 0.0)
    ended = events.trial_ended(done.key, done.state, done.cause, done.step, done.value, at)
    writer.end_attempt(
        attempt.id,
        "FAILED" if done.state == "FAILED" else "ENDED",
        done.cause,
        trial_state=done.state,
        value=done.value,
        best_step=done.best_step,
        events=[ended],
    )


def _saved(folder: Path, record: TrialRecord) -> str:
    path = folder / record.key / f"step-{record.best_step:09d}"
    path.mkdir(parents=True)
    (path / "manifest.json").write_text("{}")
    return str(path)


def evaluation(record: TrialRecord) -> EvaluationRecord:
    """Return the evaluation of a trial on the test split."""
    assert record.best_step is not None
    metrics = {"test/loss": 0.66, "test/accuracy": accuracy(record.number, record.best_step) - 0.011}
    return EvaluationRecord(record.key, record.best_step, "test", metrics, CREATED + 355.0)
