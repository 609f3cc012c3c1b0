"""MLflow's own pages and the report of a sweep, in a real browser.

The same steps take the screenshots of the documentation, from a sweep that was really run:
`SWEEP_SCREENSHOTS=docs/screenshots SWEEP_SCREENSHOTS_OF=mlruns pytest tests/end_to_end/test_mlflow_ui.py`.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import quote

import psutil
import pytest
from mlflow.tracking import MlflowClient
from selenium.webdriver import ActionChains, Chrome
from selenium.webdriver.common.by import By

from orchestrator.driver import publication
from orchestrator.ledger.ledger import Ledger
from orchestrator.report.figures.curves import layers
from orchestrator.report.history import History, read
from orchestrator.report.summary import LeaderboardRow, Summary, summarise
from orchestrator.storage.paths import Paths
from orchestrator.tracking import events
from orchestrator.tracking.mlflow_sink import Destination
from tests import sweeps
from tests.end_to_end import browser
from tests.end_to_end.browser import picture, until
from tests.end_to_end.commands import Commands
from tests.orchestrator.tracking.stored import deliver

pytestmark = pytest.mark.end_to_end

_OF_MLFLOW_ITSELF = ("/users/current", "ResizeObserver", "favicon")
"""Parts of console messages that MLflow 3.17's own pages cause."""

_DRAWN = 10
"""Number of runs whose curves MLflow draws by default: the first ones of the list."""

_NOBODY = 65534
_PYTHON = Path("/usr/bin/python3")
"""A Python that other accounts may run, which those of a home folder are not."""

_STRANGER = """
import http.client, socket, sys

EXPERIMENTS, ALIAS = "/ajax-api/2.0/mlflow/experiments/", "/ajax-api/2.0/mlflow/registered-models/alias"
for method, path, host in (
    ("GET", EXPERIMENTS + "get?experiment_id=1", None),
    ("GET", "/get-artifact?path=/etc/passwd&run_uuid=1", None),
    ("POST", EXPERIMENTS + "create", None),
    ("POST", ALIAS, "evil.example"),
):
    connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=10)
    headers = {"Content-Type": "application/json", **({"Host": host} if host else {})}
    connection.request(method, path, b"{}" if method == "POST" else None, headers)
    print(connection.getresponse().status)
try:
    socket.socket(socket.AF_UNIX).connect(sys.argv[2])
except OSError as error:
    print(type(error).__name__)
"""
"""What another account tries: to read and write over the port, and to connect to MLflow's own socket."""

_TRAINING = "?workflowType=machine_learning"
"""Query that selects the pages for training; by default MLflow 3 opens those for chats."""


@dataclass(frozen=True)
class Finished:
    """A sweep that has ended: its paths, its history and the summary of its history."""

    paths: Paths
    history: History
    summary: Summary

    @property
    def chosen(self) -> str:
        """Return the name of the chosen trial's run."""
        assert self.summary.chosen is not None
        return f"{self.summary.chosen.row.number} · {self.summary.chosen.row.value:.4g}"

    @property
    def layers(self) -> int:
        """Return the number of layers that report their hidden norm."""
        assert self.summary.chosen is not None
        return len(layers(self.history, [self.summary.chosen.row.key]))


@pytest.fixture
def finished(tmp_path: Path) -> Finished:
    """Return a finished sweep with its report: a sample, or a copy of the newest sweep of another root."""
    browser.require()
    paths = Paths(tmp_path / "mlruns")
    shown = os.environ.get("SWEEP_SCREENSHOTS_OF")
    if shown is None:
        paths.create()
        _sample(paths, tmp_path / "checkpoints")
    else:
        shutil.copytree(shown, paths.root)
    ledger = Ledger.open(paths.ledger_url)
    history = read(ledger, ledger.sweeps()[-1].id)
    ledger.close()
    return Finished(paths, history, summarise(history))


def _sample(paths: Paths, checkpoints: Path) -> None:
    """Write a small sweep to the ledger, and deliver its events to MLflow."""
    ledger = Ledger.open(paths.ledger_url)
    sweeps.fill(ledger, checkpoints)
    closing = publication.conclude(ledger, sweeps.SWEEP_ID, paths, "COMPLETE")
    sweeps.writer_of(ledger).set_sweep_state("COMPLETE", events=closing)
    pending = ledger.pending(sweeps.SWEEP_ID, 1000)
    to = Destination(paths.tracking_uri, str(paths.artifacts), "retrieval", sweeps.SWEEP_ID, "1.25")
    curves = [event for report in pending.reports for event in events.of_report(report)]
    refused = deliver(to, [*(row.event for row in pending.events), *curves])
    # The checkpoint of the sample holds no weights, so it cannot be registered as a model.
    assert [refusal.kind for refusal in refused] == ["model"]
    ledger.close()


