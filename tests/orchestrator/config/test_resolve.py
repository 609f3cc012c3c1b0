"""Profiles and overrides: their order of precedence, and the ones that are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.config import load
from orchestrator.errors import BadInput
from tests.orchestrator.config.files import VALID, edited, loaded, refused, written


def test_the_laptop_profile_is_for_machines_without_a_gpu(tmp_path: Path) -> None:
    """`auto` selects it only there, `full` never; a file without profiles is used as it is."""
    assert loaded(tmp_path, profile="auto", gpus=0).profile == "laptop"
    assert loaded(tmp_path, profile="auto", gpus=1).profile is None
    assert loaded(tmp_path, profile="full", gpus=0).profile is None
    assert loaded(tmp_path, profile=None, gpus=0).profile is None
    assert loaded(tmp_path, profile="laptop", gpus=8).profile == "laptop"
    assert loaded(tmp_path, VALID.split("profiles:")[0], profile="auto", gpus=0).profile is None


def test_a_profile_replaces_keys_or_sections(tmp_path: Path) -> None:
    """Keys of training and search are replaced one by one, resources as a whole; null removes a key."""
    full, laptop = loaded(tmp_path), loaded(tmp_path, profile="laptop")
    assert (laptop.training.steps, laptop.training.batch_size) == (200, full.training.batch_size)
    assert set(full.search) - set(laptop.search) == {"theta_init.max"}
    assert (laptop.resources.gpu, laptop.resources.cpu) == (0.0, 2.0)
    assert laptop.published is None
    assert laptop.budget == full.budget


def test_overrides_go_over_the_profile(tmp_path: Path) -> None:
    """An override replaces every other value; names may have dots; an empty value removes a key."""
    sweep = loaded(
        tmp_path,
        profile="laptop",
        overrides=[
            "training.steps=300",
            "search.gamma_init.max={choice: [0.95]}",
            "search.gamma_init.min=",
            "evaluate.examples=50",
            "confirm.seeds=2",
            "sampler=random",
            "model.gamma_init=[0.2, 0.9]",
        ],
    )
    assert (sweep.training.steps, sweep.evaluate.examples, sweep.confirm.seeds) == (300, 50, 2)
    assert sweep.search["gamma_init.max"].choices == (0.95,)
    assert "gamma_init.min" not in sweep.search
    assert sweep.sampler.name == "random"
    assert sweep.model.extras["gamma_init"] == [0.2, 0.9]


@pytest.mark.parametrize(
    ("override", "where", "message"),
    [
        ("training.stepz=3", "--set training.stepz", "Did you mean `steps`?"),
        ("training.steps=ten", "--set training.steps", "must be a whole number (got 'ten')"),
        ("training.steps=0", "--set training.steps", "must be at least 1 (got 0)"),
        ("training.steps=[1", "--set training.steps", "must be YAML 1.2"),
        ("training.steps", "--set", "must be key=value"),
        ("=3", "--set", "must be key=value"),
        ("steps=3", "--set steps", "is not a known key"),
        ("training={steps: 5}", "--set training: training.interval", "must be given"),
        ("training.steps.more=1", "--set training.steps.more", "must name a key inside a mapping"),
        (
            "search.learning_rate.log_uniform=[1, 0.1]",
            "--set search.learning_rate.log_uniform",
            "low <= high",
        ),
        ("model.heads=7", "model.d_state", "d_state must be divisible by heads"),
        ("a.b=!!python/name:os.system", "--set a.b", "no YAML tags"),
    ],
)
def test_bad_overrides(tmp_path: Path, override: str, where: str, message: str) -> None:
    """A bad override is refused like a bad line of the file, and named as the option."""
    error = refused(tmp_path, VALID, overrides=[override])
    assert error.where.endswith(where)
    assert message in str(error)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("lapto", "Did you mean `laptop`?"),
        ("", "There are: full, laptop."),
        ("../x", "There are: full, laptop."),
    ],
)
def test_unknown_profile(tmp_path: Path, wanted: str, message: str) -> None:
    """An unknown profile is refused; the message lists the known ones."""
    error = refused(tmp_path, VALID, profile=wanted)
    assert error.where == "--profile"
    assert error.remedy == message


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("  laptop:\n", "  full:\n", 23, "neither full nor auto"),
        ("  laptop:\n", "  ../laptop:\n", 23, "a profile's name"),
        ("    training: {steps: 200}", "    trainin: {steps: 200}", 25, "Did you mean `training`?"),
        ("    training: {steps: 200}", "    training: {step: 200}", 25, "Did you mean `steps`?"),
        ("    resources: {cpu: 2}", "    profiles: {}", 29, "is not a known key"),
    ],
)
def test_bad_profiles(tmp_path: Path, old: str, new: str, line: int, message: str) -> None:
    """A mistake inside a profile is reported with its line, even if another profile is selected."""
    error = refused(tmp_path, edited(old, new), gpus=0 if "step: " in new else 1)
    assert error.where.startswith(f"{tmp_path / 'space.yaml'}:{line}: ")
    assert message in str(error)


@pytest.mark.parametrize(
    "name",
    ["-rf.yaml", "a b.yaml", "emoji😀.yaml", "%_.yaml", "'; DROP TABLE.yaml", "аdmin.yaml",
     "x" * 80 + ".yaml", "new\nline.yaml", ".yaml", "a.b.yaml"],
)  # fmt: skip
def test_a_sweep_is_named_by_a_slug(tmp_path: Path, name: str) -> None:
    """The file's stem names rows, folders and runs, so it must be a plain word."""
    path = written(tmp_path, VALID, name)
    with pytest.raises(BadInput, match="file's name must be") as caught:
        load(path, profile="auto", gpus=1)
    assert "\n" not in str(caught.value)


def test_loading_writes_nothing(tmp_path: Path) -> None:
    """Loading a file does not change its folder."""
    loaded(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["space.yaml"]
