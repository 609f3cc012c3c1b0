"""The page of the service in real Chromium: sign in, watch a curve grow, submit, stop, be refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from orchestrator.api.workspace import Workspace
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.queue import submissions
from orchestrator.ledger.queue.queue_settings import asked_to_stop
from orchestrator.web.app_state import OneTimeKey
from orchestrator.web.server import Listening, serving
from tests import sweeps
from tests.end_to_end import browser
from tests.end_to_end.page import first_trial, open_sweep, points, running, shown, sign_in
from tests.end_to_end.test_page_many_trials import add
from tests.orchestrator.ledger.examples import create_sweep
from tests.orchestrator.web import server
from tests.orchestrator.web.server import FILE, QUEUED, Client

TRIAL = f"/sweeps/{sweeps.SWEEP_ID}/trials/7"
CHARTS = """
return [...document.querySelectorAll("svg[role=img]")].map((chart) => ({
  name: chart.getAttribute("aria-labelledby").split(" ").every((id) => document.getElementById(id)),
  tables: chart.closest("section, details").querySelectorAll("table").length,
}));
"""
CUT_OFF = """
return [...document.querySelectorAll(".wide")]
  .filter((node) => node.checkVisibility() && node.scrollWidth > node.clientWidth)
  .map((node) => node.innerText.slice(0, 60));
