"""The time that a report of 1,000 trials takes to write, and to open in a real browser."""

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


def test_a_report_of_a_thousand_trials_is_written_and_opened_in_time(tmp_path: Path) -> None:
    """The report counts as open once every figure on the page is drawn."""
    history = sweeps.history([sweeps.trial(number, STATES[number % 4]) for number in range(1000)])
    began = time.perf_counter()
    file = report.write_history(history, tmp_path).html
    written = time.perf_counter() - began
    with browser.opened(tmp_path / "profile") as chrome:
        chrome.get("about:blank")
        began = time.perf_counter()
        chrome.get(file.as_uri())
        body = chrome.find_element(By.TAG_NAME, "body")
        browser.until("every figure", lambda: body.get_attribute("data-drawn") == "yes")
        drawn = time.perf_counter() - began
        assert not browser.errors(chrome)
    seen = f"written in {written:.1f} s, {file.stat().st_size / 1e6:.1f} MB, drawn in {drawn:.1f} s"
    assert (written < 30, file.stat().st_size < 10_000_000, drawn < 3) == (True, True, True), seen
