"""An SVG figure of an experiment: every seed of every arm, beside published figures and chance.

An experiment on norms of hidden states has their curves below.

The text is written directly because Plotly needs a browser to write SVG.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from orchestrator.experiment.experiment_results import ArmResult, ExperimentResults
from orchestrator.report.figures import style
from orchestrator.report.statistics import median_interval

WIDTH, LEFT, RIGHT = 720, 210, 20
"""Widths in pixels: the picture, the names of the arms at the left, and the right margin."""

ROW, TOP, BOTTOM = 18, 26, 40
"""Heights in pixels: an arm, and the top and bottom margins."""

PANEL, INSET = 190, 45
"""Height of the curves of an arm in pixels, and their margin."""

LOGARITHMIC = 100.0
"""Ratio of the largest to the smallest value above which the axis is logarithmic."""

_TICKS = 5
_INK, _FAINT, _SEED, _STATED, _CHANCE = "#1f2328", "#d0d7de", "#0969da", "#c6efce", "#cf222e"


@dataclass(frozen=True)
class ValueAxis:
    """The horizontal axis, from `low` to `high` inclusive."""

    low: float
    high: float
    logarithmic: bool

    def at(self, value: float) -> float:
        """Return the position of a value in pixels, clipped to the axis."""
        low, high, value = self.low, self.high, min(max(value, self.low), self.high)
        if self.logarithmic:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return LEFT + (WIDTH - LEFT - RIGHT) * (value - low) / (high - low)

    def ticks(self) -> list[float]:
        """Return the values of the ticks."""
        space = np.geomspace if self.logarithmic else np.linspace
        return [float(value) for value in space(self.low, self.high, _TICKS)]


def svg(results: ExperimentResults) -> str:
    """Return the figure; '' if no arm has a value. Arms without a value have an empty row."""
    values = [value for arm in results.arms for value in arm.values if math.isfinite(value)]
    if not values:
        return ""
    axis = _axis(values, results.arms)
    drawn = [arm for arm in results.arms if arm.norms]
    floor = TOP + ROW * len(results.arms) + BOTTOM
    height = floor + PANEL * len(drawn)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}"'
        f' height="{height}" font-family="sans-serif" font-size="11" fill="{_INK}">',
        f"<title>{escape(results.title)}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{LEFT}" y="14">{escape(_legend(results))}</text>',
        *_scale(axis, floor, results),
    ]
    for index, arm in enumerate(results.arms):
        lines += _row(arm, TOP + ROW * index, axis)
    for index, arm in enumerate(drawn):
        lines += _panel(arm, ("head", "expected"), 0, floor + PANEL * index)
        lines += _panel(arm, ("state",), WIDTH / 2, floor + PANEL * index)
    return "\n".join([*lines, "</svg>"]) + "\n"


def _legend(results: ExperimentResults) -> str:
    named = "hypothesis" if any(arm.hypothesis for arm in results.arms) else "published"
    chance = "; red: chance" if any(arm.chance is not None for arm in results.arms) else ""
    return f"blue: seeds; line: median, and its interval or range; green: {named}{chance}"


def _axis(values: Sequence[float], arms: Sequence[ArmResult]) -> ValueAxis:
    marks = [arm.chance for arm in arms if arm.chance is not None]
    for arm in arms:
        if arm.published is not None:
            marks += [end for end in arm.published.range if math.isfinite(end)]
    low, high = min([*values, *marks]), max([*values, *marks])
    logarithmic = low > 0 and high / low > LOGARITHMIC
    if logarithmic:
        return ValueAxis(low / 1.5, high * 1.5, True)
    margin = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    return ValueAxis(low - margin, high + margin, False)


def _scale(axis: ValueAxis, height: int, results: ExperimentResults) -> Iterator[str]:
    floor = height - BOTTOM
    for tick in axis.ticks():
        x = axis.at(tick)
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{floor}" stroke="{_FAINT}"/>'
        yield f'<text x="{x:.1f}" y="{floor + 14}" text-anchor="middle">{tick:.3g}</text>'
    of = "" if results.reduction == "value" else f" ({results.reduction})"
    middle = (LEFT + WIDTH - RIGHT) / 2
    yield f'<text x="{middle:.1f}" y="{floor + 30}" text-anchor="middle">{escape(results.metric + of)}</text>'


def _row(arm: ArmResult, top: int, axis: ValueAxis) -> Iterator[str]:
    middle, name = top + ROW / 2, arm.name if len(arm.name) <= 34 else f"{arm.name[:33]}…"
    if arm.published is not None:
        low, high = (axis.at(end) for end in arm.published.range)
        width = max(high - low, 2.0)
        yield f'<rect x="{low:.1f}" y="{top + 2}" width="{width:.1f}" height="{ROW - 4}" fill="{_STATED}"/>'
    yield f'<text x="{LEFT - 8}" y="{middle + 4:.1f}" text-anchor="end">{escape(name)}</text>'
    if arm.chance is not None:
        x = axis.at(arm.chance)
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top + 2}" y2="{top + ROW - 2}" stroke="{_CHANCE}"/>'
    values = [value for value in arm.values if math.isfinite(value)]
    for value in values:
        yield f'<circle cx="{axis.at(value):.1f}" cy="{middle}" r="3" fill="{_SEED}" fill-opacity="0.5"/>'
    if values:
        low, high = (axis.at(end) for end in median_interval(values)[:2])
        yield f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{middle}" y2="{middle}" stroke="{_INK}"/>'
        x = axis.at(float(np.median(values)))
        yield (
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{middle - 5}" y2="{middle + 5}" stroke="{_INK}"'
            ' stroke-width="2"/>'
        )


def _panel(arm: ArmResult, names: Sequence[str], left: float, top: float) -> Iterator[str]:
    """Yield the norms of some names in half of the width; layers from dark to light, `expected` dashed."""
    curves = [curve for curve in arm.norms if curve.of in names]
    if not curves:
        return
    most = max(max(curve.values) for curve in curves) or 1.0
    last = max(curve.steps[-1] for curve in curves) or 1
    start, width = left + INSET, WIDTH / 2 - INSET - RIGHT
    floor, height = top + PANEL - INSET, PANEL - 1.5 * INSET
    colours = style.shades(1 + max(curve.layer for curve in curves))
    what = "the whole state" if names == ("state",) else "a head; dashed: closed form"
    yield f'<text x="{start}" y="{floor - height - 8}">{escape(arm.name)}: norm of {what}</text>'
    for tick in np.linspace(0, most, 3):
        y = floor - height * tick / most
        yield f'<line x1="{start}" x2="{start + width}" y1="{y:.1f}" y2="{y:.1f}" stroke="{_FAINT}"/>'
        yield f'<text x="{start - 4}" y="{y + 4:.1f}" text-anchor="end">{tick:.3g}</text>'
    for step in (0, last):
        x = start + width * step / last
        yield f'<text x="{x:.1f}" y="{floor + 14}" text-anchor="middle">{step}</text>'
    for curve in curves:
        points = " ".join(
            f"{start + width * step / last:.1f},{floor - height * value / most:.1f}"
            for step, value in zip(curve.steps, curve.values, strict=True)
        )
        dash = ' stroke-dasharray="4 3"' if curve.of == "expected" else ""
        yield f'<polyline points="{points}" fill="none" stroke="{colours[curve.layer]}"{dash}/>'
