"""Paths that others could change are refused; the cost of a sweep is estimated from earlier trials."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.cli.app import run_command
from orchestrator.config import load
from orchestrator.driver import preflight
from orchestrator.errors import BadInput
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.sweeps.records import CheckpointRecord, SweepRecord
from orchestrator.storage.paths import Paths
from tests.orchestrator.cli.test_inputs import SPACE
from tests.orchestrator.config.files import edited, loaded
from tests.orchestrator.ledger.examples import create_sweep, trial_record, writer
from trainables.data.task import Signature

SWEEP = "copy-0123abcd"


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    paths = Paths(tmp_path / "mlruns")
    paths.create()
    paths.trial_checkpoints(SWEEP, f"{SWEEP}-0").mkdir(parents=True)
    paths.token.touch(0o600)
    return paths


def test_an_ordinary_root_is_accepted(paths: Paths, tmp_path: Path) -> None:
    """A root that does not exist yet and a link to a larger disk are accepted too."""
    preflight.check_paths(paths, SWEEP)
    preflight.check_paths(Paths(tmp_path / "nowhere"), SWEEP)
    (tmp_path / "link").symlink_to(paths.root)
    preflight.check_paths(Paths(tmp_path / "link"), SWEEP)


def _replace_by_link(path: Path) -> None:
    if path.exists():
        path.rmdir()
    path.symlink_to("/")


HARM: dict[str, Callable[[Paths], None]] = {
    "must be a folder below the root (got a symbolic link to /)": lambda paths: _replace_by_link(
        paths.artifacts
    ),
    f"{SWEEP}-0 must be a folder below": lambda paths: _replace_by_link(
        paths.trial_checkpoints(SWEEP, f"{SWEEP}-0")
    ),
    "must not be writable by other users (got mode 777)": lambda paths: paths.root.chmod(0o777),
    "must be a file readable by its owner alone (got mode 644)": lambda paths: paths.token.chmod(0o644),
}


@pytest.mark.parametrize("message", HARM)
def test_a_path_that_others_could_change_is_refused(paths: Paths, message: str) -> None:
    HARM[message](paths)
    with pytest.raises(BadInput) as refusal:
        preflight.check_paths(paths, SWEEP)
    assert message in str(refusal.value)


def test_another_users_root_is_refused(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root changes the owner of the folder; any other user pretends to have another id."""
    if os.geteuid() == 0:
        os.chown(paths.root, 12345, 12345)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(BadInput, match="the folder of user"):
        preflight.check_paths(paths)


