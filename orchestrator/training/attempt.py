"""An attempt in a slot of an engine, interval by interval."""

from __future__ import annotations

import os
import shutil
import socket
import time
import traceback
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from orchestrator import process_secrets
from orchestrator.assignment import (
    INITIAL_NORM,
    OUT_OF_GPU_MEMORY,
    SIZE,
    Assignment,
    Outcome,
    SavedCheckpoint,
)
from orchestrator.ledger.sweeps.records import attempt_number, pack_scores, unpack_scores
from orchestrator.process_secrets import redacted, secrets_of_environment
from orchestrator.storage import store
from orchestrator.storage.paths import attempt_of, checkpoint_stem
from orchestrator.training import process
from orchestrator.training.engine_cache import cache_of_process, configure
from trainables import checkpoint
from trainables.errors import BadData, DamagedCheckpoint, Refusal, in_one_line
from trainables.per_step import PerStep
from trainables.stretches import Stretches, continued, merged
from trainables.trial import ProgramSettings, ScriptSettings, Settings, TrialSettings

if TYPE_CHECKING:
    from trainables.engine import Engine, TrainReport


SIGN_OF_LIFE = 30.0
"""Heartbeat interval of a waiting or training attempt."""


LONGEST_MESSAGE = 2000
"""Maximum length of the message of a failure; the log has all of it."""


