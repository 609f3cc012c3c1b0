"""Build the client: the distribution for a machine that only submits sweeps and looks at them.

    python release/client.py dist

The wheel has the verbs with `--server`, the modules that they import, and `sweep_client`, by which scripts
report. A module belongs to it if it is reached from the command line or from a verb whose imports need no
other package than those of `VENDORS`.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from orchestrator.cli.app import VERBS

ROOT = Path(__file__).parents[1]
NAME = "rotrnn-sweeps-client"
ENTRY = "orchestrator.sweep"
VENDORS = frozenset({"typer", "rich", "psutil"})
"""Packages that the client requires, each in the versions of the whole distribution."""

REPORTER = ROOT / "orchestrator" / "scripts" / "client" / "sweep_client"


def modules() -> set[str]:
    """Return the names of the modules of the client, packages included."""
    found = _reached(ENTRY)
    for place in VERBS.values():
        reached = _reached(place.partition(":")[0])
        if {vendor for module in reached for vendor in _vendors(module)} <= VENDORS:
            found |= reached
    return found


def _reached(entry: str) -> set[str]:
    """Return a module, what it imports when it is imported, and the packages of all of them."""
    found: set[str] = set()
    waiting = [entry]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            package = [name.rpartition(".")[0]] if "." in name else []
            waiting += [*package, *(each for each in _imports(name) if _source(each) is not None)]
    return found


def _vendors(module: str) -> set[str]:
    outside = {name.partition(".")[0] for name in _imports(module) if _source(name) is None}
    return outside - sys.stdlib_module_names - {"orchestrator", "trainables"}


@cache
def _imports(module: str) -> frozenset[str]:
    source = _source(module)
    assert source is not None, module
    return frozenset(_imported(ast.parse(source.read_text(encoding="utf-8")).body))


def _imported(statements: list[ast.stmt]) -> Iterator[str]:
    """Yield what statements import when a module runs, not in functions and not for type checkers alone."""
    for statement in statements:
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            yield str(statement.module)
            yield from (f"{statement.module}.{alias.name}" for alias in statement.names)
        elif isinstance(statement, ast.If) and ast.unparse(statement.test) != "TYPE_CHECKING":
            yield from _imported([*statement.body, *statement.orelse])


@cache
def _source(module: str) -> Path | None:
    """Return the file of a module of this repository; None for other names."""
    path = ROOT.joinpath(*module.split("."))
    files = (path / "__init__.py", path.with_suffix(".py"))
    return next((file for file in files if file.is_file()), None)


def write_sources(folder: Path) -> None:
    """Write the sources of the client into an empty folder, with its `pyproject.toml`."""
    chosen = modules()
    for name in chosen:
        source = _source(name)
        assert source is not None, name
        target = folder / source.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    shutil.copytree(REPORTER, folder / REPORTER.name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "LICENSE", folder)
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = whole["project"]
    required = [line for line in project["dependencies"] if re.split(r"[^\w.-]", line)[0] in VENDORS]
    packages = sorted(name for name in chosen if (folder.joinpath(*name.split(".")) / "__init__.py").exists())
    sections = {
        "build-system": whole["build-system"],
        "project": {
            "name": NAME,
            "version": project["version"],
            "description": "Submit sweeps to a service and look at them from another machine.",
            "license": project["license"],
            "requires-python": project["requires-python"],
            "dependencies": required,
        },
        "project.scripts": project["scripts"],
        "tool.setuptools": {"packages": [*packages, REPORTER.name]},
    }
    lines = [
        line
        for section, values in sections.items()
        for line in (f"[{section}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items()))
    ]
    (folder / "pyproject.toml").write_text("\n".join([*lines, ""]), encoding="utf-8")


def main(folder: str) -> None:
    """Build the wheel into a folder."""
    with tempfile.TemporaryDirectory() as sources:
        write_sources(Path(sources))
        build = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", folder]
        subprocess.run([sys.executable, "-m", "pip", *build, sources], check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