# ------------------------------------------------------------------ cost


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a file whose sweep has run one trial, with 2 s per interval of 10 steps except the first."""
    file = tmp_path / "space.yaml"
    file.write_text(SPACE)
    sweep, paths = load(file, profile=None, gpus=0), Paths(tmp_path / "mlruns")
    paths.create()
    ledger = Ledger.open(paths.ledger_url)
    about = (sweep.id, sweep.name, None, sweep.task, sweep.document(), sweep.digest)
    create_sweep(ledger, SweepRecord(*about, "COMPLETE", None, "", "", {}, 0.0))
    trial = trial_record(sweep_id=sweep.id)
    write = writer(ledger, sweep.id)
    write.add_trial(trial)
    attempt = write.start_attempt(trial.key)
    for step, seconds in ((10, 90.0), (20, 1.5), (30, 1.5)):
        saved = CheckpointRecord(trial.key, step, "last", f"/step-{step}", "ab", 3_000_000, {})
        write.record_report(attempt.id, step, {"seconds/train": seconds, "seconds/evaluate": 0.5}, [saved])
    ledger.close()
    return file


def test_a_network_without_encoder_has_the_width_of_the_task(tmp_path: Path) -> None:
    """Every width that can be drawn is checked before the first trial."""
    text = edited("layer: rotrnn,", "layer: rotrnn, encoder: none,")
    signature = Signature("class", 10, 18, 1, 2048)
    with pytest.raises(BadInput, match=r"space: model.d_model: .* number of tokens, one-hot: 18 \(got 32\)"):
        preflight.check_widths(loaded(tmp_path, text), signature)
    preflight.check_widths(loaded(tmp_path, text, overrides=["model.d_model=18"]), signature)
    both = loaded(tmp_path, text, overrides=["search.d_model={choice: [18, 20]}", "published="])
    with pytest.raises(BadInput, match="got 20"):
        preflight.check_widths(both, signature)
    preflight.check_widths(loaded(tmp_path), signature)
    own = ["model.d_model=18", "model.layers={lru: {d_model: 16}}", "published="]
    layers = ["search.layer={choice: [rotrnn, lru]}", "search.rotrnn.d_model={choice: [18]}"]
    shared = edited("  gamma_init.min: {uniform: [0.1, 0.9]}\n", "", text)
    shared = edited("  gamma_init.max: {choice: [0.99, 0.999]}\n", "", shared)
    lru = loaded(tmp_path, shared, overrides=[*own, *layers])
    with pytest.raises(BadInput, match="got 16"):
        preflight.check_widths(lru, signature)


EPOCHS = SPACE.replace("steps: 40", "steps: 100, warmup_epochs: 1.5")
"""A warm-up of 75 of 100 steps: 400 examples in batches of 8 are 50 steps an epoch."""


def test_a_warmup_in_epochs_ends_before_the_training(tmp_path: Path) -> None:
    """The longest warm-up, at the smallest batch, is checked before the first trial."""

    def check(*overrides: str) -> None:
        preflight.check_warmup(loaded(tmp_path, EPOCHS, overrides=overrides), 400)

    must = r"space: training.warmup_epochs must be below 2, .* 50 steps \(400 examples .* of 8\) .* 100 steps"
    for value in (2, 3):
        with pytest.raises(BadInput, match=rf"{must} \(got {value}\)"):
            check(f"training.warmup_epochs={value}")
    check()
    check("training.steps=210", "training.warmup_epochs=4")
    check("training.warmup_epochs=null")
    epochs, batches = "search.warmup_epochs={choice: [1, 2]}", "search.batch_size={choice: [8, 16]}"
    with pytest.raises(BadInput, match="got 2"):
        check(epochs, batches)
    check(epochs, "training.batch_size=16")


def test_a_sweep_with_a_longer_warmup_than_training_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "space.yaml").write_text(EPOCHS)
    assert run_command(["space.yaml", "--set", "training.warmup_epochs=3", "--here"]) == 2
    assert "training.warmup_epochs must be below 2" in capsys.readouterr().err


PROGRAM = """
trainable: {program: "model.py:Net"}
search: {learning_rate: {log_uniform: [1e-4, 1e-1]}}
training: {steps: 100, interval: 10}
objective: {minimize: val/loss}
budget: {trials: 4}
"""


def validated(file: Path, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    """Return what `validate` prints."""
    words = ["validate", str(file), "--root", str(file.parent / "mlruns"), *options]
    assert run_command(words) == 0
    return capsys.readouterr().out


@pytest.mark.slow
def test_the_cost_is_that_of_the_same_program(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    set_to = ("training.steps=600", "resources.concurrent=1", "budget.hours=1")
    printed = validated(file, capsys, *(word for setting in set_to for word in ("--set", setting)))
    assert "time: 120 s a trial, at most 8 min for 4 of them, 1 at once" in printed
    assert "memory: 3.0 MB a trial" in printed
    assert "warning" not in printed


@pytest.mark.slow
def test_a_sampler_that_cannot_use_stopped_trials_gives_a_warning(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    warning = "warning: nsgaii selects parents only among complete trials"
    stopping = ("--set", "scheduler=asha", "--set", "sampler=nsgaii")
    assert warning in validated(file, capsys, *stopping)
    assert "warning" not in validated(file, capsys, *stopping[:2], "--set", "sampler=tpe")
    assert "warning" not in validated(file, capsys, "--set", "scheduler=none", *stopping[2:])


@pytest.mark.slow
def test_a_budget_that_ends_before_the_first_report_gives_a_warning(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = validated(file, capsys, "--set", "budget.hours=0.0005")
    assert "warning: budget.hours ends before the first report, which takes 2 s" in printed


@pytest.mark.slow
def test_the_cost_of_another_program_is_unknown(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "time and memory: unknown" in validated(file, capsys, "--set", "model.d_state=32")
    assert '"seconds": null' in validated(file, capsys, "--set", "training.batch_size=4", "--json")


@pytest.mark.parametrize(("method", "registers"), [("predict", True), ("answer", False)])
def test_a_program_without_a_predictor_is_told_apart(
    method: str, registers: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = f"class Net(Linen):\n    free = ('learning_rate',)\n    def {method}(self, state, batch): ...\n"
    (tmp_path / "model.py").write_text(source)
    file = tmp_path / "digits.yaml"
    file.write_text(PROGRAM)
    printed = validated(file, capsys)
    line = "registered model: none, because class Net does not define `predict`"
    assert (line not in printed) is registers
