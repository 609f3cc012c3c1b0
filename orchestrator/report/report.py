"""A sweep's report: write it, and say it to MLflow."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.records import Event, SweepState
from orchestrator.report import html
from orchestrator.report.history import History, read
from orchestrator.report.importance import importances
from orchestrator.report.markdown import leaderboard_csv, markdown
from orchestrator.report.publish import publication
from orchestrator.report.summary import summarise
from orchestrator.storage.paths import Paths

REPORT = "report.html"


@dataclass(frozen=True)
class ReportFiles:
    """The files of one report."""

    html: Path
    markdown: Path
    leaderboard: Path
    hidden_norms: Path | None

    def all(self) -> list[Path]:
        """Return every file that there is."""
        every = (self.html, self.markdown, self.leaderboard, self.hidden_norms)
        return [file for file in every if file is not None]


def write(ledger: Ledger, sweep_id: str, folder: Path) -> ReportFiles:
    """Write a sweep's report as it stands; an older one is replaced.

    Raises:
        BadInput: if the ledger knows no such sweep.
    """
    return write_history(read(ledger, sweep_id), folder)


def conclude(
    ledger: Ledger, sweep_id: str, paths: Paths, state: SweepState, reason: str | None = None
) -> list[Event]:
    """Write the report of a sweep that is about to get its last `state`; return what MLflow shall be told."""
    history = read(ledger, sweep_id)
    now = time.time()
    ended = replace(history.sweep, state=state, reason=reason, finished_at=now)
    history = replace(history, sweep=ended)
    files = write_history(history, paths.report(sweep_id))
    return publication(history, summarise(history), files.all(), round(now * 1000))


def write_history(history: History, folder: Path) -> ReportFiles:
    """Write the report of a history."""
    folder.mkdir(parents=True, exist_ok=True)
    summary = summarise(history)
    shares = importances(history.search(), history.sweep.document["search"], maximize=history.maximize)
    norms = html.hidden_norms_page(history, summary)
    files = ReportFiles(
        folder / REPORT,
        folder / "report.md",
        folder / "leaderboard.csv",
        folder / "hidden_norms.html" if norms else None,
    )
    _replace(files.html, html.report(history, summary, shares))
    _replace(files.markdown, markdown(summary))
    _replace(files.leaderboard, leaderboard_csv(summary))
    if files.hidden_norms is not None:
        _replace(files.hidden_norms, norms)
    return files


def _replace(file: Path, content: str) -> None:
    """Write a file so that a reader finds the old one or the new one, whole."""
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    beside.write_text(content, encoding="utf-8")
    beside.replace(file)
