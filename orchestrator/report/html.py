"""The report of a sweep as one HTML file that opens offline.

This module decides the content of the page; `templates/page.html` lays it out and escapes every text.
"""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from importlib.resources import files
from itertools import combinations

import plotly.graph_objects as go
from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from orchestrator.config.trainable import resources_of
from orchestrator.ledger.sweeps.records import FINISHED_TRIAL, HARDWARE, SweepRecord
from orchestrator.ledger.sweeps.standing import cost, failure_groups
from orchestrator.report import words
from orchestrator.report.analysis import FEWEST, Importance
from orchestrator.report.answer import answer, baseline, caveats, context, findings
from orchestrator.report.comparison import SideBySide, tables
from orchestrator.report.figures import curves, landscape, style
from orchestrator.report.figures.landscape import Axis, axes, valued
from orchestrator.report.history import History
from orchestrator.report.leaderboard import columns
from orchestrator.report.summary import Chosen, Summary

_CONTOURED = 3
"""Number of hyperparameters, the most important ones, whose pairs get a contour figure."""

_LOGGED = 10
"""Number of causes of failures with the last lines of a log."""

_AXIS_WIDTH = 70
"""Width in pixels of the names and ticks of one of several axes."""

_FEWEST = 6
"""Minimum number of trials of a contour figure."""


@dataclass(frozen=True)
class Cell:
    """A cell of a table: its text, the value to sort by, and a tooltip."""

    text: str
    value: object
    hint: str = ""


@dataclass(frozen=True)
class TableRow:
    """A row of a table; `style` is a CSS class."""

    cells: tuple[Cell, ...]
    style: str = ""


@dataclass(frozen=True)
class Table:
    """A sortable table.

    Attributes:
        header: Headings of the columns.
        rows: Rows in their initial order.
        texts: Whether cells are texts to read instead of values to compare.
    """

    header: tuple[str, ...]
    rows: tuple[TableRow, ...]
    texts: bool = False


@dataclass(frozen=True)
class ReportSection:
    """A section of a page, which shows its attributes in this order.

    Attributes:
        is_beside: Whether figures stand beside each other if the page is wide enough.
        least_width: Width in pixels below which figures are scrolled sideways.
    """

    title: str
    caption: str = ""
    tables: tuple[Table, ...] = ()
    listing: str = ""
    figures: tuple[go.Figure, ...] = ()
    is_beside: bool = False
    least_width: int = 0


@dataclass(frozen=True)
class Lead:
    """The top of a page: the answer, key figures as (name, value), caveats and notes.

    Attributes:
        settings: Hyperparameters of the answer on one line; '' without an answer.
        at: Time of the page in seconds since the epoch, or None if it does not change.
    """

    answer: str
    cards: tuple[tuple[str, str], ...]
    caveats: tuple[str, ...]
    notes: tuple[str, ...]
    settings: str = ""
    at: float | None = None

    @property
    def written(self) -> str:
        """Time of the page in ISO 8601, in UTC."""
        assert self.at is not None, "only a page that changes has a time"
        return datetime.fromtimestamp(self.at, UTC).isoformat(timespec="seconds")


def report(
    history: History,
    summary: Summary,
    importances: Sequence[Importance],
    *,
    at: float | None = None,
    last_lines: Callable[[str], str] = lambda key: "",
) -> str:
    """Return the HTML of a sweep's report. Without a result, the causes of failures come first.

    Args:
        history: All rows of the sweep.
        summary: Its summary.
        importances: Importances of its hyperparameters.
        at: Time of the page in seconds since the epoch.
        last_lines: Function that returns the last lines of the log of a trial by its key, or ''.
    """
    failures = _failures(history, last_lines)
    sections = [
        *(failures if summary.chosen is None else []),
        _leaderboard(summary),
        *_front(summary),
        *_progress(history, summary),
        *_hidden_norms(history, summary),
        *_landscape(history, summary, importances),
        *_costs(history, summary),
        *(failures if summary.chosen is not None else []),
        _reproduction(history, summary),
    ]
    title = f"{summary.layer} on {summary.task}: {summary.sweep_id}"
    return page(title, _lead(history, summary, at), sections)


