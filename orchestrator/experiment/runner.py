"""Runs of an experiment, in which every arm is a sweep, or a function that is called once per seed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from orchestrator import provenance
from orchestrator.api.local_sweep import Sweep
from orchestrator.api.workspace import Workspace
from orchestrator.errors import BadData, BadInput, Exit
from orchestrator.experiment.collected import collected, obstacle, size_of
from orchestrator.experiment.experiment_results import (
    ArmResult,
    Circumstances,
    ExperimentResults,
    Origin,
    Seed,
    origin_of,
)
from orchestrator.experiment.file import Arm, Experiment, Statement, function_of
from orchestrator.experiment.order import interval_of
from orchestrator.machines import devices
from orchestrator.machines.hardware import Hardware, detect
from orchestrator.report.history import History, read
from trainables.durable import make_folder, replace_file

Start = Callable[[Sweep], int]
"""A function that runs or resumes an unfinished sweep and returns an exit code."""

Say = Callable[[str], None]
"""A function that prints one line."""


def sweep_of(arm: Arm, workspace: Workspace, hardware: Hardware | None = None) -> Sweep:
    """Return the sweep of an arm, in an experiment with sweeps."""
    assert arm.sweep is not None, "only an experiment with sweeps has sweeps of arms"
    return Sweep.of(arm.sweep, workspace, hardware=hardware)


def run(
    experiment: Experiment,
    workspace: Workspace,
    start: Start,
    say: Say,
    *,
    hardware: Hardware | None = None,
) -> Exit:
    """Run all unfinished arms, one after another.

    Arms with missing data or unavailable resources are skipped with a message.

    Returns:
        COMPLETE; SOME_FAILED if an arm was skipped or has failed trials; RESUMABLE or another code at once if
        a sweep was interrupted.
    """
    if experiment.measure is not None:
        _measure(experiment, workspace, say)
        return Exit.COMPLETE
    worst = Exit.COMPLETE
    for number, arm in enumerate(experiment.arms, start=1):
        sweep = sweep_of(arm, workspace, hardware)
        if sweep.is_finished:
            continue
        where = f"Arm {number} of {len(experiment.arms)}, {arm.name}"
        if lacks := _lack(sweep):
            say(f"{where}: skipped, {lacks}")
            worst = Exit.SOME_FAILED
            continue
        say(f"{where}: {sweep.id}")
        code = Exit(start(sweep))
        if code not in {Exit.COMPLETE, Exit.SOME_FAILED}:
            return code
        worst = max(worst, code)
    return worst


def results(experiment: Experiment, workspace: Workspace) -> ExperimentResults:
    """Return the present results of an experiment."""
    arms = tuple(_result(experiment, arm, _history(arm, workspace), workspace) for arm in experiment.arms)
    arms = tuple(
        replace(arm, interval=interval_of(arm.sample(experiment.metric))) if arm.values else arm
        for arm in arms
    )
    found = ExperimentResults(
        **{field.name: getattr(experiment, field.name) for field in fields(Statement)},
        seeds_asked=experiment.seeds,
        arms=arms,
        orderings=(None,) * len(experiment.claims),
        circumstances=_circumstances(),
    )
    return replace(found, orderings=tuple(map(found.measured, found.claims)))


def _history(arm: Arm, workspace: Workspace) -> History | None:
    """Return the history of an arm's sweep, or None if it has not started."""
    sweep = sweep_of(arm, workspace) if arm.sweep else None
    if sweep is None or sweep.state == "NEW":
        return None
    with workspace.ledger() as ledger:
        return read(ledger, sweep.id)


def _result(experiment: Experiment, arm: Arm, history: History | None, workspace: Workspace) -> ArmResult:
    if arm.sweep is None:
        return _measured(experiment, arm, workspace)
    if history is not None:
        return collected(experiment, arm, history)
    return ArmResult(
        name=arm.name,
        about=arm.sweep.subject,
        sweep="",
        state="NEW",
        seeds=(),
        published=arm.published,
        obstacle=obstacle(experiment, arm, None),
        cell=arm.cell,
        digest=arm.sweep.digest,
        lack=_lack(sweep_of(arm, workspace)),
        hypothesis=arm.hypothesis,
        size=size_of(arm.sweep.document()),
    )


