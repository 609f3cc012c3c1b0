"""The answer of a sweep: which trial was chosen, how good it is, against what, and what went wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.ledger.records import CheckpointRecord, TrialRecord
from orchestrator.report.history import History
from orchestrator.report.spending import Spending, spending


@dataclass(frozen=True)
class Row:
    """One line of the leaderboard.

    Attributes:
        rank: 1 for the best complete trial; None for a trial that is not complete.
        value: best validation value, or None.
        test: the test metric, where the test split was read.
        seconds: the time of all attempts together.
    """

    rank: int | None
    key: str
    number: int
    state: str
    cause: str | None
    params: Mapping[str, Any]
    value: float | None
    test: float | None
    best_step: int | None
    step: int
    total_steps: int
    attempts: int
    seconds: float


@dataclass(frozen=True)
class Chosen:
    """The trial that the sweep recommends.

    Attributes:
        row: its line of the leaderboard.
        validation: all metrics of its best report.
        test: metrics of the reading of the test split, empty if it was not read.
        checkpoint: folder of its best checkpoint.
    """

    row: Row
    validation: Mapping[str, float]
    test: Mapping[str, float]
    checkpoint: str


@dataclass(frozen=True)
class Summary:
    """What a report says, without its pictures.

    Attributes:
        metric: what is optimised, such as `val/accuracy`.
        test_metric: the same on the test split, such as `test/accuracy`.
        comparable: whether the numbers may stand beside published ones; `note` says why not.
        chance: what always answering the same scores, by split.
        examples: validation examples that an evaluation reads, or None for all there are.
        chosen: the recommended trial, or None while no trial is complete.
        rows: the search's trials, best first; then the pruned, the running, the failed.
        confirmations: rows of the retrainings of the chosen hyperparameters.
        published_source: paper and table, or None.
        published: published results by metric.
        states: number of the search's trials by state.
        failures: number of failed trials by cause.
        spending: where the time went.
    """

    sweep_id: str
    task: str
    layer: str
    profile: str | None
    state: str
    reason: str | None
    metric: str
    test_metric: str
    maximize: bool
    data_source: str
    comparable: bool
    note: str
    chance: Mapping[str, float]
    examples: int | None
    chosen: Chosen | None
    rows: tuple[Row, ...]
    confirmations: tuple[Row, ...]
    published_source: str | None
    published: Mapping[str, float]
    states: Mapping[str, int]
    failures: Mapping[str, int]
    spending: Spending

    @property
    def parameters(self) -> tuple[str, ...]:
        """Return the names of the searched hyperparameters, in the order of the file."""
        names: dict[str, None] = {}
        for row in self.rows:
            names.update(dict.fromkeys(row.params))
        return tuple(names)


def choose(
    trials: Sequence[TrialRecord], checkpoints: Mapping[str, Sequence[CheckpointRecord]], *, maximize: bool
) -> TrialRecord | None:
    """Return the complete trial of the search with the best value and a checkpoint of it.

    The lower number wins a tie.
    """
    sign = 1.0 if maximize else -1.0
    fit = [
        trial
        for trial in trials
        if trial.role == "search"
        and trial.state == "COMPLETE"
        and trial.value is not None
        and best_checkpoint(trial, checkpoints.get(trial.key, ()))
    ]
    return max(fit, key=lambda trial: (sign * (trial.value or 0.0), -trial.number), default=None)


def summarise(history: History) -> Summary:
    """Return the summary of a sweep as it stands."""
    sweep, facts, document = history.sweep, history.sweep.facts, history.sweep.document
    search = history.search()
    published = dict(document.get("published") or {})
    source = published.pop("source", None)
    published.pop("values", None)
    return Summary(
        sweep_id=sweep.id,
        task=sweep.task,
        layer=str(document["model"]["layer"]),
        profile=sweep.profile,
        state=sweep.state,
        reason=sweep.reason,
        metric=history.metric,
        test_metric=test_metric(history.metric),
        maximize=history.maximize,
        data_source=sweep.data_source,
        comparable=bool(facts.get("comparable", False)),
        note=str(facts.get("note", "")),
        chance=dict(facts.get("chance", {})),
        examples=document.get("evaluate", {}).get("examples"),
        chosen=_chosen(history),
        rows=_leaderboard(history, search),
        confirmations=tuple(_row(history, trial, None) for trial in history.trials if trial.role != "search"),
        published_source=source,
        published={name: float(value) for name, value in published.items()},
        states=dict(Counter(trial.state for trial in search)),
        failures=dict(Counter(cause_of(trial) for trial in search if trial.state == "FAILED").most_common()),
        spending=spending(history),
    )


def test_metric(metric: str) -> str:
    """Return the name of a validation metric on the test split."""
    return f"test/{metric.partition('/')[2]}"


def cause_of(trial: TrialRecord) -> str:
    """Return the kind of failure of a trial, without its particulars."""
    return (trial.cause or "unknown").partition(":")[0]


def _chosen(history: History) -> Chosen | None:
    trial = choose(history.trials, history.checkpoints, maximize=history.maximize)
    if trial is None:
        return None
    checkpoint = best_checkpoint(trial, history.checkpoints[trial.key])
    assert checkpoint is not None, "a chosen trial has a checkpoint"
    at_best = [row.metrics for row in history.reports.get(trial.key, ()) if row.step == trial.best_step]
    readings = [row for row in history.readings.get(trial.key, ()) if row.split == "test"]
    return Chosen(
        row=_row(history, trial, 1),
        validation=dict(at_best[0]) if at_best else {},
        test=dict(readings[-1].metrics) if readings else {},
        checkpoint=checkpoint.path,
    )


def best_checkpoint(trial: TrialRecord, checkpoints: Sequence[CheckpointRecord]) -> CheckpointRecord | None:
    """Return the checkpoint of a trial's best step; older generations stand beside it."""
    fit = [row for row in checkpoints if row.kind in ("best", "pinned") and row.step == trial.best_step]
    return fit[0] if fit else None


_PLACES = {"COMPLETE": 0, "PRUNED": 1, "RUNNING": 2, "PREEMPTED": 3, "WAITING": 4, "FAILED": 5}


def _leaderboard(history: History, search: Sequence[TrialRecord]) -> tuple[Row, ...]:
    sign = -1.0 if history.maximize else 1.0

    def place(trial: TrialRecord) -> tuple[int, float, int]:
        value = float("inf") if trial.value is None else sign * trial.value
        return _PLACES[trial.state], value, trial.number

    ordered = sorted(search, key=place)
    return tuple(
        _row(history, trial, rank if trial.state == "COMPLETE" else None)
        for rank, trial in enumerate(ordered, start=1)
    )


def _row(history: History, trial: TrialRecord, rank: int | None) -> Row:
    readings = [row for row in history.readings.get(trial.key, ()) if row.split == "test"]
    return Row(
        rank=rank,
        key=trial.key,
        number=trial.number,
        state=trial.state,
        cause=trial.cause,
        params=trial.params,
        value=trial.value,
        test=readings[-1].metrics.get(test_metric(history.metric)) if readings else None,
        best_step=trial.best_step,
        step=trial.step,
        total_steps=trial.total_steps,
        attempts=trial.attempts,
        seconds=spending(history, trial.key).total,
    )
