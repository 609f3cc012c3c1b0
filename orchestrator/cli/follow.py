"""The verb `follow`, and what `--detach` makes of the verbs that run a sweep."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import Annotated

import typer
from rich.console import Console

from orchestrator.cli.found import sweep_named
from orchestrator.cli.look import progress_of
from orchestrator.cli.options import DEFAULT_ROOT, Root, SweepId, opened, paths
from orchestrator.cli.progress import Watch
from orchestrator.driver import detached
from orchestrator.exits import Exit
from orchestrator.ledger.lease import holder
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.records import SweepRecord, TrialRecord
from orchestrator.storage.paths import Paths

_WATCH_SECONDS = 2.0

Detach = Annotated[
    bool,
    typer.Option(
        "--detach",
        envvar=detached.DETACH,
        help="Run the sweep in a process of its own and follow it: a lost terminal ends only the following.",
    ),
]


def follow(
    sweep: SweepId,
    root: Root = DEFAULT_ROOT,
) -> int:
    """Print what a sweep's driver prints, until it ends; Ctrl-C ends only this.

    Exit codes: those of the sweep; 5 if it still runs.
    """
    with closing(opened(root)) as ledger:
        return attach(ledger, sweep_named(ledger, sweep).id, paths(root))


def run_detached(arguments: Sequence[str], sweep_id: str, where: Paths) -> int:
    """Run a sweep in a process of its own and follow it; one that runs already is only followed."""
    with closing(Ledger.open(where.ledger_url)) as ledger:
        if holder(ledger, sweep_id) is not None:
            return attach(ledger, sweep_id, where)
    log = where.driver_log(sweep_id)
    start = detached.end_of(log)
    driver = detached.begin(arguments, log)
    _say(f"Process {driver.pid} drives {sweep_id}; it prints to {log}.")
    watch = partial(detached.follow, log, start, lambda: driver.poll() is not None, _show)
    if not _followed(watch, sweep_id):
        return Exit.GOES_ON
    if driver.returncode < 0:
        _say(f"The driver was ended by signal {-driver.returncode}; the same command goes on.")
        return Exit.RESUMABLE
    return driver.returncode


def attach(ledger: Ledger, sweep_id: str, where: Paths) -> int:
    """Follow a sweep that somebody drives, by its log if that is here, else by the ledger."""
    driving = holder(ledger, sweep_id)
    if driving is not None:
        _say(f"Process {driving.pid} on {driving.host} drives {sweep_id}.")
    log = where.driver_log(sweep_id)

    def over() -> bool:
        # A driver gives its lease back before it prints the leaderboard.
        prints = driving is not None and driving.is_near() and not driving.is_dead()
        return not prints and holder(ledger, sweep_id) is None

    def watch() -> None:
        if log.exists():
            detached.follow(log, detached.last_lines(log), over, _show)
        else:
            _watch(ledger, sweep_id)

    if not _followed(watch, sweep_id):
        return Exit.GOES_ON
    record = ledger.sweep(sweep_id)
    assert record is not None, "a sweep does not leave its ledger"
    return ended(record, ledger.trials(sweep_id))


def ended(sweep: SweepRecord, trials: Sequence[TrialRecord]) -> Exit:
    """Return the exit code of a sweep that nobody drives."""
    if sweep.state not in ("COMPLETE", "FAILED"):
        return Exit.RESUMABLE
    failed = sweep.state == "FAILED" or any(trial.state == "FAILED" for trial in trials)
    return Exit.SOME_FAILED if failed else Exit.COMPLETE


def _followed(watch: Callable[[], None], sweep_id: str) -> bool:
    """Watch to the end; tell whether that was reached, for Ctrl-C ends the watching alone."""
    try:
        watch()
    except KeyboardInterrupt:
        _say(f"{sweep_id} goes on; `follow {sweep_id}` shows it again, `stop {sweep_id}` ends it.")
        return False
    return True


def _watch(ledger: Ledger, sweep_id: str) -> None:
    record = ledger.sweep(sweep_id)
    assert record is not None, "a sweep does not leave its ledger"
    shown = Watch(Console(soft_wrap=True), str(record.facts["metric"]))
    while holder(ledger, sweep_id) is not None:
        shown.show(progress_of(record, ledger.trials(sweep_id, role="search")))
        time.sleep(_WATCH_SECONDS)
    shown.close()


def _show(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _say(line: str) -> None:
    _show(f"{line}\n")
