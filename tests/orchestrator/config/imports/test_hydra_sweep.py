"""Configurations of Hydra become search-space files that `validate` accepts.

Models: the example of hydra-optuna-sweeper, mnist_optuna.yaml of ashleve/lightning-hydra-template, and the
sweeps of MEDS-tab.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cli.app import run_command
from orchestrator.config.imports.hydra_sweep import HydraSweep, SweepGrammarError, hydra_draft, parsed_sweep
from orchestrator.config.yaml_reader import parse_document
from tests.orchestrator.config.imports.files import translated, words_of

EXAMPLE = """\
defaults:
  - override hydra/sweeper: optuna
  - override hydra/sweeper/sampler: tpe
hydra:
  sweeper:
    sampler: {seed: 123}
    direction: minimize
    study_name: ball
    storage: null
    n_trials: 20
    n_jobs: 2
    params:
      x: range(-5.5, 5.5, step=0.5)
      y: choice(-5, 0, 5)
x: 1
y: 1
"""

TEMPLATE = """\
# @package _global_
defaults:
  - override /hydra/sweeper: optuna
optimized_metric: "val/acc_best"
hydra:
  mode: "MULTIRUN"
  sweeper:
    _target_: hydra_plugins.hydra_optuna_sweeper.optuna_sweeper.OptunaSweeper
    storage: null
    study_name: null
    n_jobs: 1
    direction: maximize
    n_trials: 20
    sampler:
      _target_: optuna.samplers.TPESampler
      seed: 1234
      n_startup_trials: 10
    params:
      model.optimizer.lr: interval(0.0001, 0.1)
      data.batch_size: choice(32, 64, 128, 256)
      model.net.width: choice(64, 128, 256)
"""


def drafted(text: str, *overrides: str) -> tuple[str, list[str]]:
    """Return the text of the draft of a configuration, and its notes."""
    draft = hydra_draft(parse_document(text, "config.yaml"), overrides, "config.yaml")
    return draft.text(), [part.line() for part in draft.untranslated]


def of_params(*lines: str, sweeper: str = "optuna") -> str:
    entries = "".join(f"      {line}\n" for line in lines)
    return f"defaults: [override hydra/sweeper: {sweeper}]\nhydra:\n  sweeper:\n    params:\n{entries}"


def test_the_example_of_the_plugin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "config.yaml"
    source.write_text(EXAMPLE)
    sweep, _, notes = translated(tmp_path, capsys, str(source))
    assert sweep.search["x"].document() == {"uniform": [-5.5, 5.5], "step": 0.5}
    assert sweep.search["y"].choices == (-5, 0, 5)
    assert (sweep.sampler.name, sweep.sampler.options["seed"]) == ("tpe", 123)
    assert (sweep.budget.trials, sweep.resources.concurrent) == (20, 2)
    assert words_of(sweep, tmp_path)[1:] == ["train.py", "x=5.5", "y=5"]
    assert len(notes) == 1
    assert "config.yaml:8: hydra.sweeper.study_name: names results of Optuna (got ball)" in notes[0]


def test_a_part_of_a_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file of a group is an option of the command, which must not start another multirun."""
    source = tmp_path / "hparams_search" / "digits.yaml"
    source.parent.mkdir()
    source.write_text(TEMPLATE)
    sweep, text, notes = translated(tmp_path, capsys, str(source))
    assert [(one.direction, one.metric) for one in sweep.objectives] == [("maximize", "val/acc_best")]
    assert words_of(sweep, tmp_path)[1:] == [
        "train.py",
        "hparams_search=digits",
        "hydra.mode=RUN",
        "model.optimizer.lr=0.1",
        "data.batch_size=256",
        "model.net.width=256",
    ]
    assert (sweep.training.steps, sweep.scheduler.name) == (1, "none")
    assert notes == []
    assert "# Guessed: training.steps" in text


