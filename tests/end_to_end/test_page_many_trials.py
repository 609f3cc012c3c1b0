"""The leaderboard of 10,000 trials: it appears, is sorted, filtered and scrolled without a wait."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Any

import pytest
from selenium import webdriver

from orchestrator.ledger.rows import ATTEMPTS, REPORTS, TRIALS
from orchestrator.ledger.sweeps.records import TrialRecord
from orchestrator.ledger.transaction import Transaction
from tests import sweeps
from tests.end_to_end import browser
from tests.end_to_end.page import first_trial, open_sweep, shown, sign_in
from tests.orchestrator.web import server
from tests.orchestrator.web.server import Client

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow, pytest.mark.usefixtures("silent")]

TRIALS_ON_THE_PAGE, ROWS, MORE = 10_000, 25, (100, 400, 1_000)
STATES = ("COMPLETE", "PRUNED", "PRUNED", "FAILED")
TRIES = 5

PAINTED = """
const [paint] = performance.getEntriesByName("first-contentful-paint");
const all = performance.getEntriesByType("resource");
const tables = all.filter(({name}) => name.includes("/trials?") && name.includes("limit=25"));
return {paint: paint.startTime / 1e3, bytes: Math.max(...tables.map((entry) => entry.transferSize))};
"""

CLICK = """
const [button, done] = arguments;
const began = performance.now();
new MutationObserver((_, observer) => {
  observer.disconnect();
  requestAnimationFrame(() => requestAnimationFrame(() => done((performance.now() - began) / 1e3)));
}).observe(document.getElementById("trials"), {childList: true, subtree: true, characterData: true});
document.querySelector(button).click();
"""

SCROLL = """
const done = arguments[0];
const frames = [];
let last = performance.now();
const step = (now) => {
  frames.push((now - last) / 1e3);
  last = now;
  scrollBy(0, 60);
  if (frames.length < 60) requestAnimationFrame(step);
  else done(frames.slice(1));
};
requestAnimationFrame(step);
"""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with server.served(tmp_path_factory.mktemp("page") / "mlruns") as served:
        few = len(sweeps.trials())
        add(served, [sweeps.trial(number, STATES[number % 4]) for number in range(few, TRIALS_ON_THE_PAGE)])
        yield served


def add(client: Client, records: list[TrialRecord]) -> None:
    """Add trials with their curves to the sweep, in one commit."""

    def write(tx: Transaction) -> None:
        tx.sweep_id = sweeps.SWEEP_ID
        tx.insert(TRIALS, *records)
        tx.insert(ATTEMPTS, *sweeps.attempts(records))
        tx.insert(REPORTS, *(report for record in records for report in sweeps.reports(record)))

    with client.workspace.ledger() as ledger:
        ledger.write(write, sweeps.writer_of(ledger).token)


def test_the_table_of_ten_thousand_trials_stays_usable(chrome: webdriver.Chrome, client: Client) -> None:
    """In seconds at the median, which the load of other programs moves less than the largest."""
    sign_in(chrome, client, "vera")
    loads = [load(chrome, client) for _ in range(TRIES)]
    assert shown(chrome, "page") == f"{ROWS} of {TRIALS_ON_THE_PAGE}"
    best = max(
        (number for number in range(8, TRIALS_ON_THE_PAGE) if STATES[number % 4] == "COMPLETE"),
        key=lambda number: sweeps.accuracy(number, sweeps.STEPS),
    )
    assert first_trial(chrome) == str(best), "the best first"
    sorts = [click(chrome, f"[data-sort='{by}']") for by in ("step", "value", "value", "state", "rank")]
    chips = [click(chrome, f"[data-chip={chip}]") for chip in ("failed", "pruned", "complete")]
    assert shown(chrome, "page") == f"{ROWS} of {TRIALS_ON_THE_PAGE // 4 + 3}"
    chips += [click(chrome, f"[data-chip={chip}]") for chip in ("failed", "all")]
    more = [click(chrome, "#more") for _ in MORE]
    assert shown(chrome, "page") == f"{MORE[-1]} of {TRIALS_ON_THE_PAGE}"
    assert "A filter narrows them" in shown(chrome, "narrow")
    frames = chrome.execute_async_script(SCROLL)

    assert max(entry["bytes"] for entry in loads) < 20_000, "the page reads few rows at first"
    measured = {
        "first paint": (median(entry["paint"] for entry in loads), 1.0),
        "sort": (median(sorts), 1.0),
        "filter": (median(chips), 1.0),
        "more": (median(more), 2.0),
        "frame of a scroll": (median(frames), 0.05),
    }
    assert {what: found for what, (found, most) in measured.items() if found >= most} == {}, measured


def load(chrome: webdriver.Chrome, client: Client) -> Any:
    """Open the page of the sweep; return the seconds until its first paint, and the bytes of its table."""
    open_sweep(chrome, client.address)
    browser.until("the trials", lambda: f"of {TRIALS_ON_THE_PAGE}" in shown(chrome, "page"))
    return chrome.execute_script(PAINTED)


def click(chrome: webdriver.Chrome, button: str) -> float:
    """Click a button of the table; return the seconds until the table has changed and is painted."""
    return float(chrome.execute_async_script(CLICK, button))
