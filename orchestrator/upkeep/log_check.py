"""Compare the logs of trials with the ledger."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from orchestrator.errors import Damaged
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.sweeps.lease import holder
from orchestrator.ledger.sweeps.records import FINISHED_TRIAL, ReportRecord, SweepRecord, by_trial
from orchestrator.storage.paths import Paths
from orchestrator.upkeep.check import Finding
from orchestrator.upkeep.mixed_reports import LogComparison, Names, compare_log, compared, mixed
from orchestrator.upkeep.trial_log import entries, lines_of


def check_logs(ledger: Ledger, sweeps: Sequence[SweepRecord], paths: Paths) -> list[Finding]:
    """Return the trials that may have reports of others, or lack their own. Nothing is changed.

    The logs of all sweeps that ran at the same time are read too. A trial that a driver runs is left out: the
    last line of its log may be newer than the ledger. A damaged ledger is for `check` to report.

    Args:
        ledger: holds the sweeps.
        sweeps: that are checked.
        paths: of the logs.
    """
    chosen = {sweep.id for sweep in sweeps}
    beside = [other for other in ledger.sweeps() if any(_overlap(other, sweep) for sweep in sweeps)]
    comparisons: list[LogComparison] = []
    for sweep in beside:
        try:
            comparisons += _of_sweep(ledger, sweep, paths)
        except Damaged:
            continue
    return list(mixed(comparisons, chosen))


def _overlap(one: SweepRecord, other: SweepRecord) -> bool:
    return _began_before_end(one, other) and _began_before_end(other, one)


def _began_before_end(one: SweepRecord, other: SweepRecord) -> bool:
    return other.finished_at is None or one.created_at <= other.finished_at


def _of_sweep(ledger: Ledger, sweep: SweepRecord, paths: Paths) -> list[LogComparison]:
    """Return what the logs of a sweep tell about its trials; the ledger is read before any log."""
    driven = holder(ledger, sweep.id) is not None
    trials = [trial for trial in ledger.trials(sweep.id) if trial.state in FINISHED_TRIAL or not driven]
    attempts, reports = by_trial(ledger.attempts(sweep.id)), by_trial(ledger.reports(sweep.id))
    checkpoints = by_trial(ledger.checkpoints(sweep.id))
    others = _names_of(row for rows in reports.values() for row in rows)
    found = [
        compare_log(
            sweep,
            trial,
            attempts.get(trial.key, ()),
            reports.get(trial.key, ()),
            checkpoints.get(trial.key, ()),
            others,
            entries(lines_of(paths.log(sweep.id, trial.key))),
        )
        for trial in trials
    ]
    # Where no log is at hand, as on another machine, nothing can be compared with those of other sweeps.
    at_hand = any(each.last for each in found)
    return found if at_hand else [replace(each, absent=()) for each in found]


def _names_of(reports: Iterable[ReportRecord]) -> dict[int, set[Names]]:
    """Return the names of the metrics of reports by their step."""
    names: dict[int, set[Names]] = defaultdict(set)
    seen: dict[tuple[str, ...], Names] = {}
    for report in reports:
        key = tuple(report.metrics)
        if key not in seen:
            seen[key] = compared(report.metrics)
        names[report.step].add(seen[key])
    return dict(names)
