"""The results of an experiment as data: what its pages are generated from, and what is kept of it as JSON."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from orchestrator.counts import counted
from orchestrator.errors import BadInput, Damaged
from orchestrator.experiment.file import OrderClaim
from orchestrator.experiment.order import Ordering
from orchestrator.experiment.verdict import (
    Found,
    StatedFigure,
    Verdict,
    answered,
    answered_order,
    judged,
    ordered,
)
from orchestrator.ledger.scores import unpack
from orchestrator.report.noise import Sample

FORMAT = 2
"""Number of the format of the JSON files."""


@dataclass(frozen=True)
class Seed:
    """One seed of an arm.

    Attributes:
        seed: its number.
        trial: key of the trial, or '' for a measured function.
        value: what arms are compared by.
        steps: of its curve; empty if it has none.
        curve: of the metric that training reports.
        scores: of every test example, as `orchestrator.ledger.scores` packs them; '' if they are not
            recorded, or if the value is not a mean over test examples.
    """

    seed: int
    trial: str
    value: float
    steps: Sequence[int] = ()
    curve: Sequence[float] = ()
    scores: str = ""


@dataclass(frozen=True)
class Origin:
    """What ran an arm.

    Attributes:
        date: when it began, such as `2026-11-22`.
        commit: of the repository.
        machine: what the trials ran on, in words; '' if it is not known.
        versions: names and versions of the packages that can change a result; empty if they are not recorded.
    """

    date: str
    commit: str
    machine: str = ""
    versions: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class ArmRun:
    """What the trials of an arm have cost in one ledger.

    Attributes:
        begun_at: when its sweep was created, in seconds since 1970; 0 if that is not recorded. A sweep has
            the same id in every ledger, so this tells its runs apart.
        state: of the sweep.
        trials: that were begun, confirmations included.
        wall_seconds: during which at least one attempt ran.
        core_seconds: processors times seconds, summed over the attempts, with the resources of the last run.
        gpu_seconds: GPUs times seconds, likewise.
        origin: the day, the commit and the machine, or None if they are not known.
    """

    begun_at: float
    state: str
    trials: int
    wall_seconds: float
    core_seconds: float
    gpu_seconds: float
    origin: Origin | None

    def is_run(self, other: ArmRun) -> bool:
        """Return True if both are of one ledger; of one day and commit where a time is not recorded."""
        if self.begun_at and other.begun_at:
            return self.begun_at == other.begun_at
        return _day(self.origin) == _day(other.origin)


def _day(origin: Origin | None) -> tuple[str, str] | None:
    return None if origin is None else (origin.date, origin.commit)


@dataclass(frozen=True)
class ArmResult:
    """The results of one arm.

    Attributes:
        name: within the experiment.
        about: what it is, such as `rotrnn on listops`.
        sweep: id of the sweep, or ''.
        state: of the sweep; NEW if it has not run.
        seeds: that have a value.
        published: what the paper prints, or None.
        obstacle: why its figures do not compare with the paper's; '' if they do.
        cell: row and column of the paper's table, or None.
        data: where the data come from.
        data_digest: SHA-256 of the data, or ''.
        digest: of the specification, or ''.
        trials: that were begun, confirmations included.
        wall_seconds: during which at least one attempt ran.
        core_seconds: processors times seconds, summed over the attempts, with the resources of the last run.
        gpu_seconds: GPUs times seconds, likewise.
        lack: why the arm has not run here, such as missing data; '' if it has or can.
        hypothesis: whether `published` is a bound of the file itself, from no paper.
        size: of its networks and their training, in words.
        parameters: trained numbers of a network, or None if they are not recorded.
        network: all that was counted of a network, in words; '' if nothing is recorded.
        chance: score of the best constant answer, or None if it is not known.
        lengths: the values of each seed by the name of a test split with longer sequences, such as `x2`.
        lengths_metric: of these values, such as `test/accuracy`; '' without any.
        origin: the day, the commit and the machine of the results.
        interval: of the mean, with the noise of seeds and of test examples; None where a source is not known.
        begun_at: when the sweep was created, as of a `Run`.
        elsewhere: runs of the same specification in other ledgers, whose values do not stand here.
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

    @property
    def runs(self) -> tuple[ArmRun, ...]:
        """Return what was spent on the arm: the run whose values stand, and then those of other ledgers."""
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
    """Where, when and by which code the results were written; the arms tell what ran them.

    Attributes:
        date: such as `2026-11-22`.
        commit: of the repository.
        machine: in words.
        versions: of the packages that can change a result, installed where the results were written; those
            that the arms ran with are of their origins.
    """

    date: str
    commit: str
    machine: str
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ExperimentResults:
    """The results of an experiment.

    Attributes:
        name: stem of the experiment file.
        profile: name of the profile, or None.
        is_published_size: whether figures of this size compare with published ones.
        title: of the page.
        source: paper, and table or figure.
        claim: what the paper claims.
        metric: what arms are compared by.
        reduction: how a curve became a value.
        maximize: whether a higher value is better.
        seeds_asked: of every arm.
        arms: in the order of the file.
        claims: orders of arms that the paper states.
        orderings: of the arms of each claim, as measured; None if one of them has no value yet.
        circumstances: of the run.
        not_shown: what the results do not show, or ''.
        paired: whether the seeds of all arms are compared in pairs.
    """

    name: str
    profile: str | None
    is_published_size: bool
    title: str
    source: str
    claim: str
    metric: str
    reduction: str
    maximize: bool
    seeds_asked: int
    arms: tuple[ArmResult, ...]
    claims: tuple[OrderClaim, ...]
    orderings: tuple[Ordering | None, ...]
    circumstances: Circumstances
    not_shown: str = ""
    paired: bool = False

    @property
    def id(self) -> str:
        """Return the name of the files: the file's stem and the profile."""
        return f"{self.name}-{self.profile}" if self.profile else self.name

    @property
    def where(self) -> str:
        """Return at which size the arms ran."""
        return f"at the size of the profile {self.profile}" if self.profile else "at the size of the file"

    @property
    def origins(self) -> dict[Origin, list[str]]:
        """Return the names of the arms that have values by what ran them; that of the results if unknown."""
        of_all = Origin(self.circumstances.date, self.circumstances.commit, self.circumstances.machine)
        names: dict[Origin, list[str]] = {}
        for arm in self.arms:
            if arm.values:
                names.setdefault(arm.origin or of_all, []).append(arm.name)
        return names

    @property
    def runs(self) -> tuple[ArmRun, ...]:
        """Return the runs of all arms, those of other ledgers included."""
        return tuple(run for arm in self.arms for run in arm.runs)

    @cached_property
    def verdicts(self) -> dict[str, Verdict]:
        """Return the verdict of every arm by its name."""
        return {arm.name: self._verdict(arm) for arm in self.arms}

    def _verdict(self, arm: ArmResult) -> Verdict:
        asked = self.seeds_asked
        if arm.hypothesis:
            return answered(
                arm.values,
                arm.published,
                seeds=asked,
                size=self.where,
                lack=arm.lack,
                ends=arm.interval,
            )
        return judged(arm.values, arm.published, seeds=asked, obstacle=arm.obstacle or arm.lack)

    @cached_property
    def orders(self) -> tuple[Verdict, ...]:
        """Return the verdict of each claim."""
        return tuple(map(self._order, self.claims, self.orderings))

    def _order(self, claim: OrderClaim, measured: Ordering | None) -> Verdict:
        arms = {arm.name: arm for arm in self.arms}
        counts = {name: len(arms[name].values) for name in (claim.better, claim.than)}
        few = {name: count for name, count in counts.items() if count < self.seeds_asked}
        seeds = " and ".join(f"{counted(count, 'seed')} of {name}" for name, count in few.items())
        have = "has" if list(few.values()) == [1] else "have"
        lack = f"{seeds} {have} a value, of {self.seeds_asked}" if few else ""
        found = Found(None, "")
        if measured is not None:
            found = Found(measured.winner, measured.reason, measured.enough)
        if claim.hypothesis:
            return answered_order(claim.better, claim.than, found, size=self.where, lack=lack)
        obstacles = dict.fromkeys(filter(None, (arms[claim.better].obstacle, arms[claim.than].obstacle)))
        return ordered(
            claim.better, claim.than, found, lack=lack, obstacle="; ".join(obstacles), size=self.where
        )

    def count(self, outcome: str, *, hypothesis: bool | None = None) -> int:
        """Return how many figures, bounds and claims have an outcome.

        Args:
            outcome: one of `VERDICTS`.
            hypothesis: count hypotheses alone, or what is published alone; None for both.
        """
        stated = [(arm.hypothesis, self.verdicts[arm.name]) for arm in self.arms]
        stated += [(claim.hypothesis, order) for claim, order in zip(self.claims, self.orders, strict=True)]
        return sum(
            verdict.outcome == outcome and hypothesis in (None, is_hypothesis)
            for is_hypothesis, verdict in stated
        )

    def document(self) -> dict[str, Any]:
        """Return the results as plain JSON values."""
        return {"format": FORMAT, **asdict(self)}


