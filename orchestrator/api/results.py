"""Results of a sweep as pandas frames, figures, a report, an Optuna storage or TensorBoard files.

Plotly, Optuna, pandas and tensorboardX take seconds to import, so `orchestrator.api.loaded_sweep` imports
this module only when it needs one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go

from orchestrator.assignment import SIZE
from orchestrator.client.answers import ComparedSweeps
from orchestrator.config.sweep_config import SweepConfig
from orchestrator.export import tensorboard
from orchestrator.ledger.ledger import Ledger
from orchestrator.report.comparison import SideBySide, markdown, side_by_side, tables
from orchestrator.report.figures import figure
from orchestrator.report.history import History
from orchestrator.report.html import comparison_page
from orchestrator.report.report_files import ReportFiles, write_history
from orchestrator.report.summary import LeaderboardRow, summarise
from orchestrator.report.tuning import tuning_of
from orchestrator.study.study import Study, store


@dataclass(frozen=True)
class Results:
    """The results of one sweep; `orchestrator.api.local_sweep.Sweep` documents each method.

    Attributes:
        history: Every row of the ledger about the sweep.
    """

    history: History

    def trials(self) -> pd.DataFrame:
        """Return a row for each trial, the search before the confirmations, indexed by key."""
        summary = summarise(self.history)
        rows = [(row, "search") for row in summary.rows]
        rows += [(row, "confirmation") for row in summary.confirmations]
        frame = pd.DataFrame(_values(row, role) for row, role in rows)
        if frame.empty:
            return frame
        return frame.sort_values(["role", "number"], ascending=[False, True]).set_index("key")

    def curves(self) -> pd.DataFrame:
        """Return a row for each report: `trial`, `step` and every reported metric."""
        reports = (row for rows in self.history.reports.values() for row in rows)
        rows = ({"trial": row.trial_key, "step": row.step, **row.metrics} for row in reports)
        return pd.DataFrame({name: value for name, value in row.items() if SIZE not in name} for row in rows)

    def figure(self, name: str) -> go.Figure:
        """Return a figure of the report."""
        return figure(name, self.history, summarise(self.history))

    def report(self, folder: Path, log_of: Callable[[str], Path]) -> ReportFiles:
        """Write the report; `log_of` returns the log of a trial by its key."""
        return write_history(self.history, folder, log_of)

    def compared(self, others: Iterable[History], *, tuning: bool) -> SideBySide:
        """Return the comparison of this sweep with others, with tuning curves if `tuning`."""
        histories = (self.history, *others)
        curves = tuning_of(histories) if tuning else ()
        return side_by_side([summarise(history) for history in histories], curves)

    def answer(self, others: Iterable[History], *, tuning: bool, page: bool) -> ComparedSweeps:
        """Return the comparison as tables, Markdown and JSON values, and as an HTML page if `page`."""
        sides = self.compared(others, tuning=tuning)
        drawn = comparison_page(sides) if page else None
        return ComparedSweeps(tables(sides), markdown(sides), sides.document(), drawn)

    def export_study(self, specification: SweepConfig, file: Path) -> int:
        """Write the study as a new Optuna storage; return the number of trials."""
        reports = [row for rows in self.history.reports.values() for row in rows]
        study = Study(specification, self.history.search(), reports, curves=True)
        return store(study, file, self.history.sweep.id)

    def export_tensorboard(self, ledger: Ledger, folder: Path) -> int:
        """Write curves and hyperparameters as a new folder for TensorBoard; return the number of trials."""
        return tensorboard.write(ledger, self.history.sweep, folder)


def _values(row: LeaderboardRow, role: str) -> dict[str, object]:
    return {
        "key": row.key,
        "number": row.number,
        "role": role,
        "state": row.state,
        "value": row.value,
        "test": row.test,
        "best_step": row.best_step,
        "step": row.step,
        "seconds": row.seconds,
        "cause": row.cause,
        "parameters": row.cost.parameters if row.cost else None,
        "state_floats": row.cost.state_floats if row.cost else None,
        "flops": row.cost.flops if row.cost else None,
        **{f"params.{name}": value for name, value in row.params.items()},
    }