class Attempt:
    """An attempt of a trial, in a free slot of an engine for its static choice.

    Example:

        attempt = Attempt(engine, 0, assignment)
        while not (outcome := attempt.advance()).done:
            print(outcome.step, outcome.metrics)
        attempt.release()
    """

    def __init__(self, engine: Engine, slot: int, assignment: Assignment) -> None:
        self._assignment, self._settings = assignment, _of_engine(assignment.settings)
        self._settings_as_json = asdict(assignment.settings)
        self._engine, self._slot = engine, slot
        self._log = TrialLog(Path(assignment.log), assignment.attempt_id)
        self._step = 0
        self._saved: SavedCheckpoint | None = None
        self._stretches: Stretches = [[]]
        self._devices = [engine.device]
        self._unreported: PerStep | None = None
        self._asked = False
        self._admit(assignment.resume)

    def _admit(self, resume: SavedCheckpoint | None) -> None:
        """Check the disk of the checkpoints, then take the slot.

        On a full disk, training up to the first save would be lost. Taking the slot is the last step that can
        fail, because no caller would free the slot after a failure.
        """
        if resume is None:
            store.check_space(Path(self._assignment.checkpoints))
            self._log.started(0)
            if isinstance(self._assignment.settings, ProgramSettings):
                self._log.write(process_secrets.left_out_notice(()))
            self._engine.admit(self._slot, self._settings)
            return
        arrays, facts = store.load(Path(resume.path), self._assignment.store, resume.digest)
        checkpoint.check_trial(Path(resume.path), facts, self._assignment.trial_key, resume.step)
        store.check_space(Path(self._assignment.checkpoints))
        self._step = int(facts["step"])
        if UNREPORTED in facts:
            columns = {name: unpack_scores(text) for name, text in facts[UNREPORTED].items()}
            self._unreported = PerStep(**{name: np.array(each, np.float32) for name, each in columns.items()})
        between = self._step % self._settings.training.interval != 0
        left_out = between and self._unreported is None
        self._stretches = continued(facts["stretches"], left_out=left_out)
        self._devices = list(dict.fromkeys([*facts["devices"], self._engine.device]))
        self._log.started(self._step)
        self._engine.restore(self._slot, self._settings, arrays)

    @property
    def attempt_id(self) -> str:
        """Return the id of the attempt."""
        return self._assignment.attempt_id

    @property
    def wanted(self) -> int:
        """Return the number of steps to the next report."""
        training = self._settings.training
        return min(training.interval - self._step % training.interval, training.steps - self._step)

    def advance(self) -> Outcome:
        """Train alone towards the next report; return at once if the attempt must stop.

        After `SIGN_OF_LIFE` seconds return a `training` outcome; the next call continues.
        """
        if not self._asked:
            if interruption := self.interruption():
                return interruption
            self._engine.ask(self._slot, self.wanted)
            self._asked = True
        began = time.monotonic()
        while (report := self._round()) is None:
            if time.monotonic() - began > SIGN_OF_LIFE:
                return Outcome(self.attempt_id, self._step, training=True)
        self._asked = False
        return self.outcome(report)

    def _round(self) -> TrainReport | None:
        """Run a round; return the report if it is due, or if the attempt must stop before it."""
        ended = self._engine.round()
        for error in ended.failures.values():
            raise error
        if self._slot in ended.reports:
            return ended.reports[self._slot]
        return self._engine.cut(self._slot) if self.must_stop() else None

    def interruption(self) -> Outcome | None:
        """Return the outcome that ends the attempt at its last checkpoint, or None if it may continue."""
        if self._saved is None or not self.must_stop():
            return None
        return Outcome(self.attempt_id, self._step, done=True, checkpoint=self._saved, interrupted=True)

    def must_stop(self) -> bool:
        """Return True if this process is terminating, or the driver has asked the attempt to stop."""
        assignment = self._assignment
        return process.terminating() or process.stop_requested(assignment.channel, assignment.attempt_id)

    def outcome(self, report: TrainReport) -> Outcome:
        """Evaluate on validation and save a checkpoint. Before the next report is due, only save."""
        complete = report.steps >= self.wanted
        if self._unreported is not None:
            report = report.after(self._unreported)
        self._step, self._unreported = report.step, None if complete else report.per_step
        self._stretches[-1] = list(merged([*self._stretches[-1], *report.stretches]))
        if not report.finite:
            message = "the training loss is not finite"
            return Outcome(self.attempt_id, self._step, done=True, failure="non-finite", message=message)
        if not complete:
            return Outcome(
                self.attempt_id, self._step, done=True, checkpoint=self._save({}), interrupted=True
            )
        return self._evaluated(report)

    def _evaluated(self, report: TrainReport) -> Outcome:
        started = time.perf_counter()
        scores = self._engine.evaluate(self._slot, "validation", self._settings.evaluate_examples)
        slot, engine = self._slot, self._engine
        curve = report.curve(scores, engine.hidden_norms(slot), engine.solutions(slot))
        seconds = time.perf_counter() - started
        metrics = {**curve, **_speed(report, seconds), **self._of_first_report()}
        self._assignment.check_metrics(metrics)
        saved = self._save(curve)
        self._log.write(f"step {self._step}: " + ", ".join(f"{k} {v:.6g}" for k, v in metrics.items()))
        done = self._step >= self._settings.training.steps
        return Outcome(self.attempt_id, self._step, done=done, metrics=metrics, checkpoint=saved)

    def _of_first_report(self) -> dict[str, float]:
        """Return the size of the network and its norms at step 0 for the first report, else nothing."""
        training = self._settings.training
        if self._step > min(training.interval, training.steps) or self._engine.cost is None:
            return {}
        sizes = self._engine.cost.document()
        norms = self._engine.hidden_norms(self._slot, initial=self._settings)
        return {
            **{f"{SIZE}{name}": float(value) for name, value in sizes.items()},
            **{f"{INITIAL_NORM}{name}": value for name, value in norms.items()},
        }

    def _save(self, metrics: dict[str, float]) -> SavedCheckpoint:
        """Save a checkpoint. `metrics` contain no times, so that equal states have equal digests."""
        number = attempt_number(self._assignment.attempt_id)
        stem = Path(self._assignment.checkpoints) / checkpoint_stem(self._step, number)
        facts: dict[str, Any] = {
            "trial": self._assignment.trial_key,
            "step": self._step,
            "metrics": metrics,
            "settings": self._settings_as_json,
            **self._engine.data.facts(),
            "device": self._engine.device,
            "devices": self._devices,
            "stretches": self._stretches,
        }
        if self._unreported is not None:
            facts[UNREPORTED] = {name: pack_scores(each) for name, each in self._unreported._asdict().items()}
        saved = checkpoint.save(stem, self._engine.snapshot(self._slot), facts)
        if self._assignment.store:
            upload(saved.folder, self._assignment.store)
        self._saved = SavedCheckpoint(str(saved.folder), self._step, saved.digest, saved.bytes)
        return self._saved

    def release(self) -> None:
        """Free the slot."""
        self._engine.evict(self._slot)


def unbegun(assignment: Assignment) -> Outcome | None:
    """Return the outcome of an attempt that must stop before it begins, or None if it may begin.

    Such an attempt trains and saves nothing, because its driver may have dropped it. Call this before the
    first step.
    """
    if process.may_begin(assignment.channel, assignment.attempt_id):
        return None
    step = assignment.resume.step if assignment.resume else 0
    return Outcome(assignment.attempt_id, step, done=True, interrupted=True)


def upload(folder: Path, url: str) -> None:
    """Copy a checkpoint to the shared store, then delete older ones of the trial from this machine.

    Hidden folders, which are still being written, and checkpoints of a later attempt stay.
    """
    store.keep(folder, url)
    for other in folder.parent.glob("step-*"):
        if other != folder and attempt_of(other.name) <= attempt_of(folder.name):
            shutil.rmtree(other, ignore_errors=True)


class RunningAttempt(Protocol):
    """An attempt that has begun."""

    def advance(self) -> Outcome:
        """Return the next report."""

    def release(self) -> None:
        """Free the resources of the attempt."""


class LostRank(Exception):
    """A process of an attempt on another node, or that node, has died: the attempt ends as if its own had."""


