"""The page with single sign-on, in a real browser and with a real provider of another site."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from orchestrator.api.workspace import Workspace
from orchestrator.web.identity_provider import IdentityProvider, SignOnFile
from orchestrator.web.server import Listening, serving
from tests.end_to_end import browser
from tests.end_to_end.page import shown
from tests.orchestrator.web.issuer import free_port, real_provider

pytestmark = [pytest.mark.end_to_end, pytest.mark.usefixtures("silent")]

PERSON = {"sub": "1", "preferred_username": "ada", "groups": ["lab"]}


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Serve an empty ledger on 127.0.0.1, and the provider on localhost, which is another site."""
    address = f"http://127.0.0.1:{free_port()}"
    with real_provider(PERSON, "localhost", registered=False) as (issuer, _):
        own = {"issuer": issuer, "client_id": "sweeps", "address": address, "roles": {"member": ["lab"]}}
        provider = IdentityProvider(SignOnFile.model_validate(own), "any secret, of an unregistered client")
        listening = Listening(int(address.rpartition(":")[2]))
        with serving(Workspace.at(tmp_path / "mlruns"), listening, provider=provider):
            yield address


@pytest.mark.slow
def test_a_person_signs_on_gets_a_token_and_signs_out(chrome: webdriver.Chrome, address: str) -> None:
    chrome.get(f"{address}/people")
    browser.until("the page to sign in", lambda: chrome.find_element(By.ID, "sign-on"))
    chrome.find_element(By.ID, "sign-on").click()
    browser.until("the provider", lambda: chrome.current_url.startswith("http://localhost"))
    chrome.find_element(By.CSS_SELECTOR, "button[name=sub][value='1']").click()
    browser.until("the user", lambda: shown(chrome, "user") == "ada (member)")
    assert chrome.current_url == f"{address}/people", "the page that has asked"
    chrome.find_element(By.ID, "new-token").click()
    chrome.find_element(By.ID, "confirm-yes").click()
    browser.until("the token", lambda: "Your token" in shown(chrome, "token"))
    chrome.refresh()
    browser.until("the user, still", lambda: shown(chrome, "user") == "ada (member)")
    chrome.find_element(By.ID, "sign-out").click()
    browser.until("the end of the provider's session", lambda: "end_session" in chrome.current_url)
    chrome.find_element(By.XPATH, "//button[text()='End session']").click()
    browser.until("the page to sign in", lambda: chrome.current_url == f"{address}/sign-in")
    of_provider = ("cdn.jsdelivr.net", "favicon.ico")  # its style sheet, and an icon that it lacks
    assert browser.errors(chrome, allowed=of_provider, statuses=(401,)) == [], "401 before signing in"
