"""Sizes of the compiled programs that advance several slots of an engine at once."""

from __future__ import annotations

from collections import defaultdict


class Buckets:
    """The sizes of the programs that advance several slots at once, and their costs so far.

    Compiling a program takes seconds. A larger program that is already compiled is therefore used until the
    time that it has wasted on empty slots exceeds the time of compilation. The total cost is at most twice
    that of the best choice (the ski rental problem).

    Args:
        slots: K of the engine.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._compile_seconds: dict[int, float] = {}
        self._wasted: defaultdict[int, float] = defaultdict(float)

    def choose(self, active: int, most: int) -> int:
        """Return the size of the program for a number of slots.

        Args:
            active: Slots with steps left, at least 1.
            most: Largest number of slots that fit into the memory of the device.
        """
        fitting = bucket(active, self._slots)
        ready = [size for size in self._compile_seconds if fitting <= size <= bucket(most, self._slots)]
        stand_in = min(ready, default=fitting)
        return stand_in if self._wasted[fitting] <= self._compile_seconds.get(stand_in, 0.0) else fitting

    def ran(self, size: int, active: int, seconds: float, compiling: float) -> None:
        """Record a call.

        Args:
            size: Size of its program.
            active: Slots with a trial that it served.
            seconds: Time of the call in seconds.
            compiling: Time of compilation in seconds, 0.0 if the program was compiled before.
        """
        self._compile_seconds.setdefault(size, compiling)
        fitting = bucket(active, self._slots)
        self._wasted[fitting] += seconds * (1 - fitting / size)


def bucket(active: int, slots: int) -> int:
    """Return the smallest size of a program that serves `active` of K slots: a power of two, or all K."""
    return min(slots, 1 << (active - 1).bit_length())


def halved(size: int) -> int:
    """Return the largest power of two below a size."""
    return 1 << ((size - 1).bit_length() - 1)
