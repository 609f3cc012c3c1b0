"""The sweeps that are simulated: short, with each kind of sampler and stopping rule."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path

from orchestrator.config import load
from orchestrator.config.sweep_config import SweepConfig
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.sweeps.records import SweepRecord
from orchestrator.tracking import events
from tests.orchestrator.ledger.examples import create_sweep
from tests.simulation.draws import drawing_from
from tests.simulation.system import EPOCH

SPACE = """
task: retrieval
model: {{layer: rotrnn, depth: 1, d_model: 8, d_state: 8, heads: 2}}
training: {{steps: {steps}, interval: {interval}, batch_size: 4, recurrent_learning_rate: 1e-3}}
search:
  learning_rate: {{log_uniform: [1e-4, 1e-2]}}
objective: {{maximize: val/accuracy}}
sampler: {sampler}
scheduler: {scheduler}
budget: {{trials: {trials}{ends}}}
confirm: {{seeds: {confirm}}}
resources: {{cpu: 1, concurrent: {concurrent}}}
"""

SAMPLERS = ("{random: {seed: 3}}", "{tpe: {seed: 6, n_startup_trials: 1}}")
"""In short sweeps, the second trial is better than the first with the former, and stopped with the latter."""

SCHEDULERS = (
    "{none: {}}",
    "{asha: {reduction: 2, grace: 0.5}}",
    "{median: {grace: 0.5, trials: 1}}",
    "{hyperband: {reduction: 2, grace: 0.5, brackets: 2}}",
)


LEDGER = "sweeps.db"

INTERVAL = 10
"""Steps between two reports."""


POPULATION = "{pbt: {mutations: [learning_rate], period: 0.34, quantile: 0.5}}"
MEMBERS = "{random: {seed: 6}}"
"""The sampler of a population: its first trial is the best one, so that the others, which follow, copy it."""


PROMOTION = "{asha: {mode: promote, reduction: 2, grace: 0.3}}"
"""Its rungs are at the first two of three reports."""


@dataclass(frozen=True)
class Variant:
    """One sweep.

    Attributes:
        sampler: Sampler of the file.
        scheduler: Scheduler of the file.
        concurrent: Attempts that run at once.
        confirm: Confirmations.
        is_server: Whether the ledger is on a server that several machines reach, with a checkpoint store.
        trials: Budget of the search.
        reports: Reports of each trial that is not stopped.
        ends: Further entries of the budget, which end the search early.
        requests: Settings that a person asks the sweep to try while it runs.
        trial_requests: Requests of a person to stop a trial, or to exempt it from early stopping.
    """

    sampler: str
    scheduler: str
    concurrent: int
    confirm: int
    is_server: bool
    trials: int
    reports: int
    ends: str = ""
    requests: int = 0
    trial_requests: int = 0

    @property
    def is_population(self) -> bool:
        """Return True if trials copy each other."""
        return self.scheduler == POPULATION

    @property
    def is_promotion(self) -> bool:
        """Return True if trials pause at their rungs."""
        return self.scheduler == PROMOTION

    @property
    def is_alone(self) -> bool:
        """Return True if a single attempt after the other runs in the whole sweep."""
        return self.trials == 1 and not self.confirm

    @property
    def ordered(self) -> bool:
        """Return True if the decisions do not depend on the order of the sweep's reports and of requests."""
        if self.requests:
            return False
        is_fixed = self.scheduler == "{none: {}}" and self.sampler == SAMPLERS[0] and not self.ends
        return self.concurrent == 1 or is_fixed


def variants(trials: int, confirmed_trials: int, reports: int, lone_reports: int) -> Sequence[Variant]:
    """Return sweeps with each sampler and stopping rule, two of one long trial, and two populations.

    Args:
        trials: Trials of a search without confirmations; from the second trial on, TPE proposes by itself.
        confirmed_trials: Confirmed trials of a search whose best trial is confirmed.
        reports: Reports of each trial.
        lone_reports: Lone reports of the trial that is alone in its sweep.
    """
    layouts = ((1, 0, True), (1, 1, False), (2, 1, True), (2, 0, False))
    several = [
        Variant(sampler, scheduler, *layout, confirmed_trials if layout[1] else trials, reports)
        for sampler, scheduler, layout in product(SAMPLERS, SCHEDULERS, layouts)
    ]
    kinds_of_ledger = (False, True)
    alone = [Variant(SAMPLERS[0], SCHEDULERS[0], 1, 0, kind, 1, lone_reports) for kind in kinds_of_ledger]
    # A population compares its trials once an interval, but not at the last step.
    populations = [Variant(MEMBERS, POPULATION, trials, 0, kind, trials, 3) for kind in kinds_of_ledger]
    return (*several, *alone, *populations)


