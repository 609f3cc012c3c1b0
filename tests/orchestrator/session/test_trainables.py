"""Sessions whose attempts are real: those of a function, a command and a program, without Ray."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator import Sweep
from orchestrator.assignment import Assignment, Outcome
from orchestrator.config import load
from orchestrator.config.imports.argparse_draft import draft
from orchestrator.driver.admission import identify
from orchestrator.errors import BadInput
from orchestrator.scripts.script_attempt import OwnProcess
from orchestrator.session.session import Session
from orchestrator.training import process
from orchestrator.training.attempt import OwnEngine
from tests.orchestrator.session.sessions import Sessions, failure, launch
from trainables.trial import ProgramSettings

PAGE = Path(__file__).parents[3] / "docs" / "trainables.md"
UNAWARE = Path(__file__).parents[2] / "end_to_end" / "unaware.py"
FUNCTION = """
import json, random

def train(trial):
    saved = trial.resume / "sum.json" if trial.resume else None
    total = json.loads(saved.read_text()) if saved else 0.0
    for step in range(trial.start + 1, trial.steps + 1):
        total += trial.params["learning_rate"] * random.Random(f"{trial.seed}/{step}").random()
        with open("steps.log", "a") as log:
            log.write(f"{trial.seed}/{step} ")
        if step % trial.interval == 0:
            (trial.folder / "sum.json").write_text(json.dumps(total))
            if not trial.report(step, {"val/loss": -total, "val/accuracy": total}, checkpoint=trial.folder):
                return
"""
COMMAND = f"{FUNCTION}\nimport sweep_client\ntrain(sweep_client.trial())\n"
FILE = """
trainable: {TRAINABLE}
search: {learning_rate: {log_uniform: [1e-3, 1e-2]}}
training: {steps: 9, interval: 3}
objective: {minimize: val/loss}
sampler: {random: {seed: 2}}
scheduler: none
budget: {trials: 1}
confirm: {seeds: 1}
"""
STUDY = """
trainable: {TRAINABLE}
search: {learning_rate: {log_uniform: [1e-3, 1e-2]}}
training: {steps: 6, interval: 3}
objective: {maximize: val/accuracy, minimize: val/loss, prefer: val/accuracy}
constraints: {seconds/train: {at_most: 1000}}
sampler: {tpe: {seed: 2}}
scheduler: none
budget: {trials: 20}
confirm: {seeds: 1}
warm_start: [EARLIER]
profiles: {small: {budget: {trials: 2}}}
"""
KINDS = {
    "function": "function: train.py:train, folder: code",
    "command": f"command: [{sys.executable}, script.py], folder: code",
    "program": "program: model.py:OfLinen, folder: code",
}


@pytest.fixture
def code(sessions: Sessions) -> Path:
    """Return the folder of all three, beside the search-space file."""
    folder = sessions.folder / "code"
    folder.mkdir()
    (folder / "train.py").write_text(FUNCTION)
    (folder / "script.py").write_text(COMMAND)
    shutil.copy(Path(__file__).parents[2] / "trainables" / "digits.py", folder / "model.py")
    return folder


def reports(assignment: Assignment) -> Iterator[Outcome]:
    """Yield the reports of an attempt as a worker of another process would; end it when no more is asked."""
    sent = Assignment.from_config(assignment.to_config())
    here = replace(sent, compilations=os.environ["JAX_COMPILATION_CACHE_DIR"])
    worker = OwnEngine() if isinstance(sent.settings, ProgramSettings) else OwnProcess()
    try:
        while True:
            outcome = worker.advance(here)
            yield outcome
            if outcome.done:
                return
    finally:
        worker.release()


def run(session: Session, *, reported: int | None = None) -> None:
    """Run attempts until none is left, or until one has reported so many times."""
    while not session.finished:
        assignment = launch(session)
        taken = reports(assignment)
        for count, outcome in enumerate(taken, 1):
            session.reported(assignment.attempt_id, outcome)
            if count == reported:
                taken.close()
                return
        session.completed(assignment.attempt_id)


def curves(sessions: Sessions, sweep: str) -> dict[tuple[str, int], float]:
    return {(one.trial_key, one.step): one.metrics["val/loss"] for one in sessions.ledger.reports(sweep)}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["function", "command", pytest.param("program", marks=pytest.mark.slow)])
def test_the_next_driver_goes_on_where_a_killed_one_was(
    kind: str, sessions: Sessions, code: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Search and confirmation equal those of an undisturbed sweep, and no reported step runs twice."""
    text = FILE.replace("TRAINABLE", KINDS[kind])
    calm = Sessions(tmp_path_factory.mktemp("calm"))
    shutil.copytree(code, calm.folder / "code")
    undisturbed = calm.of(text)
    run(calm.open(undisturbed))
    sweep = sessions.of(text)
    run(sessions.open(sweep), reported=2)
    sessions.writer(sweep).lose_attempts()
    run(sessions.open(sweep))
    trials = sessions.ledger.trials(sweep.id)
    assert [(trial.role, trial.state) for trial in trials] == [
        ("search", "COMPLETE"),
        ("confirmation", "COMPLETE"),
    ]
    assert trials[0].params == trials[1].params
    assert trials[0].seed != trials[1].seed
    assert curves(sessions, sweep.id) == curves(calm, undisturbed.id)
    log = Path(sessions.paths.log(sweep.id, trials[0].key)).read_text()
    assert "attempt 2: started at step 6 on" in log
    if kind != "program":
        steps = (code / "steps.log").read_text().split()
        assert len(set(steps)) == 18
        # The killed attempt may have begun the step after its last report.
        assert len(steps) <= 18 + 3


