"""The engine of a process and its data.

The engine outlives its trial, so that the next trial of the same static choice starts no process and compiles
nothing. Only this module imports JAX for the service, when the first cache of a process is created. Drivers
and workers that share an engine create none.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.errors import NoGpu
from orchestrator.machines.hardware import host_devices
from orchestrator.system import without_garbage_collection
from trainables.importing import forget_modules
from trainables.sources import digest_of, module_in
from trainables.trial import ProgramSettings, Settings, TrialSettings

if TYPE_CHECKING:
    from trainables.engine import Engine


class EngineCache:
    """Cache of the last engine and the last data set of this process.

    The key of an engine is its static choice and the content of its data.

    Attributes:
        created: Number of engines that it has created.
    """

    @without_garbage_collection()
    def __init__(self) -> None:
        # Imports JAX, which takes a second and reads environment variables.
        from trainables.engine import Engine, choose_slots, data_of

        self._new_engine, self._choose_slots, self._load = Engine, choose_slots, data_of
        self.created = 0
        self._key: object = None
        self._engine: Engine | None = None
        self._data: Any = None
        self._data_key: object = None
        self._code: dict[str, str] = {}
        self._looked: set[str] = set()

    def engine(self, settings: Settings, folder: str, *, slots: int = 1) -> Engine:
        """Return an engine for the settings' static choice."""
        assert isinstance(settings, TrialSettings | ProgramSettings), "a script needs no engine"
        data = self.data(settings, folder)
        key = (settings.static(), self._code_of(settings), self._data_key, data.digest, slots)
        if self._engine is None or self._key != key:
            # The old engine's device memory must be free before the new one asks for its own.
            self._engine = None
            self._engine = self._new_engine(settings, data, slots=slots)
            self._key = key
            self.created += 1
        return self._engine

    def forget_files(self) -> None:
        """Read data and code of programs again at their next use, because they may have changed."""
        self._data = None
        self._looked.clear()

    def _code_of(self, settings: TrialSettings | ProgramSettings) -> str | None:
        """Return the digest of a program's code. A process runs one version of it at a time.

        Modules of an earlier version are imported again.
        """
        if not isinstance(settings, ProgramSettings):
            return None
        module = settings.program.partition(":")[0]
        beside = module.endswith(".py") or module_in(Path(settings.folder), module)
        root = settings.folder if beside else module.partition(".")[0]
        if root not in self._looked:
            self._looked.add(root)
            now = digest_of(settings.program, Path(settings.folder))
            if self._code.get(root, now) != now:
                forget_modules(settings.program, Path(settings.folder))
            self._code[root] = now
        return self._code[root]

    def data(self, settings: TrialSettings | ProgramSettings, folder: str) -> Any:
        """Return the data of the settings' task, or of their program."""
        if isinstance(settings, ProgramSettings):
            key: object = (settings.static(), self._code_of(settings), folder)
        else:
            key = (settings.task, tuple(sorted(settings.task_options.items())), folder)
        if self._data is None or self._data_key != key:
            self._data, self._data_key = self._load(settings, Path(folder)), key
        return self._data

    def best_slots(self, settings: TrialSettings | ProgramSettings, folder: str) -> int:
        """Measure how many trials of these settings train fastest as slots of one engine on this device."""
        return self._choose_slots(settings, self.data(settings, folder)).slots


_kept: EngineCache | None = None


def keep() -> EngineCache:
    """Create the cache of a process that outlives a sweep. `cache_of_process` then returns it."""
    global _kept
    if _kept is None:
        _kept = EngineCache()
    return _kept


def cache_of_process() -> EngineCache:
    """Return the cache that this process keeps, or a new one."""
    return EngineCache() if _kept is None else _kept


def configure(compilations: str, gpu_share: float = 0.0) -> None:
    """Set JAX's persistent compilation cache; call this before the first compilation.

    Args:
        compilations: Folder of the cache.
        gpu_share: Share of a GPU of this process; 0 for none.

    Raises:
        NoGpu: JAX does not find the GPU. It would train without one, many times slower.
    """
    import jax

    if gpu_share and not host_devices() and jax.default_backend() == "cpu":
        raise NoGpu(
            "this worker",
            "has a share of a GPU, but JAX found none",
            "",
            "Run `python -c 'import jax; print(jax.devices())'` on its machine to see why.",
        )
    jax.config.update("jax_compilation_cache_dir", compilations)
    # By default JAX keeps only programs that took a second. An engine needs about 20 shorter ones.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)


def best_slots(settings: TrialSettings | ProgramSettings, data: str, compilations: str) -> int:
    """Measure how many trials of these settings train fastest as slots of one engine on this device.

    The process must do nothing else meanwhile.

    Raises:
        NoGpu: JAX does not find the GPU.
    """
    configure(compilations, 1.0)
    return EngineCache().best_slots(settings, data)
