"""Write the pictures of the documentation.

    python -m docs.pictures                     # the picture of a terminal
    python -m docs.pictures page                # pictures of the page and of a report, in Chromium

The sweeps in them are invented: one that runs and one that is finished, as in the tests of the page. The
picture of MLflow is written by a test: `SWEEP_SCREENSHOTS=docs/screenshots pytest
tests/end_to_end/test_mlflow_ui.py`.
"""

from __future__ import annotations

import io
import os
import re
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from selenium import webdriver

from orchestrator import Progress
from orchestrator.api.local import LocalBackend
from orchestrator.cli.frame import frame
from orchestrator.client.answers import LiveSweep, QueuedSweep, RunningTrial
from orchestrator.client.statuses import DetailedStatus, MlflowRun
from orchestrator.ledger.sweeps.lease import Lease
from tests import sweeps
from tests.end_to_end import browser
from tests.end_to_end import test_page_answers as examples
from tests.end_to_end.page import enter, open_sweep
from tests.end_to_end.page import shown as shown_text
from tests.orchestrator.ledger.examples import create_sweep
from tests.orchestrator.web import server

FOLDER = Path(__file__).parent / "screenshots"
FILE = FOLDER / "terminal.svg"
WIDTH, HEIGHT = 80, 24
SWEEP = "listops-laptop-67dc7144"
RUNNING, FINISHED = "retrieval-laptop-67dc7144", "retrieval-laptop-1f4e90aa"


def shown() -> LiveSweep:
    """The sweep in the picture of the terminal."""
    progress = Progress({"RUNNING": 4, "COMPLETE": 9, "PRUNED": 12}, 32, f"{SWEEP}-17", 0.4973, 190.0)
    status = DetailedStatus(
        id=SWEEP,
        state="RUNNING",
        reason=None,
        task="listops",
        profile="laptop",
        driver=None,
        trials=progress.states,
        waiting_for_mlflow=0,
        created_at=0.0,
        finished_at=None,
        owner="ada",
        priority_class="normal",
        metric="val/accuracy",
        best_value=0.4973,
        best_trial=f"{SWEEP}-17",
        direction="maximize",
        progress=progress,
        failures={},
        text="",
        weight=1.0,
        paused=False,
        submission="STARTED",
        starts=1,
        revision="",
        mlflow=MlflowRun("listops", None, None),
        exit_code=None,
    )
    running = (
        RunningTrial("21", 2_200, 2_400, 0.4911, 31.2, 6.4),
        RunningTrial("22", 1_600, 2_400, 0.4702, 30.8, 26.0),
        RunningTrial("23", 1_000, 2_400, 0.4405, 31.0, 45.2),
        RunningTrial("24", 200, 2_400, 0.2216, None, None),
    )
    best = (0.2013, 0.3125, 0.3125, 0.4018, 0.4407, 0.4407, 0.4805, 0.4973, 0.4973)
    return LiveSweep(
        status, running, best, QueuedSweep(SWEEP, "ada", "normal", "pool", None, 4, 4, 11, None, None)
    )


def terminal() -> None:
    """Write the picture of a terminal that shows a running sweep."""
    console = Console(width=WIDTH, record=True, file=io.StringIO(), force_terminal=True)
    for line in frame(shown(), WIDTH, HEIGHT):
        console.print(line, soft_wrap=True)
    # Without the fonts that rich would load from another site.
    picture = console.export_svg(title="sweep status --watch", theme=MONOKAI)
    FILE.write_text(re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL))


SIZES = {"light": (1440, 900), "phone": (390, 844)}
"""Widths and heights of windows in pixels."""


def page() -> None:
    """Write the pictures of the page, of a sweep that runs and one that is finished, and of a report."""
    os.environ["SWEEP_SCREENSHOTS"] = str(FOLDER)
    with (
        tempfile.TemporaryDirectory() as folder,
        server.served(Path(folder) / "mlruns") as client,
        client.workspace.ledger() as ledger,
        browser.opened(Path(folder) / "profile") as chrome,
    ):
        now = ledger.now()
        ended = examples.sweep(FINISHED, now)
        create_sweep(ledger, replace(ended, document={**ended.document, "budget": {"trials": 14}}))
        with Lease(ledger, FINISHED) as lease:
            trials = [examples.trial(FINISHED, number, now) for number in range(14)]
            examples.fill(lease, trials)
            lease.writer.add_evaluation(sweeps.evaluation(trials[-1]))
            lease.writer.set_sweep_state("COMPLETE")
        create_sweep(ledger, examples.sweep(RUNNING, now))
        with Lease(ledger, RUNNING) as lease:
            running = [examples.trial(RUNNING, number, now) for number in range(16) if number != 15]
            examples.fill(lease, running)
            lease.writer.set_sweep_state("RUNNING")
            size(chrome, "light")
            enter(chrome, client.address, "grace", client.tokens["grace"])
            browser.until("the sweeps", lambda: RUNNING in chrome.page_source)
            browser.picture(chrome, "page-home-light")
            photograph(chrome, client.address, RUNNING, "page-sweep-light")
            photograph(chrome, client.address, FINISHED, "page-finished-light")
            chrome.find_element("css selector", "#parallel-section summary").click()
            browser.until("lines", lambda: chrome.find_elements("css selector", "#parallel polyline"))
            chrome.execute_script("document.getElementById('parallel-section').scrollIntoView()")
            browser.picture(chrome, "page-analysis-light")
            media = [{"name": "prefers-color-scheme", "value": "dark"}]
            chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
            size(chrome, "phone")
            photograph(chrome, client.address, RUNNING, "page-sweep-phone")
            chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
        size(chrome, "light")
        report = Path(folder) / "report.html"
        report.write_bytes(LocalBackend(client.workspace.paths.root).report(FINISHED))
        chrome.get(report.as_uri())
        browser.picture(chrome, "report")
        chrome.execute_script("document.getElementById('learning-curves').scrollIntoView()")
        browser.until(
            "the curves", lambda: chrome.find_elements("css selector", "#learning-curves .main-svg")
        )
        browser.picture(chrome, "report-curves")
        chrome.get(f"{client.address}/start")
        browser.until("the form", lambda: chrome.find_element("id", "submit").is_displayed())
        chrome.find_element("id", "example").click()
        browser.until("the plan", lambda: "at most" in shown_text(chrome, "plan"))
        browser.picture(chrome, "page-start-light")


def size(chrome: webdriver.Chrome, name: str) -> None:
    """Give the window of a browser one of the sizes."""
    width, height = SIZES[name]
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": name == "phone"}
    chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def photograph(chrome: webdriver.Chrome, address: str, sweep_id: str, name: str) -> None:
    """Write a picture of the page of a sweep, with its curves and importances."""
    open_sweep(chrome, address, sweep_id)
    browser.until("a curve", lambda: chrome.find_elements("css selector", "#curves polyline"))
    browser.until("importances", lambda: chrome.find_elements("css selector", "#importances tr"))
    browser.picture(chrome, name)


if __name__ == "__main__":
    page() if sys.argv[1:] else terminal()
