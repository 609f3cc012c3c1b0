"""Which of the proposed trials is launched next, so that few programs are compiled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

from orchestrator.config.sweep_config import SweepConfig
from orchestrator.ledger.records import TrialRecord


def static(sweep: SweepConfig, trial: TrialRecord) -> Hashable:
    """Return the static choice of a trial: trials of one share a compiled program."""
    return sweep.settings(trial.params, trial.seed).static()


def several_programs(sweep: SweepConfig) -> bool:
    """Tell whether a search goes over static choices, each of which is a program of its own."""
    settings = sweep.settings(sweep.largest(), seed=0)
    free = {"seed", *settings.free(), *settings.model.ranges}
    return not {name.partition(".")[0] for name in sweep.search} <= free


def pick(proposed: Sequence[Hashable], running: Sequence[Hashable]) -> int:
    """Return the place of the static choice to launch next: what runs most, else what is proposed most.

    Args:
        proposed: static choices of the trials that could be launched, oldest first; at least one.
        running: static choices of the trials that run.
    """
    for choice, _ in Counter(running).most_common():
        if choice in proposed:
            return proposed.index(choice)
    most, _ = Counter(proposed).most_common(1)[0]
    return proposed.index(most)
