"""Detection of reports that belong to another trial, by comparing the ledger with the logs of trials.

From 2026-11-23 to 2026-11-28 a warm worker could be lent twice at once. One trial then got the reports of
another one, which lacked them. Each worker still wrote the log of its own trial, so the logs show the
mistake. A log that is missing or on another machine causes no finding.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import inf
from pathlib import PurePath

from orchestrator.errors import Damaged
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.sweeps.lease import holder
from orchestrator.ledger.sweeps.records import (
    FINISHED_TRIAL,
    AttemptRecord,
    CheckpointRecord,
    ReportRecord,
    SweepRecord,
    TrialRecord,
    attempt_number,
    by_trial,
)
from orchestrator.process_secrets import redacted
from orchestrator.storage.paths import Paths
from orchestrator.upkeep.check import Finding
from orchestrator.upkeep.trial_log import Damage, Entry, ReportLine, Started, entries, lines_of

CLOSE_SECONDS = 120.0
"""Maximum time between a report's line in the log and its commit."""

OVERLAP_SECONDS = 2.0
"""Minimum time for which two attempts must have shared a process, because lines have whole seconds."""

LOOK_ALIKES = 4
"""Maximum number of lines about one step that are kept: the worker's own and lines of the script."""

MOST_NAMED = 12
"""Maximum number of steps, or pairs of attempts, that a finding names."""

_MEASURED = ("seconds/", "slots/")
"""Prefixes of metrics that the service adds to a report after its line is written, or to a script's."""

_HIDDEN = "***"
"""Replacement of a secret in a log."""

Names = frozenset[str]
"""Names of the metrics of a report, without the measured ones."""


@dataclass(frozen=True)
class LogComparison:
    """Comparison of a trial's log with the ledger.

    Attributes:
        sweep: Sweep of the trial.
        trial: Trial of the log.
        steps: Steps that the trial has reported.
        absent: Reports without a line in the log.
        proven: Those of `absent` whose lines a complete log would have.
        spare: Lines about steps that the trial has not reported.
        last: Highest step of each attempt in the log, by the attempt's number.
        lives: Lives of its attempts.
        elsewhere: Its checkpoints in the folders of other trials.
    """

    sweep: SweepRecord
    trial: TrialRecord
    steps: frozenset[int]
    absent: Sequence[ReportRecord]
    proven: Sequence[ReportRecord]
    spare: Sequence[ReportLine]
    last: Mapping[int, int]
    lives: Sequence[Life]
    elsewhere: Sequence[CheckpointRecord]


@dataclass(frozen=True)
class Life:
    """The time in which an attempt certainly had a process to itself.

    Attributes:
        host: Name of the machine.
        process: Id of the process.
        trial: Key of the trial.
        attempt: Number of the attempt.
        start: Time when a worker took it or logged its start, whichever is later.
        end: Time of its last report or of its end, whichever is earlier.
    """

    host: str
    process: int
    trial: str
    attempt: int
    start: float
    end: float

    @property
    def attempt_name(self) -> str:
        """Return the name of the attempt in findings."""
        return f"attempt {self.attempt} of {self.trial}"


def compare_log(
    sweep: SweepRecord,
    trial: TrialRecord,
    attempts: Sequence[AttemptRecord],
    reports: Sequence[ReportRecord],
    checkpoints: Sequence[CheckpointRecord],
    others: Mapping[int, Collection[Names]],
    log: Iterable[Entry],
) -> LogComparison:
    """Compare a log with the ledger.

    Args:
        sweep: Sweep of the trial.
        trial: Trial of the log.
        attempts: Attempts of the trial.
        reports: Reports of the trial.
        checkpoints: Checkpoints of the trial.
        others: Names of the metrics that the sweep's trials have reported, by step.
        log: Entries of the log, read once and after `reports`.
    """
    absent = {(attempt_number(report.attempt_id), report.step): report for report in reports}
    steps = frozenset(report.step for report in reports)
    started: dict[int, Started] = {}
    last: dict[int, int] = {}
    spare: dict[tuple[int, int], list[ReportLine]] = defaultdict(list)
    damaged = False
    for entry in log:
        if isinstance(entry, Damage):
            damaged = True
        elif isinstance(entry, Started):
            started.setdefault(entry.attempt, entry)  # the worker writes before the script can print
        elif entry.attempt in started:
            last[entry.attempt] = max(entry.step, last.get(entry.attempt, 0))
            place = entry.attempt, entry.step
            if (report := absent.get(place)) is not None and shows(entry.shown, report.metrics):
                del absent[place]
            elif (
                entry.step in others
                and entry.step not in steps
                and len(spare[place]) < LOOK_ALIKES
                and any(is_of_worker(entry.shown, names) for names in others[entry.step])
            ):
                spare[place].append(entry)
    # A loss of power takes the end of a log with the driver, which then ends no attempt.
    ended = set() if damaged else {row.number for row in attempts if row.state in {"ENDED", "FAILED"}}
    return LogComparison(
        sweep,
        trial,
        steps,
        list(absent.values()),
        [report for (attempt, _), report in absent.items() if attempt in started.keys() & ended],
        [line for lines in spare.values() for line in lines],
        last,
        list(_lives(sweep, attempts, reports, started)),
        # Of a checkpoint that it has copied from another trial, an earlier version may have kept the place.
        []
        if trial.system_attrs.get("segments")
        else [row for row in checkpoints if _owner(row) != trial.key],
    )


