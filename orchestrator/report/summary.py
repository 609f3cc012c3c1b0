"""The summary of a sweep: the chosen trial, the leaderboard, failures and the time spent."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from orchestrator.assignment import SIZE
from orchestrator.config.networks import chosen_sizes
from orchestrator.config.strategy import most_trials
from orchestrator.ledger.sweeps import standing
from orchestrator.ledger.sweeps.pareto import ParetoFront
from orchestrator.ledger.sweeps.records import SIMILARITY, STEP_WORK, AttemptRecord, ReportRecord, TrialRecord
from orchestrator.ledger.sweeps.selection import (
    Constraints,
    best_checkpoint,
    best_trial,
    fresh_values,
    racers,
    ranked,
)
from orchestrator.ledger.sweeps.standing import (
    SPEED_REPORTS,
    BestTrial,
    FailureGroup,
    Improvement,
    SweepCost,
    TimeLeft,
    as_best,
    best_so_far,
    cost,
    failure_groups,
    improvement,
    leading,
    speed_and_rest,
    time_left_of,
)
from orchestrator.report.history import (
    History,
    SeedResult,
    SeedResults,
    evaluation_on_test,
    result_on_test,
    seed_results,
)
from orchestrator.report.published import is_as_published, obstacles
from orchestrator.study.race import SURE, chance_of_leader
from trainables import checkpoint as saved_files
from trainables.cost import SIZES, Cost

MEMORYLESS = "none"
"""Name of the layer without recurrence, which is a control."""


@dataclass(frozen=True)
class LeaderboardRow:
    """A row of the leaderboard.

    Attributes:
        rank: Rank of a candidate, from 1; None for other trials.
        value: Value of the objective, or None.
        test: Test metric, or None if the trial was not evaluated on the test split.
        violation: Violation of the constraints of the sweep; 0 for a feasible trial.
        seconds: Total time of all attempts.
        cost: Size of the network; None before the first report.
        further: Values of the objectives beside the first one, at the step of `value`.
        on_front: Whether the trial is on the Pareto front of several objectives.
    """

    rank: int | None
    key: str
    number: int
    state: str
    cause: str | None
    params: Mapping[str, Any]
    value: float | None
    test: float | None
    violation: float
    best_step: int | None
    step: int
    total_steps: int
    attempts: int
    seconds: float
    cost: Cost | None = None
    further: Mapping[str, float] = field(default_factory=dict)
    on_front: bool = False


@dataclass(frozen=True)
class Chosen:
    """The recommended trial: the best one that still has the checkpoint of its best step.

    Attributes:
        row: Row of the leaderboard.
        validation: All metrics of the best report.
        test: Metrics on the test split; empty if the trial was not evaluated there.
        checkpoint: Folder of the best checkpoint; None if the trial saved no files.
    """

    row: LeaderboardRow
    validation: Mapping[str, float]
    test: Mapping[str, float]
    checkpoint: str | None


@dataclass(frozen=True)
class TimeSpent:
    """Time of attempts by purpose, in seconds, summed over concurrent attempts.

    Attributes:
        train: Training steps.
        compile: Compilation.
        evaluate: Evaluation on the validation split.
        other: Start, checkpoints, and waiting for the device.
        lost: Time after the last report of a failed or lost attempt: repeated or wasted work.
    """

    train: float = 0.0
    compile: float = 0.0
    evaluate: float = 0.0
    other: float = 0.0
    lost: float = 0.0

    @property
    def total(self) -> float:
        """Sum of all parts."""
        return sum(self.parts().values())

    def parts(self) -> dict[str, float]:
        """Return the seconds of each part by its name."""
        return {part.name: getattr(self, part.name) for part in fields(self)}

    def __add__(self, other: TimeSpent) -> TimeSpent:
        return TimeSpent(**{name: value + getattr(other, name) for name, value in self.parts().items()})


@dataclass(frozen=True)
class Racer:
    """A candidate of a race.

    Attributes:
        number: Number of its trial.
        search: Value in the search, by which it became a candidate.
        fresh: Validation values of its finished retrainings; NaN of a failed one.
    """

    number: int
    search: float
    fresh: tuple[float, ...]


@dataclass(frozen=True)
class RaceResult:
    """A race between the best trials of a search.

    Attributes:
        racers: Candidates, the leader first.
        established: Whether the leader is better than all others, see `chance_of_leader`.
    """

    racers: tuple[Racer, ...]
    established: bool


@dataclass(frozen=True)
class Extended:
    """A trial that was chosen by its value in the search and continued to more steps.

    Attributes:
        number: Number of the trial.
        before: Its last step in the search.
        steps: Steps to which it continues.
        value: Its best validation value in the search; None if it is unknown.
    """

    number: int
    before: int
    steps: int
    value: float | None


@dataclass(frozen=True)
class EarlierSource:
    """Earlier results from which the sampler learned. They are not results of the sweep.

    Attributes:
        name: Id of an earlier sweep, or source of known results.
        is_sweep: Whether it is an earlier sweep of the same ledger.
        left_out: Number of known results that are not used, by reason.
        repeated: Numbers of the trials that repeat its settings, rising.
        results: Number of results in the space of the sweep.
        shared: Number of its settings for which the sweep has a result too.
        correlation: Rank correlation of the values of shared settings; None if it is unknown.
        weight: The correlation if it is positive beyond its error, and else 0.
    """

    name: str
    is_sweep: bool
    left_out: Mapping[str, int]
    repeated: tuple[int, ...]
    results: int = 0
    shared: int = 0
    correlation: float | None = None
    weight: float = 0.0


@dataclass(frozen=True)
class Summary:
    """The content of a report, without its figures.

    Attributes:
        layer: Layer of the file; `chosen_layer` is the one of the chosen trial.
        metric: Metric that is optimised, such as `val/accuracy`.
        test_metric: Same metric on the test split, such as `test/accuracy`.
        constraints: Bounds that a feasible trial satisfies, by metric.
        data_digest: Digest of all splits; sweeps with equal digests have the same test examples.
        comparable: Whether the data are those of published results; `note` gives the reason if not.
        departures: Differences of the chosen trial from the published setting, such as `depth 2 instead of
            6`; the profile where no setting is published.
        chance: Score of the best constant answer, by split.
        examples: Number of validation examples in an evaluation, or None for all of them.
        chosen: Recommended trial, or None while no trial is complete.
        rows: Trials of the search: complete ones from the best to the worst, then pruned, unfinished and
            failed ones.
        confirmations: Retrainings of the chosen hyperparameters.
        seeds: Test results that represent the sweep, by seed.
        race: Race between the best trials, or None without one.
        extended: Trials that were continued to more steps, by number.
        earlier: Earlier results from which the sampler learned, by source.
        front: Pareto front, or None with a single objective.
        memoryless: Test result of the best trial without recurrence, or None if it was not evaluated.
        further: Test metric on further test splits, such as `test/accuracy_x2`, one value per seed.
        published_source: Paper and table of the published results, or None.
        published: Published results by metric; empty where data, size or training are not the published ones,
            so that no page or report shows a figure that the sweep cannot be compared with.
        as_published: Numbers of the trials that have the published values.
        matched: Sizes chosen by `model.match` in words, or None.
        states: Number of trials of the search by state.
        failures: Number of failed trials by cause.
        details: Details of the first failure by cause; '' if nothing more is known.
        spending: Time by purpose.
        best: Best trial so far, running and pruned ones included, or None.
        leading: Trial whose value stands for the sweep in lists and comparisons: the best complete one once
            the sweep has ended, whether or not its checkpoint is kept, and `best` before.
        improvement: Last improvement of the search, or None without a value.
        cost: What the sweep has used, beside the limits of its budget.
        time_left: Range of the time left, or None if unknown or no driver has the sweep.
        failed: Failed search trials by the last line of their error, the most frequent first.
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
    constraints: Constraints
    data_source: str
    data_digest: str
    comparable: bool
    departures: tuple[str, ...]
    note: str
    chance: Mapping[str, float]
    examples: int | None
    chosen: Chosen | None
    rows: tuple[LeaderboardRow, ...]
    confirmations: tuple[LeaderboardRow, ...]
    seeds: SeedResults
    race: RaceResult | None
    extended: tuple[Extended, ...]
    earlier: tuple[EarlierSource, ...]
    front: ParetoFront | None
    memoryless: SeedResult | None
    further: Mapping[str, tuple[float, ...]]
    published_source: str | None
    published: Mapping[str, float]
    as_published: tuple[int, ...]
    matched: str | None
    states: Mapping[str, int]
    failures: Mapping[str, int]
    details: Mapping[str, str]
    spending: TimeSpent
    best: BestTrial | None
    leading: BestTrial | None
    improvement: Improvement | None
    cost: SweepCost
    time_left: TimeLeft | None
    failed: Sequence[FailureGroup]

    @property
    def runs_script(self) -> bool:
        """Whether the sweep trains a function or a command, which has neither a test split nor a size."""
        return self.layer in ("function", "command")

    @property
    def judged(self) -> str:
        """Suffix for what trials are judged by: ` on validation`, or '' for a script's own metric."""
        return "" if self.runs_script else " on validation"

    @property
    def is_as_published(self) -> bool:
        """Whether the results can be compared with published ones: same data, network and training."""
        return self.comparable and not self.departures

    @property
    def obstacles(self) -> tuple[str, ...]:
        """Reasons why the results cannot be compared with published ones."""
        data = () if self.comparable else (self.note or self.data_source,)
        return (*data, *self.departures)

    @property
    def chosen_layer(self) -> str:
        """Layer of the chosen trial, or of the file if no trial is chosen."""
        drawn = self.chosen.row.params if self.chosen is not None else {}
        return str(drawn.get("layer", self.layer))

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the searched hyperparameters, in the order of the file."""
        names: dict[str, None] = {}
        for row in self.rows:
            names.update(dict.fromkeys(row.params))
        return tuple(names)


def summarise(history: History) -> Summary:
    """Return the summary of a sweep in its present state."""
    sweep, facts, document = history.sweep, history.sweep.facts, history.sweep.document
    search = history.search()
    failed = [trial for trial in search if trial.state == "FAILED"]
    published = dict(document.get("published") or {})
    source = published.pop("source", None)
    published.pop("values", None)
    front = history.front()
    rows = _leaderboard(history, front)
    chosen = _chosen(history, rows)
    params = {} if chosen is None else chosen.row.params
    return Summary(
        sweep_id=sweep.id,
        task=sweep.task,
        layer=_kind(document),
        profile=sweep.profile,
        state=sweep.state,
        reason=sweep.reason,
        metric=history.metric,
        test_metric=test_metric(history.metric),
        maximize=history.maximize,
        constraints=history.constraints,
        data_source=sweep.data_source,
        data_digest=sweep.data_digest,
        comparable=bool(facts.get("comparable", False)),
        departures=obstacles(sweep, params),
        note=str(facts.get("note", "")),
        chance=dict(facts.get("chance", {})),
        examples=document.get("evaluate", {}).get("examples"),
        chosen=chosen,
        rows=rows,
        confirmations=tuple(_row(history, trial) for trial in history.trials if trial.role != "search"),
        seeds=seed_results(history, test_metric(history.metric)),
        race=_race(history),
        extended=tuple(
            Extended(trial.number, first.step, trial.total_steps, first.value)
            for trial in search
            for first in trial.extensions[:1]
        ),
        earlier=_earlier(history),
        front=front if len(front.objectives) > 1 else None,
        memoryless=_memoryless(history, rows),
        further=_further(history),
        published_source=source,
        published=(
            {name: float(value) for name, value in published.items()}
            if is_as_published(sweep, params)
            else {}
        ),
        as_published=tuple(trial.number for trial in search if source and trial.repeats == source),
        matched=chosen_sizes(document),
        states=dict(Counter(trial.state for trial in search)),
        failures=dict(Counter(cause_of(trial) for trial in failed).most_common()),
        details={
            cause_of(trial): (trial.cause or "").partition(":")[2].strip() for trial in reversed(failed)
        },
        spending=spending(history),
        **_standing(history),
    )


def _standing(history: History) -> dict[str, Any]:
    """Return the figures of a sweep that every view shows alike, as values of `Summary`."""
    search, sweep, now = history.search(), history.sweep, history.read_at
    attempts = [attempt for of_trial in history.attempts.values() for attempt in of_trial]
    states = Counter(str(trial.state) for trial in search)
    limit = max(len(search), most_trials(sweep.document))
    values = history.values_so_far() if history.has_best else {}
    best, chosen = best_so_far(search, values, maximize=history.maximize), None
    if history.has_best:
        chosen = best_trial(
            history.trials,
            maximize=history.maximize,
            violations=history.violations(),
            racing=history.racing,
        )
    left = None
    if now is not None and sweep.state == "RUNNING":
        rests = {
            trial.key: speed_and_rest(trial, history.reports.get(trial.key, ())[-SPEED_REPORTS:], now)[1]
            for trial in history.trials
            if trial.state == "RUNNING"
        }
        left = time_left_of(sweep, history.trials, attempts, rests, trials_limit=limit, now=now)
    return {
        "best": best,
        "leading": leading(
            sweep.state, best, None if chosen is None else as_best(chosen, values[chosen.key], chosen.params)
        ),
        "improvement": improvement(standing.history(search, values, maximize=history.maximize)),
        "cost": cost(sweep, attempts, states, trials_limit=limit, now=now),
        "time_left": left,
        "failed": failure_groups(search),
    }


def row_of_memoryless(layer: str, rows: Sequence[LeaderboardRow]) -> LeaderboardRow | None:
    """Return the best complete trial without recurrence, or None.

    Args:
        layer: Layer of trials that do not search it.
        rows: Rows of the leaderboard, best first.
    """
    complete = (row for row in rows if row.rank is not None)
    return next((row for row in complete if row.params.get("layer", layer) == MEMORYLESS), None)


def _race(history: History) -> RaceResult | None:
    if not history.racing:
        return None
    violations = history.violations()
    best_first = ranked(
        history.trials, maximize=history.maximize, violations=violations, racing=history.racing
    )
    candidates = racers(best_first, violations, history.racing)
    sign = 1.0 if history.maximize else -1.0
    scores = [fresh_values(history.trials, each, maximize=history.maximize) for each in candidates]
    known = [[score for score in each if score is not None] for each in scores]
    found = [
        Racer(
            candidate.number,
            candidate.value if candidate.value is not None else math.nan,
            tuple(sign * score if math.isfinite(score) else math.nan for score in each),
        )
        for candidate, each in zip(candidates, known, strict=True)
    ]
    is_run = len(known) > 1 and all(known)
    runs = history.sweep.document["confirm"]["race"]["runs"]
    return RaceResult(tuple(found), is_run and chance_of_leader(known, runs) >= SURE)


def _earlier(history: History) -> tuple[EarlierSource, ...]:
    document, facts = history.sweep.document, history.sweep.facts.get(SIMILARITY, {})
    known = {each["source"]: each.get("left_out", {}) for each in document.get("known", ())}
    sweeps = document.get("warm_start", ())
    return tuple(
        EarlierSource(
            name,
            name in sweeps,
            known.get(name, {}),
            tuple(trial.number for trial in history.search() if trial.repeats == name),
            **facts.get(name, {}),
        )
        for name in (*sweeps, *known)
    )


def _memoryless(history: History, rows: Sequence[LeaderboardRow]) -> SeedResult | None:
    row = row_of_memoryless(_kind(history.sweep.document), rows)
    trials = (trial for trial in history.trials if row is not None and trial.key == row.key)
    return next((result_on_test(history, trial, test_metric(history.metric)) for trial in trials), None)


def _kind(document: Mapping[str, Any]) -> str:
    """Return the layer of a sweep's file, or `function`, `command` or `program`."""
    if "trainable" in document:
        return next(kind for kind in ("function", "command", "program") if kind in document["trainable"])
    return str(document["model"]["layer"])


