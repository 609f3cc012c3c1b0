"""The report of a sweep as files."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from orchestrator.report import html
from orchestrator.report.analysis import importances_of
from orchestrator.report.history import History
from orchestrator.report.leaderboard import leaderboard_csv
from orchestrator.report.markdown import markdown
from orchestrator.report.summary import summarise

REPORT = "report.html"


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


def write_history(history: History, folder: Path) -> ReportFiles:
    """Write the report of a sweep to a folder, replacing an older one."""
    folder.mkdir(parents=True, exist_ok=True)
    summary = summarise(history)
    norms = html.hidden_norms_page(history, summary)
    files = ReportFiles(
        folder / REPORT,
        folder / "report.md",
        folder / "leaderboard.csv",
        folder / "hidden_norms.html" if norms else None,
    )
    _replace(files.html, html.report(history, summary, importances_of(history)))
    _replace(files.markdown, markdown(summary))
    _replace(files.leaderboard, leaderboard_csv(summary))
    if files.hidden_norms is not None:
        _replace(files.hidden_norms, norms)
    return files


def _replace(file: Path, content: str) -> None:
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        beside.write_text(content, encoding="utf-8")
        beside.replace(file)
    finally:
        beside.unlink(missing_ok=True)  # left behind by a failed write