def _owner(row: CheckpointRecord) -> str:
    """Return the key of the trial whose folder contains a checkpoint."""
    return PurePath(row.path).parent.name


def _lives(
    sweep: SweepRecord,
    attempts: Sequence[AttemptRecord],
    reports: Sequence[ReportRecord],
    started: Mapping[int, Started],
) -> Iterator[Life]:
    """Yield the lives of attempts without a shared device; those with one share the process of an engine."""
    reported = {report.attempt_id: report.at for report in reports}
    for row in attempts:
        line, end, held = started.get(row.number), reported.get(row.id), row.taken_at
        if line is None or end is None or held is None or 0 < sweep.held_by(row)[1] < 1:
            continue
        start, end = max(held, line.at), min(end, inf if row.ended_at is None else row.ended_at)
        yield Life(line.host, line.process, row.trial_key, row.number, start, end)


# ---------------------------------------------------------------- lines and reports


def compared(metrics: Mapping[str, float]) -> Names:
    """Return the names of a report's metrics that its log line contains."""
    return frozenset(name for name in metrics if not name.startswith(_MEASURED))


def shows(shown: str, metrics: Mapping[str, float]) -> bool:
    """Return True if a line has the values of all metrics of a report, or cannot be compared with it.

    Secrets are hidden in the line, and a name with line breaks is in several entries.
    """
    padded = f", {shown}, "
    items = [f"{name} {metrics[name]:.6g}" for name in compared(metrics)]
    items = [redacted(item, ()) if "://" in item else item for item in items]
    is_comparable = _HIDDEN not in shown and all(len(item.splitlines()) == 1 for item in items)
    return not is_comparable or all(f", {item}, " in padded for item in items)


def is_of_worker(shown: str, names: Names) -> bool:
    """Return True if a line has exactly these metrics, with numbers as a worker writes them."""
    left = set(names)
    while shown:
        fitting = [name for name in left if shown.startswith(f"{name} ")]
        if not fitting and not shown.startswith(_MEASURED):
            return False
        name = max(fitting, key=len, default=shown.partition(" ")[0])
        number, _, shown = shown[len(name) + 1 :].partition(", ")
        if not _is_written(number):
            return False
        left.discard(name)
    return not left


def _is_written(number: str) -> bool:
    try:
        return f"{float(number):.6g}" == number
    except ValueError:
        return False


# ---------------------------------------------------------------- what is wrong


def mixed(comparisons: Sequence[LogComparison], chosen: Collection[str]) -> Iterator[Finding]:
    """Yield the trials of some sweeps that may have reports of other trials, or lack reports of their own.

    Args:
        comparisons: Comparisons of all trials of these sweeps, and of the sweeps that ran at the same time.
        chosen: Ids of the sweeps.
    """
    given = _given(comparisons)
    lacking, together = _lacking(comparisons, given), _together(comparisons)
    for each in comparisons:
        if each.sweep.id not in chosen:
            continue
        key = each.trial.key
        remedy = f"do not trust the results of {each.sweep.id}: run its file again with `--new`"
        if foreign := _foreign(each, given):
            yield Finding(key, f"has reports that its own log lacks: {foreign}; {remedy}")
        if steps := lacking.get(key):
            yield Finding(key, f"is COMPLETE without the reports of {named(steps)}; {remedy}")
        if each.elsewhere:
            places = {f"step {row.step} in the folder of {_owner(row)}" for row in each.elsewhere}
            yield Finding(key, f"has checkpoints in other folders: {' and '.join(sorted(places))}; {remedy}")
        if shared := together.get(key):
            yield Finding(key, f"shared a process: {shared}; {remedy}")


Given = Mapping[tuple[str, int], tuple[str, ReportLine]]
"""Key of the trial whose log has a report, and its line there, by the trial with the report and its step."""


def _given(comparisons: Sequence[LogComparison]) -> Given:
    """Return the reports that only the log of another trial has, which itself lacks them."""
    spare: dict[int, list[tuple[str, ReportLine]]] = defaultdict(list)
    for each in comparisons:
        for line in each.spare:
            spare[line.step].append((each.trial.key, line))
    given: dict[tuple[str, int], tuple[str, ReportLine]] = {}
    for each in comparisons:
        for report in each.absent:
            fitting = [
                (key, line)
                for key, line in spare.get(report.step, ())
                if key != each.trial.key
                and abs(report.at - line.at) <= CLOSE_SECONDS
                and shows(line.shown, report.metrics)
            ]
            if fitting:
                closest = min(fitting, key=lambda one: abs(report.at - one[1].at))
                given[each.trial.key, report.step] = closest
    return given


