"""The page of people: an admin edits users and quotas, a member sees their own line."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from orchestrator.api import bill
from tests import sweeps
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


@pytest.mark.slow
def test_hours_are_those_of_the_command_and_a_member_sees_their_own(
    chrome: webdriver.Chrome, client: Client
) -> None:
    with client.workspace.ledger() as ledger:
        driver = sweeps.writer_of(ledger)
        driver.reopen("it continues")
        attempt = sweeps.start_trial(driver, sweeps.trial(8), client.workspace.paths.root / "saved")
        driver.take_attempt(attempt.id, held=1800.0)
        driver.end_attempt(attempt.id, "FAILED", "error", trial_state="FAILED")
        [row] = [row for row in bill.hours(ledger) if row.sweep == sweeps.SWEEP_ID]
    assert row.owner == "ada"
    key = f"#cost tr[data-key='{row.sweep} {row.device}']"
    for name, sees in (("grace", True), ("bob", False), ("ada", True)):
        sign_in(chrome, client, name)
        chrome.get(f"{client.address}/people")
        browser.until("the line of the user", lambda: name in names(chrome))  # noqa: B023
        browser.until("the hours", lambda: bool(chrome.find_elements(By.CSS_SELECTOR, key)) == sees)  # noqa: B023
    cells = [cell.text for cell in chrome.find_elements(By.CSS_SELECTOR, f"{key} td")]
    assert cells[:3] == ["ada", row.sweep, row.device]
    hours = [float(cell.replace(",", "")) for cell in cells[3:]]
    assert hours == pytest.approx([row.trial_hours, row.core_hours, row.gpu_hours], rel=0.01, abs=1e-3)


@pytest.mark.slow
def test_everyone_but_a_viewer_edits_their_targets_of_notifications(
    chrome: webdriver.Chrome, client: Client
) -> None:
    sign_in(chrome, client, "vera")
    chrome.get(f"{client.address}/people")
    browser.until("the line of the user", lambda: names(chrome) == {"vera"})
    assert not chrome.find_element(By.ID, "notices-section").is_displayed()
    sign_in(chrome, client, "bob")
    chrome.get(f"{client.address}/people")
    browser.until("the form", lambda: chrome.find_element(By.ID, "notices-section").is_displayed())
    chrome.find_element(By.CSS_SELECTOR, "#add-notice [name=target]").send_keys("https://example.org/canary")
    chrome.find_element(By.CSS_SELECTOR, "#add-notice [name=name]").send_keys("team", Keys.ENTER)
    browser.until("the target", lambda: "https://example.org/..." in shown(chrome, "notices"))
    assert "sweeps whose file names team" in shown(chrome, "notices")
    assert "canary" not in chrome.page_source
    field = chrome.find_element(By.CSS_SELECTOR, "#add-notice [name=target]")
    field.send_keys("./a-command", Keys.ENTER)
    browser.until("the refusal", lambda: "a command would run as the service" in shown(chrome, "problem"))
    assert browser.errors(chrome, statuses=(403,)) == []
    chrome.find_element(By.CSS_SELECTOR, "#notices button").click()
    browser.until("no target", lambda: shown(chrome, "notices") == "")
    sign_in(chrome, client, "ada")
    chrome.get(f"{client.address}/people")
    browser.until("the line of the user", lambda: names(chrome) == {"ada"})
    assert shown(chrome, "notices") == "", "targets are those of their user"


def test_a_member_sees_their_own_line(chrome: webdriver.Chrome, client: Client) -> None:
    sign_in(chrome, client, "bob")
    chrome.get(f"{client.address}/people")
    browser.until("their own line", lambda: names(chrome) == {"bob"})
    assert "member" in shown(chrome, "people")
    assert "expires " in shown(chrome, "people")
    assert not chrome.find_element(By.ID, "admin").is_displayed()
