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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from orchestrator import process_secrets
from orchestrator.accounts import files_as
from orchestrator.assignment import (
    LARGEST_STEP,
    OUT_OF_GPU_MEMORY,
    SIZE,
    Assignment,
    Logged,
    Outcome,
    SavedCheckpoint,
)
from orchestrator.ledger.sweeps.records import attempt_number
from orchestrator.scripts import reported_folder
from orchestrator.scripts.metric_sources import MetricSource, source_of_metrics
from orchestrator.scripts.mlflow_artifacts import MOST_ARTIFACTS, MOST_BYTES
from orchestrator.scripts.ranks import OtherNodes, unpack
from orchestrator.scripts.reported_folder import own_file
from orchestrator.scripts.script_process import (
    ALONE,
    GRACE,
    AttemptFolder,
    End,
    ScriptProcess,
    metrics_of,
    with_access,
    write_answer,
)
from orchestrator.scripts.supervisor import remove
from orchestrator.storage import store
from orchestrator.storage.paths import checkpoint_stem
from orchestrator.training import process
from orchestrator.training.attempt import SIGN_OF_LIFE, OverLimit, OwnAttempts, TrialLog, upload
from trainables import checkpoint
from trainables.durable import DIGITS
from trainables.errors import Refusal
from trainables.sources import digest_of
from trainables.trial import ScriptSettings

PATIENCE = 0.04
"""Poll interval for a report, as a share of the longer of the wait so far and the wait for the last
report."""

SHORTEST_POLL_SECONDS = 0.0001
LONGEST_POLL_SECONDS = 0.05

LONGEST_LINE = 4 << 20
"""Maximum length of a line of a report, in bytes."""

MOST_METRICS = 1000
"""Maximum number of metrics of a trial; each one is a curve and a column of tables."""

FINISHING_SECONDS = 3600.0
"""Time limit for a script without `resources.minutes` after its last report, as for a test or an export."""

LONGEST_NAME = 250
"""Maximum length of the name of a metric, as in MLflow."""

REASON_SECONDS = 2.0
"""Time to wait, after the script on node 0 has failed, for the failure of another node, which may be why."""

_MEASURED = ("seconds/", SIZE)
"""Prefixes of the metrics that the service measures itself; they have no curves."""

SHOWN = 20
"""Maximum number of entries that a message about a checkpoint lists."""

TAIL = 200
"""Number of last lines of a script's output that are searched for the reason of its failure."""


class RepeatedStep(Exception):
    """A report repeats the step of the previous one; the argument is the step."""


@dataclass(frozen=True)
class ScriptReport:
    """A report of a script.

    Attributes:
        step: Number of completed steps.
        metrics: Metrics by name.
        checkpoint: Name of a folder below that of checkpoints, or absolute path of one in the script's own
            folder, or None.
    """

    step: int
    metrics: Mapping[str, float]
    checkpoint: str | None

    @staticmethod
    def read(line: bytes, after: int, attempt_id: str) -> ScriptReport:
        """Return the report in a line.

        Args:
            line: Line as the script has written it.
            after: Step of the previous report, or -1 without one.
            attempt_id: Id of the attempt; a line may omit it, but must not name another attempt.

        Raises:
            RepeatedStep: The step is that of the previous report.
            Refusal: The line is invalid, or a report of another attempt.
        """
        try:
            fields = json.loads(line, parse_float=_finite)
            step, metrics, name = fields["step"], fields["metrics"], fields.get("checkpoint")
            numbers = {str(key): _number(value) for key, value in metrics.items()}
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            must = (
                'a line must be {"step": whole number, "metrics": {name: number}, "checkpoint": name or null}'
            )
            raise _refused(must, line.decode("utf-8", "backslashreplace")[:200]) from error
        if (named := fields.get("attempt")) not in (None, attempt_id):
            raise _refused(f"a line must belong to the attempt {attempt_id}", f"one of {named!r:.80}")
        if unfit := [key for key in numbers if not (key.isprintable() and 0 < len(key) <= LONGEST_NAME)]:
            must = f"a metric must have a name of 1 to {LONGEST_NAME} characters that can be printed"
            raise _refused(must, f"{unfit[0]!r:.80}")
        if own := [key for key in numbers if key.startswith(_MEASURED)]:
            must = f"a metric must not begin with {' or '.join(_MEASURED)}, like those of the service"
            raise _refused(must, f"{own[0]!r:.80}")
        if inexact := [key for key, value in metrics.items() if numbers[key] != value == value]:
            must = "a metric must be a number that 64 bits of floating point hold with all its digits"
            raise _refused(must, f"{inexact[0]!r:.80}: {metrics[inexact[0]]}")
        if isinstance(step, bool) or not isinstance(step, int) or not max(after, 0) <= step <= LARGEST_STEP:
            must = f"a step must be a whole number from {after + 1} to {LARGEST_STEP}"
            raise _refused(must, f"{step!r:.40}")
        if name is not None and (not isinstance(name, str) or not _is_plain(name)):
            raise _refused(_OF_CHECKPOINT, repr(name))
        if step == after:
            raise RepeatedStep(step)
        return ScriptReport(step, numbers, name)


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("a boolean or a text is not a number")
    return float(value)


