"""What a search-space file would run, as values and in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from orchestrator.api.local_sweep import Plan, SizedNetwork, Sweep
from orchestrator.client.answers import PlannedSweep
from orchestrator.config.strategy import SAMPLERS, SCHEDULERS, most_trials
from orchestrator.errors import Refusal, Unfinished
from orchestrator.report.answer import size
from trainables.layers import LAYERS
from trainables.trial import ModelSettings


def planned(
    sweep: Sweep, owner: str | None = None, *, sizes: bool = True, work: bool = False
) -> PlannedSweep:
    """Return what a sweep would run on this machine; nothing is written.

    Args:
        sweep: The sweep.
        owner: User in whose name it would run; `SWEEP_OWNER` or else the user of this process if None.
        sizes: Whether to count the sizes of all networks that the search can draw, which takes seconds.
        work: Whether to count the floating-point operations of a training step too.

    Raises:
        BadInput: The resources of a trial are not available here.
        BadData: The files of the data set are missing or wrong.
        Unfinished: Counting the networks was ended at a limit of the system.
    """
    what, plan = sweep.specification, sweep.plan(owner)
    networks: list[SizedNetwork] | None = None
    lines = [*_lines(sweep, plan), *_cost(sweep, plan)]
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
        lines=lines,
    )


def _lines(sweep: Sweep, plan: Plan) -> Iterator[str]:
    what, training = sweep.specification, sweep.specification.training
    yield f"{sweep.id}: valid"
    if what.trainable is None or what.trainable.kind == "program":
        yield f"data: {f'loaded by {what.subject}' if plan.source is None else plan.source.phrase}"
    for number, line in enumerate(plan.runs):
        yield f"{'  ' if number else 'runs: '}{line}"
    if plan.requires is not None:
        yield f"an answer requires: {plan.requires}"
    yield f"trials: {what.budget.trials} of {training.steps} steps, a report every {training.interval}"
    yield f"objective: {what.direction} {what.metric}"
    yield f"sampler: {what.sampler.name}; scheduler: {what.scheduler.phrase(training)}"
    missed = SAMPLERS.settings(what.sampler.name).under_stopping
    if missed and SCHEDULERS.settings(what.scheduler.name).stops_trials:
        yield f"warning: {what.sampler.name} {missed}. Use `scheduler: none`, or `sampler: tpe`."
    yield (
        f"resources: {what.resources.cpu:g} CPU and {what.resources.gpu:g} GPU a trial;"
        f" this machine has {plan.hardware.cpus} and {plan.hardware.gpus}"
    )
    if plan.matched is not None:
        yield f"match: {plan.matched}"
    if what.trainable is not None and (why := what.trainable.why_not_registered()) is not None:
        yield f"registered model: none, because {why}"
    yield "space:"
    for name, distribution in what.search.items():
        yield f"  {name}: {distribution.document()}"


def _cost(sweep: Sweep, plan: Plan) -> Iterator[str]:
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
