"""Console of rich that escapes control characters; apart from `output`, which is imported without rich."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import rich.console
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment

from orchestrator.output import escaped


class Console(rich.console.Console):
    """A console that escapes control characters, except those of rich's own styles."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print objects, and escape some characters that rich would drop."""
        shown = (escaped(one) if isinstance(one, str) else one for one in objects)
        super().print(*shown, **{"emoji": False, **options})  # rich would draw the name :train: as a train

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments of the output, including cells of tables and lines of displays."""
        for segment in super().render(renderable, options):
            text, style, control = segment
            yield segment if control else Segment(escaped(text), style)
