"""Trial of this machine: its rows of the ledger, and the use of its best checkpoint."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator import process_secrets
from orchestrator.api.workspace import Workspace, trial_named
from orchestrator.client.names import key_named
from orchestrator.config import from_document
from orchestrator.config.trainable import resources_of
from orchestrator.errors import BadInput, NoStore
from orchestrator.export import folder as export_folder
from orchestrator.export.folder import export_saved
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.people.shelf import shelved
from orchestrator.ledger.sweeps.index import begun
from orchestrator.ledger.sweeps.records import (
    SIMILARITY,
    UNFINISHED_TRIAL,
    AttemptRecord,
    CheckpointRecord,
    ReportRecord,
    TrialRecord,
)
from orchestrator.ledger.sweeps.selection import best_checkpoint
from orchestrator.report.answer import similarity
from orchestrator.scripts.script_process import line_by_hand
from orchestrator.storage import store
from orchestrator.training import evaluation
from orchestrator.training.process import worker_environment
from trainables import checkpoint
from trainables.errors import DamagedCheckpoint
from trainables.trial import ScriptSettings

if TYPE_CHECKING:
    from trainables.inference import Predictor
    from trainables.trained_program import TrainedProgram


_COPIES = 5
"""Largest number of attempts to copy the best checkpoint of a running trial, which its driver may delete."""


@dataclass(frozen=True)
class Evaluation:
    """Repeated evaluation of the best checkpoint of a trial.

    Attributes:
        step: Step of the checkpoint.
        metrics: Metrics of this evaluation, such as `accuracy`.
        recorded: The same metrics as recorded during training.
        trained_on: Kind of device of the training, such as `gpu`, or None if not recorded.
        evaluated_on: Kind of device of this evaluation.
    """

    step: int
    metrics: Mapping[str, float]
    recorded: Mapping[str, float]
    trained_on: str | None
    evaluated_on: str

    @property
    def guarantee(self) -> str:
        """The conditions under which the metrics are equal to the last digit, as a sentence.

        The programs that trained the trial have no influence, because an evaluation uses one slot at a time.
        """
        if self.trained_on != self.evaluated_on:
            before = self.trained_on or "a device that is not recorded"
            return f"trained on {before}, evaluated on {self.evaluated_on}: equal up to rounding"
        same = f"equal to the last digit with the same versions on the same model of {self.evaluated_on}"
        return f"{same}, regardless of the programs that trained it"

    @property
    def equal(self) -> bool:
        """Whether every metric equals the recorded one to the last digit."""
        return self.metrics == self.recorded


@dataclass(frozen=True)
class TrialHistory:
    """The rows of the ledger about one trial, by step or number."""

    trial: TrialRecord
    attempts: Sequence[AttemptRecord]
    reports: Sequence[ReportRecord]
    checkpoints: Sequence[CheckpointRecord]


@dataclass(frozen=True)
class WorkerLogs:
    """Output of the workers of a trial.

    Attributes:
        text: Log on this machine, including tracebacks; empty if no attempt ran here.
        elsewhere: Events of the attempts on other machines from the ledger, one line each.
        nodes: Names of those machines; the tracebacks are in their logs.
    """

    text: str
    elsewhere: Sequence[str]
    nodes: Sequence[str]


@dataclass(frozen=True)
class Trial:
    """Snapshot of a trial.

    >>> Trial.find("listops-0a1b2c3d-7").predictor()  # doctest: +SKIP

    Attributes:
        record: Row of the ledger at the time of the snapshot.
        workspace: Folders of its checkpoints and logs.
    """

    record: TrialRecord
    workspace: Workspace

    @classmethod
    def find(cls, key: str | int, *, root: str | Path | None = None, data: str | Path | None = None) -> Trial:
        """Return the trial with a key, a shortened key, or a number in the newest sweep.

        Args:
            key: `<sweep>-<number>`, as the leaderboard shows it, where the ID of the sweep may be shortened;
                or number in the newest sweep.
            root: Folder of everything that sweeps write; `SWEEP_ROOT` or else `mlruns` if None.
            data: Folder of the data sets; `SWEEP_DATA` or else `data` if None.

        Raises:
            BadInput: The ledger does not exist, or several sweeps begin with the shortened ID.
            NotFound: The trial does not exist.
        """
        workspace = Workspace.at(root, data)
        with workspace.ledger() as ledger:
            return cls(trial_named(ledger, key_named(begun(ledger), shelved(ledger), str(key))), workspace)

    def __repr__(self) -> str:
        return f"Trial({self.key!r}, {self.state}, value={self.value})"

    @property
    def key(self) -> str:
        """Key, `<sweep>-<number>`."""
        return self.record.key

    @property
    def state(self) -> str:
        """State: WAITING, RUNNING, PREEMPTED, COMPLETE, PRUNED or FAILED."""
        return self.record.state

    @property
    def params(self) -> Mapping[str, Any]:
        """Hyperparameters by name."""
        return self.record.params

    @property
    def value(self) -> float | None:
        """Best validation value, or None if the trial is neither COMPLETE nor PRUNED."""
        return self.record.value

    @property
    def runs_script(self) -> bool:
        """Whether this trial runs a function or a command."""
        return bool({"function", "command"} & self._trainable().keys())

    def similarity(self, facts: Mapping[str, Any]) -> str:
        """Describe the recorded similarity of the results that it repeats; '' if none is recorded.

        Args:
            facts: Facts of its sweep.
        """
        recorded = facts.get(SIMILARITY, {}).get(self.record.repeats)
        if recorded is None:
            return ""
        return similarity(recorded["shared"], recorded["correlation"], recorded["weight"])

    @property
    def unshown_metrics(self) -> frozenset[str]:
        """Metrics that tables and curves of this trial omit."""
        return unshown_metrics(self._document())

    @property
    def checkpoint(self) -> Path:
        """Folder of the best checkpoint.

        With `SWEEP_CHECKPOINTS`, the checkpoint is copied from the shared store to the root if necessary.

        Raises:
            BadInput: The trial has no checkpoint.
            NoStore: The shared store does not answer.
        """
        return self._at_hand(self._best_checkpoint())

    def evaluate(self) -> Evaluation:
        """Evaluate the best checkpoint on the validation split in a separate process.

        The process has the environment of a worker, because the number of threads of XLA changes the last
        digits of a result. It writes the cache of compiled programs and, if necessary, the encoded data set.

        Raises:
            BadInput: The trial has no checkpoint, or the checkpoint cannot be evaluated.
            NoStore: The shared store does not answer.
        """
        self._check_kind("be evaluated", "function", "command")
        with self._kept() as (saved, folder):
            answer = self._evaluated(folder, saved.digest)
        evaluation.check_answer(answer, saved.digest, "validation", saved.step)
        recorded = {name: saved.metrics[f"val/{name}"] for name in answer["metrics"]}
        devices = answer["trained_on"], answer["evaluated_on"]
        return Evaluation(answer["step"], answer["metrics"], recorded, *devices)

    def export(self, folder: str | Path) -> list[str]:
        """Write a new folder from which another machine trains this trial again.

        For a program, the folder also contains the state of the best checkpoint. For a function or a command,
        it contains the files of the best checkpoint and the code that ran.

        Returns:
            Sentences about the guarantee for the curve and its exceptions.

        Raises:
            BadInput: The folder exists, or the trial has no report or no saved file.
            NoStore: The shared store does not answer.
            DamagedCheckpoint: A file differs from its manifest, or belongs to another trial.
        """
        target = Path(folder).absolute()
        if self.runs_script:
            code = self._archive_of_code()
            settings = None if code is None else self._script_settings()
            with self._kept() as (saved, kept):
                export_saved(self.record, saved, kept, target, code, settings)
            return []
        state: Mapping[str, Any] = {}
        if self._trainable():
            with self._kept() as (saved, kept):
                state, facts = checkpoint.load(kept, saved.digest)
                checkpoint.check_trial(kept, facts, self.key)
        with self.workspace.ledger() as ledger:
            return export_folder.export(ledger, self.record, target, self._facts(ledger), state)

    def predictor(self) -> Predictor:
        """Return the trained network of the best checkpoint; import JAX.

        Raises:
            BadInput: The trial has no checkpoint.
            NoStore: The shared store does not answer.
            DamagedCheckpoint: A file of the checkpoint differs from its manifest.
        """
        self._check_kind("be loaded as a network", "function", "command", "program")
        saved = self._best_checkpoint()
        folder = self._at_hand(saved)
        predictor, _ = _readers()
        return predictor(folder, saved.digest)

    def trained_program(self) -> TrainedProgram:
        """Return the program of the best checkpoint with its state; import JAX and the program.

        Raises:
            BadInput: The trial has no checkpoint, or does not run a program.
            NoStore: The shared store does not answer.
            DamagedCheckpoint: A file of the checkpoint differs from its manifest.
            Refusal: The program cannot be imported, or has changed.
        """
        section = self._trainable()
        if "program" not in section:
            must, remedy = "does not run a program", "Use `predictor` for a built-in model."
            raise BadInput(self.key, must, next(iter(section), "a network of this package"), remedy)
        saved = self._best_checkpoint()
        folder = self._at_hand(saved)
        _, trained_program = _readers()
        return trained_program(folder, saved.digest, Path(section["folder"]))

    def history(self) -> TrialHistory:
        """Return the rows of the ledger about this trial."""
        with self.workspace.ledger() as ledger:
            return TrialHistory(
                self.record,
                ledger.trial_attempts(self.key),
                ledger.trial_reports(self.key),
                ledger.trial_checkpoints(self.key),
            )

    def is_empty(self, saved: CheckpointRecord) -> bool:
        """Return True if a checkpoint of this trial holds no files."""
        return checkpoint.is_empty(Path(saved.path))

    def code_changes(self) -> list[str]:
        """Return the version of the code of each attempt, one line each, or nothing if it has not changed."""
        with self.workspace.ledger() as ledger:
            sweep, attempts = ledger.sweep(self.record.sweep_id), ledger.trial_attempts(self.key)
        codes = () if sweep is None else sweep.facts.get("code", ())
        if len(codes) < 2:
            return []
        known = [sum(code["at"] <= attempt.started_at for code in codes) for attempt in attempts]
        return [
            f"attempt {attempt.number} began with version {max(number, 1)} of {len(codes)} of the code, "
            f"which has changed since the sweep began: {codes[max(number, 1) - 1]['digest'][:12]}"
            for attempt, number in zip(attempts, known, strict=True)
        ]

    def resources(self) -> str:
        """Return the resources of this trial in words, with the bound of its GPU's memory."""
        return resources_of(self._document())

    def by_hand(self) -> str | None:
        """Return a line for a shell that runs the command of this trial without a sweep, or None."""
        return line_by_hand(self._script_settings()) if "command" in self._trainable() else None

    def _script_settings(self) -> ScriptSettings:
        settings = from_document(self._document(), "").settings(self.params, self.record.seed)
        assert isinstance(settings, ScriptSettings)
        return settings

    def _archive_of_code(self) -> Path | None:
        """Return the archive of the code with which the last attempt began, or None if it is not here."""
        with self.workspace.ledger() as ledger:
            sweep, attempts = ledger.sweep(self.record.sweep_id), ledger.trial_attempts(self.key)
        codes = () if sweep is None else sweep.facts.get("code", ())
        known = [code for code in codes if not attempts or code["at"] <= attempts[-1].started_at]
        folder = self.workspace.paths.code(self.record.sweep_id)
        files = [folder / f"code-{code['digest'][:12]}.zip" for code in (known or codes)[-1:]]
        return next((file for file in files if file.exists()), None)

    def log(self) -> WorkerLogs:
        """Return the output of the workers of this trial.

        Raises:
            BadInput: No attempt of the trial has started.
        """
        file = self.workspace.paths.log(self.record.sweep_id, self.key)
        text = file.read_bytes().decode(errors="replace") if file.exists() else ""
        history = self.history()
        elsewhere = [row for row in history.attempts if f" attempt {row.number}: " not in text]
        if not text and not elsewhere:
            raise BadInput(self.key, f"has no log {file} on this machine", "", "`show` shows its state.")
        return WorkerLogs(
            text,
            [line for attempt in elsewhere for line in _lines(attempt, history.reports)],
            sorted({attempt.node for attempt in elsewhere if attempt.node}),
        )

    def _facts(self, ledger: Ledger) -> Mapping[str, Any]:
        """Return the facts of training in the last checkpoint; empty if unreadable."""
        last = next((row for row in ledger.trial_checkpoints(self.key) if row.kind == "last"), None)
        if last is not None:
            with suppress(DamagedCheckpoint, NoStore):
                return checkpoint.facts_of(self._at_hand(last), last.digest)
        return {}

    def _check_kind(self, what: str, *kinds: str) -> None:
        """Raise BadInput if the kind of trainable does not support an operation."""
        section = self._trainable()
        able = "a built-in model" if "program" in kinds else "a program or a built-in model"
        for kind in kinds:
            if kind in section:
                must = f"cannot {what}, because it does not train {able}"
                raise BadInput(self.key, must, f"a {kind}", _INSTEAD[kind])

    def _trainable(self) -> Mapping[str, Any]:
        """Return the section `trainable` of the file; empty for built-in networks."""
        section: Mapping[str, Any] = self._document().get("trainable", {})
        return section

    def _document(self) -> Mapping[str, Any]:
        """Return the document of the sweep."""
        with self.workspace.ledger() as ledger:
            sweep = ledger.sweep(self.record.sweep_id)
        assert sweep is not None, "a trial's sweep is in the ledger"
        return sweep.document

    def _best_checkpoint(self) -> CheckpointRecord:
        with self.workspace.ledger() as ledger:
            saved = _best_of(ledger, self.record)
        if saved is None:
            raise BadInput(self.key, "has no checkpoint", "", "`show` lists the checkpoints of a trial.")
        return saved

    @contextmanager
    def _kept(self) -> Iterator[tuple[CheckpointRecord, Path]]:
        """Yield the best checkpoint and its folder for a `with` block.

        For a running trial this is a copy, because its driver deletes a checkpoint after saving better ones.
        """
        saved = self._best_checkpoint()
        folder = self._at_hand(saved)
        if self.record.state not in UNFINISHED_TRIAL:
            yield saved, folder
            return
        with tempfile.TemporaryDirectory(prefix="checkpoint-") as temporary:
            for number in range(_COPIES):
                copy = Path(temporary, str(number))
                with suppress(OSError):  # it is being deleted
                    shutil.copytree(folder, copy)
                if checkpoint.is_whole(copy, saved.digest):
                    folder = copy
                    break
                saved = self._best_checkpoint()
                folder = self._at_hand(saved)
            yield saved, folder

    def _at_hand(self, saved: CheckpointRecord) -> Path:
        with self.workspace.ledger() as ledger:
            ledger_id = ledger.id
        paths, sweep_id = self.workspace.paths, self.record.sweep_id
        return store.at_hand(paths, ledger_id, sweep_id, self.key, saved.path, saved.digest)

    def _evaluated(self, folder: Path, digest: str) -> dict[str, Any]:
        paths = self.workspace.paths
        words = [str(folder), digest, str(self.workspace.data), "validation", str(paths.compilations)]
        words += [self._trainable().get("folder", ""), self.key]
        environment = {**os.environ, **worker_environment(0)}
        done = process_secrets.run_module(_EVALUATION, *words, environment=environment)
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            remedy = "`check` finds damaged files."
            raise BadInput(str(folder), f"cannot be evaluated: {lines[-1]}", "", remedy)
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return answer


