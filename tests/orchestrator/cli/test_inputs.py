"""The command line refuses bad input at once, with code 2 and one line, and writes nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import typer

from orchestrator.api.local_sweep import Sweep
from orchestrator.cli.app import run_command
from orchestrator.cli.experiments import ended_after
from orchestrator.cli.local_runs import chosen_sweep
from orchestrator.cli.run_options import RunOptions
from orchestrator.config import load
from orchestrator.errors import Exit
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.sweeps.lease import Lease
from orchestrator.ledger.sweeps.records import SweepRecord, SweepState
from orchestrator.storage.paths import Paths
from tests.orchestrator.ledger.examples import create_sweep

SPACE = """\
task: copy
data: {delay: 6, examples: 400, held_out: 40}
model: {layer: lds, depth: 1, d_model: 8, d_state: 16}
training: {steps: 40, interval: 10, batch_size: 8, recurrent_learning_rate: 1e-3}
evaluate: {examples: 40}
search:
  learning_rate: {log_uniform: [1e-3, 3e-2]}
objective: {minimize: val/loss}
sampler: {random: {seed: 3}}
scheduler: {none: {}}
budget: {trials: 4}
resources: {cpu: 1}
"""
SECONDS = 2.0


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder without a GPU or data sets."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.delenv("SWEEP_DATA", raising=False)
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Run a command that must be refused; return the line that it prints."""
    before = {path: path.stat().st_mtime_ns for path in Path().rglob("*")}
    began = time.process_time()
    assert run_command(list(words)) == 2
    assert time.process_time() - began < SECONDS
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.splitlines()) == 1
    assert {path: path.stat().st_mtime_ns for path in Path().rglob("*")} == before
    return printed.err


ALIASES = "".join(f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 9)}]\n" for k in range(1, 30))
FILES: dict[str, tuple[str, str]] = {
    "empty": ("", "is empty"),
    "tag": (SPACE + "x: !!python/object/apply:os.system ['touch canary']\n", "13"),
    "alias bomb": ("a0: &a0 [1]\n" + ALIASES, "space.yaml:"),
    "nesting": ("a: " + "[" * 10_000, "space.yaml:"),
    "duplicate key": (SPACE + "task: adding\n", "13: task"),
    "tab": (SPACE.replace("  learning_rate", "\tlearning_rate"), "7"),
    "bounds": (SPACE.replace("[1e-3, 3e-2]", "[3e-2, 1e-3]"), "low <= high"),
    "unknown key": (SPACE + "budgets: {trials: 3}\n", "budget"),
    "unknown task": (SPACE.replace("task: copy", "task: cpoy"), "copy"),
    "no trials": (SPACE.replace("trials: 4", "trials: 0"), "budget.trials"),
    "trials in words": (SPACE.replace("trials: 4", "trials: ten"), "budget.trials"),
    "more processors than the machine has": (SPACE.replace("cpu: 1", "cpu: 4096"), "resources.cpu"),
    "a GPU on a machine without one": (SPACE.replace("cpu: 1", "cpu: 1, gpu: 1"), "Use at most 0,"),
    "an interval of nothing": (SPACE.replace("interval: 10", "interval: 100"), "training.interval"),
    "a module": (SPACE.replace("layer: lds", "layer: os.path"), "layer"),
}


@pytest.mark.parametrize("name", FILES)
def test_files(capsys: pytest.CaptureFixture[str], name: str) -> None:
    content, expected = FILES[name]
    Path("space.yaml").write_text(content)
    assert expected in refused(capsys, "space.yaml")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--profile laptpo", "`laptop`"),
        ("--set training.stesp=3", "`steps`"),
        ("--set data.source=aan", "new_aan_pairs"),
    ],
)
def test_words(capsys: pytest.CaptureFixture[str], words: str, expected: str) -> None:
    """A profile or a key that does not exist, and data that nobody has."""
    file = Path(__file__).parents[3] / "search_spaces" / "retrieval.yaml"
    assert expected in refused(capsys, str(file), *words.split())


