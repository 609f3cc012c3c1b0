"""Runs a command and ends with it: `python -I supervisor.py`, with a line of JSON on standard input.

    {"command": [...],
     "folder": "...",         working folder
     "files": "...",          folder of the attempt
     "memory": ...,           limit in bytes, or null
     "reserved": ...,         bytes that a process may reserve above that limit
     "seconds": ...,          limit, or null
     "disk": ...,             limit in bytes, or null
     "look": ...,             seconds between two checks of the disk
     "grace": ...,            seconds between SIGTERM and SIGKILL
     "groups": ...,           whether to use control groups
     "output": ...,           descriptor of the command's standard output
     "account": ...}          {"uid": ..., "gid": ..., "groups": [...]} as which the command runs, or null

A further line `term` sends SIGTERM to the command, which is killed after `grace` seconds. The end of the
input, which comes when the other process dies, kills the command at once and removes the folder `files`. At
the end, standard output has one line:

    {"code": ...,             exit code, or minus the number of a signal
     "limit": ...}            exceeded limit "memory", "minutes" or "disk", or null

The command's standard error is that of this process.

On Linux the keeper adopts all descendants of the command, daemons included, and kills them as well. If it may
create control groups, the kernel limits the memory and the number of processes; otherwise the keeper checks
them twice a second. It imports only the standard library.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

POLL_SECONDS = 0.05
"""Poll interval for the end of the command where the kernel has no pidfd."""

LIMIT_SECONDS = 0.5
"""Interval of the checks of the memory of all processes, or of kills by the kernel."""

LONGEST_END = 10.0
"""Time after which the keeper gives up killing a process."""

MOST_PROCESSES = 4096
"""Maximum number of processes and threads in a control group."""

GROUP = "sweep-"
"""Prefix of the names of control groups, before the id of the keeper."""

IGNORED = (signal.SIGTERM, signal.SIGINT)
"""Signals that a keeper ignores, because it must not end before its command."""

CANNOT_BEGIN = 126
"""Exit code of a command that cannot enter its folder, as in a shell."""

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 36, 38


def set_option(option: int, value: int) -> bool:
    """Set an option of this process, which only Linux has; return True if it is set."""
    return sys.platform == "linux" and bool(ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0)


# ------------------------------------------------------------------ control groups


@dataclass(frozen=True)
class Group:
    """A control group (cgroup, version 1 or 2) of the command; `folder` is where the kernel shows it."""

    folder: Path

    @property
    def bounds_memory(self) -> bool:
        """Return True if the kernel counts the group's memory."""
        return any((self.folder / name).exists() for name in ("memory.max", "memory.limit_in_bytes"))

    def limit(self, memory: int | None) -> None:
        """Set the limits; the kernel kills a process of the group that exceeds the memory."""
        self._set("pids.max", MOST_PROCESSES)
        if memory is not None:
            self._set("memory.max", memory)
            self._set("memory.swap.max", 0)
            self._set("memory.oom.group", 1)
            self._set("memory.limit_in_bytes", memory)
            self._set("memory.memsw.limit_in_bytes", memory)

    def enter(self) -> None:
        """Move this process into the group."""
        self._set("cgroup.procs", 0)

    def has(self, process: int) -> bool:
        """Return True if a process is in the group."""
        with contextlib.suppress(OSError):
            return str(process) in (self.folder / "cgroup.procs").read_text().split()
        return False

    def has_killed(self) -> bool:
        """Return True if the kernel has killed a process of the group for its memory."""
        for name in ("memory.events", "memory.oom_control"):
            with contextlib.suppress(OSError):
                counts = dict(line.split() for line in (self.folder / name).read_text().splitlines())
                return int(counts.get("oom_kill", 0)) > 0
        return False

    def kill(self) -> None:
        """Forbid new processes in the group, and kill all of them where the kernel supports it."""
        self._set("pids.max", 0)
        self._set("cgroup.kill", 1)

    def remove(self) -> None:
        """Remove the group, which must be empty."""
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    def _set(self, name: str, value: int) -> None:
        """Write a file of the group, if it exists and this process may write it."""
        if (self.folder / name).exists():
            with contextlib.suppress(OSError):
                (self.folder / name).write_text(str(value))


def own_groups() -> Iterator[Path]:
    """Yield the folders of this process's control groups that count memory or processes, or can kill."""
    of_process = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    paths = {kind: path for _, kinds, path in of_process for kind in kinds.split(",")}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, system = line.partition(" - ")
        root, mounted = fields.split()[3:5]
        kinds = {"": None} if system.startswith("cgroup2 ") else dict.fromkeys(system.split()[-1].split(","))
        kind = next((kind for kind in ("", "memory", "pids") if kind in kinds and kind in paths), None)
        if system.startswith("cgroup") and kind is not None and paths[kind].startswith(root):
            yield Path(mounted, paths[kind].removeprefix(root).lstrip("/"))


