"""Sweep of this machine: load it, run it, stop it, and read its results.

sweep = Sweep.load("search_spaces/listops.yaml", profile="laptop", overrides=["budget.trials=4"])
sweep.run()
sweep.trials                      # a pandas frame, one row a trial
sweep.best.predictor()            # the trained network
sweep.figure("learning-curves")   # a Plotly figure
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm.auto import tqdm

from orchestrator import client
from orchestrator.api.loaded_sweep import LoadedSweep
from orchestrator.api.local import LocalBackend
from orchestrator.api.trial import Trial
from orchestrator.client.answers import (
    ComparedSweeps,
    Stopped,
    SweepAnalysis,
    SweepAnswer,
    TriedNext,
)
from orchestrator.client.protocol import URL, Backend
from orchestrator.client.statuses import DetailedStatus
from orchestrator.driver import admission, preflight
from orchestrator.driver.admission import Run
from orchestrator.driver.detached import DEADLINE_SECONDS, NOTIFY, TRACKING_SECONDS
from orchestrator.driver.log import Observer, profile_note
from orchestrator.driver.run import drive
from orchestrator.driver.user_code import check_bound
from orchestrator.errors import BadInput, Exit, Refusal, exit_of
from orchestrator.ledger.queue import submissions
from orchestrator.ledger.sweeps.pareto import ParetoFront
from orchestrator.ledger.sweeps.selection import best_of_sweep, objectives_of, preference_of
from orchestrator.report.summary import Summary, summarise
from orchestrator.report.words import number, time_left
from orchestrator.service import notice_list
from orchestrator.service.notices import SweepNotices
from orchestrator.session.board import Progress
from orchestrator.system import System

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go


class _Bar(Observer):
    """Observer that logs messages and shows progress as a bar on standard error."""

    def __init__(self, sweep: Sweep) -> None:
        self._metric = sweep.specification.metric
        # Where the bar is not redrawn in place, each drawing is a line of its own.
        pause = 0.1 if _is_redrawn() else 10.0
        self._bar = tqdm(desc=sweep.id, total=0, unit="trial", mininterval=pause, file=sys.stderr)
        self._bar.set_postfix_str("starting")

    def loading(self, what: str, done: int, total: int) -> None:
        """Show the progress of preparing the data set."""
        self._bar.set_postfix_str(f"{what}: {done:,} of {total:,}")

    def show(self, progress: Progress) -> None:
        """Show the progress of the sweep."""
        parts = [] if progress.reason is None else [f"{progress.state}: {progress.reason}"]
        if progress.best_value is not None:
            parts.append(f"best {self._metric} {number(progress.best_value)}")
        if progress.time_left is not None and progress.time_left.likely:
            parts.append(time_left(progress.time_left))
        self._bar.total = progress.wanted
        self._bar.set_postfix_str(", ".join(parts), refresh=False)
        self._bar.update(progress.settled - self._bar.n)
        if _is_redrawn():
            self._bar.refresh()

    def close(self) -> None:
        """Draw the final bar."""
        self._bar.close()


def _is_redrawn() -> bool:
    """Return True if standard error is a terminal or a notebook, which redraws a bar in place."""
    return sys.stderr.isatty() or any(base.__name__ == "tqdm_notebook" for base in tqdm.__mro__)


@contextmanager
def _watching(sweep: Sweep, observer: Observer | None, progress: bool | None) -> Iterator[Observer]:
    """Yield the observer of a sweep for a `with` block, by default one with a bar."""
    wanted = _is_redrawn() if progress is None else progress
    if observer is not None or not wanted:
        yield observer or Observer()
        return
    bar = _Bar(sweep)
    try:
        yield bar
    finally:
        bar.close()


class Sweep(LoadedSweep):
    """One run of a search-space file on this machine: its specification and its rows of the ledger.

    >>> sweep = Sweep.load("search_spaces/copy.yaml", overrides=["budget.trials=4"])  # doctest: +SKIP
    >>> sweep.run()  # doctest: +SKIP
    <Exit.COMPLETE: 0>

    Methods may be called from any thread. They write under the root only, except for the cache of the data
    folder and files named by an argument.

    Attributes:
        id: ID of the sweep in the ledger, in MLflow and in file names.
        workspace: Folders of the sweep.
    """

    @staticmethod
    def connect(
        url: str | None = None,
        token: str | None = None,
        *,
        root: str | Path | None = None,
        data: str | Path | None = None,
    ) -> Backend:
        """Return a client of a service, with the same methods and answers wherever it is.

        >>> Sweep.connect("https://sweeps.example.org").status("listops").state  # doctest: +SKIP
        'RUNNING'
        >>> Sweep.connect(root="mlruns").status("listops").state  # doctest: +SKIP
        'COMPLETE'

        Args:
            url: Address of its HTTP server, such as `https://sweeps.example.org`. If None and no root is
                given, `SWEEP_URL`; without it, the ledger of this machine.
            token: Token of the user; `SWEEP_TOKEN` if None.
            root: Root of the ledger of this machine, as in `load`.
            data: Folder of the data sets of this machine, as in `load`.

        Raises:
            BadInput: The address requires TLS and does not use it, the token is missing, or both an address
                and a root are given.
        """
        if url is not None and root is not None:
            raise BadInput("root", "must be left out if a URL is given", str(root), "Leave one of them out.")
        address = url or (os.environ.get(URL) if root is None else None)
        return LocalBackend(root, data) if address is None else client.http.HttpBackend(address, token)

    def status(self) -> DetailedStatus:
        """Return the answer of `Backend.status`: the state, the driver, the progress and the failures.

        Raises:
            NotFound: The sweep is not in the ledger.
        """
        return self._backend().status(self.id)

    def run(
        self,
        observer: Observer | None = None,
        *,
        deadline: float = DEADLINE_SECONDS,
        tracking_patience: float = TRACKING_SECONDS,
        wait: float | None = None,
        unless_stopped: bool = False,
        retry_failed: bool = False,
        progress: bool | None = None,
    ) -> Exit:
        """Run the sweep, or resume it, until it has ended.

        The call joins the cluster that `RAY_ADDRESS` names, or else the Ray that the user's sweeps share on
        this machine, which it starts if necessary. It sets the environment variables of Ray.

        In the main thread, the first SIGINT, SIGTERM or SIGHUP saves every running trial and ends the call; a
        second one ends the process. In other threads, signals are not handled: use `stop`.

        Files: ledger with backup and lease, checkpoints, logs, report, compiled programs, token of clusters,
        state of Ray Tune, and MLflow's database and artifacts under the root; the encoded data set in the
        data folder; the record of the shared Ray in its runtime folder.

        Args:
            observer: Receives messages and progress; if None, messages are logged.
            deadline: Seconds without progress after which a running trial is killed and retried.
            tracking_patience: Seconds to wait for MLflow at the end; undelivered records stay in the ledger.
            wait: Seconds to wait while no trial can start; if None, 3600 on a cluster and 10 on this machine,
                or without limit while other sweeps use it.
            unless_stopped: Whether to return COMPLETE at once for a sweep that was stopped, instead of
                resuming it; for starts by a batch system.
            retry_failed: Whether to retry the failed trials, each from its last checkpoint.
            progress: Whether to show a progress bar on standard error; if None, only in terminals and
                notebooks.

        Returns:
            COMPLETE, SOME_FAILED, or RESUMABLE if the sweep was interrupted and the next call continues it.

        Raises:
            BadInput: The sweep cannot run here, its file has changed since its unfinished sweep began,
                `retry_failed` finds no failed trial, or its code is bound to the account of its owner.
            BadData: The data set cannot be read.
            Busy: Another process drives the sweep.
            Damaged: The ledger is damaged beyond its backup.
            NoCluster: The cluster does not answer.
        """
        failed = self.failed() if retry_failed else ()
        if retry_failed and not failed:
            raise BadInput(self.id, "has no failed trials to retry", "", "`show` shows a trial.")
        self._check_bound()
        with _watching(self, observer, progress) as screen, self._notified(screen) as notices:
            hardware = self.admit()
            if profile := self.specification.profile:
                reasons = {None: "as it began", True: hardware.phrase, False: "asked for"}
                screen.say(profile_note(profile, reasons[self._request.automatic]))
            known = self._is_known()
            run = Run(
                self.workspace.paths,
                self.workspace.data,
                hardware,
                self.id if known else self.specification.recorded_id,
                self._request.new and not known,
                failed,
                deadline=deadline,
                tracking_patience=tracking_patience,
                wait=preflight.Patience.of(wait),
                unless_stopped=unless_stopped,
            )
            self.id, code = drive(self.specification, run, screen)
            if notices is not None:
                notices.end(code)
            return code

    @contextmanager
    def _notified(self, screen: Observer) -> Iterator[SweepNotices | None]:
        """Send notifications to the targets that the file names, within a `with` block.

        Raises:
            BadInput: The owner has not set a target, or it has a wrong form.
        """
        if not self.specification.notify:
            yield None
            return
        paths, owner = self.workspace.paths, admission.current_owner()
        own = notice_list.targets(paths.notices).get(owner, [])
        settings, unknown = notice_list.of_file(self.specification.notify, own, os.environ)
        if unknown:
            must = f"must name targets that {owner} has set"
            variable = f"{NOTIFY}_{unknown[0].upper().replace('-', '_')}"
            remedy = f"Run `sweep notify URL --name {unknown[0]}`, or set {variable}."
            raise BadInput("notify", must, f"`{unknown[0]}`", remedy)
        with closing(SweepNotices(paths, System(), screen.say, self.id, owner, settings)) as notices:
            notices.start()
            try:
                yield notices
            except Refusal as refusal:
                notices.end(exit_of(refusal))
                raise

    def stop(self, trial: str | None = None) -> Stopped:
        """Request the driver to save every trial and end, or to end one trial, without waiting for it.

        The request is a row of the ledger, so this works on every machine that reaches the ledger. A queued
        sweep does not start.

        Args:
            trial: Number of a trial that has not ended; None for the sweep.

        Raises:
            WrongState: The sweep has no driver and is not queued, or the trial has ended.
        """
        return self._backend().stop(self.id, trial)

    def try_setting(self, params: Mapping[str, Any]) -> TriedNext:
        """Ask the sweep to try a setting next, before the sampler proposes more.

        Writes the request to the ledger. The trial counts in the budget.

        Example:

            sweep.try_setting({"learning_rate": 1e-3})

        Args:
            params: Values of some or all hyperparameters; the sampler completes them.

        Raises:
            BadInput: A value is wrong, the setting was tried before or waits already, the sweep has finished,
                or all trials of its budget have been created.
        """
        return self._backend().try_setting(self.id, params)

    @property
    def trials(self) -> pd.DataFrame:
        """Trials as a data frame, one row each and indexed by key, the search before the confirmations.

        Columns: `number`, `role`, `state`, `value` (best validation value), `test` (None if not evaluated),
        `best_step`, `step`, `seconds`, `cause`, `parameters`, `state_floats`, `flops` (of a step, None if not
        counted), and `params.<name>` for each hyperparameter.

        Raises:
            BadInput: The sweep has never run.
        """
        return self.results().trials()

    @property
    def curves(self) -> pd.DataFrame:
        """Reports as a data frame, one row each: `trial`, `step` and every metric.

        Raises:
            BadInput: The sweep has never run.
        """
        return self.results().curves()

    @property
    def best(self) -> Trial | None:
        """Return the best trial that has a checkpoint, or None if there is none yet.

        Raises:
            BadInput: The sweep has never run, or has several objectives and no preference among them.
        """
        with self.workspace.ledger() as ledger:
            record = self._record(ledger)
            if preference_of(record) is None:
                must = f"has {len(objectives_of(record))} objectives, and no trial is the best in all of them"
                remedy = (
                    "`pareto` returns the trials to choose from; `objective.prefer` in the file names one."
                )
                raise BadInput(self.id, must, "", remedy)
            best = best_of_sweep(ledger, record, with_checkpoint=True)
        return Trial(best, self.workspace) if best else None

    def pareto(self) -> ParetoFront:
        """Return the trials that no other one dominates in all objectives, and their hypervolume.

        Raises:
            BadInput: The sweep has never run.
        """
        return self._backend().pareto(self.id)

    def summary(self) -> Summary:
        """Return the data of the report, without its figures.

        Raises:
            BadInput: The sweep has never run.
        """
        return summarise(self.history())

    def figure(self, name: str) -> go.Figure:
        """Return a figure of the report.

        Args:
            name: `history`, `learning-curves`, `hidden-norms`, `parallel`, `slices`, `importances` or
                `spending`.

        Raises:
            BadInput: The name is unknown, or the sweep has too few trials.
        """
        return self.results().figure(name)

    def report(self) -> bytes:
        """Write the report of the sweep, replacing an older one, and return its HTML page.

        Raises:
            BadInput: The sweep has never run.
        """
        return self._backend().report(self.id)

    def result(self) -> SweepAnswer:
        """Return the chosen trial so far in sentences, as the report begins, and its checkpoint.

        Raises:
            BadInput: The sweep has never run.
        """
        return self._backend().result(self.id)

    def analysis(self) -> SweepAnalysis:
        """Return importances of hyperparameters, time by activity, and norms of hidden states.

        Raises:
            BadInput: The sweep has never run.
        """
        return self._backend().analysis(self.id)

    def compare(self, *others: str, tuning: bool = False, page: bool = False) -> ComparedSweeps:
        """Compare the results of this sweep and others.

        >>> print(sweep.compare("listops-0badcafe").markdown)  # doctest: +SKIP

        Args:
            others: Names of sweeps to compare with.
            tuning: Whether to add tuning curves, for sweeps of independent random trials.
            page: Whether to add an HTML page with plots of the curves.

        Raises:
            BadInput: One of the sweeps has never run.
        """
        return self._backend().compare([self.id, *others], tuning=tuning, page=page)

    def export_study(self, file: str | Path) -> int:
        """Write the study as a new Optuna storage, a SQLite file, and return the number of trials.

        Raises:
            BadInput: The file exists, or the sweep has never run.
        """
        target = Path(file)
        if target.exists():
            remedy = "Name another file, or remove this one."
            raise BadInput(str(file), "already exists", "", remedy)
        return self.results().export_study(self.specification, target)

    def export_tensorboard(self, folder: str | Path) -> int:
        """Write curves and hyperparameters to a new folder for TensorBoard, and return the number of trials.

        Raises:
            BadInput: The folder exists, no trial has a report, or the sweep has never run.
        """
        with self.workspace.ledger() as ledger:
            return self.results().export_tensorboard(ledger, Path(folder))

    def _backend(self) -> Backend:
        return LocalBackend(self.workspace.paths.root, self.workspace.data)

    def _check_bound(self) -> None:
        """Check that this process would not run code that its owner has sent over HTTP."""
        if not self.workspace.has_ledger():
            return
        with self.workspace.ledger() as ledger:
            submission = submissions.submission(ledger, self.id)
        if submission is not None:
            check_bound(self.id, submission.options)