@pytest.mark.slow
def test_a_sweep_on_mlflows_pages(finished: Finished, commands: Commands, tmp_path: Path) -> None:
    port = _free_port()
    root = f"http://127.0.0.1:{port}"
    server = commands.start("ui", "--port", str(port))
    try:
        assert server.stdout is not None
        link = server.stdout.readline().split()[-1]
        assert link.startswith(root)
        until("a healthy server", lambda: _status(f"{root}/health") == 200)
        _check_other_accounts_reach_nothing(server.pid, port)
        with browser.opened(tmp_path / "profile") as chrome:
            chrome.get(link)
            until(
                "the first page", lambda: "key=" not in chrome.current_url and "Experiments" in _text(chrome)
            )
            assert _status(link) == 403, "it works once"
            _check_other_sites_are_refused(chrome, root)
            _check_pages(chrome, f"{root}/#/experiments", finished)
    finally:
        server.terminate()
        server.wait(15)


def _check_pages(chrome: Chrome, root: str, finished: Finished) -> None:
    runs = _run_ids(finished)
    sweep_id = finished.history.sweep.id
    experiment = f"{root}/{runs['experiment']}/runs"
    _open(chrome, f"{experiment}{_TRAINING}", sweep_id[:12])
    _check_runs_are_listed(chrome, finished)
    _open(chrome, f"{experiment}/{runs[finished.chosen]}/model-metrics{_TRAINING}", "hidden_norm")
    _check_hidden_norms_are_charted(chrome, finished)
    sweep = f"{experiment}/{runs[sweep_id]}"
    _open(chrome, f"{sweep}{_TRAINING}", f"Trial {finished.chosen.split()[0]} reaches")
    picture(chrome, "sweep")
    _follow_the_link_to_the_curves(chrome, finished)
    _open(chrome, f"{sweep}/artifacts/hidden_norms.html{_TRAINING}", "leaderboard.csv")
    _check_figure_is_drawn(chrome, finished)
    assert browser.errors(chrome, allowed=_OF_MLFLOW_ITSELF) == []


def _open(chrome: Chrome, url: str, text: str) -> None:
    chrome.get("about:blank")  # the pages differ only after the #, so the browser would not load another one
    chrome.get(url)
    until(f"`{text}` on {url}", lambda: text in _text(chrome))
    _close_assistant(chrome)


def _text(chrome: Chrome) -> str:
    return str(chrome.find_element(By.TAG_NAME, "body").text)


def _close_assistant(chrome: Chrome) -> None:
    close = "[data-component-id='mlflow.assistant.chat_panel.close']"
    for button in chrome.find_elements(By.CSS_SELECTOR, close):
        button.click()


def _check_runs_are_listed(chrome: Chrome, finished: Finished) -> None:
    count = len(finished.history.trials) + 1
    until(f"{count} runs", lambda: f"{count} matching runs" in _text(chrome))
    expander = "button[data-component-id*='runnamecellrenderer']"
    until("a sweep to expand", lambda: chrome.find_elements(By.CSS_SELECTOR, expander))[0].click()
    newest = [str(trial.number) for trial in finished.history.search()[-8:]]
    until("the trials below it", lambda: all(name in _text(chrome) for name in newest))
    picture(chrome, "runs")


def _points(chrome: Chrome) -> list[int]:
    """Return the number of points in each chart on the page."""
    plots = chrome.find_elements(By.CSS_SELECTOR, ".js-plotly-plot")
    return [len(plot.find_elements(By.CSS_SELECTOR, ".scatterlayer .point")) for plot in plots]


def _check_hidden_norms_are_charted(chrome: Chrome, finished: Finished) -> None:
    assert finished.summary.chosen is not None
    # Of a head, of the whole state and the expected one, each from step 0.
    charts = 3 * finished.layers
    expected = [len(finished.history.reports[finished.summary.chosen.row.key]) + 1] * charts
    size = chrome.get_window_size()
    chrome.set_window_size(size["width"], 3000)  # MLflow draws the charts that are in the window
    until(
        "charts for each layer with a point for each report",
        lambda: _points(chrome)[:charts] == expected,
    )
    chrome.set_window_size(size["width"], size["height"])
    assert all(f"layer_{layer}" in _text(chrome) for layer in range(finished.layers))
    picture(chrome, "trial")


def _follow_the_link_to_the_curves(chrome: Chrome, finished: Finished) -> None:
    for more in chrome.find_elements(By.XPATH, "//*[text()='Show more']"):
        more.click()
    first_window = chrome.current_window_handle
    until("the link", lambda: chrome.find_elements(By.LINK_TEXT, "Curves of its trials"))[0].click()
    chrome.switch_to.window(
        until("a second window", lambda: set(chrome.window_handles) - {first_window}).pop()
    )
    best = [row.key for row in sorted(finished.summary.rows, key=_as_mlflow_sorts)][:_DRAWN]
    reports = sum(len(finished.history.reports.get(key, ())) for key in best)
    until("every report of the best trials", lambda: any(count >= reports for count in _points(chrome)))
    _close_assistant(chrome)
    picture(chrome, "curves")
    chrome.close()
    chrome.switch_to.window(first_window)


def _as_mlflow_sorts(row: LeaderboardRow) -> tuple[bool, float]:
    """Return a sort key: the best objective first, trials without an objective last."""
    return row.value is None, -(row.value or 0.0)


