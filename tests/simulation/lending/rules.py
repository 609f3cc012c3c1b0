"""Invariants of warm workers, checked at each step of a run and at its end."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from orchestrator.assignment import Outcome
from orchestrator.schedule.warm_pool import Borrowed, WarmPool
from tests.simulation.kernel import Kernel, Process
from tests.simulation.lending.actors import Call, Server
from tests.simulation.violation import Violation

KEPT_SECONDS = 12.0
"""Time after which a worker is free that its driver has returned: longer than every delay and pause."""

ENDS = ("claim", "return_unused", "stop", "run")
"""Calls after whose answers a loan may be over."""


@dataclass
class Owner:
    """A process of a driver.

    Attributes:
        process: Process of the driver.
        pools: Pools that it has opened and not closed.
    """

    process: Process
    pools: list[WarmPool] = field(default_factory=list)

    def has(self, name: str) -> list[Borrowed]:
        """Return the loans by which it has a worker, as it believes."""
        return [
            one
            for pool in self.pools
            for one in (*pool._idle, *pool._lent.values())  # the belief itself, which nothing publishes
            if one.name == name
        ]


@dataclass(frozen=True)
class Execution:
    """An interval that a process has trained.

    Attributes:
        attempt: Attempt whose state was trained, as the trainable knows it.
        step: Step after it.
        server: The process.
    """

    attempt: str
    step: int
    server: Server


class Rules:
    """The invariants.

    Args:
        kernel: Kernel of the simulation.

    Attributes:
        owners: Every process of a driver so far.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.owners: list[Owner] = []
        self._executions: list[Execution] = []
        self._on_its_way: Counter[str] = Counter()
        self._callers: dict[str, Process] = {}
        self._lost: set[str] = set()  # loans of which a message was lost
        self._withdrawn: set[str] = set()
        self._servers: defaultdict[str, list[Server]] = defaultdict(list)  # by attempt

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        self._kernel.trace(text)

    def fail(self, invariant: str, text: str) -> None:
        """End the run: something does not hold."""
        self._kernel.fail(Violation(invariant, text))

    # ---------------------------------------------------------------- who has a worker

    def _believers(self, name: str) -> list[tuple[Owner, Borrowed]]:
        return [(one, loan) for one in self.owners if one.process.alive for loan in one.has(name)]

    def check_use(self, server: Server, loan: str, what: str) -> None:
        """Check that nobody has a worker by another loan than that for which it works."""
        for owner, borrowed in self._believers(server.name):
            if borrowed.loan != loan:
                text = f"{server.process.name} {what} for {loan[:6]}, {owner.process.name} has it"
                self.fail("borrower", f"{text} by {borrowed.loan[:6]}")

    def sent(self, server: Server, call: Call) -> None:
        """Check that at most one driver has a worker which is called."""
        loan = call.loan
        self._on_its_way[loan] += 1
        self._callers.setdefault(loan, call.caller)
        if server.name and len(believers := self._believers(server.name)) > 1:
            names = ", ".join(f"{owner.process.name} by {one.loan[:6]}" for owner, one in believers)
            self.fail("borrower", f"{server.process.name} is had by {names}")

    def kill(self, server: Server) -> Callable[[], None]:
        """Check that the running process kills only what it has, now and when the kill takes effect."""
        sender = self._kernel.task.process
        before = self._believers(server.name) if server.name else []
        for owner, _ in before:
            if owner.process is not sender:
                self.fail("killed", f"{server.process.name}, which {owner.process.name} has")
        loans = {borrowed.loan for _, borrowed in before}

        def check() -> None:
            for owner, borrowed in self._believers(server.name) if server.name else ():
                if borrowed.loan not in loans:
                    whose = f"{owner.process.name} has by {borrowed.loan[:6]}"
                    self.fail("killed", f"{sender.name} kills {server.process.name}, which {whose}")

        return check

    # ---------------------------------------------------------------- what becomes of a loan

    def claimed(self, server: Server, loan: str, *, was_free: bool, granted: bool) -> None:
        """Check that a loan begins if the worker is free, and only then."""
        if granted and loan in self._withdrawn:
            self.fail("kept", f"{server.process.name} begins {loan[:6]} after its withdrawal")
        if was_free and not granted and loan not in self._withdrawn:
            self.fail("kept", f"{server.process.name} is free and refuses {loan[:6]}")

    def withdrawn(self, loan: str) -> None:
        """Note that a driver has withdrawn or returned a loan."""
        self._withdrawn.add(loan)

    def settled(self, server: Server, call: Call) -> None:
        """Check, some time after a loan may be over, that the worker is free, or else its driver has it."""
        loan = call.loan
        self._on_its_way[loan] -= 1
        if call.is_lost:
            self._lost.add(loan)
        if server.name and call.method in ENDS and loan not in self._lost:
            self._kernel.after(KEPT_SECONDS, partial(self._check_kept, server, loan))

    def _check_kept(self, server: Server, loan: str) -> None:
        if server.is_doomed or not server.process.alive or self._on_its_way[loan] or loan in self._lost:
            return
        present = server.instance is not None and server.instance._lending.present
        if present != loan or not self._callers[loan].alive:
            return
        if not any(borrowed.loan == loan for _, borrowed in self._believers(server.name)):
            self.fail("kept", f"{server.process.name} is lent by {loan[:6]}, which no driver has")

    def check_end(self, servers: list[Server]) -> None:
        """Check that every worker ends once nobody uses it."""
        for server in servers:
            if server.process.alive:
                self.fail("kept", f"{server.process.name} has not ended")

    # ---------------------------------------------------------------- what is reported

    def execute(self, server: Server, attempt: str, step: int) -> float:
        """Note an interval that is trained; return what the report shows of it."""
        self._executions.append(Execution(attempt, step, server))
        return float(len(self._executions) - 1)

    def check_report(self, attempt: str, outcome: Outcome, step: int) -> None:
        """Check that a report which a driver accepts is the next one of the attempt.

        Args:
            attempt: Attempt for which the driver takes it.
            outcome: The report.
            step: Step of the report before, or 0.
        """
        execution = self._executions[int(outcome.metrics["execution"])]
        self.note(f"takes report {outcome.step} of {attempt}")
        if execution.attempt != attempt:
            self.fail("foreign", f"a report of {execution.attempt} is taken for one of {attempt}")
        elif (execution.step, outcome.step) != (step + 1, step + 1):
            self.fail("reports", f"report {outcome.step} of {attempt} follows report {step}")

    def check_failure(self, attempt: str, cause: str, message: str, *, is_charged: bool) -> None:
        """Check that an attempt is charged to its trial only if a fault has struck its process."""
        self.note(f"loses {attempt}: {cause}, {message}")
        if is_charged and not (cause == "worker lost" and self._was_struck(attempt)):
            self.fail("charges", f"{attempt} is charged for: {cause}, {message}")

    def _was_struck(self, attempt: str) -> bool:
        return any(server.end == "by a fault" for server in self._servers[attempt])

    # ---------------------------------------------------------------- which process has an attempt

    def assign(self, server: Server, attempt: str) -> None:
        """Note that a process is asked to train an attempt."""
        self._servers[attempt].append(server)


def attempt_of(call: Call) -> str | None:
    """Return the attempt that a call assigns to a process, or None."""
    for value in (*call.arguments, *call.named.values()):
        if isinstance(value, dict) and "assignment" in value:
            return str(value["assignment"]["attempt_id"])
    return None