SEEDS = """
import json, os, sys
import sweep_client
trial = sweep_client.trial()
seen = [sys.argv[1], os.environ["SWEEP_PARAM_SEED"], os.environ["SWEEP_SEED"]]
with open(os.environ["SWEEP_PARAMS"]) as file:
    seen.append(json.load(file)["seed"])
with open("seeds.jsonl", "a") as file:
    file.write(json.dumps([int(seed) for seed in (*seen, trial.params["seed"], trial.seed)]) + "\\n")
trial.report(trial.steps, {"val/loss": 1.0})
"""


def test_a_confirmation_sees_its_own_seed_wherever_a_searched_seed_is_shown(
    sessions: Sessions, code: Path
) -> None:
    (code / "seeds.py").write_text(SEEDS)
    command = f'command: [{sys.executable}, seeds.py, "{{seed}}"], folder: code'
    searched = FILE.replace("{learning_rate:", "{seed: {int: [0, 4]}, learning_rate:")
    sweep = sessions.of(searched.replace("TRAINABLE", command))
    run(sessions.open(sweep))
    search, confirmation = sessions.ledger.trials(sweep.id)
    assert search.params == confirmation.params, "reports find confirmations by them"
    assert search.seed == search.params["seed"] != confirmation.seed
    seen = [json.loads(line) for line in (code / "seeds.jsonl").read_text().splitlines()]
    assert seen == [[search.seed] * 6, [confirmation.seed] * 6]


def test_the_last_checkpoint_stays_in_the_store_when_a_sweep_is_resumed_under_another_root(
    sessions: Sessions, code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt that is stopped before its first report returns the checkpoint that it has resumed."""
    sweep = sessions.of(
        FILE.replace("TRAINABLE", KINDS["function"]).replace("minimize: val/loss", "minimize: val/accuracy")
    )
    shared = replace(sessions.paths, database=sessions.paths.ledger_url, store=(tmp_path / "store").as_uri())
    roots = [replace(shared, root=tmp_path / root) for root in ("first", "second", "third")]
    sessions.paths = roots[0]
    run(sessions.open(sweep), reported=2)
    for sessions.paths in roots[1:]:
        sessions.writer(sweep).lose_attempts()
        with monkeypatch.context() as patch:
            if sessions.paths is roots[1]:
                patch.setattr(process, "stop_requested", lambda channel, attempt: True)
            run(sessions.open(sweep), reported=1)
        assert sessions.ledger.deletions(sweep.id, 100) == []
    (trial,) = sessions.ledger.trials(sweep.id)
    log = Path(sessions.paths.log(sweep.id, trial.key)).read_text()
    assert "attempt 3: started at step 6 on" in log


@pytest.mark.slow
def test_the_ten_lines_of_the_page(sessions: Sessions) -> None:
    """The script and the file of docs/trainables.md as they stand: a trial is killed, and goes on."""
    page = PAGE.read_text()
    script, file = (re.search(rf"```{kind}\n(.*?)```", page, re.DOTALL) for kind in ("python", "yaml"))
    assert script is not None
    assert file is not None
    (sessions.folder / "train.py").write_text(script[1])
    sweep = sessions.of(file[1])
    run(sessions.open(sweep), reported=5)
    sessions.writer(sweep).lose_attempts()
    session = sessions.open(sweep)
    assignment = launch(session)
    for outcome in reports(assignment):
        session.reported(assignment.attempt_id, outcome)
    session.completed(assignment.attempt_id)
    (trial,) = sessions.ledger.trials(sweep.id)
    assert trial.state == "COMPLETE"
    assert [report.step for report in sessions.ledger.trial_reports(trial.key)] == list(range(1, 21))
    assert "attempt 2: started at step 5 on" in Path(sessions.paths.log(sweep.id, trial.key)).read_text()
    assert trial.value is not None
    assert trial.value > 0.8


def test_a_script_that_was_not_written_for_this(
    sessions: Sessions, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Its options are drafted, `watch.py` of the page reads what it prints, and a killed trial goes on."""
    calm = Sessions(tmp_path_factory.mktemp("calm"))
    script = UNAWARE.read_text()
    text = draft(script, "train.py").replace("python, train.py", f"{sys.executable}, watch.py, train.py")
    text = text.replace("pause: {uniform: [0, 1]}", "pause: {choice: [0.0]}")
    [watch] = [
        block for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "Popen" in block
    ]
    for place in (sessions, calm):
        (place.folder / "train.py").write_text(script)
        (place.folder / "watch.py").write_text(watch)
    sweeps = [place.of(f"{text}scheduler: none\n".replace("16", "1")) for place in (sessions, calm)]
    run(calm.open(sweeps[1]))
    run(sessions.open(sweeps[0]), reported=3)
    sessions.writer(sweeps[0]).lose_attempts()
    run(sessions.open(sweeps[0]))
    (trial,) = sessions.ledger.trials(sweeps[0].id)
    found = [(one.step, one.metrics["val/loss"]) for one in sessions.ledger.trial_reports(trial.key)]
    calm_key = trial.key.replace(sweeps[0].id, sweeps[1].id)
    assert found == [(one.step, one.metrics["val/loss"]) for one in calm.ledger.trial_reports(calm_key)]
    assert [step for step, _ in found] == list(range(1, 9))
    log = Path(sessions.paths.log(sweeps[0].id, trial.key)).read_text()
    assert "attempt 2: started at step 3 on" in log
    assert re.findall(r"attempt 2: epoch (\d)", log) == list("45678")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["function", "command", pytest.param("program", marks=pytest.mark.slow)])
