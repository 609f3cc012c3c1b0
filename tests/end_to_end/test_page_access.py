"""The page for everybody: controls are reached by keyboard, texts and lines stand out in light and dark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from orchestrator.web.page_routes import STATES as SWEEP_STATES
from tests import sweeps
from tests.end_to_end import browser
from tests.end_to_end.page import open_sweep, open_view, sign_in, views
from tests.orchestrator.web import server
from tests.orchestrator.web.server import Client

pytestmark = [pytest.mark.end_to_end, pytest.mark.usefixtures("silent")]

CONTRAST = """
const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
const over = ([r, g, b, alpha = 1], back, opacity = 1) => (
  [r, g, b].map((part, index) => part * alpha * opacity + back[index] * (1 - alpha * opacity))
);
const linear = (part) => (part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4);
const luminance = (colour) => {
  const [r, g, b] = colour.map(linear);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const contrast = (one, other) => {
  const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
};
const ancestors = (node) => (node ? [...ancestors(node.parentElement), node] : []);
const behind = (node) => ancestors(node).reduce(
  (back, each) => over(numbers(getComputedStyle(each).backgroundColor), back), [255, 255, 255],
);
const opacity = (node) => ancestors(node).reduce((whole, each) => whole * getComputedStyle(each).opacity, 1);
const ratio = (node, colour, back) => contrast(over(numbers(colour), back, opacity(node)), back);
"""
"""Source: WCAG 2.2, definitions of contrast ratio and relative luminance."""

PAIRS = (
    CONTRAST
    + """
const variable = (name) => numbers(sample(`var(--${name})`));
const sample = (colour) => {
  probe.style.backgroundColor = colour;
  return getComputedStyle(probe).backgroundColor;
};
const probe = document.body.appendChild(document.createElement("p"));
const examples = [];
const found = [];
const note = (kind, least, node, colour, back = behind(node)) => found.push({
  kind, least, ratio: ratio(node, colour, back),
  what: `${node.cloneNode().outerHTML.slice(0, 90)} ${node.textContent.trim().slice(0, 30)}`,
});
const example = (name, attributes, parent) => {
  const node = parent.appendChild(document.createElementNS(parent.namespaceURI, name));
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.textContent = name;
  examples.push(node);
};
const content = document.querySelector("main");
for (const state of arguments[0]) example("span", {class: "badge", "data-state": state}, content);
example("p", {class: "problem"}, content);
const chart = content.appendChild(document.createElementNS("http://www.w3.org/2000/svg", "svg"));
for (const kind of arguments[1]) example("polyline", {class: kind, points: "0,0 9,9"}, chart);

const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const node = walker.currentNode.parentElement;
  const isShown = walker.currentNode.data.trim() && node.checkVisibility({visibilityProperty: true});
  if (!isShown || node.closest(":disabled, .unseen, polyline, line, title, option")) continue;
  const style = getComputedStyle(node);
  note("text", 4.5, node, node.closest("svg") ? style.fill : style.color);
  if (node.closest("tbody")) note("text under the pointer", 4.5, node, style.color, variable("soft"));
}
for (const node of document.querySelectorAll("input, textarea, select, button:not(.primary, table button)")) {
  if (!node.checkVisibility() || node.disabled) continue;
  const around = behind(node.parentElement);
  note("edge", 3, node, getComputedStyle(node).borderTopColor, around);
  note("text", 4.5, node, getComputedStyle(node).color);
  if (node.placeholder) note("placeholder", 4.5, node, getComputedStyle(node, "::placeholder").color);
}
for (const node of document.querySelectorAll("svg polyline:not([class^=rank]), svg line.axis")) {
  note("line", 3, node, getComputedStyle(node).stroke);
}
note("focus", 3, content, sample("var(--accent)"));
note("bar", 3, content, sample("var(--accent)"), variable("soft"));
for (const node of [...examples, chart, probe]) node.remove();
return found;
"""
)

FOLLOW = """
window.reached = new Set();
window.unmarked = [];
document.addEventListener("focusin", ({target}) => {
  const {outlineStyle, outlineWidth} = getComputedStyle(target);
  const isMarked = outlineStyle !== "none" && parseFloat(outlineWidth) >= 2;
  window.reached.add(target);
  if (!isMarked) window.unmarked.push(target.outerHTML.slice(0, 80));
});
"""

MISSED = """
const all = "a[href], button, input, select, textarea, summary, [tabindex='0']";
return {
  missed: [...document.querySelectorAll(all)]
    .filter((node) => node.checkVisibility() && !node.disabled && !window.reached.has(node))
    .filter((node) => node.type !== "radio" || node.checked) // the arrow keys reach the others
    .map((node) => node.outerHTML.slice(0, 80)),
  unmarked: window.unmarked,
  count: window.reached.size,
};
"""

STATES = ("PREEMPTED", "PRUNED", *SWEEP_STATES)
LINES = (
    "other",
    "best",
    *(f"running run-{number}" for number in range(8)),
    "median",
    "reference",
    "layer-0",
    "layer-1",
    "layer-2",
    "layer-3",
)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with server.served(tmp_path_factory.mktemp("page") / "mlruns") as served:
        yield served


@contextmanager
def scheme(chrome: webdriver.Chrome, name: str) -> Iterator[None]:
    """Let the browser prefer `light` or `dark` for the length of a `with` block."""
    features = [{"name": "prefers-color-scheme", "value": name}]
    chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    try:
        yield
    finally:
        chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def faint(chrome: webdriver.Chrome) -> list[str]:
    """Return what stands out too little on the page: text below 4.5:1, edges and lines below 3:1."""
    found = chrome.execute_script(PAIRS, STATES, LINES)
    assert len(found) > len(STATES) + len(LINES)
    weak = [pair for pair in found if pair["ratio"] < pair["least"]]
    return sorted({f"{pair['kind']}, {pair['what']}: {pair['ratio']:.2f}" for pair in weak})


@pytest.mark.slow
def test_texts_and_lines_stand_out_in_light_and_dark(chrome: webdriver.Chrome, client: Client) -> None:
    """Level AA of WCAG 2.2. Parallel coordinates fade on purpose: their table has the values."""
    sign_in(chrome, client, "ada")
    for path in views():
        open_view(chrome, client.address, path)
        for name in ("light", "dark"):
            with scheme(chrome, name):
                assert faint(chrome) == [], f"{path} in {name}"
    assert browser.errors(chrome, statuses=(404,)) == [], "the sweep has no log"


def test_a_faint_colour_is_noticed(chrome: webdriver.Chrome, client: Client) -> None:
    sign_in(chrome, client, "ada")
    with scheme(chrome, "light"):
        chrome.execute_script("document.documentElement.style.setProperty('--muted', '#777777')")
        assert any("text" in pair and pair.endswith(": 4.48") for pair in faint(chrome))
        chrome.execute_script("document.documentElement.style.setProperty('--edge', '#969696')")
        assert any("edge" in pair and pair.endswith(": 2.96") for pair in faint(chrome))


@pytest.mark.slow
def test_every_control_is_reached_by_keyboard_and_marked(chrome: webdriver.Chrome, client: Client) -> None:
    sign_in(chrome, client, "ada")
    for path in views():
        open_view(chrome, client.address, path)
        chrome.execute_script(FOLLOW)
        count = len(
            chrome.find_elements(
                By.CSS_SELECTOR, "a, button, input, select, textarea, summary, pre, [tabindex]"
            )
        )
        ActionChains(chrome).send_keys(Keys.TAB * (count + 5)).perform()
        found = chrome.execute_script(MISSED)
        assert found["count"] > 3
        assert (found["missed"], found["unmarked"]) == ([], []), path
    assert browser.errors(chrome, statuses=(404,)) == [], "the sweep has no log"


def test_a_row_is_opened_with_the_enter_key(chrome: webdriver.Chrome, client: Client) -> None:
    sign_in(chrome, client, "vera")
    open_sweep(chrome, client.address)
    browser.until("the trials", lambda: chrome.find_elements(By.CSS_SELECTOR, "#trials a"))
    chrome.execute_script("[...document.querySelectorAll('#sort button')].at(-1).focus()")
    ActionChains(chrome).send_keys(Keys.TAB, Keys.ENTER).perform()
    browser.until("the trial", lambda: chrome.current_url.endswith(f"/sweeps/{sweeps.SWEEP_ID}/trials/7"))
