"""Report to the sweep that runs this script. Needs Python 3.8 and nothing else; it may be copied.

    import sweep_client

    trial = sweep_client.trial()
    for step in range(trial.start, 1000):
        ...
        if step % 100 == 99 and not trial.report(step + 1, {"val/loss": loss}):
            break

A function `train(trial)` that a search-space file names gets the same object. Outside a sweep, `trial()` has
the hyperparameters that it is given as arguments, and `report` prints.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_PATIENCE = 0.04
"""Wait between two looks for an answer, as a share of the time for which it has been waited for."""


class Trial:
    """The trial that this process runs.

    Attributes:
        params: the hyperparameters by name.
        seed: of the trial, for random numbers.
        folder: for files of one's own, empty at the start of every attempt.
        resume: folder of the checkpoint to go on from, or None to start at step 0.
        start: the step to go on from: 0, or that of the checkpoint.
        steps: of the whole trial.
        interval: steps between two reports that the file asks for.
        stopping: True once the sweep asks this trial to save and leave.
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
        self._answers = facts["answers_by_step"]
        self._checkpoints = facts["checkpoints"]
        self._sent = 0
        self._offset = 0
        self._is_over = False

    def report(
        self, step: int, metrics: Mapping[str, float], checkpoint: str | os.PathLike[str] | None = None
    ) -> bool:
        """Report metrics at a step, and a checkpoint; return True if the trial should go on.

        The call returns once the report and a copy of the checkpoint are safe: the folder may be used again.
        A folder inside `folder` is read where it is; any other is copied first.
        After the sweep has answered that it stops the trial, the next call ends the process.

        Args:
            step: steps done so far, more than in the report before.
            metrics: numbers by name, the objective of the sweep among them.
            checkpoint: folder with everything needed to go on from this step, or None: a trial that is
                interrupted goes on from its last checkpoint, and without any starts again at step 0.

        Raises:
            RuntimeError: what should be the answer to this report is none, or that of a later one.
        """
        if self._is_over:
            raise SystemExit(0)
        self._sent += 1
        name = None if checkpoint is None else self._handed_over(Path(checkpoint))
        done = int(step)
        line = {"step": done, "metrics": {k: float(v) for k, v in metrics.items()}, "checkpoint": name}
        if self._reports is None:
            print(json.dumps(line), flush=True)  # noqa: T201 - outside a sweep it is for a person
            return not self.stopping
        with Path(self._reports).open("a", encoding="utf-8") as file:
            file.write(json.dumps({**line, "attempt": self._attempt}) + "\n")
        self._is_over = not self._answer(done)
        return not (self._is_over or self.stopping)

    def stop_on_sigterm(self) -> None:
        """Note SIGTERM in `stopping`, so that the next report is the last one, instead of ending at once."""
        signal.signal(signal.SIGTERM, self._stop)

    def _stop(self, number: int, frame: object) -> None:
        self.stopping = True

    def _handed_over(self, checkpoint: Path) -> str:
        """Return what names a checkpoint in a report: its path, or the name of a copy that is taken."""
        name = f"report-{self._sent}"
        if self._checkpoints is None:
            return name
        real, own = checkpoint.resolve(), self.folder.resolve()
        if own in (real, *real.parents) and real.is_dir() and not _has_links(real):
            return str(real)
        shutil.copytree(checkpoint, Path(self._checkpoints, name))
        return name

    def _answer(self, step: int) -> bool:
        """Wait for the line that answers the report of a step; return True if it says to go on.

        Answers to earlier steps are those of other reports of this attempt, such as of another `Trial`.
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
                    text = "the answer to the report of step {} must be `continue {}` or `stop {}`, got {!r}"
                    raise RuntimeError(text.format(step, step, step, line[:80]))
                if answered == step:
                    return word == "continue"
            else:
                time.sleep(min(max(_PATIENCE * (time.monotonic() - since), 0.0001), 0.01))


def _read(line: bytes) -> tuple[str, int | None]:
    """Return the word of an answer and the step of the report that it answers, None if it names none."""
    word, _, step = line.decode("utf-8", "replace").strip().partition(" ")
    return word, int(step) if step.isascii() and step.isdigit() else None


def _has_links(folder: Path) -> bool:
    found = (Path(at, name) for at, folders, names in os.walk(folder) for name in (*folders, *names))
    return any(path.is_symlink() for path in found)


def trial(**params: Any) -> Trial:
    """Return the trial that this process runs; outside a sweep, one with the given hyperparameters."""
    path = os.environ.get("SWEEP_TRIAL")
    if path is not None:
        found = Trial(json.loads(Path(path).read_text(encoding="utf-8")))
        found.stop_on_sigterm()
        return found
    alone: dict[str, Any] = dict.fromkeys(("resume", "attempt", "reports", "answers_by_step", "checkpoints"))
    facts = {"params": params, "seed": 0, "folder": ".", "start": 0, "steps": 1000, "interval": 100}
    return Trial({**alone, **facts})
