"""A number of things in a sentence."""

from __future__ import annotations

import pytest

from orchestrator.errors import counted


@pytest.mark.parametrize(
    ("number", "written"),
    [
        (0, "0 slots"),
        (1, "1 slot"),
        (2, "2 slots"),
        (1000, "1,000 slots"),
        (1.0, "1 slot"),
        (0.5, "0.5 slots"),
    ],
)
def test_what_follows_a_number(number: float, written: str) -> None:
    assert counted(number, "slot") == written


def test_a_plural_of_its_own() -> None:
    assert counted(1, "record waits", "records wait") == "1 record waits"
    assert counted(3, "record waits", "records wait") == "3 records wait"
