"""A real headless Chromium with an empty profile; tests are skipped where it is not installed."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from PIL import Image
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException, WebDriverException
from selenium.webdriver.chrome.service import Service

_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--window-size=1400,900", "--hide-scrollbars"),
)
PATIENCE_SECONDS = 60.0
_HIDE_PATHS = """
document.querySelectorAll('div,span').forEach(node => {
  if (node.children.length === 0 && node.textContent.includes('file:///')) node.style.visibility = 'hidden';
});
"""

_Result = TypeVar("_Result")


def require() -> tuple[str, str]:
    """Return the paths of Chromium and its driver, or skip the test."""
    paths = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if not all(paths):
        pytest.skip("needs Debian's packages chromium and chromium-driver")
    return str(paths[0]), str(paths[1])


@contextmanager
def opened(profile: Path) -> Iterator[webdriver.Chrome]:
    """Open a browser with a new, empty profile."""
    browser, driver = require()
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for flag in (*_FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    chrome = webdriver.Chrome(options=options, service=Service(driver))
    try:
        yield chrome
    finally:
        chrome.quit()


def until(what: str, condition: Callable[[], _Result]) -> _Result:
    """Wait until a condition returns a true value, and return that value."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            result = condition()
        except (StaleElementReferenceException, WebDriverException):
            result = None
        if result:
            return result
        assert time.monotonic() < deadline, f"did not appear within {PATIENCE_SECONDS:g} s: {what}"
        time.sleep(0.2)


_STATUS = re.compile(r"Failed to load resource: the server responded with a status of (\d{3}) \(")


def errors(
    chrome: webdriver.Chrome, *, allowed: tuple[str, ...] = (), statuses: tuple[int, ...] = ()
) -> list[str]:
    """Return the errors on the browser's console.

    Args:
        chrome: the browser.
        allowed: texts; an error that contains one is left out.
        statuses: of answers; an error that says that an answer had one is left out.
    """
    entries = chrome.get_log("browser")
    severe = [entry["message"] for entry in entries if entry["level"] == "SEVERE"]
    return [message for message in severe if not _is_expected(message, allowed, statuses)]


def _is_expected(message: str, allowed: tuple[str, ...], statuses: tuple[int, ...]) -> bool:
    status = _STATUS.search(message)
    if status is not None and int(status[1]) in statuses:
        return True
    return any(part in message for part in allowed)


def picture(chrome: webdriver.Chrome, name: str) -> None:
    """Save a small screenshot to the folder that SWEEP_SCREENSHOTS names; do nothing if it is not set."""
    folder = os.environ.get("SWEEP_SCREENSHOTS")
    if folder is None:
        return
    chrome.execute_script(_HIDE_PATHS)
    file = Path(folder) / f"{name}.png"
    file.parent.mkdir(parents=True, exist_ok=True)
    chrome.save_screenshot(str(file))
    Image.open(file).convert("RGB").quantize(128).save(file, optimize=True)
