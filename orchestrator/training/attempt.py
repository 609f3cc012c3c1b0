"""An attempt in a slot of an engine, interval by interval; only workers and engines import this."""

from __future__ import annotations

import errno
import shutil
import time
import traceback
from dataclasses import asdict
from pathlib import Path

from orchestrator.assignment import Assignment, Outcome, SavedCheckpoint
from orchestrator.errors import NoStore
from orchestrator.redaction import redacted
from orchestrator.storage import store
from orchestrator.storage.paths import checkpoint_name
from orchestrator.training import stop_signal
from orchestrator.training.engine_cache import EngineCache, configure
from orchestrator.training.log import TrialLog
from trainables import checkpoint
from trainables.engine import Engine, TrainReport
from trainables.errors import BadData, DamagedCheckpoint, Refusal


class Attempt:
    """One attempt of one trial in a slot of an engine.

    Attributes:
        wanted: steps to the next report.
    """

    def __init__(self, engine: Engine, slot: int, assignment: Assignment) -> None:
        """Admit the trial, from its seed or from the checkpoint that the assignment names."""
        self._assignment, self._settings = assignment, assignment.settings
        self._engine, self._slot = engine, slot
        self._log = TrialLog(Path(assignment.log), assignment.attempt_id)
        self._step = 0
        self._saved: SavedCheckpoint | None = None
        self._admit(assignment.resume)

    def _admit(self, resume: str | None) -> None:
        """Take the slot, as the last thing that can fail: nobody would give it back."""
        if resume is None:
            self._log.started(0)
            self._engine.admit(self._slot, self._settings)
            return
        if self._assignment.store:
            store.fetch(Path(resume), self._assignment.store)
        arrays, facts = checkpoint.load(Path(resume), self._assignment.resume_digest)
        self._step = int(facts["step"])
        self._log.started(self._step)
        self._engine.restore(self._slot, self._settings, arrays)

    @property
    def wanted(self) -> int:
        """Return the steps to the next report."""
        training = self._settings.training
        return min(training.interval - self._step % training.interval, training.steps - self._step)

    def advance(self) -> Outcome:
        """Train to the next report, without neighbours, unless it was wished since the last one to leave."""
        if farewell := self.farewell():
            return farewell
        return self.outcome(
            self._engine.advance({self._slot: self.wanted}, stop=self.stop_wished)[self._slot]
        )

    def farewell(self) -> Outcome | None:
        """Return the outcome of leaving with what the last report has saved, if it is wished to leave."""
        if self._saved is None or not self.stop_wished():
            return None
        return Outcome(self._step, done=True, metrics={}, checkpoint=self._saved, interrupted=True)

    def outcome(self, report: TrainReport) -> Outcome:
        """Evaluate on validation and save a checkpoint; only save, if less was done than wanted."""
        complete = report.steps >= self.wanted
        self._step = report.step
        if not report.finite:
            told = "the training loss is not finite"
            return Outcome(self._step, done=True, metrics={}, failure="non-finite", message=told)
        if not complete:
            return Outcome(self._step, done=True, metrics={}, checkpoint=self._save({}), interrupted=True)
        return self._evaluated(report)

    def _evaluated(self, report: TrainReport) -> Outcome:
        started = time.perf_counter()
        scores = self._engine.evaluate(self._slot, "validation", self._settings.evaluate_examples)
        metrics = _metrics(report, scores, time.perf_counter() - started)
        saved = self._save(metrics)
        self._log.write(f"step {self._step}: " + ", ".join(f"{k} {v:.6g}" for k, v in metrics.items()))
        done = self._step >= self._settings.training.steps
        return Outcome(self._step, done=done, metrics=metrics, checkpoint=saved)

    def stop_wished(self) -> bool:
        """Tell whether somebody wishes the attempt to save and leave."""
        return stop_signal.asked() or Path(self._assignment.stop_wish).exists()

    def _save(self, metrics: dict[str, float]) -> SavedCheckpoint:
        folder = Path(self._assignment.checkpoints) / checkpoint_name(self._step)
        facts = {
            "trial": self._assignment.trial_key,
            "step": self._step,
            "metrics": metrics,
            "settings": asdict(self._settings),
            "signature": asdict(self._engine.data.signature),
            "characters": self._engine.data.characters,
        }
        manifest = checkpoint.save(folder, self._engine.snapshot(self._slot), facts)
        if self._assignment.store:
            self._share(folder, self._assignment.store)
        self._saved = SavedCheckpoint(str(folder), self._step, manifest.digest, manifest.bytes)
        return self._saved

    def _share(self, folder: Path, url: str) -> None:
        """Bring a checkpoint where every node reaches it; those before it need no place on this one."""
        store.keep(folder, url)
        for other in folder.parent.iterdir():
            if other != folder:
                shutil.rmtree(other, ignore_errors=True)

    def leave(self) -> None:
        """Give the slot back."""
        self._engine.evict(self._slot)


class OwnEngine:
    """The place of a worker that has a device to itself: an engine of one slot in its own process."""

    def __init__(self) -> None:
        self._bench = EngineCache()
        self._attempt: Attempt | None = None

    def advance(self, assignment: Assignment) -> Outcome:
        """Train to the next report; a failure is an outcome too, with its cause."""
        try:
            if self._attempt is None:
                configure(assignment.compilations)
                engine = self._bench.engine(assignment.settings, assignment.data)
                self._attempt = Attempt(engine, 0, assignment)
            return self._attempt.advance()
        except Exception as error:  # noqa: BLE001 - whatever a trial raises is told to the driver, with its cause
            return failed(assignment, error)

    def leave(self) -> None:
        """Give the slot back."""
        if self._attempt is not None:
            self._attempt.leave()
            self._attempt = None


def failed(assignment: Assignment, error: Exception) -> Outcome:
    """Return the outcome of an attempt that raised an error, and write its traceback to the trial's log."""
    cause, message = failure_of(error)
    TrialLog(Path(assignment.log), assignment.attempt_id).write("".join(traceback.format_exception(error)))
    return Outcome(step=0, done=True, metrics={}, failure=cause, message=message)


def failure_of(error: Exception) -> tuple[str, str]:
    """Return the cause and one line about an exception raised while training."""
    told = str(error) if isinstance(error, Refusal) else f"{type(error).__name__}: {error}".splitlines()[0]
    line = redacted(told)  # here already: Ray Tune keeps in its own state what a worker reports
    if isinstance(error, BadData):
        return "bad data", line
    if isinstance(error, DamagedCheckpoint):
        return "damaged checkpoint", line
    if isinstance(error, NoStore):
        return "store lost", line
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "disk full", line
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
        return "out of memory", line
    return "error", line


def _metrics(report: TrainReport, scores: dict[str, float], evaluate_seconds: float) -> dict[str, float]:
    return {
        **report.curve(scores),
        "tokens_per_second": report.tokens / max(report.train_seconds, 1e-9),
        "seconds/train": report.train_seconds,
        "seconds/compile": report.compile_seconds,
        "seconds/evaluate": evaluate_seconds,
    }