def test_metric(metric: str) -> str:
    """Return the test-split name of a validation metric."""
    return f"test/{metric.partition('/')[2] or metric}"


def _further(history: History) -> dict[str, tuple[float, ...]]:
    """Return the values by seed of the metrics on further test splits, ordered by their numbers."""
    leading = test_metric(history.metric)
    names = {
        name
        for evaluations in history.evaluations.values()
        for evaluation in evaluations
        for name in evaluation.metrics
        if name.startswith(f"{leading}_")
    }
    ordered = sorted(names, key=lambda name: [int(number) for number in re.findall(r"\d+", name)])
    results = {name: seed_results(history, name).results for name in ordered}
    return {name: tuple(result.value for result in seeds) for name, seeds in results.items() if seeds}


def cause_of(trial: TrialRecord) -> str:
    """Return the kind of failure of a trial, without its details."""
    return (trial.cause or "unknown").partition(":")[0]


def _chosen(history: History, rows: Sequence[LeaderboardRow]) -> Chosen | None:
    trial = best_trial(
        history.trials,
        maximize=history.maximize,
        violations=history.violations(),
        checkpoints=history.checkpoints,
        racing=history.racing,
    )
    if trial is None or not history.has_best:
        return None
    checkpoint = best_checkpoint(trial, history.checkpoints[trial.key])
    assert checkpoint is not None, "a chosen trial has a checkpoint"
    return Chosen(
        row=next(row for row in rows if row.key == trial.key),
        validation=dict(history.at_best(trial)),
        test=_test(history, trial),
        checkpoint=None if saved_files.is_empty(Path(checkpoint.path)) else checkpoint.path,
    )


