"""Names of sweeps and trials as people write them, such as beginnings of IDs."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from difflib import get_close_matches

from orchestrator.errors import BadInput
from orchestrator.ledger.sweeps.records import sweep_id_of, trial_label


def one_of(ids: Collection[str], name: str) -> str:
    """Return the id that is `name`, or else the only one that begins with it.

    Raises:
        BadInput: the name is empty, no id matches, or several do.
    """
    if not name:  # of an unset variable in a script: every id begins with it
        must = "must be the id of one sweep, or its beginning"
        raise BadInput("SWEEP", must, "an empty name", "`list` shows all sweeps.")
    if name in ids:
        return name
    matching = [sweep_id for sweep_id in ids if sweep_id.startswith(name)]
    if len(matching) == 1:
        return matching[0]
    close = matching or get_close_matches(name, ids, n=3, cutoff=0.4)
    raise BadInput(
        name[:80],
        "must be the id of one sweep, or its beginning",
        f"{len(matching)} sweeps",
        f"Did you mean {' or '.join(close)}?" if close else "`list` shows all sweeps.",
    )


def key_named(ids: Sequence[str], name: str) -> str:
    """Return the key of the trial that a person names, which need not exist.

    Args:
        ids: IDs of the sweeps, the newest last.
        name: Key of a trial, whose sweep may be shortened to its beginning, or label of a trial of the newest
            sweep: its number, with a `c` before that of a confirmation.
    """
    label, before = trial_label(name), sweep_id_of(name)
    if not re.fullmatch(r"c?[0-9]+", label) or before in ids or not ids:
        return name
    return f"{one_of(ids, before) if before else ids[-1]}-{label}"
