"""The engine that is resident in a process, and the data it trains on.

The engine outlives the trial, so that the next trial of the same static choice neither starts a process nor
compiles. This module imports JAX; only workers, engines and the `evaluate` verb import it.
"""

from __future__ import annotations

from pathlib import Path

import jax

from trainables.data.task import TaskData
from trainables.engine import Engine, choose_slots
from trainables.tasks import TASKS
from trainables.trial import TrialSettings


class EngineCache:
    """The one engine that is resident in this process, and the data it trains on."""

    def __init__(self) -> None:
        self._key: object = None
        self._engine: Engine | None = None
        self._data: TaskData | None = None
        self._data_key: object = None

    def engine(self, settings: TrialSettings, folder: str, *, slots: int = 1) -> Engine:
        """Return the engine for the settings' static choice, the resident one if it fits."""
        key = (settings.static(), folder, slots)
        if self._engine is None or self._key != key:
            # The old engine's device memory must be free before the new one asks for its own.
            self._engine = None
            self._engine = Engine(settings, self.data(settings, folder), slots=slots)
            self._key = key
        return self._engine

    def data(self, settings: TrialSettings, folder: str) -> TaskData:
        """Return the task's data, loaded once while the same task goes on."""
        key = (settings.task, tuple(sorted(settings.task_options.items())), folder)
        if self._data is None or self._data_key != key:
            self._data = TASKS[settings.task].load(settings.task_options, Path(folder))
            self._data_key = key
        return self._data


def configure(compilations: str) -> None:
    """Point JAX at the compilation cache of this machine; before the first compilation."""
    jax.config.update("jax_compilation_cache_dir", compilations)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def best_slots(settings: TrialSettings, data: str, compilations: str) -> int:
    """Return how many trials of these settings train fastest as slots of one engine on this device."""
    configure(compilations)
    return choose_slots(settings, EngineCache().data(settings, data)).slots