_STATES = ("COMPLETE", "DIVERGED", "PRUNED", "RUNNING", "PREEMPTED", "WAITING", "FAILED")
"""The states of trials, in the order of the leaderboard."""


def _leaderboard(history: History, front: ParetoFront) -> tuple[LeaderboardRow, ...]:
    search = history.search()
    sign = -1.0 if history.maximize else 1.0

    def place(trial: TrialRecord) -> tuple[int, float, int]:
        value = float("inf") if trial.value is None else sign * trial.value
        return _STATES.index(trial.state), value, trial.number

    best_first = ranked(search, maximize=history.maximize, violations=history.violations())
    with_rank = {trial.key for trial in best_first}
    others = sorted((trial for trial in search if trial.key not in with_rank), key=place)
    on_front = {trial.key for trial in front.trials}
    further = [name for name in front.objectives if name != history.metric]
    rows = (
        *(_row(history, trial, rank) for rank, trial in enumerate(best_first, start=1)),
        *(_row(history, trial) for trial in others),
    )
    if not further:
        return rows
    reported = {trial.key: history.at_best(trial) for trial in search}
    return tuple(
        replace(
            row,
            further={name: reported[row.key][name] for name in further if name in reported[row.key]},
            on_front=row.key in on_front,
        )
        for row in rows
    )


