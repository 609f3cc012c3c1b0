"""The list of sweeps: running ones first, those of the member, reasons of failures, and comparisons."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from orchestrator.ledger.sweeps.lease import Lease
from tests import sweeps
from tests.end_to_end import browser
from tests.end_to_end.page import open_sweep, running, shown, sign_in
from tests.orchestrator.ledger.examples import create_sweep
from tests.orchestrator.web import server
from tests.orchestrator.web.server import QUEUED, Client

pytestmark = [pytest.mark.end_to_end, pytest.mark.usefixtures("silent")]

LONG = "a-very-long-name-of-a-sweep-that-would-push-all-columns-out-of-view-0123abce"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with server.served(tmp_path_factory.mktemp("home") / "mlruns") as served:
        with served.workspace.ledger() as ledger:
            failed = sweeps.sweep_record(
                id=LONG, state="FAILED", reason="3 of 3 trials failed", created_at=sweeps.CREATED + 900.0
            )
            create_sweep(ledger, replace(failed, document={**failed.document, "name": "long"}))
        yield served


def row(chrome: webdriver.Chrome, sweep_id: str) -> str:
    """Return the text of the row of a sweep, or an empty one."""
    rows = chrome.find_elements(By.CSS_SELECTOR, f"#sweeps tr[data-key='{sweep_id}']")
    return rows[0].text if rows else ""


def test_the_list_answers_what_runs_and_what_failed(chrome: webdriver.Chrome, client: Client) -> None:
    sign_in(chrome, client, "vera")
    browser.until("the failed sweep", lambda: "3 of 3 trials failed" in row(chrome, LONG))
    with client.workspace.ledger() as ledger, Lease(ledger, sweeps.SWEEP_ID), running(client, 8) as report:
        report(40, 0.95)
        browser.until(
            "the best values as a line", lambda: chrome.find_elements(By.CSS_SELECTOR, "#sweeps svg.spark")
        )
        browser.until("the best so far", lambda: "trial 8, running" in row(chrome, sweeps.SWEEP_ID))
        first = chrome.find_element(By.CSS_SELECTOR, "#sweeps tr")
        assert first.get_attribute("data-key") == sweeps.SWEEP_ID, "the running one first"
        assert "8 of 9, 2 pruned, 1 failed" in first.text
        assert chrome.title.startswith("● 1 running")
    link = chrome.find_element(By.CSS_SELECTOR, f"#sweeps a[title='{LONG}']")
    assert "…" in link.text
    assert len(link.text) <= 32
    assert QUEUED in shown(chrome, "queue")
    browser.picture(chrome, "home")


def test_a_member_sees_their_own_sweeps_first(chrome: webdriver.Chrome, client: Client) -> None:
    sign_in(chrome, client, "bob")
    browser.until("no sweep of Bob", lambda: shown(chrome, "page") == "none")
    chrome.find_element(By.NAME, "mine").click()
    browser.until("all sweeps", lambda: row(chrome, sweeps.SWEEP_ID))
    assert "mine=off" in chrome.current_url
    chrome.refresh()
    browser.until("all sweeps after a reload", lambda: row(chrome, sweeps.SWEEP_ID))


def test_chosen_sweeps_are_compared(chrome: webdriver.Chrome, client: Client) -> None:
    sign_in(chrome, client, "vera")
    browser.until("the sweeps", lambda: row(chrome, LONG))
    compare = chrome.find_element(By.ID, "compare")
    assert not compare.is_enabled()
    for sweep_id in (LONG, sweeps.SWEEP_ID):
        chrome.find_element(By.CSS_SELECTOR, f"input[data-sweep='{sweep_id}']").click()
    browser.until("the choice", compare.is_enabled)
    compare.click()
    browser.until("the tables", lambda: chrome.find_elements(By.CSS_SELECTOR, "#verdicts table"))
    assert chrome.current_url.endswith(f"/compare?sweeps={LONG},{sweeps.SWEEP_ID}")
    browser.until("the best values", lambda: chrome.find_elements(By.CSS_SELECTOR, "#histories polyline"))
    name, best = shown(chrome, "histories-legend").split(": ")
    assert name == sweeps.SWEEP_ID
    assert float(best.removesuffix(" after 7 trials")) == pytest.approx(sweeps.accuracy(7, 200), abs=1e-4)
    assert LONG in shown(chrome, "histories-without")
    expected = client.get(f"/compare?sweep={LONG}&sweep={sweeps.SWEEP_ID}")["tables"]
    titles = [each.text for each in chrome.find_elements(By.CSS_SELECTOR, "#verdicts h2")]
    assert titles == [table["title"] for table in expected]
    browser.picture(chrome, "compare")
    chrome.find_element(By.CSS_SELECTOR, f"[aria-label='Leave out {LONG}']").send_keys(Keys.ENTER)
    browser.until("one sweep", lambda: chrome.current_url.endswith(f"/compare?sweeps={sweeps.SWEEP_ID}"))


def test_the_list_is_filtered_by_tags_and_favourites(chrome: webdriver.Chrome, client: Client) -> None:
    change = {"add": ["paper"], "favourite": True}
    noted = client.send("PATCH", f"/api/v1/sweeps/{sweeps.SWEEP_ID}/note", "ada", body=change)
    assert noted.status == 200
    sign_in(chrome, client, "vera")
    browser.until("the mark and the tag", lambda: {"★", "paper"} <= {*row(chrome, sweeps.SWEEP_ID).split()})
    assert row(chrome, LONG)
    chrome.find_element(By.LINK_TEXT, "paper").click()
    browser.until("the tagged sweep alone", lambda: shown(chrome, "page") == "1 to 1 of 1")
    assert row(chrome, sweeps.SWEEP_ID)
    chrome.find_element(By.NAME, "tag").clear()
    chrome.find_element(By.NAME, "favourite").click()
    browser.until("the address", lambda: "favourite=true" in chrome.current_url)
    browser.until("the favourite alone", lambda: shown(chrome, "page") == "1 to 1 of 1")
    chrome.refresh()
    browser.until("the favourite after a reload", lambda: shown(chrome, "page") == "1 to 1 of 1")
    assert [each["id"] for each in client.get("/sweeps?favourite=false")["sweeps"]].count(LONG) == 1


@pytest.mark.slow
def test_an_owner_archives_a_sweep_and_lists_it_again(chrome: webdriver.Chrome, client: Client) -> None:
    def archive() -> WebElement:
        return chrome.find_element(By.ID, "archive")

    for user in ("vera", "bob"):
        sign_in(chrome, client, user)
        open_sweep(chrome, client.address)
        assert not archive().is_displayed(), f"the sweep is not one of {user}"
    sign_in(chrome, client, "ada")
    open_sweep(chrome, client.address)
    browser.until("the button", lambda: archive().is_displayed() and archive().text == "Archive")
    archive().send_keys(Keys.ENTER)
    browser.until("the sweep in the archive", lambda: archive().text == "List again")
    chrome.get(f"{client.address}/?mine=off")
    browser.until("the other sweeps", lambda: bool(row(chrome, LONG)))
    assert row(chrome, sweeps.SWEEP_ID) == ""
    listed = client.get("/sweeps")["sweeps"]
    assert sweeps.SWEEP_ID not in {one["id"] for one in listed}
    open_sweep(chrome, client.address)
    browser.until("the way back", lambda: archive().is_displayed() and archive().text == "List again")
    archive().send_keys(Keys.ENTER)
    browser.until("the sweep among the others", lambda: archive().text == "Archive")
    chrome.get(f"{client.address}/?mine=off")
    browser.until("the sweep in the list", lambda: bool(row(chrome, sweeps.SWEEP_ID)))
    assert [entry["action"] for entry in client.get("/audit", user="grace")["audit"]].count("shelve") == 2
