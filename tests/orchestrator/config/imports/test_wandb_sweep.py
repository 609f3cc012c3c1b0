"""Sweep files of W&B become search-space files that `validate` accepts.

Models: the sweep of ashleve/lightning-hydra-template, and the example of W&B's page on sweep configurations.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli.app import run_command
from orchestrator.config.imports.wandb_sweep import wandb_draft
from orchestrator.config.yaml_reader import parse_document
from orchestrator.errors import BadInput
from orchestrator.scripts.script_process import AttemptFolder, command_of
from tests.orchestrator.config.imports.files import translated, words_of

OVERRIDES = """\
program: run.py
project: digits
method: bayes
metric: {name: val/acc, goal: maximize}
parameters:
  model.lr: {distribution: uniform, min: 0.0001, max: 0.1}
  model.width: {values: [32, 64, 128]}
  datamodule.batch_size: {values: [64, 128]}
early_terminate: {type: hyperband, s: 2, eta: 3, max_iter: 27}
command:
  - ${interpreter}
  - ${program}
  - ${args_no_hyphens}
  - logger=csv
"""

PLAIN = """\
program: train.py
method: random
metric: {goal: minimize, name: loss}
parameters:
  batch-size: {distribution: q_log_uniform_values, min: 32, max: 256, q: 8}
  dropout: {values: [0.3, 0.4, 0.5]}
  epochs: {value: 12}
  learning_rate: {distribution: uniform, min: 0, max: 0.1}
  optimizer: {values: [adam, sgd]}
  pretrained: {values: [true, false]}
"""


def drafted(parameters: str, *, rest: str = "program: train.py\nmethod: random") -> tuple[str, list[str]]:
    """Return the text of the draft of parameters, and its notes."""
    text = f"{rest}\nparameters:\n  other: {{values: [1, 2]}}\n  {parameters}\n"
    draft = wandb_draft(parse_document(text, "w.yaml"), "w.yaml")
    return draft.text(), [part.line() for part in draft.untranslated]


def test_a_sweep_of_overrides(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The brackets max_iter / eta^k of W&B are the rungs of ASHA."""
    source = tmp_path / "wandb.yaml"
    source.write_text(OVERRIDES)
    sweep, text, notes = translated(tmp_path, capsys, str(source), script="run.py")
    assert set(sweep.search) == {"model.lr", "model.width", "datamodule.batch_size"}
    assert sweep.search["model.lr"].ends() == (0.0001, 0.1)
    assert sweep.training.steps == 27
    assert (sweep.sampler.name, sweep.scheduler.name) == ("tpe", "asha")
    assert sweep.scheduler.options["reduction"] == 3
    assert sweep.scheduler.options["grace"] * 27 == pytest.approx(3, abs=0.01)
    assert [(one.direction, one.metric) for one in sweep.objectives] == [("maximize", "val/acc")]
    assert words_of(sweep, tmp_path)[1:] == [
        "run.py",
        "model.lr=0.1",
        "model.width=128",
        "datamodule.batch_size=128",
        "logger=csv",
    ]
    assert len(notes) == 1
    assert notes[0].endswith("wandb.yaml:2: project: is a place at W&B (got digits). Leave it out.")
    assert "# Guessed: budget.trials" in text


def test_the_default_command_has_every_parameter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "wandb.yaml"
    source.write_text(PLAIN)
    sweep, _, notes = translated(tmp_path, capsys, str(source))
    assert sweep.search["batch_size"].document() == {"log_int": [32, 256], "step": 8}
    assert sweep.training.steps == 12
    assert sweep.scheduler.name == "none"
    assert words_of(sweep, tmp_path)[1:] == [
        "train.py",
        "--batch-size=256",
        "--dropout=0.5",
        "--epochs=12",
        "--learning_rate=0.1",
        "--optimizer=sgd",
        "--pretrained=True",
    ]
    assert [note for note in notes if "batch-size" in note] == notes
    assert "trial.params['batch_size']" in notes[0]


