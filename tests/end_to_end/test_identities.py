"""The checker of reports finds every kind of wrong report, and none in right ones, made up or real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.assignment import INITIAL_NORM, NORM
from orchestrator.config.resolve import load
from orchestrator.errors import Exit
from orchestrator.ledger.sweeps.records import AttemptRecord, ReportRecord, TrialRecord
from tests.end_to_end.commands import ROOT, Commands
from tests.end_to_end.identities import (
    KINDS,
    Evidence,
    Search,
    by_attempt,
    faults,
    misplaced,
    of_population,
    read,
    require,
)
from tests.orchestrator.ledger.examples import trial_record

STEPS, RESUMED_AT = 4, 2
VALUES = (0.25, 0.7183459234857)


def key(number: int) -> str:
    return f"echo-0123abcd-{number}"


def report(kind: str, number: int, step: int, attempt: int) -> ReportRecord:
    """Return the right report of a trial, whose second attempt starts at `RESUMED_AT`."""
    x, start = VALUES[number], 0 if attempt == 1 else RESUMED_AT
    if kind == "program":
        metrics = {"train/loss": x + 1e-9, "val/loss": x - 1e-9, "val/echo_step": float(step)}
    else:
        held, nonce = start + x if start else -1.0, (number + attempt / 8) / 4
        metrics = {
            "echo": x,
            "echo_step": float(step),
            "held": held,
            "nonce": nonce,
            "val/loss": x + 1 / step,
        }
    return ReportRecord(key(number), step, f"{key(number)}.{attempt}", metrics, 100.0 + step)


def trial(number: int, reports: list[ReportRecord]) -> TrialRecord:
    return trial_record(
        number,
        key=key(number),
        sweep_id="echo-0123abcd",
        state="COMPLETE",
        params={"x": VALUES[number]},
        value=min(one.metrics["val/loss"] for one in reports),
        step=STEPS,
        total_steps=STEPS,
    )


def told(kind: str = "function") -> Evidence:
    """Return two right trials, of which the second was interrupted once."""
    first = [report(kind, 0, step, 1) for step in range(1, STEPS + 1)]
    second = [report(kind, 1, step, 1 if step <= RESUMED_AT else 2) for step in range(1, STEPS + 1)]
    attempts = [
        AttemptRecord(f"{key(number)}.{attempt}", key(number), attempt, "ENDED", None, None, 1.0)
        for number, attempt in [(0, 1), (1, 1), (1, 2)]
    ]
    return consistent(
        Evidence(KINDS[kind], 1, [trial(0, first), trial(1, second)], attempts, [*first, *second])
    )


def consistent(evidence: Evidence) -> Evidence:
    """Return evidence whose logs and curves say what its reports say."""
    logs: dict[str, str] = {one.key: "" for one in evidence.trials}
    points: dict[str, list[tuple[str, int, float]]] = {one.key: [] for one in evidence.trials}
    started: set[str] = set()
    for one in evidence.reports:
        stamp = f"2026-11-28 12:00:00Z attempt {one.attempt_id[-1]}: "
        if one.attempt_id not in started:
            started.add(one.attempt_id)
            logs[one.trial_key] += f"{stamp}started at step {one.step - 1} on here, process 7\n"
        shown = ", ".join(f"{name} {value:.6g}" for name, value in one.metrics.items())
        logs[one.trial_key] += f"{stamp}step {one.step}: {shown}\n"
        points[one.trial_key] += [(name, one.step, value) for name, value in one.metrics.items()]
        points[one.trial_key].append(("_objective", one.step, 0.5))
    return replace(evidence, logs=logs, points=points)


def changed(evidence: Evidence, number: int, step: int, **metrics: float) -> Evidence:
    """Return evidence in which one report has other metrics, in the ledger, the log and MLflow."""

    def of(one: ReportRecord) -> ReportRecord:
        is_it = (one.trial_key, one.step) == (key(number), step)
        return replace(one, metrics={**one.metrics, **metrics}) if is_it else one

    return consistent(replace(evidence, reports=[of(one) for one in evidence.reports]))


@pytest.mark.parametrize("kind", ["function", "program"])
def test_right_reports_have_no_fault(kind: str) -> None:
    assert faults(told(kind)) == []
    require(told(kind))
    assert misplaced(told(kind)) == 0


@pytest.mark.parametrize("kind", ["function", "program"])
def test_swapped_reports_are_found(kind: str) -> None:
    """The ledger has the report of each of two trials at one step under the other's key."""
    right = told(kind)
    here, there = (next(one for one in right.reports if one.trial_key == key(n)) for n in (0, 1))
    assert here.step == there.step == 1
    swapped = {
        id(here): replace(here, metrics=there.metrics),
        id(there): replace(there, metrics=here.metrics),
    }
    evidence = consistent(replace(right, reports=[swapped.get(id(one), one) for one in right.reports]))
    echo = right.kind.echo
    found = [fault for fault in faults(evidence) if f": {echo} must" in fault]
    assert found == [
        f"{key(0)}, step 1 (attempt 1): {echo} must be {VALUES[0]}, found {there.metrics[echo]}",
        f"{key(1)}, step 1 (attempt 1): {echo} must be {VALUES[1]}, found {here.metrics[echo]}",
    ]
    assert misplaced(evidence) == 2
    with pytest.raises(AssertionError, match=rf"{key(0)}, step 1 \(attempt 1\): {echo} must be"):
        require(evidence)


