"""The pages of the site that are made from the code, and the tour from its notebook.

What stands in the code is written nowhere else: the verbs come from Typer's help, the keys from the JSON
Schema, so neither can be out of date.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import plotly.offline
import typer
from typer.cli import get_docs_for_click
from typer.main import get_command

from orchestrator.cli.app import VERBS, build
from orchestrator.config.json_schema import schema

_PLOTLY = "application/vnd.plotly.v1+json"


def write(folder: Path, notebook: Path) -> None:
    """Write the made pages into a folder."""
    folder.mkdir(exist_ok=True)
    pages = {
        "verbs.md": verbs(),
        "keys.md": keys(schema()),
        "tour.md": tour(notebook),
        "plotly.js": plotly.offline.get_plotlyjs(),
    }
    for name, content in pages.items():
        (folder / name).write_text(content, encoding="utf-8")


def verbs() -> str:
    """Return every verb with its arguments and options, as `--help` tells them."""
    command = get_command(build(VERBS))
    return get_docs_for_click(obj=command, ctx=typer.Context(command), name="sweep", title="Every verb")


def keys(document: Mapping[str, Any]) -> str:
    """Return every key of a search-space file with its type, its default and what it means."""
    lines = [
        "# Every key of a search-space file",
        "Made from `search_spaces/schema.json`, which also completes and checks a file in an editor.",
    ]
    for name, section in document["properties"].items():
        required = " (must be given)" if name in document["required"] else ""
        words = f"{_described(section, document)}{_choices(section)}"
        lines += [f"## `{name}`{required}", words, *_table(section, document)]
    return "\n\n".join(line for line in lines if line) + "\n"


def _described(section: Mapping[str, Any], document: Mapping[str, Any]) -> str:
    parts = [str(section.get("description") or _resolved(section, document).get("description", ""))]
    if section.get("examples"):
        parts.append(f"For example `{json.dumps(section['examples'][0])}`.")
    return " ".join(parts)


def _choices(section: Mapping[str, Any]) -> str:
    choices = section.get("enum")
    return f" One of {', '.join(f'`{choice}`' for choice in choices)}." if choices else ""


def _table(section: Mapping[str, Any], document: Mapping[str, Any]) -> list[str]:
    rows = [
        f"| `{name}` | {_kind(entry, document)} | {_default(entry)} | {_cell(_described(entry, document))} |"
        for name, entry in _resolved(section, document).get("properties", {}).items()
    ]
    return (
        ["\n".join(["| key | type | left out | what |", "| --- | --- | --- | --- |", *rows])] if rows else []
    )


def _resolved(entry: Mapping[str, Any], document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what an entry refers to, the first alternative that has keys if there are several."""
    if "$ref" in entry:
        return dict(document["$defs"][entry["$ref"].rpartition("/")[2]])
    for other in entry.get("anyOf", []):
        if (target := _resolved(other, document)).get("properties"):
            return target
    return entry


def _kind(entry: Mapping[str, Any], document: Mapping[str, Any]) -> str:
    names = list(dict.fromkeys(_kinds(entry, document)))
    return " or ".join(name for name in names if name != "null")


def _kinds(entry: Mapping[str, Any], document: Mapping[str, Any]) -> Iterator[str]:
    if "anyOf" in entry:
        for other in entry["anyOf"]:
            yield from _kinds(other, document)
    elif "$ref" in entry:
        yield "expression" if entry["$ref"].endswith("Expression") else "mapping"
    elif "enum" in entry:
        yield "one of " + ", ".join(f"`{choice}`" for choice in entry["enum"])
    elif isinstance(entry.get("type"), str):
        yield {"object": "mapping", "array": "list", "string": "text"}.get(entry["type"], entry["type"])


def _default(entry: Mapping[str, Any]) -> str:
    return "" if entry.get("default") is None else f"`{json.dumps(entry['default'])}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def tour(notebook: Path) -> str:
    """Return an executed notebook as a page, its outputs as they were stored."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    parts = []
    for number, cell in enumerate(cells):
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        else:
            parts.append(f"```python\n{source}\n```")
            parts += [_output(output, f"figure-{number}") for output in cell["outputs"]]
    # Behind the title, which must stand first.
    return "\n\n".join([parts[0], _raw('<script src="../plotly.js"></script>'), *parts[1:]]) + "\n"


def _output(output: Mapping[str, Any], place: str) -> str:
    if output["output_type"] == "stream":
        return f"```text\n{''.join(output['text']).rstrip()}\n```"
    data = output["data"]
    if _PLOTLY in data:
        figure = {name: data[_PLOTLY][name] for name in ("data", "layout")}
        shown = json.dumps(figure).replace("</", "<\\/")
        return _raw(f'<div id="{place}"></div><script>Plotly.newPlot("{place}", {shown})</script>')
    if "text/html" in data:
        return _raw("".join(data["text/html"]))
    return _raw(f"<pre>{html.escape(''.join(data['text/plain']))}</pre>")


def _raw(content: str) -> str:
    return f"```{{raw}} html\n{content}\n```"
