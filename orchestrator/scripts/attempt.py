"""An attempt of a function or a command, report by report."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
import signal
import stat
import tempfile
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from orchestrator.accounts import files_as
from orchestrator.assignment import LARGEST_STEP, Assignment, Outcome, SavedCheckpoint
from orchestrator.ledger.keys import attempt_number
from orchestrator.scripts import reported_folder
from orchestrator.scripts.keeper import remove
from orchestrator.scripts.process import GRACE, End, Place, ScriptProcess
from orchestrator.scripts.reported_folder import own_file
from orchestrator.storage import store
from orchestrator.storage.paths import checkpoint_stem
from orchestrator.training import process
from orchestrator.training.attempt import SIGN_OF_LIFE, OverLimit, OwnAttempts, TrialLog, upload
from trainables import checkpoint
from trainables.errors import Refusal
from trainables.trial import ScriptSettings

PATIENCE = 0.04
"""Wait between two looks for a report, as a share of the time for which it has been waited for, or of that of
the report before if that is longer.
"""

SHORTEST_POLL_SECONDS = 0.0001
LONGEST_POLL_SECONDS = 0.05

LONGEST_LINE = 1 << 20
"""Bytes of the longest line of a report; more are not read at once."""

LONGEST_NAME = 250
"""Characters of the longest name of a metric, as in MLflow."""

TAIL = 20
"""Last lines of a script's output that are searched for the reason of its failure."""


@dataclass(frozen=True)
class Report:
    """A line that a script has written.

    Attributes:
        step: steps done.
        metrics: by name.
        checkpoint: name of a folder below that of checkpoints, or absolute path of one in the script's own
            folder, or None.
    """

    step: int
    metrics: Mapping[str, float]
    checkpoint: str | None

    @staticmethod
    def read(line: bytes, after: int, attempt_id: str) -> Report:
        """Return the report of a line.

        Args:
            line: as the script has written it.
            after: step of the report before.
            attempt_id: of the attempt; a line need not name it, but must not name another one.

        Raises:
            Refusal: it is no report, or that of another attempt.
        """
        try:
            fields = json.loads(line)
            step, metrics, name = fields["step"], fields["metrics"], fields.get("checkpoint")
            numbers = {str(key): float(value) for key, value in metrics.items()}
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            must = (
                'a line must be {"step": whole number, "metrics": {name: number}, "checkpoint": name or null}'
            )
            raise _refused(must, line.decode("utf-8", "backslashreplace")[:200]) from error
        if (named := fields.get("attempt")) not in (None, attempt_id):
            raise _refused(f"a line must be of its own attempt, {attempt_id}", f"one of {named!r:.80}")
        if (unfit := next((key for key in numbers if not _is_name(key)), None)) is not None:
            must = f"a metric must have a name of 1 to {LONGEST_NAME} characters that can be printed"
            raise _refused(must, f"{unfit!r:.80}")
        if isinstance(step, bool) or not isinstance(step, int) or not after < step <= LARGEST_STEP:
            must = f"a step must be a whole number above {after} and at most {LARGEST_STEP}"
            raise _refused(must, f"{step!r:.40}")
        if name is not None and (not isinstance(name, str) or not _is_plain(name)):
            raise _refused(_OF_CHECKPOINT, repr(name))
        return Report(step, numbers, name)


def _is_name(metric: str) -> bool:
    return metric.isprintable() and 0 < len(metric) <= LONGEST_NAME


def _is_plain(name: str) -> bool:
    parts = Path(name).parts
    return bool(parts) and ".." not in parts and name.isprintable()


_OF_CHECKPOINT = (
    "a checkpoint must be a folder inside SWEEP_CHECKPOINT, or its absolute path inside SWEEP_FOLDER"
)


