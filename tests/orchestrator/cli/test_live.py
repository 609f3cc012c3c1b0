"""The live view on a real pseudo-terminal."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from rich.console import Console

from orchestrator.api.live import live
from orchestrator.cli.live_view import Lines, LiveDisplay, LiveView, Traces, is_live, observer
from orchestrator.client.answers import LiveSweep
from orchestrator.driver.log import Display
from orchestrator.errors import BadInput
from orchestrator.ledger.ledger import Ledger
from orchestrator.storage.paths import Paths
from tests import sweeps
from tests.orchestrator.cli.screens import terminal

DRIVER = """
import sys
from orchestrator.ledger.sweeps.lease import Lease
from orchestrator.ledger.ledger import Ledger
with Lease(Ledger.open(sys.argv[1]), sys.argv[2]):
    print("driving", flush=True)
    sys.stdin.read()
"""
LOG = "Data: embedded English passages.\ntrials 5/8 (1 running)\nEvery trial has ended.\n"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a root whose sweep has a running trial."""
    paths = sweeps.filled(tmp_path_factory.mktemp("live") / "mlruns")
    ledger = Ledger.open(paths.ledger_url)
    running = sweeps.trial(8, "RUNNING", step=120, value=None, best_step=None)
    sweeps.start_trial(sweeps.writer_of(ledger), running, paths.checkpoints(sweeps.SWEEP_ID))
    ledger.close()
    return paths.root


@pytest.fixture
def driver(root: Path) -> Iterator[subprocess.Popen[str]]:
    """Let another process drive the sweep until its standard input is closed."""
    process = subprocess.Popen(
        [sys.executable, "-c", DRIVER, Paths(root).ledger_url, sweeps.SWEEP_ID],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "driving\n"
    yield process
    process.stdin.close()
    process.stdout.close()
    assert process.wait(30) == 0


def headlines(rows: Sequence[str]) -> list[str]:
    """Return the rows that begin a view."""
    return [row for row in rows if row.startswith(f"{sweeps.SWEEP_ID} · ")]


@pytest.mark.slow
def test_status_watch_is_redrawn_in_place_on_a_terminal_that_is_resized(
    root: Path, driver: subprocess.Popen[str]
) -> None:
    arguments = ["status", "retrieval", "--watch", "--root", str(root)]
    with terminal(arguments, dict(os.environ), columns=100, rows=30) as shown:
        shown.wait_for(lambda rows: any("120/200" in row and "10" in row for row in rows))
        drawn = len(shown.text)
        shown.resize(44, 30)
        shown.wait_for(lambda rows: len(shown.text) > drawn + 2_000)
        assert len(headlines(shown.screen.rows)) == 1, "\n".join(shown.screen.rows)
        assert max(len(row) for row in shown.screen.rows) <= 44
        shown.resize(120, 30)
        shown.wait_for(lambda rows: any(len(row) > 60 for row in rows))
        assert len(headlines(shown.screen.rows)) == 1, "\n".join(shown.screen.rows)
        assert driver.stdin is not None
        driver.stdin.close()
        shown.wait_for(lambda rows: any(row.startswith(f"{sweeps.SWEEP_ID}: INTERRUPTED") for row in rows))
        assert not headlines(shown.screen.rows), "the view is erased at the end"
        assert "\x1b[?25h" in shown.text, "the cursor is shown again"


@pytest.mark.parametrize(
    ("option", "variables"), [(["--plain"], {}), ([], {"CI": "true"})], ids=["plain", "ci"]
)
def test_plain_and_ci_print_lines_on_a_terminal(
    root: Path, option: list[str], variables: dict[str, str]
) -> None:
    arguments = ["status", "retrieval", "--watch", *option, "--root", str(root)]
    with terminal(arguments, {**os.environ, **variables}, columns=100, rows=30) as shown:
        shown.wait_for(lambda rows: any(row.startswith(f"{sweeps.SWEEP_ID}: INTERRUPTED") for row in rows))
        assert "\x1b[2K" not in shown.text


@pytest.mark.slow
def test_a_view_draws_at_most_four_times_a_second(root: Path) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=80, height=24, color_system=None)
    view = LiveView(lambda: live("retrieval", root=root), console)
    view.start()
    view.say("a message")
    assert not view.finished.wait(2.0)
    view.close()
    frames = out.getvalue().count(f"{sweeps.SWEEP_ID} · ")
    assert 2 <= frames <= 4 * 2 + 2
    assert out.getvalue().count("a message") == 1


TRACE = """Data: embedded English passages.
Traceback (most recent call last):
  File "run.py", line 3, in run
    raise KeyError("val/accuracy")
KeyError: 'val/accuracy'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "run.py", line 9, in main
    close()
ValueError: closed
The driver starts again.
"""


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_a_crash_is_shown_by_its_last_line(size: int) -> None:
    shown: list[str] = []
    traces = Traces(shown.append, sweeps.SWEEP_ID)
    for at in range(0, len(TRACE), size):
        traces(TRACE[at : at + size])
    traces.close()
    assert "".join(shown).splitlines() == [
        "Data: embedded English passages.",
        "ValueError: closed",
        f"The whole trace: `sweep logs {sweeps.SWEEP_ID}`",
        "The driver starts again.",
    ]


def test_a_ledger_that_does_not_answer_is_named_below_the_last_view(root: Path) -> None:
    answers: list[LiveSweep] = [live("retrieval", root=root)]

    def read() -> LiveSweep:
        if not answers:
            raise BadInput("ledger.db", "must answer", "nothing", "Wait.")
        return answers.pop()

    out = io.StringIO()
    view = LiveView(read, Console(file=out, force_terminal=True, width=80, height=24, color_system=None))
    view.start()
    view.finished.wait(1.6)
    view.close()
    assert "ledger.db" in out.getvalue()


def test_a_sweep_that_has_not_begun_shows_what_is_loaded() -> None:
    def read() -> LiveSweep:
        raise BadInput("x", "has not run yet", "", "Run it.")

    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=80, height=24, color_system=None)
    display = LiveDisplay(LiveView(read, console))
    display.loading("examples", 1_000, 2_000)
    display.view.finished.wait(0.6)
    display.say("done")
    display.close()
    display.close()
    assert "examples: 1,000 of 2,000" in out.getvalue()
    assert "has not run yet" not in out.getvalue()


def test_a_driver_shows_a_view_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def read() -> LiveSweep:
        raise AssertionError("a display that is not started reads nothing")

    is_terminal = Console(file=io.StringIO(), force_terminal=True, _environ={"TERM": "xterm"})
    assert isinstance(observer(read, is_terminal, "loss", quiet=False, plain=False), LiveDisplay)
    assert isinstance(observer(read, is_terminal, "loss", quiet=False, plain=True), Display)
    assert isinstance(observer(read, is_terminal, "loss", quiet=True, plain=False), Display)
    assert isinstance(observer(read, Console(file=io.StringIO()), "loss", quiet=False, plain=False), Display)
    assert not is_live(Console(file=io.StringIO(), force_terminal=True, _environ={"TERM": "dumb"}))
    monkeypatch.setenv("CI", "true")
    assert isinstance(observer(read, is_terminal, "loss", quiet=False, plain=False), Display)


def test_the_lines_of_a_log_are_whole_and_without_progress() -> None:
    said: list[str] = []
    lines = Lines(said.append)
    for at in range(0, len(LOG), 7):
        lines(LOG[at : at + 7])
    assert said == ["Data: embedded English passages.", "Every trial has ended."]
