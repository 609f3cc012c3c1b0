"""A real headless Chromium, where there is one, that leaves nothing behind."""

from __future__ import annotations

import os
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
document.querySelectorAll('div,span').forEach(each => {
  if (each.children.length === 0 && each.textContent.includes('file:///')) each.style.visibility = 'hidden';
});
"""

_Found = TypeVar("_Found")


def require() -> tuple[str, str]:
    """Return the paths of Chromium and its driver, or skip the test."""
    found = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if not all(found):
        pytest.skip("needs Debian's packages chromium and chromium-driver")
    return str(found[0]), str(found[1])


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


def until(what: str, condition: Callable[[], _Found]) -> _Found:
    """Wait for a condition to be true and return what it found."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            found = condition()
        except (StaleElementReferenceException, WebDriverException):
            found = None  # type: ignore[assignment]
        if found:
            return found
        assert time.monotonic() < deadline, f"never seen: {what}"
        time.sleep(0.2)


def errors(chrome: webdriver.Chrome, *, allowed: tuple[str, ...] = ()) -> list[str]:
    """Return the errors on the browser's console, but for those of known origin."""
    entries = chrome.get_log("browser")
    severe = [entry["message"] for entry in entries if entry["level"] == "SEVERE"]
    return [message for message in severe if not any(part in message for part in allowed)]


def picture(chrome: webdriver.Chrome, name: str) -> None:
    """Keep a small screenshot in the folder that SWEEP_SCREENSHOTS names, if it names one."""
    folder = os.environ.get("SWEEP_SCREENSHOTS")
    if folder is None:
        return
    chrome.execute_script(_HIDE_PATHS)
    file = Path(folder) / f"{name}.png"
    file.parent.mkdir(parents=True, exist_ok=True)
    chrome.save_screenshot(str(file))
    Image.open(file).convert("RGB").quantize(128).save(file, optimize=True)
