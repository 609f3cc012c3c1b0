"""How long the page takes to answer: the actions between opening a sweep and reading the answer.

Each test of an answer without a click requires that it is in the first viewport of 1440 x 900 pixels.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from orchestrator import Sweep
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.queue import submissions
from orchestrator.ledger.queue.submissions import SubmissionWriter
from orchestrator.ledger.rows import ATTEMPTS, CHECKPOINTS, REPORTS, TRIALS
from orchestrator.ledger.sweeps.lease import Lease
from orchestrator.ledger.sweeps.records import CheckpointRecord, ReportRecord, SweepRecord, TrialRecord
from orchestrator.ledger.transaction import Transaction
from tests import sweeps
from tests.end_to_end import browser
from tests.end_to_end.page import open_sweep, shown, sign_in
from tests.orchestrator.ledger import examples
from tests.orchestrator.ledger.examples import create_sweep
from tests.orchestrator.web import server
from tests.orchestrator.web.server import Client

pytestmark = [pytest.mark.end_to_end, pytest.mark.usefixtures("silent")]

RUNNING, FAILED, PARKED = "digits-running-0badf00d", "digits-failed-0badf00d", "digits-parked-0badf00d"
SPACES = Path(__file__).parents[2] / "search_spaces"
CRASH = "KeyError: 'val/accuracy'"
CAUSE = "error: ModuleNotFoundError: No module named 'no_such_package' (train.py, line 37)"

IN_VIEW = """
const node = document.querySelector(arguments[0]);
if (node === null) return null;
const box = node.getBoundingClientRect();
const isShown = node.checkVisibility() && box.width > 0 && box.height > 0;
const isInside = scrollY === 0 && box.top >= 0 && box.bottom <= innerHeight;
return isShown && isInside ? node.innerText || "drawn" : null;
"""
"""Text of an element that is wholly in the first viewport, or null."""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with (
        server.served(tmp_path_factory.mktemp("page") / "mlruns") as served,
        served.workspace.ledger() as ledger,
    ):
        now = ledger.now()
        create_sweep(ledger, sweep(RUNNING, now))
        with Lease(ledger, RUNNING) as lease:
            fill(lease, [trial(RUNNING, number, now) for number in range(16)])
            lease.writer.set_sweep_state("RUNNING")
            create_sweep(ledger, sweep(FAILED, now))
            with Lease(ledger, FAILED) as failed:
                ended = [trial(FAILED, number, now, state="FAILED") for number in range(3)]
                fill(failed, ended)
                failed.writer.set_sweep_state("FAILED", "3 of 3 trials failed")
            writer = sweeps.writer_of(ledger)
            writer.set_sweep_state("COMPLETE", None)
            park(ledger, now)
            yield served


def park(ledger: Ledger, now: float) -> None:
    """Write a sweep of Ada whose driver has crashed five times, with a trial that ran."""
    create_sweep(ledger, sweep(PARKED, now))
    with Lease(ledger, PARKED) as lease:
        fill(lease, [trial(PARKED, number, now) for number in (2, 3, 15)])
        lease.writer.set_sweep_state("RUNNING")
    submissions.submit(ledger, server.order("ada", PARKED), lambda is_known: PARKED)
    seen = submissions.submission(ledger, PARKED)
    assert seen is not None
    columns = {"state": "PARKED", "crashes": 5, "cause": CRASH, "crashed_at": now}
    assert SubmissionWriter(ledger, examples.writer(ledger, "serve").token).change(seen, **columns)


@pytest.fixture
def screen(chrome: webdriver.Chrome) -> Iterator[webdriver.Chrome]:
    """Yield a browser whose viewport has 1440 x 900 pixels."""
    size = {"width": 1440, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    yield chrome
    chrome.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def sweep(sweep_id: str, now: float) -> SweepRecord:
    """Return a sweep that began ten minutes ago, with a limit of hours."""
    base = sweeps.sweep_record()
    document = {**base.document, "name": sweep_id, "budget": {"trials": 20, "hours": 2.0}}
    return replace(
        base,
        id=sweep_id,
        name=sweep_id,
        document=document,
        state="RUNNING",
        finished_at=None,
        created_at=now - 600,
    )


def trial(sweep_id: str, number: int, now: float, *, state: str | None = None) -> TrialRecord:
    """Return a trial: the last two run, the last but one is the best; of the others a fifth was pruned."""
    found = state or ("RUNNING" if number >= 14 else "PRUNED" if number % 5 == 1 else "COMPLETE")
    base = sweeps.trial(number, found)
    is_over = found != "RUNNING"
    step = 160 if not is_over else base.step
    value = base.value if found in {"COMPLETE", "PRUNED"} else None
    return replace(
        base,
        key=f"{sweep_id}-{number}",
        sweep_id=sweep_id,
        cause=CAUSE if found == "FAILED" else None,
        step=step,
        value=value,
        best_step=base.best_step if value is not None else None,
        created_at=now - 590 + 30 * number,
        finished_at=now - 590 + 30 * number + 0.1 * step if is_over else None,
        params={**base.params, "learning_rate": 10 ** (-4 + 3 * ((0.3 * number) % 1))},
    )


def fill(lease: Lease, trials: list[TrialRecord]) -> None:
    """Write trials with attempts and reports; trial 14 is better than all others, trial 15 reports NaN."""

    def value(one: TrialRecord, step: int) -> float:
        if one.number == 15 and step > 80:
            return math.nan
        return sweeps.accuracy(one.number, step) + (0.2 if one.number == 14 else 0.0)

    reports = [
        ReportRecord(
            one.key, step, f"{one.key}.1", {"val/accuracy": value(one, step)}, one.created_at + 0.1 * step
        )
        for one in trials
        for step in range(sweeps.INTERVAL, one.step + 1, sweeps.INTERVAL)
    ]
    attempts = [
        replace(each, state="RUNNING" if one.state == "RUNNING" else each.state, taken_at=one.created_at)
        for one, each in zip(trials, sweeps.attempts(trials), strict=True)
    ]

    finite = [each for each in reports if math.isfinite(each.metrics["val/accuracy"])]
    best = {each.trial_key: each for each in finite}  # each curve rises
    saved = [
        CheckpointRecord(key, each.step, "best", f"checkpoints/{key}", "beef" * 16, 1, each.metrics)
        for key, each in best.items()
    ]

    def write(tx: Transaction) -> None:
        tx.sweep_id = lease.token.sweep_id
        tx.insert(TRIALS, *trials)
        tx.insert(ATTEMPTS, *attempts)
        tx.insert(REPORTS, *reports)
        tx.insert(CHECKPOINTS, *saved)

    lease.writer.ledger.write(write, lease.token)


def opened(chrome: webdriver.Chrome, client: Client, sweep_id: str) -> None:
    """Open the page of a sweep as a viewer, with its curves and importances."""
    sign_in(chrome, client, "vera")
    open_sweep(chrome, client.address, sweep_id)
    browser.until("the trials", lambda: " of " in shown(chrome, "page"))
    browser.until("the curves", lambda: chrome.find_elements(By.CSS_SELECTOR, "#curves polyline"))


def answer(chrome: webdriver.Chrome, element: str) -> str:
    """Return the text of an element in the first viewport, which takes no action to read."""
    return in_view(chrome, f"#{element}")


def in_view(chrome: webdriver.Chrome, selector: str) -> str:
    """Return the text of the first element of a selector in the first viewport."""
    return str(browser.until(selector, lambda: chrome.execute_script(IN_VIEW, selector)))


def test_which_is_best_with_which_settings_takes_no_action(screen: webdriver.Chrome, client: Client) -> None:
    opened(screen, client, RUNNING)
    assert float(answer(screen, "best")) == pytest.approx(sweeps.accuracy(14, 160) + 0.2, abs=1e-3)
    assert "trial 14, running, step 160 of 200" in answer(screen, "best-of")
    assert "learning_rate" in answer(screen, "best-settings")


def test_whether_it_still_improves_takes_no_action(screen: webdriver.Chrome, client: Client) -> None:
    opened(screen, client, RUNNING)
    assert "Last improvement: trial 14" in answer(screen, "improvement")
    assert answer(screen, "history")
    assert len(screen.find_elements(By.CSS_SELECTOR, "#history circle.dot")) == 16


def test_which_hyperparameter_matters_takes_no_action(screen: webdriver.Chrome, client: Client) -> None:
    opened(screen, client, RUNNING)
    browser.until("the importances", lambda: screen.find_elements(By.CSS_SELECTOR, "#importances tr"))
    assert "learning_rate" in answer(screen, "importances")
    assert len(screen.find_elements(By.CSS_SELECTOR, "#slices circle.dot.best")) == 3, "one in each slice"


def test_how_long_still_takes_no_action(screen: webdriver.Chrome, client: Client) -> None:
    opened(screen, client, RUNNING)
    assert answer(screen, "left").startswith("about ")
    assert " to " in answer(screen, "left-basis")


def test_what_it_has_cost_takes_no_action(screen: webdriver.Chrome, client: Client) -> None:
    opened(screen, client, RUNNING)
    assert "elapsed of 2.0 h" in answer(screen, "elapsed")
    assert "compute" in answer(screen, "compute")
    assert "core-hours" in answer(screen, "compute")


def test_why_it_failed_takes_no_action(screen: webdriver.Chrome, client: Client) -> None:
    sign_in(screen, client, "ada")
    open_sweep(screen, client.address, FAILED)
    text = answer(screen, "failures")
    assert text.startswith("3 of 3 trials failed: ModuleNotFoundError: No module named 'no_such_package'")
    assert "(train.py, line 37)" in text
    assert screen.title.startswith("3/")


def test_why_a_sweep_is_parked_and_what_to_do_takes_no_action(
    screen: webdriver.Chrome, client: Client
) -> None:
    """Its trials have no driver; the log is one action away, and so is another try."""
    sign_in(screen, client, "ada")
    open_sweep(screen, client.address, PARKED)
    assert answer(screen, "state") == "PARKED"
    assert answer(screen, "reason") == (
        f"crashed 5 times without a report, the last time: {CRASH} "
        "Release tries again; the log has the trace."
    )
    assert answer(screen, "restarts").startswith("Parked ")
    assert answer(screen, "restarts").endswith(CRASH)
    assert answer(screen, "resume") == "Release"
    assert not screen.find_element(By.ID, "stop").is_displayed()
    browser.until("the trials", lambda: "INTERRUPTED" in shown(screen, "trials"))
    assert "RUNNING" not in shown(screen, "trials")
    browser.picture(screen, "parked")
    screen.find_element(By.ID, "to-log").click()
    assert screen.find_element(By.ID, "log").is_displayed()
    screen.find_element(By.ID, "resume").click()
    browser.until("the queue", lambda: shown(screen, "state") == "QUEUED")
    with client.workspace.ledger() as ledger:
        released = submissions.submission(ledger, PARKED)
    assert released is not None
    assert (released.state, released.crashes) == ("QUEUED", 0)


@pytest.mark.slow
def test_a_finished_sweep_is_confirmed_later_by_a_command_one_action_away(
    screen: webdriver.Chrome, client: Client, tmp_path: Path
) -> None:
    """The command trains the settings of the chosen trial, and again with fresh seeds."""
    opened(screen, client, sweeps.SWEEP_ID)
    browser.until("the answer", lambda: shown(screen, "result-sentence"))
    screen.find_element(By.CSS_SELECTOR, "#to-confirm summary").click()
    command = str(browser.until("the command", lambda: shown(screen, "confirming")))
    copy = screen.find_element(By.CSS_SELECTOR, "#copy-confirming button")
    assert copy.get_attribute("title") == command, "what the button copies"
    *program, file, _, profile, new = shlex.split(command)[:7]
    assert (program, file, new) == (["python", "-m", "orchestrator.sweep"], "retrieval.yaml", "--new")
    overrides = [each for each in shlex.split(command)[7:] if each != "--set"]
    loaded = Sweep.load(SPACES / file, profile=profile, overrides=overrides, root=tmp_path)
    found = loaded.specification.document()
    best = client.get(f"/sweeps/{sweeps.SWEEP_ID}/trials/7")["trial"]["params"]
    assert (found["confirm"]["seeds"], found["budget"]["trials"], found["try"]) == (3, 1, [best])


def test_what_the_command_was_takes_no_action(screen: webdriver.Chrome, client: Client) -> None:
    opened(screen, client, RUNNING)
    assert "Copy command" in answer(screen, "commands")
    button = screen.find_element(By.CSS_SELECTOR, "#commands button")
    assert f"{RUNNING}.yaml" in (button.get_attribute("title") or ""), "what the button copies"


def test_the_answer_of_a_finished_sweep_takes_no_action(screen: webdriver.Chrome, client: Client) -> None:
    opened(screen, client, sweeps.SWEEP_ID)
    sentence = browser.until("the answer", lambda: shown(screen, "result-sentence"))
    assert sentence == answer(screen, "result-sentence")
    assert sentence.startswith("Trial 7 reaches 0.6469 val/accuracy")
    assert "test/accuracy" in sentence
    assert "no difference is established" in answer(screen, "result-remarks")
    assert "learning_rate" in answer(screen, "result-settings")
    assert f"{sweeps.SWEEP_ID}-7" in answer(screen, "result-checkpoint")
    assert not screen.find_element(By.ID, "left-part").is_displayed()


def test_a_metric_that_is_not_finite_is_said_and_marked(screen: webdriver.Chrome, client: Client) -> None:
    opened(screen, client, RUNNING)
    assert answer(screen, "curves-gaps") == "val/accuracy is NaN or infinite from step 120 in trial 15"
    assert len(screen.find_elements(By.CSS_SELECTOR, "#curves .gap")) == 1


@pytest.mark.slow
def test_failures_are_one_action_away_in_a_large_sweep(screen: webdriver.Chrome, client: Client) -> None:
    opened(screen, client, sweeps.SWEEP_ID)
    screen.find_element(By.CSS_SELECTOR, "[data-chip=failed]").click()
    browser.until("the failed trial alone", lambda: shown(screen, "page") == "1 of 1")
    assert "non-finite" in shown(screen, "trials")


def test_what_runs_and_what_failed_takes_no_action_in_the_list(
    screen: webdriver.Chrome, client: Client
) -> None:
    sign_in(screen, client, "vera")
    runs = in_view(screen, f"#sweeps tr[data-key='{RUNNING}']")
    assert "trial 14, running" in runs, "the best so far"
    assert "about " in runs, "the time left"
    assert in_view(screen, f"#sweeps tr[data-key='{RUNNING}'] svg.spark"), "whether it improves"
    assert "3 of 3 trials failed" in in_view(screen, f"#sweeps tr[data-key='{FAILED}']")


@pytest.mark.slow
def test_the_best_settings_are_one_action_away_from_the_list(
    screen: webdriver.Chrome, client: Client
) -> None:
    sign_in(screen, client, "vera")
    in_view(screen, f"#sweeps tr[data-key='{RUNNING}']")
    screen.find_element(By.CSS_SELECTOR, f"#sweeps a[title='{RUNNING}']").click()
    browser.until("the settings", lambda: "learning_rate" in shown(screen, "best-settings"))
    assert "learning_rate" in answer(screen, "best-settings")


@pytest.mark.slow
def test_a_comparison_is_three_actions_away_from_the_list(screen: webdriver.Chrome, client: Client) -> None:
    sign_in(screen, client, "vera")
    for sweep_id in (RUNNING, sweeps.SWEEP_ID):
        in_view(screen, f"#sweeps tr[data-key='{sweep_id}']")
        screen.find_element(By.CSS_SELECTOR, f"input[data-sweep='{sweep_id}']").click()
    screen.find_element(By.ID, "compare").click()
    assert in_view(screen, "#histories polyline.run-1"), "both curves"
    url = f"/compare?sweep={RUNNING}&sweep={sweeps.SWEEP_ID}"
    [table, *_] = client.get(url)["tables"]
    named = dict(zip(table["header"], table["rows"][0], strict=True))
    assert "running)" in named["best"]
    cells = screen.find_elements(By.CSS_SELECTOR, f"#sweeps tr[data-key='{RUNNING}'] td")
    assert named["best"] in [cell.text for cell in cells], "the words of `compare`"
    browser.until("the results", lambda: screen.find_elements(By.CSS_SELECTOR, "#verdicts th"))
    below = {cell.text for cell in screen.find_elements(By.CSS_SELECTOR, "#verdicts th")}
    assert not below & {"best", "elapsed", "compute", "state"}, "each stands in the upper table alone"


@pytest.mark.slow
def test_how_good_a_trial_is_takes_no_action_on_its_page(screen: webdriver.Chrome, client: Client) -> None:
    sign_in(screen, client, "vera")
    screen.get(f"{client.address}/sweeps/{RUNNING}/trials/14")
    assert answer(screen, "rank").startswith("rank 1 of ")
    assert answer(screen, "counts") == "160 of 200"
    assert answer(screen, "best").endswith(" at step 160")
    assert answer(screen, "ran").startswith("ran ")
    assert in_view(screen, "#curve polyline.best")
    assert "rung: steps 40, 160" in answer(screen, "curve-legend")
    assert "learning_rate" in answer(screen, "parameters")


def test_why_a_trial_failed_takes_no_action_on_its_page(screen: webdriver.Chrome, client: Client) -> None:
    sign_in(screen, client, "vera")
    screen.get(f"{client.address}/sweeps/{FAILED}/trials/1")
    expected = "ModuleNotFoundError: No module named 'no_such_package' (train.py, line 37)"
    browser.until("the reason", lambda: shown(screen, "reason"))
    assert answer(screen, "reason") == expected
    assert answer(screen, "next-step")


VIEWS = {
    "home": "/",
    "running": f"/sweeps/{RUNNING}",
    "finished": f"/sweeps/{sweeps.SWEEP_ID}",
    "failed": f"/sweeps/{FAILED}",
    "trial": f"/sweeps/{RUNNING}/trials/14",
    "compare": f"/compare?sweeps={RUNNING},{sweeps.SWEEP_ID}",
}
"""Paths of the views by the names of their pictures."""

DRAWN = {
    "home": "#sweeps tr",
    "failed": "#failures li",
    "trial": "#curve polyline",
    "compare": "#verdicts table",
}
"""What is drawn last in a view; the curves by default."""

SIZES = {"desktop": (1440, 900), "tablet": (820, 1180), "phone": (390, 844)}
"""Widths and heights of viewports in pixels."""


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
def test_no_view_is_wider_than_its_screen(chrome: webdriver.Chrome, client: Client, size: str) -> None:
    width, height = SIZES[size]
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": size == "phone"}
    chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        sign_in(chrome, client, "grace")
        for view, path in VIEWS.items():
            chrome.get(f"{client.address}{path}")
            drawn = DRAWN.get(view, "#curves polyline")
            browser.until(drawn, lambda drawn=drawn: chrome.find_elements(By.CSS_SELECTOR, drawn))
            widest = chrome.execute_script("return document.documentElement.scrollWidth")
            browser.picture(chrome, f"{view}-{size}")
            assert widest <= width, view
    finally:
        chrome.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