def _foreign(each: LogComparison, given: Given) -> str:
    """Return a phrase about the reports of a trial that are not its own, or ''."""
    key = each.trial.key
    origins = {row.step: given[key, row.step][0] for row in each.absent if (key, row.step) in given}
    parts = [
        f"{named([step for step, its in origins.items() if its == origin])} in the log of {origin}"
        for origin in sorted(set(origins.values()))
    ]
    if unknown := {row.step for row in each.proven} - origins.keys():
        parts.append(f"{named(unknown)} in no log")
    return " and ".join(parts)


def _lacking(comparisons: Sequence[LogComparison], given: Given) -> dict[str, set[int]]:
    """Return the steps of COMPLETE trials whose reports the ledger lacks, by the trial's key."""
    elsewhere = {(key, line.attempt, line.step) for key, line in given.values()}
    usual = _usual(comparisons)
    lacking: dict[str, set[int]] = {}
    for each in comparisons:
        key, is_script = each.trial.key, _is_script(each.sweep)
        if each.trial.state == "COMPLETE":
            steps = {
                line.step
                for line in each.spare
                if (key, line.attempt, line.step) in elsewhere
                or (_is_committed(each, line) and (not is_script or line.step in usual[each.sweep.id]))
            }
            lacking[key] = steps if is_script else steps | (_due(each) - each.steps)
    return lacking


def _is_committed(each: LogComparison, line: ReportLine) -> bool:
    """Return True if the driver was still alive after the report of a line.

    The last report of an attempt may be lost with the driver, and the next attempt may report at other steps.
    """
    return line.attempt == each.trial.attempts or line.step < each.last[line.attempt]


def _usual(comparisons: Sequence[LogComparison]) -> Mapping[str, frozenset[int]]:
    """Return the steps that more than half of a sweep's COMPLETE trials have reported, by the sweep's id.

    Output of a function or a command may look like a report of its worker. It is ignored at steps at which
    the other trials report nothing.
    """
    complete = [each for each in comparisons if each.trial.state == "COMPLETE"]
    trials = Counter(each.sweep.id for each in complete)
    counts = Counter((each.sweep.id, step) for each in complete for step in each.steps)
    return {
        sweep: frozenset(step for (its, step), count in counts.items() if its == sweep and 2 * count > number)
        for sweep, number in trials.items()
    }


def _due(each: LogComparison) -> set[int]:
    """Return the steps at which a network reports: the multiples of the interval, and the last one.

    A trial that continues from another's checkpoint may skip some of them.
    """
    interval, total = each.sweep.document.get("training", {}).get("interval"), each.trial.total_steps
    if not isinstance(interval, int) or interval < 1 or each.trial.system_attrs.get("segments"):
        return set()
    ends = {extension.step for extension in each.trial.extensions}
    return {*range(interval, total, interval), total, *ends}


def _is_script(sweep: SweepRecord) -> bool:
    return not {"function", "command"}.isdisjoint(sweep.document.get("trainable") or {})


def _together(comparisons: Sequence[LogComparison]) -> dict[str, str]:
    """Return a phrase about the attempts of a trial that shared a process with others, by trial."""

    def place(life: Life) -> tuple[str, int]:
        return life.host, life.process

    lives = sorted(
        (life for each in comparisons for life in each.lives), key=lambda life: (*place(life), life.start)
    )
    pairs: dict[str, list[str]] = defaultdict(list)
    for (host, process), group in groupby(lives, place):
        alive: list[Life] = []
        for life in group:
            alive = [other for other in alive if other.end - life.start > OVERLAP_SECONDS]
            for other in alive if life.end - life.start > OVERLAP_SECONDS else ():
                where = f"both used process {process} on {host}"
                pairs[life.trial].append(f"{life.attempt_name} and {other.attempt_name} {where}")
                pairs[other.trial].append(f"{other.attempt_name} and {life.attempt_name} {where}")
            alive.append(life)
    return {key: _some(texts) for key, texts in pairs.items()}


def _some(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - MOST_NAMED} more" if len(texts) > MOST_NAMED else ""
    return ", ".join(texts[:MOST_NAMED]) + more


def named(steps: Collection[int]) -> str:
    """Return steps as a phrase, such as `step 3` and `steps 3, 5, 7`."""
    return f"step{'s' if len(steps) > 1 else ''} {_some([str(step) for step in sorted(steps)])}"


def check_logs(ledger: Ledger, sweeps: Sequence[SweepRecord], paths: Paths) -> list[Finding]:
    """Return the trials that may have reports of others, or lack their own. Nothing is changed.

    The logs of all sweeps that ran at the same time are read too. A trial that a driver runs is left out,
    because the last line of its log may be newer than the ledger. `check` reports a damaged ledger.

    Args:
        ledger: Ledger of the sweeps.
        sweeps: Sweeps to check.
        paths: Paths of the logs.
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
    """Compare the logs of a sweep with the ledger, which is read before any log."""
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
    """Return the names of the metrics of reports, by step."""
    names: dict[int, set[Names]] = defaultdict(set)
    seen: dict[tuple[str, ...], Names] = {}
    for report in reports:
        key = tuple(report.metrics)
        if key not in seen:
            seen[key] = compared(report.metrics)
        names[report.step].add(seen[key])
    return dict(names)
