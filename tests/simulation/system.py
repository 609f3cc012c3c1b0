"""The operating systems of a simulation: machines with clocks that can be wrong, and their processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.system import System
from tests.simulation.kernel import Kernel, Process, Signal

EPOCH = 1_790_000_000.0
"""Wall-clock time at which a simulation begins."""

BOOT_SECONDS = 1000.0
"""Uptime of the machines when a simulation begins."""

_TICKS = 100


@dataclass
class Machine:
    """A machine.

    Attributes:
        name: Name of the machine.
        root: Root where its files are.
        skew: What its wall clock is ahead.
        is_full: Whether its disk has no room.
        is_off: Whether it has no power.
        boots: How often it has been started.
        processes: Processes that end with it.
        starts: Starts by process id, the start of each living process in ticks since the boot.
    """

    name: str
    root: Path
    skew: float = 0.0
    is_full: bool = False
    is_off: bool = False
    boots: int = 1
    processes: list[Process] = field(default_factory=list)
    starts: dict[int, int] = field(default_factory=dict)


class SimulatedSystem(System):
    """The operating system as one simulated process sees it.

    Args:
        kernel: Kernel of the simulation.
        machine: Machine on which the process runs.
        process: Process that sees it.
    """

    def __init__(self, kernel: Kernel, machine: Machine, process: Process) -> None:
        self._kernel, self._machine, self._process = kernel, machine, process
        self._pid = 1000 + kernel.count()
        machine.starts[self._pid] = round((BOOT_SECONDS + kernel.now) * _TICKS)
        process.on_end.append(lambda: machine.starts.pop(self._pid))

    def time(self) -> float:
        return EPOCH + self._kernel.now + self._machine.skew

    def monotonic(self) -> float:
        return self._kernel.now

    def since_boot(self) -> float:
        return BOOT_SECONDS + self._kernel.now

    def sleep(self, seconds: float) -> None:
        self._kernel.sleep(seconds)

    def event(self) -> Any:
        return _Event(self._kernel)

    def condition(self) -> Any:
        return _Condition(self._kernel)

    def thread(self, run: Callable[[], object], name: str) -> Any:
        return _Thread(self._kernel, self._process, run, name)

    def lock(self) -> Any:
        return _Lock(self._kernel)

    def signals(self) -> Any:
        return _Signals(self._process)

    def print(self, line: str) -> None:
        self._kernel.trace(f"prints: {line}")

    def exit(self, code: int) -> None:
        self._kernel.trace(f"exits with {code}")
        self._kernel.end(self._process, code)

    def pid(self) -> int:
        return self._pid

    def host(self) -> str:
        return self._machine.name

    def read(self, path: Path) -> str:
        texts = {
            "/proc/sys/kernel/random/boot_id": f"boot {self._machine.boots} of {self._machine.name}\n",
            "/proc/self/ns/pid": "pid:[1]",
            "/proc/stat": f"btime {round(EPOCH - BOOT_SECONDS + self._machine.skew)}\n",
        }
        if (text := texts.get(str(path))) is not None:
            return text
        ticks = self._machine.starts.get(int(path.parent.name))
        if ticks is None:
            raise FileNotFoundError(path)
        return f"{path.parent.name} (sweep) S {'0 ' * 18}{ticks} 0\n"


class _Event:
    def __init__(self, kernel: Kernel) -> None:
        self._kernel, self._signal, self._set = kernel, Signal(), False

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        self._kernel.send(self._signal)

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        if not self._set:
            self._kernel.wait(self._signal, timeout)
        return self._set


class _Condition:
    """A condition whose lock is the baton: no point is passed between a test and its wait."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel, self._signal = kernel, Signal()

    def __enter__(self) -> _Condition:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def notify_all(self) -> None:
        self._kernel.send(self._signal)

    def wait(self, timeout: float | None = None) -> bool:
        return self._kernel.wait(self._signal, timeout)

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        deadline = float("inf") if timeout is None else self._kernel.now + timeout
        while not predicate() and self._kernel.now < deadline:
            self._kernel.wait(self._signal, None if timeout is None else deadline - self._kernel.now)
        return predicate()


class _Lock:
    def __init__(self, kernel: Kernel) -> None:
        self._kernel, self._free, self._held = kernel, Signal(), False

    def __enter__(self) -> None:
        while self._held:
            self._kernel.wait(self._free)
        self._held = True

    def __exit__(self, *_: object) -> None:
        self._held = False
        self._kernel.send(self._free)


class _Signals:
    """The signals that faults have sent to a process, once it catches them."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def catch(self) -> None:
        self._process.signals = []

    def install(self) -> None:
        return None

    def caught(self) -> list[str]:
        caught, self._process.signals = self._process.signals, []
        return caught or []

    def release(self) -> None:
        self._process.signals = None


class _Thread:
    def __init__(self, kernel: Kernel, process: Process, run: Callable[[], object], name: str) -> None:
        self._kernel, self._process, self._run, self._name = kernel, process, run, name
        self._ended = Signal()
        self.ident: int | None = None
        self._alive = False

    def start(self) -> None:
        self.ident, self._alive = 1, True
        self._kernel.start(self._process, self._main, self._name)

    def _main(self) -> None:
        try:
            self._run()
        finally:
            self._alive = False
            self._kernel.send(self._ended)

    def is_alive(self) -> bool:
        return self._alive

    def join(self, timeout: float | None = None) -> None:
        if self._alive:
            self._kernel.wait(self._ended, timeout)
