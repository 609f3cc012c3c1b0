"""Write the picture of the terminal: `python -m docs.pictures`.

The pictures of the page are written by its tests in Chromium:
`SWEEP_SCREENSHOTS=docs/screenshots pytest tests/end_to_end/test_page.py`.
"""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

from orchestrator import Progress
from orchestrator.cli.frame import frame
from orchestrator.client.answers import DetailedStatus, LiveSweep, MlflowRun, QueuedSweep, RunningTrial

FILE = Path(__file__).parent / "screenshots" / "terminal.svg"
WIDTH, HEIGHT = 80, 24
SWEEP = "listops-laptop-67dc7144"


def shown() -> LiveSweep:
    """Return the sweep of the picture."""
    progress = Progress({"RUNNING": 4, "COMPLETE": 9, "PRUNED": 12}, 32, f"{SWEEP}-17", 0.4973, 190.0)
    status = DetailedStatus(
        id=SWEEP,
        state="RUNNING",
        reason=None,
        task="listops",
        profile="laptop",
        driver=None,
        trials=progress.states,
        waiting_for_mlflow=0,
        created_at=0.0,
        finished_at=None,
        owner="ada",
        priority_class="normal",
        metric="val/accuracy",
        best_value=0.4973,
        best_trial=f"{SWEEP}-17",
        direction="maximize",
        progress=progress,
        failures={},
        text="",
        weight=1.0,
        paused=False,
        submission="STARTED",
        starts=1,
        revision="",
        mlflow=MlflowRun("listops", None, None),
        exit_code=None,
    )
    running = (
        RunningTrial("21", 2_200, 2_400, 0.4911, 31.2, 6.4),
        RunningTrial("22", 1_600, 2_400, 0.4702, 30.8, 26.0),
        RunningTrial("23", 1_000, 2_400, 0.4405, 31.0, 45.2),
        RunningTrial("24", 200, 2_400, 0.2216, None, None),
    )
    best = (0.2013, 0.3125, 0.3125, 0.4018, 0.4407, 0.4407, 0.4805, 0.4973, 0.4973)
    return LiveSweep(
        status, running, best, QueuedSweep(SWEEP, "ada", "normal", "pool", None, 4, 4, 11, None, None)
    )


def main() -> None:
    """Write the picture."""
    console = Console(width=WIDTH, record=True, file=io.StringIO(), force_terminal=True)
    for line in frame(shown(), WIDTH, HEIGHT):
        console.print(line, soft_wrap=True)
    # Without the fonts that rich would load from another site.
    picture = console.export_svg(title="sweep status --watch", theme=MONOKAI)
    FILE.write_text(re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL))


if __name__ == "__main__":
    main()