def _row(history: History, trial: TrialRecord, rank: int | None = None) -> LeaderboardRow:
    return LeaderboardRow(
        rank=rank,
        key=trial.key,
        number=trial.number,
        state=trial.state,
        cause=trial.cause,
        params=trial.params,
        value=trial.value,
        test=_test(history, trial).get(test_metric(history.metric)),
        violation=history.violation(trial),
        best_step=trial.best_step,
        step=trial.step,
        total_steps=trial.total_steps,
        attempts=trial.attempts,
        seconds=spending(history, trial.key).total,
        cost=cost_of(history, trial),
    )


def cost_of(history: History, trial: TrialRecord) -> Cost | None:
    """Return the size that a trial reported, with the FLOPs of a step if they were counted."""
    first = next(iter(history.reports.get(trial.key, ())), None)
    reported = {} if first is None else first.metrics
    sizes = {name: reported[SIZE + name] for name in SIZES if SIZE + name in reported}
    entries = history.sweep.facts.get(STEP_WORK, ())
    counted: Mapping[str, Any] = next((entry for entry in entries if trial.key in entry["trials"]), {})
    document = {**counted, **sizes}
    return Cost.from_document(document) if document.keys() >= set(SIZES) else None


def _test(history: History, trial: TrialRecord) -> dict[str, float]:
    """Return the metrics of a trial's latest evaluation on the test split; empty if there is none."""
    evaluation = evaluation_on_test(history, trial)
    return {} if evaluation is None else dict(evaluation.metrics)


def spending(history: History, trial_key: str | None = None) -> TimeSpent:
    """Return the time spent by a trial, or by all trials of the sweep."""
    keys = [trial.key for trial in history.trials] if trial_key is None else [trial_key]
    total = TimeSpent()
    for key in keys:
        for attempt in history.attempts.get(key, ()):
            reports = [row for row in history.reports.get(key, ()) if row.attempt_id == attempt.id]
            total += _of_attempt(attempt, reports)
    return total


def _of_attempt(attempt: AttemptRecord, reports: Sequence[ReportRecord]) -> TimeSpent:
    last = max((row.at for row in reports), default=attempt.started_at)
    end = last if attempt.ended_at is None else max(last, attempt.ended_at)
    lost = end - last if attempt.state in ("LOST", "FAILED") else 0.0
    known = {
        name: sum(row.metrics.get(f"seconds/{name}", 0.0) for row in reports)
        for name in ("train", "compile", "evaluate")
    }
    other = end - attempt.started_at - lost - sum(known.values())
    return TimeSpent(**known, other=max(0.0, other), lost=lost)