@pytest.mark.parametrize(
    "name", ["..yaml", "a b.yaml", "x'; DROP TABLE sweep.yaml", "CON\n.yaml", "😀.yaml", "%_.yaml", "é.yaml"]
)
def test_names(capsys: pytest.CaptureFixture[str], name: str) -> None:
    """A file name that cannot name a sweep, its folders, runs and rows is refused."""
    Path(name).write_text(SPACE)
    assert "must be" in refused(capsys, "run", "--", name)


def _before(file: Path) -> Paths:
    """Return a root whose ledger holds an interrupted sweep of the file."""
    file.write_text(SPACE)
    sweep, paths = load(file, profile=None, gpus=0), Paths(Path("mlruns").absolute())
    paths.create()
    ledger = Ledger.open(paths.ledger_url)
    about = (sweep.id, sweep.name, None, sweep.task, sweep.document(), sweep.digest)
    create_sweep(ledger, SweepRecord(*about, "INTERRUPTED", None, "", "", {}, 0.0))
    ledger.close()
    return paths


CHANGES = {
    "steps: 40": ("steps: 50", "training.steps 40 -> 50"),
    "seed: 3": ("seed: 4", "sampler.random.seed 3 -> 4"),
    "[1e-3, 3e-2]": ("[1e-3, 2e-2]", "search.learning_rate.log_uniform [0.001, 0.03] -> [0.001, 0.02]"),
    "delay: 6": ("delay: 7", "data.delay 6 -> 7"),
    "d_state: 16": ("d_state: 32", "model.d_state 16 -> 32"),
}


@pytest.mark.parametrize("old", CHANGES)
def test_a_changed_file(capsys: pytest.CaptureFixture[str], old: str) -> None:
    """An unfinished sweep cannot be resumed with a changed file; the refusal names each changed field."""
    new, difference = CHANGES[old]
    file = Path("space.yaml")
    _before(file)
    file.write_text(SPACE.replace(old, new))
    assert run_command(["space.yaml"]) == 2
    printed = capsys.readouterr().err
    assert difference in printed
    assert "--new" in printed


def _finished(file: Path, text: str, state: SweepState = "COMPLETE", **budget: int) -> str:
    """Write a sweep of a file with this text to the ledger, perhaps extended; return its id."""
    file.write_text(text)
    sweep, paths = load(file, profile=None, gpus=0), Paths(Path("mlruns").absolute())
    document = {**sweep.document(), "budget": {**sweep.document()["budget"], **budget}}
    paths.create()
    with closing(Ledger.open(paths.ledger_url)) as ledger:
        about = (sweep.id, sweep.name, None, sweep.task, document, sweep.digest)
        facts = {"specification": text, "direction": sweep.direction, "metric": sweep.metric}
        create_sweep(ledger, SweepRecord(*about, state, None, "", "", facts, 0.0, 1.0))
    return sweep.id


CHANGED = SPACE.replace("steps: 40", "steps: 50")


@pytest.mark.parametrize("state", ["COMPLETE", "INTERRUPTED"])
def test_a_changed_file_says_which_sweep_it_starts(
    capsys: pytest.CaptureFixture[str], state: SweepState
) -> None:
    """Without a terminal nobody is asked; an unfinished sweep is not left behind by mistake."""
    file = Path("space.yaml")
    earlier = _finished(file, SPACE, state)
    file.write_text(CHANGED)
    sweep = chosen_sweep(file, None, None, RunOptions(root=Path("mlruns")), new=False, resume=False)
    assert sweep.id != earlier
    told = capsys.readouterr().out
    assert f"space.yaml was changed since its sweep {earlier} ({state}): training.steps 40 -> 50" in told
    assert (f"This starts another sweep, {sweep.id}; `--resume` continues {earlier}" in told) is (
        state == "COMPLETE"
    )