def test_a_report_under_the_attempt_of_another_trial_is_found() -> None:
    evidence = told()
    first, *rest = evidence.reports
    evidence = replace(evidence, reports=[replace(first, attempt_id=f"{key(1)}.1"), *rest])
    assert any(f"its attempt must be one of {key(0)}" in fault for fault in faults(evidence))


@pytest.mark.parametrize(
    ("metrics", "fault"),
    [
        ({"echo_step": 4.0}, "echo_step must be 3, found 4.0"),
        ({"held": 2.25}, f"held must be {2 + VALUES[1]!r}, found 2.25"),  # of the other trial
        ({"held": 1 + VALUES[1]}, f"held must be {2 + VALUES[1]!r}, found {1 + VALUES[1]!r}"),  # an older one
        ({"held": -1.0}, f"held must be {2 + VALUES[1]!r}, found -1.0"),  # none
    ],
)
def test_another_step_and_another_checkpoint_are_found(metrics: dict[str, float], fault: str) -> None:
    assert faults(changed(told(), 1, 3, **metrics)) == [f"{key(1)}, step 3 (attempt 2): {fault}"]


def test_the_state_of_another_trial_is_found_in_a_program() -> None:
    evidence = changed(told("program"), 1, 3, **{"val/loss": sum(VALUES) / 2})
    [fault, value] = faults(evidence)
    assert "step 3 (attempt 2): val/loss must be" in fault
    assert f"{key(1)}: its value must be" in value


@pytest.mark.parametrize("step", [1, 3, STEPS])
def test_a_missing_report_is_found(step: int) -> None:
    right = told()
    kept = [one for one in right.reports if (one.trial_key, one.step) != (key(0), step)]
    found = faults(consistent(replace(right, reports=kept)))
    assert f"{key(0)}, step {step}: must have one report, found none" in found
    # While the trial runs, only a gap is wrong.
    running = [replace(one, state="RUNNING", step=0, value=None) for one in right.trials]
    found = faults(consistent(replace(right, trials=running, reports=kept)), finished=False)
    gap = f"{key(0)}, step {step}: must have one report, found none"
    assert [fault for fault in found if "must have one report" in fault] == ([gap] if step < STEPS else [])


def test_a_repeated_and_an_odd_report_are_found() -> None:
    right = told()
    twice = consistent(replace(right, reports=[*right.reports, right.reports[0]]))
    assert f"{key(0)}, step 1: must have one report, found 2" in faults(twice)
    odd = consistent(replace(right, interval=2))
    assert f"{key(0)}, step 3: must have no report, found 1" in faults(odd)


def test_trials_that_have_not_ended_well_are_found() -> None:
    right = told()
    failed = [replace(one, state="FAILED", cause="error") for one in right.trials]
    found = faults(replace(right, trials=failed))
    assert found == [f"{key(n)}: must be COMPLETE or PRUNED, found FAILED (error)" for n in (0, 1)]


def test_a_value_that_is_not_the_best_of_the_reports_is_found() -> None:
    right = told()
    trials = [replace(right.trials[0], value=right.trials[1].value), right.trials[1]]
    assert faults(replace(right, trials=trials)) == [
        f"{key(0)}: its value must be {right.trials[0].value}, found {right.trials[1].value}"
    ]


def test_one_nonce_in_two_attempts_is_found() -> None:
    right = told()
    nonce = right.reports[0].metrics["nonce"]
    evidence = right
    for step in (3, 4):
        evidence = changed(evidence, 1, step, nonce=nonce)
    message = f"its nonce must be of no other attempt, found that of {key(0)}.1"
    assert faults(evidence) == [f"{key(1)}, step {step} (attempt 2): {message}" for step in (3, 4)]


