"""A sweep's share of the joined cluster: its driver claims it, obeys its limits and withdraws it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from orchestrator.errors import Busy
from orchestrator.ledger.pool.claims import Amounts, Claims
from orchestrator.ledger.sweeps.writer import SweepWriter
from orchestrator.schedule import ray_private
from orchestrator.schedule.engines import EnginePool, Engines
from orchestrator.schedule.placement import Placement
from orchestrator.schedule.resources import AvailableResources
from orchestrator.session.attempts import Running
from orchestrator.session.session import Session
from orchestrator.sharing import shedding
from orchestrator.sharing.pool_rows import RULES, UNIT, Place, PoolClaim, PoolNode, Rules
from orchestrator.sharing.shedding import SheddableTrial
from orchestrator.sharing.view import View

RENEW_SECONDS = 1.0
"""Time between two renewals of a claim."""


class ClusterShare:
    """Share of one sweep in the joined cluster: which attempts may start, and which are preempted.

    Nothing is written before the first attempt starts. While the ledger does not answer, nothing is started
    or preempted, and running attempts go on.

    Attributes:
        engines: Shared engines of the sweep, on at most the devices of its share.
        placement: Placement of the sweep's attempts.
        leaving: Ids of the attempts that end at their next report.
        overdue: Attempts of `leaving` that have not reported for `Rules.cut_after`, with the time since which
            they must save and end at once, by id.
        waiting: Reason why the sweep may run nothing now, or None.
    """

    def __init__(
        self,
        writer: SweepWriter,
        resources: AvailableResources,
        claim: PoolClaim,
        *,
        rules: Rules = RULES,
        clock: Callable[[], float] = time.monotonic,
        pool: EnginePool = EnginePool(),
    ) -> None:
        self._writer, self._resources, self._claim = writer, resources, claim
        self._rules, self._clock = rules, clock
        self._claims: Claims | None = None
        self._view: View | None = None
        self._renewed_at = float("-inf")
        self._refused: int | None = None
        self._restart = 0.0
        self._waited_since: float | None = None
        self._taken_back_at = float("-inf")
        self._engine_nodes: Mapping[str, str] = {}
        self.engines, self.placement = Engines(self._devices, pool), Placement()
        self._chosen_at: dict[str, float] = {}
        self.leaving: Collection[str] = frozenset()
        self.overdue: Mapping[str, float] = {}
        self.waiting: str | None = None

    def may_start(self, session: Session) -> bool:
        """Return True if one more attempt may start now, and count it as the sweep's.

        A refusal holds until an attempt of the sweep ends or the claim is renewed.
        """
        if self.was_refused(session):
            return False
        started = self._joined().start(self._nodes(), self._amounts(session))
        if started is None:
            self._refused = len(session.running)
            return False
        view, granted = started
        self._set_view(view)
        self._refused = None if granted else len(session.running)
        return granted

    def was_refused(self, session: Session) -> bool:
        """Return True if the last attempt was refused and no attempt has ended since."""
        return self._refused == len(session.running)

    def has_idle(self, session: Session) -> bool:
        """Return True if the sweep keeps idle workers that other sweeps can use."""
        is_shared = self._view is not None and len(self._view.claims) > 1
        return is_shared and (self.was_refused(session) or session.startable <= len(session.running))

    def renew(self, session: Session) -> None:
        """Renew the claim if it is due, and choose the attempts to preempt.

        The driver of the oldest sweep also requests the resources of all sweeps from the autoscaler.
        """
        if self._clock() - self._renewed_at < RENEW_SECONDS:
            return
        self._renewed_at = self._clock()
        compiled = [
            run.last.metrics.get("seconds/compile", 0.0) for run in session.running.values() if run.last
        ]
        self._restart = max([self._restart, *compiled])
        view = self._joined().renew(self._nodes(), self._amounts(session))
        if view is None:
            self._shed(frozenset())
            return
        self._set_view(view)
        sweep = self._claim.sweep
        if self._refused is not None and view.may_start(sweep):
            self._refused = None
        self._shed(self._chosen(session, view))
        self.waiting = view.why_waiting(sweep)
        if len(view.claims) > 1:
            self.engines.retire_idle()
        if view.oldest == sweep:
            self._resources.request(total(view))

    def look(self, controller: Any, session: Session) -> None:
        """Find the nodes of attempts, and withdraw those that wait under outdated reservations."""
        if len(self._resources.nodes()) < 2:
            return  # a single node needs no reservations

        def condemn(attempt_id: str) -> None:
            self._waited_since = self._waiting_since(session.running[attempt_id])
            self._taken_back_at = self._clock()
            session.condemn(attempt_id, "shared")

        started = {
            name: run.started_at for name, run in session.running.items() if run.started_at is not None
        }
        if max(started.values(), default=float("-inf")) > self._taken_back_at:
            self._waited_since = None
        self.placement.look(controller, started, session.running.keys())
        self.placement.take_back(controller, condemn)
        self._engine_nodes = self.engines.nodes()

    def withdraw(self) -> None:
        """Withdraw the claim; the last driver to do so also withdraws the request to the autoscaler."""
        with suppress(Busy):  # another driver of the sweep has renewed the claim already
            view = self._claims.withdraw() if self._claims is not None else None
            if view is not None and view.oldest is None:
                self._resources.request(Counter())

    def _set_view(self, view: View) -> None:
        self._view = view
        sweep = self._claim.sweep
        self.placement.closed = view.holding.closed_to(sweep)
        moves = view.holding.moves.get(sweep, {})
        self.engines.closing = frozenset(node for node, move in moves.items() if move.devices)

    def _shed(self, leaving: Collection[str]) -> None:
        """Replace the attempts to preempt; an attempt that is chosen again later gets its full time."""
        now = self._clock()
        self._chosen_at = {name: self._chosen_at.get(name, now) for name in leaving}
        cut_at = {name: chosen_at + self._rules.cut_after for name, chosen_at in self._chosen_at.items()}
        self.leaving = leaving
        self.overdue = {name: at for name, at in cut_at.items() if now >= at}

    def _joined(self) -> Claims:
        if self._claims is None:
            pool = ray_private.pool_id()
            writer = self._writer
            self._claims = Claims(writer.ledger, writer.token, pool, self._claim, self._rules)
        return self._claims

    def _devices(self) -> int:
        """Return the number of devices for the engines: all of them if no other sweep uses the pool."""
        if self._view is None or len(self._view.claims) == 1:
            return self._resources.devices()
        return self._view.uses[self._claim.sweep].devices // UNIT

    def _nodes(self) -> Sequence[PoolNode]:
        nodes = self._resources.nodes().items()
        return [
            PoolNode(name, round(node.cpus * UNIT), int(node.gpus) * UNIT) for name, node in sorted(nodes)
        ]

    def _amounts(self, session: Session) -> Amounts:
        running, now = session.running.values(), self._clock()
        waits = [now - self._waiting_since(run) for run in running if not run.started]
        trials, slots = len(running), self._claim.slots
        # Granted attempts that are not in an engine yet also need devices.
        bundles = max(len(self.engines.in_use), -(-trials // slots)) if slots else 0
        devices = bundles * self._claim.all_devices
        leaving = len(session.running.keys() & set(self.leaving))
        waited, places = max(waits, default=0.0), self._places(session)
        return Amounts(session.startable, trials, len(waits), devices, leaving, waited, places)

    def _places(self, session: Session) -> tuple[Place, ...]:
        """Return the known nodes of the attempts."""
        seconds, now = self._minimum_run(), self._clock()
        trials: Counter[str] = Counter()
        ready: Counter[str] = Counter()
        for name, nodes in self.placement.nodes.items():
            if (run := session.running.get(name)) is not None and run.started_at is not None:
                trials.update(nodes)
                if now - run.started_at >= seconds:
                    ready.update(nodes)
        bundles = trials if self._claim.slots == 1 else Counter(self._engine_nodes.values())
        gpus = self._claim.device
        names = sorted(trials.keys() | bundles.keys())
        return tuple(Place(node, trials[node], bundles[node] * gpus, ready[node]) for node in names)

    def _waiting_since(self, run: Running) -> float:
        """Return the start of an attempt's wait for its resources.

        An attempt that replaces a withdrawn one keeps the start of that wait, until an attempt has started.
        """
        return run.reported_at if self._waited_since is None else min(self._waited_since, run.reported_at)

    def _minimum_run(self) -> float:
        view, sweep = self._view, self._claim.sweep
        claim = view.claims[sweep] if view is not None and sweep in view.claims else self._claim
        return shedding.minimum_run(claim, self._restart, self._rules)

    def _chosen(self, session: Session, view: View) -> Collection[str]:
        """Return the attempts to preempt at their next report."""
        sweep, now = self._claim.sweep, self._clock()
        demand, moves = shedding.demands(view).get(sweep), view.holding.moves.get(sweep, {})
        if demand is None and not moves:
            return frozenset()
        started = [
            SheddableTrial(
                name, self.engines.engine_of(name), run.started_at, run.progressed_at, name in self.leaving
            )
            for name, run in session.running.items()
            if run.started_at is not None
        ]
        seconds = self._minimum_run()
        moved = shedding.moved(started, self.placement.nodes, self._engine_nodes, moves, now, seconds)
        if demand is None:
            return moved
        # Attempts that leave a reserved node also count towards the sweep's reduction.
        started = [replace(trial, leaving=trial.leaving or trial.key in moved) for trial in started]
        return moved | shedding.chosen(started, demand, now, seconds)


def total(view: View) -> Counter[tuple[float, float]]:
    """Return the number of attempts that all sweeps of a pool want, by processors and GPUs on one node."""
    wanted: Counter[tuple[float, float]] = Counter()
    for claim in view.claims.values():
        gpu = 1 / claim.slots if claim.slots > 1 else claim.device / UNIT
        wanted[claim.cpu / UNIT, gpu] += claim.want * claim.nodes
    return wanted