def _finite(text: str) -> float:
    if math.isinf(value := float(text)):
        raise ValueError("exceeds the range of a 64-bit float")
    return value


def _is_plain(name: str) -> bool:
    parts = Path(name).parts
    return bool(parts) and ".." not in parts and name.isprintable()


_OF_CHECKPOINT = (
    "a checkpoint must be a folder inside SWEEP_CHECKPOINT, or its absolute path inside SWEEP_FOLDER"
)


def _step_of(line: bytes) -> int | None:
    """Return the step in a line, or None if the line is invalid."""
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
"""Patterns in the output or the end of a script that has exceeded a limit of the kernel."""

_DEVICE_MEMORY = re.compile(
    r"CUDA.{0,40}out of memory|CUDA_ERROR_OUT_OF_MEMORY|_STATUS_ALLOC_FAILED|cudaErrorMemoryAllocation|"
    r"(HIP|MPS).{0,40}out of memory|hipErrorOutOfMemory|RESOURCE_EXHAUSTED",
    re.IGNORECASE,
)
"""Pattern in the output of a script whose GPU is out of memory, independent of `resources.memory`."""


def _out_of_memory(got: str, limit: int | None) -> OverLimit:
    """Return the error of a script that ran out of memory on the GPU, on the machine or within its limit."""
    if _DEVICE_MEMORY.search(got):
        must = "has run out of GPU memory"
        remedy = "Use less, such as smaller batches, or give a trial a larger share: resources.gpu."
        return OverLimit(OUT_OF_GPU_MEMORY, Refusal("the script", must, got, remedy))
    if limit:
        return _over("memory", got)
    must = "has run out of memory"
    remedy = "Use less, or let fewer trials run at once: resources.concurrent."
    return OverLimit(_CAUSES["memory"], Refusal("the script", must, got, remedy))


def _devices_of(settings: ScriptSettings) -> str:
    """Return a line about the GPUs of a script and the bound of its memory; '' without a GPU."""
    if not settings.gpu:
        return ""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    line = f"its GPUs: {visible or 'as its machine shows them'}"
    if (bound := settings.gpu_memory) is not None:
        line += f"; at most {bound:.1%} of the memory, in JAX, and in PyTorch with `sweep_client`"
    if process.mps_environment(settings.gpu):
        line += "; through MPS"
    return line


def _limit_behind(reason: str) -> str | None:
    return next((limit for limit, sign in _SIGNS.items() if sign.search(reason)), None)


def _over(limit: str, got: str = "more") -> OverLimit:
    what = f"resources.{limit}"
    remedy = f"Raise {what}, or use less."
    return OverLimit(_CAUSES[limit], Refusal("the script", f"must not exceed {what}", got, remedy))


def _refused(must: str, got: str) -> Refusal:
    return Refusal("a report of the script", must, got, "See docs/trainables.md.")


