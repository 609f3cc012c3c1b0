"""What tests of the page share: signing in, opening a sweep, and a trial that reports."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from orchestrator.ledger.sweeps.records import CheckpointRecord
from tests import sweeps
from tests.end_to_end import browser
from tests.orchestrator.web.server import Client

Report = Callable[[int, float], None]
"""Writes a report of a running trial: its step and its value."""


def sign_in(chrome: webdriver.Chrome, client: Client, user: str, address: str | None = None) -> None:
    """Sign in as a user of a client; the page of all sweeps is then open."""
    enter(chrome, address or client.address, user, client.tokens[user])


def enter(chrome: webdriver.Chrome, address: str, user: str, token: str) -> None:
    """Sign in at a service with a token; the page of all sweeps is then open."""
    chrome.get(f"{address}/sign-in")
    chrome.delete_all_cookies()
    chrome.find_element(By.ID, "token").send_keys(token, Keys.ENTER)
    browser.until("the name of the user", lambda: user in shown(chrome, "user"))


def shown(chrome: webdriver.Chrome, element: str) -> str:
    """Return the text of an element, by its id."""
    return chrome.find_element(By.ID, element).text


def open_sweep(chrome: webdriver.Chrome, address: str, sweep_id: str = sweeps.SWEEP_ID) -> None:
    """Open the page of a sweep."""
    chrome.get(f"{address}/sweeps/{sweep_id}")
    browser.until("the state of the sweep", lambda: shown(chrome, "state"))


def first_trial(chrome: webdriver.Chrome) -> str:
    """Return the number of the trial in the first row of the leaderboard."""
    return chrome.find_element(By.CSS_SELECTOR, "#trials tr td:nth-child(2)").text


def points(chrome: webdriver.Chrome) -> list[int]:
    """Return the number of points of each running trial's curve."""
    lines = chrome.find_elements(By.CSS_SELECTOR, "#curves polyline.running")
    return [len((line.get_attribute("points") or "").split()) for line in lines]


def views(sweep_id: str = sweeps.SWEEP_ID) -> tuple[str, ...]:
    """Return the paths of all pages that the service serves, with those of a sweep and of a trial of it."""
    return (
        "/sign-in",
        "/",
        "/machines",
        "/people",
        "/start",
        f"/compare?sweeps={sweep_id}",
        f"/sweeps/{sweep_id}",
        f"/sweeps/{sweep_id}/trials/7",
    )


def open_view(chrome: webdriver.Chrome, address: str, path: str) -> None:
    """Open a page with all of its sections, and wait until it shows what it has to show."""
    chrome.get(f"{address}{path}")
    if path == "/sign-in":
        return
    browser.until("the user", lambda: shown(chrome, "user"))
    chrome.execute_script("for (const part of document.querySelectorAll('details')) part.open = true;")
    if path.startswith("/sweeps/"):
        browser.until("its state", lambda: shown(chrome, "state"))
        charts = ["curve"] if "/trials/" in path else ["curves", "parallel", "norms"]
        for name in charts:
            browser.until(name, lambda name=name: chrome.find_elements(By.CSS_SELECTOR, f"#{name} polyline"))


@contextmanager
def running(client: Client, number: int) -> Iterator[Report]:
    """Start a trial of the sweep; it fails at the end of the `with` block, so that the best one stays."""
    start = {"value": None, "best_step": None, "step": 0, "attempts": 0, "finished_at": None}
    record = sweeps.trial(number, "RUNNING", **start)
    with client.workspace.ledger() as ledger:
        writer = sweeps.writer_of(ledger)
        writer.add_trial(record)
        attempt = writer.start_attempt(record.key)
        best = -math.inf

        def report(step: int, value: float) -> None:
            nonlocal best
            metrics = {"val/accuracy": value}
            saved = CheckpointRecord(
                record.key, step, "best", f"{record.key}/{step}", "beef" * 16, 1, metrics
            )
            checkpoints = (saved,) if value > best else ()
            best = max(best, value)
            writer.record_report(attempt.id, step, metrics, checkpoints, at=sweeps.CREATED + step)

        yield report
        writer.end_attempt(attempt.id, "FAILED", "ended", trial_state="FAILED", value=None, best_step=None)
