"""The driver of a submitted sweep records in the queue how it ended."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.api import serving
from orchestrator.api.local_sweep import Sweep
from orchestrator.driver import __main__ as entry_point
from orchestrator.driver import run, submitted_sweep
from orchestrator.driver.admission import RETRY_FAILED, Run
from orchestrator.driver.log import Observer
from orchestrator.errors import BadInput, Exit
from orchestrator.ledger.queue import submissions
from orchestrator.ledger.queue.submissions import Submission, SubmissionWriter
from orchestrator.storage.paths import Paths
from tests.orchestrator.ledger.examples import writer

FILE = Path(__file__).parents[3] / "search_spaces" / "retrieval.yaml"


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    """Return a sweep that was submitted, and whose first driver has been started."""
    sweep = Sweep.load(FILE, profile="laptop", root=tmp_path / "mlruns", data=tmp_path / "data")
    serving.submit(sweep)
    change(sweep, state="STARTED", starts=1)
    return sweep


def change(sweep: Sweep, **columns: object) -> None:
    """Change the submission of a sweep as the service does."""
    with sweep.workspace.ledger() as ledger:
        seen = submissions.submission(ledger, sweep.id)
        assert seen is not None
        assert SubmissionWriter(ledger, writer(ledger, "serve").token).change(seen, **columns)


def end_of(sweep: Sweep) -> Submission:
    """Return the submission of a sweep, which has ended."""
    with sweep.workspace.ledger() as ledger:
        entry = submissions.submission(ledger, sweep.id)
    assert entry is not None
    return entry


def test_a_driver_records_its_end_and_its_refusal(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    root = sweep.workspace.paths.root
    monkeypatch.setattr(submitted_sweep, "run_sweep", lambda submission, paths: Exit.SOME_FAILED)
    assert submitted_sweep.drive(sweep.id, 1, root) == Exit.SOME_FAILED
    assert end_of(sweep).code == Exit.SOME_FAILED
    change(sweep, starts=2, code=None, driver=None)

    def refuse(submission: Submission, paths: Paths) -> Exit:
        raise BadInput("data", "must be complete", "half", "Fetch it.")

    monkeypatch.setattr(submitted_sweep, "run_sweep", refuse)
    with pytest.raises(BadInput):
        submitted_sweep.drive(sweep.id, 2, root)
    assert end_of(sweep).code == Exit.BAD_INPUT
    assert "must be complete" in str(end_of(sweep).cause)


def test_the_entry_point_prints_what_refuses_a_sweep(sweep: Sweep, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["nothing-1", "--start", "1", "--root", str(sweep.workspace.paths.root)]
    assert entry_point.drive(words) == Exit.BAD_INPUT
    assert "nothing-1" in capfd.readouterr().err


def test_the_options_of_a_submission_reach_its_driver(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The failed trials of an unfinished sweep are not retried: it is resumed as it is."""
    seen: list[Run] = []

    def drive(specification: object, invocation: Run, observer: Observer) -> tuple[str, Exit]:
        seen.append(invocation)
        observer.say("driven")
        return sweep.id, Exit.COMPLETE

    monkeypatch.setattr(run, "drive", drive)
    monkeypatch.setattr(submitted_sweep, "show_result", lambda *arguments: None)
    monkeypatch.setattr(submitted_sweep.preflight, "check_sweep", lambda *arguments: None)
    change(sweep, starts=2)
    with sweep.workspace.ledger() as ledger:
        entry = submissions.submission(ledger, sweep.id)
    assert entry is not None
    options = {**entry.options, "deadline": 7.0, RETRY_FAILED: True}
    code = submitted_sweep.run_sweep(replace(entry, options=options), sweep.workspace.paths)
    assert code == Exit.COMPLETE
    [invocation] = seen
    assert (invocation.deadline, invocation.unless_stopped, invocation.reopen) == (7.0, True, ())
    assert invocation.known == sweep.id
    printed = capsys.readouterr().out
    assert "Profile `laptop` (as it began) replaces settings of the file" in printed
    assert "driven" in printed
