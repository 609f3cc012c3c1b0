"""The actors that run an attempt on its other nodes, in the bundles of its placement group."""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping
from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from orchestrator.assignment import Assignment
from orchestrator.schedule import sent_code
from orchestrator.schedule.ray_private import adopt
from orchestrator.scripts.ranks import RankProcess, RankReport
from orchestrator.scripts.script_process import GRACE, Rank
from orchestrator.training import process
from orchestrator.training.attempt import LostRank

CLOSING_SECONDS = 3 * GRACE
"""Time limit for the scripts on other nodes to end."""


class WorkerOfRank:
    """Actor that runs the script of an attempt on one node.

    Its name begins as that of `Worker`, so that a drain of its machine finds its process.
    """

    def __init__(self, environment: Mapping[str, str | None]) -> None:
        adopt(environment)
        process.handle_sigterm()
        self._begun = threading.Event()
        self._process: RankProcess | None = None

    def start(self, config: dict[str, Any], rank: Rank) -> None:
        """Start the script.

        Args:
            config: Assignment, as `Assignment.to_config` returns it.
            rank: Rank of this node.
        """
        try:
            self._process = RankProcess(sent_code.on_this_machine(Assignment.from_config(config)), rank)
        finally:
            self._begun.set()

    @ray.method(concurrency_group="look")
    def look(self) -> RankReport | None:
        """Return a new report, after a moment; None if the script could not be started, see `start`."""
        self._begun.wait()
        return self._process.look() if self._process is not None else None

    def answer(self, step: int, go_on: bool) -> None:
        """Write the answer to a report."""
        if self._process is not None:
            self._process.answer(step, go_on=go_on)

    def terminate(self) -> None:
        """Send SIGTERM to the script."""
        if self._process is not None:
            self._process.terminate()

    def close(self) -> None:
        """End the script and its descendants."""
        if self._process is not None:
            self._process.close()


class RankActors:
    """The actors of the nodes 1 and higher of the attempt that this process, a worker of Tune, runs.

    Implements `orchestrator.scripts.ranks.OtherNodes`.

    Args:
        assignment: Assignment of the attempt, as the driver has sent it.
        environment: Environment of the workers, as `orchestrator.schedule.ray_private.handed` returns it.
    """

    def __init__(self, assignment: Assignment, environment: Mapping[str, str | None]) -> None:
        self._assignment, self._environment = assignment, environment
        self._actors: list[Any] = []
        self._starts: list[Any] = []
        self._looks: dict[Any, Any] = {}

    def start(self) -> Rank:
        """Start the script on every other node; return the rank of node 0."""
        assignment, group = self._assignment, ray.util.get_current_placement_group()
        assert group is not None, "Tune starts its workers in placement groups"
        first = Rank(0, ray.util.get_node_ip_address(), _free_port())
        for number in range(1, assignment.nodes):
            options: dict[str, Any] = {
                "num_cpus": assignment.cpu,
                "num_gpus": assignment.gpu,
                "concurrency_groups": {"look": 1},
                "scheduling_strategy": PlacementGroupSchedulingStrategy(group, number),
            }
            actor: Any = ray.remote(**options)(WorkerOfRank).remote(self._environment)
            self._actors.append(actor)
            rank = Rank(number, first.address, first.port)
            self._starts.append(actor.start.remote(assignment.to_config(), rank))
            self._looks[actor.look.remote()] = actor
        return first

    def look(self) -> list[RankReport]:
        """Return the new reports of the other nodes.

        Raises:
            LostRank: An actor or its node has died.
            Exception: A script could not be started.
        """
        ready = ray.wait(list(self._looks), num_returns=len(self._looks), timeout=0)[0] if self._looks else []
        seen = []
        try:
            for answer in ready:
                actor = self._looks.pop(answer)
                report = ray.get(answer)
                if report is None:
                    ray.get(self._starts)  # raises
                    continue
                seen.append(report)
                if report.end is None:
                    self._looks[actor.look.remote()] = actor
        except RayTaskError as error:
            raise error.cause from error
        except RayActorError as error:
            raise LostRank(str(error)) from error
        return seen

    def answer(self, step: int, *, go_on: bool) -> None:
        """Write the answer to the report of a step on every other node."""
        for actor in self._actors:
            actor.answer.remote(step, go_on)

    def terminate(self) -> None:
        """Send SIGTERM to every other script."""
        for actor in self._actors:
            actor.terminate.remote()

    def close(self) -> None:
        """End every other script, and the actors."""
        ends = [actor.close.remote() for actor in self._actors]
        if ends:
            ray.wait(ends, num_returns=len(ends), timeout=CLOSING_SECONDS)
        for actor in self._actors:
            ray.kill(actor)
        self._actors, self._looks = [], {}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
