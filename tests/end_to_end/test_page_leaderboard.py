"""The leaderboard and the charts: filters, columns, files, scales, the crosshair and the brush."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests import sweeps
from tests.end_to_end import browser
from tests.end_to_end.page import first_trial, open_sweep, running, shown, sign_in
from tests.orchestrator.web import server
from tests.orchestrator.web.server import Client

pytestmark = [pytest.mark.end_to_end, pytest.mark.usefixtures("silent")]

SAVED = """
const done = arguments[arguments.length - 1];
const create = URL.createObjectURL;
URL.createObjectURL = (blob) => {
  URL.createObjectURL = create;
  blob.text().then((text) => done([blob.type, text]));
  return create.call(URL, blob);
};
HTMLAnchorElement.prototype.click = () => undefined; // the headless browser has no folder for it
document.getElementById(arguments[0]).click();
"""
"""Clicks a button and returns type and content of the file that the page offers then."""

OUTLIER = """
const done = arguments[arguments.length - 1];
(async () => {
  const { chart } = await import("/assets/charts.js");
  const svg = document.getElementById("curves");
  const line = (key, value) => ({ key, name: `trial ${key}`, kind: "other", points: [[1, 2], [2, value]] });
  const lines = [...Array(19).keys()].map((key) => line(key, 1 + key / 20)).concat([line(99, 1e7)]);
  const given = { lines, legend: [], across: "step", down: "val/loss" };
  const found = {};
  for (const scale of [null, "linear", "log"]) {
    const drawn = chart(svg, document.getElementById("curves-legend"), { ...given, scale });
    const labels = [...svg.querySelectorAll("text")].map((node) => node.textContent);
    const lowest = svg.querySelector("polyline[data-key='0']").getBBox().height;
    found[String(scale)] = [drawn, labels, lowest, svg.querySelectorAll(".arrow").length];
  }
  return found;
})().then(done, (error) => done(String(error)));
"""

OWN_KEYS = """
const lines = [...document.querySelectorAll("#curves [data-key]")];
return [...new Set(lines.map((line) => line.dataset.key))].sort();
"""

SMOOTH = """
const range = document.getElementById("smoothing");
range.value = 0.9;
range.dispatchEvent(new Event("change", {bubbles: true}));
"""

PATH = "return document.querySelector('#curves polyline.best').getAttribute('points')"

HALVES = """
const axis = document.querySelectorAll("#parallel line.axis")[arguments[0]].getBoundingClientRect();
const node = document.getElementById("parallel").getBoundingClientRect();
return [axis.x - node.x - node.width / 2, axis.top - node.top - node.height / 2, axis.height];
"""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with server.served(tmp_path_factory.mktemp("page") / "mlruns") as served:
        yield served


@pytest.fixture(autouse=True)
def page(chrome: webdriver.Chrome, client: Client) -> None:
    """Open the page of the sweep with its eight trials."""
    sign_in(chrome, client, "vera")
    open_sweep(chrome, client.address)
    browser.until("the trials", lambda: shown(chrome, "page") == "8 of 8")


def headings(chrome: webdriver.Chrome) -> list[str]:
    return [cell.text.split(" ▲")[0] for cell in chrome.find_elements(By.CSS_SELECTOR, "#sort th")]


def query(chrome: webdriver.Chrome) -> dict[str, list[str]]:
    return parse_qs(urlsplit(chrome.current_url).query)


def filter_by(chrome: webdriver.Chrome, text: str) -> None:
    field = chrome.find_element(By.ID, "where")
    field.clear()
    field.send_keys(text, Keys.ENTER)


def test_each_hyperparameter_has_a_column_and_the_best_trial_is_first(chrome: webdriver.Chrome) -> None:
    names = headings(chrome)
    assert names[:6] == ["#", "trial", "state", "val/accuracy", "last", "step"]
    assert {"learning_rate", "gamma_init.min", "theta_init.max"} <= set(names)
    assert first_trial(chrome) == "7"


@pytest.mark.slow
def test_a_filter_selects_rows_curves_and_lines_and_is_in_the_address(chrome: webdriver.Chrome) -> None:
    filter_by(chrome, "learning_rate < 5e-3 and state = complete")
    browser.until("the rows", lambda: shown(chrome, "page") == "2 of 2")
    browser.until("their curves", lambda: chrome.execute_script(OWN_KEYS) == ["0", "2"])
    assert query(chrome) == {"where": ["learning_rate < 5e-3 and state = complete"]}
    chrome.refresh()
    browser.until("the rows again", lambda: shown(chrome, "page") == "2 of 2")
    filter_by(chrome, "")
    browser.until("all rows", lambda: shown(chrome, "page") == "8 of 8")
    assert query(chrome) == {}


def test_a_filter_that_cannot_be_read_is_refused_below_it(chrome: webdriver.Chrome) -> None:
    filter_by(chrome, "speed > 1")
    browser.until("the refusal", lambda: "must name a column" in shown(chrome, "where-problem"))
    assert chrome.find_element(By.ID, "where").get_attribute("aria-invalid") == "true"
    filter_by(chrome, "number > 5")
    browser.until("the rows", lambda: shown(chrome, "page") == "2 of 2")
    assert shown(chrome, "where-problem") == ""
    browser.errors(chrome, statuses=(422,))


@pytest.mark.slow
def test_columns_are_chosen_and_saved_as_csv_and_json(chrome: webdriver.Chrome) -> None:
    chrome.find_element(By.CSS_SELECTOR, "#filter .menu summary").click()
    for name in ("val/loss", "gamma_init.min"):
        chrome.find_element(By.CSS_SELECTOR, f"#columns input[data-name='{name}']").click()
        browser.until(name, lambda name=name: (name in headings(chrome)) == (name == "val/loss"))
    kind, text = chrome.execute_async_script(SAVED, "csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert kind == "text/csv"
    assert [row["trial"] for row in rows] == ["7", "6", "4", "5", "2", "1", "0", "3"]
    assert float(rows[0]["val/loss"]) == pytest.approx(1.25 - sweeps.accuracy(7, sweeps.STEPS))
    assert "gamma_init.min" not in rows[0]
    kind, text = chrome.execute_async_script(SAVED, "json")
    found: list[dict[str, Any]] = json.loads(text)
    assert (kind, found[0]["learning_rate"], found[0]["rank"]) == ("application/json", 8e-3, 1)


def test_outliers_become_arrows_and_the_others_keep_their_room(chrome: webdriver.Chrome) -> None:
    found = chrome.execute_async_script(OUTLIER)
    scale, labels, height, arrows = found["null"]
    assert (scale, arrows) == ("percentile", 1)
    assert any("1 trial above" in label for label in labels)
    assert height > 50
    scale, labels, height, arrows = found["linear"]
    assert (scale, arrows, height < 1) == ("linear", 0, True), "all values, the good ones flat"
    assert "10M" in labels
    assert found["log"][0] == "log"
    assert found["log"][2] > 5


@pytest.mark.slow
def test_the_crosshair_names_values_and_a_click_opens_the_trial(chrome: webdriver.Chrome) -> None:
    curves = chrome.find_element(By.ID, "curves")
    browser.until("the curves", lambda: chrome.find_elements(By.CSS_SELECTOR, "#curves polyline.best"))
    chrome.execute_script("arguments[0].scrollIntoView({block: 'center'}); arguments[0].focus()", curves)
    curves.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    text = shown(chrome, "curves-at")
    assert text.startswith("step 80: ")
    assert "trial 7" in text
    references = [node.text for node in chrome.find_elements(By.CSS_SELECTOR, "#curves text")]
    assert any(label.startswith("chance 0.502") for label in references)
    curves.send_keys(Keys.ENTER)
    browser.until("a trial", lambda: "/trials/" in chrome.current_url)


@pytest.mark.slow
def test_a_row_under_the_pointer_lights_its_curve(chrome: webdriver.Chrome) -> None:
    browser.until("the curves", lambda: chrome.find_elements(By.CSS_SELECTOR, "#curves polyline.best"))
    row = chrome.find_element(By.CSS_SELECTOR, "#trials tr[data-trial='4'] td:nth-child(3)")
    ActionChains(chrome).move_to_element(row).perform()
    browser.until("the line", lambda: chrome.find_elements(By.CSS_SELECTOR, "#curves .lit[data-key='4']"))


@pytest.mark.slow
def test_a_second_metric_and_another_axis_are_drawn(chrome: webdriver.Chrome) -> None:
    browser.until("the curves", lambda: chrome.find_elements(By.CSS_SELECTOR, "#curves polyline.best"))
    chrome.find_element(By.CSS_SELECTOR, "#curve-options summary").click()
    chrome.find_element(By.CSS_SELECTOR, "#metric-beside option[value='train/loss']").click()
    browser.until("its chart", lambda: chrome.find_elements(By.CSS_SELECTOR, "#curves-beside polyline"))
    chrome.find_element(By.CSS_SELECTOR, "#axis option[value=examples]").click()

    def labels() -> list[str]:
        return [node.text for node in chrome.find_elements(By.CSS_SELECTOR, "#curves text")]

    browser.until("the axis", lambda: "examples" in labels())
    assert any(label.isdigit() and int(label) > 1000 for label in labels()), "200 steps of 32 examples"
    before = chrome.execute_script(PATH)
    chrome.execute_script(SMOOTH)
    browser.until("smooth curves", lambda: chrome.execute_script(PATH) not in {before, None})


@pytest.mark.slow
def test_a_drag_along_an_axis_filters_the_trials(chrome: webdriver.Chrome) -> None:
    chrome.find_element(By.CSS_SELECTOR, "#parallel-section summary").click()
    browser.until("the lines", lambda: chrome.find_elements(By.CSS_SELECTOR, "#parallel polyline"))
    lines = chrome.find_element(By.ID, "parallel")
    chrome.execute_script("arguments[0].scrollIntoView({block: 'center'})", lines)
    across, top, height = chrome.execute_script(HALVES, 0)
    drag = ActionChains(chrome).move_to_element_with_offset(lines, across, top - 5).click_and_hold()
    drag.move_by_offset(0, round(height * 0.5) + 5).release().perform()
    browser.until("the filter", lambda: query(chrome).get("where", [""])[0].startswith("value >= 0."))
    browser.until("fewer rows", lambda: shown(chrome, "page") not in {"8 of 8", ""})
    others = (By.CSS_SELECTOR, "#parallel polyline.out")
    browser.until("the others, which stay, faint", lambda: chrome.find_elements(*others))
    chrome.find_element(By.ID, "no-filter").click()
    browser.until("all rows", lambda: shown(chrome, "page") == "8 of 8")


@pytest.mark.slow
def test_changes_say_what_they_have_done(chrome: webdriver.Chrome, client: Client) -> None:
    sign_in(chrome, client, "ada")
    open_sweep(chrome, client.address)
    chrome.find_element(By.CSS_SELECTOR, "#change summary").click()
    weight = chrome.find_element(By.ID, "weight")
    weight.clear()
    weight.send_keys("2", Keys.ENTER)
    browser.until("the answer", lambda: "weight 2 now" in shown(chrome, "changed"))


@pytest.mark.slow
def test_a_running_trial_has_colour_and_dashes_of_its_own(chrome: webdriver.Chrome, tmp_path: Path) -> None:
    with server.served(tmp_path / "mlruns") as client, running(client, 30) as report:
        report(40, 0.6)
        sign_in(chrome, client, "vera")
        open_sweep(chrome, client.address)
        [line] = browser.until("its line", lambda: chrome.find_elements(By.CSS_SELECTOR, "#curves .running"))
        assert line.get_attribute("class") == "running run-6"
        assert line.value_of_css_property("stroke-dasharray") != "none"
        chrome.get("about:blank")  # before its server ends