def created_groups(keeper: int, memory: int | None) -> list[Group]:
    """Create control groups below those of this process; none where this is forbidden.

    Args:
        keeper: Id of this process.
        memory: Memory limit of the command in bytes, or None.
    """
    groups = []
    with contextlib.suppress(OSError, ValueError):
        for own in own_groups():
            _remove_left(own)
            group = Group(own / f"{GROUP}{keeper}")
            with contextlib.suppress(OSError):
                group.folder.mkdir()
                group.limit(memory)
                groups.append(group)
    return groups


def _remove_left(own: Path) -> None:
    """Remove the empty groups of killed keepers."""
    for folder in own.glob(f"{GROUP}[0-9]*"):
        if not Path("/proc", folder.name.removeprefix(GROUP)).exists():
            Group(folder).remove()


# ------------------------------------------------------------------ the command


def begin_command(groups: Sequence[Group], task: Mapping[str, Any]) -> None:
    """Set the limits of this process before `exec`, and let it die with its supervisor."""
    for sign in IGNORED:
        signal.signal(sign, signal.SIG_DFL)  # child processes inherit ignored signals
    for group in groups:
        group.enter()
    if task["disk"]:
        _lower(resource.RLIMIT_FSIZE, task["disk"])
    if task["memory"] and not any(group.bounds_memory for group in groups):
        _lower(resource.RLIMIT_DATA, task["memory"] + task["reserved"])
    if task["account"]:
        become(task["account"])
    set_option(_PR_SET_PDEATHSIG, signal.SIGKILL)  # after the change of the user, which resets it
    enter_folder(task["folder"])


def become(account: Mapping[str, Any]) -> None:
    """Change this process to an account permanently (no new privileges)."""
    os.setgroups(account["groups"])
    os.setresgid(account["gid"], account["gid"], account["gid"])
    os.setresuid(account["uid"], account["uid"], account["uid"])
    if not set_option(_PR_SET_NO_NEW_PRIVS, 1):
        os.write(2, b"no_new_privs cannot be set, without which the account could gain rights\n")
        os._exit(CANNOT_BEGIN)


def enter_folder(folder: str) -> None:
    """Change the working folder, or exit."""
    try:
        os.chdir(folder)
    except OSError as error:
        os.write(2, f"{folder}: {error.strerror}\n".encode())
        os._exit(CANNOT_BEGIN)


def _lower(limit: int, value: int) -> None:
    hard = resource.getrlimit(limit)[1]
    lowest = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(limit, (lowest, lowest))


