"""Results of Ray Tune become search-space files that `validate` accepts, and known results.

Models: Ray's guide to analysing results, with its network for digits, and its example of population based
training of an agent, whose metrics are nested.
"""

from __future__ import annotations

import csv
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli.app import run_command
from tests.orchestrator.config.imports.files import translated


def trial(folder: Path, number: int, config: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> Path:
    """Write a trial as Ray Tune does; its pickled configuration must not be read."""
    place = folder / f"train_8df97_{number:05}_{number}_2026-11-29_09-52-14"
    place.mkdir(parents=True)
    (place / "params.json").write_text(json.dumps(config, indent=2))
    (place / "params.pkl").write_bytes(pickle.dumps(_Trap(place / "opened")))
    lines = [
        {
            "timestamp": 1795945940,
            "done": False,
            "training_iteration": step,
            "pid": 9,
            "config": config,
            **result,
        }
        for step, result in enumerate(results, start=1)
    ]
    (place / "result.json").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return place


def known_results(folder: Path) -> list[dict[str, str]]:
    """Return the rows of the known results of a translated file."""
    return list(csv.DictReader((folder / "translated-known.csv").read_text().splitlines()))


class _Trap:
    """An object that creates a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self._file,)


def digits(folder: Path) -> Path:
    """Write nine trials: rates from a range, three momenta, and what is the same in all."""
    for number in range(9):
        config = {
            "lr": 0.001 * 2**number,
            "momentum": (0.8, 0.9, 0.99)[number % 3],
            "should_checkpoint": True,
            "net": {"width": 8 + 5 * number, "activation": ("relu", None)[number % 2]},
            "data": "<function load at 0x7f00>",
        }
        results = [{"mean_accuracy": 0.1 * step + 0.01 * number, "loss": float("nan")} for step in (1, 3, 2)]
        trial(folder, number, config, results)
    (folder / "tuner.pkl").write_bytes(pickle.dumps(_Trap(folder / "opened")))
    return folder


def test_the_ranges_of_the_configurations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = digits(tmp_path / "results")
    sweep, text, notes = translated(tmp_path, capsys, str(folder))
    assert {name: one.document() for name, one in sweep.search.items()} == {
        "lr": {"log_uniform": [0.001, 0.256]},
        "momentum": {"choice": [0.8, 0.9, 0.99]},
        "net.width": {"int": [8, 48]},
        "net.activation": {"choice": ["relu", None]},
    }
    assert [(one.direction, one.metric) for one in sweep.objectives] == [("maximize", "mean_accuracy")]
    assert sweep.training.steps == 3
    assert "  should_checkpoint: true\n" in text
    assert len(notes) == 1
    assert "config data: was no JSON value" in notes[0]
    assert list(tmp_path.rglob("opened")) == []
    assert run_command(["validate", str(tmp_path / "translated.yaml")]) == 0
    assert "known results of translated-known.csv: 9 results\n" in capsys.readouterr().out
    rows = known_results(tmp_path)
    assert len(rows) == 9
    assert set(rows[0]) == {*sweep.search, "mean_accuracy"}
    assert [row["net.activation"] for row in rows[:2]] == ["relu", "null"]
    assert float(rows[0]["mean_accuracy"]) == pytest.approx(0.3), "the best report of the trial"


def test_nested_metrics_and_trials_without_a_value(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "PPO"
    for number, returns in enumerate([[10, 50.5], [20], [], [float("inf")]]):
        results = [{"env_runners": {"episode_return_mean": one}, "timers": {"a": 1.0}} for one in returns]
        trial(folder, number, {"lambda": 0.9 + 0.01 * number, "num_sgd_iter": 10 * (number + 1)}, results)
    with (next(folder.glob("*_1_*")) / "result.json").open("a") as file:
        file.write('{"env_runners": {"episode_retu')  # the trial was killed
    metric = "env_runners/episode_return_mean"
    sweep, _, notes = translated(tmp_path, capsys, str(folder), "--maximize", metric)
    assert sweep.search["lambda"].document() == {"uniform": [0.9, 0.93]}
    assert sweep.search["num_sgd_iter"].document() == {"int": [10, 40]}
    assert f"2 of 4 trials: have no finite {metric}" in notes[0]
    rows = known_results(tmp_path)
    assert [float(row[metric]) for row in rows] == [50.5, 20]


def test_the_metric_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = digits(tmp_path / "results")
    assert run_command(["import", str(folder), "--minimize", "val_loss"]) == 2
    assert "has no result with val_loss (got mean_accuracy)" in capsys.readouterr().err
    assert run_command(["import", str(folder), "--minimize", "a", "--maximize", "b"]) == 2
    assert "--minimize must be left out if --maximize is given" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content", "must"),
    [
        ("params.json", "[1]", "must be a JSON mapping"),
        ("params.json", '{"a": ', "must be JSON"),
        ("params.json", "[" * 100_000, "must be JSON"),
        (
            "params.json",
            f'{{"a": "{"x" * 300_000}"}}',
            "must be a readable file (got more than 256,000 bytes)",
        ),
        ("result.json", "3\n", "must have a JSON mapping on each line"),
        ("result.json", "{\n", "must be JSON"),
    ],
)
def test_a_wrong_file_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: str, must: str
) -> None:
    place = trial(tmp_path / "results", 0, {"lr": 1}, [{"loss": 1.0}])
    (place / name).write_text(content)
    assert run_command(["import", str(tmp_path / "results")]) == 2
    assert must in capsys.readouterr().err


def test_a_folder_without_trials_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["import", str(tmp_path)]) == 2
    assert "must have folders of trials" in capsys.readouterr().err
    trial(tmp_path, 0, {"lr": 1}, [{"loss": 1.0}])
    assert run_command(["import", str(tmp_path)]) == 2
    assert "must have something to search" in capsys.readouterr().err


def test_numbers_that_a_file_cannot_hold_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(3):
        trial(
            tmp_path / "results", number, {"lr": 0.1 * (number + 1), "big": 10**400 + number}, [{"loss": 1.0}]
        )
    sweep, _, notes = translated(tmp_path, capsys, str(tmp_path / "results"))
    assert set(sweep.search) == {"lr"}
    assert "config big: must be a finite number of 64 bits" in notes[0]


@pytest.mark.ray
@pytest.mark.slow
def test_what_ray_tune_writes_is_read(
    temporary: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A real run of the installed Ray Tune."""
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    subprocess.run(
        [sys.executable, "-m", "tests.programs.ray_results", str(tmp_path)],
        env={**environment, "HOME": str(temporary), "RAY_TMPDIR": str(temporary)},
        check=True,
        capture_output=True,
    )
    sweep, _, notes = translated(tmp_path, capsys, str(tmp_path / "results"), "--minimize", "loss")
    assert set(sweep.search) == {"lr", "momentum"}
    assert notes == []
    assert len(known_results(tmp_path)) == 4