_EVALUATION = "orchestrator.training.evaluation"

_SAVED = "`export` writes the files that a function or a command has saved."
_INSTEAD: Mapping[str, str] = {
    "function": _SAVED,
    "command": _SAVED,
    "program": "`trained_program` returns the program with its state.",
}
"""Suggested alternative to a refused operation, by kind of trainable."""


def _readers() -> tuple[type[Predictor], type[TrainedProgram]]:
    """Return the classes that read checkpoints: of networks, and of programs."""
    from trainables import inference, trained_program  # JAX takes a second to import

    return inference.Predictor, trained_program.TrainedProgram


def _best_of(ledger: Ledger, trial: TrialRecord) -> CheckpointRecord | None:
    """Return the checkpoint with the best value so far, or None."""
    rows = ledger.trial_checkpoints(trial.key)
    if trial.best_step is not None:
        return best_checkpoint(trial, rows)
    return next((row for row in rows if row.kind == "best"), None)


def _lines(attempt: AttemptRecord, reports: Sequence[ReportRecord]) -> Iterator[str]:
    """Yield the rows of an attempt as lines of its worker's log."""

    def line(at: float, text: str) -> str:
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at))
        return f"{stamp}Z attempt {attempt.number}: {text}"

    yield line(attempt.started_at, f"launched{f' on {attempt.node}' if attempt.node else ''}")
    for report in reports:
        if report.attempt_id == attempt.id:
            metrics = ", ".join(f"{name} {value:.6g}" for name, value in report.metrics.items())
            yield line(report.at, f"step {report.step}: {metrics}")
    if attempt.ended_at is not None:
        yield line(attempt.ended_at, f"{attempt.state} {attempt.cause or ''}".rstrip())


OF_TRAINING = frozenset({"learning_rate", "tokens_per_second"})
"""Metrics of a network or a program that describe the course of its training and not its quality."""


def unshown_metrics(document: Mapping[str, Any]) -> frozenset[str]:
    """Return the metrics that tables and curves of a sweep omit.

    Metrics of functions and commands, and metrics that rank, constrain or stop trials, are never omitted.

    Args:
        document: Document of the sweep.
    """
    if {"function", "command"} & document.get("trainable", {}).keys():
        return frozenset()
    objectives = {name for names in document.get("objective", {}).values() for name in names}
    return OF_TRAINING - objectives - (document.get("constraints") or {}).keys()
