"""An attempt on several nodes: the function or command runs on each of them; that of node 0 reports."""

from __future__ import annotations

import tempfile
import threading
import time
from collections import deque
from pathlib import Path
from typing import NamedTuple, Protocol

from orchestrator.assignment import Assignment, SavedCheckpoint
from orchestrator.scripts.script_process import (
    GRACE,
    AttemptFolder,
    End,
    Rank,
    ScriptProcess,
    with_access,
    write_answer,
)
from orchestrator.scripts.supervisor import remove
from orchestrator.storage import store
from orchestrator.training import process
from trainables import checkpoint
from trainables.trial import ScriptSettings

LOOK_SECONDS = 1.0
"""Longest time of `RankProcess.look`."""

POLL_SECONDS = 0.05
"""Interval at which `RankProcess.look` checks the output and the end of its script."""


class RankReport(NamedTuple):
    """Output and end of the script on another node, since the last look.

    Attributes:
        number: Rank of the node.
        lines: Lines of its output since the last look.
        end: End of the script, or None.
        must_leave: Whether the node is about to be reclaimed.
    """

    number: int
    lines: tuple[str, ...]
    end: End | None
    must_leave: bool


class OtherNodes(Protocol):
    """The scripts of an attempt on nodes 1 and higher, as the attempt on node 0 uses them."""

    def start(self) -> Rank:
        """Start the script on every other node; return the rank of node 0."""

    def look(self) -> list[RankReport]:
        """Return the new reports of the other nodes, without waiting.

        Raises:
            LostRank: A process has died that runs a script, or its node.
        """

    def answer(self, step: int, *, go_on: bool) -> None:
        """Write the answer to the report of a step on every other node."""

    def terminate(self) -> None:
        """Send SIGTERM to every other script."""

    def close(self) -> None:
        """End every other script and its descendants."""


class RankProcess:
    """The script of an attempt on one of the other nodes. `look` is called in a thread of its own.

    Args:
        assignment: Assignment of the attempt.
        rank: Rank of this node.
    """

    def __init__(self, assignment: Assignment, rank: Rank) -> None:
        assert isinstance(assignment.settings, ScriptSettings)
        self._rank, self._printed, self._lock = rank, deque[str](), threading.Lock()
        self._folder = tempfile.mkdtemp(prefix="sweep-trial-")
        self._place = AttemptFolder(Path(self._folder).resolve())
        try:
            resumed = unpack(assignment, assignment.resume, self._place)
            self._process = ScriptProcess(
                assignment.settings,
                self._place,
                assignment.attempt_id,
                resumed,
                self._print,
                with_access(assignment.tracking),
                assignment.account,
                rank,
            )
        except BaseException:
            remove(self._folder)
            raise

    def look(self) -> RankReport:
        """Return a report as soon as there is something new, or else after `LOOK_SECONDS`."""
        until = time.monotonic() + LOOK_SECONDS
        while True:
            end, must_leave = self._process.end, process.terminating()
            with self._lock:
                lines = tuple(self._printed)
                self._printed.clear()
            if lines or end is not None or must_leave or time.monotonic() > until:
                return RankReport(self._rank.number, lines, end, must_leave)
            time.sleep(POLL_SECONDS)

    def answer(self, step: int, *, go_on: bool) -> None:
        """Write the answer to the report of a step, which the script on node 0 has made."""
        write_answer(self._place, step, go_on=go_on)

    def terminate(self) -> None:
        """Send SIGTERM to the script."""
        self._process.terminate()

    def close(self) -> None:
        """End the script and its descendants, and remove its files."""
        if self._process.end is None:
            self._process.terminate()
            until = time.monotonic() + 2 * GRACE
            while self._process.end is None and time.monotonic() < until:
                time.sleep(POLL_SECONDS)
        self._process.close()
        remove(self._folder)

    def _print(self, lines: str) -> None:
        with self._lock:
            self._printed.extend(lines.split("\n"))


def unpack(assignment: Assignment, resume: SavedCheckpoint | None, place: AttemptFolder) -> int:
    """Write the files of a checkpoint for a script; return its step, or 0 if it cannot be resumed."""
    if resume is None:
        return 0
    facts = store.extract(Path(resume.path), assignment.store, resume.digest, place.resume)
    # The step is not compared, because a report without a checkpoint keeps an earlier one.
    checkpoint.check_trial(Path(resume.path), facts, assignment.trial_key)
    return int(facts["step"]) if facts["resumable"] else 0
