"""The process of a function or a command: its start, its output and its end."""

from __future__ import annotations

import json
import math
import os
import select
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from orchestrator import process_secrets
from orchestrator.accounts import Account, files_as
from orchestrator.placeholders import arguments, names_in, plain, rendered
from orchestrator.process_secrets import redacted
from orchestrator.scripts.reported_folder import own_file
from orchestrator.training.process import mps_environment, script_threads
from trainables.errors import Refusal
from trainables.trial import METRIC_SOURCES, ScriptSettings, variable_of

CLIENT = Path(__file__).parent / "client"
"""Folder that contains only `sweep_client`, so that it hides no module of a script."""

KEEPER = Path(__file__).parent / "supervisor.py"

FUNCTION = Path(__file__).parent / "function.py"

GRACE = 10.0
"""Time limit for a script to exit after SIGTERM."""

CONTROL_GROUPS = True
"""Whether a keeper uses control groups where it may create them."""

RESERVED = 1 << 30
RESERVED_PER_PROCESSOR = 64 << 20
"""Bytes that a process may reserve above its memory limit: for libraries, and for a thread on each
processor."""

LOOK_SECONDS = 0.2
"""Interval of the checks whether a silent script has ended."""

DISK_SECONDS = 3.0
"""Interval of the checks of a script's disk usage."""

LONGEST_LINE = 64 << 10
"""Maximum length of a line of a script's output in bytes; longer lines are split."""

MOST_PRINTED = 128 << 20
"""Maximum size of a script's output in the log of its attempt, in bytes."""

STAMP_BYTES = 40
"""Size of the time and the attempt before each line of the log, in bytes."""

GATHERING_SECONDS = 0.002
"""Time to wait for more output, so that many short lines are written at once."""

FEW_BYTES = 4096
"""Size of output in bytes below which more output is awaited."""

LAST_LINES = 20
LAST_BYTES = 16 << 10
"""Number and size in bytes of the last lines, which are also written to a log that was cut."""

DRAWN_SECONDS = 60.0
"""Interval at which the state of a progress bar is logged."""

LONGEST_END = 15.0
"""Time limit for the end of a killed script's descendants."""

GPU_MEMORY = "SWEEP_GPU_MEMORY"
"""Environment variable of a script: the share of its GPU's memory that it may use, if it shares the GPU."""

_KEEPER_KILLED = "the process that keeps it was killed"