class OwnAttempts(ABC):
    """Runs the attempts of a worker without a shared device, one after the other.

    Attributes:
        loses_node: Whether a node of the last attempt, not that of this process, is about to be taken away.
    """

    loses_node = False

    def __init__(self) -> None:
        self._attempt: RunningAttempt | None = None

    @abstractmethod
    def _begin(self, assignment: Assignment) -> RunningAttempt:
        """Begin and return an attempt."""

    def advance(self, assignment: Assignment) -> Outcome:
        """Return the next report; a failure is an outcome with a cause."""
        try:
            if self._attempt is None:
                if outcome := unbegun(assignment):
                    return outcome
                self._attempt = self._begin(assignment)
            return self._attempt.advance()
        except LostRank:
            raise
        except Exception as error:  # noqa: BLE001 - a failure inside a trial is an outcome with a cause
            return failure_outcome(assignment, error)

    def release(self) -> None:
        """Free the resources of the attempt, if one has begun."""
        if self._attempt is not None:
            self._attempt.release()
            self._attempt = None


class OwnEngine(OwnAttempts):
    """An engine of one slot in the worker's own process."""

    def __init__(self) -> None:
        super().__init__()
        self._cache = cache_of_process()

    def _begin(self, assignment: Assignment) -> Attempt:
        configure(assignment.compilations, assignment.gpu)
        engine = self._cache.engine(_of_engine(assignment.settings), assignment.data)
        return Attempt(engine, 0, assignment)


UNREPORTED = "unreported"
"""Key of a checkpoint between two reports for the values of the single steps since the last report."""


def _of_engine(settings: Settings) -> TrialSettings | ProgramSettings:
    """Return settings that an engine can train; functions and commands have other workers."""
    assert not isinstance(settings, ScriptSettings)
    return settings


class OverLimit(Exception):
    """A trial has exceeded a limit. The worker turns this error into an outcome with a cause."""

    def __init__(self, cause: str, refusal: Refusal) -> None:
        super().__init__(str(refusal))
        self.cause = cause


def failure_outcome(assignment: Assignment, error: Exception) -> Outcome:
    """Return the outcome of an attempt that raised an error, and write the error to the trial's log.

    Refusals are logged without a traceback, other errors with one.
    """
    cause, message = _cause_and_message(error)
    with suppress(OSError):  # the log may be on the full disk
        log = TrialLog(Path(assignment.log), assignment.attempt_id)
        says_all = isinstance(error, Refusal | OverLimit)
        log.write(str(error) if says_all else "".join(traceback.format_exception(error)))
    return Outcome(assignment.attempt_id, 0, done=True, failure=cause, message=message)


def _cause_and_message(error: Exception) -> tuple[str, str]:
    """Return the cause and one line about an exception raised while training."""
    text = str(error) if isinstance(error, Refusal | OverLimit) else in_one_line(error)
    line = _printable(redacted(text))  # before Ray Tune writes the outcome to its own state
    if isinstance(error, OverLimit):
        return error.cause, line
    if isinstance(error, BadData):
        return "bad data", line
    if isinstance(error, DamagedCheckpoint):
        return "damaged checkpoint", line
    if outage := store.outage_of(error):
        return outage, line
    if isinstance(error, MemoryError):
        return "out of memory", line
    if "RESOURCE_EXHAUSTED" in str(error):
        # XLA says the same of both memories; the process of an engine sees the GPUs of its trials alone.
        return OUT_OF_GPU_MEMORY if os.environ.get("CUDA_VISIBLE_DEVICES") else "out of memory", line
    return "error", line


def _printable(text: str) -> str:
    """Return a text as one printable line."""
    shown = (char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
    return "".join(shown)[:LONGEST_MESSAGE]


def _speed(report: TrainReport, evaluate_seconds: float) -> dict[str, float]:
    return {
        "tokens_per_second": report.tokens / max(report.train_seconds, 1e-9),
        "seconds/train": report.train_seconds,
        "seconds/compile": report.compile_seconds,
        "seconds/evaluate": evaluate_seconds,
    }


class TrialLog:
    """Log file of a trial. Every line has a time and the attempt's number. A missing folder is created."""

    def __init__(self, file: Path, attempt_id: str) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self._file, self._attempt = file, attempt_number(attempt_id)
        self._secrets = secrets_of_environment()

    def started(self, step: int) -> None:
        """Log the machine and the first step of the attempt."""
        self.write(f"started at step {step} on {socket.gethostname()}, process {os.getpid()}")

    def write(self, text: str) -> None:
        """Append a text, one entry for each of its lines; nothing for an empty text."""
        if not text:
            return
        head = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime()) + f" attempt {self._attempt}: "
        lines = redacted(text.removesuffix("\n"), self._secrets).replace("\r", "\n").split("\n")
        with self._file.open("a", encoding="utf-8", errors="backslashreplace") as out:
            out.write("".join(f"{head}{line}\n" for line in lines))