@pytest.mark.parametrize(
    ("given", "entry"),
    [
        ("min: 1, max: 4", "{int: [1, 4]}"),
        ("min: 1, max: 4.5", "{uniform: [1, 4.5]}"),
        ("distribution: int_uniform, min: 1, max: 4", "{int: [1, 4]}"),
        ("distribution: q_uniform, min: 0, max: 256, q: 32", "{int: [0, 256], step: 32}"),
        ("distribution: q_uniform, min: 0.1, max: 0.9, q: 0.1", "{uniform: [0.1, 0.9], step: 0.1}"),
        ("distribution: log_uniform, min: 0, max: 2", f"{{log_uniform: [1.0, {math.exp(2)!r}]}}"),
        ("distribution: log_uniform_values, min: 1e-5, max: 0.1", "{log_uniform: [1e-05, 0.1]}"),
        ("distribution: inv_log_uniform, min: 0, max: 2", f"{{log_uniform: [{math.exp(-2)!r}, 1.0]}}"),
        ("distribution: inv_log_uniform_values, min: 1, max: 9.5", "{log_uniform: [1, 9.5]}"),
        ("distribution: q_log_uniform, min: 0, max: 3", "{log_int: [1, 20]}"),
        ("distribution: normal, mu: 2, sigma: 0.5", "{normal: [2, 0.5]}"),
        ("distribution: log_normal", "{log_normal: [0, 1]}"),
        ("distribution: categorical, values: [a, null, 1, [2, 3]]", "{choice: [a, null, 1, [2, 3]]}"),
    ],
)
def test_every_distribution(given: str, entry: str) -> None:
    text, notes = drafted(f"x: {{{given}}}")
    assert f"  x: {entry}\n" in text
    assert notes == []


@pytest.mark.parametrize(
    ("given", "entry", "note"),
    [
        ("values: [a, b, a]", "{choice: [a, b]}", "lists a value twice"),
        ("values: [a, b], probabilities: [0.1, 0.9]", "{choice: [a, b]}", "has probabilities"),
        ("distribution: q_normal, q: 2", "{normal: [0, 1]}", "is rounded to multiples of 2"),
        ("distribution: q_log_normal", "{log_normal: [0, 1]}", "is rounded to multiples of 1"),
        (
            "distribution: q_log_uniform_values, min: 0.5, max: 9, q: 0.5",
            "{log_uniform: [0.5, 9]}",
            "rounded",
        ),
        ("distribution: q_log_uniform_values, min: 0.1, max: 9", "{log_int: [1, 9]}", "has no logarithm"),
    ],
)
def test_what_differs_is_noted(given: str, entry: str, note: str) -> None:
    text, notes = drafted(f"x: {{{given}}}")
    assert f"  x: {entry}\n" in text
    assert len(notes) == 1
    assert notes[0].startswith("w.yaml:5: parameters.x: ")
    assert note in notes[0]
    assert f"# Not translated: {notes[0]}\n" in text


@pytest.mark.parametrize(
    ("given", "note"),
    [
        ("{distribution: beta, a: 1}", "has a distribution `beta`, which has no counterpart"),
        ("{min: 3, max: 1}", "low <= high must hold"),
        ("{distribution: log_uniform, min: 0, max: 9000}", "cannot be read: math range error"),
        ("{distribution: uniform, min: 0}", "cannot be read: 'max' is missing"),
        ("{distribution: uniform, min: a, max: b}", "`min` must be a number"),
        ("{distribution: q_uniform, min: 0, max: 1, q: 0}", "`q` must be a positive number"),
        ("{values: 3}", "`values` must be a list"),
        ("{values: []}", "must have at least one value"),
        ("{distribution: constant}", "has no value"),
        ("{}", "has a distribution `unknown`"),
        ("3", "must be a mapping"),
    ],
)
def test_what_cannot_be_searched_is_left_out(given: str, note: str) -> None:
    text, notes = drafted(f"x: {given}")
    assert "  x:" not in text
    assert "x=" not in text
    assert len(notes) == 1
    assert note in notes[0]


