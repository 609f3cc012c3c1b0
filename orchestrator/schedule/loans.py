"""Loans of processes that outlive their sweep. Pure rules, without a clock and without Ray.

A driver borrows a process by a loan with a unique id. Every message to the process names a loan, and the
process acts only on the current one. Messages may be late, lost or reordered: a claim that arrives after its
withdrawal is refused.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

WRONG_LOAN = "a call must be made for the present loan of the process"
"""Beginning of the text of a `WrongLoan`; Tune records an exception of a worker as text alone."""


class WrongLoan(RuntimeError):
    """A driver called a process that is not lent to it: the call names another loan than the current one."""

    def __init__(self, called_for: str, present: str | None) -> None:
        # All arguments are kept, so that the exception can be pickled.
        super().__init__(called_for, present)
        self.called_for, self.present = called_for, present

    def __str__(self) -> str:
        return f"{WRONG_LOAN}, {self.present or 'none'} (got {self.called_for})"


@dataclass(frozen=True)
class Loan:
    """The use of a process by one driver.

    Attributes:
        borrower: Driver, as `Holder.write` returns it.
        service: Service that started the driver, in the same form, or ''; an idle process with a GPU ends
            with it.
        environment: Environment of an engine, as `orchestrator.schedule.ray_private.handed` returns it. JAX
            and XLA read it at their import, during the first loan. A worker gets its environment with its
            work.
        slots: Slots of an engine; 1 for a worker.
        id: Unique id.
    """

    borrower: str
    service: str = ""
    environment: Mapping[str, str | None] = field(default_factory=dict, repr=False)
    slots: int = 1
    id: str = field(default_factory=lambda: uuid.uuid4().hex)


class Lending:
    """The loans of one process, one after the other, beginning with the loan that starts it.

    Attributes:
        present: Id of the current loan, or None.
        is_used: Whether an attempt uses the current loan.
        is_leaving: Whether the process is about to exit and accepts no further loan.
    """

    def __init__(self, loan: str) -> None:
        self.present: str | None = loan
        self.is_used, self.is_leaving = False, False
        self._withdrawn: set[str] = set()

    def claim(self, loan: str) -> bool:
        """Begin a loan; return False if the process is lent or about to exit, or the loan was withdrawn."""
        if loan in self._withdrawn:
            self._withdrawn.discard(loan)
            return False
        if self.present is not None or self.is_leaving:
            return False
        self.present, self.is_used = loan, False
        return True

    def withdraw(self, loan: str) -> bool:
        """End an unused loan; one that has not begun never begins.

        Returns:
            Whether it was the current loan and has ended.
        """
        if self.present != loan:
            self._withdrawn.add(loan)
            return False
        if not self.is_used:
            self.present = None
        return not self.is_used

    def use(self, loan: str) -> None:
        """Mark the current loan as used by an attempt.

        Raises:
            WrongLoan: Another loan is current.
        """
        self.check(loan)
        self.is_used = True

    def end(self, loan: str) -> None:
        """End the current loan.

        Raises:
            WrongLoan: Another loan is current.
        """
        self.check(loan)
        self.present, self.is_used = None, False

    def check(self, loan: str) -> None:
        """Check that a call names the current loan.

        Raises:
            WrongLoan: Another loan is current.
        """
        if self.present is None or self.present != loan:
            raise WrongLoan(loan, self.present)

    def leave(self) -> bool:
        """Accept no further loan, unless one is current; return True if the process may exit."""
        self.is_leaving = self.is_leaving or self.present is None
        return self.is_leaving
