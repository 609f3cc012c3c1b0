"""The pages of an experiment in Markdown and HTML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from orchestrator.errors import counted
from orchestrator.experiment.collected import base_of
from orchestrator.experiment.experiment_results import ArmResult, ArmRun, ExperimentResults
from orchestrator.experiment.order import ordering
from orchestrator.experiment.verdict import ANSWERS, OUTCOMES, RULES, Interval, interval
from orchestrator.report import html, words
from orchestrator.report.figures import style
from orchestrator.report.history import SCORED
from orchestrator.report.html import Cell, Lead, ReportSection, Table, TableRow
from orchestrator.report.markdown import bullets, plain, table
from orchestrator.report.statistics import CONFIDENCE, median_interval, share_interval
from orchestrator.report.summary import MEMORYLESS


@dataclass(frozen=True)
class PageTable:
    """A table of a page, with its heading and a caption."""

    title: str
    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


CLAIMS, BY_LENGTH, SOLVED = "Claims", "By length", "Solved"
"""Titles of optional tables."""

CHANCE = "chance"
"""Name of the best constant answer among the controls."""

_MEASURED = ("arm", "about", "parameters", "measured", "seeds", "trials", "mean", "best", "chance")

NORMS = {"head": "a head", "expected": "a head, closed form", "state": "the whole state"}
"""Names of the norms of hidden states, by `NormCurve.of`."""

MOST_SIZES = 4
"""Largest number of network sizes in a summary; the table `Data` has the size of every arm."""


def markdown(results: ExperimentResults) -> str:
    """Return the page as Markdown, without figures."""
    lines = [
        f"# {plain(results.title)}",
        f"{plain(results.source)}. {plain(results.claim)}",
        bullets(summary(results)),
    ]
    for part in parts(results):
        lines += [f"## {part.title}", plain(part.caption), table(part.header, part.rows)]
    return "\n\n".join(line for line in lines if line) + "\n"


def page(results: ExperimentResults) -> str:
    """Return the page as one HTML file that opens offline, with the curves of every seed."""
    first, *others = [_section(part) for part in parts(results)]
    lead = Lead(
        answer=f"{results.source}. {results.claim}",
        cards=tuple((outcome, str(results.count(outcome))) for outcome in _outcomes(results)),
        caveats=(),
        notes=tuple(summary(results)),
    )
    return html.page(results.title, lead, [first, *_curves(results), *others])


def summary(results: ExperimentResults) -> list[str]:
    """Return the sentences at the top of a page."""
    size = f"profile {results.profile}" if results.profile else "the size of the file"
    better = "higher" if results.maximize else "lower"
    seeds = counted(results.seeds_asked, "seed")
    of = "" if results.reduction == "value" else f" ({results.reduction})"
    hidden = [f"Not shown: {results.not_shown}"] if results.not_shown else []
    return [
        *_counts(results),
        *_families(results),
        *_nothing(results),
        *_judged_again(results),
        f"Compared: {results.metric}{of}, {better} is better; {seeds}; {size}.",
        *_sizes(results),
        f"Spent: {spent(results)}.",
        *hidden,
    ]


def _counts(results: ExperimentResults) -> Iterator[str]:
    """Yield sentences with the number of published figures and hypotheses by outcome."""

    def line(outcomes: Sequence[str], *, hypothesis: bool) -> str:
        counts = {outcome: results.count(outcome, hypothesis=hypothesis) for outcome in outcomes}
        return ", ".join(f"{count} {outcome}" for outcome, count in counts.items())

    if _is_stated(results, hypothesis=False):
        yield f"Published figures and claims: {line(OUTCOMES, hypothesis=False)}."
    if _is_stated(results, hypothesis=True):
        answers = line(ANSWERS, hypothesis=True)
        yield f"The file's own hypotheses, from no paper: {answers}. Tested {results.where}."


def _families(results: ExperimentResults) -> Iterator[str]:
    """Yield a sentence with the number of comparisons in each family."""
    sizes = results.family_sizes
    if not sizes:
        return
    named = [f"{name or 'all others'}: {size}" for name, size in sizes.items()]
    parts = ", ".join(named) if results.families else str(sizes[""])
    yield (
        f"Comparisons in a family: {parts}. Corrected by Holm's method, so that in at most 5 % of cases any"
        " verdict of a family is wrongly in favour."
    )


def _nothing(results: ExperimentResults) -> Iterator[str]:
    """Yield a sentence for each data set on which the controls fail."""
    names: dict[str, list[str]] = {}
    for arm in results.arms:
        if reason := results.shows_nothing(arm.data_digest):
            names.setdefault(reason, []).append(arm.name)
    for reason, arms in names.items():
        yield f"{reason[0].upper()}{reason[1:]}. It concerns {', '.join(arms)}, and every claim about them."


def _judged_again(results: ExperimentResults) -> Iterator[str]:
    """Yield a sentence if the results are older than the rules of the verdicts."""
    if results.circumstances.date < RULES:
        yield (
            f"Judged again by the rules of {RULES}, from the values recorded until"
            f" {results.circumstances.date}; no arm was run again."
        )


def _sizes(results: ExperimentResults) -> Iterator[str]:
    sizes = list(dict.fromkeys(arm.size for arm in results.arms if arm.size))
    if 0 < len(sizes) <= MOST_SIZES:
        yield f"Networks and training: {'; '.join(sizes)}."


_COUNTED = "Every trial that was begun counts, confirmations included."
_ELSEWHERE = (
    " The first line of an arm is the run whose values stand; further ones are runs of the same specification"
    " in other ledgers."
)


def _is_stated(results: ExperimentResults, *, hypothesis: bool) -> bool:
    """Return True if the file states hypotheses, or published figures, which are the default."""
    kinds = {arm.hypothesis for arm in results.arms if arm.published is not None}
    kinds |= {claim.hypothesis for claim in results.claims}
    return hypothesis in (kinds or {False})


def _outcomes(results: ExperimentResults) -> tuple[str, ...]:
    published = OUTCOMES if _is_stated(results, hypothesis=False) else ()
    supposed = ANSWERS if _is_stated(results, hypothesis=True) else ()
    return tuple(dict.fromkeys((*published, *supposed)))


def spent(results: ExperimentResults) -> str:
    """Format trials, wall time, core hours and GPU hours of all arms."""
    trials = sum(run.trials for run in results.runs)
    wall = words.duration(sum(run.wall_seconds for run in results.runs))
    cores = sum(run.core_seconds for run in results.runs) / 3600
    gpus = sum(run.gpu_seconds for run in results.runs) / 3600
    on_gpus = f", {gpus:.2f} GPU hours" if gpus else ""
    return f"{counted(trials, 'trial')}, {wall} of wall time, {cores:.2f} core hours{on_gpus}"


def parts(results: ExperimentResults) -> Iterator[PageTable]:
    """Yield the tables of the page, the results first."""
    stated = _is_stated(results, hypothesis=True)
    yield PageTable(
        "Beside what is stated" if stated else "Beside the paper",
        "The median over seeds, with its 95 % interval from six seeds on, and otherwise from the smallest to"
        " the largest value; the mean; the best seed, chosen after the fact; the best constant answer; and"
        " what is stated. Verdicts are about the median of all trainings, count the noise of the test"
        " examples, and are corrected for the number of comparisons in their family. A value that is not"
        " established to be better than a control is marked; marks are not corrected.",
        (*_MEASURED, "stated" if stated else "published", "verdict"),
        tuple(_beside(results, arm) for arm in results.arms),
    )
    if results.solved is not None:
        yield _solved(results, results.solved)
    if any(arm.lengths for arm in results.arms):
        yield _by_length(results)
    if any(arm.cell for arm in results.arms):
        yield _as_printed(results)
    if any(arm.norms for arm in results.arms):
        yield _norms(results)
    if results.claims:
        yield PageTable(
            CLAIMS,
            "The mean of the first arm minus that of the second. Intervals are simultaneous for the family"
            " and take the means for normal; verdicts also need an exact test, which does not.",
            ("claim", "difference", "verdict"),
            tuple(_claims(results)),
        )
    yield _by_seed(results)
    yield PageTable(
        "What was spent",
        _COUNTED + (_ELSEWHERE if any(arm.elsewhere for arm in results.arms) else ""),
        ("arm", "sweep", "state", "trials", "wall time", "core hours", "GPU hours", "began", "commit"),
        tuple(_spending(arm, run) for arm in results.arms for run in arm.runs),
    )
    yield _data(results)
    yield PageTable(
        "Run it again", "What the results depend on.", ("", "value"), tuple(_reproduction(results))
    )


def _by_seed(results: ExperimentResults) -> PageTable:
    """Return the value of each seed."""
    return PageTable(
        "Values by seed",
        "A value is what arms are compared by.",
        ("arm", "seed", "value", "trial"),
        tuple(
            (arm.name, str(seed.seed), words.setting(seed.value), seed.trial or "–")
            for arm in results.arms
            for seed in arm.seeds
        ),
    )


def _data(results: ExperimentResults) -> PageTable:
    """Return the data set of each arm, with its digest and that of the specification."""
    return PageTable(
        "Data",
        "The digest is the SHA-256 of all examples.",
        ("arm", "size", "network", "source", "digest", "specification"),
        tuple(
            (
                arm.name,
                arm.size or "–",
                arm.network or "–",
                arm.data or "–",
                arm.data_digest[:16] or "–",
                arm.digest[:16] or "–",
            )
            for arm in results.arms
        ),
    )


def _solved(results: ExperimentResults, at: float) -> PageTable:
    """Return the number of seeds of each arm that solve the task."""

    def shares(arm: ArmResult) -> tuple[str, str]:
        solved, count = results.solved_by(arm) or 0, len(arm.values)
        if not count:
            return "–", "–"
        low, high = share_interval(solved, count)
        return f"{solved} of {counted(count, 'seed')}", f"{words.share(low, 1)} to {words.share(high, 1)}"

    side = "at least" if results.maximize else "at most"
    return PageTable(
        SOLVED,
        f"A seed solves the task with {side} {words.setting(at)}. The interval is that of the share of all"
        " trainings that solve it (exact binomial, 95 % confidence).",
        ("arm", "solved", "share of trainings"),
        tuple((arm.name, *shares(arm)) for arm in results.arms),
    )


def measured(arm: ArmResult) -> str:
    """Format the median over the seeds of an arm with its interval, or a dash."""
    return median_of(arm.values)


def median_of(values: Sequence[float]) -> str:
    """Format the median over seeds with its interval, or for fewer than six seeds their range; or a dash."""
    if not values:
        return "–"
    median = words.setting(float(np.median(values)))
    if len(values) == 1:
        return f"{median} (one seed)"
    if min(values) == max(values):
        return f"{median} ({len(values)} equal seeds)"
    low, high, confidence = median_interval(values)
    kind = "" if confidence < CONFIDENCE else "interval "
    return f"{median} ({kind}{words.setting(low)} to {words.setting(high)})"


def _beside(results: ExperimentResults, arm: ArmResult) -> tuple[str, ...]:
    published = "–"
    if arm.published is not None:
        note = f" [{arm.published.note}]" if arm.published.note else ""
        own = arm.published.source not in {"", results.source}
        published = arm.published.phrase + (f" ({arm.published.source})" if own else "") + note
    near = doubts(results, arm)
    mark = f" (not shown to beat {', '.join(near)})" if near else ""
    best = max if results.maximize else min
    return (
        arm.name,
        arm.about,
        words.count(arm.parameters),
        measured(arm) + mark,
        str(len(arm.values)),
        str(sum(run.trials for run in arm.runs)),
        words.setting(float(np.mean(arm.values))) if arm.values else "–",
        words.setting(best(arm.values)) if arm.values else "–",
        "–" if arm.chance is None else words.setting(arm.chance),
        published,
        results.verdicts[arm.name].phrase,
    )


def doubts(results: ExperimentResults, arm: ArmResult) -> tuple[str, ...]:
    """Return the names of the controls that an arm is not established to beat.

    Controls are the best constant answer and every arm of the layer without recurrence that was tested on the
    same examples. Without an interval, as for a single seed, the mean is compared with the best constant
    answer.
    """
    if not arm.values:
        return ()
    names = []
    if arm.chance is not None:
        mean = float(np.mean(arm.values))
        if not _is_above(
            _ends(results, arm) or (mean, mean), (arm.chance, arm.chance), maximize=results.maximize
        ):
            names.append(CHANCE)
    for control in results.arms:
        is_control = control.name != arm.name and control.about.startswith(f"{MEMORYLESS} on ")
        is_comparable = is_control and control.values and control.data_digest == arm.data_digest
        if is_comparable and not _is_established(results, arm, control):
            names.append(control.name)
    return tuple(names)


def _is_established(results: ExperimentResults, arm: ArmResult, control: ArmResult) -> bool:
    """Return True if an arm is established to be better than a control.

    Without scores of test examples, the intervals must not overlap.
    """
    own, other = (each.sample(results.metric) for each in (arm, control))
    scored = results.metric in SCORED
    if not scored or (own.scores is not None and other.scores is not None):
        return ordering(own, other, maximize=results.maximize, scored=scored).winner == arm.name
    ends, limits = _ends(results, arm), _ends(results, control)
    return ends is not None and limits is not None and _is_above(ends, limits, maximize=results.maximize)


def _ends(results: ExperimentResults, arm: ArmResult) -> Interval | None:
    """Return the interval of an arm's mean within its bounds, with the noise of test examples if known."""
    ends = arm.interval or interval(arm.values)
    least, most = arm.sample(results.metric).bounds
    return None if ends is None else (max(least, ends[0]), min(most, ends[1]))