def test_nested_parameters_have_dotted_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "wandb.yaml"
    source.write_text(
        "program: train.py\nmethod: random\nparameters:\n"
        "  optimizer:\n    parameters:\n      lr: {values: [0.1, 0.2]}\n"
        "      schedule: {parameters: {warmup: {value: 3}, layers: {min: 1, max: 3}}}\n"
    )
    sweep, _, notes = translated(tmp_path, capsys, str(source))
    assert set(sweep.search) == {"optimizer.lr", "optimizer.schedule.layers"}
    assert words_of(sweep, tmp_path)[2:] == [
        "--optimizer.lr=0.2",
        "--optimizer.schedule.layers=3",
        "--optimizer.schedule.warmup=3",
    ]
    assert ["is one dictionary at W&B" in note for note in notes] == [True, True]


COMMANDS: list[tuple[str, list[str]]] = [
    (
        '["${env}", "${interpreter}", "${program}", -config, base.yaml, "${args}"]',
        ["train.py", "-config", "base.yaml"],
    ),
    (
        '["${env}", "CUDA_VISIBLE_DEVICES=1", python3, -m, a.b, "${args}"]',
        ["CUDA_VISIBLE_DEVICES=1", "python3", "-m", "a.b"],
    ),
    ('["./${program}", "--template={a}", "${args}"]', ["--template={a}"]),
    ("'${env} python train.py ${args}'", ["train.py"]),
]


@pytest.mark.parametrize(("command", "first"), COMMANDS)
def test_words_of_a_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, first: list[str]
) -> None:
    source = tmp_path / "wandb.yaml"
    source.write_text(
        f"program: train.py\nmethod: random\ncommand: {command}\nparameters:\n"
        "  lr: {values: [0.1, 0.2]}\n  seed: {value: 42}\n"
    )
    sweep, _, notes = translated(tmp_path, capsys, str(source))
    assert words_of(sweep, tmp_path)[1:] == [*first, "--lr=0.2", "--seed=42"]
    assert notes == []


def test_all_parameters_are_one_placeholder_where_their_names_are_kept() -> None:
    text, _ = drafted("x: {value: 3}")
    assert 'command: [python, train.py, "{args}"]' in text


def test_flags_are_given_only_if_they_are_true(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "wandb.yaml"
    source.write_text(
        'program: train.py\nmethod: random\ncommand: [python, "${program}", "${args_no_boolean_flags}"]\n'
        "parameters:\n  amp: {values: [false, true]}\n  lr: {values: [0.1, 0.2]}\n"
        "  pretrained: {value: true}\n  frozen: {value: false}\n"
    )
    sweep, text, notes = translated(tmp_path, capsys, str(source))
    assert '"{?amp: --amp}"' in text
    drawn: Any = sweep.settings({"amp": False, "lr": 0.1}, seed=7)
    assert command_of(drawn, AttemptFolder(tmp_path), 0)[2:] == ["--lr=0.1", "--pretrained"]
    assert words_of(sweep, tmp_path)[2:] == ["--amp", "--lr=0.2", "--pretrained"]
    assert notes == []


@pytest.mark.parametrize("macro", ["--config=${args_json_file}", "${args_json}"])
def test_a_json_of_all_parameters_comes_from_the_file_of_the_trial(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], macro: str
) -> None:
    """Only a shell puts the value of a variable in the place of a word."""
    source = tmp_path / "wandb.yaml"
    source.write_text(
        "program: train.py\nmethod: random\n"
        f'command: ["${{interpreter}}", "it is.py", "{macro}", "--x={{}}"]\n'
        "parameters: {lr: {values: [0.1, 0.2]}}\n"
    )
    sweep, _, _ = translated(tmp_path, capsys, str(source), script="it is.py")
    assert sweep.trainable is not None
    assert sweep.trainable.shell
    words = words_of(sweep, tmp_path)
    given = '--config="$SWEEP_PARAMS"' if "file" in macro else '"$(cat "$SWEEP_PARAMS")"'
    assert words[-1] == f"python 'it is.py' {given} '--x={{}}'"