"""
SELECTED = """
const field = document.activeElement;
return field.value.slice(field.selectionStart, field.selectionEnd);
"""

pytestmark = [pytest.mark.end_to_end, pytest.mark.usefixtures("silent")]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with server.served(tmp_path_factory.mktemp("page") / "mlruns") as served:
        yield served


def test_without_a_token_the_page_asks_for_one(chrome: webdriver.Chrome, client: Client) -> None:
    chrome.get(client.address)
    browser.until("the form", lambda: chrome.current_url.endswith("/sign-in"))
    chrome.find_element(By.ID, "token").send_keys("wrong", Keys.ENTER)
    browser.until("the refusal", lambda: "Ask an admin for a new one" in shown(chrome, "problem"))
    assert browser.errors(chrome, statuses=(401,)) == []


def test_the_link_that_serve_prints_signs_in_once(chrome: webdriver.Chrome, tmp_path: Path) -> None:
    workspace, key = Workspace.at(tmp_path / "mlruns"), OneTimeKey("ada")
    with serving(workspace, Listening(0), key=key) as address:
        chrome.get(f"{address}/sign-in")
        chrome.delete_all_cookies()
        chrome.get("about:blank")
        chrome.get(f"{address}/sign-in#{key.text}")
        browser.until("the name of the user", lambda: "ada" in shown(chrome, "user"))
        assert key.text not in chrome.current_url
        [cookie] = chrome.get_cookies()
        assert key.text not in cookie["value"]
        chrome.delete_all_cookies()
        chrome.get("about:blank")
        chrome.get(f"{address}/sign-in#{key.text}")
        browser.until("the refusal", lambda: "Ask an admin for a new one" in shown(chrome, "problem"))
        assert browser.errors(chrome, statuses=(401,)) == []


@pytest.mark.slow
def test_a_member_watches_a_curve_grow(chrome: webdriver.Chrome, client: Client) -> None:
    sign_in(chrome, client, "ada")
    browser.until("the queue", lambda: QUEUED in shown(chrome, "queue"))
    browser.until("the sweeps", lambda: "0.6469" in shown(chrome, "sweeps"))
    browser.until("its state", lambda: "QUEUED" in shown(chrome, "sweeps"))
    assert chrome.execute_script(CUT_OFF) == [], "a screen 1,400 pixels wide shows all columns"
    open_sweep(chrome, client.address, sweeps.SWEEP_ID)
    browser.until("the best trial", lambda: "trial 7, complete" in shown(chrome, "best-of"))
    browser.until("the curves", lambda: len(chrome.find_elements(By.CSS_SELECTOR, "#curves polyline")) == 8)
    with running(client, 8) as report:
        report(40, 0.6)
        browser.until("the running trial", lambda: "40 of 200" in shown(chrome, "trials"))
        report(80, 0.7)
        browser.until("its next report", lambda: "80 of 200" in shown(chrome, "trials"))
        browser.until("its curve", lambda: points(chrome) == [2])


@pytest.mark.slow
def test_sections_show_what_the_sweep_has_learned(chrome: webdriver.Chrome, client: Client) -> None:
    """Parallel coordinates, importances, time, hidden norms and differences are read when they are opened."""
    earlier = sweeps.sweep_record(id="retrieval-earlier", created_at=sweeps.CREATED - 1.0)
    training = {**earlier.document["training"], "batch_size": 16}
    with client.workspace.ledger() as ledger:
        create_sweep(ledger, replace(earlier, document={**earlier.document, "training": training}))
    sign_in(chrome, client, "vera")
    open_sweep(chrome, client.address, sweeps.SWEEP_ID)
    busy = "details[aria-busy=true]:not([hidden])"
    assert len(chrome.find_elements(By.CSS_SELECTOR, busy)) == 4
    for name in ("parallel", "more", "analysis", "changes"):
        chrome.find_element(By.CSS_SELECTOR, f"#{name}-section summary").send_keys(Keys.ENTER)
    with_value = sum(trial.value is not None for trial in sweeps.trials())

    def lines(element: str) -> int:
        return len(chrome.find_elements(By.CSS_SELECTOR, f"#{element} polyline"))

    browser.until("the parallel coordinates", lambda: lines("parallel") == with_value)
    browser.until("the time", lambda: "compile" in shown(chrome, "seconds"))
    browser.until("the end", lambda: not chrome.find_elements(By.CSS_SELECTOR, busy))
    assert not chrome.find_element(By.ID, "pareto-section").is_displayed(), "it has a single objective"
    assert lines("distribution") == 1
    assert len(chrome.find_elements(By.CSS_SELECTOR, "#pairs circle")) == with_value
    assert "need 10 complete or pruned trials with a value; there are 7" in shown(chrome, "importances-empty")
    assert lines("norms") == 3 * sweeps.LAYERS
    assert "hidden_norm/head/layer_1" in shown(chrome, "norm-values")
    browser.until("the differences", lambda: shown(chrome, "changes") == "training.batch_size 16 -> 32")
    assert shown(chrome, "previous") == "retrieval-earlier"
    chrome.find_element(By.ID, "parallel").click()
    browser.picture(chrome, "page-analysis-light")


def test_the_front_of_several_objectives_has_a_section(chrome: webdriver.Chrome, client: Client) -> None:
    record = sweeps.sweep_record(id="retrieval-several")
    objective = {"maximize": [record.facts["metric"]], "minimize": ["val/loss"]}
    with client.workspace.ledger() as ledger:
        create_sweep(
            ledger,
            replace(record, document={**record.document, "objective": objective, "scheduler": {"none": {}}}),
        )
    sign_in(chrome, client, "vera")
    open_sweep(chrome, client.address, record.id)
    section = chrome.find_element(By.ID, "pareto-section")
    browser.until("the section", section.is_displayed)
    section.find_element(By.TAG_NAME, "summary").send_keys(Keys.ENTER)
    browser.until("the front", lambda: "No trial has a value yet" in shown(chrome, "pareto-caption"))
    assert "val/loss" in str(chrome.find_element(By.ID, "pareto-head").get_property("textContent"))
    assert browser.errors(chrome) == []


def test_trials_are_sorted_by_keyboard_and_keep_the_focus(chrome: webdriver.Chrome, client: Client) -> None:
    sign_in(chrome, client, "vera")
    open_sweep(chrome, client.address, sweeps.SWEEP_ID)
    browser.until("the trials", lambda: "of " in shown(chrome, "page"))
    assert first_trial(chrome) == "7", "the best first"
    button = chrome.find_element(By.CSS_SELECTOR, "[data-sort=value]")
    button.send_keys(Keys.ENTER)

    def order() -> str | None:
        return chrome.find_element(By.CSS_SELECTOR, "#sort th:nth-child(4)").get_attribute("aria-sort")

    browser.until("the best first, when it is maximized", lambda: order() == "descending")
    chrome.switch_to.active_element.send_keys(Keys.ENTER)
    browser.until("the reverse order", lambda: order() == "ascending")
    browser.until("the worst trial first", lambda: first_trial(chrome) == "0")
    chrome.refresh()
    browser.until("the same order after a reload", lambda: first_trial(chrome) == "0")
    chrome.find_element(By.CSS_SELECTOR, "#file-section summary").click()
    browser.until("the file", lambda: "task: copy" in shown(chrome, "file"))


def test_a_viewer_has_no_buttons_and_is_refused(chrome: webdriver.Chrome, client: Client) -> None:
    sign_in(chrome, client, "vera")
    assert not chrome.find_element(By.ID, "start-link").is_displayed()
    chrome.get(f"{client.address}/start")
    browser.until("why", lambda: "Viewers start no sweeps" in shown(chrome, "viewer"))
    assert not chrome.find_element(By.ID, "submit").is_displayed()
    open_sweep(chrome, client.address, QUEUED)
    assert not chrome.find_element(By.ID, "actions").is_displayed()
    code = """
      const done = arguments[arguments.length - 1];
      const headers = {"X-Sweep-Change": "1"};
      fetch(arguments[0], {method: "POST", headers}).then((answer) => done(answer.status));
    """
    assert chrome.execute_async_script(code, f"/api/v1/sweeps/{QUEUED}/stop") == 403
    assert browser.errors(chrome, statuses=(403,)) == []


def test_a_member_checks_submits_and_stops(chrome: webdriver.Chrome, client: Client) -> None:
    sign_in(chrome, client, "ada")
    chrome.find_element(By.ID, "start-link").click()
    browser.until("the form", lambda: chrome.find_element(By.ID, "submit").is_displayed())
    chrome.find_element(By.ID, "example").click()
    browser.until("the plan", lambda: "at most" in shown(chrome, "plan"))
    browser.picture(chrome, "page-start-light")
    text = chrome.find_element(By.ID, "text")
    text.clear()
    text.send_keys(FILE.replace("task: copy", "task: nothing"))
    browser.until("the refusal", lambda: "must name a task" in shown(chrome, "refusals"))
    assert [cell.text != "" for cell in chrome.find_elements(By.CSS_SELECTOR, "#refusals td")] == [True] * 4
    assert text.get_attribute("aria-invalid") == "true"
    chrome.find_element(By.CSS_SELECTOR, "#refusals button").send_keys(Keys.ENTER)
    assert chrome.execute_script(SELECTED) == "task: nothing", "the refusal leads to its line"
    assert not chrome.find_element(By.ID, "plan-part").is_displayed()
    text.clear()
    text.send_keys(FILE)
    browser.until("the plan", lambda: "at most 2" in shown(chrome, "plan"))
    chrome.find_element(By.ID, "start").click()
    browser.until("the page of the sweep", lambda: "/sweeps/" in chrome.current_url)
    sweep_id = chrome.current_url.rpartition("/")[2]
    browser.until("its state", lambda: shown(chrome, "state") == "QUEUED")
    chrome.find_element(By.ID, "stop").click()
    browser.until("the question", lambda: sweep_id in shown(chrome, "confirm-question"))
    chrome.switch_to.active_element.send_keys(Keys.ESCAPE)
    with client.workspace.ledger() as ledger:
        assert not asked_to_stop(ledger, sweep_id), "Escape changes nothing"
        chrome.find_element(By.ID, "stop").click()
        chrome.find_element(By.ID, "confirm-yes").click()
        browser.until("the request", lambda: asked_to_stop(ledger, sweep_id))


@pytest.mark.slow
def test_a_sweep_that_is_over_is_extended_once_its_driver_has_left(
    chrome: webdriver.Chrome, tmp_path: Path
) -> None:
    with server.served(tmp_path / "mlruns") as client, client.workspace.ledger() as ledger:
        sweeps.writer_of(ledger).set_sweep_state("COMPLETE", None)
        set_submission(ledger, "STARTED")
        sign_in(chrome, client, "ada")
        open_sweep(chrome, client.address)
        browser.until("why it cannot be extended", lambda: "has yet to leave" in shown(chrome, "leaving"))
        wanted, retry = (chrome.find_element(By.ID, name) for name in ("trials-wanted", "retry"))
        chrome.find_element(By.CSS_SELECTOR, "#change summary").click()
        assert not wanted.is_displayed()
        assert not retry.is_displayed()
        set_submission(ledger, "ENDED")
        browser.until("the field", wanted.is_displayed)
        assert retry.text == "Retry failed trials"
        wanted.clear()
        wanted.send_keys("9", Keys.ENTER)
        browser.until("the submission", lambda: state_of(ledger) == "QUEUED")
        assert shown(chrome, "problem") == ""
        chrome.get("about:blank")  # before its server ends


@pytest.mark.slow
def test_more_trials_than_have_curves_are_no_problem(chrome: webdriver.Chrome, tmp_path: Path) -> None:
    with server.served(tmp_path / "mlruns") as client:
        add(client, [sweeps.trial(number) for number in range(8, 25)])
        sign_in(chrome, client, "vera")
        open_sweep(chrome, client.address)
        browser.until("the band of the others", lambda: "other trials" in shown(chrome, "curves-legend"))
        chrome.execute_script("document.getElementById('curves-table').open = true")
        cells = browser.until("its table", lambda: shown(chrome, "band-values").split())
        assert all(float(cell) >= 0 for cell in cells)
        assert shown(chrome, "refresh-problem") == ""
        chrome.get("about:blank")  # before its server ends


@pytest.mark.slow
def test_the_best_value_is_that_of_a_trial_that_still_runs(chrome: webdriver.Chrome, tmp_path: Path) -> None:
    with server.served(tmp_path / "mlruns") as client:
        sign_in(chrome, client, "vera")
        open_sweep(chrome, client.address)
        browser.until("the best trial", lambda: "trial 7, complete" in shown(chrome, "best-of"))
        with running(client, 8) as report:
            report(40, 0.5)
            browser.until("the running trial", lambda: "40 of 200" in shown(chrome, "trials"))
            assert "trial 7, complete" in shown(chrome, "best-of"), "a worse one is not the best"
            report(80, 0.9)
            browser.until("its value", lambda: shown(chrome, "best") == "0.9000")
            assert "trial 8, running, step 80 of 200" in shown(chrome, "best-of")
        chrome.get("about:blank")  # before its server ends


@pytest.mark.slow
def test_the_page_says_why_trials_failed_and_what_to_do(chrome: webdriver.Chrome, tmp_path: Path) -> None:
    with server.served(tmp_path / "mlruns") as client, client.workspace.ledger() as ledger:
        sign_in(chrome, client, "ada")
        open_sweep(chrome, client.address)
        cause = "1 of 8 trials failed: non-finite: val/accuracy is nan"
        browser.until("the cause", lambda: shown(chrome, "failures").startswith(cause))
        with running(client, 8) as report:
            report(40, 0.6)
            browser.until("the running trial", lambda: "40 of 200" in shown(chrome, "trials"))
            set_submission(ledger, "PARKED")
            browser.until("the remedy", lambda: "Release tries again" in shown(chrome, "reason"))
            assert "RUNNING" not in shown(chrome, "trials"), "its driver has died"
            assert "INTERRUPTED" in shown(chrome, "trials")
            assert chrome.find_element(By.ID, "resume").is_displayed()
            assert shown(chrome, "place") == "", "the reason is told once"
        chrome.get("about:blank")  # before its server ends


def state_of(ledger: Ledger) -> str | None:
    """Return how far the service has come with the sweep."""
    entry = submissions.submission(ledger, sweeps.SWEEP_ID)
    return entry.state if entry else None


def set_submission(ledger: Ledger, state: str) -> None:
    """Write how far the service has come with the sweep."""
    with ledger.writer() as connection:
        connection.exec_driver_sql(
            f"UPDATE submission SET state = '{state}' WHERE sweep_id = '{sweeps.SWEEP_ID}'"
        )
        connection.commit()


@pytest.mark.slow
def test_a_phone_and_dark_mode_show_the_same(chrome: webdriver.Chrome, client: Client) -> None:
    sign_in(chrome, client, "vera")
    features = [{"name": "prefers-color-scheme", "value": "dark"}]
    chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    open_sweep(chrome, client.address, sweeps.SWEEP_ID)
    assert chrome.find_element(By.TAG_NAME, "body").value_of_css_property("background-color") in {
        "rgb(20, 24, 29)",
        "rgba(20, 24, 29, 1)",
    }
    browser.until("the curves", lambda: chrome.find_elements(By.TAG_NAME, "polyline"))
    phone = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    widths = "return [document.documentElement.scrollWidth, window.innerWidth]"
    try:
        browser.until("the width", lambda: chrome.execute_script(widths)[1] == 390)
        for page in ("/", "/machines", "/start", f"/sweeps/{sweeps.SWEEP_ID}", TRIAL):
            chrome.get(f"{client.address}{page}")
            browser.until("the user", lambda: "vera" in shown(chrome, "user"))
            assert chrome.execute_script(widths)[0] <= 390, f"only tables scroll sideways: {page}"
    finally:
        chrome.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_machines_that_nobody_uses_have_no_empty_tables(chrome: webdriver.Chrome, client: Client) -> None:
    sign_in(chrome, client, "vera")
    chrome.get(f"{client.address}/machines")
    browser.until("the summary", lambda: "no machine is in use" in shown(chrome, "content"))
    assert [title.text for title in chrome.find_elements(By.TAG_NAME, "h2") if title.is_displayed()] == []


def test_every_chart_has_a_table_and_a_name(chrome: webdriver.Chrome, client: Client) -> None:
    sign_in(chrome, client, "vera")
    for page in (f"/sweeps/{sweeps.SWEEP_ID}", TRIAL):
        chrome.get(f"{client.address}{page}")
        browser.until("the curves", lambda: chrome.find_elements(By.CSS_SELECTOR, "svg[role=img] polyline"))
        charts = chrome.execute_script(CHARTS)
        assert charts
        assert [chart for chart in charts if not (chart["name"] and chart["tables"])] == []


def test_the_page_of_a_trial_shows_its_attempts_and_its_curve(
    chrome: webdriver.Chrome, client: Client
) -> None:
    sign_in(chrome, client, "vera")
    open_sweep(chrome, client.address)
    browser.until("the trials", lambda: "of " in shown(chrome, "page"))
    chrome.find_element(By.CSS_SELECTOR, "#trials a[href$='/trials/7']").send_keys(Keys.ENTER)
    browser.until("the curve", lambda: chrome.find_elements(By.CSS_SELECTOR, "#curve polyline"))
    assert shown(chrome, "state") == "COMPLETE"
    assert "200 of 200" in shown(chrome, "counts")
    assert "learning_rate" in shown(chrome, "parameters")
    assert shown(chrome, "attempts")
