"""Engines that several tests share, because most of a test's time is compilation."""

from __future__ import annotations

import pytest

from tests.trainables.toy import toy_data, toy_trial
from trainables.engine import Engine


@pytest.fixture(scope="package")
def single() -> Engine:
    """Return an engine of one slot, which every test must leave empty."""
    return Engine(toy_trial(), toy_data())


@pytest.fixture(scope="package")
def fused() -> Engine:
    """Return an engine of four slots in one program, which every test must leave empty."""
    return Engine(toy_trial(), toy_data(), slots=4, stacked=True)
