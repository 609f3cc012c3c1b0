"""The results of an experiment: the data behind its pages, and their JSON format."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from orchestrator.errors import BadInput, Damaged, counted
from orchestrator.experiment.file import OrderClaim, Statement
from orchestrator.experiment.order import Ordering, ordering
from orchestrator.experiment.verdict import (
    NO_EXAMPLES,
    NOTHING,
    SHOWN,
    Corrected,
    StatedFigure,
    Verdict,
    answered,
    answered_order,
    judged,
    ordered,
    p_of,
    sides,
)
from orchestrator.ledger.sweeps.records import unpack_scores
from orchestrator.report.history import SCORED
from orchestrator.report.noise import Sample, Variance, mean_of
from orchestrator.report.statistics import CONFIDENCE, holm

Kind = Literal["identities", "toys", "benchmarks"]

TOYS = frozenset(
    {"adding", "copy", "group_words", "induction", "modular", "mqar", "parity", "selective_copy"}
)
"""Tasks that are drawn to test one ability, such as recall."""

FORMAT = 3
"""Version of the JSON format."""


@dataclass(frozen=True)
class Seed:
    """The result of one seed of an arm.

    Attributes:
        seed: Number of the seed.
        trial: Key of the trial, or '' for a measured function.
        value: Value that arms are compared by.
        steps: Steps of the curve; empty if there is none.
        curve: Metric that training reports.
        scores: Scores of all test examples, packed by `pack_scores`; '' if they are not
            recorded or do not belong to the metric.
    """

    seed: int
    trial: str
    value: float
    steps: Sequence[int] = ()
    curve: Sequence[float] = ()
    scores: str = ""


@dataclass(frozen=True)
class NormCurve:
    """The norm of the hidden states of one layer in a training, from step 0 where it is known.

    Attributes:
        of: "head" or "state" for the mean norm of a head or of the whole state in evaluation, "expected" for
            the closed form of a head's.
        seed: Number of the seed.
        layer: Number of the layer.
        steps: Steps of the reports.
        values: Norms at these steps.
    """

    of: str
    seed: int
    layer: int
    steps: Sequence[int]
    values: Sequence[float]


@dataclass(frozen=True)
class Origin:
    """The code and the machine that ran an arm.

    Attributes:
        date: Day of the start, such as `2026-11-22`.
        commit: Commit of the repository.
        machine: Hardware of the trials in words; '' if unknown.
        versions: Names and versions of the packages that can change a result; empty if unknown.
    """

    date: str
    commit: str
    machine: str = ""
    versions: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class ArmRun:
    """The cost of an arm in one ledger.

    Attributes:
        begun_at: Creation of the sweep, in seconds since 1970; 0 if unknown. It distinguishes the runs of one
            sweep in several ledgers.
        state: State of the sweep.
        trials: Number of trials, confirmations included.
        wall_seconds: Time during which at least one attempt ran.
        core_seconds: Processors times seconds, summed over the attempts.
        gpu_seconds: GPUs times seconds, summed over the attempts.
        origin: Code and machine, or None if unknown.
    """

    begun_at: float
    state: str
    trials: int
    wall_seconds: float
    core_seconds: float
    gpu_seconds: float
    origin: Origin | None

    def is_run(self, other: ArmRun) -> bool:
        """Return True if both are the run of one ledger, or, without times, have the same day and commit."""
        if self.begun_at and other.begun_at:
            return self.begun_at == other.begun_at
        return _day(self.origin) == _day(other.origin)


def _day(origin: Origin | None) -> tuple[str, str] | None:
    return None if origin is None else (origin.date, origin.commit)


@dataclass(frozen=True)
class ArmResult:
    """The results of one arm.

    Attributes:
        name: Name within the experiment.
        about: Layer and task, such as `rotrnn on listops`.
        sweep: ID of the sweep, or ''.
        state: State of the sweep; NEW if it has not run.
        seeds: Seeds that have a value.
        published: Published figure or bound, or None.
        obstacle: Reasons why the figures cannot be compared with the paper's; '' if they can.
        cell: Row and column of the paper's table, or None.
        data: Source of the data.
        data_digest: SHA-256 of the data, or ''.
        digest: Digest of the specification, or ''.
        trials: Number of trials, confirmations included.
        wall_seconds: Time during which at least one attempt ran.
        core_seconds: Processors times seconds, summed over the attempts.
        gpu_seconds: GPUs times seconds, summed over the attempts.
        lack: Reason why the arm has not run here, such as missing data; '' if it has or can.
        hypothesis: Whether `published` is the file's own bound instead of a paper's.
        size: Size of the networks and their training, in words.
        parameters: Number of parameters of a network, or None if unknown.
        network: Counted sizes of a network, in words; '' if unknown.
        chance: Score of the best constant answer, or None if unknown.
        lengths: Values by seed on test splits of longer sequences, by name, such as `x2`.
        lengths_metric: Metric of `lengths`, such as `test/accuracy`; '' without lengths.
        origin: Code and machine that produced the results.
        interval: Interval of the mean, with the noise of seeds and test examples; None if a source is
            unknown.
        begun_at: Creation of the sweep; see `ArmRun`.
        elsewhere: Runs of the same specification in other ledgers, whose values are not used.
        norms: Norms of hidden states by layer, of the first seed and of as many others as
            `collected.MOST_NORMS` permits; empty for other metrics than norms.
    """

    name: str
    about: str
    sweep: str
    state: str
    seeds: Sequence[Seed]
    published: StatedFigure | None
    obstacle: str
    cell: tuple[str, str] | None
    data: str = ""
    data_digest: str = ""
    digest: str = ""
    trials: int = 0
    wall_seconds: float = 0.0
    core_seconds: float = 0.0
    gpu_seconds: float = 0.0
    lack: str = ""
    hypothesis: bool = False
    size: str = ""
    parameters: int | None = None
    network: str = ""
    chance: float | None = None
    lengths: Mapping[str, Sequence[float]] = field(default_factory=dict)
    lengths_metric: str = ""
    origin: Origin | None = None
    interval: tuple[float, float] | None = None
    begun_at: float = 0.0
    elsewhere: tuple[ArmRun, ...] = ()
    norms: tuple[NormCurve, ...] = ()

    @property
    def runs(self) -> tuple[ArmRun, ...]:
        """Runs of the arm, first the one whose values are used."""
        own = ArmRun(
            self.begun_at,
            self.state,
            self.trials,
            self.wall_seconds,
            self.core_seconds,
            self.gpu_seconds,
            self.origin,
        )
        return own, *self.elsewhere

    @property
    def values(self) -> list[float]:
        """The value of each seed."""
        return [seed.value for seed in self.seeds]

    def sample(self, metric: str) -> Sample:
        """Return the values of a metric, at least one, as a sample."""
        scores = [seed.scores for seed in self.seeds]
        return Sample.of(self.name, self.values, scores, self.data_digest, metric)


@dataclass(frozen=True)
class Circumstances:
    """The time, the code and the machine that wrote the results. `Origin` describes those of an arm.

    Attributes:
        date: Day, such as `2026-11-22`.
        commit: Commit of the repository.
        machine: Hardware in words.
        versions: Versions of installed packages that can change a result.
    """

    date: str
    commit: str
    machine: str
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ExperimentResults(Statement):
    """The results of an experiment.

    Attributes:
        seeds_asked: Number of seeds of every arm.
        arms: Results of the arms in the order of the file.
        orderings: Measured difference of the arms of each claim; None if one of them has no value yet.
        circumstances: Time, code and machine that wrote the results.
    """

    seeds_asked: int
    arms: tuple[ArmResult, ...]
    orderings: tuple[Ordering | None, ...]
    circumstances: Circumstances

    @property
    def where(self) -> str:
        """Size of the arms, in words."""
        return f"at the size of the profile {self.profile}" if self.profile else "at the size of the file"

    @property
    def origins(self) -> dict[Origin, list[str]]:
        """Names of the arms with values, by their origin."""
        of_all = Origin(self.circumstances.date, self.circumstances.commit, self.circumstances.machine)
        names: dict[Origin, list[str]] = {}
        for arm in self.arms:
            if arm.values:
                names.setdefault(arm.origin or of_all, []).append(arm.name)
        return names

    @property
    def runs(self) -> tuple[ArmRun, ...]:
        """Runs of all arms."""
        return tuple(run for arm in self.arms for run in arm.runs)

    @cached_property
    def verdicts(self) -> dict[str, Verdict]:
        """Verdict of every arm by its name."""
        return {arm.name: self._verdict(arm) for arm in self.arms}

    def _verdict(self, arm: ArmResult) -> Verdict:
        asked, noise, corrected = self.seeds_asked, self.noise(arm), self.corrected.get(arm.name)
        if not arm.hypothesis:
            obstacle = arm.obstacle or arm.lack
            return judged(
                arm.values, arm.published, seeds=asked, obstacle=obstacle, noise=noise, corrected=corrected
            )
        verdict = answered(
            arm.values,
            arm.published,
            seeds=asked,
            size=self.where,
            lack=arm.lack,
            noise=noise,
            corrected=corrected,
        )
        if arm.published is None or arm.lack:
            return verdict
        supposed = bool(np.isfinite(arm.published.range[1 if self.maximize else 0]))  # an inability
        is_unable = verdict.outcome != "refuted" if supposed else verdict.outcome == "refuted"
        nothing = self.shows_nothing(arm.data_digest) if is_unable else ""
        return Verdict("undetermined", nothing, NOTHING) if nothing else verdict

    def shows_nothing(self, data: str) -> str:
        """Return the reason why arms on some data show neither inability nor order; '' if they can.

        A failure of an arm, or its rank behind another, counts only if a positive control solves the task on
        the same data and no negative control does.
        """
        if self.positive is None:
            return ""
        near = [each for each in self.arms if each.data_digest == data and each.values]
        positive = [each for each in near if each.name in self.positive]
        wrong = [each.name for each in near if each.name in self.negative and self._solves(each)]
        if wrong:
            return f"this size shows nothing: the negative control {', '.join(wrong)} solves the task"
        if any(self._solves(each) for each in positive):
            return ""
        names = ", ".join(each.name for each in positive)
        failed = (
            f"the positive control {names} is not shown to solve the task" if names else "no positive control"
        )
        return f"this size shows nothing: {failed}"

    def _solves(self, arm: ArmResult) -> bool:
        """Return True if most trainings of an arm are shown to solve the task; see `verdict.sides`."""
        assert self.solved is not None, "controls need a threshold"
        limits = (self.solved, np.inf) if self.maximize else (-np.inf, self.solved)
        within, _ = sides(np.array(arm.values), limits, self.noise(arm))
        return len(arm.values) >= self.seeds_asked and bool(within <= 1 - CONFIDENCE)

    def noise(self, arm: ArmResult) -> Variance | None:
        """Return the noise of an arm's mean over its test examples; None if their scores are not recorded."""
        if self.metric not in SCORED or not arm.values:
            return NO_EXAMPLES
        return mean_of(arm.sample(self.metric)).examples

    @cached_property
    def corrected(self) -> dict[str | int, Corrected]:
        """The p value of every comparison, by the name of the arm or the index of the claim.

        Figures that cannot be compared with the paper's do not count; claims about such arms do, because the
        page names the better arm.
        """
        families: dict[str, dict[str | int, float | None]] = {}
        for arm in self._judged_arms():
            assert arm.published is not None
            p = p_of(arm.values, arm.published, self.noise(arm))
            families.setdefault(self.family(arm.name), {})[arm.name] = p
        for index, (claim, found) in enumerate(zip(self.claims, self.orderings, strict=True)):
            p = None if found is None else found.p
            families.setdefault(self.family(claim.better, claim.than), {})[index] = p
        return {key: each for family in families.values() for key, each in _corrected(family).items()}

    def _judged_arms(self) -> list[ArmResult]:
        return [arm for arm in self.arms if arm.published and (arm.hypothesis or not arm.obstacle)]

    def family(self, *arms: str) -> str:
        """Return the declared family that contains all of these arms; '' if none does."""
        return next((name for name, own in self.families.items() if set(arms) <= set(own)), "")

    @property
    def family_sizes(self) -> dict[str, int]:
        """Number of comparisons of each family by its name."""
        of_arms = [self.family(arm.name) for arm in self._judged_arms()]
        return dict(Counter([*of_arms, *(self.family(claim.better, claim.than) for claim in self.claims)]))

    def measured(self, claim: OrderClaim) -> Ordering | None:
        """Return the difference of the arms of a claim; None if one of them has no value yet."""
        arms = {arm.name: arm for arm in self.arms}
        first, second = arms[claim.better], arms[claim.than]
        if not first.values or not second.values:
            return None
        return ordering(
            first.sample(self.metric),
            second.sample(self.metric),
            maximize=self.maximize,
            comparisons=self.family_sizes[self.family(claim.better, claim.than)],
            paired=self.paired,
            scored=self.metric in SCORED,
        )

    @cached_property
    def orders(self) -> tuple[Verdict, ...]:
        """Verdict of each claim."""
        return tuple(map(self._order, range(len(self.claims))))

    def _order(self, index: int) -> Verdict:
        claim, measured, corrected = self.claims[index], self.orderings[index], self.corrected[index]
        arms = {arm.name: arm for arm in self.arms}
        counts = {name: len(arms[name].values) for name in (claim.better, claim.than)}
        few = {name: count for name, count in counts.items() if count < self.seeds_asked}
        seeds = " and ".join(f"{counted(count, 'seed')} of {name}" for name, count in few.items())
        have = "has" if list(few.values()) == [1] else "have"
        lack = f"{seeds} {have} a value, of {self.seeds_asked}" if few else ""
        fewest = min(counts.values())
        nothing = "" if lack else self.shows_nothing(arms[claim.better].data_digest)
        if nothing:
            return Verdict("undetermined", nothing, NOTHING)
        if claim.hypothesis:
            return answered_order(
                claim.better,
                claim.than,
                measured,
                seeds=fewest,
                corrected=corrected,
                size=self.where,
                lack=lack,
            )
        obstacles = dict.fromkeys(filter(None, (arms[claim.better].obstacle, arms[claim.than].obstacle)))
        return ordered(
            claim.better,
            claim.than,
            measured,
            seeds=fewest,
            corrected=corrected,
            lack=lack,
            obstacle="; ".join(obstacles),
            size=self.where,
        )

    def solved_by(self, arm: ArmResult) -> int | None:
        """Return the number of seeds that solve the task; None if the file has no threshold."""
        if self.solved is None:
            return None
        return sum(value >= self.solved if self.maximize else value <= self.solved for value in arm.values)

    def count(self, outcome: str, *, hypothesis: bool | None = None) -> int:
        """Return the number of figures, bounds and claims with an outcome of `VERDICTS`.

        A true `hypothesis` restricts the count to hypotheses, a false one to published figures and claims.
        """
        return sum(
            verdict.outcome == outcome and hypothesis in (None, is_hypothesis)
            for is_hypothesis, verdict in self._stated()
        )

    def causes(self) -> Counter[str]:
        """Return the number of comparisons that were not shown, by the outcome or by what is missing."""
        verdicts = [verdict for _, verdict in self._stated() if verdict.outcome not in (None, *SHOWN)]
        return Counter(verdict.cause or str(verdict.outcome) for verdict in verdicts)

    def _stated(self) -> list[tuple[bool, Verdict]]:
        """Return the verdict of every figure, bound and claim, and whether it is a hypothesis."""
        figures = [(arm.hypothesis, self.verdicts[arm.name]) for arm in self.arms]
        return figures + [
            (claim.hypothesis, order) for claim, order in zip(self.claims, self.orders, strict=True)
        ]

    @property
    def kind(self) -> Kind:
        """What the results are about: a function, a task that is drawn for one ability, or a benchmark."""
        tasks = {arm.about.partition(" on ")[2] for arm in self.arms}
        return "identities" if tasks == {""} else "toys" if tasks <= TOYS else "benchmarks"

    def document(self) -> dict[str, Any]:
        """Return the results as plain JSON values; arms without norms have no such field."""
        document = asdict(self)
        for arm in document["arms"]:
            if not arm["norms"]:
                del arm["norms"]
        return {"format": FORMAT, **document}


