"""Write the pictures of the documentation.

    python -m docs.pictures                     # the picture of a terminal
    python -m docs.pictures URL TOKEN SWEEP     # pictures of the page, of a sweep that runs in a service

The page is photographed in Chromium. The pictures of MLflow and of a report are written by tests:
`SWEEP_SCREENSHOTS=docs/screenshots pytest tests/end_to_end/test_mlflow_ui.py`.
"""

from __future__ import annotations

import io
import os
import re
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

from orchestrator import Progress
from orchestrator.cli.frame import frame
from orchestrator.client.answers import DetailedStatus, LiveSweep, MlflowRun, QueuedSweep, RunningTrial
from tests.end_to_end import browser
from tests.end_to_end.page import enter, open_sweep
from tests.end_to_end.page import shown as shown_text

FOLDER = Path(__file__).parent / "screenshots"
FILE = FOLDER / "terminal.svg"
WIDTH, HEIGHT = 80, 24
SWEEP = "listops-laptop-67dc7144"


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


def page(address: str, token: str, sweep_id: str) -> None:
    """Write the pictures of the page.

    Args:
        address: URL of a service.
        token: Token of a member.
        sweep_id: Id of a running sweep.
    """
    os.environ["SWEEP_SCREENSHOTS"] = str(FOLDER)
    with tempfile.TemporaryDirectory() as folder, browser.opened(Path(folder) / "profile") as chrome:
        enter(chrome, address, "", token)
        browser.until("the sweeps", lambda: sweep_id in chrome.page_source)
        browser.picture(chrome, "page-home-light")
        open_sweep(chrome, address, sweep_id)
        chrome.set_window_size(1400, 1300)
        browser.until("a curve", lambda: chrome.find_elements("css selector", "#curves polyline.running"))
        browser.until("a time left", lambda: shown_text(chrome, "left").startswith("about"))
        browser.picture(chrome, "page-sweep-light")
        media = [{"name": "prefers-color-scheme", "value": "dark"}]
        chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
        phone = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
        chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
        browser.picture(chrome, "page-sweep-phone")


if __name__ == "__main__":
    page(*sys.argv[1:]) if sys.argv[1:] else terminal()