def test_an_option_decides_which_sweep_of_a_changed_file_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    file, options = Path("space.yaml"), RunOptions(root=Path("mlruns"))
    earlier = _finished(file, SPACE)
    file.write_text(CHANGED)
    assert chosen_sweep(file, None, None, options, new=False, resume=True).id == earlier
    assert chosen_sweep(file, None, None, options, new=True, resume=False).id != earlier
    assert "(COMPLETE)" in capsys.readouterr().out
    assert "cannot be combined with `--resume`" in refused(capsys, "space.yaml", "--new", "--resume")


@pytest.mark.parametrize(("answer", "which"), [("n", "another"), ("r", "earlier"), ("q", None), ("", None)])
@pytest.mark.parametrize("state", ["COMPLETE", "INTERRUPTED"])
def test_on_a_terminal_a_person_is_asked(
    monkeypatch: pytest.MonkeyPatch, state: SweepState, answer: str, which: str | None
) -> None:
    file, options = Path("space.yaml"), RunOptions(root=Path("mlruns"))
    earlier = _finished(file, SPACE, state)
    file.write_text(CHANGED)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(typer, "prompt", lambda question, **_: answer if earlier in question else "?")
    if which is None:
        with pytest.raises(typer.Abort):
            chosen_sweep(file, None, None, options, new=False, resume=False)
    else:
        found = chosen_sweep(file, None, None, options, new=False, resume=False)
        assert (found.id == earlier) is (which == "earlier")
        assert found.specification.training.steps == (40 if which == "earlier" else 50)


@pytest.mark.parametrize(
    ("text", "overrides"), [(SPACE, []), (SPACE, ["training.steps=50"]), (f"# a remark\n{SPACE}", [])]
)
def test_a_file_that_was_not_changed_says_nothing(
    capsys: pytest.CaptureFixture[str], text: str, overrides: list[str]
) -> None:
    """Nor one of which a command line overrides a key, or in which a remark was changed."""
    file = Path("space.yaml")
    _finished(file, SPACE)
    file.write_text(text)
    chosen_sweep(file, None, overrides, RunOptions(root=Path("mlruns")), new=False, resume=False)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("text", "overrides", "trials"),
    [
        (SPACE, [], 12),
        (f"{SPACE}\n# a remark", [], 12),
        (SPACE.replace("trials: 4", "trials: 6"), [], 6),
        (SPACE, ["budget.trials=7"], 7),
        (SPACE, ["resources.cpu=2"], 12),
    ],
)
def test_a_sweep_remembers_what_it_was_extended_to(text: str, overrides: list[str], trials: int) -> None:
    """`--extend trials=12` is no part of its file, which says 4; a budget that is changed there counts."""
    file = Path("space.yaml")
    extended = _finished(file, SPACE, trials=12)
    file.write_text(text)
    sweep = chosen_sweep(file, None, overrides, RunOptions(root=Path("mlruns")), new=False, resume=False)
    assert (sweep.id, sweep.specification.budget.trials) == (extended, trials)


def test_a_file_that_has_vanished_is_not_needed_to_resume(capsys: pytest.CaptureFixture[str]) -> None:
    """The ledger has all that it said; the command that names it says how to go on."""
    file = Path("space.yaml")
    known = _finished(file, SPACE, "INTERRUPTED")
    file.rename("elsewhere.txt")
    assert run_command(["space.yaml"]) == 2
    assert f"`resume {known}` continues the sweep without the file" in capsys.readouterr().err
    found = Sweep.find("space", root="mlruns")
    assert (found.id, found.specification.training.steps) == (known, 40)
    assert run_command(["other.yaml"]) == 2
    assert "does not exist" in capsys.readouterr().err


