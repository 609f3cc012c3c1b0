"""Published results: files under version control, their list, and merging with new results.

A folder, `docs/experiments`, has `<experiment>.json` and `<experiment>.md` for each published experiment,
`before.md` and `after.md` for the top and the bottom of the list, and `withdrawn.yaml` for figures that were
published earlier and proved wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.config.sections import Section, Word, setting, validated
from orchestrator.config.yaml_reader import read_document
from orchestrator.errors import BadInput
from orchestrator.experiment import experiment_page as page
from orchestrator.experiment import experiment_results as results
from orchestrator.experiment import picture
from orchestrator.experiment.experiment_results import ArmResult, ArmRun, ExperimentResults, Kind, Origin
from orchestrator.experiment.file import OrderClaim
from orchestrator.experiment.order import Ordering
from orchestrator.experiment.verdict import Answer, Outcome
from orchestrator.report.history import SCORED
from orchestrator.report.markdown import plain, table
from trainables.durable import make_folder, replace_file

BEFORE, AFTER, WITHDRAWN = "before.md", "after.md", "withdrawn.yaml"


class WithdrawnSection(Section):
    """A published figure that proved wrong."""

    what: Word = setting("What the figure was for.", "adding, T = 100")
    figure: Word = setting("The figure, as it was printed.", "0.0107")
    because: Word = setting("Why it does not hold.", "the task needed no memory")
    instead: Word = setting("What replaces it.", "experiments/ldstack-adding.yaml")


class WithdrawnFile(Section):
    """All withdrawn figures."""

    withdrawn: list[WithdrawnSection] = setting("One entry per figure.", [])


@dataclass(frozen=True)
class Pages:
    """The files of an experiment's pages."""

    html: Path
    markdown: Path
    data: Path


def write(kept: ExperimentResults, folder: Path) -> Pages:
    """Write the pages of an experiment and its results as JSON, replacing older ones."""
    make_folder(folder)
    pages = Pages(folder / "page.html", folder / "page.md", folder / "results.json")
    replace_file(pages.html, page.page(kept).encode())
    replace_file(pages.markdown, page.markdown(kept).encode())
    replace_file(pages.data, results.dumped(kept).encode())
    return pages


def publish(kept: ExperimentResults, folder: Path) -> tuple[Path, Path]:
    """Write the results of an experiment, its Markdown page and its figure to a folder of published results.

    Results that are published already are merged with them, so that arms can run on several machines.

    Returns:
        The files of the results and of the page.

    Raises:
        BadInput: The published results have another format.
        Damaged: The published results cannot be read.
    """
    make_folder(folder)
    data = folder / f"{kept.id}.json"
    whole = merged(kept, results.read(data)) if data.exists() else kept
    replace_file(data, results.dumped(whole).encode())
    return data, _write_text(whole, folder)


def refresh(folder: Path) -> None:
    """Judge all published results again by the present rules, and rewrite their JSON, pages and figures.

    Differences are computed from the recorded values, except where scores of test examples are not recorded.
    """
    for file in _published(folder):
        kept = results.read(file)
        kept = replace(kept, orderings=tuple(_ordering(kept, claim, kept) for claim in kept.claims))
        replace_file(file, results.dumped(kept).encode())
        _write_text(kept, folder)


def _write_text(kept: ExperimentResults, folder: Path) -> Path:
    text = folder / f"{kept.id}.md"
    replace_file(text, page.markdown(kept).encode())
    if drawn := picture.svg(kept):
        replace_file(_picture_of(kept, folder), drawn.encode())
    return text


def _picture_of(kept: ExperimentResults, folder: Path) -> Path:
    return folder / f"{kept.id}.svg"


