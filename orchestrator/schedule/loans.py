"""Loans: who has a process that outlives its sweep. Pure rules, without a clock and without Ray.

A driver borrows a process by a loan with an id of its own. Every message about the process names a loan, and
the process acts only for the present one. Messages may be late, lost or in another order: a claim that
arrives after its withdrawal is refused.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

WRONG_LOAN = "a call must be made for the present loan of the process"
"""Beginning of the text of a `WrongLoan`; Tune records an exception of a worker as text alone."""


class WrongLoan(RuntimeError):
    """Raised by a process for a call of a driver to which it is not lent.

    Args:
        called_for: What the call names.
        present: What it would have to name.
    """

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
        borrower: The driver, as `Holder.write` returns it.
        service: Service that has started the driver, in the same form, or ''; with it ends an idle process
            that has a GPU.
        environment: Environment that an engine sets, as `orchestrator.schedule.ray_private.handed` returns
            it; JAX and XLA read it when they are imported, with the first loan. A worker gets it with its
            work.
        slots: K of an engine; 1 for a worker.
        id: Id that no other loan has.
    """

    borrower: str
    service: str = ""
    environment: Mapping[str, str | None] = field(default_factory=dict, repr=False)
    slots: int = 1
    id: str = field(default_factory=lambda: uuid.uuid4().hex)


class Lending:
    """The loans of one process, one after the other; it starts with its first one.

    Args:
        loan: Id of the first loan.

    Attributes:
        present: Id of the present loan, or None.
        is_used: Whether the present loan is used by an attempt.
        is_leaving: Whether the process is about to end, and takes no further loan.
    """

    def __init__(self, loan: str) -> None:
        self.present: str | None = loan
        self.is_used, self.is_leaving = False, False
        self._withdrawn: set[str] = set()

    def claim(self, loan: str) -> bool:
        """Begin a loan unless there is one, it has been withdrawn, or the process is about to end.

        Returns:
            Whether it has begun.
        """
        if loan in self._withdrawn:
            self._withdrawn.discard(loan)
            return False
        if self.present is not None or self.is_leaving:
            return False
        self.present, self.is_used = loan, False
        return True

    def withdraw(self, loan: str) -> bool:
        """End a loan that is not used; one that has not begun yet never begins.

        Returns:
            Whether it was the present one, and has ended.
        """
        if self.present != loan:
            self._withdrawn.add(loan)
            return False
        if not self.is_used:
            self.present = None
        return not self.is_used

    def use(self, loan: str) -> None:
        """Note that an attempt uses the present loan.

        Raises:
            WrongLoan: It is another one.
        """
        self.check(loan)
        self.is_used = True

    def end(self, loan: str) -> None:
        """End the present loan.

        Raises:
            WrongLoan: It is another one.
        """
        self.check(loan)
        self.present, self.is_used = None, False

    def check(self, loan: str) -> None:
        """Check that a call is made for the present loan.

        Raises:
            WrongLoan: It is not.
        """
        if self.present is None or self.present != loan:
            raise WrongLoan(loan, self.present)

    def leave(self) -> bool:
        """Take no further loan, unless there is one now; return whether the process may end."""
        self.is_leaving = self.is_leaving or self.present is None
        return self.is_leaving
