"""The idle timeout of warm processes."""

from __future__ import annotations

import pytest

from orchestrator.errors import BadInput
from orchestrator.machines.idle_timeout import WARM, warm_seconds


def test_the_time_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(WARM, raising=False)
    assert warm_seconds(0.0) == 0.0
    monkeypatch.setenv(WARM, "1.5")
    assert warm_seconds(0.0) == 1.5
    monkeypatch.setenv(WARM, "-1")
    with pytest.raises(BadInput, match="SWEEP_WARM must be a number of seconds, at least 0"):
        warm_seconds(300.0)
