"""Packages laid out in a folder as pip installs them, for the tests of entry points."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def installed(
    folder: Path,
    entry_points: Mapping[str, Mapping[str, str]],
    modules: Mapping[str, str],
    name: str,
) -> Path:
    """Write the modules of a package, by path, and its entry points, by group and name; return the folder."""
    for path, content in modules.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(content)
    about = folder / f"{name}-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [
        line
        for group, points in entry_points.items()
        for line in (f"[{group}]", *(f"{point} = {value}" for point, value in points.items()))
    ]
    (about / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return folder