def hidden_norms_page(history: History, summary: Summary) -> str:
    """Return a page with the figures of the hidden norms, or '' without any."""
    sections = _hidden_norms(history, summary)
    return page(f"Hidden norms of {summary.sweep_id}", None, sections) if sections else ""


def comparison_page(sides: SideBySide) -> str:
    """Return a page with the tables of a comparison and its tuning curves."""
    curves_of = [curves.tuning_curves(compared) for compared in sides.tuning if compared.curves]
    sections = [
        ReportSection(
            section.title,
            caption=" ".join(section.sentences),
            tables=(
                Table(
                    tuple(section.header),
                    tuple(TableRow(tuple(Cell(text, text) for text in row)) for row in section.rows),
                    texts=True,
                ),
            ),
        )
        for section in tables(sides)
    ]
    if curves_of:
        sections.append(ReportSection("Tuning curves", figures=tuple(curves_of)))
    return page("Sweeps side by side", None, sections)


def replay_page(schedulers: Sequence[tuple[str, tuple[float, float], float]]) -> str:
    """Return a page with the figure `orchestrator.report.figures.curves.cost_against_regret`."""
    caption = "Of a scheduler whose cost has two ends, the bar shows both."
    figures = (curves.cost_against_regret(schedulers),)
    return page("Schedulers replayed", None, [ReportSection("Cost against regret", caption, figures=figures)])


def page(title: str, lead: Lead | None, sections: Sequence[ReportSection]) -> str:
    """Return a whole page, with a link to each section at its top."""
    return _template().render(
        title=title,
        lead=lead,
        sections=[
            {
                "anchor": re.sub(r"\W+", "-", section.title.lower()).strip("-"),
                "title": section.title,
                "caption": section.caption,
                "tables": section.tables,
                "listing": section.listing,
                "figures": [_embedded(figure) for figure in section.figures],
                "is_beside": section.is_beside,
                "least_width": section.least_width,
            }
            for section in sections
        ],
        script=_script(OWN_SCRIPT),
        plotly=_packed_plotly(),
        dark=json.dumps(style.DARK),
        digests=" ".join(f"'{_digest(_script(name))}'" for name in (PLOTLY_SCRIPT, OWN_SCRIPT)),
    )


OWN_SCRIPT = "page.js"
"""The script that draws figures and sorts tables."""

PLOTLY_SCRIPT = "plotly-cartesian.min.js"
"""The file of that name in version 4.1.1 of npm's package plotly.js-cartesian-dist-min.

It draws every kind of figure of a report at a third of the size of the whole plotly.js.
"""


@cache
def _script(name: str) -> str:
    """Return a script of the templates."""
    text = files("orchestrator.report").joinpath("templates", name).read_text(encoding="utf-8")
    # A browser normalises line ends before it computes the digest of a script.
    return re.sub("\r\n?", "\n", text)


@cache
def _packed_plotly() -> str:
    """Return plotly.js as gzip in base64, which the other script unpacks."""
    return b64encode(gzip.compress(_script(PLOTLY_SCRIPT).encode(), mtime=0)).decode()


@cache
def _digest(script: str) -> str:
    """Return the digest of a script for a Content-Security-Policy.

    Source: W3C, Content Security Policy Level 3, section 2.3.1, `hash-source`.
    """
    return f"sha256-{b64encode(sha256(script.encode()).digest()).decode()}"


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("orchestrator.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html")


def _embedded(figure: go.Figure) -> dict[str, object]:
    # HTML's escapes have no effect inside a script element, so the template does not escape this text. A
    # `</script>` in it would end the element, so `<` is written as a JSON escape.
    content = str(figure.to_json()).replace("<", "\\u003c")
    return {"height": figure.layout.height, "json": content}


