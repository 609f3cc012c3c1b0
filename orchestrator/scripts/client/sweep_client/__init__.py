"""Client of a script that a sweep runs. It needs only Python 3.8, and the folder may be copied.

    import sweep_client

    trial = sweep_client.trial()
    for step in range(trial.start, 1000):
        ...
        if step % 100 == 99 and not trial.report(step + 1, {"val/loss": loss}):
            break

A function `train(trial)` of a search-space file gets the same object. Outside a sweep, `trial(lr=0.1)` has
the given hyperparameters or those of the command line (`--lr 0.2`), and `report` prints.
"""

from __future__ import annotations

import importlib
import io
import json
import operator
import os
import shutil
import signal
import stat
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

_FRAMEWORKS = ("keras", "lightning", "torch", "transformers")
"""Submodules, each of which imports the framework of its name when it is used."""

_PATIENCE = 0.04
"""Poll interval for an answer, as a share of the time waited so far."""


class Trial:
    """The trial that this process runs.

    Attributes:
        params: Hyperparameters by name.
        seed: Seed of the trial, for random numbers.
        folder: Folder for the script's own files, empty at the start of every attempt.
        resume: Folder of the checkpoint to resume, or None to start at step 0.
        start: First step: 0, or the step of the checkpoint.
        steps: Number of steps of the whole trial.
        interval: Number of steps between two reports, as in the file.
        stopping: Whether the sweep has asked this trial to save and exit.
    """

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self.params = facts["params"]
        self.seed = facts["seed"]
        self.folder = Path(facts["folder"])
        self.resume = Path(facts["resume"]) if facts["resume"] else None
        self.start = facts["start"]
        self.steps = facts["steps"]
        self.interval = facts["interval"]
        self.stopping = False
        self._attempt = facts["attempt"]
        self._reports = facts["reports"]
        self._answers = facts["answers"]
        self._checkpoints = facts["checkpoints"]
        self._gpu_memory = facts.get("gpu_memory")
        self._sent = 0
        self._offset = 0
        self._is_over = False
        self._handler: Any = None

    def report(
        self, step: int, metrics: Mapping[str, float], checkpoint: str | os.PathLike[str] | None = None
    ) -> bool:
        """Report metrics at a step, and a checkpoint; return True if the trial should continue.

        The call returns when the report and a copy of the checkpoint are safe, so the folder may be reused. A
        folder inside `folder` is read where it is; any other one is copied first. After the sweep has
        answered that it stops the trial, the next call ends the process. If several processes train together
        (`WORLD_SIZE`), the one of rank 0 reports, and all get its answer.

        Args:
            step: Number of completed steps, from 0. A second report of a step is refused, with a line in the
                log, and the trial goes on.
            metrics: Numbers by name, including the objective of the sweep. Arrays of NumPy, PyTorch and JAX
                are allowed if they hold one number; True is 1.
            checkpoint: Folder with everything needed to resume from this step, or None. An interrupted trial
                resumes from its last checkpoint, and starts again at step 0 without one.

        Raises:
            TypeError: A metric is not a number, or is an array of several numbers.
            RuntimeError: The answer to this report is invalid, or belongs to a later report.
        """
        if self._is_over:
            raise SystemExit(0)
        self.bound_gpu_memory()
        self._sent += 1
        done = int(step)
        numbers = {str(name): _number(name, value) for name, value in metrics.items()}
        if self._reports is None:
            name = None if checkpoint is None else os.fspath(checkpoint)
            line = {"step": done, "metrics": numbers, "checkpoint": name}
            print(json.dumps(line), flush=True)  # noqa: T201 - for a person, outside a sweep
            return not self.stopping
        if _rank() == 0:
            name = None if checkpoint is None else self._handed_over(Path(checkpoint))
            line = {"step": done, "metrics": numbers, "checkpoint": name, "attempt": self._attempt}
            with Path(self._reports).open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        self._is_over = not self._answer(done)
        return not (self._is_over or self.stopping)

    def bound_gpu_memory(self) -> None:
        """Limit PyTorch to this trial's share of its GPU's memory, once the script has imported PyTorch.

        An allocation beyond the share then fails in this process, and not in a trial that uses the same GPU.
        JAX reads its own limit, `XLA_CLIENT_MEM_FRACTION`, from the environment.
        """
        cuda = getattr(sys.modules.get("torch"), "cuda", None)
        if self._gpu_memory is not None and cuda is not None and cuda.is_available():
            cuda.set_per_process_memory_fraction(self._gpu_memory)
            self._gpu_memory = None

    def stop_on_sigterm(self) -> None:
        """Set `stopping` at SIGTERM instead of exiting, so that the next report is the last one.

        A forked process keeps the earlier handler.
        """
        self._handler = signal.signal(signal.SIGTERM, self._stop)
        os.register_at_fork(after_in_child=self._leave_sigterm)

    def _stop(self, number: int, frame: object) -> None:
        self.stopping = True

    def _leave_sigterm(self) -> None:
        if signal.getsignal(signal.SIGTERM) == self._stop:
            signal.signal(signal.SIGTERM, signal.SIG_DFL if self._handler is None else self._handler)

    def _handed_over(self, checkpoint: Path) -> str:
        """Return the name of a checkpoint for a report: its path, or the name of a new copy."""
        real, own = checkpoint.resolve(), self.folder.resolve()
        if own in (real, *real.parents) and real.is_dir():
            return str(real)
        name = f"report-{self._sent}"
        _copy(real, Path(self._checkpoints, name))
        return name

    def _answer(self, step: int) -> bool:
        """Wait for the answer to the report of a step; return True if the trial continues.

        Answers to earlier steps belong to other reports of this attempt, such as those of another `Trial`.
        """
        since = time.monotonic()
        while True:
            with Path(self._answers).open("rb") as file:
                file.seek(self._offset)
                line = file.readline()
            if line.endswith(b"\n"):
                self._offset += len(line)
                word, answered = _read(line)
                if word not in ("continue", "stop") or answered is None or answered > step:
                    text = "the answer to the report of step {} must be `continue {}` or `stop {}` (got {!r})"
                    raise RuntimeError(text.format(step, step, step, line[:80]))
                if answered == step:
                    return word == "continue"
            else:
                time.sleep(min(max(_PATIENCE * (time.monotonic() - since), 0.0001), 0.01))


