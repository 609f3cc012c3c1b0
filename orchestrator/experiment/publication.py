"""Results that are kept under version control, and the page that lists them.

A folder, `docs/experiments`, holds `<experiment>.json` and `<experiment>.md` for each published experiment,
`before.md` and `after.md`, the texts at the top and at the bottom of the list, and `withdrawn.yaml`, the
figures that were published earlier and do not hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.config.sections import Section, Word, setting, validated
from orchestrator.config.yaml_reader import read_document
from orchestrator.errors import BadInput
from orchestrator.experiment import page, picture, results
from orchestrator.experiment.merging import merged
from orchestrator.experiment.results import Results
from orchestrator.experiment.verdict import VERDICTS
from orchestrator.report.markdown import plain, table
from trainables.durable import make_folder, replace_file

BEFORE, AFTER, WITHDRAWN = "before.md", "after.md", "withdrawn.yaml"


class WithdrawnSection(Section):
    """A figure that was published and does not hold."""

    what: Word = setting("What the figure was for.", "adding, T = 100")
    figure: Word = setting("The figure, as it was printed.", "0.0107")
    because: Word = setting("Why it does not hold.", "the task needed no memory")
    instead: Word = setting("What replaces it.", "experiments/ldstack-adding.yaml")


class WithdrawnFile(Section):
    """All withdrawn figures."""

    withdrawn: list[WithdrawnSection] = setting("One entry a figure.", [])


@dataclass(frozen=True)
class Pages:
    """The files of the pages of an experiment."""

    html: Path
    markdown: Path
    data: Path


def write(kept: Results, folder: Path) -> Pages:
    """Write the pages of an experiment and its results as JSON; replace older ones."""
    make_folder(folder)
    pages = Pages(folder / "page.html", folder / "page.md", folder / "results.json")
    replace_file(pages.html, page.page(kept).encode())
    replace_file(pages.markdown, page.markdown(kept).encode())
    replace_file(pages.data, results.dumped(kept).encode())
    return pages


def publish(kept: Results, folder: Path) -> tuple[Path, Path]:
    """Write the results of an experiment, its Markdown page and its picture to a folder of results.

    Arms that are published already stay if `merged` keeps them, so that arms may be run on several machines.

    Returns:
        The files of the results and of the page.

    Raises:
        BadInput: the published results have another format.
        Damaged: they cannot be read.
    """
    make_folder(folder)
    data = folder / f"{kept.id}.json"
    whole = merged(kept, results.read(data)) if data.exists() else kept
    replace_file(data, results.dumped(whole).encode())
    return data, _write_text(whole, folder)


def refresh(folder: Path) -> None:
    """Write the page and the picture of all published results anew, from their JSON."""
    for file in _published(folder):
        _write_text(results.read(file), folder)


def _write_text(kept: Results, folder: Path) -> Path:
    text = folder / f"{kept.id}.md"
    replace_file(text, page.markdown(kept).encode())
    if drawn := picture.svg(kept):
        replace_file(_picture_of(kept, folder), drawn.encode())
    return text


def _picture_of(kept: Results, folder: Path) -> Path:
    return folder / f"{kept.id}.svg"


def _published(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise BadInput(str(folder), "must be a folder of published results", "no folder", "Publish some.")
    return sorted(folder.glob("*.json"))


def index(folder: Path) -> str:
    """Return the list of all published experiments as Markdown.

    Args:
        folder: `docs/experiments`; the list belongs beside it, in `docs/results.md`.

    Raises:
        BadInput: the folder does not exist, or one of its files is wrong.
    """
    published = [results.read(file) for file in _published(folder)]
    lines = [
        _text(folder / BEFORE) or "# Results",
        table(_HEADER, [_row(kept) for kept in published]) if published else "",
        *(_details(kept, folder) for kept in published),
        *_withdrawn(folder / WITHDRAWN),
        _text(folder / AFTER),
    ]
    return "\n\n".join(line for line in lines if line) + "\n"


_SHOWN = frozenset({page.CLAIMS, page.BY_LENGTH})
"""Titles of the tables of a page that the list repeats, beside the first one."""

_HEADER = ("experiment", "source", *VERDICTS, "seeds", "trials", "core hours", "commit")


def _row(kept: Results) -> list[str]:
    cores = sum(run.core_seconds for run in kept.runs) / 3600
    return [
        kept.id,
        kept.source,
        *(str(kept.count(outcome)) for outcome in VERDICTS),
        str(kept.seeds_asked),
        str(sum(run.trials for run in kept.runs)),
        f"{cores:.2f}",
        ", ".join(_commits(kept)),
    ]


def _commits(kept: Results) -> Sequence[str]:
    """Return the commits that ran the arms; that of the page if none is known."""
    known = dict.fromkeys(page.short(origin.commit) for origin in kept.origins)
    return list(known) or [page.short(kept.circumstances.commit)]


def _details(kept: Results, folder: Path) -> str:
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


def _shown(part: page.Part) -> str:
    """Return a further table; that of other lengths with its sentence, which says of what the values are."""
    rows = table(part.header, part.rows)
    return f"{part.caption}\n\n{rows}" if part.title == page.BY_LENGTH else rows


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
