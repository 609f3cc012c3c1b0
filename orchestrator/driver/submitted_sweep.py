"""Drives a submitted sweep, from its row in the queue to its exit code.

service  ->  python -m orchestrator.driver  ->  drive  ->  driver.run.drive
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from orchestrator import json_log
from orchestrator.config import from_document
from orchestrator.config.sweep_config import SweepConfig
from orchestrator.driver import preflight, run
from orchestrator.driver.admission import RETRY_FAILED, Run, current_owner, with_id
from orchestrator.driver.detached import NOTIFY
from orchestrator.driver.log import Display, Observer, StructuredLog, profile_note
from orchestrator.driver.notifications import run_notified
from orchestrator.driver.user_code import check_bound
from orchestrator.errors import BadInput, Exit, Refusal, exit_of
from orchestrator.json_log import LogLine
from orchestrator.ledger.holder import Holder
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.queue import submissions
from orchestrator.ledger.queue.submissions import Submission
from orchestrator.ledger.sweeps.records import FINISHED_SWEEP
from orchestrator.output import Console
from orchestrator.process_secrets import redacted
from orchestrator.report import terminal
from orchestrator.report.history import read
from orchestrator.report.summary import summarise
from orchestrator.report.words import near
from orchestrator.storage.paths import DEFAULT_ROOT, Paths
from orchestrator.tracking.address import shown

_COMMAND = "python -m orchestrator.sweep"
"""Command line in the hints of a result."""


def drive(sweep_id: str, start: int, root: str | Path | None = None) -> Exit:
    """Run a submitted sweep, and record its end in the queue.

    Args:
        sweep_id: Id of the sweep.
        start: Number of this start of the submission.
        root: Folder of everything that sweeps write; if None, `SWEEP_ROOT` or else `mlruns`.

    Raises:
        BadInput: The sweep was not submitted.
        Busy: A later driver of the submission has been started.
    """
    paths = Paths.at(root)
    with _ledger(paths) as ledger:
        submission = submissions.submission(ledger, sweep_id)
        if submission is None:
            raise BadInput(sweep_id, "was not submitted", "", "Use `submit` first.")
        submissions.begin(ledger, sweep_id, start, Holder.here(ledger.system))
    try:
        check_bound(sweep_id, submission.options)
        code = run_sweep(submission, paths)
    except Refusal as refusal:
        _record_end(paths, sweep_id, start, exit_of(refusal), redacted(str(refusal)))
        raise
    _record_end(paths, sweep_id, start, code, None)
    return code


def run_sweep(submission: Submission, paths: Paths) -> Exit:
    """Run the sweep of a submission with its options, and print its progress and its result."""
    sweep = with_id(from_document(submission.document, submission.text), submission.sweep_id)
    console, is_json = Console(soft_wrap=True), json_log.is_json()
    observer = StructuredLog(sweep.id, sweep.metric) if is_json else Display(console, sweep.metric)
    with closing(observer) as display:
        if sweep.scheduler.is_default:
            display.say(f"scheduler: {sweep.scheduler.phrase(sweep.training)}")
        code = run_notified(
            os.environ.get(NOTIFY),
            sweep.id,
            sweep.metric,
            display,
            lambda observer: _run_observed(sweep, submission, paths, observer),
        )
    if is_json:
        json_log.log(LogLine(f"{sweep.id} has ended with code {int(code)}.", "ended", sweep.id))
        return code
    with _ledger(paths) as ledger:
        show_result(ledger, paths, sweep.id, console)
    return code


def _run_observed(sweep: SweepConfig, submission: Submission, paths: Paths, observer: Observer) -> Exit:
    options, data = submission.options, Path(submission.options["data"]).absolute()
    hardware = preflight.available_hardware(paths)
    preflight.check_sweep(sweep, hardware, data, current_owner())
    if sweep.profile:
        observer.say(profile_note(sweep.profile, "as it began"))
    invocation = Run(
        paths,
        data,
        hardware,
        known=sweep.id,
        reopen=_failed(paths, sweep.id) if options.get(RETRY_FAILED) else (),
        deadline=options["deadline"],
        tracking_patience=options["tracking_patience"],
        wait=preflight.Patience.of(options["wait"]),
        unless_stopped=True,
    )
    return run.drive(sweep, invocation, observer)[1]


def _failed(paths: Paths, sweep_id: str) -> tuple[str, ...]:
    """Return the failed trials of a finished sweep; none for a sweep that is resumed."""
    with _ledger(paths) as ledger:
        record = ledger.sweep(sweep_id)
        if record is None or record.state not in FINISHED_SWEEP:
            return ()
        return tuple(trial.key for trial in ledger.trials(sweep_id) if trial.state == "FAILED")


def _record_end(paths: Paths, sweep_id: str, start: int, code: int, cause: str | None) -> None:
    with _ledger(paths) as ledger:  # opened again, because the driver may have rebuilt its file
        submissions.end(ledger, sweep_id, start, code, cause)


def show_result(ledger: Ledger, paths: Paths, sweep_id: str, console: Console) -> None:
    """Print the leaderboard of a sweep, its answer, and the commands that show more.

    Raises:
        BadInput: The sweep has never run.
    """
    summary = summarise(read(ledger, sweep_id))
    root = "" if paths.root == DEFAULT_ROOT.absolute() else f" --root {near(paths.root)}"
    best = summary.chosen.row.key if summary.chosen else ""
    report = paths.report(sweep_id) / "report.html"
    directions = terminal.Directions(
        tracking=shown(paths.tracking) if paths.tracking else f"{_COMMAND} ui{root}",
        report=near(report) if report.exists() else None,
        evaluate=f"{_COMMAND} evaluate {best}{root}",
    )
    terminal.show(summary, directions, console)


@contextmanager
def _ledger(paths: Paths) -> Iterator[Ledger]:
    with closing(Ledger.open(paths.ledger_url, create=False)) as ledger:
        yield ledger
