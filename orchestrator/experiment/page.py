"""The pages of an experiment, Markdown and HTML: functions of its results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from orchestrator.experiment.results import ArmResult, Results
from orchestrator.experiment.verdict import OUTCOMES
from orchestrator.report import html, words
from orchestrator.report.figures import style
from orchestrator.report.html import Cell, Lead, ReportSection, Table, TableRow
from orchestrator.report.markdown import bullets, plain, table


@dataclass(frozen=True)
class Part:
    """One part of a page: a heading, a sentence, and a table of texts."""

    title: str
    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def markdown(results: Results) -> str:
    """Return the page as Markdown, without figures."""
    lines = [
        f"# {plain(results.title)}",
        f"{plain(results.source)}. {plain(results.claim)}",
        bullets(summary(results)),
    ]
    for part in parts(results):
        lines += [f"## {part.title}", plain(part.caption), table(part.header, part.rows)]
    return "\n\n".join(line for line in lines if line) + "\n"


def page(results: Results) -> str:
    """Return the page as HTML that opens offline, with the curves of every seed."""
    first, *others = [_section(part) for part in parts(results)]
    lead = Lead(
        answer=f"{results.source}. {results.claim}",
        cards=tuple((outcome, str(results.count(outcome))) for outcome in OUTCOMES),
        caveats=(),
        notes=tuple(summary(results)),
    )
    return html.page(results.title, lead, [first, *_curves(results), *others])


def summary(results: Results) -> list[str]:
    """Return the sentences at the top of a page."""
    counts = ", ".join(f"{results.count(outcome)} {outcome}" for outcome in OUTCOMES)
    size = f"profile {results.profile}" if results.profile else "the size of the file"
    better = "higher" if results.maximize else "lower"
    of = "" if results.reduction == "value" else f" ({results.reduction})"
    return [
        f"Published figures and claims: {counts}.",
        f"Compared: {results.metric}{of}, {better} is better; {results.seeds_asked} seeds; {size}.",
        f"Spent: {spent(results)}.",
    ]


def spent(results: Results) -> str:
    """Return trials, wall time and core hours of all arms."""
    trials = sum(arm.trials for arm in results.arms)
    wall = words.duration(sum(arm.wall_seconds for arm in results.arms))
    cores = sum(arm.core_seconds for arm in results.arms) / 3600
    return f"{trials} trials, {wall} of wall time, {cores:.2f} core hours"


def parts(results: Results) -> Iterator[Part]:
    """Yield the tables of the page, the answer first."""
    yield Part(
        "Beside the paper",
        "The mean over seeds and its interval of 95 % confidence, and what the paper prints.",
        ("arm", "about", "measured", "seeds", "published", "verdict"),
        tuple(_beside(results, arm) for arm in results.arms),
    )
    if any(arm.cell for arm in results.arms):
        yield _as_printed(results)
    if results.claims:
        yield Part(
            "Claims",
            "Welch's test over seeds; intervals and p values are corrected for the number of claims.",
            ("claim", "difference", "verdict"),
            tuple(_claims(results)),
        )
    yield Part(
        "Values by seed",
        "A value is what arms are compared by.",
        ("arm", "seed", "value", "trial"),
        tuple(
            (arm.name, str(seed.seed), words.setting(seed.value), seed.trial or "–")
            for arm in results.arms
            for seed in arm.seeds
        ),
    )
    yield Part(
        "What was spent",
        "Every trial that was begun counts, confirmations included.",
        ("arm", "sweep", "state", "trials", "wall time", "core hours"),
        tuple(_spending(arm) for arm in results.arms),
    )
    yield Part(
        "Data",
        "The digest is the SHA-256 of all examples.",
        ("arm", "source", "digest", "specification"),
        tuple(
            (arm.name, arm.data or "–", arm.data_digest[:16] or "–", arm.digest[:16] or "–")
            for arm in results.arms
        ),
    )
    yield Part("Run it again", "What the results depend on.", ("", "value"), tuple(_reproduction(results)))


def measured(arm: ArmResult) -> str:
    """Return the mean over the seeds of an arm with their standard deviation, or a dash."""
    if not arm.values:
        return "–"
    mean = words.setting(float(np.mean(arm.values)))
    if len(arm.values) == 1:
        return mean
    return f"{mean} ± {words.setting(float(np.std(arm.values, ddof=1)))}"


def _beside(results: Results, arm: ArmResult) -> tuple[str, ...]:
    published = "–"
    if arm.published is not None:
        note = f" [{arm.published.note}]" if arm.published.note else ""
        own = arm.published.source not in {"", results.source}
        published = arm.published.phrase + (f" ({arm.published.source})" if own else "") + note
    verdict = results.verdicts[arm.name].phrase
    return arm.name, arm.about, measured(arm), str(len(arm.values)), published, verdict


def _as_printed(results: Results) -> Part:
    """Return the table in the layout of the paper's: measured, then published."""
    cells = {arm.cell: arm for arm in results.arms if arm.cell}
    rows, columns = (list(dict.fromkeys(cell[axis] for cell in cells)) for axis in (0, 1))

    def shown(row: str, column: str) -> str:
        arm = cells.get((row, column))
        if arm is None:
            return "–"
        return f"{measured(arm)} / {arm.published.phrase if arm.published else '–'}"

    lines = tuple((row, *(shown(row, column) for column in columns)) for row in rows)
    return Part("As the paper prints it", "Measured, then published.", ("", *columns), lines)


