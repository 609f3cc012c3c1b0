"""The worker's side of an attempt: drive one slot of an engine, interval by interval.

The engine outlives the trial, so that the next trial of the same static choice neither starts a process nor
compiles. This module imports JAX; only workers and the `evaluate` verb import it.
"""

from __future__ import annotations

import errno
import time
from dataclasses import asdict
from pathlib import Path

import jax

from orchestrator.assignment import Assignment, Outcome, SavedCheckpoint
from orchestrator.paths import checkpoint_name
from orchestrator.triallog import TrialLog
from trainables import checkpoint
from trainables.engine import Engine, TrainReport
from trainables.errors import BadData, DamagedCheckpoint, Refusal
from trainables.settings import TrialSettings
from trainables.tasks import TASKS
from trainables.tasks.base import TaskData

_SLOT = 0


class Bench:
    """The one engine that is resident in this process, and the data it trains on."""

    def __init__(self) -> None:
        self._key: object = None
        self._engine: Engine | None = None
        self._data: TaskData | None = None
        self._data_key: object = None

    def engine(self, settings: TrialSettings, folder: str) -> Engine:
        """Return the engine for the settings' static choice, the resident one if it fits."""
        key = (settings.static(), folder)
        if self._engine is None or self._key != key:
            # The old engine's device memory must be free before the new one asks for its own.
            self._engine = None
            self._engine = Engine(settings, self.data(settings, folder))
            self._key = key
        return self._engine

    def data(self, settings: TrialSettings, folder: str) -> TaskData:
        """Return the task's data, loaded once while the same task goes on."""
        key = (settings.task, tuple(sorted(settings.task_options.items())), folder)
        if self._data is None or self._data_key != key:
            self._data = TASKS[settings.task].load(settings.task_options, Path(folder))
            self._data_key = key
        return self._data


class Attempt:
    """One attempt of one trial in a slot of the bench's engine."""

    def __init__(self, bench: Bench, assignment: Assignment) -> None:
        self._assignment = assignment
        self._settings = assignment.settings
        self._engine = bench.engine(assignment.settings, assignment.data)
        self._log = TrialLog(Path(assignment.log), assignment.attempt_id)
        self._step = 0
        self._admit()
        self._log.started(self._step)

    def _admit(self) -> None:
        resume = self._assignment.resume
        if resume is None:
            self._engine.admit(_SLOT, self._settings)
            return
        arrays, facts = checkpoint.load(Path(resume), self._assignment.resume_digest)
        self._engine.restore(_SLOT, self._settings, arrays)
        self._step = int(facts["step"])

    def advance(self) -> Outcome:
        """Train to the next report, evaluate on validation and save a checkpoint."""
        training = self._settings.training
        wanted = min(training.interval - self._step % training.interval, training.steps - self._step)
        report = self._engine.advance({_SLOT: wanted}, stop=self._stop_wished)[_SLOT]
        self._step = report.step
        if not report.finite:
            told = "the training loss is not finite"
            return Outcome(self._step, done=True, metrics={}, failure="non-finite", message=told)
        if report.steps < wanted:
            return Outcome(self._step, done=True, metrics={}, checkpoint=self._save({}), interrupted=True)
        return self._evaluated(report)

    def _evaluated(self, report: TrainReport) -> Outcome:
        started = time.perf_counter()
        scores = self._engine.evaluate(_SLOT, "validation", self._settings.evaluate_examples)
        metrics = _metrics(report, scores, time.perf_counter() - started)
        saved = self._save(metrics)
        self._log.write(f"step {self._step}: " + ", ".join(f"{k} {v:.6g}" for k, v in metrics.items()))
        done = self._step >= self._settings.training.steps
        return Outcome(self._step, done=done, metrics=metrics, checkpoint=saved)

    def _stop_wished(self) -> bool:
        return Path(self._assignment.stop_wish).exists()

    def _save(self, metrics: dict[str, float]) -> SavedCheckpoint:
        folder = Path(self._assignment.checkpoints) / checkpoint_name(self._step)
        facts = {
            "trial": self._assignment.trial_key,
            "step": self._step,
            "metrics": metrics,
            "settings": asdict(self._settings),
        }
        manifest = checkpoint.save(folder, self._engine.snapshot(_SLOT), facts)
        return SavedCheckpoint(str(folder), self._step, manifest.digest, manifest.bytes)

    def leave(self) -> None:
        """Give the slot back."""
        self._engine.evict(_SLOT)


def failure_of(error: Exception) -> tuple[str, str]:
    """Return the cause and one line about an exception raised while training."""
    line = str(error) if isinstance(error, Refusal) else f"{type(error).__name__}: {error}".splitlines()[0]
    if isinstance(error, BadData):
        return "bad data", line
    if isinstance(error, DamagedCheckpoint):
        return "damaged checkpoint", line
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "disk full", line
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
        return "out of memory", line
    return "error", line


def configure(compilations: str) -> None:
    """Point JAX at the compilation cache of this machine; before the first compilation."""
    jax.config.update("jax_compilation_cache_dir", compilations)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def _metrics(report: TrainReport, scores: dict[str, float], evaluate_seconds: float) -> dict[str, float]:
    named = {f"val/{name}": value for name, value in scores.items()}
    score_name = next(name for name in scores if name != "loss")
    norms = {f"hidden_norm/layer_{k}": norm for k, norm in enumerate(report.hidden_norms)}
    return {
        **named,
        "train/loss": report.loss,
        f"train/{score_name}": report.metric,
        "learning_rate": report.learning_rate,
        "tokens_per_second": report.tokens / max(report.train_seconds, 1e-9),
        **norms,
        "seconds/train": report.train_seconds,
        "seconds/compile": report.compile_seconds,
        "seconds/evaluate": evaluate_seconds,
    }
