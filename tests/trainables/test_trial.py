"""Settings of a trial: written and read as documents, split into static and free ones."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from typing import Any

from tests.trainables.toy import toy_trial
from trainables.layers import LAYERS
from trainables.trial import TrialSettings

RANGES = {"gamma_init": (0.5, 0.9)}


def test_documents_are_read_back() -> None:
    """Through JSON too, where a range becomes a list."""
    trial = toy_trial(model={"ranges": RANGES}, remat=True)
    assert TrialSettings.from_document(asdict(trial)) == trial
    assert TrialSettings.from_document(json.loads(json.dumps(asdict(trial)))) == trial


def test_documents_without_newer_settings_are_read() -> None:
    """Checkpoints of earlier versions lack settings that those versions did not have."""
    trial = toy_trial()
    document: dict[str, Any] = asdict(trial)
    for name in ("pooling", "mixing", "short_conv", "gate", "norm", "norm_position", "encoder"):
        del document["model"][name]
    newer = ("optimizer", "clip", "label_smoothing", "schedule", "carry_state", "warmup_epochs", "groups")
    for name in newer:
        del document["training"][name]
    assert TrialSettings.from_document(document) == trial


def test_a_complete_network_has_the_defaults_of_its_layer() -> None:
    """What is given stays; equal networks, written out or not, share a program."""
    trial = toy_trial(model={"ranges": RANGES})
    complete = trial.model.complete()
    declared = LAYERS.settings("rotrnn").options
    assert complete.options == {**{name: option.default for name, option in declared.items()}, "heads": 2}
    assert complete.ranges == {**RANGES, "theta_init": (0.0, 2 * math.pi)}
    assert complete.complete() == complete
    assert replace(trial, model=complete).static() == trial.static()


_CHOICES: tuple[dict[str, Any], ...] = (
    {"pooling": "last"},
    {"mixing": "gelu"},
    {"short_conv": 4},
    {"gate": "silu"},
    {"norm": "layer"},
    {"norm_position": "after"},
    {"encoder": "none"},
)

_RECIPES: tuple[dict[str, Any], ...] = (
    {"remat": True},
    {"reproducible": "bits"},
    {"optimizer": "adamax"},
    {"schedule": "constant"},
    {"clip": 1.0},
    {"label_smoothing": 0.1},
    {"warmup_epochs": 1.0},
    {"groups": "standard"},
    {"carry_state": True},
)


def test_free_hyperparameters_share_a_program() -> None:
    """Rates, dropout, ranges, seed, interval and evaluated examples are free; the rest is static."""
    trial = toy_trial(model={"ranges": RANGES})
    other = toy_trial(1, model={"ranges": {"gamma_init": (0.1, 0.2)}, "dropout": 0.5}, warmup=0.3, steps=7)
    assert trial.static() == other.static()
    assert trial.static() == replace(toy_trial(interval=3), evaluate_examples=5, model=trial.model).static()
    assert trial.free().keys() == other.free().keys()
    assert toy_trial(clip=1.0).static() == toy_trial(clip=2.0).static()
    assert toy_trial(clip=2.0).free() == {**trial.free(), "clip": 2.0}
    assert toy_trial(label_smoothing=0.1).static() == toy_trial(label_smoothing=0.2).static()
    assert toy_trial(warmup_epochs=1.0).static() == toy_trial(warmup_epochs=2.0).static()
    assert all(isinstance(value, float) for value in trial.free().values())
    for different in (
        replace(trial, model=replace(trial.model, options={"heads": 4})),
        *(replace(trial, model=replace(trial.model, **choice)) for choice in _CHOICES),
        *(replace(trial, training=replace(trial.training, **choice)) for choice in _RECIPES),
    ):
        assert different.static() != trial.static()
