"""How the wall clock of a machine is set: it keeps waits exact although somebody sets the clock meanwhile."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from orchestrator.system import System


@dataclass(frozen=True)
class ClockSetting:
    """A wall clock, by a clock of the same machine that is never set.

    Two readings of the wall clock are compared after both are converted to one setting.

    Attributes:
        boot: identifies the boot of the machine.
        booted_at: what the wall clock, as it is set, would have shown when the machine booted, in seconds
            since the epoch.
    """

    boot: str
    booted_at: float

    @classmethod
    def here(cls, system: System = System()) -> ClockSetting:
        """Return how the clock of this machine is set now."""
        return cls(system.boot(), system.time() - system.since_boot())

    @classmethod
    def read(cls, text: str) -> ClockSetting:
        """Return the setting that `write` wrote."""
        return cls(**json.loads(text))

    def write(self) -> str:
        """Return one line of JSON."""
        return json.dumps(asdict(self))

    def now(self, system: System = System()) -> float:
        """Return seconds since the epoch, by this setting even if the clock has been set since."""
        return self.booted_at + system.since_boot()

    def converted(self, at: float, to: ClockSetting) -> float:
        """Return what a clock with another setting would have shown at a time, in seconds since the epoch.

        Nothing connects the clocks of two machines, or of two boots: between them the time stays as it is.

        Args:
            at: time by this setting.
            to: the other setting.
        """
        return at - self.booted_at + to.booted_at if self.boot == to.boot else at