def test_one_nonce_in_two_sweeps_is_found() -> None:
    right = told()
    other = replace(
        right,
        trials=[replace(one, key=f"other-{one.number}") for one in right.trials],
        attempts=[
            replace(one, id=f"other-{one.trial_key[-1]}.{one.number}", trial_key=f"other-{one.trial_key[-1]}")
            for one in right.attempts
        ],
        reports=[
            replace(one, trial_key=f"other-{one.trial_key[-1]}", attempt_id=f"other{one.attempt_id[-4:]}")
            for one in right.reports
        ],
    )
    other = consistent(other)
    assert faults(other) == []
    found = faults(right, other)
    assert len(found) == len(other.reports)
    assert all("its nonce must be of no other attempt" in fault for fault in found)


def test_two_nonces_in_one_attempt_are_found() -> None:
    [fault] = faults(changed(told(), 0, 2, nonce=0.875))
    assert fault == f"{key(0)}, step 2 (attempt 1): its nonce must be 0.03125, found 0.875"


def test_a_disagreeing_log_is_found() -> None:
    right = told()
    assert right.logs is not None
    log = right.logs[key(0)]
    wrong = replace(
        right, logs={**right.logs, key(0): log.replace("step 2: echo 0.25", "step 2: echo 0.251")}
    )
    found = f"{key(0)}, step 2 (attempt 1): echo in the log must be 0.25, found 0.251"
    assert faults(wrong) == [found]
    lines = log.splitlines(keepends=True)
    without = replace(right, logs={**right.logs, key(0): "".join(lines[:2] + lines[3:])})
    assert faults(without) == [f"{key(0)}, step 2 (attempt 1): lines of the log must be 1, found 0"]


def test_a_report_that_is_in_the_log_alone_is_found_if_nothing_was_killed_or_if_it_is_of_another() -> None:
    right = told()
    assert right.logs is not None
    line = "2026-11-28 12:00:00Z attempt 1: step 3: echo {}, echo_step 3\n"
    own = replace(right, logs={**right.logs, key(1): right.logs[key(1)] + line.format("0.718346")})
    assert faults(own) == []
    assert any("the log must have no line without a report" in fault for fault in faults(own, calm=True))
    other = replace(right, logs={**right.logs, key(1): right.logs[key(1)] + line.format("0.25")})
    [fault] = faults(other)
    assert fault.startswith(f"{key(1)}, step 3 (attempt 1): echo in the log must be {VALUES[1]}")


def test_a_wrong_start_in_the_log_is_found() -> None:
    right = told()
    assert right.logs is not None
    log = right.logs[key(1)].replace("started at step 2", "started at step 1")
    found = faults(replace(right, logs={**right.logs, key(1): log}))
    assert found == [f"{key(1)}, attempt 2: must start at step 2, found 1 in the log"]


def test_curves_of_mlflow_that_disagree_are_found() -> None:
    right = told()
    assert right.points is not None

    def with_points(points: list[tuple[str, int, float]]) -> Evidence:
        assert right.points is not None
        return replace(right, points={**right.points, key(0): points})

    own = list(right.points[key(0)])
    without = [point for point in own if point[:2] != ("echo", 2)]
    where = f"{key(0)}, step 2"
    missing = f"{where} (attempt 1): echo in MLflow must be [0.25], found []"
    assert faults(with_points(without)) == [missing]
    assert faults(with_points([*without, ("echo", 2, 0.5)])) == [missing.replace("[]", "[0.5]")]
    assert faults(with_points([*own, ("echo", 2, 0.25)])) == [missing.replace("[]", "[0.25, 0.25]")]
    further = f"{key(0)}, step 9: echo in MLflow must be missing, found [0.25]"
    assert faults(with_points([*own, ("echo", 9, 0.25)])) == [further]


def test_norms_before_the_first_step_are_points_of_step_0() -> None:
    with_norm = changed(told(), 0, 1, **{f"{INITIAL_NORM}head/layer_0": 4.0})
    assert with_norm.points is not None
    name = f"{NORM}head/layer_0"
    missing = f"{key(0)}, step 1 (attempt 1): {name} in MLflow must be [4.0], found []"
    assert faults(with_norm) == [missing]
    points = [*with_norm.points[key(0)], (name, 0, 4.0)]
    assert faults(replace(with_norm, points={**with_norm.points, key(0): points})) == []


def test_a_second_attempt_is_found_if_nothing_was_killed() -> None:
    found = faults(told(), calm=True)
    assert found == [f"{key(1)}: must have one attempt, found {key(1)}.2 (ENDED)"]


