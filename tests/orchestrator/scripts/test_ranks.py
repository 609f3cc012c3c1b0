"""An attempt on two nodes, both of them on this machine: real processes, without Ray."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from orchestrator.assignment import Assignment, Outcome
from orchestrator.scripts.ranks import RankProcess, RankReport
from orchestrator.scripts.script_attempt import OwnProcess
from orchestrator.scripts.script_process import Rank
from tests.attempts import assignment
from trainables.trial import Clock, ScriptSettings

SCRIPT = """
import json, os, time
import sweep_client
trial = sweep_client.trial()
rank = int(os.environ["NODE_RANK"])
total = json.loads((trial.resume / "state.json").read_text()) if trial.resume else 0
for step in range(trial.start + 1, trial.steps + 1):
    total += step
    print("rank", rank, "at", step)
    if step == DIES_AT:
        if rank == 1:
            raise RuntimeError("no peer")
        time.sleep(60)  # as a collective operation waits for its peers
    (trial.folder / "state.json").write_text(json.dumps(total))
    if not trial.report(step, {"val/loss": total}, checkpoint=trial.folder):
        break
"""


class SecondNode:
    """The second node of an attempt, in this process.

    Args:
        assigned: Assignment of the attempt.
        leaves: Whether the node is about to be taken away.
    """

    def __init__(self, assigned: Assignment, leaves: bool) -> None:
        self._assigned, self._leaves = assigned, leaves

    def start(self) -> Rank:
        self._process = RankProcess(self._assigned, Rank(1, "127.0.0.1", 4000))
        self._ended = False
        return Rank(0, "127.0.0.1", 4000)

    def look(self) -> list[RankReport]:
        if self._ended:
            return []
        report = self._process.look()
        self._ended = report.end is not None
        return [report._replace(must_leave=self._leaves)]

    def answer(self, step: int, *, go_on: bool) -> None:
        self._process.answer(step, go_on=go_on)

    def terminate(self) -> None:
        self._process.terminate()

    def close(self) -> None:
        self._process.close()


class Runs:
    """Attempts of one trial on two nodes.

    Attributes:
        folder: of the script, the checkpoints and the log.
        leaves: Whether the second node of the next attempt is about to be taken away.
    """

    leaves = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.own = OwnProcess(lambda: SecondNode(self._assigned, self.leaves))

    def assigned(self, dies_at: int = 0, before: Outcome | None = None) -> Assignment:
        """Return an assignment of the script, resumed after an outcome if one is given."""
        (self.folder / "train.py").write_text(textwrap.dedent(SCRIPT).replace("DIES_AT", str(dies_at)))
        settings = ScriptSettings(
            None, (sys.executable, "train.py"), False, str(self.folder), {}, Clock(3, 1), 7, nodes=2
        )
        self._assigned = replace(
            assignment(self.folder, 0),
            settings=settings,
            checkpoints=str(self.folder / "kept"),
            log=str(self.folder / "trial.log"),
            store=None,
            resume=before.checkpoint if before else None,
        )
        return self._assigned

    def all(self, assigned: Assignment) -> list[Outcome]:
        """Return every outcome of an attempt, and end it."""
        outcomes = [self.own.advance(assigned)]
        while not outcomes[-1].done:
            outcomes.append(self.own.advance(assigned))
        self.own.release()
        return outcomes


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    started = Runs(tmp_path)
    yield started
    started.own.release()
    left = [one for one in psutil.process_iter(["cwd"]) if one.info["cwd"] == str(tmp_path)]
    assert not left, "nothing outlives an attempt, on any node"


def test_the_first_node_reports_and_all_get_its_answer(runs: Runs) -> None:
    outcomes = runs.all(runs.assigned())
    assert [(outcome.step, outcome.metrics["val/loss"]) for outcome in outcomes] == [(1, 1), (2, 3), (3, 6)]
    log = (runs.folder / "trial.log").read_text()
    assert "attempt 1: rank 0 at 3" in log
    assert "attempt 1: node 1: rank 1 at 2" in log


@pytest.mark.slow
def test_a_node_that_is_taken_away_interrupts_all_and_its_worker_begins_no_other_attempt(runs: Runs) -> None:
    runs.leaves = True
    *_, interrupted = runs.all(runs.assigned(dies_at=3))
    assert interrupted.interrupted
    assert runs.own.loses_node, "its placement group contains the node"
    runs.leaves = False
    *_, last = runs.all(runs.assigned(before=interrupted))
    assert (last.step, last.metrics["val/loss"]) == (3, 6)
    assert not runs.own.loses_node


@pytest.mark.slow
def test_the_failure_of_one_node_ends_all_and_the_attempt_resumes_on_all(runs: Runs) -> None:
    first, failed = runs.all(runs.assigned(dies_at=2))
    assert (failed.failure, failed.done) == ("error", True)
    assert "on node 1, exit code 1: RuntimeError: no peer" in str(failed.message)
    rest = runs.all(runs.assigned(before=first))
    assert [(outcome.step, outcome.metrics["val/loss"]) for outcome in rest] == [(2, 3), (3, 6)]
    log = (runs.folder / "trial.log").read_text()
    assert log.count("node 1: rank 1 at 1") == 1, "it resumed there, too"
