"""Imports point one way, without cycles, and few modules import a vendor."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
PACKAGES = ("orchestrator", "trainables")
DOORS = {
    "optuna": ("orchestrator/study/", "orchestrator/report/analysis.py"),
    "ray": ("orchestrator/schedule/",),
    "mlflow": ("orchestrator/tracking/",),
    "sqlalchemy": ("orchestrator/ledger/", "orchestrator/upkeep/recovery.py"),
    "alembic": ("orchestrator/ledger/",),
    "rich": ("orchestrator/cli/", "orchestrator/console.py", "orchestrator/report/terminal.py"),
    "typer": ("orchestrator/cli/",),
    "tqdm": ("orchestrator/api/local_sweep.py",),
    "ruamel": ("orchestrator/config/yaml_reader.py",),
    "fastapi": ("orchestrator/web/",),
    "starlette": ("orchestrator/web/",),
    "uvicorn": ("orchestrator/web/",),
    "prometheus_client": ("orchestrator/web/",),
    "authlib": ("orchestrator/web/identity_provider.py",),
    "joserfc": ("orchestrator/web/identity_provider.py",),
    "httpx2": ("orchestrator/web/identity_provider.py",),
    "mcp": ("orchestrator/client/agent_tools.py",),
    "fsspec": ("orchestrator/storage/store.py",),
    "jax": ("trainables/", "orchestrator/training/engine_cache.py"),
    "flax": ("trainables/",),
    "optax": ("trainables/",),
}
RAY_PRIVATE = "orchestrator/schedule/ray_private.py"
HIDDEN = {
    "orchestrator/api/known_sources.py",
    "orchestrator/api/loaded_sweep.py",
    "orchestrator/api/planning.py",
    "orchestrator/api/local_trial.py",
    "orchestrator/cli/mcp_verb.py",
    "orchestrator/cli/options.py",
    "orchestrator/cli/replay_verb.py",
    "orchestrator/cli/result_verbs.py",
    "orchestrator/cli/serve.py",
    "orchestrator/cli/sweep_verbs.py",
    "orchestrator/cli/validate_verb.py",
    "orchestrator/driver/preflight.py",
    "orchestrator/driver/publication.py",
    "orchestrator/driver/run.py",
    "orchestrator/tracking/served.py",
    "orchestrator/training/costs.py",
    "orchestrator/training/engine_cache.py",
    "orchestrator/web/agent_route.py",
    "orchestrator/web/limited_process.py",
    "trainables/data/task.py",
}
"""Modules with an own import inside a function, which keeps a vendor out of some processes."""

WITHOUT_JAX = (
    "trainables/settings.py",
    "trainables/trial.py",
    "trainables/errors.py",
    "trainables/cost.py",
    "trainables/checkpoint.py",
    "trainables/durable.py",
    "trainables/data/",
    "trainables/tasks/",
)


def _files() -> list[Path]:
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _name(path: Path) -> str:
    relative = path.relative_to(ROOT).with_suffix("")
    parts = relative.parts[:-1] if relative.name == "__init__" else relative.parts
    return ".".join(parts)


def _own_imports_at_the_top(path: Path, modules: set[str]) -> set[str]:
    tree = _tree(path)
    imported: set[str] = set()
    for node in tree.body:
        names = list(_imports(node)) if isinstance(node, ast.Import | ast.ImportFrom) else []
        submodules = {name for name in names[1:] if name in modules}
        # `from package import module` needs the module; it needs the package only if that defines the name.
        imported |= (
            submodules
            if len(submodules) == len(names) - 1 > 0
            else {name for name in names if name in modules}
        )
    return imported - {_name(path)}


def test_imports_of_vendors() -> None:
    """Only the named modules import a vendor."""
    for path in _files():
        relative = str(path.relative_to(ROOT))
        used = {name.split(".")[0] for name in _imports(_tree(path))}
        for vendor in used & DOORS.keys():
            assert relative.startswith(DOORS[vendor]), f"{relative} imports {vendor}"
        if relative.startswith(WITHOUT_JAX):
            assert not used & {"jax", "flax", "optax"}, f"{relative} must stay free of JAX"


def test_private_interfaces_of_ray_are_in_one_file() -> None:
    """No other file imports a private or generated module of Ray, or a private name."""
    for path in _files():
        if str(path.relative_to(ROOT)) != RAY_PRIVATE:
            names = [name for name in _imports(_tree(path)) if name.split(".")[0] == "ray"]
            private = [name for name in names if re.search(r"\._|\.internal_kv|\.generated", name)]
            assert not private, f"{path} imports {private}"


def test_science_does_not_know_the_service() -> None:
    """`trainables` never imports `orchestrator`."""
    for path in (ROOT / "trainables").rglob("*.py"):
        assert not any(name.startswith("orchestrator") for name in _imports(_tree(path))), path


def test_own_imports_are_at_the_top() -> None:
    """The only own imports inside functions are one in each listed module."""
    hidden = [
        str(path.relative_to(ROOT))
        for path in _files()
        for function in ast.walk(_tree(path))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for statement in ast.walk(function)
        if isinstance(statement, ast.Import | ast.ImportFrom)
        if any(name.split(".")[0] in PACKAGES for name in _imports(statement))
    ]
    assert sorted(hidden) == sorted(HIDDEN)


def test_a_driver_imports_no_jax() -> None:
    """JAX in a driver would take memory of the GPU that its trials use."""
    code = "import sys; import orchestrator.driver.execution; print({'jax', 'flax'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_worker_imports_nothing_that_reads_files() -> None:
    """Sixteen slots have as many workers: each of them starts before its trial can."""
    unwanted = {"jax", "optuna", "sqlalchemy", "orchestrator.config"}
    code = f"import sys; import orchestrator.schedule.worker; print({unwanted} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_verb_of_a_remote_service_imports_no_local_backend() -> None:
    """`list --server URL` needs neither the supervision of this machine nor figures."""
    unwanted = {"orchestrator.api.local", "orchestrator.service", "orchestrator.upkeep", "scipy", "tqdm"}
    code = f"import sys; import orchestrator.cli.look; print({unwanted} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def _table() -> dict[str, set[str]]:
    """Return which folders each folder of the service imports, according to the page of the architecture."""
    rows = re.findall(r"^\| `orchestrator/(\w+)/` \|[^|]*\|[^|]*\|([^|]*)\|", PAGE.read_text(), flags=re.M)
    table: dict[str, set[str]] = {}
    for folder, cell in rows:
        named = set(re.findall(r"\w+", cell)) - {"nothing"}
        table[folder] = set(table) if named == {"all", "above"} else named
    return table


def _named_in_strings(tree: ast.AST) -> Iterator[str]:
    """Yield the modules of the service that strings name, for `import_module` or `python -m`."""
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and re.fullmatch(r"orchestrator(\.\w+)+", text) and _is_module(text):
            yield text


def _is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def _folders_imported(folder: str) -> set[str]:
    """Return the other folders of the service that a folder imports, anywhere in its modules.

    Modules that a string names count too, except for the extension points of the file (`module:name`).
    """
    files = list((ROOT / "orchestrator" / folder).rglob("*.py"))
    names = {name for path in files for name in _imports(_tree(path))}
    names |= {name for path in files for name in _named_in_strings(_tree(path))}
    parts = [name.split(".") for name in names if name.startswith("orchestrator.")]
    return {part[1] for part in parts if (ROOT / "orchestrator" / part[1]).is_dir()} - {folder}


def test_every_folder_has_its_row() -> None:
    """The page names all folders of the service, each below those that it imports."""
    table = _table()
    folders = {path.name for path in (ROOT / "orchestrator").iterdir() if (path / "__init__.py").exists()}
    assert set(table) == folders
    order = list(table)
    for folder, imported in table.items():
        assert imported <= set(order[: order.index(folder)]), f"{folder} imports a folder below it"


@pytest.mark.parametrize("folder", _table())
def test_folders_import_what_their_row_says(folder: str) -> None:
    """A folder imports no others than its row names; except for `driver` and `api`, it imports them all."""
    allowed, imported = _table()[folder], _folders_imported(folder)
    assert imported <= allowed
    assert allowed == imported or folder in {"driver", "api"}


def test_nothing_imports_an_entry_point() -> None:
    """Only the command line names the module that starts it; a service starts drivers by their own one."""
    named = {path: {*_imports(_tree(path)), *_named_in_strings(_tree(path))} for path in _files()}
    for path, names in named.items():
        assert not any(name.endswith("__main__") for name in names), path
        assert "orchestrator.sweep" not in names or path.parts[-2] == "cli", path
        assert "orchestrator.driver" not in names & set(_named_in_strings(_tree(path))) or (
            path == ROOT / "orchestrator" / "driver" / "prewarmed.py"
        ), path


def test_no_import_cycles() -> None:
    """The imports at the top of our modules form no cycle."""
    modules = {_name(path) for path in _files()}
    graph = {_name(path): _own_imports_at_the_top(path, modules) for path in _files()}
    done: set[str] = set()

    def visit(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, " -> ".join((*trail[trail.index(module) :], module))
        if module not in done:
            for imported in graph[module]:
                visit(imported, (*trail, module))
            done.add(module)

    for module in graph:
        visit(module, ())


def test_no_module_has_a_vague_name() -> None:
    """No module has a name that does not describe its contents."""
    for path in _files():
        assert path.stem not in {"utils", "helpers", "common", "misc", "manager"}, path


def test_benchmarks_are_modules_of_one_package() -> None:
    """Benchmarks import one another by `benchmarks.NAME`; texts start them by `python -m benchmarks.NAME`."""
    folder = ROOT / "benchmarks"
    files = sorted(folder.rglob("*.py"))
    beside = {path.stem for path in files}
    for path in files:
        imported = {name.partition(".")[0] for name in _imports(_tree(path))}
        assert not imported & beside, path
    texts = [*files, *(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    by_path = [path for path in texts if "python benchmarks/" in path.read_text()]
    assert not by_path


def test_the_files_to_read_first_exist() -> None:
    """The page names ten files, and no file that was moved since."""
    named = re.findall(r"^\d+\. `([^`]+)`", (ROOT / "docs" / "reading.md").read_text(), re.MULTILINE)
    assert len(named) == 10
    assert [name for name in named if not (ROOT / name).is_file()] == []


def _duplicates(names: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the names that stand for several things, each with the places that define it."""
    places: dict[str, list[str]] = {}
    for name, place in names:
        places.setdefault(name, []).append(place)
    return {name: found for name, found in sorted(places.items()) if len(found) > 1}


def test_a_class_name_stands_for_one_thing() -> None:
    """No two modules of the service define classes of one name, private ones included.

    The client of scripts is a distribution of its own, which imports nothing of the service.
    """
    files = [
        path
        for path in sorted((ROOT / "orchestrator").rglob("*.py"))
        if "client/sweep_client" not in path.as_posix()
    ]
    classes = (
        (node.name, str(path.relative_to(ROOT)))
        for path in files
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.ClassDef)
    )
    assert _duplicates(classes) == {}


def test_a_module_name_stands_for_one_thing() -> None:
    """No two modules of the service have one name, except for those that Python prescribes."""
    files = sorted((ROOT / "orchestrator").rglob("*.py"))
    modules = (
        (path.stem, str(path.relative_to(ROOT)))
        for path in files
        if path.stem not in {"__init__", "__main__"} and "files" not in path.relative_to(ROOT).parts
    )
    assert _duplicates(modules) == {}
