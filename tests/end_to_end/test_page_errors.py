"""What the page shows when an address or a token is wrong: one sentence and a way out."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests import sweeps
from tests.end_to_end import browser
from tests.end_to_end.page import open_sweep, shown, sign_in
from tests.orchestrator.web import server
from tests.orchestrator.web.server import QUEUED, Client

pytestmark = pytest.mark.end_to_end


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with server.served(tmp_path_factory.mktemp("errors") / "mlruns") as served:
        yield served


def links(chrome: webdriver.Chrome) -> list[str]:
    return [link.text for link in chrome.find_elements(By.CSS_SELECTOR, "#similar a")]


def test_an_unknown_sweep_leads_to_similar_ones(chrome: webdriver.Chrome, client: Client) -> None:
    sign_in(chrome, client, "vera")
    chrome.get(f"{client.address}/sweeps/retrieval-laptop-0123abce")
    browser.until("the sweeps", lambda: links(chrome))
    assert "There is no sweep retrieval-laptop-0123abce" in shown(chrome, "content")
    assert links(chrome) == [sweeps.SWEEP_ID, QUEUED, "All sweeps"]
    browser.picture(chrome, "unknown-sweep")
    chrome.get(f"{client.address}/sweeps/{sweeps.SWEEP_ID}/trials/99")
    browser.until("the sweep", lambda: links(chrome) == [sweeps.SWEEP_ID, "All sweeps"])
    assert "has no trial 99" in shown(chrome, "content")


def test_an_unknown_address_is_a_page_for_browsers_only(chrome: webdriver.Chrome, client: Client) -> None:
    for path in ("/nothing", f"/sweeps/{sweeps.SWEEP_ID}/trials/two"):
        chrome.get(f"{client.address}{path}")
        assert chrome.find_element(By.LINK_TEXT, "All sweeps")
        assert "{" not in shown(chrome, "content")
    answer = client.send("GET", "/nothing", headers={"Accept": "text/html"})
    assert (answer.status, answer.headers["content-type"]) == (404, "text/html; charset=utf-8")
    answer = client.send("GET", "/nothing", headers={"Accept": "*/*"})
    assert (answer.status, answer.headers["content-type"]) == (404, "application/problem+json")


def test_a_wrong_token_is_refused_in_words_for_people(chrome: webdriver.Chrome, client: Client) -> None:
    chrome.get(f"{client.address}/sign-in")
    chrome.delete_all_cookies()
    chrome.find_element(By.ID, "token").send_keys("wrong", Keys.ENTER)
    browser.until("the refusal", lambda: "Ask an admin for a new one" in shown(chrome, "problem"))
    assert "Authorization" not in shown(chrome, "problem")


def test_a_missing_log_is_no_error(chrome: webdriver.Chrome, client: Client) -> None:
    sign_in(chrome, client, "vera")
    open_sweep(chrome, client.address)
    chrome.execute_script("document.getElementById('log-section').open = true")
    browser.until("the text", lambda: shown(chrome, "log-problem").startswith("No log"))
    assert chrome.find_element(By.ID, "log-problem").get_attribute("class") == "empty"