@pytest.mark.parametrize("change", [Path.unlink, lambda file: file.write_text(CHANGED)])
def test_a_running_sweep_keeps_its_lease_whatever_becomes_of_its_file(
    capsys: pytest.CaptureFixture[str], change: Callable[[Path], object]
) -> None:
    """Its driver has read the file, and no other one starts beside it."""
    file = Path("space.yaml")
    known = _finished(file, SPACE, "RUNNING")
    with closing(Ledger.open(Paths(Path("mlruns").absolute()).ledger_url)) as ledger, Lease(ledger, known):
        change(file)
        assert run_command(["space.yaml"]) == 2
        assert known in capsys.readouterr().err
        assert run_command(["resume", known]) == Exit.BUSY
        assert [record.id for record in ledger.sweeps()] == [known]


@pytest.mark.slow
def test_a_second_driver(folder: Path) -> None:
    """It exits before it has imported the modules that take seconds."""
    paths = _before(folder / "space.yaml")
    code = (
        "import sys; from orchestrator.cli.app import run_command; code = run_command(['space.yaml']); "
        "print(code, {'ray', 'jax', 'mlflow', 'optuna', 'plotly'} & set(sys.modules))"
    )
    with closing(Ledger.open(paths.ledger_url)) as ledger, Lease(ledger, ledger.sweeps()[0].id):
        left = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert left.stdout.strip().splitlines()[-1] == "6 set()"
    assert f"process {os.getpid()}" in left.stderr


HARM: dict[str, tuple[Callable[[Paths, pytest.MonkeyPatch], object], str]] = {
    "linked checkpoints": (lambda paths, _: paths.checkpoints("").symlink_to("/"), "symbolic link"),
    "everybody's folder": (lambda paths, _: paths.root.chmod(0o777), "writable by other users"),
    "everybody's token": (lambda paths, _: paths.token.touch(0o644), "readable by its owner alone"),
    "folder of files as MLflow": (
        lambda _, patch: patch.setenv("MLFLOW_TRACKING_URI", "file:./mlruns"),
        "MLFLOW_TRACKING_URI",
    ),
    "MySQL as ledger": (lambda _, patch: patch.setenv("SWEEP_LEDGER", "mysql://u:hunter2@h/d"), "PostgreSQL"),
}


@pytest.mark.parametrize("name", HARM)
def test_places(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    harm, expected = HARM[name]
    harm(_before(Path("space.yaml")), monkeypatch)
    printed = refused(capsys, "space.yaml")
    assert expected in printed
    assert "hunter2" not in printed


FIGURE = """
title: A function
source: "A paper, Figure 1"
claim: It doubles.
seeds: 1
compare: {metric: twice the number, tolerance: 0.1}
measure: tests.orchestrator.experiment.measured:doubled
arms:
  one: {arguments: {number: 1, notes: notes.txt}, paper: 2}
"""


def test_an_experiment_on_a_gpu_needs_one(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    """It is refused before its file is read for it; its pages and its dry run need none."""
    (folder / "figure-1.yaml").write_text(FIGURE)
    printed = refused(capsys, "experiment", "figure-1.yaml", "--gpu")
    assert "--gpu requires a GPU (got 0 GPUs)" in printed
    assert run_command(["experiment", "figure-1.yaml", "--gpu", "--dry-run"]) == 0


def test_an_experiment_is_found_by_its_name(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    """In the folder `experiments`; a file of that name comes first."""
    refused(capsys, "experiment", "figure-1", "--dry-run")
    (folder / "experiments").mkdir()
    (folder / "experiments" / "figure-1.yaml").write_text(FIGURE)
    assert run_command(["experiment", "figure-1", "--dry-run"]) == 0
    assert "doubled exists" in capsys.readouterr().out
    (folder / "figure-1").write_text("title: another\n")
    assert "figure-1" in refused(capsys, "experiment", "figure-1", "--dry-run")


def test_a_bounded_call_is_asked_to_end_once() -> None:
    """After its time the process gets SIGTERM, on which a driver saves; one that ends earlier does not."""
    received: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
    try:
        with ended_after(0.2):
            for _ in range(500):
                time.sleep(0.02)
                if received:
                    break
        with ended_after(0.3):
            pass
        with ended_after(None):
            time.sleep(0.6)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert received == [signal.SIGTERM]