_OF_A_LAUNCHER = frozenset(
    {"RANK", "LOCAL_RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}
)
"""Variables for the rank of a process in a group; a script may set them for its own processes."""

_OF_A_SESSION = ("DBUS_", "MAIL", "SSH_", "SUDO_", "XDG_")
"""Prefixes of variables that concern only the account of the service."""


class AttemptFolder:
    """The folders and files of one attempt, on the machine that runs it.

    Attributes:
        folder: Folder of all the others.
        scratch: Folder for the script's own files.
        checkpoints: Folder into which the script writes checkpoints.
        resume: Folder of the checkpoint to resume.
        temporary: Folder for temporary files, which count towards the disk limit.
        reports: File to which the script appends its reports.
        answers: File to which the sweep appends an answer with the step of each report.
        params: JSON file of the hyperparameters.
        trial: JSON file that `sweep_client` reads.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.scratch, self.checkpoints = folder / "scratch", folder / "checkpoints"
        self.resume, self.temporary = folder / "resume", folder / "tmp"
        self.reports, self.answers = folder / "reports.jsonl", folder / "answers"
        self.params, self.trial = folder / "params.json", folder / "trial.json"


@dataclass(frozen=True)
class End:
    """The end of a process.

    Attributes:
        code: Exit code, minus the number of a signal, or None if the process could not be started.
        limit: Exceeded limit, `memory`, `minutes` or `disk`, or None.
        error: Reason why the process could not be started, or ''.
    """

    code: int | None
    limit: str | None = None
    error: str = ""


@dataclass(frozen=True)
class Rank:
    """The part of an attempt on one of its nodes.

    Attributes:
        number: Rank of the node; the script on node 0 reports.
        address: Address of node 0.
        port: Port of node 0 for the script's own communication.
    """

    number: int = 0
    address: str = ""
    port: int = 0

    def environment(self, nodes: int) -> dict[str, str]:
        """Return the variables of an attempt on several nodes; torchrun reads its options from `PET_...`."""
        own = {
            "MASTER_ADDR": self.address,
            "MASTER_PORT": str(self.port),
            "NODE_RANK": str(self.number),
            "NNODES": str(nodes),
        }
        return own | {f"PET_{name}": value for name, value in own.items()} if nodes > 1 else {}


ALONE = Rank()
"""Rank of an attempt on one node."""


class ScriptProcess:
    """A running function or command, with its descendants.

    Args:
        settings: Settings of the trial.
        place: Folder of the attempt.
        attempt_id: Id of the attempt; the script's reports may name it.
        step: Step of the checkpoint in `place.resume`; 0 without one.
        say: Function that receives complete lines of the script's output.
        tracking: Variables of MLflow's client: the run that it writes to, and access to its server; or none.
        account: Account as which the script runs; None for that of this process.
        rank: Rank of this node.

    Raises:
        Refusal: The account cannot reach the folder of the attempt.
    """

    def __init__(
        self,
        settings: ScriptSettings,
        place: AttemptFolder,
        attempt_id: str,
        step: int,
        say: Callable[[str], None],
        tracking: Mapping[str, str],
        account: Account | None = None,
        rank: Rank = ALONE,
    ) -> None:
        _write(settings, place, attempt_id, step)
        if account is not None:
            _hand_over(place, account)
        task = {
            "command": command_of(settings, place, step),
            "folder": settings.folder,
            "files": str(place.folder),
            "memory": settings.memory,
            "reserved": RESERVED + RESERVED_PER_PROCESSOR * (os.cpu_count() or 1),
            "seconds": None if settings.minutes is None else 60 * settings.minutes,
            "disk": settings.disk,
            "look": DISK_SECONDS,
            "grace": GRACE,
            "groups": CONTROL_GROUPS,
            "output": (output := os.pipe())[1],
            "account": account and {"uid": account.uid, "gid": account.gid, "groups": account.groups},
        }
        self._mark = f"SWEEP_TRIAL={place.trial}"
        self._output = os.fdopen(output[0], "rb", buffering=0)
        try:
            self._keeper = subprocess.Popen(
                [sys.executable, "-I", "-S", str(KEEPER)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**environment_of(settings, place, step, account, rank), **tracking},
                pass_fds=[output[1]],
            )
        except BaseException:
            self._output.close()
            raise
        finally:
            os.close(output[1])
        self._keeper.wait()  # the first process exits at once; its child keeps the script
        self._end: End | None = None
        self._ended_at = 0.0
        self._closing = threading.Event()
        self._tell(json.dumps(task))
        self._printing = threading.Thread(
            target=self._print, args=(say,), name="output of a script", daemon=True
        )
        self._threads = [
            self._printing,
            threading.Thread(target=self._await, name="end of a script", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    @property
    def end(self) -> End | None:
        """Return the end of the process once its output has been read, or None."""
        return self._end if self._is_late() or not self._printing.is_alive() else None

    def terminate(self) -> None:
        """Send SIGTERM to the script; it is killed after `GRACE` seconds."""
        self._tell("term")

    def close(self) -> None:
        """Kill the script and its descendants, and wait for their end."""
        assert self._keeper.stdin is not None
        with suppress(BrokenPipeError):
            self._keeper.stdin.close()
        for thread in self._threads:
            thread.join(LONGEST_END)
        if self._end is None or self._end.error == _KEEPER_KILLED:
            # The script, which runs as the same user, has killed or stopped its keeper.
            _end_marked(self._mark)
            for thread in self._threads:
                thread.join(LONGEST_END)
        self._closing.set()
        self._printing.join(LONGEST_END)
        for pipe in (self._output, self._keeper.stdout, self._keeper.stderr):
            assert pipe is not None
            pipe.close()

    def _tell(self, line: str) -> None:
        assert self._keeper.stdin is not None
        try:
            self._keeper.stdin.write(line.encode() + b"\n")
            self._keeper.stdin.flush()
        except BrokenPipeError:
            return  # the keeper has ended, and with it the script; see `end`

    def _print(self, say: Callable[[str], None]) -> None:
        """Pass on the output of the script; never stop reading, or a full pipe would block the script."""
        taken, last, lost = 0, deque[bytes](maxlen=LAST_LINES), None
        for lines in self._lines():
            if taken <= MOST_PRINTED:
                sizes = accumulate((len(line) + STAMP_BYTES for line in lines), initial=taken)
                fitting = sum(size <= MOST_PRINTED for size in sizes) - 1
                taken += sum(len(line) + STAMP_BYTES for line in lines)
                last.extend(lines[fitting:])
                cut = f"the script has printed more than {MOST_PRINTED} bytes; the rest is left out"
                lines = [*lines[:fitting], *([cut.encode()] if taken > MOST_PRINTED else [])]
                lost = (_passed_on(say, lines) if lines else None) or lost
            else:
                last.extend(lines)
        if last:
            sizes = accumulate(len(line) for line in reversed(last))
            fitting = sum(size <= min(LAST_BYTES, MOST_PRINTED // 50) for size in sizes)
            _passed_on(
                say, [b"the last lines that the script has printed:", *list(last)[len(last) - fitting :]]
            )
        if lost is not None:
            _passed_on(say, [f"a part of what the script has printed could not be written: {lost}".encode()])

    def _lines(self) -> Iterator[list[bytes]]:
        """Yield the lines of the output without their ends. Long lines are split.

        After the keeper has ended all descendants of the script, another process may still hold the output;
        only the current content of the pipe is read then.
        """
        assert self._keeper.stderr is not None
        streams = {pipe: OutputLines() for pipe in (self._output.fileno(), self._keeper.stderr.fileno())}
        readable = select.poll()
        for pipe in streams:
            readable.register(pipe, select.POLLIN)
        left = list(streams)
        while left and not self._closing.is_set():
            has_ended = self._end is not None and self._end.error != _KEEPER_KILLED
            ready = dict(readable.poll(1000 * LOOK_SECONDS))
            if (not ready and has_ended) or (has_ended and self._is_late()):
                break
            few = bool(ready)
            for pipe in [pipe for pipe in left if pipe in ready]:
                piece = os.read(pipe, LONGEST_LINE)
                if not piece:
                    left.remove(pipe)
                    readable.unregister(pipe)
                few = few and bool(piece) and len(piece) < FEW_BYTES
                yield streams[pipe].lines(piece)
            if few:
                time.sleep(GATHERING_SECONDS)
        for stream in streams.values():
            yield stream.rest()

    def _is_late(self) -> bool:
        """Return True if the keeper ended more than `LONGEST_END` seconds ago."""
        return self._end is not None and time.monotonic() - self._ended_at > LONGEST_END

    def _await(self) -> None:
        assert self._keeper.stdout is not None
        text = self._keeper.stdout.read()
        killed = {"code": None, "limit": None, "error": _KEEPER_KILLED}
        answer: Mapping[str, Any] = json.loads(text) if text else killed
        self._ended_at = time.monotonic()
        self._end = End(answer["code"], answer["limit"], answer.get("error", ""))


class OutputLines:
    """Splits one output of a script into lines.

    A line that carriage returns overwrite, such as a progress bar, keeps its last state.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._shown_at = time.monotonic()

    def lines(self, piece: bytes) -> list[bytes]:
        """Return the lines that a piece completes."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        found = [part for line in lines for part in _parts(_last_state(line))]
        if b"\r" in self._rest:
            shown = self._rest.rstrip(b"\r")
            before, _, last = shown.rpartition(b"\r")
            # Keep one carriage return at the end, which a new state or the end of the line may follow.
            self._rest = last + self._rest[len(shown) : len(shown) + 1]
            now = time.monotonic()
            if before and now - self._shown_at > DRAWN_SECONDS:
                self._shown_at = now
                found += _parts(_last_state(before))
        if len(self._rest) > LONGEST_LINE:
            *whole, self._rest = _parts(self._rest)
            found += whole
        return found

    def rest(self) -> list[bytes]:
        """Return the incomplete line."""
        return _parts(_last_state(self._rest)) if self._rest else []


def _last_state(line: bytes) -> bytes:
    """Return a line as a terminal shows it after its carriage returns."""
    return line.rstrip(b"\r").rpartition(b"\r")[2]


def _parts(line: bytes) -> list[bytes]:
    """Split a long line, without splitting characters."""
    parts = []
    while len(line) > LONGEST_LINE:
        end = LONGEST_LINE
        while end > LONGEST_LINE - 4 and line[end] & 0xC0 == 0x80:
            end -= 1
        parts.append(line[:end])
        line = line[end:]
    return [*parts, line]


def _passed_on(say: Callable[[str], None], lines: Sequence[bytes]) -> OSError | None:
    """Pass lines on; return the error if they could not be written."""
    try:
        say(b"\n".join(lines).decode("utf-8", "backslashreplace"))
    except OSError as error:
        return error
    return None


def _end_marked(mark: str) -> None:
    """Kill every process with an environment variable: orphans of a script without a supervisor."""
    for sign in (signal.SIGSTOP, signal.SIGKILL):  # a stopped process cannot start another one
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                    os.kill(int(folder.name), sign)


def command_of(settings: ScriptSettings, place: AttemptFolder, step: int) -> list[str]:
    """Return the arguments of the command with placeholders replaced."""
    if settings.function is not None:
        return [sys.executable, "-P", str(FUNCTION), settings.function, settings.folder]
    return _words(settings, step, str(place.scratch), str(place.resume) if step else "")


def metrics_of(settings: ScriptSettings, place: AttemptFolder, step: int) -> dict[str, str]:
    """Return the section `trainable.metrics` with the placeholders of its paths replaced."""
    values = {**_own(settings, step, str(place.scratch), str(place.resume)), **settings.params}
    return {
        name: rendered(text, values, shell=False) if name in METRIC_SOURCES else text
        for name, text in settings.metrics.items()
    }


def _own(settings: ScriptSettings, step: int, folder: str, resume: str) -> dict[str, Any]:
    steps = settings.training.steps
    own = {"seed": settings.seed, "step": step, "steps": steps, "folder": folder, "resume": resume}
    return {**own, "gpus": math.ceil(settings.gpu), "nodes": settings.nodes}


def _words(settings: ScriptSettings, step: int, folder: str, resume: str) -> list[str]:
    values = _own(settings, step, folder, resume)
    words = arguments(settings.command or (), values, settings.params, shell=settings.shell)
    return ["/bin/sh", "-c", *words] if settings.shell else words


def command_by_hand(settings: ScriptSettings) -> list[str]:
    """Return the arguments of a command outside a sweep; `{folder}` is the current folder."""
    return _words(settings, 0, ".", "")


def variables_by_hand(settings: ScriptSettings) -> dict[str, str]:
    """Return the variables of a script outside a sweep, for its clock, its seed and its hyperparameters."""
    own = {variable_of(name): str(value) for name, value in settings.params.items()}
    counts = {"SEED": settings.seed, "STEPS": settings.training.steps, "INTERVAL": settings.training.interval}
    return {**{f"SWEEP_{name}": str(value) for name, value in counts.items()}, **own}


def facts_by_hand(settings: ScriptSettings) -> dict[str, Any]:
    """Return the facts of a trial outside a sweep for `sweep_client`, which then prints its reports."""
    no_files = dict.fromkeys(("attempt", "resume", "reports", "answers", "checkpoints"))
    clock = {"start": 0, "steps": settings.training.steps, "interval": settings.training.interval}
    return {**no_files, **clock, "params": dict(settings.params), "seed": settings.seed, "folder": "."}


def line_by_hand(settings: ScriptSettings) -> str:
    """Return the command of a trial as a line for a shell, which runs it in its folder outside a sweep.

    Hyperparameters that the words do not name, what `sweep_client` reads, and the folder from which a script
    imports it are variables. `{folder}` is the current folder, as in `sweep_client` by hand.
    """
    placed = names_in(settings.command or (), shell=settings.shell)
    others = [] if "args" in placed else sorted(set(settings.params) - placed)
    left_out = {variable_of(name) for name in settings.params if name not in others}
    variables = [
        f"{name}={shlex.quote(value)}"
        for name, value in variables_by_hand(settings).items()
        if name not in left_out
    ]
    path = f'PYTHONPATH={shlex.quote(str(CLIENT))}"${{PYTHONPATH:+:$PYTHONPATH}}"'
    line = " ".join([path, *variables, shlex.join(command_by_hand(settings))])
    return f"cd {shlex.quote(settings.folder)} && {line}"


def write_answer(place: AttemptFolder, step: int, *, go_on: bool) -> None:
    """Write the answer to the report of a step, unless the script has replaced the file."""
    line = f"{'continue' if go_on else 'stop'} {step}\n"
    with suppress(OSError), own_file(place.answers, os.O_WRONLY | os.O_APPEND) as file:
        file.write(line.encode())


def environment_of(
    settings: ScriptSettings,
    place: AttemptFolder,
    step: int,
    account: Account | None = None,
    rank: Rank = ALONE,
) -> dict[str, str]:
    """Return the environment of a script: allowed or requested variables of the worker.

    Libraries use as many threads as the trial has cores. With an account, the script has the account's home
    and name.
    """
    others = process_secrets.OWN if account is None else (*process_secrets.OWN, *_OF_A_SESSION)
    given = {**process_secrets.of_trials(os.environ), **process_secrets.asked_for(os.environ)}
    kept = {
        name: value
        for name, value in given.items()
        if not name.startswith(others) and name not in _OF_A_LAUNCHER
    }
    paths = [str(CLIENT), *filter(None, [kept.get("PYTHONPATH")])]
    if settings.function is not None:
        paths.append(str(Path(__file__).parents[2]))
    own = {variable_of(name): str(plain(value)) for name, value in settings.params.items()}
    if account is not None:
        own |= {"HOME": account.home, "USER": account.name, "LOGNAME": account.name}
    return {
        **kept,
        **script_threads(settings.cpu, kept),
        **own,
        **mps_environment(settings.gpu),
        **rank.environment(settings.nodes),
        "PWD": settings.folder,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONUNBUFFERED": "1",
        "TMPDIR": str(place.temporary),
        "SWEEP_TRIAL": str(place.trial),
        "SWEEP_PARAMS": str(place.params),
        "SWEEP_REPORTS": str(place.reports),
        "SWEEP_ANSWERS": str(place.answers),
        "SWEEP_CHECKPOINT": str(place.checkpoints),
        "SWEEP_RESUME": str(place.resume) if step else "",
        "SWEEP_STEP": str(step),
        "SWEEP_STEPS": str(settings.training.steps),
        "SWEEP_INTERVAL": str(settings.training.interval),
        "SWEEP_SEED": str(settings.seed),
        "SWEEP_FOLDER": str(place.scratch),
        "SWEEP_GPUS": str(math.ceil(settings.gpu)),
        "SWEEP_NODES": str(settings.nodes),
        **({} if settings.gpu_memory is None else {GPU_MEMORY: str(settings.gpu_memory)}),
    }


def _hand_over(place: AttemptFolder, account: Account) -> None:
    """Give the files of an attempt to an account; no other account can read them.

    The folder itself stays the service's, so the account cannot replace the files that the service reads
    there. No other account can enter the folder before all files are handed over, so no link can be followed.
    """
    for path, _, names in os.walk(place.folder, topdown=False):
        for name in names:
            _give(Path(path, name), 0o600, account)
        if Path(path) != place.folder:
            _give(Path(path), 0o700, account)
    os.chown(place.folder, -1, account.gid)
    place.folder.chmod(0o710)
    try:
        with files_as(account):
            place.trial.read_bytes()
    except PermissionError as error:
        must = f"must be in a folder that {account.name} can enter: its code runs as that account"
        remedy = "Set TMPDIR of the service to such a folder, as /tmp is."
        raise Refusal("the files of the attempt", must, str(error.filename), remedy) from None


def _give(path: Path, mode: int, account: Account) -> None:
    path.chmod(mode | (path.stat().st_mode & 0o100))  # an executable stays executable
    os.chown(path, account.uid, account.gid)


def with_access(tracking: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that name a run, and those with which a script logs in at its server."""
    if not tracking:
        return {}
    access = {name: value for name, value in os.environ.items() if name.startswith("MLFLOW_TRACKING_")}
    given = {**access, **tracking}
    # The worker's own variable may have the same address with user and password.
    own = access.get("MLFLOW_TRACKING_URI", "")
    return (
        {**given, "MLFLOW_TRACKING_URI": own} if redacted(own, ()) == given["MLFLOW_TRACKING_URI"] else given
    )


def _write(settings: ScriptSettings, place: AttemptFolder, attempt_id: str, step: int) -> None:
    """Write the files that a script reads at its start."""
    for folder in (place.scratch, place.checkpoints, place.temporary):
        folder.mkdir(parents=True)
    place.reports.touch()
    place.answers.touch()
    place.params.write_text(json.dumps(dict(settings.params), indent=1), encoding="utf-8")
    facts = {
        "attempt": attempt_id,
        "params": dict(settings.params),
        "seed": settings.seed,
        "folder": str(place.scratch),
        "resume": str(place.resume) if step else None,
        "start": step,
        "steps": settings.training.steps,
        "interval": settings.training.interval,
        "reports": str(place.reports),
        "answers": str(place.answers),
        "checkpoints": str(place.checkpoints),
        "gpu_memory": settings.gpu_memory,
    }
    place.trial.write_text(json.dumps(facts, indent=1), encoding="utf-8")
