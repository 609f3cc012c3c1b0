"""What a person sees: MLflow's own pages and the report, in a real browser.

With `SWEEP_SCREENSHOTS=docs/screenshots` the pictures of the documentation are made again.
"""

from __future__ import annotations

import socket
import urllib.request
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import quote

import pytest
from mlflow.tracking import MlflowClient
from selenium.webdriver import ActionChains, Chrome
from selenium.webdriver.common.by import By

from orchestrator.ledger.ledger import Ledger
from orchestrator.paths import Paths
from orchestrator.report import report
from orchestrator.tracking.mlflow_sink import Destination, MlflowSink
from tests import sweeps
from tests.end_to_end import browser
from tests.end_to_end.browser import picture, until
from tests.end_to_end.conftest import Commands

pytestmark = pytest.mark.end_to_end

_OF_MLFLOW_ITSELF = ("/users/current", "ResizeObserver", "favicon")
"""Console messages of MLflow 3.17's own pages."""

_TRAINING = "?workflowType=machine_learning"
"""MLflow 3 opens on its pages for chats unless told otherwise."""


@pytest.fixture
def finished(tmp_path: Path) -> Paths:
    """Return the folders of a finished sweep and its report; MLflow has not been told."""
    browser.require()
    paths = Paths(tmp_path / "mlruns")
    paths.create()
    ledger = Ledger.open(paths.ledger_url)
    sweeps.fill(ledger, tmp_path / "checkpoints")
    told = report.conclude(ledger, sweeps.SWEEP_ID, paths, "COMPLETE")
    ledger.set_sweep_state(sweeps.SWEEP_ID, "COMPLETE", events=told)
    ledger.close()
    return paths


@pytest.fixture
def delivered(finished: Paths) -> Paths:
    """Return the folders of a finished sweep that MLflow has been told of."""
    ledger = Ledger.open(finished.ledger_url)
    pending = ledger.pending(sweeps.SWEEP_ID, 1000)
    to = Destination(finished.tracking_uri, str(finished.artifacts), "retrieval", sweeps.SWEEP_ID, "1.25")
    assert MlflowSink(to).apply([row.event for row in pending]) == []
    ledger.close()
    return finished


def test_a_sweep_on_mlflows_pages(delivered: Paths, commands: Commands, tmp_path: Path) -> None:
    port = _free_port()
    server = commands.start("ui", "--port", str(port))
    try:
        until("a healthy server", lambda: _status(f"http://127.0.0.1:{port}/health") == 200)
        _strangers_are_refused(f"http://127.0.0.1:{port}/api/2.0/mlflow/experiments")
        with browser.opened(tmp_path / "profile") as chrome:
            _look_around(chrome, f"http://127.0.0.1:{port}/#/experiments", _run_ids(delivered))
    finally:
        server.terminate()
        server.wait(15)


def _look_around(chrome: Chrome, root: str, runs: dict[str, str]) -> None:
    experiment = f"{root}/{runs['experiment']}/runs"
    _open(chrome, f"{experiment}{_TRAINING}", sweeps.SWEEP_ID[:12])
    _runs_are_listed(chrome)
    _open(chrome, f"{experiment}/{runs['0007']}/model-metrics{_TRAINING}", "hidden_norm")
    _hidden_norms_are_charted(chrome)
    sweep = f"{experiment}/{runs[sweeps.SWEEP_ID]}"
    _open(chrome, f"{sweep}{_TRAINING}", "Trial 7 reaches")
    picture(chrome, "sweep")
    _follow_the_link_to_the_curves(chrome)
    _open(chrome, f"{sweep}/artifacts/hidden_norms.html{_TRAINING}", "leaderboard.csv")
    _the_figure_is_drawn(chrome)
    assert browser.errors(chrome, allowed=_OF_MLFLOW_ITSELF) == []


def _open(chrome: Chrome, url: str, text: str) -> None:
    chrome.get("about:blank")  # the pages share one address before the #, and would not be loaded again
    chrome.get(url)
    until(f"`{text}` on {url}", lambda: text in chrome.find_element(By.TAG_NAME, "body").text)
    _close_assistant(chrome)


def _close_assistant(chrome: Chrome) -> None:
    for button in chrome.find_elements(
        By.CSS_SELECTOR, "[data-component-id='mlflow.assistant.chat_panel.close']"
    ):
        button.click()


def _runs_are_listed(chrome: Chrome) -> None:
    until("nine runs", lambda: "9 matching runs" in chrome.find_element(By.TAG_NAME, "body").text)
    expander = "button[data-component-id*='runnamecellrenderer']"
    until("a sweep to unfold", lambda: chrome.find_elements(By.CSS_SELECTOR, expander))[0].click()
    body = chrome.find_element(By.TAG_NAME, "body")
    until("the trials below it", lambda: all(f"000{number}" in body.text for number in range(8)))
    picture(chrome, "runs")


