"""The report of 1,000 trials, made and opened by a real browser, against the clock."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By

from orchestrator.report import report
from tests import sweeps
from tests.end_to_end import browser

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow]

STATES = ("COMPLETE", "PRUNED", "PRUNED", "FAILED")


def test_a_thousand_trials_are_made_and_opened_in_time(tmp_path: Path) -> None:
    """It is open once every figure on the page has been drawn."""
    history = sweeps.history([sweeps.trial(number, STATES[number % 4]) for number in range(1000)])
    began = time.perf_counter()
    file = report.write_history(history, tmp_path).html
    made = time.perf_counter() - began
    with browser.opened(tmp_path / "profile") as chrome:
        chrome.get("about:blank")
        began = time.perf_counter()
        chrome.get(file.as_uri())
        body = chrome.find_element(By.TAG_NAME, "body")
        browser.until("all pictures", lambda: body.get_attribute("data-drawn") == "yes")
        drawn = time.perf_counter() - began
        assert not browser.errors(chrome)
    seen = f"made in {made:.1f} s, {file.stat().st_size / 1e6:.1f} MB, drawn in {drawn:.1f} s"
    assert (made < 30, file.stat().st_size < 10_000_000, drawn < 3) == (True, True, True), seen