def _lead(history: History, summary: Summary, at: float | None) -> Lead:
    chosen = summary.chosen
    ended = sum(summary.states.get(state, 0) for state in FINISHED_TRIAL)
    cards = [(f"trials ended, of {len(summary.rows)} begun", str(ended))]
    if chosen is not None:
        cards = [
            (f"{summary.metric} of trial {chosen.row.number}", words.number(chosen.row.value)),
            *(() if summary.runs_script else _tested(summary, chosen)),
            *((f"published {name}", words.number(value)) for name, value in summary.published.items()),
            *cards,
        ]
    attempts = (attempt for rows in history.attempts.values() for attempt in rows)
    spent = cost(history.sweep, attempts, summary.states, trials_limit=len(summary.rows), now=at)
    cards += [("elapsed", words.duration(spent.elapsed_seconds))] if spent.elapsed_seconds else []
    cards += [("compute", words.duration(spent.compute_seconds))] if spent.compute_seconds else []
    cards += [("GPU hours", words.brief(spent.gpu_hours))] if spent.gpu_hours else []
    params = {} if chosen is None else chosen.row.params
    return Lead(
        answer=answer(summary).replace("**", ""),
        cards=tuple((name, value) for name, value in cards if value != words.NONE),
        settings=" · ".join(f"{name} {words.setting(value)}" for name, value in params.items()),
        at=at,
        caveats=tuple(caveats(summary)),
        notes=(*findings(summary), *context(summary)),
    )


def _tested(summary: Summary, chosen: Chosen) -> tuple[tuple[str, str], ...]:
    """Return the cards of a network on the test split."""
    return (
        (summary.test_metric, words.number(chosen.row.test)),
        (baseline(summary.metric), words.number(summary.chance.get("test"))),
    )


def _leaderboard(summary: Summary) -> ReportSection:
    listed = summary.rows[: style.MOST_TRIALS]
    shown = list(columns(summary, listed))
    key = summary.chosen.row.key if summary.chosen else None
    rows = tuple(
        TableRow(
            tuple(
                Cell(
                    column.texts[index],
                    column.values[index],
                    (row.cause or "") if column.title == "state" else "",
                )
                for column in shown
            ),
            "chosen" if row.key == key else row.state.lower(),
        )
        for index, row in enumerate(listed)
    )
    value = "value" if summary.runs_script else "validation value"
    caption = f"Complete trials by their {value}; click a heading to sort."
    if len(listed) < len(summary.rows):
        caption += f" The first {len(listed):,} of {len(summary.rows):,} rows; `leaderboard.csv` has all."
    return ReportSection("Leaderboard", caption, (Table(tuple(column.title for column in shown), rows),))


def _front(summary: Summary) -> list[ReportSection]:
    front = summary.front
    if front is None or not front.trials:
        return []
    names, params = list(front.objectives), summary.parameters
    rows = tuple(
        TableRow(
            (
                Cell(trial.label, int(trial.label)),
                *(Cell(words.number(trial.values[name]), trial.values[name]) for name in names),
                Cell(str(trial.step), trial.step),
                *(
                    Cell(words.setting(trial.params.get(name, "–")), trial.params.get(name))
                    for name in params
                ),
            )
        )
        for trial in front.trials
    )
    caption = (
        "Trials that no other feasible trial dominates, by being at least as good in each objective and "
        "better in one; and the hypervolume that they dominate, after each trial."
    )
    table = Table(("trial", *names, "step", *params), rows)
    figures = (curves.pareto_front(summary), curves.hypervolume_history(front))
    return [ReportSection("Pareto front", caption, (table,), figures=figures)]


