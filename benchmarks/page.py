"""How fast the page of a sweep with many trials appears in Chromium, and what its updates cost.

    python -m benchmarks.page --trials 1000 --running 8 --seconds 60

A service runs in a process of its own. Every second each running trial reports once more. The processor time
of updates is that of the page's tasks, as Chromium counts them, and that of all processes of the browser.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from benchmarks.http_load import quantile, service
from orchestrator.api import user_admin
from orchestrator.ledger.ledger import Ledger
from orchestrator.storage.paths import Paths
from tests import sweeps
from tests.end_to_end import browser

LOADS = 5


@contextmanager
def reporting(ledger: Ledger, first: int, running: int) -> Iterator[None]:
    """Let trials report once a second for the length of a `with` block."""
    writer, over = sweeps.writer_of(ledger), threading.Event()
    attempts = []
    for number in range(first, first + running):
        trial = sweeps.trial(
            number, "RUNNING", value=None, best_step=None, step=0, attempts=0, finished_at=None
        )
        writer.add_trial(replace(trial, total_steps=1_000))
        attempts.append(writer.start_attempt(trial.key))

    def write() -> None:
        step = 0
        while not over.wait(1.0):
            step += 1
            for attempt in attempts:
                writer.record_report(attempt.id, step, {"val/accuracy": 0.5 + step / 2_000}, at=time.time())

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def load(chrome: webdriver.Chrome, address: str) -> tuple[float, float]:
    """Load the page of the sweep; return the seconds until its first paint, and until its table is filled."""
    chrome.get(address)
    browser.until("the trials", lambda: "of " in chrome.find_element(By.ID, "page").text)
    paint, filled = chrome.execute_script(
        "return [performance.getEntriesByName('first-contentful-paint')[0].startTime,"
        " Math.max(...performance.getEntriesByType('resource').filter("
        "entry => entry.name.includes('/trials?')).map(entry => entry.responseEnd))]"
    )
    return paint / 1e3, filled / 1e3


def busy(chrome: webdriver.Chrome) -> tuple[float, float]:
    """Return the processor seconds of the page's tasks, and of all processes of the browser."""
    metrics = chrome.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    tasks = next(entry["value"] for entry in metrics if entry["name"] == "TaskDuration")
    driver = psutil.Process(chrome.service.process.pid)
    times = [process.cpu_times() for process in driver.children(recursive=True)]
    return tasks, sum(time.user + time.system for time in times)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--running", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=60.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        finished = given.trials - given.running
        root = sweeps.filled(
            Path(folder) / "mlruns", [sweeps.trial(number) for number in range(finished)]
        ).root
        _, token = user_admin.add("load", "viewer", root=root)
        ledger = Ledger.open(Paths(root).ledger_url)
        with (
            service(root) as address,
            reporting(ledger, finished, given.running),
            browser.opened(Path(folder) / "profile") as chrome,
        ):
            chrome.get(f"{address}/sign-in")
            chrome.find_element(By.ID, "token").send_keys(token, Keys.ENTER)
            browser.until("the user", lambda: "load" in chrome.find_element(By.ID, "user").text)
            loads = [load(chrome, f"{address}/sweeps/{sweeps.SWEEP_ID}") for _ in range(LOADS)]
            chrome.execute_cdp_cmd("Performance.enable", {})
            time.sleep(5.0)
            tasks, processes = busy(chrome)
            time.sleep(given.seconds)
            later_tasks, later_processes = busy(chrome)
        ledger.close()
    print(f"{given.trials} trials, {given.running} of them report every second")
    for what, seconds in zip(("first paint", "table of trials"), zip(*loads, strict=True), strict=True):
        print(
            f"  {what:16} {quantile(seconds, 0.5):6.2f} s (median of {LOADS}), at most {max(seconds):.2f} s"
        )
    for what, part in (("page", later_tasks - tasks), ("all processes", later_processes - processes)):
        print(f"  updates, {what:14} {100.0 * part / given.seconds:6.1f} % of a core")


if __name__ == "__main__":
    main()
