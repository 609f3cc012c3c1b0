"""Find what a person names by the beginning of its id."""

from __future__ import annotations

from difflib import get_close_matches

from orchestrator.errors import BadInput
from orchestrator.ledger.keys import sweep_id_of
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.records import SweepRecord, TrialRecord


def sweep_named(ledger: Ledger, name: str) -> SweepRecord:
    """Return the one sweep whose id is `name`, or begins with it.

    Raises:
        BadInput: if none does, or more than one.
    """
    sweeps = {record.id: record for record in ledger.sweeps()}
    if name in sweeps:
        return sweeps[name]
    beginning = [record for key, record in sweeps.items() if key.startswith(name)]
    if len(beginning) == 1:
        return beginning[0]
    near = [record.id for record in beginning] or get_close_matches(name, sweeps, n=3, cutoff=0.4)
    raise BadInput(
        name,
        "must be one sweep's id, or the beginning of one id",
        f"{len(beginning)} sweeps",
        f"Known: {', '.join(near)}." if near else "`list` shows the sweeps that there are.",
    )


def trial_named(ledger: Ledger, key: str) -> TrialRecord:
    """Return the trial of that key.

    Raises:
        BadInput: if there is none.
    """
    try:
        return ledger.trial(key)
    except KeyError:
        known = [trial.key for trial in ledger.trials(sweep_id_of(key))]
        there = (
            f"There are {known[0]} to {known[-1]}." if known else "It is SWEEP-NUMBER; `list` shows sweeps."
        )
        raise BadInput(key, "must be a trial's key", "no such trial", there) from None
