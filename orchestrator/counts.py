"""How a number of things is written in a sentence."""

from __future__ import annotations


def counted(number: float, one: str, several: str | None = None) -> str:
    """Format a number of things: `1 slot`, `2 slots`, `1,000 slots`, `0.5 hours`.

    Args:
        number: of the things.
        one: what follows the number 1.
        several: what follows any other number; `one` with an s if None.
    """
    written = f"{number:,}" if isinstance(number, int) else f"{number:,g}"
    return f"{written} {one if number == 1 else several or f'{one}s'}"