def _hidden_norms_are_charted(chrome: Chrome) -> None:
    def drawn() -> list[int]:
        plots = chrome.find_elements(By.CSS_SELECTOR, ".js-plotly-plot")
        return [len(plot.find_elements(By.CSS_SELECTOR, ".scatterlayer .point")) for plot in plots]

    until("a chart a layer, a point a report", lambda: drawn()[: sweeps.LAYERS] == [5] * sweeps.LAYERS)
    text = chrome.find_element(By.TAG_NAME, "body").text
    assert "layer_0" in text
    assert "layer_1" in text
    picture(chrome, "trial")


def _follow_the_link_to_the_curves(chrome: Chrome) -> None:
    for more in chrome.find_elements(By.XPATH, "//*[text()='Show more']"):
        more.click()
    here = chrome.current_window_handle
    until("the link", lambda: chrome.find_elements(By.LINK_TEXT, "Curves of its trials"))[0].click()
    chrome.switch_to.window(until("its page", lambda: [h for h in chrome.window_handles if h != here])[0])
    reports = sum(len(sweeps.reports(trial)) for trial in sweeps.trials())

    def points() -> list[int]:
        plots = chrome.find_elements(By.CSS_SELECTOR, ".js-plotly-plot")
        return [len(plot.find_elements(By.CSS_SELECTOR, ".scatterlayer .point")) for plot in plots]

    until("every report of every trial", lambda: any(count >= reports for count in points()))
    _close_assistant(chrome)
    picture(chrome, "curves")
    chrome.close()
    chrome.switch_to.window(here)


def _the_figure_is_drawn(chrome: Chrome) -> None:
    frame = until("the artifact", lambda: chrome.find_elements(By.TAG_NAME, "iframe"))[0]
    chrome.switch_to.frame(frame)
    until("both figures", lambda: _drawn(chrome))
    plots = chrome.find_elements(By.CSS_SELECTOR, ".js-plotly-plot")
    lines = [len(plot.find_elements(By.CSS_SELECTOR, ".scatterlayer .js-line")) for plot in plots]
    assert lines == [sweeps.LAYERS, 2 * sweeps.LAYERS]
    chrome.switch_to.default_content()
    picture(chrome, "figure")


def _drawn(chrome: Chrome) -> bool:
    return bool(chrome.find_element(By.TAG_NAME, "body").get_attribute("data-drawn") == "yes")


def test_the_report_opens_offline(finished: Paths, tmp_path: Path) -> None:
    file = finished.report(sweeps.SWEEP_ID) / "report.html"
    with browser.opened(tmp_path / "profile") as chrome:
        chrome.get(f"file://{quote(str(file))}")
        until("all pictures", lambda: _drawn(chrome))
        picture(chrome, "report")
        plots = chrome.find_elements(By.CSS_SELECTOR, ".plot")
        marks = ".scatterlayer path, .barlayer path, .contourlayer path"
        assert [len(plot.find_elements(By.CSS_SELECTOR, marks)) > 0 for plot in plots] == [True] * 7
        assert browser.errors(chrome) == []
        _sorts_by_a_click(chrome)


def _sorts_by_a_click(chrome: Chrome) -> None:
    table = chrome.find_element(By.CSS_SELECTOR, "table.sortable")
    heading = table.find_element(By.XPATH, ".//th[text()='learning_rate']")
    ActionChains(chrome).click(heading).perform()
    numbers = [
        row.find_elements(By.TAG_NAME, "td")[1].text
        for row in table.find_elements(By.CSS_SELECTOR, "tbody tr")
    ]
    assert numbers == [str(number) for number in range(8)]


def _run_ids(paths: Paths) -> dict[str, str]:
    """Return MLflow's id of each run by its name, and that of the experiment."""
    client = MlflowClient(paths.tracking_uri)
    experiment = client.get_experiment_by_name("retrieval")
    runs = client.search_runs([experiment.experiment_id])
    return {"experiment": experiment.experiment_id, **{run.info.run_name: run.info.run_id for run in runs}}


def _strangers_are_refused(root: str) -> None:
    found = f"{root}/get?experiment_id=1"
    assert _status(found) == 200
    assert _status(found, headers={"Host": "attacker.example"}) == 403
    made = b'{"name": "theirs"}'
    assert _status(f"{root}/create", made, {"Origin": "http://attacker.example"}) == 403


def _status(url: str, data: bytes | None = None, headers: dict[str, str] | None = None) -> int | None:
    """Return the status of a request's answer, or None where nobody answers."""
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **(headers or {})})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(answer.status)
    except HTTPError as error:
        return int(error.code)
    except (URLError, OSError):
        return None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
