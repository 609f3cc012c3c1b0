"""The shipped search-space files are valid in every profile and hold the published hyperparameters."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from orchestrator.config import SweepConfig, load
from orchestrator.config.yaml_reader import parse_document
from trainables.cost import of_layer, parameters
from trainables.data.task import completed
from trainables.tasks import TASKS
from trainables.trial import TrialSettings

FOLDER = Path(__file__).parents[3] / "search_spaces"
FILES = sorted(FOLDER.glob("*.yaml"))

# RotRNN, Table 3: D, N, rate, recurrent rate, batch, decay, dropout, steps, gamma, theta; and its accuracy.
TABLE_3 = {
    "listops": (128, 256, 1e-3, 1e-3, 32, 0.05, 0.0, 80_000, (0.5, 0.999), math.pi / 100, 0.611),
    "text": (256, 192, 1e-3, 1e-3, 32, 0.05, 0.1, 50_000, (0.5, 0.8), math.pi / 10, 0.896),
    "retrieval": (128, 256, 1e-4, 1e-5, 32, 0.01, 0.1, 50_000, (0.5, 0.999), 2 * math.pi, 0.899),
    "image": (512, 384, 4.5e-3, 1e-3, 50, 0.05, 0.1, 250_000, (0.99, 0.999), 2 * math.pi, 0.859),
    "pathfinder": (192, 256, 4.5e-3, 1e-3, 64, 0.03, 0.05, 500_000, (0.1, 0.9999), math.pi / 10, 0.93),
    "pathx": (192, 256, 4.5e-3, 1e-3, 32, 0.03, 0.2, 250_000, (0.999, 0.9999), math.pi / 10, 0.892),
    "speech_commands": (96, 128, 8e-3, 1e-3, 16, 0.04, 0.1, 212_000, (0.1, 0.9999), math.pi / 10, 0.952),
}


def _trial_0(sweep: SweepConfig) -> TrialSettings:
    params = sweep.published_params()
    assert params is not None
    return sweep.settings(params, sweep.trial_seed(0, params))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_is_valid_in_every_profile(path: Path) -> None:
    """Each file loads with and without a profile, and its published trial can be built."""
    names = parse_document(path.read_text(encoding="utf-8"), path.name).at(("profiles",)).entries
    assert "laptop" in names
    for profile in ("full", *names):
        sweep = load(path, profile=profile, gpus=0)
        if sweep.published_params():
            _trial_0(sweep)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_runs_on_a_laptop(path: Path) -> None:
    """Without a GPU, a file gives at least a dozen trials, none of which requests one."""
    sweep = load(path, profile="auto", gpus=0)
    assert sweep.profile == "laptop"
    assert sweep.resources.gpu == 0
    assert sweep.budget.trials >= 12
    assert sweep.confirm.seeds == 0
    assert load(path, profile="auto", gpus=1).profile is None


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_says_what_it_should_take_and_reach(path: Path) -> None:
    """The comment at the head of a file gives the sweep's cost and expected result."""
    head = path.read_text(encoding="utf-8").partition("\ntask:")[0]
    assert "\n# What it should take and reach: " in head
    assert all(line.startswith("#") for line in head.splitlines())


@pytest.mark.parametrize("task", TABLE_3)
def test_what_the_authors_searched_is_searched(task: str) -> None:
    """The sweeps of RotRNN's authors go over heads, dropout and decay too; the published ones are choices."""
    sweep = load(FOLDER / f"{task}.yaml", profile="full", gpus=1)
    _, _, _, _, _, decay, dropout, *_ = TABLE_3[task]
    choices = {name: sweep.search[name].document()["choice"] for name in ("heads", "dropout", "weight_decay")}
    assert choices["heads"] == [16, 32, 64]
    assert dropout in choices["dropout"]
    assert decay in choices["weight_decay"]
    assert len(choices["dropout"]) > 2 < len(choices["weight_decay"])


@pytest.mark.parametrize(("task", "size"), [("adding", 4_197), ("copy", 3_829)])
def test_files_of_ldstack_have_its_network_and_optimiser(task: str, size: int) -> None:
    """LDStack, appendix 10.6: Adamax in all experiments; its layers count 4,175 and 3,380 parameters."""
    sweep = load(FOLDER / f"{task}.yaml", profile="full", gpus=1)
    settings = _trial_0(sweep)
    signature = TASKS[task].outline(completed(task, TASKS[task].options, settings.task_options))
    assert signature is not None
    assert parameters(settings.model, signature) == size
    assert of_layer(settings.model) == {"adding": 4_194, "copy": 3_380}[task]
    assert (settings.training.optimizer, settings.training.schedule) == ("adamax", "constant")
    assert "AdamW" not in (FOLDER / f"{task}.yaml").read_text()


@pytest.mark.parametrize("profile", ["full", "code"])
@pytest.mark.parametrize("task", [name for name in TABLE_3 if (FOLDER / f"{name}.yaml") in FILES])
def test_trial_0_is_the_published_one(task: str, profile: str) -> None:
    """The files of RotRNN hold the values of Table 3, also as the authors' program is configured."""
    sweep = load(FOLDER / f"{task}.yaml", profile=profile, gpus=1)
    settings = _trial_0(sweep)
    model, training = settings.model, settings.training
    assert (model.layer, model.depth, model.options["heads"]) == ("rotrnn", 6, 32)
    both = {"pathfinder", "pathx"}
    assert model.bidirectional == (
        task in (both if profile == "full" else both | {"listops", "image", "speech_commands"})
    )
    theta_low, theta_high = model.ranges["theta_init"]
    assert theta_low == 0
    assert sweep.published is not None
    assert (
        model.d_model,
        model.d_state,
        training.learning_rate,
        training.recurrent_learning_rate,
        training.batch_size,
        training.weight_decay,
        model.dropout,
        training.steps,
        model.ranges["gamma_init"],
        pytest.approx(theta_high),
        sweep.published.results["test/accuracy"],
    ) == TABLE_3[task]