def copied(value: float, held: float) -> Evidence:
    """Return trial 1 as a copy of trial 0 at step 2 that goes on with a value; its first one is unknown."""
    right = told()
    segments = [{"step": RESUMED_AT, "donor": key(0), "params": {"x": value}}]
    second = replace(right.trials[1], params={"x": value}, system_attrs={"segments": segments})
    evidence = replace(right, trials=[right.trials[0], second])
    for step in (3, 4):
        evidence = changed(evidence, 1, step, echo=value, held=RESUMED_AT + held, **{"val/loss": 0.9})
    best = min(one.metrics["val/loss"] for one in evidence.reports if one.trial_key == key(1))
    return replace(evidence, trials=[right.trials[0], replace(second, value=best)])


def test_a_trial_that_was_changed_has_the_value_of_each_attempt() -> None:
    """Population based training: its own value, then that of the segment, and the donor's checkpoint."""
    evidence = copied(0.5, held=VALUES[0])
    assert faults(evidence, allowed=of_population(evidence)) == []
    assert any("echo must be 0.5" in fault for fault in faults(evidence, allowed=by_attempt(evidence)))
    wrong = copied(0.5, held=VALUES[1])  # of its own checkpoint
    [third, fourth] = faults(wrong, allowed=of_population(wrong))
    assert "step 3 (attempt 2): held must be 2.25, found 2.718" in third
    assert "step 4 (attempt 2): held must be 2.25, found 2.718" in fourth
    unsteady = changed(evidence, 1, 2, echo=0.625)
    [fault] = faults(unsteady, allowed=of_population(unsteady))
    assert f"step 2 (attempt 1): echo must be {VALUES[1]}, found 0.625" in fault
    late = changed(evidence, 1, 4, echo=VALUES[1])
    [fault] = faults(late, allowed=of_population(late))
    assert f"step 4 (attempt 2): echo must be 0.5, found {VALUES[1]}" in fault


def test_an_attempt_that_was_killed_before_its_first_report_may_have_the_value_before_a_copy() -> None:
    """The log alone has its line, and the ledger no longer says which value it had."""
    evidence = copied(0.5, held=VALUES[0])
    assert evidence.logs is not None
    killed = replace(evidence.attempts[-1], id=f"{key(1)}.3", number=3)
    line = f"2026-11-28 12:00:00Z attempt 3: step 3: echo {VALUES[1]:.6g}, echo_step 3\n"
    logs = {**evidence.logs, key(1): evidence.logs[key(1)] + line}
    evidence = replace(evidence, attempts=[*evidence.attempts, killed], logs=logs)
    assert faults(evidence, allowed=of_population(evidence)) == []


def test_a_copy_may_skip_the_steps_that_its_donor_was_ahead() -> None:
    """The trial had got to step 1 only when it copied the donor's step 2."""
    evidence = copied(0.5, held=VALUES[0])
    kept = [one for one in evidence.reports if (one.trial_key, one.step) != (key(1), 2)]
    value = min(one.metrics["val/loss"] for one in kept if one.trial_key == key(1))
    trials = [evidence.trials[0], replace(evidence.trials[1], value=value)]
    evidence = consistent(replace(evidence, reports=kept, trials=trials))
    assert faults(evidence, allowed=of_population(evidence)) == []
    kept = [one for one in kept if (one.trial_key, one.step) != (key(1), 3)]
    gap = consistent(replace(evidence, reports=kept))
    found = faults(gap, allowed=of_population(gap))
    assert f"{key(1)}, step 3: must have one report, found none" in found


