"""The reference page has a valid example and describes the complete format."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orchestrator.config import load
from orchestrator.config.sections import SpaceFile
from orchestrator.config.space import KINDS
from orchestrator.config.strategy import SAMPLERS, SCHEDULERS
from orchestrator.errors import BadInput
from tests.orchestrator.config.files import written

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "search-space.md").read_text(encoding="utf-8")


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


def test_the_errors_are_those_of_the_program(tmp_path: Path) -> None:
    """The page shows how two mistakes in a shipped file are reported."""
    text = (ROOT / "search_spaces" / "retrieval.yaml").read_text(encoding="utf-8")
    text = text.replace("batch_size: 32", "batchsize: 32").replace("[0.1, 0.9]", "[0.1, 0.995]")
    with pytest.raises(BadInput) as refused:
        load(written(tmp_path, text), profile="full", gpus=0)
    shown = re.findall(r"^    search_spaces/retrieval.yaml(:.*)$", PAGE, re.MULTILINE)
    assert [re.sub(r"^.*?\.yaml", "", str(mistake)) for mistake in refused.value.all()] == shown
