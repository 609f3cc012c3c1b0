"""A function that an experiment file of the tests measures; it notes every call."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def doubled(*, number: int, notes: str, seed: int) -> dict[str, Any]:
    """Return twice a number plus a tenth of the seed, with a curve."""
    with Path(notes).open("a") as file:
        file.write(f"{number}/{seed}\n")
    return {"value": 2 * number + seed / 10, "steps": [0, 1], "values": [0.0, 1.0]}
