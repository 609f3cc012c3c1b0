"""The report of a sweep as files."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from orchestrator.process_secrets import redacted
from orchestrator.report import html
from orchestrator.report.analysis import importances_of
from orchestrator.report.history import History
from orchestrator.report.leaderboard import leaderboard_csv
from orchestrator.report.markdown import markdown
from orchestrator.report.summary import summarise

REPORT = "report.html"

_LOG_LINES, _LOG_BYTES = 12, 4_096
"""Largest part of a log in a report."""


@dataclass(frozen=True)
class ReportFiles:
    """The files of one report."""

    html: Path
    markdown: Path
    leaderboard: Path
    hidden_norms: Path | None

    def all(self) -> list[Path]:
        """Return all files of the report."""
        every = (self.html, self.markdown, self.leaderboard, self.hidden_norms)
        return [file for file in every if file is not None]


def write_history(history: History, folder: Path, log_of: Callable[[str], Path] | None = None) -> ReportFiles:
    """Write the report of a sweep to a folder, replacing an older one.

    Args:
        history: All rows of the sweep.
        folder: Folder of the report.
        log_of: Function that returns the file of a trial's log, which may be on another machine.
    """

    def last_lines(key: str) -> str:
        return "" if log_of is None else _last_lines(log_of(key))

    folder.mkdir(parents=True, exist_ok=True)
    summary = summarise(history)
    norms = html.hidden_norms_page(history, summary)
    files = ReportFiles(
        folder / REPORT,
        folder / "report.md",
        folder / "leaderboard.csv",
        folder / "hidden_norms.html" if norms else None,
    )
    page = html.report(history, summary, importances_of(history), at=time.time(), last_lines=last_lines)
    _replace(files.html, page)
    _replace(files.markdown, markdown(summary))
    _replace(files.leaderboard, leaderboard_csv(summary))
    if files.hidden_norms is not None:
        _replace(files.hidden_norms, norms)
    return files


def _last_lines(log: Path) -> str:
    """Return the last lines of a log, or '' if it is not on this machine."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _LOG_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return redacted("\n".join(text.splitlines()[-_LOG_LINES:]))


def _replace(file: Path, content: str) -> None:
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        beside.write_text(content, encoding="utf-8")
        beside.replace(file)
    finally:
        beside.unlink(missing_ok=True)  # left behind by a failed write
