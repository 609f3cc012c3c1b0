"""The reference page has a valid example and describes the complete format."""

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
    """The file on the page can be loaded."""
    example = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[0]
    sweep = load(written(tmp_path, example), profile=profile, gpus=0)
    assert sweep.published_params() is not None


def test_nothing_is_undocumented() -> None:
    """The page names every section, field, distribution, sampler, scheduler and option."""
    names = {"profiles", *KINDS, *SAMPLERS, *SCHEDULERS}
    for section, field in SpaceFile.model_fields.items():
        inner = getattr(field.annotation, "model_fields", {})
        names |= {section, *inner}
    for registry in (SAMPLERS, SCHEDULERS):
        for name in registry:
            names |= set(registry.settings(name).options)
    missing = {name for name in names if not re.search(rf"(?<![a-z_]){name}(?![a-z_])", PAGE)}
    assert missing == set()