def test_a_variable_in_a_command_is_noted() -> None:
    rest = 'program: train.py\nmethod: random\ncommand: [python, train.py, "--key=${envvar:KEY}", "${args}"]'
    text, notes = drafted("x: {values: [1, 2]}", rest=rest)
    assert "--key=<KEY>" in text
    assert notes == [
        "w.yaml:3: command: is the value of a variable of the environment, which a command has only in a"
        " shell (got ${envvar:KEY}). Replace <KEY>, or write one text with $KEY and `shell: true`."
    ]


@pytest.mark.parametrize(
    ("rest", "expected", "note"),
    [
        ("method: grid", "sampler: grid", None),
        ("method: random\nmetric: {name: a, target: 0.9}", "budget: {trials: 64, target: 0.9}", None),
        ("method: grid\nrun_cap: 3", "budget: {trials: 3}", None),
        ("method: sobol", "sampler: tpe", "must be bayes, random or grid"),
        (
            "method: random\nmetric: {name: a, target: high}",
            "objective: {minimize: a}",
            "metric.target: `target` ",
        ),
        (
            "method: random\nmetric: {name: a, goal: max}",
            "objective: {minimize: a}",
            "must be minimize or maximize",
        ),
        ("method: random\nearly_terminate: {type: envelope}", "scheduler: none", "must be hyperband"),
        ("method: random\nearly_terminate: {type: hyperband, min_iter: 5}", "grace: 0.05", None),
        (
            "method: random\nearly_terminate: {type: hyperband, min_iter: 5, strict: true}",
            "asha",
            "no counterpart",
        ),
        ("method: random\nimports: [a]", "sampler: random", "has no counterpart"),
    ],
)
def test_keys_of_a_sweep(rest: str, expected: str, note: str | None) -> None:
    text, notes = drafted("x: {values: [1, 2]}", rest=f"program: train.py\n{rest}")
    assert expected in text
    assert len(notes) == (note is not None)
    assert note is None or note in notes[0]


def test_a_grid_of_ranges_is_random() -> None:
    text, notes = drafted("x: {min: 0.0, max: 1.0}", rest="program: train.py\nmethod: grid")
    assert "sampler: random" in text
    assert "never ends where a parameter is a range" in notes[0]
    text, _ = drafted("x: {min: 1, max: 5}", rest="program: train.py\nmethod: grid")
    assert "budget: {trials: 10}" in text


def test_a_sweep_without_a_program_trains_a_function() -> None:
    text, _ = drafted("x: {values: [1, 2]}", rest="method: random")
    assert 'function: "train.py:train"' in text


@pytest.mark.parametrize(
    ("text", "must"),
    [
        ("parameters: {x: {value: 3}}", "must have something to search"),
        ("parameters: 3", "must have something to search"),
        ("parameters: &a {x: {values: [1, 2]}}", "must have no anchors"),
        ("parameters: {x: {value: !!python/object:os.system a}}", "must have no YAML tags"),
    ],
)
def test_a_file_that_cannot_be_translated_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, must: str
) -> None:
    source = tmp_path / "wandb.yaml"
    source.write_text(f"{text}\n")
    assert run_command(["import", str(source)]) == 2
    assert must in capsys.readouterr().err


def test_many_parameters_are_read_in_a_moment() -> None:
    entries: dict[str, Any] = {f"p{number}": {"values": [1, 2]} for number in range(101)}
    lines = "\n  ".join(f"{name}: {{values: [1, 2]}}" for name in entries)
    text, notes = drafted(lines)
    assert text.count("choice") == 100
    assert len(notes) == 2
    with pytest.raises(BadInput, match="at most 5,000 keys and values"):
        drafted("\n  ".join(f"p{number}: {{values: [1, 2]}}" for number in range(2_000)))