def test_everything_that_a_network_has(
    kind: str, sessions: Sessions, code: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A profile, two objectives, a constraint, a warm start, a retry, a confirmation, report and export."""
    text = FILE.replace("TRAINABLE", KINDS[kind]).replace("minimize: val/loss", "maximize: val/accuracy")
    earlier = sessions.of(text.replace("confirm: {seeds: 1}", ""))
    run(sessions.open(earlier))
    file = sessions.folder / "study.yaml"
    file.write_text(STUDY.replace("TRAINABLE", KINDS[kind]).replace("EARLIER", earlier.id))
    sweep = identify(load(file, profile="small", gpus=0), sessions.ledger)
    session = sessions.open(sweep)
    assignment = launch(session)
    session.reported(assignment.attempt_id, failure(assignment, 0, "disk limit"))
    session.completed(assignment.attempt_id)
    run(session)
    trials = sessions.ledger.trials(sweep.id)
    assert [trial.state for trial in trials] == ["FAILED", "COMPLETE", "COMPLETE"]
    sessions.writer(sweep).reopen("again", [trials[0].key])
    run(sessions.open(sweep))
    found = Sweep.find(sweep.id, root=sessions.paths.root)
    assert list(found.trials["state"]) == ["COMPLETE"] * len(found.trials)
    assert found.write_report().html.exists()
    best = found.best
    assert best is not None
    exported = tmp_path_factory.mktemp("exported") / "best"
    best.export(exported)
    assert json.loads((exported / "trial.json").read_text())["params"] == dict(best.params)
    if kind == "program":
        assert best.evaluate().metrics["accuracy"] > 0
    else:
        with pytest.raises(
            BadInput, match="cannot be evaluated, because it does not train a program or a built-in"
        ):
            best.evaluate()
    with pytest.raises(
        BadInput, match="cannot be loaded as a network, because it does not train a built-in model"
    ) as refused:
        best.predictor()
    assert ("trained_program" if kind == "program" else "`export`") in refused.value.remedy


@pytest.mark.parametrize(("cause", "attempts"), [("out of memory", 3), ("time limit", 2), ("disk limit", 1)])
def test_a_trial_that_exceeds_a_limit_is_tried_again_if_that_may_help(
    cause: str, attempts: int, sessions: Sessions, code: Path
) -> None:
    sweep = sessions.of(FILE.replace("TRAINABLE", KINDS["function"]).replace("confirm: {seeds: 1}", ""))
    session = sessions.open(sweep)
    for _ in range(attempts):
        assignment = launch(session)
        session.reported(assignment.attempt_id, failure(assignment, 0, cause))
        session.completed(assignment.attempt_id)
        sessions.clock.now += 100
    assert session.finished
    (trial,) = sessions.ledger.trials(sweep.id)
    assert trial.state == "FAILED"
    assert str(trial.cause).startswith(cause)


def test_a_function_that_returns_early_has_completed_its_trial(sessions: Sessions, code: Path) -> None:
    (code / "train.py").write_text(
        "def train(trial):\n    trial.report(3, {'val/loss': 2.0}, checkpoint=trial.folder)\n"
    )
    sweep = sessions.of(FILE.replace("TRAINABLE", KINDS["function"]).replace("confirm: {seeds: 1}", ""))
    run(sessions.open(sweep))
    (trial,) = sessions.ledger.trials(sweep.id)
    assert (trial.state, trial.value, trial.best_step) == ("COMPLETE", 2.0, 3)
