"""How sweeps, trials and attempts are named: every key is built and parsed here.

<sweep>-<number>      a trial of the search
<sweep>-c<number>     a confirmation
<trial>.<number>      an attempt of a trial, and the Ray Tune trial that runs it
<sweep>@<ledger>      the channel of a sweep: what a driver publishes on a Ray, it publishes under this name
"""

from __future__ import annotations

from typing import NewType

from orchestrator.ledger.records import Role

Channel = NewType("Channel", str)
"""The name of a sweep among those of all ledgers; `channel_of` alone makes one."""


def trial_key(sweep_id: str, number: int, role: Role = "search") -> str:
    """Return the key of a sweep's `number`-th trial in its role."""
    mark = "c" if role == "confirmation" else ""
    return f"{sweep_id}-{mark}{number}"


def attempt_id(trial: str, number: int) -> str:
    """Return the id of a trial's `number`-th attempt, counted from 1."""
    return f"{trial}.{number}"


def trial_label(trial: str) -> str:
    """Return what names a trial within its sweep: its number, or `c` and its number for a confirmation."""
    return trial.rpartition("-")[2]


def channel_of(sweep_id: str, ledger_id: str) -> Channel:
    """Return the channel of a sweep: one file has the same sweep id in every ledger, and ledgers share a Ray.

    Args:
        sweep_id: of the sweep.
        ledger_id: random id of its ledger.
    """
    return Channel(f"{sweep_id}@{ledger_id}")


def sweep_id_of(trial: str) -> str:
    """Return the id of the sweep that a trial's key belongs to."""
    return trial.rpartition("-")[0]


def trial_key_of(attempt: str) -> str:
    """Return the key of the trial that an attempt's id belongs to."""
    return attempt.rpartition(".")[0]


def attempt_number(attempt: str) -> int:
    """Return the number of an attempt within its trial."""
    return int(attempt.rpartition(".")[2])


def is_confirmation(trial: str) -> bool:
    """Return True if a trial's key names a confirmation, False if it names a trial of the search."""
    return trial_label(trial).startswith("c")