def _claims(results: Results) -> Iterator[tuple[str, ...]]:
    for claim, difference, verdict in zip(results.claims, results.differences, results.orders, strict=True):
        phrase = "–" if difference is None else difference.phrase
        yield f"{claim.better} is better than {claim.than}", phrase, verdict.phrase


def _spending(arm: ArmResult) -> tuple[str, ...]:
    wall, cores = words.duration(arm.wall_seconds), f"{arm.core_seconds / 3600:.2f}"
    return arm.name, arm.sweep or "–", arm.state.lower(), str(arm.trials), wall, cores


def _reproduction(results: Results) -> Iterator[tuple[str, str]]:
    profile = f" --profile {results.profile or 'full'}"
    yield (
        "command",
        f"python -m orchestrator.sweep experiment experiments/{results.name}.yaml{profile}",
    )
    yield "date", results.circumstances.date
    yield "commit", results.circumstances.commit
    yield "machine", results.circumstances.machine
    yield from ((f"version of {name}", value) for name, value in results.circumstances.versions.items())


def _section(part: Part) -> ReportSection:
    rows = (TableRow(tuple(Cell(text, text) for text in row)) for row in part.rows)
    return ReportSection(part.title, part.caption, (Table(part.header, tuple(rows), texts=True),))


def _curves(results: Results) -> list[ReportSection]:
    """Return a section with a figure for each column of the paper's table, or one figure for all arms."""
    groups: dict[str, list[ArmResult]] = {}
    for arm in results.arms:
        if any(seed.steps for seed in arm.seeds):
            groups.setdefault(arm.cell[1] if arm.cell else "", []).append(arm)
    if not groups:
        return []
    name = results.metric.replace("test/", "val/")
    caption = f"{name} over the steps of training; one line a seed, one colour an arm."
    figures = tuple(curves(arms, name) for arms in groups.values())
    return [ReportSection("Curves by seed", caption, figures=figures)]


def curves(arms: Sequence[ArmResult], metric: str) -> go.Figure:
    """Draw the curve of every seed of some arms."""
    figure = go.Figure()
    for arm, colour in zip(arms, style.shades(len(arms)), strict=True):
        for index, seed in enumerate(arm.seeds):
            figure.add_scatter(
                x=list(seed.steps),
                y=list(seed.curve),
                name=arm.name,
                legendgroup=arm.name,
                showlegend=index == 0,
                mode="lines",
                line={"color": colour, "width": 2},
                hovertext=f"{arm.name}, seed {seed.seed}",
                hoverinfo="text+x+y",
            )
    return style.framed(figure, x="step", y=metric)
