"""The reference page: its example is valid, and it leaves nothing of the format out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orchestrator.config import load
from orchestrator.config.sections import SpaceFile
from orchestrator.config.space import KINDS
from orchestrator.config.strategy import SAMPLERS, SCHEDULERS
from tests.orchestrator.config.files import written

PAGE = (Path(__file__).parents[3] / "docs" / "search-space.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("profile", ["full", "laptop"])
def test_the_example_is_valid(tmp_path: Path, profile: str) -> None:
    """A reader may copy the page's file."""
    example = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[0]
    sweep = load(written(tmp_path, example), profile=profile, gpus=0)
    assert sweep.published_params() is not None


def test_nothing_is_undocumented() -> None:
    """Every section, field, distribution, sampler, scheduler and option stands on the page."""
    names = {"profiles", *KINDS, *SAMPLERS, *SCHEDULERS}
    for section, field in SpaceFile.model_fields.items():
        inner = getattr(field.annotation, "model_fields", {})
        names |= {section, *inner}
    for registry in (SAMPLERS, SCHEDULERS):
        for name in registry:
            names |= set(registry.settings(name).options)
    missing = {name for name in names if not re.search(rf"(?<![a-z_]){name}(?![a-z_])", PAGE)}
    assert missing == set()