def descendants() -> list[int]:
    """Return the ids of all descendants of this process; none without /proc."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            parent = int((folder / "stat").read_bytes().rpartition(b")")[2].split()[1])
            children.setdefault(parent, []).append(int(folder.name))
    below, ids = list(children.get(os.getpid(), [])), []
    while below:
        one = below.pop()
        ids.append(one)
        below += children.get(one, [])
    return ids


def held(ids: Sequence[int]) -> int:
    """Return the memory of processes in bytes; shared pages count once."""
    return sum(_share_of(one) for one in ids)


def _share_of(one: int) -> int:
    """Return the proportional set size (PSS) of a process, or its resident set size (RSS) as a fallback."""
    try:
        for line in Path(f"/proc/{one}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    except (OSError, ValueError):
        pass  # it has ended, or this process may not read it
    with contextlib.suppress(OSError, IndexError):
        return int(Path(f"/proc/{one}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def used(folder: str, most: int) -> int:
    """Return the disk usage of files in bytes; counting stops above `most`.

    A folder that is too deep for a path counts as more than `most`.
    """
    total, waiting = 0, [folder]
    while waiting and total <= most:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        with contextlib.suppress(OSError):
                            total += entry.stat(follow_symlinks=False).st_blocks * 512
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return most + 1
    return total


def remove(folder: str) -> None:
    """Remove a folder recursively, at any depth."""
    with contextlib.suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)
    if os.path.lexists(folder):
        subprocess.run(["rm", "-rf", "--", folder], stderr=subprocess.DEVNULL, check=False)


def nameless(ids: Sequence[int], folder: str) -> int:
    """Return the disk usage of deleted files that processes keep open, in bytes."""
    device, files = Path(folder).stat().st_dev, {}
    for one in ids:
        for opened in Path(f"/proc/{one}/fd").glob("*"):
            with contextlib.suppress(OSError):
                file = opened.stat()
                if file.st_nlink == 0 and file.st_dev == device:
                    files[file.st_ino] = file.st_blocks * 512
    return sum(files.values())


def kill(process: subprocess.Popen[bytes], groups: Sequence[Group]) -> None:
    """Kill the command's process group and every descendant outside it.

    All are stopped with SIGSTOP first, so that none can fork meanwhile.
    """
    for group in groups:
        group.kill()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    for sign in (signal.SIGSTOP, signal.SIGKILL):
        for one in descendants():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(one, sign)


def end_all(process: subprocess.Popen[bytes], groups: Sequence[Group]) -> None:
    """Kill the command and its descendants, and wait for their end."""
    until = time.monotonic() + LONGEST_END
    while time.monotonic() < until:
        kill(process, groups)
        try:
            while True:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    break
        except ChildProcessError:
            return
        time.sleep(0.02)


class LimitWatch:
    """Watches the limits of the command."""

    def __init__(self, task: Mapping[str, Any], groups: Sequence[Group]) -> None:
        self._task, self._groups = task, groups
        self._bounded = any(group.bounds_memory for group in groups)
        self._began = self._memory_at = time.monotonic()
        self._disk_at = self._began + task["look"]

    def seconds_to_next_look(self) -> float | None:
        """Return the seconds until the next check, or None without limits."""
        now, times = time.monotonic(), []
        if self._task["seconds"]:
            times.append(self._began + self._task["seconds"])
        if self._task["memory"]:
            times.append(now + LIMIT_SECONDS if self._bounded else self._memory_at)
        if self._task["disk"]:
            times.append(self._disk_at)
        return max(0.0, min(times) - now) if times else None

    def exceeded(self, *, ended: bool = False) -> str | None:
        """Return the name of an exceeded limit, or None.

        After the command has `ended`, only a kill by the kernel is checked.
        """
        if self._task["memory"] and any(group.has_killed() for group in self._groups):
            return "memory"
        if ended:
            return None
        now = time.monotonic()
        if self._task["seconds"] and now - self._began > self._task["seconds"]:
            return "minutes"
        if self._task["memory"] and not self._bounded and now > self._memory_at:
            self._memory_at = now + LIMIT_SECONDS
            if held(descendants()) > self._task["memory"]:
                return "memory"
        if self._task["disk"] and now > self._disk_at:
            files, most = self._task["files"], self._task["disk"]
            full = used(files, most) + nameless(descendants(), files) > most
            # Counting many files takes long; limit it to a tenth of the time.
            self._disk_at = time.monotonic() + max(self._task["look"], 10 * (time.monotonic() - now))
            if full:
                return "disk"
        return None


def run(task: Mapping[str, Any]) -> dict[str, Any]:
    """Run the command; return the document to print at its end."""
    set_option(_PR_SET_CHILD_SUBREAPER, 1)
    groups = created_groups(os.getpid(), task["memory"]) if task["groups"] else []
    try:
        process = subprocess.Popen(
            task["command"],
            stdin=subprocess.DEVNULL,
            stdout=task["output"],
            start_new_session=True,
            preexec_fn=lambda: begin_command(groups, task),
        )
        return _kept(process, task, groups)
    finally:
        for group in groups:
            group.remove()


def _kept(
    process: subprocess.Popen[bytes], task: Mapping[str, Any], groups: Sequence[Group]
) -> dict[str, Any]:
    """Wait until the command ends, is terminated, or exceeds a limit; then kill its descendants."""
    entered = [group for group in groups if group.has(process.pid)]
    limits = LimitWatch(task, entered)
    ends = _descriptors_of(process)
    leave_by: float | None = None
    limit: str | None = None
    while (code := process.poll()) is None and limit is None:
        waits = [limits.seconds_to_next_look(), None if ends else POLL_SECONDS]
        waits += [] if leave_by is None else [max(0.0, leave_by - time.monotonic())]
        wait = min((seconds for seconds in waits if seconds is not None), default=None)
        if 0 in select.select([0, *ends], [], [], wait)[0]:
            if not os.read(0, 4096):
                end_all(process, groups)
                remove(task["files"])
                break
            if leave_by is None:
                os.killpg(process.pid, signal.SIGTERM)
                leave_by = time.monotonic() + task["grace"]
        if leave_by is not None and time.monotonic() > leave_by:
            break
        limit = limits.exceeded()
    limit = limit or limits.exceeded(ended=True)
    end_all(process, groups)
    return {"code": -int(signal.SIGKILL) if code is None else code, "limit": limit}


def _descriptors_of(process: subprocess.Popen[bytes]) -> list[int]:
    """Return a descriptor that is readable after the end of a process; none if the kernel has no pidfd."""
    with contextlib.suppress(AttributeError, OSError):
        return [os.pidfd_open(process.pid)]
    return []


def main() -> None:
    """Read the task, run it, print its end.

    This process detaches from the worker: Ray kills the children of a dead worker, and without a supervisor
    the descendants of the command would live on.
    """
    if os.fork():
        os._exit(0)
    os.setsid()
    with contextlib.suppress(OSError):  # with autogroups, each session has its own priority
        Path("/proc/self/autogroup").write_text(str(os.getpriority(os.PRIO_PROCESS, 0)))
    for sign in IGNORED:
        signal.signal(sign, signal.SIG_IGN)
    text = b""
    while not text.endswith(b"\n"):
        more = os.read(0, 1)
        if not more:
            return
        text += more
    try:
        answer = run(json.loads(text))
    except OSError as error:
        answer = {"code": None, "limit": None, "error": str(error)}
    os.write(1, (json.dumps(answer) + "\n").encode())


if __name__ == "__main__":
    main()