def dumped(results: ExperimentResults) -> str:
    """Return the JSON of results, for a file that is kept under version control."""
    return json.dumps(results.document(), indent=1, ensure_ascii=False) + "\n"


def read(path: Path) -> ExperimentResults:
    """Return the results that a file holds.

    Raises:
        BadInput: the file has another format.
        Damaged: the file is not what `dumped` returned.
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
    orderings = tuple(_ordering(ordering) for ordering in document["orderings"])
    return ExperimentResults(
        **{
            **document,
            "arms": arms,
            "claims": claims,
            "orderings": orderings,
            "circumstances": circumstances,
        }
    )


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
            "origin": _origin(document),
            "elsewhere": tuple(
                ArmRun(**{**run, "origin": _origin(run)}) for run in document.get("elsewhere", ())
            ),
        }
    )


def _origin(document: Mapping[str, Any]) -> Origin | None:
    return origin_of(document["origin"]) if document.get("origin") else None


def origin_of(document: Mapping[str, Any]) -> Origin:
    """Return the origin that `asdict` turned into JSON values."""
    versions = tuple((name, version) for name, version in document.get("versions", ()))
    return Origin(**{**document, "versions": versions})


def _seed(document: dict[str, Any]) -> Seed:
    if scores := document.get("scores"):
        unpack(scores)  # what is damaged is refused here, not where it is compared
    return Seed(**{**document, "steps": tuple(document["steps"]), "curve": tuple(document["curve"])})