def written_reports(folder: Path, start: int, held: float | None) -> list[dict[str, float]]:
    """Run the command of a search outside a sweep, from a checkpoint or from the beginning."""
    resume = folder / "resume"
    if held is not None:
        resume.mkdir()
        (resume / "held.json").write_text(json.dumps(held))
    facts = {
        "params": {"x": 0.125},
        "seed": 0,
        "folder": str(folder),
        "start": start,
        "steps": 5,
        "interval": 2,
        "resume": None if held is None else str(resume),
        "reports": None,
        "attempt": "s-0.1",
        "answers": None,
        "checkpoints": None,
    }
    (folder / "trial.json").write_text(json.dumps(facts))
    done = subprocess.run(
        [sys.executable, "of_first.py", "--x", "0.125"],
        cwd=folder,
        env={
            **os.environ,
            "SWEEP_TRIAL": str(folder / "trial.json"),
            "PYTHONPATH": str(ROOT / "orchestrator" / "scripts" / "client"),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["step"] for line in lines] == [line["metrics"]["echo_step"] for line in lines]
    return [line["metrics"] for line in lines]


def test_a_script_says_its_value_its_step_and_what_it_has_found(tmp_path: Path) -> None:
    Search("command", steps=5, interval=2, pause=0.0).write(tmp_path, "first")
    begun = written_reports(tmp_path, 0, None)
    assert [(one["echo"], one["echo_step"], one["held"]) for one in begun] == [
        (0.125, step, -1.0) for step in (2, 4, 5)
    ]
    assert json.loads((tmp_path / "held.json").read_text()) == 5.125
    resumed = written_reports(tmp_path, 4, 4.125)
    assert [(one["echo"], one["echo_step"], one["held"]) for one in resumed] == [(0.125, 5, 4.125)]
    nonces = [{one["nonce"] for one in some} for some in (begun, resumed)]
    assert [len(some) for some in nonces] == [1, 1]
    assert nonces[0] != nonces[1]


@pytest.mark.parametrize("scheduler", ["none", "{asha: {reduction: 2}}", "{pbt: {mutations: [x]}}"])
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_file_says_what_was_asked_for(tmp_path: Path, kind: str, scheduler: str) -> None:
    if kind == "network":
        scheduler = scheduler.replace("[x]", "[learning_rate]")
    is_script = kind in {"function", "command"}
    search = Search(
        kind,
        trials=3,
        steps=8,
        interval=2,
        seed=7,
        scheduler=scheduler,
        mutable=is_script and "x" in scheduler,
    )
    sweep = load(search.write(tmp_path, "first"), profile=None, gpus=0)
    assert sweep.direction == "minimize"
    assert (sweep.budget.trials, sweep.training.steps, sweep.training.interval) == (3, 8, 2)
    assert list(sweep.search) == [KINDS[kind].searched]
    assert sweep.sampler.seed == 7
    assert sweep.scheduler.name == scheduler.lstrip("{").partition(":")[0]
    assert sweep.resources.cpu == 0.5


def test_sweeps_of_other_seeds_share_no_hyperparameter_and_no_script(tmp_path: Path) -> None:
    texts = {
        name: Search("function", seed=seed).write(tmp_path, name).read_text()
        for seed, name in enumerate("ab")
    }
    assert texts["a"].replace("of_a", "of_b").replace("seed: 0", "seed: 1") == texts["b"]
    assert {path.name for path in tmp_path.glob("*.py")} == {"of_a.py", "of_b.py"}


@pytest.mark.end_to_end
@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_real_reports_of_every_kind_are_right(commands: Commands, kind: str) -> None:
    """One sweep in the process of the command, with early stopping; the logs and MLflow are compared too."""
    search = Search(kind, steps=40, interval=5, pause=0.01, scheduler="{asha: {reduction: 2, grace: 0.25}}")
    code, printed = commands.run(str(search.write(commands.folder / "own", "first")))
    assert code == Exit.COMPLETE, printed
    with closing(commands.ledger) as ledger:
        [sweep] = ledger.sweeps()
    evidence = read(commands.root, sweep.id)
    assert evidence.kind == KINDS[kind]
    assert len(evidence.trials) == search.trials
    require(evidence, calm=True)
    value = float(evidence.trials[0].params[evidence.kind.searched])
    changed_value = replace(evidence.trials[0], params={evidence.kind.searched: value + 1e-4})
    with pytest.raises(AssertionError, match=f"{evidence.kind.echo} must be"):
        require(replace(evidence, trials=[changed_value, *evidence.trials[1:]]), calm=True)


@pytest.mark.end_to_end
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["function", "command"])
def test_real_reports_of_trials_that_copy_each_other_are_right(commands: Commands, kind: str) -> None:
    search = Search(
        kind,
        steps=16,
        pause=0.5,  # only a trial that goes on beside this one can be copied
        scheduler="{pbt: {mutations: [x], period: 0.25, quantile: 0.5}}",
        mutable=True,
    )
    code, printed = commands.run(str(search.write(commands.folder / "own", "first")))
    assert code == Exit.COMPLETE, printed
    with closing(commands.ledger) as ledger:
        [sweep] = ledger.sweeps()
    evidence = read(commands.root, sweep.id)
    assert any(trial.system_attrs.get("segments") for trial in evidence.trials), "no trial has copied another"
    require(evidence, allowed=of_population(evidence))
    assert faults(evidence), "the values have changed, and so are not those of one attempt"
