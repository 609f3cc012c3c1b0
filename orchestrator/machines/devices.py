"""Locks on the NVIDIA GPUs of this machine, so that only one Ray at a time uses each.

A folder that all users share has a file for each GPU. The head of a Ray holds locks on the files of its GPUs.
It inherits the open files, so the kernel releases the locks at its end in any case. Programs without such
locks are found by asking the GPU driver which processes use the GPUs. The user's own programs are allowed,
because locks only separate Rays.

A Ray without a driver keeps its locks for a while, and perhaps an idle engine on each GPU. A process that
finds every GPU taken requests them by a shared lock on a second file of each GPU, and waits a moment. The
keeper of an unused Ray that sees the request ends that Ray at once.

The folder is not trusted, because other users may have created it: links are not followed, and the content of
a file is used only in messages. AMD GPUs and host devices are not locked. This module imports neither Ray nor
JAX.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import shutil
import stat
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from orchestrator.errors import NoCluster, counted
from orchestrator.machines.hardware import Hardware, host_devices

LOCKS = "SWEEP_DEVICE_LOCKS"
"""Environment variable: folder of the locks, the same for all users of the machine."""

LOCKS_FOLDER = "/tmp/sweep-devices"  # not `TMPDIR`, which differs between users
LONGEST_COMMAND = 80
"""Maximum length of a command line in a message."""

HANDOVER_SECONDS = 6.0
"""Timeout for an unused Ray to end after a request for its GPU."""

_LOOK_SECONDS = 0.25
_ENDING_SECONDS = 1.0
"""Time after which the GPU driver no longer lists a process that has ended."""

_PROGRAM = "nvidia-smi"
_REMEDY = "Wait for it, or train on the CPU with `CUDA_VISIBLE_DEVICES= `."


@dataclass(frozen=True)
class Gpu:
    """A GPU.

    Attributes:
        index: Index in the output of `nvidia-smi`.
        uuid: UUID such as `GPU-5fe0...`, or `MIG-...` for an instance of a partitioned GPU.
    """

    index: str
    uuid: str


@dataclass(frozen=True)
class Grant:
    """GPUs that a Ray may use.

    Attributes:
        uuids: UUIDs of the GPUs.
        files: Descriptors of the locked open files, one for each GPU.
        folder: Descriptor of the locked folder. Without this lock `systemd-tmpfiles` would delete old files
            of the folder, and a lock on a deleted file has no effect.
    """

    uuids: tuple[str, ...] = ()
    files: tuple[int, ...] = ()
    folder: int | None = None

    @classmethod
    def parsed(cls, text: str) -> Grant:
        """Return the grant that `text` describes."""
        facts = json.loads(text)
        return cls(tuple(facts["uuids"]), tuple(facts["files"]), facts["folder"])

    @property
    def text(self) -> str:
        """Return a description for a child process that inherits the open files."""
        return json.dumps(asdict(self))

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Return the descriptors that a process must inherit to hold the locks."""
        return self.files if self.folder is None else (*self.files, self.folder)

    def name(self, pid: int) -> None:
        """Write the id of the process that holds the GPUs into their files, for messages to others."""
        for descriptor in self.files:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{pid}\n".encode(), 0)


def has_locks(hardware: Hardware) -> bool:
    """Return True if this machine has NVIDIA GPUs, which are locked.

    Raises:
        NoCluster: `nvidia-smi`, which lists the processes on these GPUs, is missing.
    """
    if not hardware.gpus or host_devices():
        return False
    if shutil.which(_PROGRAM):
        return True
    if any(Path("/dev").glob("nvidia[0-9]*")):
        remedy = "Install it, or train on the CPU with `CUDA_VISIBLE_DEVICES= `."
        raise NoCluster("this machine", f"needs `{_PROGRAM}` to see which processes use its GPUs", "", remedy)
    return False


def described(hardware: Hardware) -> str:
    """Return the hardware of trials as a phrase, such as `16 cores, 1 NVIDIA H200, Linux on x86_64`."""
    cores, gpus = counted(hardware.cpus, "core"), "no GPU"
    if hardware.gpus:
        gpus = counted(hardware.gpus, device_of_trials(hardware, hardware.gpus))
    if hardware.nodes:
        return f"a cluster of {counted(len(hardware.nodes), 'node')}, of up to {cores}, {gpus}"
    return f"{cores}, {gpus}, {platform.system()} on {platform.machine()}"


def device_of_trials(hardware: Hardware, gpus: float) -> str:
    """Return the model of the GPUs of trials, such as `NVIDIA H200`, or `CPU` without a GPU.

    Args:
        hardware: Hardware of the trials; the models of the GPUs of a cluster are unknown, `GPU`.
        gpus: GPUs of a trial.
    """
    if not gpus:
        return "CPU"
    return "GPU" if hardware.nodes or host_devices() else _model()


