"""docs/tasks.md names every task and every option, with the sizes that are encoded."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.published import SMALL
from trainables.tasks import TASKS

PAGE = (Path(__file__).parents[3] / "docs" / "tasks.md").read_text()


def section(name: str) -> str:
    """Return the section of a task."""
    match = re.search(rf"^## {name}$(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert match, f"docs/tasks.md has no section {name}"
    return match[1]


@pytest.mark.parametrize("name", SMALL)
def test_every_task_has_a_section_with_its_options(name: str) -> None:
    text = section(name)
    if "those of `pathfinder`" in text:
        text += section("pathfinder")
    assert [option for option in TASKS[name].options if f"`{option}`" not in text] == []
    assert f"| `{name}` |" in PAGE
    if TASKS[name].remotes:
        assert "data fetch" in text or "as `smnist`" in text


def test_the_page_describes_no_other_task() -> None:
    assert set(re.findall(r"^## (\w+)$", PAGE, re.MULTILINE)) == set(SMALL)
