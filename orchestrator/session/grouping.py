"""Which of the proposed trials is launched next, so that few programs are compiled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence


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
