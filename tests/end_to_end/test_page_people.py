"""The page of people: an admin edits users and quotas, a member sees their own line."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.end_to_end import browser
from tests.end_to_end.page import shown, sign_in
from tests.orchestrator.web import server
from tests.orchestrator.web.server import Client

pytestmark = [pytest.mark.end_to_end, pytest.mark.usefixtures("silent")]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with server.served(tmp_path_factory.mktemp("people") / "mlruns") as served:
        yield served


def names(chrome: webdriver.Chrome) -> set[str]:
    return {
        row.get_attribute("data-key") or "" for row in chrome.find_elements(By.CSS_SELECTOR, "#people tr")
    }


def test_an_admin_adds_limits_and_revokes(chrome: webdriver.Chrome, client: Client) -> None:
    sign_in(chrome, client, "grace")
    chrome.get(f"{client.address}/people")
    browser.until("all users", lambda: names(chrome) == {"ada", "bob", "grace", "vera"})
    chrome.find_element(By.CSS_SELECTOR, "#add [name=name]").send_keys("carol", Keys.ENTER)
    browser.until("the token", lambda: "token of carol" in shown(chrome, "token"))
    browser.until("the new user", lambda: "carol" in names(chrome))
    chrome.find_element(By.CSS_SELECTOR, "[data-quota=ada]").send_keys(Keys.ENTER)
    chrome.find_element(By.CSS_SELECTOR, "#quota [name=gpu_hours]").send_keys("12", Keys.ENTER)
    browser.until("the quota", lambda: "0 of 12" in shown(chrome, "people"))
    chrome.find_element(By.CSS_SELECTOR, "[data-revoke=carol]").click()
    chrome.find_element(By.ID, "confirm-yes").click()
    browser.until("the end of the token", lambda: "revoked" in shown(chrome, "people"))
    browser.until("the audit log", lambda: "quota" in shown(chrome, "audit"))
    assert shown(chrome, "problem") == ""
    browser.picture(chrome, "people-admin")


def test_a_member_sees_their_own_line(chrome: webdriver.Chrome, client: Client) -> None:
    sign_in(chrome, client, "bob")
    chrome.get(f"{client.address}/people")
    browser.until("their own line", lambda: names(chrome) == {"bob"})
    assert "member" in shown(chrome, "people")
    assert "expires " in shown(chrome, "people")
    assert not chrome.find_element(By.ID, "admin").is_displayed()
