"""A sweep as TensorBoard reads it: a run a trial, with its curves and, for the HParams page, its values."""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter
from pathlib import Path

from tensorboardX import SummaryWriter
from tensorboardX.summary import hparams

from orchestrator.errors import BadInput
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.records import SweepRecord


def write(ledger: Ledger, sweep: SweepRecord, folder: Path) -> int:
    """Write every trial that has reported to `folder/TRIAL`; return how many there are.

    Raises:
        BadInput: if the folder is there already, or no trial has reported.
    """
    if folder.exists():
        raise BadInput(str(folder), "must not be there yet", "a folder", "Name another, or remove it.")
    by_trial = groupby(ledger.reports(sweep.id), key=attrgetter("trial_key"))
    reports = {key: list(rows) for key, rows in by_trial}
    if not reports:
        raise BadInput(sweep.id, "must have reported something", "nothing", "`status` tells where it stands.")
    params = {trial.key: trial.params for trial in ledger.trials(sweep.id)}
    metric = str(sweep.facts["metric"])
    for key, rows in reports.items():
        with SummaryWriter(str(folder / key)) as writer:
            for summary in hparams(dict(params[key]), {metric: rows[-1].metrics.get(metric)}):
                writer.file_writer.add_summary(summary)
            for row in rows:
                for name, value in row.metrics.items():
                    writer.add_scalar(name, value, row.step, row.at)
    return len(reports)
