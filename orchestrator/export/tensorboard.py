"""Export of a sweep to TensorBoard: one run for each trial, with curves and hyperparameters."""

from __future__ import annotations

from pathlib import Path

from tensorboardX import SummaryWriter
from tensorboardX.summary import hparams

from orchestrator.errors import BadInput
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.sweeps.records import SweepRecord, by_trial
from orchestrator.placeholders import plain


def write(ledger: Ledger, sweep: SweepRecord, folder: Path) -> int:
    """Write every trial that has reported to `folder/TRIAL`; return their number.

    Raises:
        BadInput: The folder exists, or no trial has reported.
    """
    if folder.exists():
        raise BadInput(str(folder), "already exists", "", "Name another, or remove it.")
    reports = by_trial(ledger.reports(sweep.id))
    if not reports:
        raise BadInput(sweep.id, "has no reports to export", "", "`status` shows its progress.")
    params = {trial.key: trial.params for trial in ledger.trials(sweep.id)}
    metric = str(sweep.facts["metric"])
    for key, rows in reports.items():
        with SummaryWriter(str(folder / key)) as writer:
            settings = {name: plain(value) for name, value in params[key].items()}
            for summary in hparams(settings, {metric: rows[-1].metrics.get(metric)}):
                writer.file_writer.add_summary(summary)
            for row in rows:
                for name, value in row.metrics.items():
                    writer.add_scalar(name, value, row.step, row.at)
    return len(reports)
