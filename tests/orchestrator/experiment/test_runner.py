"""Arms are run once each, in the order of the file; an interrupted experiment goes on where it stopped."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator.api.local_sweep import Sweep
from orchestrator.api.workspace import Workspace
from orchestrator.errors import BadInput, Exit
from orchestrator.experiment.dry_run import dry_run
from orchestrator.experiment.file import Experiment, function_of, load, selected
from orchestrator.experiment.runner import results, run
from tests.orchestrator.experiment.test_file import EXPERIMENT, loaded

MEASURE = """
title: A function
source: "A paper, Figure 1"
claim: It doubles.
seeds: 2
compare: {metric: twice the number, tolerance: 0.1}
measure: tests.orchestrator.experiment.measured:doubled
arms:
  one: {arguments: {number: 1, notes: NOTES}, paper: 2}
  two: {arguments: {number: 2, notes: NOTES}, paper: 5}
claims: [{better: two, than: one}]
"""


def measuring(folder: Path, text: str = MEASURE) -> Experiment:
    (folder / "figure-1.yaml").write_text(text.replace("NOTES", str(folder / "notes.txt")))
    return load(folder / "figure-1.yaml", profile=None, gpus=0)


def test_every_arm_is_started_in_order(tmp_path: Path) -> None:
    started: list[str] = []

    def start(sweep: Sweep) -> int:
        started.append(sweep.id)
        return Exit.SOME_FAILED if "lru" in sweep.id else Exit.COMPLETE

    experiment = loaded(tmp_path)
    workspace = Workspace.at(tmp_path / "mlruns", tmp_path / "data")
    assert run(experiment, workspace, start, print) == Exit.SOME_FAILED
    assert [name.rpartition("-")[0] for name in started] == ["table-1-lru", "table-1-s5"]


def test_arms_can_be_selected(tmp_path: Path) -> None:
    started: list[str] = []

    def start(sweep: Sweep) -> int:
        started.append(sweep.id)
        return Exit.COMPLETE

    experiment = loaded(tmp_path)
    workspace = Workspace.at(tmp_path / "mlruns", tmp_path / "data")
    assert run(selected(experiment, ["s5"]), workspace, start, print) == Exit.COMPLETE
    assert [name.rpartition("-")[0] for name in started] == ["table-1-s5"]
    assert [arm.name for arm in results(experiment, workspace).arms] == ["lru", "s5"]
    with pytest.raises(BadInput, match=r"--only must name arms of table-1 \(got `s4`\)"):
        selected(experiment, ["s5", "s4"])


def test_an_interruption_ends_the_experiment(tmp_path: Path) -> None:
    started: list[str] = []

    def start(sweep: Sweep) -> int:
        started.append(sweep.id)
        return Exit.RESUMABLE

    workspace = Workspace.at(tmp_path / "mlruns", tmp_path / "data")
    assert run(loaded(tmp_path), workspace, start, print) == Exit.RESUMABLE
    assert len(started) == 1


def test_an_arm_without_its_data_is_skipped_and_says_so(tmp_path: Path) -> None:
    other = "{task: text, data: {delay: null, examples: null, held_out: null}, paper"
    text = EXPERIMENT.replace("  lru: {paper", f"  lru: {other}")
    experiment = loaded(tmp_path, text)
    workspace = Workspace.at(tmp_path / "mlruns", tmp_path / "data")
    lines: list[str] = []
    assert run(experiment, workspace, lambda sweep: Exit.COMPLETE, lines.append) == Exit.SOME_FAILED
    assert lines[0] == "Arm 1 of 2, lru: skipped, the data of text are missing"
    present = results(experiment, workspace)
    assert present.verdicts["lru"].phrase == "not comparable, because the data of text are missing"
    assert present.verdicts["s5"].phrase == "undetermined: 0 of 3 seeds have a value"


def test_a_function_is_called_once_for_each_arm_and_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = measuring(tmp_path)
    workspace = Workspace.at(tmp_path / "mlruns")
    notes = tmp_path / "notes.txt"
    for _ in range(2):
        assert run(experiment, workspace, pytest.fail, print) == Exit.COMPLETE
        assert notes.read_text().split() == ["1/0", "1/1", "2/0", "2/1"]
    present = results(experiment, workspace)
    assert [arm.values for arm in present.arms] == [[2.0, 2.1], [4.0, 4.1]]
    assert [verdict.outcome for verdict in present.verdicts.values()] == ["undetermined", "undetermined"]
    assert present.orders[0].phrase == (
        "undetermined: no difference is established, p = 0.33, 0.75 corrected for 3 comparisons; fewer than 5"
        " seeds of each cannot decide"
    )
    assert [arm.trials for arm in present.arms] == [2, 2]
    monkeypatch.setattr("orchestrator.provenance.git_commit", lambda: "a later commit")
    assert results(experiment, workspace).arms[0].origin == present.arms[0].origin is not None


def test_a_function_is_called_again_with_other_arguments(tmp_path: Path) -> None:
    workspace = Workspace.at(tmp_path / "mlruns")
    run(measuring(tmp_path), workspace, pytest.fail, print)
    changed = measuring(tmp_path, MEASURE.replace("number: 2", "number: 3"))
    assert results(changed, workspace).arms[1].values == []
    run(changed, workspace, pytest.fail, print)
    assert (tmp_path / "notes.txt").read_text().split()[4:] == ["3/0", "3/1"]


@pytest.mark.parametrize("name", ["no.such:function", "json:no_such", "json", ""])
def test_a_function_that_does_not_exist_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match="must be module:function"):
        function_of(name)


@pytest.mark.slow
def test_a_dry_run_takes_a_step_of_every_static_choice(tmp_path: Path) -> None:
    """Arms with one static choice share a step."""
    text = EXPERIMENT.replace("claims:", "  lru-slow: {training: {learning_rate: 1e-4}}\nclaims:")
    lines = list(dry_run(loaded(tmp_path, text), tmp_path))
    assert [line.partition(": loss")[0] for line in lines] == ["lru, lru-slow", "s5"]


@pytest.mark.parametrize(
    ("printed", "got"), [('{"name": "another", "loss": 1.0}', "a step of another"), ("", "")]
)
def test_a_dry_run_takes_no_answer_about_another_arm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str, got: str
) -> None:
    real = subprocess.Popen

    def begin(command: list[str], **options: Any) -> Any:
        script = (
            f"import sys; sys.stdin.read(); print({printed!r})" if printed else "import sys; sys.stdin.read()"
        )
        return real([command[0], "-c", script], **options)

    monkeypatch.setattr(subprocess, "Popen", begin)
    with pytest.raises(BadInput, match=f"dry run must take a step of .*{got}"):
        list(dry_run(loaded(tmp_path, EXPERIMENT), tmp_path))


def test_a_dry_run_of_a_measured_function_looks_it_up(tmp_path: Path) -> None:
    assert list(dry_run(measuring(tmp_path), tmp_path)) == [
        "tests.orchestrator.experiment.measured:doubled exists; it is not called"
    ]
    with pytest.raises(BadInput, match="must be module:function"):
        list(dry_run(measuring(tmp_path, MEASURE.replace(":doubled", ":tripled")), tmp_path))


@pytest.mark.slow
def test_running_an_experiment_imports_no_jax() -> None:
    """JAX in the process of a driver would take memory of the GPU that its trials use."""
    code = "import sys; import orchestrator.cli.experiments; print({'jax', 'flax', 'ray'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
