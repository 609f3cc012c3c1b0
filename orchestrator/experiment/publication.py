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
from orchestrator.experiment import page, results
from orchestrator.experiment.results import Results
from orchestrator.experiment.verdict import OUTCOMES
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


def write(found: Results, folder: Path) -> Pages:
    """Write the pages of an experiment and its results as JSON; replace older ones."""
    make_folder(folder)
    pages = Pages(folder / "page.html", folder / "page.md", folder / "results.json")
    replace_file(pages.html, page.page(found).encode())
    replace_file(pages.markdown, page.markdown(found).encode())
    replace_file(pages.data, results.dumped(found).encode())
    return pages


def publish(found: Results, folder: Path) -> tuple[Path, Path]:
    """Write the results of an experiment and its Markdown page to a folder of results; return both files."""
    make_folder(folder)
    data, text = folder / f"{found.id}.json", folder / f"{found.id}.md"
    replace_file(data, results.dumped(found).encode())
    replace_file(text, page.markdown(found).encode())
    return data, text


def index(folder: Path) -> str:
    """Return the list of all published experiments as Markdown.

    Args:
        folder: `docs/experiments`; the list belongs beside it, in `docs/results.md`.

    Raises:
        BadInput: the folder does not exist, or one of its files is wrong.
    """
    if not folder.is_dir():
        raise BadInput(str(folder), "must be a folder of published results", "no folder", "Publish some.")
    published = [results.read(file) for file in sorted(folder.glob("*.json"))]
    lines = [
        _text(folder / BEFORE) or "# Results",
        table(_HEADER, [_row(found) for found in published]) if published else "",
        *(_details(found, folder.name) for found in published),
        *_withdrawn(folder / WITHDRAWN),
        _text(folder / AFTER),
    ]
    return "\n\n".join(line for line in lines if line) + "\n"


_HEADER = ("experiment", "source", *OUTCOMES, "seeds", "trials", "core hours", "commit")


def _row(found: Results) -> list[str]:
    cores = sum(arm.core_seconds for arm in found.arms) / 3600
    return [
        found.id,
        found.source,
        *(str(found.count(outcome)) for outcome in OUTCOMES),
        str(found.seeds_asked),
        str(sum(arm.trials for arm in found.arms)),
        f"{cores:.2f}",
        found.circumstances.commit[:7],
    ]


def _details(found: Results, folder: str) -> str:
    first = next(page.parts(found))
    return "\n\n".join(
        [
            f"## {plain(found.title)}",
            f"[{found.id}]({folder}/{found.id}.md), {plain(found.source)}. {plain(page.spent(found))}.",
            table(first.header, first.rows),
            *_claims(found),
        ]
    )


def _claims(found: Results) -> Sequence[str]:
    named = [part for part in page.parts(found) if part.title == "Claims"]
    return [table(part.header, part.rows) for part in named]


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
