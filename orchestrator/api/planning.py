"""Plan of a search-space file, as values and in words."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.client.answers import PlannedSweep
from orchestrator.config import load
from orchestrator.config.document import Mistake
from orchestrator.config.strategy import SAMPLERS, SCHEDULERS, most_trials
from orchestrator.config.trainable import resources_of
from orchestrator.errors import Refusal, Unfinished
from orchestrator.machines.hardware import detect
from orchestrator.report.words import size
from trainables.layers import LAYERS
from trainables.trial import ModelSettings

if TYPE_CHECKING:
    from orchestrator.api.loaded_sweep import LoadedSweep, Plan, SizedNetwork


def planned_file(
    path: Path,
    *,
    profile: str,
    overrides: Sequence[str],
    root: Path,
    data: Path,
    work: bool = False,
) -> PlannedSweep:
    """Return what a search-space file would run on this machine; nothing is written.

    The file is read before the ledger and the driver are imported, so that mistakes are reported at once.

    Args:
        path: The file.
        profile: Profile of the file, as in `Sweep.load`.
        overrides: Changes to the file, as in `Sweep.load`.
        root: Root, as in `Sweep.load`.
        data: Folder of the data sets, as in `Sweep.load`.
        work: Whether to count the floating-point operations of a training step too.

    Raises:
        BadInput: The file, the profile or an override is wrong, or `planned` raises it.
    """
    hardware = detect()
    try:
        load(path, profile=profile, overrides=tuple(overrides), gpus=hardware.gpus)
    except Mistake as mistake:
        if mistake.repaired is None or mistake.repaired.trainable is None:
            raise  # otherwise `Sweep.load` also looks for mistakes in the code
    from orchestrator.api.loaded_sweep import LoadedSweep

    loaded = LoadedSweep.load(
        path, profile=profile, overrides=overrides, hardware=hardware, root=root, data=data
    )
    return planned(loaded, work=work)


def planned(
    sweep: LoadedSweep, owner: str | None = None, *, sizes: bool = True, work: bool = False
) -> PlannedSweep:
    """Return the plan of a sweep on this machine; write nothing.

    Args:
        sweep: LoadedSweep to plan.
        owner: Owner of the sweep; `SWEEP_OWNER` or else the user of this process if None.
        sizes: Whether to count the parameters of all networks of the search space, which takes seconds.
        work: Whether to count the floating-point operations of a training step too.

    Raises:
        BadInput: The resources of a trial are not available.
        BadData: The files of the data set are missing or wrong.
        Unfinished: The process that counts the networks was killed.
    """
    what, plan = sweep.specification, sweep.plan(owner)
    networks: list[SizedNetwork] | None = None
    lines = [*_lines(sweep, plan), *_cost(sweep, plan), *(f"warning: {text}" for text in plan.warnings)]
    if sizes and what.trainable is None:
        try:
            networks = sweep.networks(work=work)
            lines += ["size:", *(f"  {_network(found.model)}: {size(found.cost)}" for found in networks)]
        except Unfinished:
            raise
        except Refusal as refusal:
            lines.append(f"size: unknown; {refusal}")
    return PlannedSweep(
        id=sweep.id,
        task=what.task,
        metric=what.metric,
        direction=what.direction,
        trials=most_trials(what.document()),
        steps=what.training.steps,
        at_once=plan.at_once,
        data=plan.source.phrase if plan.source else None,
        match=plan.matched,
        seconds=plan.estimate.seconds if plan.estimate else None,
        networks=None if networks is None else [_document(found) for found in networks],
        runs=plan.runs,
        warnings=plan.warnings,
        lines=lines,
    )


def _lines(sweep: LoadedSweep, plan: Plan) -> Iterator[str]:
    what, training = sweep.specification, sweep.specification.training
    yield f"{sweep.id}: valid"
    if what.trainable is None or what.trainable.kind == "program":
        yield f"data: {f'loaded by {what.subject}' if plan.source is None else plan.source.phrase}"
    for number, line in enumerate(plan.runs):
        yield f"{'  ' if number else 'runs: '}{line}"
    if plan.requires is not None:
        yield f"an answer requires: {plan.requires}"
    trials = most_trials(what.document())
    yield f"trials: {trials} of {training.steps} steps, a report every {training.interval}"
    yield f"objective: {what.direction} {what.metric}"
    yield f"sampler: {what.sampler.name}; scheduler: {what.scheduler.phrase(training)}"
    for known in what.known:
        yield f"known results of {known.phrase}"
    missed = SAMPLERS.settings(what.sampler.name).under_stopping
    if missed and SCHEDULERS.settings(what.scheduler.name).stops_trials:
        yield f"warning: {what.sampler.name} {missed}. Use `scheduler: none`, or `sampler: tpe`."
    has = f"this machine has {plan.hardware.cpus} and {plan.hardware.gpus}"
    yield f"resources: {resources_of(what.document())}; {has}"
    if plan.matched is not None:
        yield f"match: {plan.matched}"
    if what.trainable is not None and (why := what.trainable.why_not_registered()) is not None:
        yield f"registered model: none, because {why}"
    yield "space:"
    for name, distribution in what.search.items():
        yield f"  {name}: {_json(distribution.document())}"
    for name, value in what.fixed.items():
        yield f"  {name}: {_json(value)} for every trial"
    for relation in what.require:
        yield f"  every trial satisfies {relation.text}"
    for point in what.first:
        yield f"  tried first: {_json(point)}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _cost(sweep: LoadedSweep, plan: Plan) -> Iterator[str]:
    what, cost = sweep.specification, plan.estimate
    if cost is None:
        yield "time and memory: unknown, no sweep in this ledger has run the same program"
        return
    trials = what.budget.trials + what.confirm.most
    most = cost.seconds * trials / max(plan.at_once, 1)
    yield (
        f"time: {cost.seconds:.0f} s a trial, at most {most / 60:.0f} min for {trials} of them,"
        f" {plan.at_once} at once, compilation left out (measured in {cost.source})"
    )
    interval = cost.seconds * what.training.interval / what.training.steps
    if what.budget.hours is not None and 3600 * what.budget.hours < interval:
        yield f"warning: budget.hours ends before the first report, which takes {interval:.0f} s"
    yield f"memory: {cost.bytes / 1e6:.1f} MB a trial for weights and optimiser; activations not counted"


def _document(network: SizedNetwork) -> dict[str, Any]:
    return {"model": asdict(network.model), **network.cost.document()}


def _network(model: ModelSettings) -> str:
    declared = LAYERS.settings(model.layer).options
    options = "".join(
        f", {name} {value}" for name, value in model.options.items() if value != declared[name].default
    )
    both = ", bidirectional" if model.bidirectional else ""
    sizes = f"depth {model.depth}, d_model {model.d_model}, d_state {model.d_state}"
    return f"{model.layer}, {sizes}{options}{both}"
