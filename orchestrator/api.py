"""A sweep in Python: load it, run it, look at its trials and figures. The same ledger, driver and report.

sweep = Sweep.load("search_spaces/listops.yaml", profile="laptop", overrides=["budget.trials=4"])
sweep.run()
sweep.trials                      # a pandas frame, one row a trial
sweep.figure("learning-curves")   # a plotly figure
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
from rich.console import Console

from orchestrator.cli.found import sweep_named
from orchestrator.cli.options import DEFAULT_DATA, DEFAULT_ROOT, paths
from orchestrator.cli.progress import Watch
from orchestrator.config import from_document
from orchestrator.config import load as load_specification
from orchestrator.config.sweep_config import SweepConfig
from orchestrator.driver import admission, preflight
from orchestrator.errors import BadInput
from orchestrator.ledger.ledger import Ledger
from orchestrator.report.history import History, read
from orchestrator.report.summary import Summary, summarise
from orchestrator.storage.paths import Paths

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from trainables.inference import Predictor


class Sweep:
    """One search-space file, run once: its specification, and what the ledger remembers of it.

    Attributes:
        id: the same as everywhere.
        specification: what the file means.
    """

    def __init__(self, sweep_id: str, specification: SweepConfig, where: Paths, data: Path) -> None:
        self.id, self.specification, self._paths, self._data = sweep_id, specification, where, data

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        profile: str | None = "auto",
        overrides: Sequence[str] = (),
        root: str | Path | None = None,
        data: str | Path | None = None,
    ) -> Sweep:
        """Return the sweep of a search-space file; nothing is run, nothing is written.

        Args:
            path: of the file.
            profile: one of the file's, None for none, or "auto": `laptop` where there is no GPU.
            overrides: such as `training.steps=1000`.
            root: folder of all that sweeps write; as with the verbs, `SWEEP_ROOT` or `mlruns` by default.
            data: folder of the data sets; `SWEEP_DATA` or `data` by default.

        Raises:
            BadInput: as `sweep FILE` would say, with file, line and key.
        """
        here = _root(root)
        gpus = preflight.available_hardware(here).gpus
        found = load_specification(Path(path), profile=profile, overrides=tuple(overrides), gpus=gpus)
        latest = _latest(found, here)
        return cls(latest.id, latest, here, _data(data))

    @classmethod
    def find(cls, name: str, *, root: str | Path | None = None, data: str | Path | None = None) -> Sweep:
        """Return a sweep of the ledger by its id, or the beginning of one.

        Raises:
            BadInput: if none is meant, or more than one.
        """
        here = _root(root)
        with closing(Ledger.open(here.ledger_url, create=False)) as ledger:
            record = sweep_named(ledger, name)
        specification = from_document(record.document, str(record.facts.get("specification", "")))
        return cls(record.id, specification, here, _data(data))

    def __repr__(self) -> str:
        return f"Sweep({self.id!r}, {self.state})"

    @property
    def state(self) -> str:
        """Return its state in the ledger, or NEW if it has never run."""
        if not self._is_known():
            return "NEW"
        return str(self._history().sweep.state)

    def run(self, *, quiet: bool = False) -> Sweep:
        """Run it, or go on where it stopped; return it when it is finished or interrupted.

        In a notebook an interrupt saves every running trial first; `state` then says INTERRUPTED.

        Args:
            quiet: show no progress.

        Raises:
            BadInput: if it cannot run here.
            Busy: if another process runs it.
        """
        here = preflight.available_hardware(self._paths)
        preflight.check_sweep(self.specification, here, self._data)
        # Ray, Optuna and MLflow take seconds to import: not for looking at a sweep that is finished.
        from orchestrator.driver.admission import Run
        from orchestrator.driver.run import drive

        known = self.id if self._is_known() else None
        watch = Watch(Console(soft_wrap=True), self.specification.metric, quiet)
        run = Run(self._paths, self._data, here, known=known, wait=preflight.node_wait(None))
        drive(self.specification, run, watch)
        return self

    @property
    def trials(self) -> pd.DataFrame:
        """Return one row a trial, confirmations included, indexed by key.

        Columns: `number`, `role`, `state`, `value` (best validation value), `test` (where it was read),
        `best_step`, `step`, `seconds`, `cause`, and one `params.<name>` a hyperparameter.
        """
        summary = self._summary()
        rows = [(row, "search") for row in summary.rows]
        rows += [(row, "confirmation") for row in summary.confirmations]
        frame = pd.DataFrame(
            {
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
                **{f"params.{name}": value for name, value in row.params.items()},
            }
            for row, role in rows
        )
        return (
            frame
            if frame.empty
            else frame.sort_values(["role", "number"], ascending=[False, True]).set_index("key")
        )

    @property
    def curves(self) -> pd.DataFrame:
        """Return one row a report: `trial`, `step`, and every metric that was reported."""
        reports = self._history().reports.values()
        return pd.DataFrame(
            {"trial": row.trial_key, "step": row.step, **row.metrics} for rows in reports for row in rows
        )

    @property
    def best(self) -> str | None:
        """Return the key of the chosen trial, or None while no trial is complete."""
        chosen = self._summary().chosen
        return chosen.row.key if chosen else None

    def figure(self, name: str) -> go.Figure:
        """Return one of the report's figures: `history`, `learning-curves`, `hidden-norms`, `parallel`,
        `slices`, `importances` or `spending`.

        Raises:
            BadInput: if there is none of that name, or the sweep has too few trials for it.
        """
        from orchestrator.report import gallery

        history = self._history()
        return gallery.figure(name, history, summarise(history))

    def predictor(self) -> Predictor:
        """Return the network of the chosen trial's best checkpoint, to ask; imports JAX.

        Raises:
            BadInput: if no trial is complete.
        """
        chosen = self._summary().chosen
        if chosen is None:
            raise BadInput(self.id, "must have a complete trial", "none", "Run it first.")
        from trainables.inference import Predictor

        return Predictor(Path(chosen.checkpoint))

    def _is_known(self) -> bool:
        try:
            with closing(Ledger.open(self._paths.ledger_url, create=False)) as ledger:
                return ledger.sweep(self.id) is not None
        except BadInput:
            return False

    def _history(self) -> History:
        if not self._is_known():
            raise BadInput(self.id, "must have run", "a sweep that has not", "`run()` it first.")
        with closing(Ledger.open(self._paths.ledger_url, create=False)) as ledger:
            return read(ledger, self.id)

    def _summary(self) -> Summary:
        return summarise(self._history())


def _root(root: str | Path | None) -> Paths:
    return paths(Path(root or os.environ.get("SWEEP_ROOT") or DEFAULT_ROOT))


def _data(data: str | Path | None) -> Path:
    return Path(data or os.environ.get("SWEEP_DATA") or DEFAULT_DATA).absolute()


def _latest(specification: SweepConfig, where: Paths) -> SweepConfig:
    """Return the newest sweep of a file that the ledger knows, or the first one that is to be."""
    try:
        ledger = Ledger.open(where.ledger_url, create=False)
    except BadInput:
        return specification
    with closing(ledger):
        return admission.newest(specification, {record.id for record in ledger.sweeps()})
