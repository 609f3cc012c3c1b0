"""Result of a simulated run: its trace, and the invariant that it violates."""

from __future__ import annotations

import gc
import shutil
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from tests.simulation.faults import Fault
from tests.simulation.invariants import Outcome
from tests.simulation.violation import Violation

SHARED_MEMORY = Path("/dev/shm")

Planned = TypeVar("Planned")


@dataclass(frozen=True)
class Line:
    """A line of a trace."""

    at: float
    actor: str
    text: str

    def __str__(self) -> str:
        return f"{self.at:9.3f} s  {self.actor:<10} {self.text}"


@dataclass
class Result(Generic[Planned]):
    """A run.

    Attributes:
        seed: Seed of the run.
        size: Size by name.
        variant: Variant that ran: a sweep, or what people do with a service.
        faults: Faults that were planned.
        error: Traceback of the exception that ended a process.
        trace: What happened.
        violation: Violation of an invariant, or None.
        outcome: What a sweep has come to.
    """

    seed: int
    size: str
    variant: Planned
    faults: Sequence[Fault]
    error: str = ""
    trace: list[Line] = field(default_factory=list)
    violation: Violation | None = None
    outcome: Outcome | None = None

    def note(self, folder: Path, at: float, actor: str, text: str) -> None:
        """Add a line to the trace, without the folder of the run: its name differs, and a trace does not."""
        self.trace.append(Line(at, actor, text.replace(f"{folder}/", "")))

    def __str__(self) -> str:
        lines = [f"{self.size} seed {self.seed}: {self.variant}"]
        lines += [f"fault: {fault}" for fault in self.faults]
        lines += [f"{number:4d} {line}" for number, line in enumerate(self.trace, 1)]
        return "\n".join(
            [
                *lines,
                *self.error.splitlines(),
                f"violated: {self.violation}" if self.violation else "all invariants hold",
            ]
        )


def error_of(error: BaseException) -> str:
    """Return the traceback of an exception."""
    return "".join(traceback.format_exception(error))


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield a folder for the files of a run, in memory if there is such a place, and remove it."""
    folder = Path(tempfile.mkdtemp(prefix="sweep-", dir=SHARED_MEMORY if SHARED_MEMORY.is_dir() else None))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def collecting_afterwards() -> Iterator[None]:
    """Collect the garbage of a run after it, and only that: a killed process leaves its files open."""
    gc.disable()
    gc.freeze()
    try:
        yield
    finally:
        gc.collect()
        gc.unfreeze()
        gc.enable()