def test_overrides_of_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They come before those of the file, need no sweep in it, and keep their prefixes."""
    source = tmp_path / "train.yaml"
    source.write_text("defaults: [_self_]\nlr: 0.1\n")
    overrides = [
        "lr=tag(log, interval(1e-5, 1e-2))",
        "+model.depth=range(1, 4)",
        "db=mysql,postgresql",
        "model/optimizer=adam,sgd",
        "seed=3",
        "~trainer.logger",
    ]
    sweep, _, notes = translated(tmp_path, capsys, str(source), *overrides)
    assert sweep.search["lr"].document() == {"log_uniform": [1e-5, 1e-2]}
    assert sweep.search["model.depth"].document() == {"int": [1, 3]}, "Hydra's own range leaves its end out"
    assert words_of(sweep, tmp_path)[1:] == [
        "train.py",
        "--config-name=train",
        "~trainer.logger",
        "lr=0.01",
        "+model.depth=3",
        "db=postgresql",
        "model/optimizer=sgd",
        "seed=3",
    ]
    assert ["is named model.optimizer here" in note for note in notes] == [True]


def test_an_override_replaces_a_parameter_of_the_file() -> None:
    text, notes = drafted(EXAMPLE, "x=interval(0, 1)", "y=3")
    assert "  x: {uniform: [0, 1]}\n" in text
    assert "  y:" not in text
    assert '"y=3"' in text
    assert len(notes) == 1


@pytest.mark.parametrize(
    ("sweep", "entry"),
    [
        ("interval(1, 5)", "{uniform: [1, 5]}"),
        ("int(interval(1, 5))", "{int: [1, 5]}"),
        ("tag(log, interval(1, 5))", "{log_uniform: [1, 5]}"),
        ("tag(log, int(interval(1, 5)))", "{log_int: [1, 5]}"),
        ("interval(start=1, end=5)", "{uniform: [1, 5]}"),
        ("range(1, 3)", "{int: [1, 3]}"),
        ("range(start=0, stop=100, step=10)", "{int: [0, 100], step: 10}"),
        ("range(2, 9, 3)", "{int: [2, 8], step: 3}"),
        ("tag(log, range(10, 1000))", "{log_int: [10, 1000]}"),
        ("range(0.5, 5.5, step=1)", "{uniform: [0.5, 5.5], step: 1}"),
        ("choice(true, false)", "{choice: [true, false]}"),
        ("choice('hello', \"world\")", "{choice: [hello, world]}"),
        ("choice(null, 1, 0.5, a/b, [1, 2])", "{choice: [null, 1, 0.5, a/b, [1, 2]]}"),
        ("shuffle(a, b)", "{choice: [a, b]}"),
        ("sort([3, 1])", "{choice: [3, 1]}"),
        ("float(choice(1, 2))", "{choice: [1.0, 2.0]}"),
        ("bool(choice(1, 0))", "{choice: [true, false]}"),
        ("1,2,3", "{choice: [1, 2, 3]}"),
    ],
)
def test_the_grammar(sweep: str, entry: str) -> None:
    text, notes = drafted(
        of_params(f"p: {sweep!r}" if "'" not in sweep else f'p: "{sweep.replace(chr(34), chr(39))}"')
    )
    assert f"  p: {entry}\n" in text
    assert '"p={p}"' in text
    assert notes == []


@pytest.mark.parametrize(
    ("value", "note"),
    [
        ("interval(1)", "must be `interval(start, end)` with numbers"),
        ("interval(a, b)", "must be `interval(start, end)` with numbers"),
        ("interval(5, 1)", "low <= high must hold"),
        ("tag(log, interval(0, 1))", "low > 0 must hold for a logarithm"),
        ("tag(normal, interval(0, 1))", "has the tag `normal`, which has no counterpart"),
        ("choice(1, 2", "is not a valid override of Hydra: syntax error at its end"),
        ("choice(a, 'b, c')", "has a value whose quotes for Hydra"),
        ("str(choice(1, 2))", "has a value whose quotes for Hydra"),
        ("choice(a, {b: 1})", "has a value whose quotes for Hydra"),
        ("choice(${a}, ${b})", "has an interpolation"),
        ("int(choice(a, b))", "cannot be converted"),
        ("tag(log, 3)", "has no sweep in `tag(...)`"),
        ("interval(0, 1e999)", "must be a finite number"),
        ("int(interval(0, 1e999))", "cannot convert float infinity"),
        ("choice(1, choice(2, 3))", "must be a mapping, a list, a number"),
    ],
)
def test_what_cannot_be_searched_is_left_out(value: str, note: str) -> None:
    text, notes = drafted(of_params("other: choice(1, 2)", f'p: "{value}"'))
    assert "p={p}" not in text
    assert len(notes) == 1
    assert notes[0].startswith("config.yaml:6: hydra.sweeper.params.p: ")
    assert note in notes[0]


def test_a_fixed_parameter_is_a_word() -> None:
    text, _ = drafted(of_params("other: choice(1, 2)", "p: 3", "q: ${other}", "r: a"))
    assert '"other={other}", "p=3", "q=${{other}}", "r=a"' in text


def test_hydras_own_sweeper_tries_every_combination() -> None:
    text, _ = drafted(of_params("a: 1,2", "b: range(0, 6, 2)", "c: range(0.0, 1.0, 0.25)", sweeper="basic"))
    assert "  b: {int: [0, 4], step: 2}\n" in text
    assert "  c: {choice: [0.0, 0.25, 0.5, 0.75]}\n" in text
    assert "sampler: grid" in text
    assert "budget: {trials: 24}" in text


def test_the_older_form_of_a_search_space() -> None:
    text, notes = drafted(
        "hydra:\n  sweeper:\n    _target_: hydra_plugins.hydra_optuna_sweeper.optuna_sweeper.OptunaSweeper\n"
        "    direction: [minimize, maximize]\n    custom_search_space: a.b\n"
        "    sampler: {_target_: optuna.samplers.MOTPESampler}\n    search_space:\n"
        "      x: {type: float, low: 0.5, high: 1.5, step: 0.5}\n"
        "      y: {type: int, low: 1, high: 9, log: true}\n"
        "      z: {type: categorical, choices: [a, b]}\n      w: {type: odd}\n"
    )
    assert "  x: {uniform: [0.5, 1.5], step: 0.5}\n  y: {log_int: [1, 9]}\n  z: {choice: [a, b]}\n" in text
    assert "objective: {minimize: value/0, maximize: value/1}" in text
    assert sorted(note.partition(": ")[2].partition(":")[0] for note in notes) == [
        "hydra.sweeper.custom_search_space",
        "hydra.sweeper.sampler",
        "hydra.sweeper.search_space.w",
    ]


def test_options_of_a_sampler_that_are_unknown_are_noted() -> None:
    text = EXAMPLE.replace("{seed: 123}", "{seed: 1, consider_endpoints: true, n_startup_trials: -1}")
    draft, notes = drafted(text)
    assert "sampler: {tpe: {seed: 1}}" in draft
    assert ["is not a known key" in notes[1], "at least" in notes[2], len(notes)] == [True, True, 3]


def test_a_file_without_a_sweep_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "config.yaml"
    source.write_text("lr: 1\n")
    assert run_command(["import", str(source)]) == 2
    assert "must have `parameters`, as a sweep of W&B, or `hydra.sweeper`" in capsys.readouterr().err
    assert run_command(["import", str(source), "lr=3"]) == 2
    assert "must have something to search" in capsys.readouterr().err


@given(st.text(alphabet="()[]{},'\"=: abr1.e-\\$\n", max_size=30) | st.text(max_size=20))
def test_any_text_is_a_value_a_sweep_or_refused(text: str) -> None:
    for given_text in (text, f"choice({text}", f"tag(log, {text}", f"range({text})"):
        try:
            read: Any = parsed_sweep(given_text)
        except SweepGrammarError:
            continue
        assert isinstance(read, HydraSweep | str | int | float | bool | list | dict | None)
