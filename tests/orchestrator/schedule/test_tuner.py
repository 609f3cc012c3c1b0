"""The error that Ray Tune raises when the ledger can no longer be written."""

from __future__ import annotations

import traceback
from collections.abc import Callable

import pytest
from ray.tune import TuneError

from orchestrator.errors import NoSpace
from orchestrator.schedule.tuner import refusal_behind


def tune(callback: Callable[[], None]) -> None:
    """Call a callback as Tune's controller does."""
    try:
        callback()
    except Exception:  # noqa: BLE001 - as Tune does, and so is the next line
        raise TuneError(traceback.format_exc())  # noqa: B904


def full() -> None:
    raise NoSpace("ledger", "needs space to write", "a full disk", "Free some.")


def broken() -> None:
    raise KeyError("a mistake in the callback")


def test_a_refusal_in_a_callback_is_raised_as_itself() -> None:
    with pytest.raises(TuneError) as met:
        tune(full)
    assert isinstance(refusal_behind(met.value), NoSpace)


def test_another_error_in_a_callback_is_no_refusal() -> None:
    with pytest.raises(TuneError) as met:
        tune(broken)
    assert refusal_behind(met.value) is None