def _model() -> str:
    """Return the model of this machine's GPUs; `GPU` if they differ or it is unknown."""
    try:
        names = {line[0] for line in _answers("--query-gpu=name")}
    except NoCluster:
        return "GPU"
    return names.pop() if len(names) == 1 else "GPU"


@contextmanager
def granted(hardware: Hardware, *, needs_gpu: bool = True, patient: bool = True) -> Iterator[Grant]:
    """Lock the free GPUs that are visible to this process, within a `with` block; a child may keep the locks.

    Args:
        hardware: Hardware that this process may use.
        needs_gpu: Whether a grant without a GPU is refused.
        patient: Whether to request a needed GPU that another Ray has locked, and to wait a moment for it.

    Raises:
        NoCluster: A GPU is needed and other users or Rays use all of them, or the folder is not safe.
    """
    if not has_locks(hardware):
        yield Grant()
        return
    with ExitStack() as stack:
        folder = stack.enter_context(_opened_folder())
        present = [Gpu(*line) for line in _answers("--query-gpu=index,uuid") if len(line) == 2]
        gpus = visible(present, os.environ.get("CUDA_VISIBLE_DEVICES"))
        found = _lock(stack, folder, gpus)
        if needs_gpu and not found.held and found.locked and patient:
            found = _asked_for(stack, folder, gpus, found)
        held = found.held
        if not held and needs_gpu:
            got = "; ".join(found.refused) or "none"
            raise NoCluster("the GPUs of this machine", "one must be free", got, _REMEDY)
        grant = Grant(tuple(held), tuple(held.values()), folder)
        grant.name(os.getpid())
        yield grant


@dataclass(frozen=True)
class _Found:
    """GPUs that were locked or refused.

    Attributes:
        held: Descriptors of the locked files, by UUID.
        refused: A line for each GPU that is not locked.
        locked: Whether another Ray has locked one of the refused GPUs.
    """

    held: dict[str, int]
    refused: list[str]
    locked: bool


def _lock(stack: ExitStack, folder: int, gpus: Sequence[Gpu]) -> _Found:
    """Lock the given GPUs that no other user or Ray uses."""
    held: dict[str, int] = {}
    refused, locked = [], False
    users = _foreign_users()
    for gpu in gpus:
        with ExitStack() as opened:
            descriptor = opened.enter_context(_opened_lock(folder, _name(gpu.uuid)))
            holder = _locked_by(descriptor)
            if (user := users.get(gpu.uuid) or holder) is None:
                held[gpu.uuid] = descriptor
                stack.enter_context(opened.pop_all())
            else:
                refused.append(f"GPU {gpu.index} ({gpu.uuid}) is used by {user}")
                locked = locked or holder is not None
    return _Found(held, refused, locked)


def _asked_for(stack: ExitStack, folder: int, gpus: Sequence[Gpu], found: _Found) -> _Found:
    """Request GPUs from the other Rays, and retry until one has ended or the time is over."""
    deadline = time.monotonic() + HANDOVER_SECONDS
    with ExitStack() as asking:
        for gpu in gpus:
            request = asking.enter_context(_opened_lock(folder, _request(gpu.uuid)))
            with suppress(BlockingIOError):  # a keeper is checking it at this moment
                fcntl.flock(request, fcntl.LOCK_SH | fcntl.LOCK_NB)
        while not found.held and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
            found = _lock(stack, folder, gpus)
    return found


def wanted(uuids: Sequence[str]) -> bool:
    """Return True if another process requests one of these GPUs."""
    if not uuids:
        return False
    with suppress(NoCluster), ExitStack() as stack:
        folder = stack.enter_context(_opened_folder())
        for uuid in uuids:
            descriptor = stack.enter_context(_opened_lock(folder, _request(uuid)))
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
    return False


def has_more(held: Sequence[str], hardware: Hardware) -> bool:
    """Return True if a new Ray would get a GPU that is not in `held`."""
    if not held or len(held) >= hardware.gpus:
        return False
    with suppress(NoCluster), granted(hardware, patient=False):
        return True  # the GPUs of `held` are locked by their head
    return False