class ScriptAttempt:
    """One attempt of a function or a command in its own process, and in one on each of its other nodes.

    Args:
        assignment: Assignment of the attempt.
        others: The other nodes of the attempt, or None if it has one node.

    Attributes:
        others_must_leave: Whether another node is about to be taken away.
    """

    def __init__(self, assignment: Assignment, others: OtherNodes | None = None) -> None:
        assert isinstance(assignment.settings, ScriptSettings)
        self._assignment, self._settings = assignment, assignment.settings
        self._log = TrialLog(Path(assignment.log), assignment.attempt_id)
        self._folder = tempfile.mkdtemp(prefix="sweep-trial-")
        self._place = AttemptFolder(Path(self._folder).resolve())
        self._settings_as_json = asdict(assignment.settings)
        self._saved = assignment.resume
        self._recorded = assignment.resume.step if assignment.resume else -1
        self._step, self._offset, self._reports = -1, 0, 0
        self._unanswered: int | None = None
        self._prepared: Path | None = None
        self._has_checkpoints = False
        self._unread: deque[bytes] = deque()
        self._interval = 0.0
        self._asked_to_leave = False
        self._names = set(assignment.observed)
        self._leaves_out_metrics = False
        self._last: Outcome | None = None
        self._listens = True
        self._source: MetricSource | None = None
        self._started_at = time.monotonic()
        self._tail = deque[str](maxlen=TAIL)
        self._others, self._tails = others, dict[int, deque[str]]()
        self.others_must_leave = False
        try:
            resumed = unpack(assignment, assignment.resume, self._place)
            store.check_space(Path(assignment.checkpoints))
            self._log.started(resumed)
            if attempt_number(assignment.attempt_id) == 1:
                self._log.write(process_secrets.left_out_notice(process_secrets.left_out(os.environ)))
            self._log.write(_devices_of(self._settings))
            with contextlib.suppress(PermissionError):  # the script will fail with a message
                self._log.write(f"its code has the digest {self._code_digest()[:DIGITS]}")
            self._step = resumed or -1
            self._source = self._source_of_metrics(resumed)
            own = {} if self._source is None else self._source.variables
            if own:
                self._log.write("what it logs with MLflow is kept in the run of the trial, except for traces")
            variables = {**with_access(assignment.tracking), **own}
            rank = others.start() if others is not None else ALONE
            self._process = ScriptProcess(
                self._settings,
                self._place,
                assignment.attempt_id,
                resumed,
                self._print,
                variables,
                assignment.account,
                rank,
            )
        except BaseException:
            if self._source is not None:
                self._source.close()
            if others is not None:
                others.close()
            remove(self._folder)
            raise

    def _source_of_metrics(self, resumed: int) -> MetricSource | None:
        """Return the source of reports that the script does not send itself, or None."""
        settings = self._settings
        if not settings.metrics:
            return None
        metrics = metrics_of(settings, self._place, resumed)
        needed = [name for name in self._assignment.observed if not name.startswith(_MEASURED)]
        interval = settings.training.interval
        log, number = Path(self._assignment.log), attempt_number(self._assignment.attempt_id)
        kept = log.with_suffix(".mlflow") / str(number)
        return source_of_metrics(metrics, Path(settings.folder), kept, needed, interval)

    def _code_digest(self) -> str:
        settings = self._settings
        with files_as(self._assignment.account):
            return digest_of(settings.function or settings.command or (), Path(settings.folder))

    def advance(self) -> Outcome:
        """Answer the last report; return the next one, or the end of the script.

        After `SIGN_OF_LIFE` seconds return a `training` outcome; the next call continues. A hung script looks
        like a slow one; `resources.minutes` limits both.

        Raises:
            Refusal: The script has failed, or has sent an invalid report.
        """
        if self._last is not None:
            return self._finished(self._last)
        if self._unanswered is not None:
            self._answer(self._unanswered, go_on=not self._must_stop())
            self._prepare()
        self._look_at_others()
        began = since = time.monotonic()
        while True:
            if (report := self._next_report()) is not None:
                self._interval = time.monotonic() - since
                if report.step > self._recorded:
                    outcome = self._outcome(report, interrupted=self._asked_to_leave)
                    if report.step < self._settings.training.steps:
                        return replace(outcome, logged=self._logged())
                    self._last = outcome
                    return self._finished(outcome)
                self._answer(report.step, go_on=True)  # an earlier attempt has reported this step
                since = time.monotonic()
            elif (end := self._process.end) is not None and not self._has_more():
                return self._ended(end, interrupted=self._asked_to_leave)
            else:
                self._look_at_others()
                if not self._asked_to_leave and self._must_stop():
                    self._terminate()
                wait = PATIENCE * max(time.monotonic() - since, self._interval)
                time.sleep(min(max(wait, SHORTEST_POLL_SECONDS), LONGEST_POLL_SECONDS))
            if time.monotonic() - began > SIGN_OF_LIFE:
                return Outcome(self._assignment.attempt_id, max(self._step, 0), training=True)

    def release(self) -> None:
        """End the process and its descendants, and remove its files."""
        if self._unanswered is not None:
            self._answer(self._unanswered, go_on=False)
        if self._process.end is None:
            self._terminate()
            self._wait_for_end(2 * GRACE)
        self._process.close()
        if self._source is not None:
            self._source.close()
        if self._others is not None:
            self._others.close()
        if self._prepared is not None:
            shutil.rmtree(self._prepared, ignore_errors=True)
        remove(self._folder)

    def _finished(self, last: Outcome) -> Outcome:
        """Wait for the end of the script, which may still test, export or upload; return the last outcome."""
        if self._unanswered is not None:
            self._answer(self._unanswered, go_on=False)
        began = time.monotonic()
        while self._process.end is None:
            now = time.monotonic()
            is_late = self._settings.minutes is None and now - self._started_at > FINISHING_SECONDS
            if not self._asked_to_leave and (is_late or self._must_stop()):
                why = f"the script has run for {now - self._started_at:.0f} s after its last report"
                remedy = "; resources.minutes lets it go on for longer" if is_late else ""
                self._log.write(f"{why}, and is ended{remedy}")
                self._terminate()
            if now - began > SIGN_OF_LIFE:
                return Outcome(last.attempt_id, last.step, training=True)
            self._listens = self._listens and self._dismiss()
            time.sleep(LONGEST_POLL_SECONDS if now - began > 1 else 0.01)
        end = self._process.end
        if end.limit is not None:
            self._log.write(f"ended after its last report: {_over(end.limit)}")
        elif end.code != 0 and not self._asked_to_leave:
            self._log.write(f"ended after its last report with {self._reason(end, self._tail)}")
        return replace(last, logged=self._logged())

    def _logged(self) -> Logged | None:
        """Return what the script has logged with MLflow, besides metrics, since the last outcome."""
        logged = None if self._source is None else self._source.logged()
        if logged is not None and logged.left_out:
            shown = ", ".join(logged.left_out[:3]) + (", ..." if len(logged.left_out) > 3 else "")
            limit = f"{MOST_ARTIFACTS:,} files and {MOST_BYTES >> 30} GiB"
            self._log.write(f"artifacts of more than {limit} in one attempt are not kept: {shown}")
        return logged

    def _wait_for_end(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while self._process.end is None and time.monotonic() < until:
            self._listens = self._listens and self._dismiss()
            time.sleep(0.02)

    def _dismiss(self) -> bool:
        """Answer late reports, which are not recorded, so that the script can exit.

        Return False to stop listening to the script.
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
            with contextlib.suppress(OSError):  # saving the next checkpoint will raise the error
                self._prepared = checkpoint.prepare(Path(self._assignment.checkpoints))

    def _must_stop(self) -> bool:
        assignment = self._assignment
        is_leaving = process.terminating() or self.others_must_leave
        return is_leaving or process.stop_requested(assignment.channel, assignment.attempt_id)

    def _terminate(self) -> None:
        """Send SIGTERM to the script, on all its nodes."""
        self._process.terminate()
        if self._others is not None:
            self._others.terminate()
        self._asked_to_leave = True

    def _look_at_others(self) -> None:
        """Log what the scripts on other nodes have printed.

        Raises:
            Refusal: One of them has failed, which ends the attempt on all nodes.
            LostRank: The process that runs one of them has died, or its node.
        """
        for number, lines, end, must_leave in self._others.look() if self._others is not None else ():
            tail = self._tails.setdefault(number, deque(maxlen=TAIL))
            tail.extend(lines)
            if lines:
                self._log.write("".join(f"node {number}: {line}\n" for line in lines))
            self.others_must_leave |= must_leave
            if end is not None and not self._asked_to_leave:
                self._check_end(end, tail, f"on node {number}, ")

    def _print(self, lines: str) -> None:
        self._tail.extend(lines.split("\n")[-TAIL:])
        if self._source is not None:
            self._source.print(lines)
        self._log.write(f"{lines}\n")

    def _answer(self, step: int, *, go_on: bool) -> None:
        """Answer the report of a step, on all nodes."""
        write_answer(self._place, step, go_on=go_on)
        if self._others is not None:
            self._others.answer(step, go_on=go_on)
        self._unanswered = None

    def _has_more(self) -> bool:
        """Return True if complete lines are unread; refuse a replaced file and a line that is too long."""
        if self._source is not None:
            with files_as(self._assignment.account):
                self._unread.extend(self._source.reports(ended=self._process.end is not None))
        try:
            facts = self._place.reports.lstat()
            if stat.S_ISREG(facts.st_mode) and facts.st_size == self._offset:
                return bool(self._unread)  # the usual case, without opening the file
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

    def _next_report(self) -> ScriptReport | None:
        """Return the next complete report, or None."""
        while self._unread or self._has_more():
            line = self._unread.popleft()
            try:
                report = ScriptReport.read(line, self._step, self._assignment.attempt_id)
            except RepeatedStep:
                self._log.write(f"step {self._step} was reported before: this report of it is refused")
                self._answer(self._step, go_on=not self._must_stop())
            except Refusal:
                self._unanswered = _step_of(line)  # a script that waits for the answer then exits
                raise
            else:
                self._step = self._unanswered = report.step
                self._reports += 1
                return report
        return None

    def _outcome(self, report: ScriptReport, *, interrupted: bool) -> Outcome:
        """Save the checkpoint of a report; return its metrics with the measurements of the service."""
        began = time.monotonic()
        report = replace(report, metrics=self._within_limit(report.metrics))
        metrics = {**report.metrics, "seconds/train": began - self._started_at, "seconds/evaluate": 0.0}
        # Checks come first, so that nothing is saved for a refused report.
        self._assignment.check_metrics(metrics)
        self._check_copied(report)
        saved = self._save(report)
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

    def _within_limit(self, metrics: Mapping[str, float]) -> Mapping[str, float]:
        """Keep the first `MOST_METRICS` metrics of the attempt; log dropped names once."""
        others = [name for name in metrics if name not in self._names]
        room = max(MOST_METRICS - len(self._names), 0)
        self._names.update(others[:room])
        if (left_out := others[room:]) and not self._leaves_out_metrics:
            self._leaves_out_metrics = True
            shown = ", ".join(left_out[:3]) + (", ..." if len(left_out) > 3 else "")
            self._log.write(f"metrics beyond the first {MOST_METRICS} are not recorded: {shown}")
        return {name: value for name, value in metrics.items() if name in self._names}

    def _check_copied(self, report: ScriptReport) -> None:
        """Require a checkpoint if the scheduler continues trials from it."""
        is_last = report.step >= self._settings.training.steps
        if self._assignment.copied and report.checkpoint is None and not is_last:
            must = "must include a checkpoint, because the scheduler continues trials from it"
            remedy = "Write trial.report(..., checkpoint=folder), or choose another scheduler."
            raise Refusal("a report of the script", must, f"none at step {report.step}", remedy)

    def _save(self, report: ScriptReport) -> SavedCheckpoint:
        """Save the files of a report. Without new files, reuse the last checkpoint for the new step."""
        if report.checkpoint is None and self._saved is not None:
            self._saved = replace(self._saved, step=report.step)
            return self._saved
        number = attempt_number(self._assignment.attempt_id)
        stem = Path(self._assignment.checkpoints) / checkpoint_stem(report.step, number)
        facts = {
            "trial": self._assignment.trial_key,
            "step": report.step,
            "metrics": {name: value for name, value in report.metrics.items() if math.isfinite(value)},
            "settings": self._settings_as_json,
            "resumable": report.checkpoint is not None,
        }
        prepared, self._prepared = self._prepared, None
        with checkpoint.packing(stem, prepared) as packing:
            if report.checkpoint is not None:
                self._pack(Path(report.checkpoint), packing)
            saved = packing.save(facts)
        if self._assignment.store:
            upload(saved.folder, self._assignment.store)
        self._saved = SavedCheckpoint(str(saved.folder), report.step, saved.digest, saved.bytes)
        return self._saved

    def _pack(self, reported: Path, packing: checkpoint.Packing) -> None:
        """Copy a reported folder into a checkpoint, and log entries that were not copied.

        The folder is removed, unless it is in the script's own folder.
        """
        stays = reported.is_absolute()
        base = self._place.scratch if stays else self._place.checkpoints
        folder = base / reported
        if not folder.is_relative_to(base):
            raise _refused(_OF_CHECKPOINT, str(folder))
        with files_as(self._assignment.account):  # a link must not give access to files of others
            try:
                left_out = reported_folder.pack(base, folder, packing, self._settings.disk)
            except reported_folder.FolderTooLarge as error:
                raise _over("disk") from error
            except checkpoint.Changed as error:
                raise _refused(
                    "a checkpoint must not be changed before its report is answered", str(error)
                ) from error
            except (FileNotFoundError, NotADirectoryError) as error:
                real = os.path.realpath(folder)  # the target of a link is neither read nor removed
                got = f"a link to {real}" if real != str(folder) else f"no folder {reported}"
                raise _refused(f"{_OF_CHECKPOINT}, when it is reported", got) from error
            if not stays:
                shutil.rmtree(folder)
        for names, what in (
            (left_out.links, "links to what is outside the checkpoint, and left out of it"),
            (left_out.others, "links to folders, no files, or gone, and left out of the checkpoint"),
        ):
            if names:
                more = [f"{len(names) - SHOWN} more"] if len(names) > SHOWN else []
                shown = " and ".join([*sorted(names)[:SHOWN], *more])
                self._log.write(f"{shown} are {what}".replace("\n", "?"))

    def _ended(self, end: End, *, interrupted: bool) -> Outcome:
        """Return the last outcome of a script that has ended.

        Raises:
            Refusal: It has failed, or ended without a report.
            OverLimit: It has exceeded a limit.
        """
        if interrupted:
            step = 0 if self._saved is None else self._saved.step  # its checkpoint was reported before
            return Outcome(self._assignment.attempt_id, step, done=True, interrupted=True)
        until = time.monotonic() + REASON_SECONDS
        while self._others is not None and end.code != 0 and time.monotonic() < until:
            self._look_at_others()  # the failure of another node may be the reason
            time.sleep(LONGEST_POLL_SECONDS)
        self._check_end(end, self._tail)
        if self._saved is None or not self._reports:
            must = "has not reported any metric"
            remedy = "Call `trial.report`, or append to SWEEP_REPORTS."
            if self._source is not None:
                remedy = "Correct `trainable.metrics`: nothing was found for the metrics of the objective."
            raise Refusal("the script", must, "", remedy)
        return Outcome(
            self._assignment.attempt_id,
            self._saved.step,
            done=True,
            checkpoint=self._saved,
            complete=True,
            logged=self._logged(),
        )

    def _check_end(self, end: End, tail: Sequence[str], where: str = "") -> None:
        """Raise the reason why a script has failed, if it has.

        Args:
            end: End of the script.
            tail: Last lines of its output.
            where: Words before the reason, such as `on node 1, `.

        Raises:
            Refusal: It has failed.
            OverLimit: It has exceeded a limit.
        """
        if end.limit is not None:
            raise _over(end.limit)
        if end.code != 0:
            reason = where + self._reason(end, tail)
            if limit := _limit_behind(reason):
                is_memory = limit == "memory"
                raise _out_of_memory(reason, self._settings.memory) if is_memory else _over(limit, reason)
            raise Refusal("the script", "has failed", reason, "See `sweep logs`.")

    def _reason(self, end: End, tail: Sequence[str]) -> str:
        if end.error:
            return end.error
        code = f"signal {-end.code}" if end.code is not None and end.code < 0 else f"exit code {end.code}"
        last = next((line.strip() for line in reversed(tail) if line.strip()), "")
        raised = _raised(list(tail), Path(self._settings.folder))
        return f"{code}: {raised or last}" if raised or last else code


_FRAME = re.compile(r'\s+File "(.+)", line (\d+)')


def _raised(lines: Sequence[str], folder: Path) -> str | None:
    """Return the exception of the last traceback in a script's output, with the line of its own code."""
    begins = [at for at, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")]
    frames = {at: match for at, line in enumerate(lines) if (match := _FRAME.match(line))}
    last = max(frames, default=0)
    raised = next((line for line in lines[last + 1 :] if line.strip() and not line[0].isspace()), None)
    if not frames or raised is None:
        return None
    for at in sorted(frames, reverse=True):
        file = folder / frames[at][1]
        if at > max(begins, default=-1) and file.is_relative_to(folder) and "site-packages" not in file.parts:
            source = "".join(f": {line.strip()}" for line in lines[at + 1 : at + 2] if line[:1].isspace())
            return f"{raised} ({file.relative_to(folder)}, line {frames[at][2]}{source})"
    return raised


class OwnProcess(OwnAttempts):
    """Runs functions and commands, each attempt in its own process.

    Args:
        others: Function that returns the other nodes of the next attempt, or None if it has one node.
    """

    def __init__(self, others: Callable[[], OtherNodes | None] = lambda: None) -> None:
        super().__init__()
        self._others = others

    def _begin(self, assignment: Assignment) -> ScriptAttempt:
        return ScriptAttempt(assignment, self._others())

    def release(self) -> None:
        """Free the resources of the attempt, if one has begun."""
        if isinstance(self._attempt, ScriptAttempt):
            self.loses_node = self._attempt.others_must_leave
        super().release()
