"""The site: `make docs` builds it into build/site, where index.html opens without a server."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from sphinx.application import Sphinx

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import pages  # noqa: E402 - it stands beside this file, which Sphinx does not put on the path

project = "Sweeps for long-sequence models"
extensions = ["myst_parser"]
# The parts of results.md are no pages of their own.
exclude_patterns = ["*.ipynb", "experiments/before.md", "experiments/after.md"]
# The pages of kept results stand in no table of contents: results.md names them.
suppress_warnings = ["toc.not_included"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = project
html_extra_path = ["made/plotly.js"]
html_copy_source = False

pages.write(HERE / "made", HERE / "tour.ipynb")


def _inside(app: Sphinx, name: str, source: list[str]) -> None:
    """Replace links to files of the repository outside of the site by their text."""
    up = r"\.\./" * (name.count("/") + 1)
    source[0] = re.sub(rf"\[([^\]]+)\]\({up}[^)]*\)", r"\1", source[0])


def setup(app: Sphinx) -> None:
    """Register the handler of page sources."""
    app.connect("source-read", _inside)
