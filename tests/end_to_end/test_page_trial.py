"""The page of a trial: what a person asks about it is answered without a click."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from orchestrator.ledger.queue.trial_requests import pending_requests
from tests import sweeps
from tests.end_to_end import browser
from tests.end_to_end.page import running, shown, sign_in
from tests.orchestrator.web import server
from tests.orchestrator.web.server import FILE, Client

pytestmark = [pytest.mark.end_to_end, pytest.mark.usefixtures("silent")]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with server.served(tmp_path_factory.mktemp("trial") / "mlruns") as served:
        yield served


def open_trial(chrome: webdriver.Chrome, client: Client, number: int) -> None:
    """Open the page of a trial, and wait until it shows its curve."""
    chrome.get(f"{client.address}/sweeps/{sweeps.SWEEP_ID}/trials/{number}")
    browser.until("the curve", lambda: chrome.find_elements(By.CSS_SELECTOR, "#curve polyline.best"))


@pytest.mark.slow
def test_a_trial_is_compared_with_the_best_without_a_click(chrome: webdriver.Chrome, client: Client) -> None:
    sign_in(chrome, client, "ada")
    open_trial(chrome, client, 5)
    assert "0.57" in shown(chrome, "best")
    assert chrome.title.startswith("PRUNED 0.57")
    assert "val/accuracy, last" in shown(chrome, "latest")
    browser.until("the rank", lambda: shown(chrome, "rank") == "rank 4 of 7")
    assert shown(chrome, "best-title") == "best (7)"
    cells = chrome.find_elements(By.CSS_SELECTOR, "#parameters tr[data-key=learning_rate] td")
    assert [cell.text for cell in cells[:3]] == ["learning_rate", "0.006", "0.008"]
    assert cells[3].find_elements(By.TAG_NAME, "circle")
    legend = shown(chrome, "curve-legend")
    assert "train/accuracy" in legend
    assert "best: trial 7" in legend
    assert "of 8 trials" in legend
    assert "rung: steps 40, 160" in legend
    assert len(chrome.find_elements(By.CSS_SELECTOR, "#curve line.rung")) == 2
    assert "proposed" in shown(chrome, "times")
    link = chrome.find_element(By.LINK_TEXT, "Again with changes")
    assert str(link.get_attribute("href")).endswith(f"/start?sweep={sweeps.SWEEP_ID}&trial=5")
    browser.picture(chrome, "trial-pruned")
    link.click()
    browser.until("the form", lambda: "Again: " in shown(chrome, "from"))
    assert 'try=[{"' in str(chrome.find_element(By.ID, "overrides").get_attribute("value"))
    assert chrome.find_element(By.ID, "name").get_attribute("value") == "retrieval"
    text = chrome.find_element(By.ID, "text").get_attribute("value")
    assert text == FILE


@pytest.mark.slow
def test_the_next_trial_by_rank_and_another_metric_are_one_action_away(
    chrome: webdriver.Chrome, client: Client
) -> None:
    sign_in(chrome, client, "vera")
    open_trial(chrome, client, 6)
    browser.until("the rank", lambda: shown(chrome, "rank") == "rank 2 of 7")
    chrome.find_element(By.ID, "metric").send_keys("val/loss")
    browser.until("another metric", lambda: "this trial: val/loss" in shown(chrome, "curve-legend"))
    chrome.find_element(By.ID, "better").send_keys(Keys.ENTER)
    browser.until("the best trial", lambda: shown(chrome, "name") == "Trial 7")
    browser.until("its rank", lambda: shown(chrome, "rank") == "rank 1 of 7")
    assert not chrome.find_element(By.ID, "better").is_displayed()
    assert not chrome.find_elements(By.LINK_TEXT, "Again with changes"), "a viewer starts no sweeps"
    copy = chrome.find_element(By.CSS_SELECTOR, "#checkpoints button.copy")
    assert copy.get_attribute("title")


LOG = """\
step 40
Traceback (most recent call last):
  File "/srv/lib/site-packages/ray/tune/trainable/trainable.py", line 331, in train
    result = self.step()
             ^^^^^^^^^^^
  File "/srv/orchestrator/scripts/function_child.py", line 90, in run
    function(params)
  File "/home/ada/train.py", line 37, in train
    raise ValueError("val/accuracy is nan")
ValueError: val/accuracy is nan
"""


def test_a_failed_trial_says_why_and_opens_its_log(chrome: webdriver.Chrome, client: Client) -> None:
    log = client.workspace.paths.log(sweeps.SWEEP_ID, f"{sweeps.SWEEP_ID}-3")
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(LOG)
    sign_in(chrome, client, "vera")
    open_trial(chrome, client, 3)
    assert shown(chrome, "reason") == "val/accuracy is nan"
    assert "retry-failed" in shown(chrome, "next-step")
    browser.until("the log", lambda: "step 40" in shown(chrome, "log"))
    text = shown(chrome, "log")
    assert "2 frames of the service" in text
    assert 'train.py", line 37' in text
    assert "ValueError: val/accuracy is nan" in text
    frames = chrome.find_element(By.CSS_SELECTOR, "#log details")
    assert frames.get_attribute("open") is None, "they are folded"
    folded = str(frames.get_attribute("textContent"))
    assert "function(params)" in folded
    assert "train.py" not in folded
    whole = str(chrome.find_element(By.ID, "log").get_attribute("textContent"))
    assert whole.replace("2 frames of the service", "") == LOG
    browser.picture(chrome, "trial-failed")


@pytest.mark.slow
def test_a_running_trial_is_followed(chrome: webdriver.Chrome, client: Client) -> None:
    sign_in(chrome, client, "vera")
    with running(client, 30) as report:
        report(40, 0.6)
        open_trial(chrome, client, 30)
        report(80, 0.95)
        browser.until("its step", lambda: shown(chrome, "counts") == "80 of 200")
        browser.until("its rank", lambda: shown(chrome, "rank") == "rank 1 of 8")
        assert shown(chrome, "best") == "0.9500 at step 80"


def test_the_owner_stops_a_running_trial_or_exempts_it(chrome: webdriver.Chrome, client: Client) -> None:
    with client.workspace.ledger() as ledger:
        driver = sweeps.writer_of(ledger)
        driver.reopen("it continues")
        sweeps.start_trial(driver, sweeps.trial(8, "PRUNED"), client.workspace.paths.root / "saved")
    sign_in(chrome, client, "bob")
    open_trial(chrome, client, 8)
    assert not chrome.find_element(By.ID, "actions").is_displayed(), "the sweep is not his"
    sign_in(chrome, client, "ada")
    open_trial(chrome, client, 8)
    browser.until("the controls", lambda: chrome.find_element(By.ID, "actions").is_displayed())
    for button, decision in (("exempt", "exempt"), ("stop", "stop")):
        chrome.find_element(By.ID, button).click()
        if button == "stop":
            browser.until("the question", lambda: chrome.find_element(By.ID, "confirm-yes").is_displayed())
            chrome.find_element(By.ID, "confirm-yes").click()
        browser.until("the request", lambda: requested(client) == [decision])  # noqa: B023


def requested(client: Client) -> list[str]:
    """Return the decisions that users have requested about trials of the sweep."""
    with client.workspace.ledger() as ledger:
        return [request.decision for request in pending_requests(ledger, sweeps.SWEEP_ID).trials]
