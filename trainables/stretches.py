"""Records of the programs that trained a trial, which a checkpoint holds and an export repeats.

On a GPU, the last bits of the results depend on the number of slots that a program advances together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple, TypeAlias


class Stretch(NamedTuple):
    """Consecutive steps of a slot by the same program; equal stretches have bitwise equal results.

    Attributes:
        steps: Number of steps.
        slots: Number of slots K of the stack; 1 if the slot had a program of its own.
        size: Number of slots that the program advanced together.
    """

    steps: int
    slots: int
    size: int


Stretches: TypeAlias = list[list[Stretch]]
"""All steps of a trial, in lists that end where a report lacks the steps before it."""


def merged(stretches: Iterable[Stretch]) -> tuple[Stretch, ...]:
    """Return stretches with neighbours of the same program joined, because their division changes no bit."""
    runs = groupby(stretches, key=lambda stretch: stretch[1:])
    return tuple(Stretch(sum(stretch.steps for stretch in run), *program) for program, run in runs)


def continued(recorded: Sequence[Sequence[Sequence[int]]], *, left_out: bool = False) -> Stretches:
    """Return the record for an attempt that continues from a checkpoint.

    Args:
        recorded: Recorded by a checkpoint; an earlier version recorded nothing.
        left_out: Whether the next report leaves out steps since the last one.
    """
    stretches = [[Stretch(*fields) for fields in part] for part in recorded] or [[]]
    return [*stretches, []] if left_out else stretches