def _check_figure_is_drawn(chrome: Chrome, finished: Finished) -> None:
    frame = until("the artifact", lambda: chrome.find_elements(By.TAG_NAME, "iframe"))[0]
    chrome.switch_to.frame(frame)
    until("every figure", lambda: _drawn(chrome))
    plots = chrome.find_elements(By.CSS_SELECTOR, ".js-plotly-plot")
    lines = [len(plot.find_elements(By.CSS_SELECTOR, ".scatterlayer .js-line")) for plot in plots]
    # Of a head with the expected norms, of the whole state, and over several trials with bands.
    assert lines == [2 * finished.layers, finished.layers, 2 * finished.layers]
    chrome.switch_to.default_content()
    picture(chrome, "figure")


def _drawn(chrome: Chrome) -> bool:
    """Scroll to the figures that are not drawn yet, and return True once there are none."""
    waiting = chrome.find_elements(By.CSS_SELECTOR, ".plot:not([data-drawn])")
    for plot in waiting:
        chrome.execute_script("arguments[0].scrollIntoView({block: 'center'})", plot)
        time.sleep(0.2)
    return not waiting and bool(chrome.find_elements(By.CSS_SELECTOR, ".plot"))


@pytest.mark.slow
def test_the_report_opens_offline(finished: Finished, tmp_path: Path) -> None:
    file = finished.paths.report(finished.history.sweep.id) / "report.html"
    with browser.opened(tmp_path / "profile") as chrome:
        chrome.get(f"file://{quote(str(file))}")
        until("every figure", lambda: _drawn(chrome))
        chrome.execute_script("scrollTo(0, 0)")
        picture(chrome, "report")
        plots = chrome.find_elements(By.CSS_SELECTOR, ".plot")
        marks = ".scatterlayer path, .barlayer path, .contourlayer path"
        assert len(plots) >= 7
        assert all(plot.find_elements(By.CSS_SELECTOR, marks) for plot in plots)
        assert browser.errors(chrome) == []
        _check_sorting_by_a_click(chrome, finished)
        chrome.execute_script("window.scrollTo(0, arguments[0])", plots[1].rect["y"] - 120)
        picture(chrome, "report-curves")


def _check_sorting_by_a_click(chrome: Chrome, finished: Finished) -> None:
    table = chrome.find_element(By.CSS_SELECTOR, "table.sortable")
    heading = table.find_element(By.XPATH, ".//th[text()='trial']")
    ActionChains(chrome).click(heading).perform()
    rows = table.find_elements(By.CSS_SELECTOR, "tbody tr")
    numbers = [int(row.find_elements(By.TAG_NAME, "td")[1].text) for row in rows]
    assert numbers == sorted(row.number for row in finished.summary.rows)


def _run_ids(finished: Finished) -> dict[str, str]:
    """Return the MLflow id of each run by the name of the run, and that of the experiment."""
    client = MlflowClient(finished.paths.tracking_uri)
    experiment = client.get_experiment_by_name(finished.history.sweep.task)
    runs = client.search_runs([experiment.experiment_id])
    return {"experiment": experiment.experiment_id, **{run.info.run_name: run.info.run_id for run in runs}}


def _check_other_accounts_reach_nothing(pid: int, port: int) -> None:
    """Ask as another account, at every address on which a process of the command listens."""
    if os.geteuid() != 0 or not _PYTHON.exists():
        return
    family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    listening = [
        connection.laddr
        for process in family
        for connection in process.net_connections("all")
        if connection.status == psutil.CONN_LISTEN
        or (connection.family == socket.AF_UNIX and connection.laddr)
    ]
    assert [address for address in listening if not isinstance(address, str)] == [("127.0.0.1", port)]
    (own,) = {address for address in listening if isinstance(address, str) and "sweep-ui-" in address}
    done = subprocess.run(
        [str(_PYTHON), "-I", "-S", "-c", _STRANGER, str(port), own],
        user=_NOBODY,
        group=_NOBODY,
        extra_groups=[],
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["403", "403", "403", "403", "PermissionError"]


def _check_other_sites_are_refused(chrome: Chrome, root: str) -> None:
    [cookie] = chrome.get_cookies()
    own = {"Cookie": f"{cookie['name']}={cookie['value']}"}
    address = f"{root}/ajax-api/2.0/mlflow/experiments"
    assert _status(f"{address}/get?experiment_id=1", headers=own) == 200
    assert _status(f"{address}/get?experiment_id=1", headers={**own, "Host": "attacker.example"}) == 403
    experiment = b'{"name": "attack"}'
    assert _status(f"{address}/create", experiment, {**own, "Origin": "http://attacker.example"}) == 403
    elsewhere = b'{"name": "attack", "artifact_location": "file:///etc"}'
    assert _status(f"{address}/create", elsewhere, {**own, "Origin": root}) == 400
    assert _status(f"{root}/get-artifact?run_uuid=1&path=/etc/passwd", headers=own) == 400


def _status(url: str, data: bytes | None = None, headers: dict[str, str] | None = None) -> int | None:
    """Return the HTTP status of a request, or None if no server answers."""
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
