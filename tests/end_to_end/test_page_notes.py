"""Notes, tags and favourites, which are changed in place on the pages of sweeps and trials."""

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
from tests.orchestrator.web.server import Client

pytestmark = [pytest.mark.end_to_end, pytest.mark.usefixtures("silent")]

TEXT = "Baseline of **table 2** <img src=x onerror=alert(1)>\nwith a second line"
PATHS = {"sweep": f"/sweeps/{sweeps.SWEEP_ID}", "trial": f"/sweeps/{sweeps.SWEEP_ID}/trials/7"}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with server.served(tmp_path_factory.mktemp("notes") / "mlruns") as served:
        yield served


def note(client: Client, kind: str) -> dict[str, object]:
    """Return the note of the sweep or the trial."""
    document = client.get(PATHS[kind])
    return dict(document["note"] or {})


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("kind", PATHS)
def test_an_owner_changes_a_note_by_keyboard(chrome: webdriver.Chrome, client: Client, kind: str) -> None:
    sign_in(chrome, client, "ada")
    chrome.get(f"{client.address}{PATHS[kind]}")
    star = chrome.find_element(By.ID, "favourite")
    browser.until("the mark", star.is_displayed)
    star.send_keys(Keys.SPACE)
    browser.until("the favourite", lambda: star.get_attribute("aria-pressed") == "true")
    chrome.find_element(By.CSS_SELECTOR, "#note-menu summary").send_keys(Keys.ENTER)
    chrome.find_element(By.ID, "tag").send_keys("two words", Keys.ENTER)
    browser.until("the problem", lambda: "must be a word" in shown(chrome, "note-problem"))
    assert browser.errors(chrome, statuses=(422,)) == []
    chrome.find_element(By.ID, "tag").clear()
    chrome.find_element(By.ID, "tag").send_keys("paper", Keys.ENTER)
    browser.until("the tag", lambda: "paper" in shown(chrome, "tags"))
    chrome.find_element(By.ID, "note-draft").send_keys(TEXT, Keys.CONTROL, Keys.ENTER)
    browser.until("the note", lambda: shown(chrome, "note-text") == TEXT)
    assert not chrome.find_elements(By.CSS_SELECTOR, "#note-text *"), "neither HTML nor Markdown"
    assert chrome.switch_to.active_element.tag_name == "summary", "the focus is where it began"
    assert shown(chrome, "note-by").startswith("ada, ")
    kept = note(client, kind)
    assert (kept["text"], kept["tags"], kept["favourite"], kept["author"]) == (TEXT, ["paper"], True, "ada")
    chrome.find_element(By.CSS_SELECTOR, "#note-menu summary").send_keys(Keys.ENTER)
    draft = chrome.find_element(By.ID, "note-draft")
    browser.until("the text to change", lambda: draft.get_attribute("value") == TEXT)
    draft.send_keys("x", Keys.ESCAPE)
    browser.until("a closed menu", lambda: not draft.is_displayed())
    chrome.find_element(By.CSS_SELECTOR, "#tags button").send_keys(Keys.ENTER)
    browser.until("no tag", lambda: shown(chrome, "tags") == "")
    assert note(client, kind)["text"] == TEXT, "Escape changes nothing"
    browser.picture(chrome, f"note-{kind}")
    sign_in(chrome, client, "vera")
    chrome.get(f"{client.address}{PATHS[kind]}")
    browser.until("the note of another user", lambda: shown(chrome, "note-text") == TEXT)
    assert not chrome.find_element(By.ID, "favourite").is_displayed()
    assert not chrome.find_element(By.ID, "note-menu").is_displayed()
    assert chrome.find_element(By.ID, "is-favourite").is_displayed()


@pytest.mark.slow
def test_a_note_is_changed_on_a_phone(chrome: webdriver.Chrome, client: Client) -> None:
    phone = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    try:
        sign_in(chrome, client, "ada")
        open_sweep(chrome, client.address)
        summary = chrome.find_element(By.CSS_SELECTOR, "#note-menu summary")
        browser.until("the menu", summary.is_displayed)
        summary.click()
        panel = chrome.find_element(By.CSS_SELECTOR, "#note-menu > div").rect
        assert panel["x"] >= 0
        assert panel["x"] + panel["width"] <= 390
        assert chrome.find_element(By.ID, "favourite").size["height"] >= 44
    finally:
        chrome.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.slow
def test_favourites_among_the_trials_are_shown_and_filtered(chrome: webdriver.Chrome, client: Client) -> None:
    for number in (2, 5):
        url = f"/api/v1/sweeps/{sweeps.SWEEP_ID}/trials/{number}/note"
        assert client.send("PATCH", url, "ada", body={"favourite": True}).status == 200
    sign_in(chrome, client, "vera")
    open_sweep(chrome, client.address)
    browser.until("the trials", lambda: shown(chrome, "page") == "8 of 8")

    def stars() -> list[str]:
        rows = chrome.find_elements(By.CSS_SELECTOR, "#trials tr")
        return [str(row.get_attribute("data-trial")) for row in rows if "★" in row.text]

    assert {"2", "5"} <= {*stars()}
    chrome.find_element(By.ID, "where").send_keys("favourite = true and number < 6", Keys.ENTER)
    browser.until("the favourites alone", lambda: shown(chrome, "page") == "2 of 2")
    assert {*stars()} == {"2", "5"}
    chrome.find_element(By.ID, "where").clear()
    chrome.find_element(By.ID, "where").send_keys(Keys.ENTER)
    browser.until("all trials", lambda: shown(chrome, "page") == "8 of 8")
    chrome.find_element(By.CSS_SELECTOR, "[data-sort=favourite]").click()
    browser.until(
        "the favourites first", lambda: "★" in chrome.find_element(By.CSS_SELECTOR, "#trials tr").text
    )
    assert "sort=favourite" in chrome.current_url
    browser.picture(chrome, "favourites")
