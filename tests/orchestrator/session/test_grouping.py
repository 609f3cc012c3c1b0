"""Trials of one static choice are launched together."""

from __future__ import annotations

import pytest

from orchestrator.session.grouping import pick


@pytest.mark.parametrize(
    ("proposed", "running", "place"),
    [
        (["narrow"], [], 0),
        (["narrow", "wide", "wide"], [], 1),
        (["narrow", "wide", "wide"], ["narrow", "wide", "narrow"], 0),
        (["narrow", "wide"], ["deep", "deep", "wide"], 1),
        (["narrow", "wide"], ["deep"], 0),
    ],
)
def test_pick(proposed: list[str], running: list[str], place: int) -> None:
    assert pick(proposed, running) == place
