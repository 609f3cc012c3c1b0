"""The verbs that only look: `list`, `status`, `show`, `logs`; no Ray, JAX, MLflow or Optuna is imported."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Column, Table

from orchestrator.cli.found import sweep_named, trial_named
from orchestrator.cli.options import DEFAULT_ROOT, Json, Root, opened, paths
from orchestrator.cli.progress import describe
from orchestrator.errors import BadInput
from orchestrator.ledger.lease import holder
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.records import AttemptRecord, ReportRecord, SweepRecord, TrialRecord
from orchestrator.session.board import Progress

_WATCH_SECONDS = 2.0


def list_sweeps(root: Root = DEFAULT_ROOT, as_json: Json = False) -> None:
    """List every sweep: its state, and how many of its trials are in which."""
    ledger = opened(root)
    rows = [_sweep_row(ledger, record) for record in ledger.sweeps()]
    if as_json:
        _print_json(rows)
        return
    table = Table(Column("sweep", no_wrap=True), "state", "task", "trials", "began", box=None)
    for row in rows:
        trials = ", ".join(f"{count} {state.lower()}" for state, count in row["trials"].items())
        table.add_row(row["id"], row["state"], row["task"], trials, _when(row["created_at"]))
    Console(soft_wrap=True).print(table)


def status(
    sweep: Annotated[str | None, typer.Argument(help="A sweep's id; the newest if left out.")] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Look every two seconds, until it ends.")] = False,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """Show where a sweep stands: who drives it, its trials by state, the best so far."""
    ledger = opened(root)
    record = sweep_named(ledger, sweep) if sweep else _newest(ledger)
    console = Console(soft_wrap=True)
    while True:
        row = _sweep_row(ledger, record)
        if as_json:
            _print_json(row)
        else:
            _print_status(console, ledger, record, row)
        if not watch or row["driver"] is None:
            return
        time.sleep(_WATCH_SECONDS)
        record = ledger.sweep(record.id) or record


def show(
    trial: Annotated[str, typer.Argument(help="A trial's key.")],
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """Show all that the ledger knows of a trial: hyperparameters, attempts, curve, checkpoints."""
    ledger = opened(root)
    found = trial_named(ledger, trial)
    facts = {
        "trial": asdict(found),
        "attempts": [asdict(each) for each in ledger.attempts(found.key)],
        "reports": [asdict(each) for each in ledger.reports(found.key)],
        "checkpoints": [asdict(each) for each in ledger.checkpoints(found.key)],
    }
    if as_json:
        _print_json(facts)
        return
    console = Console(soft_wrap=True, highlight=False)
    cause = f" ({found.cause})" if found.cause else ""
    console.print(f"{found.key}: {found.state}{cause}, step {found.step} of {found.total_steps}")
    for name, value in found.params.items():
        console.print(f"  {name} = {value}", markup=False)
    for attempt in ledger.attempts(found.key):
        place = f" on {attempt.node}" if attempt.node else ""
        told = f"  attempt {attempt.number}: {attempt.state}{place} {attempt.cause or ''}"
        console.print(told.rstrip(), markup=False)
    for report in ledger.reports(found.key):
        told = ", ".join(f"{name} {value:.4g}" for name, value in report.metrics.items() if "/" in name)
        console.print(f"  step {report.step}: {told}", markup=False)
    for saved in ledger.checkpoints(found.key):
        console.print(f"  checkpoint ({saved.kind}): {saved.path}", markup=False)


def logs(trial: Annotated[str, typer.Argument(help="A trial's key.")], root: Root = DEFAULT_ROOT) -> None:
    """Print what the workers of a trial wrote, tracebacks included; elsewhere, what the ledger knows."""
    ledger = opened(root)
    found = trial_named(ledger, trial)
    file = paths(root).log(found.sweep_id, found.key)
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    away = [each for each in ledger.attempts(found.key) if f" attempt {each.number}: " not in text]
    if not text and not away:
        raise BadInput(trial, "must have run to have a log", f"no file {file}", "`show` tells its state.")
    console = Console(soft_wrap=True, highlight=False)
    console.print(text, markup=False, end="")
    reports = ledger.reports(found.key)
    for attempt in away:
        for line in _remembered(attempt, [each for each in reports if each.attempt_id == attempt.id]):
            console.print(line, markup=False)
    if elsewhere := ", ".join(sorted({each.node for each in away if each.node})):
        told = f"what ran on {elsewhere} is told by the ledger; tracebacks stand in the log there"
        Console(stderr=True, soft_wrap=True).print(told, markup=False)


def _remembered(attempt: AttemptRecord, reports: Sequence[ReportRecord]) -> Iterator[str]:
    """Yield what the ledger knows of an attempt, as its worker would have written it."""

    def line(at: float, text: str) -> str:
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at))
        return f"{stamp}Z attempt {attempt.number}: {text}"

    yield line(attempt.started_at, f"launched{f' on {attempt.node}' if attempt.node else ''}")
    for report in reports:
        metrics = ", ".join(f"{name} {value:.6g}" for name, value in report.metrics.items())
        yield line(report.at, f"step {report.step}: {metrics}")
    if attempt.ended_at is not None:
        yield line(attempt.ended_at, f"{attempt.state} {attempt.cause or ''}".rstrip())


def _newest(ledger: Ledger) -> SweepRecord:
    sweeps = ledger.sweeps()
    if not sweeps:
        raise BadInput(ledger.where, "must hold a sweep", "none", "Run one first.")
    return sweeps[-1]


def _sweep_row(ledger: Ledger, record: SweepRecord) -> dict[str, Any]:
    driving = holder(ledger, record.id)
    left = driving is None and record.state in ("RUNNING", "WAITING")
    return {
        "id": record.id,
        "state": "INTERRUPTED" if left else record.state,
        "reason": "its driver is gone" if left else record.reason,
        "task": record.task,
        "profile": record.profile,
        "driver": asdict(driving) if driving else None,
        "trials": ledger.states(record.id),
        "waiting_for_mlflow": ledger.backlog(record.id),
        "created_at": record.created_at,
        "finished_at": record.finished_at,
    }


def _print_status(console: Console, ledger: Ledger, record: SweepRecord, row: dict[str, Any]) -> None:
    reason = f" ({row['reason']})" if row["reason"] else ""
    driver = row["driver"]
    console.print(f"{record.id}: {row['state']}{reason}", highlight=False)
    if driver:
        console.print(f"  driven by process {driver['pid']} on {driver['host']}", highlight=False)
    trials = ledger.trials(record.id, role="search")
    console.print("  " + describe(progress_of(record, trials), str(record.facts["metric"])), highlight=False)
    causes = Counter(str(trial.cause) for trial in trials if trial.state == "FAILED")
    for cause, count in causes.items():
        console.print(f"  failed {count} times: {cause}", markup=False, highlight=False)
    if row["waiting_for_mlflow"]:
        console.print(f"  {row['waiting_for_mlflow']} records wait for MLflow", highlight=False)
    if not driver and row["state"] == "INTERRUPTED":
        console.print(f"  go on with: python -m orchestrator.sweep resume {record.id}", highlight=False)


def progress_of(record: SweepRecord, trials: Sequence[TrialRecord]) -> Progress:
    """Return where a sweep stands by its ledger alone."""
    sign = 1.0 if record.facts["direction"] == "maximize" else -1.0
    done = [trial for trial in trials if trial.state == "COMPLETE" and trial.value is not None]
    best = max(done, key=lambda trial: sign * (trial.value or 0.0), default=None)
    return Progress(
        dict(Counter(trial.state for trial in trials)),
        record.document["budget"]["trials"],
        best.key if best else None,
        best.value if best else None,
    )


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def _print_json(value: Any) -> None:
    Console(soft_wrap=True).print_json(json.dumps(value))
