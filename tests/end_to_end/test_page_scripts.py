"""Functions of the page's scripts, in real Chromium: tables that keep the focus, texts that are spoken."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from selenium import webdriver

from orchestrator.report import words
from tests.end_to_end import browser
from tests.end_to_end.page import sign_in
from tests.orchestrator.report.test_words import SETTINGS, values
from tests.orchestrator.web import server
from tests.orchestrator.web.server import Client

pytestmark = pytest.mark.end_to_end


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with server.served(tmp_path_factory.mktemp("page") / "mlruns") as served:
        yield served


def called(chrome: webdriver.Chrome, code: str) -> Any:
    """Run the body of an asynchronous function in the page; return what it returns."""
    script = (
        "const done = arguments[0]; (async () => {"
        + code
        + "})().then(done, (error) => done(String(error)));"
    )
    return chrome.execute_async_script(script)


FILL = """
  const { fill } = await import("/assets/tables.js");
  const body = document.body.appendChild(document.createElement("table")).createTBody();
  const cells = (name) => {
    const anchor = document.createElement("a");
    anchor.href = `/${name}`;
    anchor.textContent = name;
    return [anchor];
  };
  const show = (names) => fill(body, [...names], (name) => name, cells);
"""


def test_the_focus_stays_when_the_first_row_leaves(chrome: webdriver.Chrome, client: Client) -> None:
    sign_in(chrome, client, "vera")
    found = called(
        chrome,
        FILL
        + """
          show("abcd");
          const anchor = body.rows[1].querySelector("a");
          anchor.focus();
          let lost = 0;
          anchor.addEventListener("blur", () => lost++);
          show("bcd");
          const first = [document.activeElement === anchor, lost, body.innerText.replace(/\\s/g, "")];
          show("xbcd");
          return [...first, document.activeElement === anchor, lost, body.innerText.replace(/\\s/g, "")];
        """,
    )
    assert found == [True, 0, "bcd", True, 0, "xbcd"]


@pytest.mark.parametrize(
    ("before", "after", "moved"),
    [("abcd", "bcda", 1), ("abcd", "dabc", 1), ("abcd", "dcba", 3), ("ab", "ab", 0)],
)
def test_only_rows_out_of_place_are_moved(
    chrome: webdriver.Chrome, client: Client, before: str, after: str, moved: int
) -> None:
    sign_in(chrome, client, "vera")
    found = called(
        chrome,
        FILL
        + f"""
          show("{before}");
          const seen = new MutationObserver(() => undefined);
          seen.observe(body, {{ childList: true }});
          show("{after}");
          const added = seen.takeRecords().reduce((sum, record) => sum + record.addedNodes.length, 0);
          return [added, body.innerText.replace(/\\s/g, "")];
        """,
    )
    assert found == [moved, after]


def test_lines_stand_out_by_their_rank_among_all_trials(chrome: webdriver.Chrome, client: Client) -> None:
    sign_in(chrome, client, "vera")
    ranks = called(
        chrome,
        """
          const { rank } = await import("/assets/analysis.js");
          const ranks = (places, count) => places.map((place) => rank(place, count));
          return [ranks([1, 2, 3, 9, 10], 10), ranks([1, 2], 2), rank(1, 1)];
        """,
    )
    assert ranks == [[4, 4, 3, 0, 0], [4, 2], 4]


def test_the_last_text_is_spoken_late_rather_than_never(chrome: webdriver.Chrome, client: Client) -> None:
    sign_in(chrome, client, "vera")
    spoken = called(
        chrome,
        """
          const { announce } = await import("/assets/shown.js?own");
          // What follows waits for nothing, so no other script of the page sets a timer meanwhile.
          const timers = [];
          window.setTimeout = (action, delay) => timers.push({ action, delay });
          const place = document.getElementById("announcement");
          const spoken = [];
          const wait = () => {
            const { action, delay } = timers.shift();
            action();
            spoken.push([delay, place.textContent]);
          };
          announce("progress", "7 of 8");
          wait();
          announce("progress", "8 of 8");
          announce("connection", "lost");
          announce("progress", "COMPLETE");
          wait();
          announce("progress", "COMPLETE");
          place.textContent = "";
          wait();
          announce("progress", "RUNNING");
          wait();
          return spoken;
        """,
    )
    assert spoken == [[0, "7 of 8"], [10_000, "COMPLETE. lost"], [10_000, ""], [0, "RUNNING"]]


def test_errors_of_other_statuses_and_ports_are_not_hidden(chrome: webdriver.Chrome, client: Client) -> None:
    sign_in(chrome, client, "vera")
    browser.errors(chrome)
    called(
        chrome,
        """
          console.error("http://127.0.0.1:40155/ has failed");
          await (await fetch("/api/v1/sweeps/nothing")).text();
        """,
    )
    found = browser.errors(chrome, statuses=(401,))
    assert len(found) == 2, found
    assert "40155" in found[0]
    assert "status of 404" in found[1]


def test_the_page_writes_numbers_as_the_report_does(chrome: webdriver.Chrome, client: Client) -> None:
    sign_in(chrome, client, "vera")
    measured, chosen = values(), [value for value, _ in SETTINGS]
    seconds = [
        0,
        0.5,
        1.5,
        89.4,
        89.99,
        90,
        105,
        135,
        244,
        5399.9,
        5400,
        8100,
        4e6,
        *(abs(value) for value in measured if abs(value) < 1e6),
    ]
    found = called(
        chrome,
        f"""
          const {{ brief, duration, number, setting }} = await import("/assets/shown.js");
          const measured = {json.dumps(measured)}.map((value) => [number(value), brief(value)]);
          const settings = {json.dumps(chosen)}.map((value) => String(setting(value)));
          return [measured, settings, {json.dumps(seconds)}.map((value) => duration(value))];
        """,
    )
    assert found == [
        [[words.number(value), words.brief(value)] for value in measured],
        [words.setting(value) for value in chosen],
        [words.duration(value) for value in seconds],
    ]