def _read(line: bytes) -> tuple[str, int | None]:
    """Return the word of an answer and the step of its report, or None for an invalid step."""
    word, _, step = line.decode("utf-8", "replace").strip().partition(" ")
    return word, int(step) if step.isascii() and step.isdigit() else None


def _number(name: str, value: Any) -> float:
    """Return a metric as an integer, which keeps all its digits, or as a float."""
    if isinstance(value, (str, bytes)):
        raise TypeError(f"could not convert the text {value!r} of the metric {name} to a number")
    shape = tuple(getattr(value, "shape", ()))
    if hasattr(value, "item") and all(size == 1 for size in shape):
        value = value.item()  # the number of an array of NumPy, PyTorch or JAX
    elif shape:
        raise TypeError(f"the metric {name} must be one number (got an array of shape {shape})")
    try:
        return operator.index(value)
    except TypeError:
        pass
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        kind = type(value).__name__
        raise TypeError(f"the metric {name} must be a number (got {value!r:.80}, a {kind})") from error


def _rank() -> int:
    """Return the rank of this process among those that train together.

    It is that of torchrun, Lightning or MPI, or else that of the node.
    """
    for ranks, size in (
        (("RANK", "LOCAL_RANK"), "WORLD_SIZE"),
        (("OMPI_COMM_WORLD_RANK",), "OMPI_COMM_WORLD_SIZE"),
        (("NODE_RANK",), "NNODES"),
    ):
        if int(os.environ.get(size) or 1) > 1:
            return int(next((os.environ[rank] for rank in ranks if os.environ.get(rank)), 0))
    return 0


def _copy(folder: Path, copy: Path) -> None:
    """Copy a folder with its links as they are, but only files, folders and links."""

    def left_out(at: str, names: Iterable[str]) -> set[str]:
        kinds = {name: stat.S_IFMT(Path(at, name).lstat().st_mode) for name in names}
        others = {
            name for name, kind in kinds.items() if kind not in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK)
        }
        for name in sorted(others):
            print(f"{name} is not a file, and is left out of the checkpoint", flush=True)  # noqa: T201 - into the log
        return others

    shutil.copytree(folder, copy, symlinks=True, ignore=left_out)
    for at, folders, names in os.walk(copy):
        for link in (Path(at, name) for name in (*folders, *names)):
            target = Path(os.readlink(link)) if link.is_symlink() else Path()  # noqa: PTH115 - of Python 3.9
            if target.is_absolute() and folder in target.parents:
                link.unlink()
                link.symlink_to(copy / target.relative_to(folder))


def __getattr__(name: str) -> ModuleType:
    """Import a submodule when it is used."""
    if name in _FRAMEWORKS:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_current: Trial | None = None


def current() -> Trial:
    """Return the trial that `trial` returned last, or call it."""
    return trial() if _current is None else _current


def trial(**params: Any) -> Trial:
    """Return the trial that this process runs.

    Outside a sweep, it has the hyperparameters of the command line or of variables such as
    `SWEEP_PARAM_LEARNING_RATE`, and the steps, interval and seed of `SWEEP_STEPS`, `SWEEP_INTERVAL` and
    `SWEEP_SEED` (by default 1000, 100 and 0).

    Args:
        params: Defaults of hyperparameters that neither the sweep nor the command line sets.
    """
    global _current
    path = os.environ.get("SWEEP_TRIAL")
    if path is not None:
        facts = json.loads(Path(path).read_text(encoding="utf-8"))
        found = Trial({**facts, "params": {**params, **facts["params"]}})
        found.stop_on_sigterm()
        found.bound_gpu_memory()
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                # Write complete lines, so that those of two processes or threads do not mix.
                stream.reconfigure(line_buffering=True, write_through=False)
        _current = found
        return found
    alone: dict[str, Any] = dict.fromkeys(("resume", "attempt", "reports", "answers", "checkpoints"))
    counts = {name: int(os.environ.get(f"SWEEP_{name.upper()}") or value) for name, value in _COUNTS.items()}
    given = {**params, **_of_environment(params), **_of_command_line(params)}
    _current = Trial({**alone, **counts, "params": given, "folder": ".", "start": 0})
    return _current


_COUNTS = {"steps": 1000, "interval": 100, "seed": 0}


def _of_environment(defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the hyperparameters with a default that have a variable."""
    variables = {name: f"SWEEP_PARAM_{name.replace('.', '_').upper()}" for name in defaults}
    return {
        name: _value(os.environ[variable]) for name, variable in variables.items() if variable in os.environ
    }


def _of_command_line(defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the hyperparameters of a command line: `name=value`, `--name=value`, or `--name value`.

    The last form is only for names with a default; other words belong to the script.
    """
    words = sys.argv[1:]
    given: dict[str, Any] = {}
    for at, word in enumerate(words):
        name, equals, text = word.lstrip("-").partition("=")
        name = name if name in defaults else name.replace("-", "_")
        if equals and name.replace(".", "_").isidentifier():
            given[name] = _value(text)
        elif word.startswith("--") and name in defaults and words[at + 1 :]:
            given[name] = _value(words[at + 1])
    return given


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