def _lack(sweep: Sweep) -> str:
    """Return the reason why a sweep cannot run here, such as missing data; '' if it can."""
    try:
        sweep.plan()
    except BadData:
        return f"the data of {sweep.specification.task} are missing"
    except BadInput as refusal:
        return f"this machine lacks the resources of a trial ({refusal.got})"
    return ""


def _circumstances() -> Circumstances:
    today = time.strftime("%Y-%m-%d", time.gmtime())
    machine = devices.described(detect())
    return Circumstances(today, provenance.git_commit(), machine, provenance.versions())


# ------------------------------------------------------------------ measured functions


def folder_of(experiment: Experiment, workspace: Workspace) -> Path:
    """Return the folder with the pages of an experiment and the results of its function."""
    return workspace.paths.root / "experiments" / experiment.id


def _measure(experiment: Experiment, workspace: Workspace, say: Say) -> None:
    """Call the function of an experiment for every arm and seed without a result."""
    assert experiment.measure is not None
    function, here = function_of(experiment.measure), _circumstances()
    origin = Origin(here.date, here.commit, here.machine, tuple(here.versions.items()))
    for arm in experiment.arms:
        for seed in range(experiment.seeds):
            file = _file(experiment, arm, seed, workspace)
            if _answer(experiment, arm, file) is not None:
                continue
            say(f"{arm.name}, seed {seed}: {experiment.measure}")
            begun = time.time()
            answer = dict(function(**arm.arguments, seed=seed))
            kept = {
                "called": _called(experiment, arm),
                "seconds": time.time() - begun,
                "origin": asdict(origin),
                **answer,
            }
            make_folder(file.parent)
            replace_file(file, json.dumps(kept).encode())


def _measured(experiment: Experiment, arm: Arm, workspace: Workspace) -> ArmResult:
    answers = list(_answers(experiment, arm, workspace))
    seconds = sum(float(answer["seconds"]) for _, answer in answers)
    return ArmResult(
        name=arm.name,
        about=_called(experiment, arm),
        sweep="",
        state="COMPLETE" if len(answers) == experiment.seeds else "NEW",
        seeds=tuple(
            Seed(seed, "", float(answer["value"]), answer.get("steps", ()), answer.get("values", ()))
            for seed, answer in answers
        ),
        published=arm.published,
        obstacle=obstacle(experiment, arm, None),
        cell=arm.cell,
        trials=len(answers),
        wall_seconds=seconds,
        core_seconds=seconds,
        hypothesis=arm.hypothesis,
        origin=next((origin_of(answer) for _, answer in answers if "origin" in answer), None),
    )


def _answers(experiment: Experiment, arm: Arm, workspace: Workspace) -> Iterator[tuple[int, dict[str, Any]]]:
    for seed in range(experiment.seeds):
        answer = _answer(experiment, arm, _file(experiment, arm, seed, workspace))
        if answer is not None:
            yield seed, answer


def _answer(experiment: Experiment, arm: Arm, file: Path) -> dict[str, Any] | None:
    """Return the recorded result in a file; None if it is missing or has other arguments."""
    if not file.exists():
        return None
    answer: dict[str, Any] = json.loads(file.read_text())
    return answer if answer["called"] == _called(experiment, arm) else None


def _called(experiment: Experiment, arm: Arm) -> str:
    given = ", ".join(f"{name}={value!r}" for name, value in sorted(arm.arguments.items()))
    return f"{experiment.measure}({given})"


def _file(experiment: Experiment, arm: Arm, seed: int, workspace: Workspace) -> Path:
    return folder_of(experiment, workspace) / "measured" / f"{arm.name}-{seed}.json"
