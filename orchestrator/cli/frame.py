"""The frame that a terminal shows of a running sweep, cut to its width and height."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from orchestrator.cli.printing import best_line, settings_line
from orchestrator.client.answers import LiveSweep, RunningTrial
from orchestrator.driver.log import ORDER
from orchestrator.errors import counted
from orchestrator.report.words import count, duration, numbers, time_left

_LEVELS = "▁▂▃▄▅▆▇█"
_SPARKS, _MOST_BAR, _LEAST_BAR = 20, 40, 4
_GAP = "  "
_HEADER = ("trial", "step", "value", "steps/s", "left")


def frame(sweep: LiveSweep, width: int, height: int) -> list[Text]:
    """Return the lines that show a sweep on a terminal.

    Args:
        sweep: Live view of the sweep.
        width: Columns of the terminal; no line is wider.
        height: Rows of the terminal; running trials that do not fit are counted.
    """
    above = [_headline(sweep), *_progress(sweep)]
    below = [*_waiting(sweep), *_failures(sweep)]
    room = max(1, height - len(above) - len(below) - 3)  # the header, the line of those left out, the cursor
    lines = [*above, *_running(sweep, width, room), *below]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines[: max(1, height - 1)]


def sparkline(values: Sequence[float], most: int = _SPARKS) -> str:
    """Return values as a line of bars, from the smallest value to the largest.

    Args:
        values: Values in order.
        most: Largest number of bars. Of more values, evenly spaced ones are shown, including the last one.
    """
    if len(values) > most:
        last = len(values) - 1
        values = [values[round(index * last / (most - 1))] for index in range(most)]
    if not values:
        return ""
    low, high = min(values), max(values)
    if low == high:
        return _LEVELS[0] * len(values)
    return "".join(_LEVELS[round((len(_LEVELS) - 1) * (value - low) / (high - low))] for value in values)


def bar(part: float, whole: float, width: int) -> Text:
    """Return a progress bar for a part of a whole, with a number of columns."""
    full = round(width * min(1.0, part / whole)) if whole > 0 else 0
    return Text.assemble(("━" * full, "green"), ("╌" * (width - full), "dim"))


def _headline(sweep: LiveSweep) -> Text:
    now = sweep.status
    state = "green" if now.state == "RUNNING" else "yellow"
    reason = f": {now.reason}" if now.reason else ""
    return Text.assemble((now.id, "bold"), " · ", (now.state, state), reason)


def _progress(sweep: LiveSweep) -> Iterator[Text]:
    now, progress = sweep.status, sweep.status.progress
    states = ", ".join(
        f"{progress.states[name]} {name.lower()}" for name in ORDER if progress.states.get(name)
    )
    yield Text.assemble(
        bar(progress.settled, progress.wanted, _SPARKS),
        f" {progress.settled}/{progress.wanted} trials" + (f" · {states}" if states else ""),
    )
    if now.time_left is not None:
        yield Text(time_left(now.time_left))
    if (best := best_line(now)) is not None:
        yield Text.assemble((best, "bold"), " ", (sparkline(sweep.best_values), "cyan"))
    if now.best is not None and now.best.params:
        yield Text(f"  {settings_line(now.best.params)}", style="dim")


def _running(sweep: LiveSweep, width: int, room: int) -> Iterator[Text]:
    """Yield a table of the running trials; the columns that do not fit are left out from the right."""
    shown = sweep.running[:room] if sweep.status.state in ("RUNNING", "PAUSED") else ()
    if not shown:
        return
    values = numbers([trial.value for trial in shown])
    rows = [_HEADER, *map(_cells, shown, values)]
    columns = [[cell.rjust(max(map(len, cells))) for cell in cells] for cells in zip(*rows, strict=True)]
    while len(columns) > 1 and _taken(columns) + len(_GAP) + _LEAST_BAR > width:
        columns.pop()
    bar_width = min(_MOST_BAR, max(0, width - _taken(columns) - len(_GAP)))
    header, *lines = zip(*columns, strict=True)
    yield Text(_GAP.join([header[0], " " * bar_width, *header[1:]]), style="dim")
    for trial, cells in zip(shown, lines, strict=True):
        after = "".join(_GAP + cell for cell in cells[1:])
        yield Text.assemble(cells[0], _GAP, bar(trial.step, trial.total_steps, bar_width), after)
    left_out = sweep.status.progress.states.get("RUNNING", 0) - len(shown)
    if left_out > 0:
        yield Text(f"… and {left_out} more running", style="dim")


def _taken(columns: Sequence[Sequence[str]]) -> int:
    return sum(len(cells[0]) for cells in columns) + len(_GAP) * (len(columns) - 1)


def _cells(trial: RunningTrial, value: str) -> tuple[str, ...]:
    speed = trial.steps_per_second
    return (
        trial.label,
        f"{count(trial.step)}/{count(trial.total_steps)}",
        value,
        "–" if speed is None else f"{speed:.3g}" if speed < 100 else count(speed),
        "–" if trial.seconds_left is None else duration(trial.seconds_left),
    )


def _waiting(sweep: LiveSweep) -> Iterator[Text]:
    """Yield a line for each part of the sweep that waits, with the reason."""
    place = sweep.place
    if place is None:
        return
    if place.why is not None and place.why != sweep.status.reason:
        position = f"waits (number {place.position} in the queue): " if place.position else ""
        yield Text(f"{position}{place.why}", style="yellow")
    elif 0 < place.running < place.wanted:
        held = f"its share is {place.share}" if place.running >= place.share else "they have not started yet"
        more = place.wanted - place.running
        yield Text(f"{more} more could run, but {held} (class {place.priority_class})", style="yellow")


def _failures(sweep: LiveSweep) -> Iterator[Text]:
    for cause, times in sweep.status.failures.items():
        yield Text(f"failed {counted(times, 'time')}: {cause}", style="red")