def _published(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise BadInput(str(folder), "must be a folder of published results", "no folder", "Publish some.")
    return sorted(folder.glob("*.json"))


def index(folder: Path) -> str:
    """Return the list of all published experiments in Markdown.

    Raises:
        BadInput: The folder does not exist, or one of its files is wrong.
    """
    published = [results.read(file) for file in _published(folder)]
    lines = [
        _text(folder / BEFORE) or "# Results",
        *(_overview(published) if published else ()),
        *(_details(kept, folder) for kept in published),
        *_withdrawn(folder / WITHDRAWN),
        _text(folder / AFTER),
    ]
    return "\n\n".join(line for line in lines if line) + "\n"


_SHOWN = frozenset({page.CLAIMS, page.BY_LENGTH, page.SOLVED})
"""Titles of the tables that the list shows besides the first one of each page."""

_COLUMNS: tuple[Outcome | Answer, ...] = (
    "undetermined",
    "not comparable",
    "not reproduced",
    "refuted",
    "reproduced",
    "confirmed",
)
"""Outcomes in the order of the columns: what was not shown stands first."""

_HEADER = ("experiment", "source", *_COLUMNS, "seeds", "trials", "core hours", "commit")

_KINDS: Mapping[Kind, str] = {
    "identities": "A function is measured, such as an approximation of a system; there is no data set.",
    "toys": "Tasks that are drawn for one ability, such as recall. Results need not hold for other tasks.",
    "benchmarks": "Data that papers report, whole or in part; figures of a part are not comparable.",
}


def _overview(published: Sequence[ExperimentResults]) -> Iterator[str]:
    """Yield what was not shown, what was, the counts by kind, and a table of the experiments of each kind."""
    open_ones = [[kept.id, kept.kind, *_open(kept)] for kept in published if kept.causes()]
    yield "## What was not shown"
    yield (
        "Figures, bounds and claims that were not reproduced or confirmed, by the outcome or by what is"
        " missing for one. All verdicts of a family must hold together, so that few seeds of many arms decide"
        " nothing."
    )
    yield table(("experiment", "kind", "not shown", "of", "because"), open_ones)
    if held := list(_held(published)):
        yield "## What was shown"
        yield "Figures, bounds and claims that were reproduced or confirmed, and what they are about."
        yield table(("experiment", "kind", "shown", "of", "about"), held)
    yield "## Counts"
    kinds = [kind for kind in _KINDS if any(kept.kind == kind for kept in published)]
    groups = {kind: [kept for kept in published if kept.kind == kind] for kind in kinds}
    yield table(
        ("kind", "experiments", *_COLUMNS),
        [
            [kind, str(len(own)), *(str(sum(kept.count(each) for kept in own)) for each in _COLUMNS)]
            for kind, own in groups.items()
        ],
    )
    for kind, own in groups.items():
        yield f"### {kind.capitalize()}"
        yield _KINDS[kind]
        yield table(_HEADER, [_row(kept) for kept in own])


def _open(kept: ExperimentResults) -> tuple[str, str, str]:
    """Return the number of comparisons that were not shown, of how many, and why."""
    causes = kept.causes()
    reasons = ", ".join(f"{cause} ({count})" for cause, count in causes.most_common())
    return str(sum(causes.values())), str(_total(kept)), reasons


def _total(kept: ExperimentResults) -> int:
    return sum(kept.count(outcome) for outcome in _COLUMNS)


def _held(published: Sequence[ExperimentResults]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each experiment of which something was shown."""
    for kept in published:
        if count := kept.count("reproduced") + kept.count("confirmed"):
            yield kept.id, kept.kind, str(count), str(_total(kept)), kept.claim


def _row(kept: ExperimentResults) -> list[str]:
    cores = sum(run.core_seconds for run in kept.runs) / 3600
    return [
        kept.id,
        kept.source,
        *(str(kept.count(outcome)) for outcome in _COLUMNS),
        str(kept.seeds_asked),
        str(sum(run.trials for run in kept.runs)),
        f"{cores:.2f}",
        ", ".join(_commits(kept)),
    ]


def _commits(kept: ExperimentResults) -> Sequence[str]:
    """Return the commits of the arms, or of the page if none is known."""
    known = dict.fromkeys(page.short(origin.commit) for origin in kept.origins)
    return list(known) or [page.short(kept.circumstances.commit)]


def _details(kept: ExperimentResults, folder: Path) -> str:
    first, *others = page.parts(kept)
    further = [part for part in others if part.title in _SHOWN]
    has_picture = _picture_of(kept, folder).exists()
    shown = [f"![{plain(kept.title)}]({folder.name}/{kept.id}.svg)"] if has_picture else []
    hidden = [f"Not shown: {plain(kept.not_shown)}"] if kept.not_shown else []
    profile = f" (profile {plain(kept.profile)})" if kept.profile else ""
    return "\n\n".join(
        [
            f"## {plain(kept.title)}{profile}",
            f"[{kept.id}]({folder.name}/{kept.id}.md), {plain(kept.source)}. {plain(page.spent(kept))}.",
            *shown,
            table(first.header, first.rows),
            *(_shown(part) for part in further),
            *hidden,
        ]
    )


def _shown(part: page.PageTable) -> str:
    """Return a further table, with its caption if that names the metric or the threshold."""
    rows = table(part.header, part.rows)
    return f"{part.caption}\n\n{rows}" if part.title in {page.BY_LENGTH, page.SOLVED} else rows


def _withdrawn(file: Path) -> list[str]:
    if not file.exists():
        return []
    root, _ = read_document(file)
    with root.pointing():
        entries = validated(WithdrawnFile, root.plain()).withdrawn
    rows = [[entry.what, entry.figure, entry.because, entry.instead] for entry in entries]
    text = "Figures that earlier versions of this page printed, and that do not hold."
    return ["## Withdrawn", text, table(["what", "figure", "because", "instead"], rows)]


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8").strip() if file.exists() else ""


def merged(present: ExperimentResults, earlier: ExperimentResults) -> ExperimentResults:
    """Merge results of the present ledger with published ones; of each arm, keep the one with more values.

    A published arm is kept only if its specification is unchanged. It keeps its origin, so that the page
    names the commit that ran it, but takes bounds and other statements from the experiment file. Runs of the
    same specification in other ledgers are listed with the arm, so that every trial counts.
    """
    if _compared(present) != _compared(earlier):
        return present
    published = {arm.name: arm for arm in earlier.arms}
    arms = tuple(_chosen(arm, published.get(arm.name), earlier) for arm in present.arms)
    kept = {arm.name for arm, own in zip(arms, present.arms, strict=True) if arm is not own}
    whole = replace(present, arms=arms)
    orderings = tuple(
        _ordering(whole, claim, earlier) if {claim.better, claim.than} & kept else own
        for claim, own in zip(present.claims, present.orderings, strict=True)
    )
    return replace(whole, orderings=orderings)


def _compared(results: ExperimentResults) -> tuple[str, str, bool]:
    return results.metric, results.reduction, results.maximize


def _chosen(own: ArmResult, published: ArmResult | None, earlier: ExperimentResults) -> ArmResult:
    """Return an arm of the ledger, or the published arm of the same specification if it has more values."""
    if published is None or _identity(published) != _identity(own):
        return own
    circumstances = earlier.circumstances
    origin = Origin(circumstances.date, circumstances.commit, circumstances.machine)
    published = replace(published, origin=published.origin or origin)
    if _leads(published, own):
        kept = replace(
            published,
            published=own.published,
            cell=own.cell,
            hypothesis=own.hypothesis,
            size=own.size,
            obstacle="" if own.hypothesis else own.obstacle or published.obstacle,
            lack="",
        )
    else:
        is_known = own.origin is None or own.origin.machine or own.values != published.values
        kept = own if is_known else replace(own, origin=published.origin)
    return replace(kept, elsewhere=_elsewhere(kept, (*own.runs, *published.runs)))


def _elsewhere(kept: ArmResult, runs: Sequence[ArmRun]) -> tuple[ArmRun, ...]:
    """Return the latest state of each run with trials in another ledger."""
    own = kept.runs[0]
    others: list[ArmRun] = []
    for run in sorted(runs, key=lambda run: run.core_seconds, reverse=True):
        if run.trials and not any(run.is_run(other) for other in (own, *others)):
            others.append(run)
    return tuple(others)


def _leads(published: ArmResult, own: ArmResult) -> bool:
    """Return True if a published arm has more values, or is the only one that has started."""
    return len(published.seeds) > len(own.seeds) or (published.trials > 0 and not own.trials)


def _identity(arm: ArmResult) -> str:
    """Return the digest of a sweep's specification, or the call of a measured function."""
    return arm.digest or arm.about


def _ordering(present: ExperimentResults, claim: OrderClaim, earlier: ExperimentResults) -> Ordering | None:
    """Compare the arms of a claim, at least one of which is published.

    If scores of test examples are missing, the published comparison is kept, provided that both arms are
    published. Its p value is uncorrected; the family of the present file corrects it.
    """
    arms = {arm.name: arm for arm in present.arms}
    both = (arms[claim.better], arms[claim.than])
    is_known = present.metric not in SCORED or all(seed.scores for arm in both for seed in arm.seeds)
    if not is_known and _same(both, earlier):
        for stated, measured in zip(earlier.claims, earlier.orderings, strict=True):
            if (stated.better, stated.than) == (claim.better, claim.than):
                return measured
    return present.measured(claim)


def _same(arms: Iterable[ArmResult], earlier: ExperimentResults) -> bool:
    """Return True if arms have their published values."""
    published = {arm.name: arm.values for arm in earlier.arms}
    return all(arm.values == published.get(arm.name) for arm in arms)
