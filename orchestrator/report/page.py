"""One HTML file that opens offline: texts, tables and pictures, with plotly.js inside it once."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
"""Nothing is ever fetched, whatever a text in the report might say."""

_STYLE = """
:root { font: 15px/1.5 system-ui, sans-serif; color: #1c1e21; background: #f4f5f7; }
body { margin: 0 auto; max-width: 1180px; padding: 1.5rem; }
h1 { font-size: 1.5rem; margin: 0 0 .2rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 0 0 .3rem; }
section { background: #fff; border: 1px solid #e1e4e8; border-radius: 8px; }
section { padding: 1rem 1.2rem; margin: 1rem 0; }
.caption { color: #57606a; margin: 0 0 .6rem; }
.cards { display: flex; flex-wrap: wrap; gap: .8rem; margin: 1rem 0 .6rem; }
.card { flex: 1 1 150px; border: 1px solid #e1e4e8; border-radius: 8px; padding: .6rem .8rem; }
.card b { display: block; font-size: 1.45rem; font-variant-numeric: tabular-nums; }
.card span { color: #57606a; font-size: .85rem; }
.warn { border-left: 4px solid #d55e00; padding: .2rem .8rem; background: #fff6ef; margin: .4rem 0; }
.scroll { overflow: auto; max-height: 480px; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; width: 100%; }
th, td { text-align: right; padding: .25rem .6rem; border-bottom: 1px solid #eaecef; white-space: nowrap; }
th { position: sticky; top: 0; background: #fff; cursor: pointer; }
table.texts th, table.texts td { text-align: left; white-space: normal; overflow-wrap: anywhere; }
table { margin-bottom: .8rem; }
tr.chosen td { background: #fff1e6; font-weight: 600; }
tr.pruned td, tr.failed td { color: #6e7781; }
pre { background: #f6f8fa; border-radius: 6px; padding: .8rem; overflow: auto; max-height: 420px; }
.plot { width: 100%; }
nav a { margin-right: .9rem; white-space: nowrap; }
@media print { section { break-inside: avoid; } .scroll { max-height: none; } }
"""

_SCRIPT = """
document.querySelectorAll('table.sortable th').forEach(header => header.addEventListener('click', () => {
  const body = header.closest('table').tBodies[0], column = header.cellIndex;
  const up = header.dataset.up !== '1';
  header.dataset.up = up ? '1' : '0';
  const key = row => { const text = row.cells[column].dataset.v ?? row.cells[column].textContent;
    const number = parseFloat(text); return text === '' ? null : isNaN(number) ? text : number; };
  [...body.rows].sort((a, b) => { const x = key(a), y = key(b);
    if (x === null || y === null) return (x === null) - (y === null);
    return (x < y ? -1 : x > y ? 1 : 0) * (up ? 1 : -1); }).forEach(row => body.append(row));
}));
const waiting = [...document.querySelectorAll('.plot')];
function drawNext() {
  const place = waiting.shift();
  if (!place) { document.body.dataset.drawn = 'yes'; return; }
  const figure = JSON.parse(document.getElementById(place.dataset.figure).textContent);
  Plotly.newPlot(place, figure.data, figure.layout, {responsive: true, displaylogo: false})
    .then(() => setTimeout(drawNext, 0));
}
setTimeout(drawNext, 0);
"""


@dataclass(frozen=True)
class Section:
    """One block of a page.

    Attributes:
        title: its heading.
        caption: one sentence on what is shown, as text.
        body: HTML, already escaped.
        figures: pictures below the body.
    """

    title: str
    caption: str = ""
    body: str = ""
    figures: tuple[go.Figure, ...] = ()


def page(title: str, lead: str, sections: Sequence[Section]) -> str:
    """Return a whole page.

    Args:
        title: heading of the page, as text.
        lead: HTML of the first block, already escaped.
        sections: what follows, linked to from the top.
    """
    links = " ".join(f'<a href="#{_anchor(each.title)}">{html.escape(each.title)}</a>' for each in sections)
    blocks = "\n".join(_block(each, index) for index, each in enumerate(sections))
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)}</title><style>{_STYLE}</style></head>
<body><section><h1>{html.escape(title)}</h1>{lead}<nav>{links}</nav></section>
{blocks}
<script>{get_plotlyjs()}</script><script>{_SCRIPT}</script>
</body></html>
"""


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[tuple[str, object]]],
    classes: Sequence[str] = (),
    *,
    texts: bool = False,
) -> str:
    """Return a table that sorts by a click on a heading.

    Args:
        header: the headings.
        rows: cells as (text, value to sort by).
        classes: a CSS class for each row.
        texts: whether the cells are to be read rather than compared.
    """
    head = "".join(f"<th>{html.escape(name)}</th>" for name in header)
    lines = []
    for index, row in enumerate(rows):
        cells = "".join(f'<td data-v="{_sortable(value)}">{html.escape(text)}</td>' for text, value in row)
        lines.append(f'<tr class="{classes[index] if classes else ""}">{cells}</tr>')
    body = "".join(lines)
    kind = "sortable texts" if texts else "sortable"
    return (
        f'<div class="scroll"><table class="{kind}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def cards(items: Sequence[tuple[str, str]]) -> str:
    """Return a row of large numbers, each with what it is below."""
    inner = "".join(
        f'<div class="card"><b>{html.escape(value)}</b><span>{html.escape(name)}</span></div>'
        for name, value in items
    )
    return f'<div class="cards">{inner}</div>'


def _sortable(value: object) -> str:
    return "" if value is None else html.escape(str(value))


def _block(section: Section, index: int) -> str:
    caption = f'<p class="caption">{html.escape(section.caption)}</p>' if section.caption else ""
    plots = "".join(_plot(figure, f"figure-{index}-{n}") for n, figure in enumerate(section.figures))
    title = html.escape(section.title)
    return f'<section id="{_anchor(section.title)}"><h2>{title}</h2>{caption}{section.body}{plots}</section>'


def _plot(figure: go.Figure, name: str) -> str:
    # A `</script>` inside a text would end the element; the escape means the same to JSON.
    content = str(figure.to_json()).replace("<", "\\u003c")
    return (
        f'<div class="plot" data-figure="{name}" style="min-height:{figure.layout.height}px"></div>'
        f'<script type="application/json" id="{name}">{content}</script>'
    )


def _anchor(title: str) -> str:
    return re.sub(r"\W+", "-", title.lower()).strip("-")