def _text_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Return a table of texts, which are also the values to sort by."""
    as_cells = (tuple(Cell(str(value), value) for value in row) for row in rows)
    return Table(tuple(header), tuple(map(TableRow, as_cells)), texts=True)


def _progress(history: History, summary: Summary) -> list[ReportSection]:
    key = summary.chosen.row.key if summary.chosen else None
    sections = []
    if any(row.value is not None for row in summary.rows):
        sections.append(
            ReportSection(
                "Optimisation history",
                "The value of each trial, in the order in which they were proposed.",
                figures=(curves.optimisation_history(history, key),),
            )
        )
    if history.reports:
        chance = summary.chance.get("validation")
        sections.append(
            ReportSection(
                "Learning curves",
                f"{summary.metric} at every report; trials that were stopped early are faint."
                + _drawn(history),
                figures=(curves.learning_curves(history, summary.metric, key, chance),),
            )
        )
    return sections


def _hidden_norms(history: History, summary: Summary) -> list[ReportSection]:
    complete = [row.key for row in summary.rows if row.state == "COMPLETE"]
    if summary.chosen is None or not curves.layers(history, complete):
        return []
    key = summary.chosen.row.key
    what = "Mean Euclidean norm of the hidden state over the unpadded steps of the first validation examples"
    drawn = ("head", "state") if curves.has_heads(history, key) else ("head",)
    sections = [
        ReportSection(
            "Hidden norms",
            f"{what}, by layer, of the chosen trial: of a head and, dashed, the root of its expected square"
            " for independent inputs of variance 1"
            + ("; then that of the whole state." if drawn[1:] else "."),
            figures=tuple(curves.hidden_norms(history, key, of) for of in drawn),
        )
    ]
    if len(complete) > 1:
        caption = f"The same over the {len(complete)} complete trials: mean and one standard deviation."
        spread = curves.hidden_norm_spread(history, complete)
        sections.append(ReportSection("Hidden norms over trials", caption, figures=(spread,)))
    return sections


def _landscape(history: History, summary: Summary, importances: Sequence[Importance]) -> list[ReportSection]:
    over = axes(history)
    trials = valued(history, over)
    if not over or len(trials.values) < 2:
        return []
    sections = [_importances(importances)]
    if len(over) > 1:
        figure = landscape.parallel_coordinates(over, trials, summary.metric, maximize=summary.maximize)
        caption = "One line a trial through its hyperparameters; brighter is better, grey was stopped early."
        caption += _drawn(history)
        width = _AXIS_WIDTH * len(over)
        sections.append(ReportSection("Parallel coordinates", caption, figures=(figure,), least_width=width))
    caption = f"{summary.metric} over each hyperparameter by itself.{_drawn(history)}"
    slices = tuple(
        landscape.slices([axis], trials, summary.metric, maximize=summary.maximize)
        for axis in _by_importance(over, importances)
    )
    for other in slices[1:]:
        other.update_layout(showlegend=False)
    sections.append(ReportSection("Slices", caption, figures=slices, is_beside=True))
    ranges = [axis for axis in _by_importance(over, importances) if axis.kind != "category"]
    contours = tuple(
        landscape.contour(across, up, trials, summary.metric, maximize=summary.maximize)
        for across, up in combinations(ranges[:_CONTOURED], 2)
        if len(landscape.over_both(across, up, trials)[0]) >= _FEWEST
    )
    if contours:
        caption = "The complete trials, and a surface between them; blank where no trial is near."
        caption += _drawn(history)
        sections.append(ReportSection("Contours", caption, figures=contours))
    return sections


def _drawn(history: History) -> str:
    """Return a sentence about the trials that figures leave out, or ''."""
    trials, most = len(history.search()), style.MOST_TRIALS
    if trials <= most:
        return ""
    return f" Of {trials:,} trials, {most:,} are drawn: the best, and evenly spaced others."


def _importances(importances: Sequence[Importance]) -> ReportSection:
    if not importances:
        caption = (
            f"Fewer than {FEWEST} trials with a value are complete or pruned, or their values are equal: any "
            "number here would be noise."
        )
        return ReportSection("Importances", caption)
    caption = (
        "Share of each hyperparameter in reaching the best tenth of the trials (at least five of them), by "
        "PED-ANOVA; the thin bars span 90 % of the values from resampled trials. Pruned trials count: they "
        "come after the complete ones, and the later a trial was pruned, the better is its place."
    )
    return ReportSection("Importances", caption, figures=(landscape.importance_bars(importances),))


def _by_importance(over: Sequence[Axis], importances: Sequence[Importance]) -> list[Axis]:
    """Return the axes, the most important first."""
    shares = {importance.name: importance.share for importance in importances}
    return sorted(over, key=lambda axis: -shares.get(axis.name, 0.0))


def _costs(history: History, summary: Summary) -> list[ReportSection]:
    spending = summary.spending
    document = history.sweep.document
    resources = document.get("resources", {})
    gpu = float(resources.get("gpu", 0.0)) * int(resources.get("nodes", 1))
    caption = f"{words.duration(spending.total)} of attempts, side by side."
    if gpu:
        hours = spending.total * gpu / 3600
        caption += f" At {gpu:g} GPU a trial: {hours:.2f} GPU-hours. Resources: {resources_of(document)}."
    parts = tuple(
        TableRow(
            (
                Cell(name, name),
                Cell(words.duration(spent), spent),
                Cell(words.share(spent, spending.total), spent),
            )
        )
        for name, spent in spending.parts().items()
    )
    table = Table(("part", "time", "share"), parts, texts=True)
    sections = [
        ReportSection("Where the time went", caption, (table,), figures=(curves.spending_bar(spending),))
    ]
    if diverged := [row for row in summary.rows if row.state == "DIVERGED"]:
        rows = (
            (row.number, words.number(row.value), row.best_step or "", row.cause or "") for row in diverged
        )
        table = _text_table(("trial", "value", "of step", "what happened"), rows)
        caption = "Trials whose objective was no longer finite; each keeps the value of an earlier report."
        sections.append(ReportSection("Diverged", caption, (table,)))
    return sections


def _failures(history: History, last_lines: Callable[[str], str]) -> list[ReportSection]:
    """Return the section of the failed trials, by the last line of their error."""
    groups = failure_groups(history.search())
    if not groups:
        return []
    rows = (
        (
            group.message,
            "" if group.file is None else f"{group.file}, line {group.line}",
            group.count,
            ", ".join(group.trials) + (", …" if group.count > len(group.trials) else ""),
            group.next_step,
        )
        for group in groups
    )
    table = _text_table(("cause", "in", "count", "trials", "next step"), rows)
    ends = ((group, last_lines(f"{history.sweep.id}-{group.trials[0]}")) for group in groups[:_LOGGED])
    listing = "\n\n".join(
        f"{group.message}\nThe log of trial {group.trials[0]} ends with:\n{end}" for group, end in ends if end
    )
    caption = "Failed trials by the last line of their error."
    return [ReportSection("Failures", caption, (table,), listing=listing)]


def _command(sweep: SweepRecord) -> str:
    """Return the command of the user: for a sweep that the service drives, the one that runs its file."""
    command = str(sweep.facts.get("command", ""))
    program, _, arguments = command.partition(" ")
    if program == "sweep.py":
        return f"python -m orchestrator.sweep {arguments}"
    return words.run_again(sweep.name, sweep.profile) if program in {"", "__main__.py"} else command


def _reproduction(history: History, summary: Summary) -> ReportSection:
    sweep, facts = history.sweep, history.sweep.facts
    rows = [
        ("command", _command(sweep)),
        ("git commit", facts.get("git_commit", "")),
        ("hardware", ", then ".join(facts.get(HARDWARE, ()))),
        ("specification digest", sweep.digest),
        *([] if summary.runs_script else [("data", f"{sweep.data_source} ({sweep.data_digest})")]),
        ("sampler seed", facts.get("sampler_seed", "")),
        *((f"version of {name}", value) for name, value in facts.get("versions", {}).items()),
        *(
            (("checkpoint", summary.chosen.checkpoint),)
            if summary.chosen and summary.chosen.checkpoint
            else ()
        ),
    ]
    return ReportSection(
        "Run it again",
        "Everything that the results above depend on, and the search-space file.",
        (_text_table(("", "value"), rows),),
        listing=facts.get("specification") or json.dumps(dict(sweep.document), indent=2),
    )
