"""Path-X: Pathfinder on 128 x 128 pixels.

Source: Long Range Arena (Tay et al. 2021), section 2.2.6.
"""

from __future__ import annotations

from typing import ClassVar

from trainables.data.remote import Remote, long_range_arena
from trainables.tasks.pathfinder.task import Pathfinder

_FOLDER = "lra_release/lra_release/pathfinder128"


class PathX(Pathfinder):
    """Pathfinder's images at sixteen times the length."""

    name = "pathx"
    title = "Path-X: Pathfinder on 128 x 128 pixels (L = 16,384), 2 classes"
    side: ClassVar[int] = 128
    remotes: ClassVar[tuple[Remote, ...]] = (
        long_range_arena(_FOLDER, _FOLDER, unpacked=16_000_000_000, members=800_000),
    )