def visible(present: Sequence[Gpu], names: str | None) -> list[Gpu]:
    """Return the GPUs that `CUDA_VISIBLE_DEVICES` leaves visible, without repetition.

    Args:
        present: GPUs of this machine.
        names: Value of the variable: indices as in `nvidia-smi`, prefixes of UUIDs, or instances of a
            partitioned GPU; None if it is not set.
    """
    if names is None:
        return list(present)
    chosen = []
    for name in (part.strip() for part in names.split(",")):
        if name.startswith("MIG-"):
            chosen.append(Gpu("MIG", name))
        elif found := [gpu for gpu in present if name == gpu.index or (name and gpu.uuid.startswith(name))]:
            chosen.append(found[0])
        else:
            break  # CUDA ignores everything after an unknown name
    return list(dict.fromkeys(chosen))


# ------------------------------------------------------------------ who uses a GPU


def _foreign_users() -> dict[str, str]:
    """Return the processes of other users on each GPU."""
    uses = _uses()
    if any(not psutil.pid_exists(pid) for _, pid in uses):
        time.sleep(_ENDING_SECONDS)
        uses = _uses()
    return {uuid: _description(pid) for uuid, pid in uses if _uid(pid) != os.geteuid()}


def _uses() -> list[tuple[str, int]]:
    lines = _answers("--query-compute-apps=gpu_uuid,pid,used_memory")
    # The GPU driver writes unknown values as `[N/A]`.
    return [(line[0], int(line[1])) for line in lines if len(line) == 3 and line[1].isdecimal()]


def _answers(query: str) -> list[list[str]]:
    """Return the lines of an answer of the GPU driver, split into their columns."""
    command = [_PROGRAM, query, "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        got = " ".join(str(error).split())
        raise NoCluster("the GPUs of this machine", f"`{_PROGRAM}` does not answer", got, _REMEDY) from error
    return [[column.strip() for column in line.split(",")] for line in done.stdout.splitlines()]


def _uid(pid: int) -> int | None:
    try:
        return int(psutil.Process(pid).uids().effective)
    except psutil.Error:
        return None  # hidden or in another container, so it counts as another user's


def _description(pid: int) -> str:
    """Return user, id and command of a process in one line, as far as they are visible."""
    try:
        process = psutil.Process(pid)
        command = " ".join(" ".join(process.cmdline() or [process.name()]).split())[:LONGEST_COMMAND]
        shown = "".join(letter if letter.isprintable() else "?" for letter in command)
        return f"{process.username()}: process {pid} ({shown})"
    except psutil.Error:
        return f"another user: process {pid}"


# ------------------------------------------------------------------ the locks


@contextmanager
def _opened_folder() -> Iterator[int]:
    """Yield the descriptor of the folder of the locks, which is created if it is missing."""
    path = os.environ.get(LOCKS) or LOCKS_FOLDER
    with suppress(FileExistsError), _open_to_all():
        os.mkdir(path, 0o1777)  # noqa: PTH102 - sets the mode in the same step
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise _unsafe(path, error.strerror or "no folder") from error
    with _closing(folder):
        mode = stat.S_IMODE(os.fstat(folder).st_mode)
        if mode & 0o1777 != 0o1777:
            raise _unsafe(path, f"mode {mode:o}")
        with suppress(BlockingIOError):  # do not wait for another user who has locked it
            fcntl.flock(folder, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield folder


@contextmanager
def _opened_lock(folder: int, name: str) -> Iterator[int]:
    """Yield the descriptor of the lock file of a GPU."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    # A file of another user is opened without O_CREAT: in such a folder Linux refuses it (protected_regular).
    with suppress(FileExistsError), _open_to_all():
        os.close(os.open(name, flags | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=folder))
    try:
        descriptor = os.open(name, flags, dir_fd=folder)
    except OSError as error:
        raise _unsafe(name, error.strerror or "no file") from error
    with _closing(descriptor):
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _unsafe(name, "not a regular file")
        yield descriptor


def _name(uuid: str) -> str:
    """Return the name of a GPU's lock file."""
    return "".join(letter for letter in uuid if letter.isalnum() or letter == "-")


def _request(uuid: str) -> str:
    """Return the name of the file that is locked to request a GPU."""
    return f"{_name(uuid)}.wanted"


def _locked_by(descriptor: int) -> str | None:
    """Lock a GPU's file; return a description of the holder if that fails, else None."""
    try:
        # The head must inherit the lock, and filelock does not give access to its descriptor.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.pread(descriptor, 20, 0).strip()
        return _description(int(text)) if text.isdigit() else "another Ray"
    return None


@contextmanager
def _open_to_all() -> Iterator[None]:
    before = os.umask(0)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def _closing(descriptor: int) -> Iterator[None]:
    try:
        yield
    finally:
        os.close(descriptor)


def _unsafe(path: str, got: str) -> NoCluster:
    must = "must be a folder of mode 1777 with plain files"
    return NoCluster(f"folder of GPU locks {path}", must, got, f"Remove it, or set {LOCKS} for all users.")
