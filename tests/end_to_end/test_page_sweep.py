"""A real sweep under a real service, from the page alone, which loses the service for a while."""

from __future__ import annotations

import re
import subprocess
from urllib.parse import urlsplit

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from orchestrator.api import user_admin
from orchestrator.errors import Exit
from tests.end_to_end import browser
from tests.end_to_end.commands import Commands, finish, wait_for
from tests.end_to_end.page import enter, points, shown

pytestmark = [
    pytest.mark.end_to_end,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("silent"),
]

ROLES = {"ada": "member", "vera": "viewer"}
CHANGES = "budget.trials=2\ntraining.steps=4_000\nresources.cpu=2\nscheduler=none"
"""The example with fewer and longer trials, one after the other, so that a curve can be watched."""

POST = """
const done = arguments[arguments.length - 1];
fetch(arguments[0], {method: "POST", headers: {"X-Sweep-Change": "1"}}).then(async (answer) => (
  done([answer.status, (await answer.json()).must])
));
"""


def test_a_sweep_is_run_from_the_page_alone(chrome: webdriver.Chrome, commands: Commands) -> None:
    service, address = serve(commands, 0)
    tokens = {name: user_admin.add(name, role, root=commands.root)[1] for name, role in ROLES.items()}
    enter(chrome, address, "ada", tokens["ada"])
    start_the_example(chrome)

    wait_for(lambda: max(points(chrome), default=0) >= 2)
    before = max(points(chrome))
    browser.until("the curve to grow", lambda: max(points(chrome)) > before)

    service.kill()
    finish(service)
    browser.until("the loss", lambda: "lost; reading every 5 s" in shown(chrome, "connection"))
    browser.until("the problem", lambda: shown(chrome, "refresh-problem") == "The server cannot be reached.")
    assert shown(chrome, "state") == "RUNNING", "what was read last stays"
    service, again = serve(commands, urlsplit(address).port or 0)
    assert again == address
    browser.until("the service again", lambda: shown(chrome, "connection") == "live")
    browser.until("no problem", lambda: shown(chrome, "refresh-problem") == "")
    browser.errors(chrome)  # of the requests that no service has answered

    before = max(points(chrome), default=0)
    browser.until("the driver, which has gone on", lambda: max(points(chrome), default=0) > before)
    chrome.find_element(By.ID, "stop").click()
    chrome.find_element(By.ID, "confirm-yes").click()
    wait_for(lambda: shown(chrome, "state") == "INTERRUPTED")
    assert not shown(chrome, "counts").startswith("2 ")

    chrome.find_element(By.ID, "resume").click()
    wait_for(lambda: shown(chrome, "state") == "RUNNING")
    wait_for(lambda: shown(chrome, "state") == "COMPLETE")
    assert shown(chrome, "counts") == "2 of 2"

    wanted = chrome.find_element(By.ID, "trials-wanted")
    chrome.find_element(By.CSS_SELECTOR, "#change summary").click()
    wait_for(wanted.is_displayed)  # its driver has left
    wanted.clear()
    wanted.send_keys("3", Keys.ENTER)
    browser.until("an answer", lambda: shown(chrome, "problem") or not wanted.is_displayed())
    assert shown(chrome, "problem") == ""
    wait_for(lambda: shown(chrome, "state") == "RUNNING" and shown(chrome, "counts") == "2 of 3")
    refused_as_a_viewer(chrome, address, tokens["vera"])
    wait_for(lambda: shown(chrome, "state") == "COMPLETE")
    assert shown(chrome, "counts") == "3 of 3"
    service.terminate()
    assert finish(service)[0] == Exit.COMPLETE
    browser.until("the end of the service", lambda: "lost" in shown(chrome, "connection"))
    chrome.get("about:blank")
    browser.errors(chrome)  # of the requests that no service has answered


def serve(commands: Commands, port: int) -> tuple[subprocess.Popen[str], str]:
    """Start a service with the page; return its process and its address."""
    service = commands.start("serve", "--http", str(port), PYTHONUNBUFFERED="1")
    assert service.stdout is not None
    found = re.search(r"http://[\d.]+:\d+", service.stdout.readline())
    assert found is not None
    return service, found[0]


def start_the_example(chrome: webdriver.Chrome) -> None:
    """Start the example of the form, after a mistake; the page of the sweep is then open."""
    chrome.find_element(By.ID, "start-link").click()
    browser.until("the form", lambda: chrome.find_element(By.ID, "submit").is_displayed())
    chrome.find_element(By.ID, "example").click()
    browser.until("the plan", lambda: "at most 8" in shown(chrome, "plan"))
    text = chrome.find_element(By.ID, "text")
    written = text.get_attribute("value") or ""
    replace(chrome, written.replace("steps: 200", "steps: many"))
    browser.until("the refusal", lambda: "'many'" in shown(chrome, "refusals"))
    line = 1 + [line.startswith("training:") for line in written.splitlines()].index(True)
    assert f"example.yaml:{line}: training.steps" in shown(chrome, "refusals")
    replace(chrome, written)
    chrome.find_element(By.CSS_SELECTOR, "#submit details summary").click()
    chrome.find_element(By.ID, "overrides").send_keys(CHANGES)
    browser.until("the plan", lambda: "at most 2" in shown(chrome, "plan"))
    chrome.find_element(By.ID, "start").click()
    browser.until("the page of the sweep", lambda: "/sweeps/example-" in chrome.current_url)


def replace(chrome: webdriver.Chrome, text: str) -> None:
    """Write another text into the field of the file."""
    field = chrome.find_element(By.ID, "text")
    field.clear()
    field.send_keys(text)


def refused_as_a_viewer(chrome: webdriver.Chrome, address: str, token: str) -> None:
    """Open the page as a viewer, who may change nothing, with buttons or without."""
    page = chrome.current_url
    enter(chrome, address, "vera", token)
    chrome.get(page)
    browser.until("the state", lambda: shown(chrome, "state"))
    assert not chrome.find_element(By.ID, "actions").is_displayed()
    sweep = page.rpartition("/")[2]
    assert chrome.execute_async_script(POST, f"/api/v1/sweeps/{sweep}/stop")[0] == 403
    assert browser.errors(chrome, statuses=(403,)) == []
