"""The settings of a trial are stored as a document and read back, also by later versions."""

from __future__ import annotations

import json
from dataclasses import asdict

from tests.trainables.toy import toy_trial
from trainables.trial import TrialSettings


def test_settings_read_back() -> None:
    settings = toy_trial()
    assert TrialSettings.from_document(json.loads(json.dumps(asdict(settings)))) == settings


def test_settings_of_an_earlier_version_read_back() -> None:
    """Two settings have other names in the checkpoints of earlier versions."""
    settings = toy_trial(remat=True)
    stored = asdict(settings)
    stored["training"]["rematerialise"] = stored["training"].pop("remat")
    stored["model"]["options"] = {**stored["model"]["options"], "form": "sequential"}
    read = TrialSettings.from_document(stored)
    assert read.training == settings.training
    assert read.model.options == {**settings.model.options, "algorithm": "sequential"}
