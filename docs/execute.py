"""Execute the tour anew: `python docs/execute.py [COPY]`; the notebook is replaced if no copy is named."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

TOUR = Path(__file__).with_name("tour.ipynb")
_MIME = ("text/plain", "text/html", "application/vnd.plotly.v1+json")


def executed(source: Path) -> nbformat.NotebookNode:
    """Return a notebook with the outputs of a run, without what differs from run to run or takes room.

    Raises:
        nbclient.exceptions.CellExecutionError: if a cell raises.
    """
    # Plotly's other renderers store a copy of its library with every figure.
    os.environ["PLOTLY_RENDERER"] = "plotly_mimetype"
    notebook = nbformat.read(source, as_version=4)
    NotebookClient(notebook, timeout=1200, resources={"metadata": {"path": str(source.parent)}}).execute()
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = [_plain(output) for output in cell.outputs if _is_kept(output)]
    notebook.metadata.pop("language_info", None)
    return notebook


def _is_kept(output: nbformat.NotebookNode) -> bool:
    """Tell whether an output says something: not a log, and not the console of a quiet run."""
    if output.output_type == "stream":
        return output.name == "stdout"
    return "text/html" not in output.data or bool(output.data["text/html"].strip())


def _plain(output: nbformat.NotebookNode) -> nbformat.NotebookNode:
    if "data" in output:
        output.data = {name: value for name, value in output.data.items() if name in _MIME}
        if "application/vnd.plotly.v1+json" in output.data:
            output.data.pop("text/html", None)
            output.data["text/plain"] = "Figure"
    return output


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else TOUR
    nbformat.write(executed(TOUR), target)
