"""Findings of a sweep: its result in sentences, and the importances of its hyperparameters.

Unlike `orchestrator.api.results` it needs neither pandas nor Plotly, which take a second to import.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.client.answers import SweepAnswer
from orchestrator.report.analysis import Analysis, analyse
from orchestrator.report.answer import answer, caveats, findings
from orchestrator.report.history import History
from orchestrator.report.summary import summarise


@dataclass(frozen=True)
class Findings:
    """The findings of one sweep.

    Attributes:
        history: Every row of the ledger about the sweep.
    """

    history: History

    def result(self) -> SweepAnswer:
        """Return the chosen trial in sentences, and its checkpoint."""
        summary = summarise(self.history)
        chosen = summary.chosen
        return SweepAnswer(
            answer(summary).replace("**", ""),
            findings(summary),
            caveats(summary),
            {} if chosen is None else dict(chosen.test),
            None if chosen is None else chosen.checkpoint,
        )

    def analysis(self) -> Analysis:
        """Return the findings and costs of the sweep so far."""
        return analyse(self.history)
