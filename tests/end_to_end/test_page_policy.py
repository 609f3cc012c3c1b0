"""The Content-Security-Policy of the page, as Chromium enforces it: no page needs what it forbids."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from tests import sweeps
from tests.end_to_end import browser
from tests.end_to_end.page import open_view, shown, sign_in, views
from tests.orchestrator.web import server
from tests.orchestrator.web.server import QUEUED, Client

pytestmark = pytest.mark.end_to_end

LISTEN = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => (
  window.violations.push(`${event.effectiveDirective} ${event.blockedURI}`)
));
"""

INLINE = """
const done = arguments[arguments.length - 1];
const added = (name, attributes, text = "") => {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.textContent = text;
  return document.body.appendChild(node);
};
added("script", {}, "window.ran = 'script'");
added("button", {onclick: "window.ran = 'handler'"}).click();
added("style", {}, "body { color: red }");
added("p", {style: "color: red"});
setTimeout("window.ran = 'eval'", 0);
setTimeout(() => {
  const isRed = getComputedStyle(document.body).color === "rgb(255, 0, 0)";
  done([window.ran ?? null, isRed, window.violations.toSorted()]);
}, 300);
"""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with server.served(tmp_path_factory.mktemp("page") / "mlruns") as served:
        yield served


@pytest.fixture
def listening(chrome: webdriver.Chrome) -> Iterator[None]:
    """Collect what the browser refuses, from the first line of every page that is opened."""
    added = chrome.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": LISTEN})
    yield
    chrome.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)


@pytest.mark.usefixtures("listening", "silent")
def test_no_view_violates_the_policy(chrome: webdriver.Chrome, client: Client) -> None:
    sign_in(chrome, client, "ada")
    for path in (*views(), f"/sweeps/{QUEUED}"):
        if path.endswith(QUEUED):
            chrome.get(f"{client.address}{path}")
            browser.until("the button", lambda: chrome.find_element(By.ID, "stop").is_displayed())
            chrome.find_element(By.ID, "stop").click()
            browser.until("the question", lambda: QUEUED in shown(chrome, "confirm-question"))
        else:
            open_view(chrome, client.address, path)
        if path == "/start":
            chrome.find_element(By.ID, "example").click()
            browser.until("the plan", lambda: "at most" in shown(chrome, "plan"))
        assert chrome.execute_script("return window.violations") == [], path
    assert browser.errors(chrome, statuses=(404,)) == [], "the sweep has no log"


@pytest.mark.usefixtures("listening")
def test_inline_code_and_styles_are_refused(chrome: webdriver.Chrome, client: Client) -> None:
    sign_in(chrome, client, "ada")
    ran, is_red, violations = chrome.execute_async_script(INLINE)
    assert ran is None
    assert not is_red
    assert violations == [
        "script-src eval",
        "script-src-attr inline",
        "script-src-elem inline",
        "style-src-attr inline",
        "style-src-elem inline",
    ]
    assert len(browser.errors(chrome)) == 5


FIGURES = """
const figures = [...document.querySelectorAll("[data-figure]")];
const waiting = figures.filter((figure) => !figure.querySelector(".main-svg"));
waiting[0]?.scrollIntoView();  // a figure is drawn when it is scrolled to
return figures.length > 0 && waiting.length === 0;
"""


@pytest.mark.usefixtures("listening")
def test_a_report_runs_its_own_scripts_and_no_other_one(chrome: webdriver.Chrome, client: Client) -> None:
    sign_in(chrome, client, "vera")
    address = f"{client.address}/api/v1/sweeps/{sweeps.SWEEP_ID}/report"
    chrome.get(address)
    browser.until("the figures", lambda: chrome.execute_script(FIGURES))
    assert chrome.execute_script("return window.violations") == []
    assert browser.errors(chrome) == []
    ran, _, violations = chrome.execute_async_script(INLINE)
    assert ran is None
    # Each is told twice: by the policy of the answer, and by that in the head of the page.
    assert violations == sorted(2 * ["script-src eval", "script-src-attr inline", "script-src-elem inline"])
    assert len(browser.errors(chrome)) == len(violations)
