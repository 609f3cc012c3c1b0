"""What is settled before a sweep starts: can it run here, and which sweep of the ledger is it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from orchestrator.config.sweep_config import SweepConfig, current, identity
from orchestrator.driver import provenance
from orchestrator.errors import BadInput
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.records import FINISHED_SWEEP, SweepRecord
from orchestrator.machines.hardware import Hardware
from trainables.data.task import Source, TaskData
from trainables.tasks import TASKS


def check(sweep: SweepConfig, there: Hardware, data: Path) -> Source:
    """Check, before anything starts or is written, that a sweep can run here; return its data's source.

    Raises:
        BadInput: if the resources of one trial are not to be had.
        BadData: if the task's files are missing or wrong.
    """
    check_resources(sweep, there)
    return TASKS[sweep.task].check(sweep.task_options, data)


def check_resources(sweep: SweepConfig, there: Hardware) -> None:
    """Check that one trial fits on this machine, or on a node of the cluster.

    Raises:
        BadInput: if a trial asks for more than there is.
    """
    asked = sweep.resources
    if asked.gpu > there.gpus:
        raise BadInput(
            f"{sweep.name}: resources.gpu",
            f"a trial's GPU share must be at hand; {there.phrase}",
            f"{asked.gpu:g}",
            "Use `--profile laptop`, or submit to a cluster that has GPUs.",
        )
    if asked.cpu > there.cpus:
        raise BadInput(
            f"{sweep.name}: resources.cpu",
            f"a trial's processors must be at hand; {there.phrase}",
            f"{asked.cpu:g}",
            f"Ask for at most {there.cpus}.",
        )
    if not there.holds(asked.cpu, asked.gpu):
        raise BadInput(
            f"{sweep.name}: resources",
            "one node must have both the processors and the GPU share of a trial",
            f"{asked.cpu:g} CPU and {asked.gpu:g} GPU",
            "Ask for fewer processors.",
        )


def identify(sweep: SweepConfig, ledger: Ledger, *, new: bool) -> SweepConfig:
    """Return the sweep under the id it has, or will have, in the ledger.

    The same file finds the same sweep. A changed file is another sweep, which must not start by mistake while
    the one before it is unfinished.

    Raises:
        BadInput: if the file differs from that of its unfinished sweep.
    """
    records = ledger.sweeps()
    if new:
        return _unused(sweep, records)
    found = newest(sweep, records)
    if found.recorded_id is None:
        _refuse_change(sweep, records)
    return found


def check_warm_start(sweep: SweepConfig, ledger: Ledger) -> None:
    """Check that the sweeps to learn from are there, and were after the same thing.

    Raises:
        BadInput: if one is not in this ledger, or pursued another objective.
    """
    for name in sweep.warm_start:
        record = ledger.sweep(name)
        if record is None:
            known = ", ".join(get_close_matches(name, [each.id for each in ledger.sweeps()], cutoff=0.4))
            remedy = f"Known: {known}." if known else "`list` shows the sweeps that there are."
            must = "must name sweeps of this ledger"
            raise BadInput(f"{sweep.name}: warm_start", must, f"`{name}`", remedy)
        pursued = f"{record.facts['direction']} {record.facts['metric']}"
        if pursued != (wanted := f"{sweep.direction} {sweep.metric}"):
            must = f"must name sweeps that pursued the same: {wanted}"
            raise BadInput(f"{sweep.name}: warm_start", must, f"{pursued} in `{name}`", "Leave it out.")


def newest(sweep: SweepConfig, records: Iterable[SweepRecord]) -> SweepConfig:
    """Return a sweep under the id of the newest recorded one of the same file, or as it is if none is."""
    same = [record.id for record in records if identity(record.document) == sweep.digest]
    return under(sweep, same[-1]) if same else sweep


def under(sweep: SweepConfig, sweep_id: str) -> SweepConfig:
    """Return a sweep under the id that it has in the ledger."""
    return replace(sweep, recorded_id=sweep_id)


def _unused(sweep: SweepConfig, records: Iterable[SweepRecord]) -> SweepConfig:
    """Return a sweep in the first edition whose id no recorded sweep has."""
    used = {record.id for record in records}
    while sweep.id in used:
        sweep = replace(sweep, edition=sweep.edition + 1)
    return sweep


def _refuse_change(sweep: SweepConfig, records: Iterable[SweepRecord]) -> None:
    for record in records:
        same_file = (record.name, record.profile) == (sweep.name, sweep.profile)
        if same_file and record.state not in FINISHED_SWEEP:
            raise BadInput(
                f"{sweep.name}.yaml",
                f"must be as it was when its unfinished sweep {record.id} began",
                "; ".join(differences(record.document, sweep.document())),
                f"Set it back, resume with `resume {record.id}`, or start another sweep with `--new`.",
            )


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return one phrase a field that differs, such as `training.steps 600 -> 800`."""
    old, new = dict(_leaves(current(before))), dict(_leaves(now))
    keys = [*old, *(key for key in new if key not in old)]
    return [
        f"{key} {old.get(key, 'nothing')} -> {new.get(key, 'nothing')}"
        for key in keys
        if old.get(key) != new.get(key)
    ]


def _leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def record_of(sweep: SweepConfig, data: TaskData) -> SweepRecord:
    """Return the ledger's row of a sweep that begins now, with all that is needed to run it again."""
    facts: dict[str, Any] = {
        "git_commit": provenance.git_commit(),
        "versions": provenance.versions(),
        "command": provenance.command(),
        "sampler_seed": sweep.sampler.seed,
        "comparable": data.comparable,
        "note": data.note,
        "examples": {"train": len(data.train), "validation": len(data.validation)},
        "chance": data.constant_answer(sweep.metric.removeprefix("val/")),
        "metric": sweep.metric,
        "direction": sweep.direction,
        "specification": sweep.source_text,
    }
    return SweepRecord(
        id=sweep.id,
        name=sweep.name,
        profile=sweep.profile,
        task=sweep.task,
        document=sweep.document(),
        digest=sweep.digest,
        state="RUNNING",
        reason=None,
        data_source=data.source,
        data_digest=data.digest,
        facts=facts,
        created_at=time.time(),
    )