def _is_above(ends: Interval, limits: Interval, *, maximize: bool) -> bool:
    """Return True if an interval lies on the better side of another one."""
    return ends[0] > limits[1] if maximize else ends[1] < limits[0]


def _by_length(results: ExperimentResults) -> PageTable:
    """Return the values on test splits of longer sequences."""
    tested = [arm for arm in results.arms if arm.lengths]
    names = sorted({name for arm in tested for name in arm.lengths}, key=lambda name: int(name[1:]))
    of = ", ".join(sorted({arm.lengths_metric for arm in tested}))
    return PageTable(
        BY_LENGTH,
        f"Median of {of} over seeds with its interval or range, on sequences of the lengths of"
        " training (x1) and on longer ones: x4 scores the steps beyond twice and up to four times that"
        " length.",
        ("arm", *names),
        tuple((arm.name, *(median_of(arm.lengths.get(name, ())) for name in names)) for arm in tested),
    )


def _norms(results: ExperimentResults) -> PageTable:
    """Return the norms of hidden states at the beginning, in the middle and at the end of training."""
    rows: list[tuple[str, ...]] = []
    for arm in results.arms:
        for of, name in NORMS.items():
            own = [curve.values for curve in arm.norms if curve.of == of]
            ends = ([values[place * (len(values) - 1) // 2] for values in own] for place in range(3))
            if own:
                texts = (f"{np.mean(end):.4g} ({min(end):.4g} to {max(end):.4g})" for end in ends)
                rows.append((arm.name, name, str(len(own)), *texts))
    return PageTable(
        "Norms of hidden states",
        "In evaluation on validation data: the mean over layers and seeds, and the smallest and the largest."
        " A layer without heads has the whole state for a head. The picture has every curve.",
        ("arm", "norm", "curves", "first report", "middle", "last report"),
        tuple(rows),
    )


def _as_printed(results: ExperimentResults) -> PageTable:
    """Return the arms in rows and columns: measured values, and published ones if there are any."""
    cells = {arm.cell: arm for arm in results.arms if arm.cell}
    is_published = any(arm.published for arm in cells.values())
    rows, columns = (list(dict.fromkeys(cell[axis] for cell in cells)) for axis in (0, 1))

    def shown(row: str, column: str) -> str:
        arm = cells.get((row, column))
        if arm is None:
            return "–"
        published = f" / {arm.published.phrase if arm.published else '–'}" if is_published else ""
        return measured(arm) + published

    lines = tuple((row, *(shown(row, column) for column in columns)) for row in rows)
    if not is_published:
        return PageTable("In rows and columns", "Measured.", ("", *columns), lines)
    stated = _is_stated(results, hypothesis=True)
    title = "In rows and columns" if stated else "As the paper prints it"
    return PageTable(title, f"Measured, then {'stated' if stated else 'published'}.", ("", *columns), lines)


def _claims(results: ExperimentResults) -> Iterator[tuple[str, ...]]:
    for claim, difference, verdict in zip(results.claims, results.orderings, results.orders, strict=True):
        phrase = "–" if difference is None else difference.phrase
        yield f"{claim.better} is better than {claim.than}", phrase, verdict.phrase


def _spending(arm: ArmResult, run: ArmRun) -> tuple[str, ...]:
    wall, cores = words.duration(run.wall_seconds), f"{run.core_seconds / 3600:.2f}"
    gpus = f"{run.gpu_seconds / 3600:.2f}" if run.gpu_seconds else "–"
    began = ("–", "–") if run.origin is None else (run.origin.date, short(run.origin.commit))
    return arm.name, arm.sweep or "–", run.state.lower(), str(run.trials), wall, cores, gpus, *began


def short(commit: str) -> str:
    """Return the first seven digits of a commit, and the mark `+changes` if it has one."""
    digits, plus, changes = commit.partition("+")
    return digits[:7] + plus + changes


def _reproduction(results: ExperimentResults) -> Iterator[tuple[str, str]]:
    profile = f" --profile {results.profile or 'full'}"
    yield (
        "command",
        f"python -m orchestrator.sweep experiment experiments/{results.name}.yaml{profile}",
    )
    for origin, names in results.origins.items():
        which = "arms" if len(results.origins) == 1 else ", ".join(names)
        on = f" on {origin.machine}" if origin.machine else ""
        yield f"{which} began", f"{origin.date} at commit {origin.commit}{on}"
    yield "page written", results.circumstances.date
    yield from _versions(results)


def _versions(results: ExperimentResults) -> Iterator[tuple[str, str]]:
    """Yield the versions of the packages that the arms ran with."""
    arms: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for origin, names in results.origins.items():
        arms.setdefault(origin.versions, []).extend(names)
    for versions, names in arms.items():
        which = "arms" if len(arms) == 1 else ", ".join(names)
        listed = ", ".join(f"{name} {version}" for name, version in versions)
        yield f"{which} ran with", listed or "versions that were not recorded"


def _section(part: PageTable) -> ReportSection:
    rows = (TableRow(tuple(Cell(text, text) for text in row)) for row in part.rows)
    return ReportSection(part.title, part.caption, (Table(part.header, tuple(rows), texts=True),))


def _curves(results: ExperimentResults) -> list[ReportSection]:
    """Return a section with one figure per column of the paper's table, or one figure for all arms."""
    groups: dict[str, list[ArmResult]] = {}
    for arm in results.arms:
        if any(seed.steps for seed in arm.seeds):
            groups.setdefault(arm.cell[1] if arm.cell else "", []).append(arm)
    norms = [norm_figure(arm) for arm in results.arms if arm.norms]
    caption = "Over the steps of training: solid a head, dashed its closed form, dotted the whole state."
    drawn = [ReportSection("Norms of hidden states by layer", caption, figures=tuple(norms))] if norms else []
    if not groups:
        return drawn
    name = base_of(results.metric).replace("test/", "val/")
    caption = f"{name} over the steps of training; one line a seed, one colour an arm."
    figures = tuple(curves(arms, name) for arms in groups.values())
    return [*drawn, ReportSection("Curves by seed", caption, figures=figures)]


def norm_figure(arm: ArmResult) -> go.Figure:
    """Draw the norms of the hidden states of an arm."""
    figure = go.Figure()
    numbers = sorted({curve.layer for curve in arm.norms})
    colours = dict(zip(numbers, style.shades(len(numbers)), strict=True))
    dashes = {"head": "solid", "expected": "dash", "state": "dot"}
    for curve in arm.norms:
        figure.add_scatter(
            x=list(curve.steps),
            y=list(curve.values),
            name=f"layer {curve.layer}, {NORMS[curve.of]}",
            showlegend=curve.seed == arm.norms[0].seed,
            mode="lines",
            line={"color": colours[curve.layer], "width": 2, "dash": dashes[curve.of]},
        )
    return style.framed(figure, x="step", y=f"norm, {arm.name}").update_yaxes(rangemode="tozero")


def curves(arms: Sequence[ArmResult], metric: str) -> go.Figure:
    """Draw the curves of all seeds of some arms."""
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