def _step_of(line: bytes) -> int | None:
    """Return the step of a line that may be no report; None if it names none."""
    try:
        step = json.loads(line)["step"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return step if type(step) is int and abs(step) <= LARGEST_STEP else None


_CAUSES = {"memory": "out of memory", "minutes": "time limit", "disk": "disk limit"}
"""Cause of a failure by the limit in `resources` that a script has exceeded."""

_SIGNS = {
    "memory": re.compile(
        r"MemoryError|std::bad_alloc|[Cc]annot allocate memory|[Oo]ut of memory|RESOURCE_EXHAUSTED|"
        r"OUT_OF_MEMORY|_STATUS_ALLOC_FAILED|cudaErrorMemoryAllocation"
    ),
    "disk": re.compile(rf"File too large|signal {int(signal.SIGXFSZ)}\b"),
}
"""What a script prints, or how it is ended, after the kernel has refused it what is above a limit."""


_DEVICE_MEMORY = re.compile(
    r"CUDA.{0,40}out of memory|CUDA_ERROR_OUT_OF_MEMORY|_STATUS_ALLOC_FAILED|cudaErrorMemoryAllocation|"
    r"(HIP|MPS).{0,40}out of memory|hipErrorOutOfMemory|RESOURCE_EXHAUSTED",
    re.IGNORECASE,
)
"""What a script prints after its GPU has no room left, whatever `resources.memory` says."""


def _out_of_memory(got: str, limit: int | None) -> OverLimit:
    """Return what a script has exceeded that has found no memory: that of its GPU, machine or limit."""
    if _DEVICE_MEMORY.search(got):
        must = "must find room in the memory of its GPU"
        remedy = "Use less, such as smaller batches, or give a trial a larger share: resources.gpu."
    elif limit:
        return _over("memory", got)
    else:
        must = "must find room in the memory of its machine"
        remedy = "Use less, or let fewer trials run at once: resources.concurrent."
    return OverLimit(_CAUSES["memory"], Refusal("the script", must, got, remedy))


def _limit_behind(reason: str) -> str | None:
    return next((limit for limit, sign in _SIGNS.items() if sign.search(reason)), None)


def _over(limit: str, got: str = "more") -> OverLimit:
    what = f"resources.{limit}"
    remedy = f"Raise {what}, or use less."
    return OverLimit(_CAUSES[limit], Refusal("the script", f"must keep within {what}", got, remedy))


def _refused(must: str, got: str) -> Refusal:
    return Refusal("a report of the script", must, got, "See docs/trainables.md.")


class ScriptAttempt:
    """One attempt in a process of its own.

    Args:
        assignment: of the trial, with `ScriptSettings`.
    """

    def __init__(self, assignment: Assignment) -> None:
        assert isinstance(assignment.settings, ScriptSettings)
        self._assignment, self._settings = assignment, assignment.settings
        self._log = TrialLog(Path(assignment.log), assignment.attempt_id)
        self._folder = tempfile.mkdtemp(prefix="sweep-trial-")
        self._place = Place(Path(self._folder).resolve())
        self._settings_as_json = asdict(assignment.settings)
        self._saved = assignment.resume
        self._recorded = assignment.resume.step if assignment.resume else 0
        self._step = self._resumed = self._offset = 0
        self._unanswered: int | None = None
        self._prepared: Path | None = None
        self._has_checkpoints = False
        self._unread: deque[bytes] = deque()
        self._interval = 0.0
        self._asked_to_leave = False
        self._started_at = time.monotonic()
        self._tail: list[str] = []
        try:
            resumed = self._unpack(assignment.resume)
            store.check_space(Path(assignment.checkpoints))
            self._log.started(resumed)
            self._step = self._resumed = resumed
            self._process = ScriptProcess(
                self._settings,
                self._place,
                assignment.attempt_id,
                resumed,
                self._print,
                assignment.tracking,
                assignment.account,
            )
        except BaseException:
            remove(self._folder)
            raise

    def advance(self) -> Outcome:
        """Answer the report before, and return the next one, or how the script has ended.

        After `SIGN_OF_LIFE` seconds return a `training` outcome; the next call goes on. A script may take any
        time for a report, and one that hangs looks the same: `resources.minutes` ends either.

        Raises:
            Refusal: the script has failed, or has reported something wrong.
        """
        if self._unanswered is not None:
            self._answer(self._unanswered, go_on=not self._must_stop())
            self._prepare()
        began = since = time.monotonic()
        while True:
            if (report := self._next_report()) is not None:
                self._interval = time.monotonic() - since
                if report.step > self._recorded:
                    return self._outcome(report, interrupted=self._asked_to_leave)
                self._answer(report.step, go_on=True)  # an earlier attempt had got as far
                since = time.monotonic()
            elif (end := self._process.end) is not None and not self._has_more():
                return self._ended(end, interrupted=self._asked_to_leave)
            else:
                if not self._asked_to_leave and self._must_stop():
                    self._process.terminate()
                    self._asked_to_leave = True
                wait = PATIENCE * max(time.monotonic() - since, self._interval)
                time.sleep(min(max(wait, SHORTEST_POLL_SECONDS), LONGEST_POLL_SECONDS))
            if time.monotonic() - began > SIGN_OF_LIFE:
                return Outcome(self._assignment.attempt_id, self._step, done=False, metrics={}, training=True)

    def release(self) -> None:
        """End the process with everything that it has started, and remove its files."""
        if self._unanswered is not None:
            self._answer(self._unanswered, go_on=False)
        if self._step >= self._settings.training.steps:
            self._wait_for_end(GRACE)  # it has done its last step, and leaves by itself
        if self._process.end is None:
            self._process.terminate()
            self._wait_for_end(2 * GRACE)
        self._process.close()
        if self._prepared is not None:
            shutil.rmtree(self._prepared, ignore_errors=True)
        remove(self._folder)

    def _wait_for_end(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        listens = True
        while self._process.end is None and time.monotonic() < until:
            listens = listens and self._dismiss()
            time.sleep(0.02)

    def _dismiss(self) -> bool:
        """Answer the reports that come too late to be recorded: the script waits for that, and then leaves.

        Return False if the script is no longer to be listened to.
        """
        try:
            while (report := self._next_report()) is not None:
                self._answer(report.step, go_on=False)
                self._log.write(f"step {report.step}: reported after the attempt had ended, and left out")
        except Refusal as refusal:
            self._log.write(str(refusal))
            if self._unanswered is not None:
                self._answer(self._unanswered, go_on=False)
            return False
        return True

    def _prepare(self) -> None:
        """Create the stage of the next checkpoint while the script runs, if its last report had one."""
        if self._has_checkpoints and self._prepared is None:
            with contextlib.suppress(OSError):  # the next checkpoint is about to say what is wrong
                self._prepared = checkpoint.prepare(Path(self._assignment.checkpoints))

    def _must_stop(self) -> bool:
        assignment = self._assignment
        return process.terminating() or process.stop_requested(assignment.channel, assignment.attempt_id)

    def _print(self, line: str) -> None:
        self._log.write(line)
        self._tail = [*self._tail[-TAIL + 1 :], line]

    def _answer(self, step: int, *, go_on: bool) -> None:
        """Answer the report of a step."""
        line = f"{'continue' if go_on else 'stop'} {step}\n"
        with contextlib.suppress(OSError), own_file(self._place.answers, os.O_WRONLY | os.O_APPEND) as file:
            file.write(line.encode())
        self._unanswered = None

    def _has_more(self) -> bool:
        """Return True if lines were written that have not been taken yet; a part of a line is none.

        Raises:
            Refusal: the file is no longer a file, or a line is too long to be a report.
        """
        try:
            facts = self._place.reports.lstat()
            if stat.S_ISREG(facts.st_mode) and facts.st_size == self._offset:
                return bool(self._unread)  # most looks end here, and opening the file takes longer
            with own_file(self._place.reports, os.O_RDONLY) as file:
                file.seek(self._offset)
                text = file.read(LONGEST_LINE)
        except OSError as error:
            raise _refused("SWEEP_REPORTS must be the file that the script was given", str(error)) from error
        whole = text[: text.rfind(b"\n") + 1]
        if not whole and len(text) >= LONGEST_LINE:
            raise _refused(f"a line must be shorter than {LONGEST_LINE} bytes", f"more, from {text[:80]!r}")
        self._offset += len(whole)
        self._unread.extend(whole.split(b"\n")[:-1])
        return bool(self._unread)

    def _next_report(self) -> Report | None:
        """Return the next report that was written whole, or None.

        Raises:
            Refusal: as `Report.read` and `_has_more`.
        """
        if not self._unread and not self._has_more():
            return None
        line = self._unread.popleft()
        try:
            report = Report.read(line, self._step, self._assignment.attempt_id)
        except Refusal:
            self._unanswered = _step_of(line)  # a script that waits for the answer leaves with it
            raise
        self._step = self._unanswered = report.step
        return report

    def _outcome(self, report: Report, *, interrupted: bool) -> Outcome:
        """Save the checkpoint of a report, and return what it says, with what the service has measured."""
        began = time.monotonic()
        metrics = {**report.metrics, "seconds/train": began - self._started_at, "seconds/evaluate": 0.0}
        # Before anything is saved for a report that is refused.
        self._assignment.check_metrics(metrics)
        self._check_copied(report)
        saved = self._save(report, self._files_of(report))
        self._has_checkpoints = report.checkpoint is not None
        shown = ", ".join(f"{name} {value:.6g}" for name, value in report.metrics.items())
        self._log.write(f"step {report.step}: {shown}")
        self._started_at = time.monotonic()
        metrics["seconds/evaluate"] = self._started_at - began
        done = interrupted or report.step >= self._settings.training.steps
        return Outcome(
            self._assignment.attempt_id,
            report.step,
            done=done,
            metrics=metrics,
            checkpoint=saved,
            interrupted=interrupted,
        )

    def _check_copied(self, report: Report) -> None:
        """Check that other trials can go on from a report, where the scheduler lets them."""
        is_last = report.step >= self._settings.training.steps
        if self._assignment.copied and report.checkpoint is None and not is_last:
            must = "must hand over a checkpoint: the scheduler lets other trials go on from it"
            remedy = "Write trial.report(..., checkpoint=folder), or choose another scheduler."
            raise Refusal("a report of the script", must, f"none at step {report.step}", remedy)

    def _files_of(self, report: Report) -> dict[str, np.ndarray] | None:
        """Return the files of a reported checkpoint by their paths; None without one."""
        if report.checkpoint is None:
            return None
        with files_as(self._assignment.account):  # a link there must not show the script what it may not read
            files, links = self._read_files(Path(report.checkpoint))
        if links:
            left_out = " and ".join(links)
            self._log.write(f"{left_out} are links to what is outside the checkpoint, and left out of it")
        return files

    def _read_files(self, checkpoint: Path) -> tuple[dict[str, np.ndarray], list[str]]:
        """Return the files of a folder and its links to them by path, and its other links.

        The folder is removed, unless it is in the script's own folder.
        """
        stays = checkpoint.is_absolute()
        base = self._place.scratch if stays else self._place.checkpoints
        folder = base / checkpoint
        if not folder.is_relative_to(base):
            raise _refused(_OF_CHECKPOINT, str(folder))
        try:
            files, links = reported_folder.read(base, folder, self._settings.disk)
        except reported_folder.TooLarge as error:
            raise _over("disk") from error
        except (FileNotFoundError, NotADirectoryError) as error:
            real = folder.resolve()  # what a link shows is not ours to read and remove
            got = f"a link to {real}" if real != folder else f"no folder {checkpoint}"
            raise _refused(f"{_OF_CHECKPOINT}, when it is reported", got) from error
        if not stays:
            shutil.rmtree(folder)
        return files, links

    def _save(self, report: Report, files: Mapping[str, np.ndarray] | None) -> SavedCheckpoint:
        """Save the files of a report; without a checkpoint, the last one stands for its step too."""
        if files is None and self._saved is not None:
            self._saved = replace(self._saved, step=report.step)
            return self._saved
        number = attempt_number(self._assignment.attempt_id)
        stem = Path(self._assignment.checkpoints) / checkpoint_stem(report.step, number)
        facts = {
            "trial": self._assignment.trial_key,
            "step": report.step,
            "metrics": {name: value for name, value in report.metrics.items() if math.isfinite(value)},
            "settings": self._settings_as_json,
            "resumable": files is not None,
        }
        prepared, self._prepared = self._prepared, None
        saved = checkpoint.save(stem, files or {}, facts, prepared)
        if self._assignment.store:
            upload(saved.folder, self._assignment.store)
        self._saved = SavedCheckpoint(str(saved.folder), report.step, saved.digest, saved.bytes)
        return self._saved

    def _unpack(self, resume: SavedCheckpoint | None) -> int:
        """Write the files of a checkpoint for the script; return the step that it goes on from."""
        if resume is None:
            return 0
        files, facts = store.load(Path(resume.path), self._assignment.store, resume.digest)
        # Without a step: a report without a checkpoint keeps the one of an earlier step.
        checkpoint.check_trial(Path(resume.path), facts, self._assignment.trial_key)
        if not facts["resumable"]:
            return 0
        for name, content in files.items():
            path = self._place.resume / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.tobytes())
        self._place.resume.mkdir(parents=True, exist_ok=True)
        return int(facts["step"])

    def _ended(self, end: End, *, interrupted: bool) -> Outcome:
        """Return the last outcome of a script that has ended.

        Raises:
            Refusal: it has failed, or ended before it reported anything.
        OverLimit: it has exceeded a limit.
        """
        if interrupted:
            step = 0 if self._saved is None else self._saved.step
            # What it has saved was reported.
            return Outcome(self._assignment.attempt_id, step, done=True, metrics={}, interrupted=True)
        if end.limit is not None:
            raise _over(end.limit)
        if end.code != 0 and (limit := _limit_behind(self._reason(end))):
            reason = self._reason(end)
            is_memory = limit == "memory"
            raise _out_of_memory(reason, self._settings.memory) if is_memory else _over(limit, reason)
        if end.code != 0:
            raise Refusal("the script", "must end with exit code 0", self._reason(end), "See `sweep logs`.")
        if self._saved is None or self._step == self._resumed:
            must = "must report at least once"
            raise Refusal("the script", must, "no report", "Call `trial.report`, or append to SWEEP_REPORTS.")
        return Outcome(
            self._assignment.attempt_id,
            self._saved.step,
            done=True,
            metrics={},
            checkpoint=self._saved,
            complete=True,
        )

    def _reason(self, end: End) -> str:
        if end.error:
            return end.error
        code = f"signal {-end.code}" if end.code is not None and end.code < 0 else f"exit code {end.code}"
        last = next((line.strip() for line in reversed(self._tail) if line.strip()), "")
        return f"{code}: {last}" if last else code


class OwnProcess(OwnAttempts):
    """Runs functions and commands, each attempt in a process of its own."""

    def _begin(self, assignment: Assignment) -> ScriptAttempt:
        return ScriptAttempt(assignment)
