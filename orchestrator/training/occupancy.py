"""How much of the time the slots of an engine are busy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Occupancy:
    """Adds up slot-seconds from the first trial on.

    Attributes:
        slots: K.
        busy: slot-seconds in which a trial was trained, evaluated or saved, alone or with its neighbours.
        passed: seconds in all; what was spent compiling is in neither.
    """

    slots: int
    busy: float = 0.0
    passed: float = 0.0

    def note(self, served: int, seconds: float) -> None:
        """Note that so many slots were served, or waited if none was, for so long."""
        self.busy += served * seconds
        self.passed += seconds

    @property
    def share(self) -> float:
        """Return the share of slot-seconds that were busy."""
        return self.busy / (self.slots * self.passed) if self.passed else 0.0
