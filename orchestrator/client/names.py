"""Names of sweeps and trials: beginnings of IDs, and numbers in the newest sweep."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from difflib import get_close_matches

from orchestrator.errors import BadInput, NotFound
from orchestrator.ledger.sweeps.records import sweep_id_of, trial_label


def one_of(ids: Collection[str], name: str) -> str:
    """Return the ID that equals `name`, or else the only one that begins with it.

    >>> one_of(["listops-0a1b2c3d", "copying-0badcafe"], "list")
    'listops-0a1b2c3d'

    Raises:
        BadInput: The name is empty, or several IDs begin with it.
        NotFound: No ID begins with it.
    """
    must = "must be the ID of one sweep, or its beginning"
    if not name:  # an unset variable in a script, with which every ID begins
        raise BadInput("SWEEP", must, "an empty name", "`list` shows all sweeps.")
    if name in ids:
        return name
    matching = [sweep_id for sweep_id in ids if sweep_id.startswith(name)]
    if len(matching) == 1:
        return matching[0]
    close = matching or get_close_matches(name, ids, n=3, cutoff=0.4)
    kind = BadInput if matching else NotFound
    remedy = f"Did you mean {' or '.join(close)}?" if close else "`list` shows all sweeps."
    raise kind(name[:80], must, f"{len(matching)} sweeps", remedy)


def check_word(where: str, word: str, words: Sequence[str]) -> None:
    """Check that a word is one of a closed list, before a client sends it.

    Raises:
        BadInput: The word is not in the list.
    """
    if word not in words:
        raise BadInput(where, f"must be one of {', '.join(words)}", word, "Choose one of them.")


def no_sweeps() -> NotFound:
    """Return the error of a request for the newest sweep of a ledger that lists none."""
    must, remedy = "has no sweeps that are not archived", "Submit a sweep first, or name an archived one."
    return NotFound("the ledger", must, "", remedy)


def no_trial(key: str, keys: Sequence[str] = ()) -> NotFound:
    """Return the error of an unknown trial; `keys` are the keys of its sweep, if known."""
    remedy = (
        f"The keys of its sweep are {keys[0]} to {keys[-1]}."
        if keys
        else "A key is SWEEP-NUMBER; a number is one of the newest sweep. `list` shows all sweeps."
    )
    return NotFound(key[:80] or "TRIAL", "is not the key of a trial", "", remedy)


def key_named(ids: Sequence[str], archived: Collection[str], name: str) -> str:
    """Return the key of a trial, which may not exist, from a shortened name.

    >>> key_named(["copying-0badcafe", "listops-0a1b2c3d"], ["listops-0a1b2c3d"], "c2")
    'copying-0badcafe-c2'

    Args:
        ids: IDs of the sweeps, the newest last.
        archived: IDs of those that are archived or deleted, none of which counts as the newest.
        name: Key in which the ID of the sweep may be shortened, or number in the newest sweep, with a `c`
            before the number of a confirmation.
    """
    label, before = trial_label(name), sweep_id_of(name)
    if not re.fullmatch(r"c?[0-9]+", label) or before in ids:
        return name
    newest = next((sweep_id for sweep_id in reversed(ids) if sweep_id not in archived), None)
    if not (ids if before else newest):
        return name
    return f"{one_of(ids, before) if before else newest}-{label}"