def promotions(trials: int, confirmed_trials: int) -> Sequence[Variant]:
    """Return sweeps that promote trials, with each sampler.

    Args:
        trials: Trials of a search without confirmations.
        confirmed_trials: Trials of a search whose best trial is confirmed.
    """
    layouts = ((1, 0, True), (1, 1, False), (2, 1, True), (2, 0, False))
    return [
        Variant(sampler, PROMOTION, *layout, confirmed_trials if layout[1] else trials, 3)
        for sampler, layout in product(SAMPLERS, layouts)
    ]


ENDS = (", target: 0.6", ", no_improvement: {trials: 2}")
"""Both end a search before its last trial, and leave enough trials that a fault may strike between."""


def endings(trials: int, confirmed_trials: int) -> Sequence[Variant]:
    """Return sweeps whose search ends before its budget is used, with each sampler.

    Args:
        trials: Largest number of trials of a search without confirmations.
        confirmed_trials: Largest number of trials of a search whose best trial is confirmed.
    """
    layouts = ((1, 0, True), (1, 1, False), (2, 1, True), (2, 0, False))
    rules = (SCHEDULERS[0], PROMOTION)
    return [
        Variant(sampler, rule, *layout, confirmed_trials if layout[1] else trials, 3, ends)
        for sampler, rule, layout, ends in product(SAMPLERS, rules, layouts, ENDS)
    ]


def requests(trials: int, confirmed_trials: int) -> Sequence[Variant]:
    """Return sweeps of which people request settings or the end of trials, with two samplers and rules.

    Args:
        trials: Trials of a search without confirmations.
        confirmed_trials: Trials of a search whose best trial is confirmed.
    """
    layouts = ((1, 0, True), (1, 1, False), (2, 1, True), (2, 0, False))
    return [
        Variant(
            sampler,
            rule,
            *layout,
            confirmed_trials if layout[1] else trials,
            2,
            requests=settings,
            trial_requests=ended,
        )
        for sampler, rule, layout, (settings, ended) in product(
            SAMPLERS, SCHEDULERS[:2], layouts, ((1, 2), (3, 0))
        )
    ]


@cache
def config(variant: Variant) -> SweepConfig:
    """Return the specification of a variant."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "space.yaml"
        file.write_text(SPACE.format(**vars(variant), steps=INTERVAL * variant.reports, interval=INTERVAL))
        return load(file, profile=None, gpus=0)


@cache
def template(variant: Variant) -> dict[str, bytes]:
    """Return the files of a SQLite ledger that knows the sweep, by their names."""
    sweep = config(variant)
    with tempfile.TemporaryDirectory() as folder:
        write(empty_ledger(), Path(folder))
        ledger = Ledger.open(f"sqlite:///{Path(folder) / LEDGER}")
        record = SweepRecord(
            id=sweep.id,
            name=sweep.name,
            profile=None,
            task=sweep.task,
            document=sweep.document(),
            digest=sweep.digest,
            state="RUNNING",
            reason=None,
            data_source="simulated",
            data_digest="",
            facts={"direction": sweep.direction, "metric": sweep.metric},
            created_at=EPOCH,
        )
        create_sweep(ledger, record, events=[events.sweep_started(record, sweep)])
        ledger.close()
        return _read(Path(folder))


def write(files: Mapping[str, bytes], folder: Path) -> None:
    """Put the files of a ledger into a folder."""
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)


@cache
def empty_ledger() -> dict[str, bytes]:
    """Return the files of a ledger without a sweep: creating its tables takes longer than a short sweep."""
    with tempfile.TemporaryDirectory() as folder, drawing_from("ledger"):
        Ledger.open(f"sqlite:///{Path(folder) / LEDGER}").close()
        return _read(Path(folder))


def _read(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}
