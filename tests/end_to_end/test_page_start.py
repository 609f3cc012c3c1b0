"""The form that starts a sweep: shipped files, and files of the person."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.select import Select

from tests.end_to_end import browser
from tests.end_to_end.page import shown, sign_in
from tests.orchestrator.web import server
from tests.orchestrator.web.server import FILE, Client

pytestmark = [pytest.mark.end_to_end, pytest.mark.usefixtures("silent")]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with server.served(tmp_path_factory.mktemp("start") / "mlruns") as served:
        yield served


def written(chrome: webdriver.Chrome) -> str:
    return str(chrome.find_element(By.ID, "text").get_attribute("value"))


@pytest.mark.slow
def test_a_shipped_file_and_a_sent_one_are_inserted(
    chrome: webdriver.Chrome, client: Client, tmp_path: Path
) -> None:
    sign_in(chrome, client, "ada")
    chrome.get(f"{client.address}/start")
    browser.until("the form", lambda: chrome.find_element(By.ID, "submit").is_displayed())
    assert "sweep submit FILE" in shown(chrome, "submit")
    shipped = Select(chrome.find_element(By.ID, "shipped"))
    assert "listops" in [option.text for option in shipped.options]
    shipped.select_by_visible_text("copy")
    browser.until("the file", lambda: "task: copy" in written(chrome))
    assert chrome.find_element(By.ID, "name").get_attribute("value") == "copy"
    sent = tmp_path / "my sweep.yaml"
    sent.write_text(FILE)
    chrome.find_element(By.ID, "upload").send_keys(str(sent))
    browser.until("the question", lambda: "my sweep.yaml" in shown(chrome, "confirm-question"))
    chrome.find_element(By.ID, "confirm-yes").click()
    browser.until("the sent file", lambda: written(chrome) == FILE)
    assert chrome.find_element(By.ID, "name").get_attribute("value") == "my-sweep"
    browser.until("the plan", lambda: "at most 2" in shown(chrome, "plan"))
    browser.picture(chrome, "start")
