"""Runs a command and ends with it: `python -I keeper.py`, with a line of JSON on standard input.

    {"command": [...], "folder": "...", "files": "...", "memory": bytes or null, "seconds": seconds or null,
     "grace": seconds}

A further line `term` asks the command to leave, and ends it after `grace` seconds. The end of the input,
which comes when the process at its other end dies, ends it at once and removes the folder `files`, which that
process would have removed. At the end standard output has one line:
{"code": exit code or minus a signal, "limit": "memory" or "minutes" if one was exceeded}. The command's own
output goes to standard error.

On Linux the keeper adopts whatever the command leaves behind, daemons included, and ends that as well. It
imports the standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

POLL_SECONDS = 0.05
"""Seconds between two looks at the command."""

LIMIT_SECONDS = 0.5
"""Seconds between two looks at the memory of all processes."""

LONGEST_END = 10.0
"""Seconds after which a process that cannot be killed is left alone."""

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def set_option(option: int, value: int) -> None:
    """Set an option of this process that only Linux has."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def end_with_keeper() -> None:
    """Let this process, which is about to become the command, be killed if its keeper is."""
    set_option(_PR_SET_PDEATHSIG, signal.SIGKILL)


def descendants() -> list[int]:
    """Return the ids of all processes below this one; none where there is no /proc."""
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
    """Return the bytes of memory that processes hold together."""
    pages = 0
    for one in ids:
        with contextlib.suppress(OSError, IndexError):
            pages += int(Path(f"/proc/{one}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the command's process group and every descendant outside it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    for one in descendants():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(one, signal.SIGKILL)


def end_all(process: subprocess.Popen[bytes]) -> None:
    """Kill everything, and wait until it is gone."""
    until = time.monotonic() + LONGEST_END
    while time.monotonic() < until:
        kill(process)
        try:
            while True:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    break
        except ChildProcessError:
            return
        time.sleep(0.02)


def run(task: Mapping[str, Any]) -> dict[str, Any]:
    """Run the command; return what is printed at its end."""
    set_option(_PR_SET_CHILD_SUBREAPER, 1)
    process = subprocess.Popen(
        task["command"],
        cwd=task["folder"],
        stdin=subprocess.DEVNULL,
        stdout=2,
        start_new_session=True,
        preexec_fn=end_with_keeper,
    )
    began = looked_at = time.monotonic()
    leave_by: float | None = None
    limit: str | None = None
    while (code := process.poll()) is None and limit is None:
        if select.select([0], [], [], POLL_SECONDS)[0]:
            if not os.read(0, 4096):
                end_all(process)
                shutil.rmtree(task["files"], ignore_errors=True)
                break
            if leave_by is None:
                os.killpg(process.pid, signal.SIGTERM)
                leave_by = time.monotonic() + task["grace"]
        now = time.monotonic()
        if leave_by is not None and now > leave_by:
            break
        if task["seconds"] and now - began > task["seconds"]:
            limit = "minutes"
        if task["memory"] and now - looked_at > LIMIT_SECONDS:
            looked_at = now
            limit = limit or ("memory" if held(descendants()) > task["memory"] else None)
    end_all(process)
    return {"code": -int(signal.SIGKILL) if code is None else code, "limit": limit}


def main() -> None:
    """Read the task, run it, print its end.

    In a process that is no child of the one that started it: Ray kills the children of a worker that dies,
    and with its keeper dead a command's own children would live on.
    """
    if os.fork():
        os._exit(0)
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
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
