"""No experiment file is stale: every arm is valid at every size, and a training step fits its shapes."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.cli.app import run_command
from orchestrator.config import load as load_space
from orchestrator.experiment import publishing
from orchestrator.experiment.dry_run import dry_run, settings_of
from orchestrator.experiment.file import Experiment, function_of, load
from tests.tracing import trace_evaluation, trace_step
from trainables.cost import of_layer
from trainables.engine.programs import program_of
from trainables.rehearsal import drawn
from trainables.tasks import TASKS
from trainables.trial import TrainingSettings, TrialSettings

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "experiments").glob("*.yaml"))

of_files = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)


def take_a_step(experiment: Experiment) -> None:
    lines = list(dry_run(experiment, Path(os.environ["JAX_COMPILATION_CACHE_DIR"])))
    arms = ", ".join(line.partition(": ")[0] for line in lines).split(", ")
    assert experiment.measure is not None or sorted(arms) == sorted(arm.name for arm in experiment.arms)


def way_to_train(training: TrainingSettings) -> tuple[Any, ...]:
    """Return what the operations of a step depend on, beside its network and its task."""
    clipped, rule = training.clip is not None, training.rule()
    return (training.optimizer, clipped, rule, training.accumulate, training.remat, training.carry_state)


@pytest.mark.slow
def test_a_training_step_of_every_arm_fits_its_shapes() -> None:
    """Traced in this process, which takes half the time of a process for each file.

    Each network and each task of all files is traced once, not each pair; and the gradient once for each
    layer and way to train it, because it has the shapes of what it is taken of. Networks that differ in
    ranges of initial values or in dropout are one: those are numbers, which change no shape.
    """
    traced: set[str] = set()
    for file in FILES:
        experiment = load(file, profile=None, gpus=0)
        if experiment.measure is not None:
            function_of(experiment.measure)
        for arm in experiment.arms:
            if arm.sweep is not None:
                with naming(f"{file.name}, arm {arm.name}"):
                    trace_new_parts(settings_of(arm.sweep), traced)


@contextmanager
def naming(what: str) -> Iterator[None]:
    """Let an error say what it was raised for."""
    try:
        yield
    except Exception as error:
        error.add_note(f"The step of {what}")
        raise


def trace_new_parts(settings: TrialSettings, traced: set[str]) -> None:
    """Trace what `traced` does not name of a layer with its way to train, a network and a task; name it."""
    layer = f"{settings.model.layer} {settings.model.options} {way_to_train(settings.training)}"
    network = replace(settings.model, ranges={}, dropout=0.0)
    parts = {f"{network}", f"{settings.task} {settings.task_options}"}
    if layer not in traced:
        trace_step(settings)
    elif not parts <= traced:
        trace_evaluation(settings)
    traced.update({layer, *parts})


@pytest.mark.slow
@pytest.mark.timeout(900)  # who-can-count compiles twelve layers
@of_files
def test_a_training_step_of_every_arm_is_taken(file: Path) -> None:
    """At the size of the profile `laptop`, or at full size if the file has no such profile."""
    take_a_step(load(file, profile="auto", gpus=0))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@of_files
def test_a_training_step_of_every_arm_is_taken_at_full_size(file: Path) -> None:
    take_a_step(load(file, profile=None, gpus=0))


@pytest.mark.slow
def test_the_command_for_a_lent_gpu_takes_a_step_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At the published length and width, in the authors' recipe."""
    monkeypatch.chdir(ROOT)
    words = ["experiment", "rotrnn-table-1", "--only", "listops-bidirectional", "--gpu", "--dry-run"]
    assert run_command([*words, "--root", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "1 arm of 3 seeds" in printed
    assert re.search(r"listops-bidirectional: loss \d", printed)


def test_arms_as_the_code_have_the_recipe_of_the_files_as_the_code() -> None:
    """What tables 1 and 2 train is what the profile `code` of a search-space file tries first."""
    arms = {
        arm.sweep.task: arm.sweep
        for stem in ("rotrnn-table-1", "rotrnn-table-2")
        for arm in load(ROOT / "experiments" / f"{stem}.yaml", profile=None, gpus=0).arms
        if arm.sweep
        and arm.sweep.network.layer == "rotrnn"
        and arm.sweep.network.extras.get("init") == "code"
    }
    assert len(arms) == 7
    for task, sweep in arms.items():
        file = load_space(ROOT / "search_spaces" / f"{task}.yaml", profile="code", gpus=1)
        first = file.published_params()
        assert first is not None
        ours, theirs = sweep.network_settings(sweep.largest(), 0), file.network_settings(first, 0)
        assert ours.model.complete() == theirs.model.complete()
        assert replace(ours.training, interval=1) == replace(theirs.training, interval=1)
        assert (ours.training.warmup_epochs, ours.training.schedule) == (1, "s5")
        assert file.published is not None
        assert "authors'" in file.published.source


@pytest.mark.parametrize(
    ("file", "profile"),
    [
        (file, profile)
        for file in FILES
        for profile in yaml.load(file.read_text(), yaml.CSafeLoader).get("profiles", {})
    ],
    ids=lambda part: part if isinstance(part, str) else part.stem,
)
def test_every_profile_is_valid(file: Path, profile: str) -> None:
    experiment = load(file, profile=profile, gpus=0)
    assert experiment.arms
    assert experiment.profile == profile


def test_the_networks_of_the_adding_problem_have_the_published_sizes() -> None:
    """Four lengths; LDStack, LSTM and tanh RNN have 4,175, about 27,000 and about 17,000 parameters."""
    experiment = load(ROOT / "experiments" / "ldstack-adding.yaml", profile=None, gpus=0)
    published = {"ldstack": 4_175, "lstm": 27_000, "tanh_rnn": 17_000}
    seen = set()
    for arm in experiment.arms:
        assert arm.sweep is not None
        settings = settings_of(arm.sweep)
        layer = settings.model.layer
        assert of_layer(settings.model) == pytest.approx(published[layer], rel=0.02)
        assert settings.model.complete().pooling == "last"
        seen.add((layer, settings.task_options["length"]))
    assert seen == {(layer, length) for layer in published for length in (100, 200, 400, 750)}


def test_the_recurrences_of_who_can_recall_carry_equally_many_numbers() -> None:
    """With the rows of their convolutions: 342 a block. DeltaNet has the fewest parameters."""
    costs = {}
    for arm in load(ROOT / "experiments" / "who-can-recall.yaml", profile=None, gpus=0).arms:
        assert arm.sweep is not None
        settings = settings_of(arm.sweep)
        assert settings.model.depth == 1, "a block of it"
        task = TASKS[settings.task]
        signature = task.outline(task.checked(settings.task_options))
        assert signature is not None
        costs[arm.name] = program_of(settings, drawn(signature, 2)).cost()
    arms = ("delta", "rotrnn-conv", "lru-conv")
    assert [costs[arm].state_floats for arm in arms] == [342, 342, 342]
    assert costs["delta"].parameters < min(costs[arm].parameters for arm in arms[1:])


def test_the_file_of_the_page_is_valid(tmp_path: Path) -> None:
    """docs/experiments.md shows a file that can be run."""
    page = (ROOT / "docs" / "experiments.md").read_text()
    (example,) = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    shutil.copytree(ROOT / "search_spaces", tmp_path / "search_spaces")
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "example.yaml").write_text(example)
    for profile, seeds in ((None, 3), ("laptop", 2)):
        experiment = load(tmp_path / "experiments" / "example.yaml", profile=profile, gpus=0)
        assert experiment.seeds == seeds
        assert [arm.name for arm in experiment.arms] == ["exp", "stable"]


def test_the_page_of_results_is_that_of_the_kept_results() -> None:
    """`make results` writes it: no figure on it is written by hand."""
    assert (ROOT / "docs" / "results.md").read_text() == publishing.index(ROOT / "docs" / "experiments")


def test_the_page_names_every_file() -> None:
    page = (ROOT / "docs" / "experiments.md").read_text()
    for file in FILES:
        assert f"`{file.stem}`" in page
