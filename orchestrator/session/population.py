"""Population based training: the worst trials copy a better trial's state and change their hyperparameters.

Source: Jaderberg et al., Population Based Training of Neural Networks (2017), section 4.1 (truncation
selection; perturb or resample).
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from orchestrator.config.space import Distribution, find
from orchestrator.config.sweep_config import SweepConfig
from orchestrator.ledger.sweeps.records import (
    UNFINISHED_TRIAL,
    CheckpointRecord,
    Segment,
    attempt_number,
    trial_key_of,
)
from orchestrator.ledger.sweeps.writer import SweepWriter
from orchestrator.session.proposals import static_choice
from orchestrator.storage import store
from orchestrator.storage.paths import Paths, checkpoint_stem
from orchestrator.tracking import events
from trainables.checkpoint import Saved
from trainables.errors import DamagedCheckpoint

_MOST_MUTATIONS = 1_000
"""Mutations of one copy, until the relations between hyperparameters hold."""


class Population:
    """The scores of all trials, compared at the first report at or after each period.

    A report that passes several periods at once counts only at the last of them.

    Example:

        population = Population(period=1000, quantile=0.25, sign=-1)
        donors = population.donors("sweep-3", step=1000, value=0.7)

    Args:
        period: Steps between two comparisons of a trial.
        quantile: Share of the trials that is replaced, and share that is copied.
        sign: 1 if more is better, else -1.
    """

    def __init__(self, period: int, quantile: float, sign: int) -> None:
        self._period, self._quantile, self._sign = period, quantile, sign
        self._scores: dict[int, dict[str, float]] = {}
        self._compared: dict[str, int] = {}

    def donors(self, key: str, step: int, value: float) -> list[str]:
        """Record a score; return the trials to copy, the best first, or none if the trial continues."""
        number = step // self._period
        if number <= self._compared.get(key, 0):
            return []
        self._compared[key] = number
        scores = self._scores.setdefault(number, {})
        scores[key] = self._sign * value
        ranked = sorted(scores, key=lambda name: scores[name], reverse=True)
        share = min(math.ceil(len(ranked) * self._quantile), len(ranked) // 2)
        return ranked[:share] if key in ranked[len(ranked) - share :] else []


@dataclass(frozen=True)
class Mutation:
    """Mutation of the hyperparameters that a trial copies from its donor.

    Attributes:
        names: Names of the hyperparameters that change.
        resample: Probability of a fresh draw instead of a step.
        factors: Two factors, one of which a step multiplies by.
    """

    names: Sequence[str]
    resample: float
    factors: tuple[float, float]

    def applied(
        self, params: Mapping[str, Any], space: Mapping[str, Distribution], rng: random.Random
    ) -> dict[str, Any]:
        """Return changed hyperparameters, all within the space."""
        changed = dict(params)
        for name in self.names:
            if name in changed:
                fresh = rng.random() < self.resample
                changed[name] = (
                    space[name].draw(rng) if fresh else self._stepped(space[name], rng, changed[name])
                )
        return changed

    def _stepped(self, distribution: Distribution, rng: random.Random, value: Any) -> Any:
        if distribution.kind == "choice":
            return _neighbour(distribution.choices, rng, value)
        return _multiplied(distribution, value, rng.choice(self.factors))


def _multiplied(distribution: Distribution, value: float, factor: float) -> Any:
    """Return the value closest to the product, or the next value in its direction if that is the old one."""
    product, count = value * factor, distribution.count()
    if count is None:
        return distribution.nearest(product)
    old, index = distribution.index(value), distribution.index(product)
    if index == old:
        up = product > value if value else factor > 1
        index = min(max(old + (1 if up else -1), 0), count - 1)
    return distribution.value(index)


def _neighbour(choices: Sequence[Any], rng: random.Random, value: Any) -> Any:
    found = find(choices, value)
    assert found is not None, f"{value!r} is not one of {choices}"
    index = found + rng.choice((-1, 1))
    return choices[min(max(index, 0), len(choices) - 1)]


class Exploits:
    """Pending exploits: which trial will copy which donor when its attempt has stopped."""

    def __init__(self, sweep: SweepConfig, writer: SweepWriter, paths: Paths) -> None:
        self._sweep, self._writer, self._ledger, self._paths = sweep, writer, writer.ledger, paths
        self._donors: dict[str, str] = {}
        self._postponed: dict[str, str] = {}

    def plan(self, trial_key: str, step: int, donors: Sequence[str]) -> bool:
        """Choose a donor for a trial; return False if there is none.

        A donor is unfinished and not extended, has reached at least the trial's step, and has the same static
        choice.

        Args:
            trial_key: Key of the trial.
            step: Step that the trial has reached.
            donors: Better trials, the best first.
        """
        own = static_choice(self._sweep, self._ledger.trial(trial_key))
        for key in donors:
            donor = self._ledger.trial(key)
            is_ahead = step <= donor.step < donor.total_steps and donor.state in UNFINISHED_TRIAL
            if is_ahead and not donor.extensions and static_choice(self._sweep, donor) == own:
                self._donors[trial_key] = key
                return True
        return False

    def pop_donor(self, trial_key: str) -> str | None:
        """Remove and return the planned donor of a trial, or None."""
        return self._donors.pop(trial_key, None)

    def postpone(self, attempt_id: str, donor_key: str) -> None:
        """Postpone an exploit because the store is out."""
        self._postponed[attempt_id] = donor_key

    def pop_postponed(self) -> dict[str, str]:
        """Remove and return the donors of postponed exploits, by attempt id."""
        postponed, self._postponed = self._postponed, {}
        return postponed

    def apply(self, attempt_id: str, donor_key: str) -> Sequence[Path]:
        """End an attempt; the trial's next one has the donor's state and mutated hyperparameters.

        Returns:
            The folders of the trial's checkpoints to which no row refers any more.

        Raises:
            DamagedCheckpoint: The donor's last checkpoint is damaged or was dropped as damaged.
            NoStore: The store cannot be read or written.
        """
        key, donor = trial_key_of(attempt_id), self._ledger.trial(donor_key)
        kept = self._ledger.trial_checkpoints(donor_key)
        if (last := next((row for row in kept if row.kind == "last"), None)) is None:
            raise DamagedCheckpoint(
                donor_key, "has lost its last checkpoint", "", "Its copy continues without it."
            )
        copied = self._copied(last, attempt_id)
        rng = random.Random(f"{self._sweep.sampler.seed}/{attempt_id}")
        params = self._mutated(donor.params, rng)
        segment = Segment(last.step, donor_key, params)
        now = events.milliseconds(self._ledger.now())
        tag = events.tags(key, {f"segment.{attempt_number(attempt_id)}": asdict(segment)}, now)
        row = replace(last, trial_key=key, path=str(copied.folder), digest=copied.digest, bytes=copied.bytes)
        url = self._paths.stored(self._ledger.id, self._sweep.id, key)
        return self._writer.exploit(attempt_id, segment, row, [tag], store.urls_under(url)) or ()

    def _mutated(self, params: Mapping[str, Any], rng: random.Random) -> Mapping[str, Any]:
        """Return mutated hyperparameters of a donor that satisfy the relations, or unchanged ones."""
        mutation = _mutation(self._sweep)
        for _ in range(_MOST_MUTATIONS):
            mutated = mutation.applied(params, self._sweep.search, rng)
            if self._sweep.feasible.broken(mutated) is None:
                return mutated
        return params

    def _copied(self, row: CheckpointRecord, attempt_id: str) -> Saved:
        """Copy a donor's checkpoint to the trial of an attempt; return the copy."""
        paths, sweep_id, key = self._paths, self._sweep.id, trial_key_of(attempt_id)
        source = paths.at_hand(sweep_id, row.trial_key, row.path)
        name = checkpoint_stem(row.step, attempt_number(attempt_id))
        ledger_id = self._ledger.id
        urls = paths.stored(ledger_id, sweep_id, row.trial_key), paths.stored(ledger_id, sweep_id, key)
        return store.copy(source, paths.trial_checkpoints(sweep_id, key) / name, row.digest, key, urls)


def _mutation(sweep: SweepConfig) -> Mutation:
    options = sweep.scheduler.options
    low, high = options["factors"]
    return Mutation(options["mutations"], options["resample"], (low, high))