def _corrected(family: Mapping[str | int, float | None]) -> dict[str | int, Corrected]:
    """Correct the p values of a family by Holm's method; those that are unknown count as 1."""
    count = len(family)
    corrected = holm([1.0 if p is None else p for p in family.values()], count)
    pairs = zip(family.items(), corrected, strict=True)
    return {key: Corrected(p, None if p is None else each, count) for (key, p), each in pairs}


def dumped(results: ExperimentResults) -> str:
    """Return the JSON of results."""
    return json.dumps(results.document(), indent=1, ensure_ascii=False) + "\n"


def read(path: Path) -> ExperimentResults:
    """Return the results in a file.

    Raises:
        BadInput: The file has another format.
        Damaged: The file does not hold results.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        number = document.pop("format")
        if number != FORMAT:
            remedy = "Move it away and publish the experiment again: arms that have ended do not run again."
            raise BadInput(str(path), f"must have the format {FORMAT}", str(number), remedy)
        return _results(document)
    except (ValueError, KeyError, TypeError, AttributeError, zlib.error) as error:
        must = "must hold the results of an experiment"
        raise Damaged(str(path), must, str(error)[:200], "Publish them again.") from None


def _results(document: dict[str, Any]) -> ExperimentResults:
    arms = tuple(_arm(arm) for arm in document["arms"])
    claims = tuple(OrderClaim(**claim) for claim in document["claims"])
    circumstances = Circumstances(**document["circumstances"])
    positive = document.get("positive")
    controls = {
        "positive": None if positive is None else tuple(positive),
        "negative": tuple(document.get("negative", ())),
        "families": {name: tuple(arms) for name, arms in document.get("families", {}).items()},
    }
    orderings = tuple(_ordering(ordering) for ordering in document["orderings"])
    parts = {"arms": arms, "claims": claims, "orderings": orderings, "circumstances": circumstances}
    return ExperimentResults(**{**document, **parts, **controls})


def _ordering(document: dict[str, Any] | None) -> Ordering | None:
    return None if document is None else Ordering(**{**document, "sources": tuple(document["sources"])})


def _arm(document: dict[str, Any]) -> ArmResult:
    published, cell = document["published"], document["cell"]
    return ArmResult(
        **{
            **document,
            "seeds": tuple(_seed(seed) for seed in document["seeds"]),
            "published": StatedFigure(**published) if published else None,
            "cell": (cell[0], cell[1]) if cell else None,
            "lengths": {name: tuple(values) for name, values in document.get("lengths", {}).items()},
            "interval": tuple(document["interval"]) if document.get("interval") else None,
            "origin": origin_of(document),
            "elsewhere": tuple(
                ArmRun(**{**run, "origin": origin_of(run)}) for run in document.get("elsewhere", ())
            ),
            "norms": tuple(NormCurve(**curve) for curve in document.get("norms", ())),
        }
    )


def origin_of(document: Mapping[str, Any]) -> Origin | None:
    """Return the field `origin` of a JSON document, or None."""
    origin = document.get("origin")
    if not origin:
        return None
    versions = tuple((name, version) for name, version in origin.get("versions", ()))
    return Origin(**{**origin, "versions": versions})


def _seed(document: dict[str, Any]) -> Seed:
    if scores := document.get("scores"):
        unpack_scores(scores)  # raises an error for damaged scores
    return Seed(**{**document, "steps": tuple(document["steps"]), "curve": tuple(document["curve"])})
