"""The commands that the README and the pages show exist; the cheap ones are run."""

from __future__ import annotations

import doctest
import re
import shlex
from pathlib import Path

import pytest
import typer

import orchestrator
from orchestrator.cli.app import VERBS, build, run_command
from tests import sweeps

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES += [ROOT / "examples" / "README.md", *sorted((ROOT / "docs" / "how-to").glob("*.md"))]
LONGEST_HOW_TO = 80
"""Maximum number of lines of a page that says how to do one thing."""

COMMANDS = {
    (page.name, command.strip())
    for page in PAGES
    for command in re.findall(r"python -m orchestrator\.sweep ([^\n`]+)", page.read_text(encoding="utf-8"))
}
TESTS = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in (ROOT / "tests").rglob("test_*.py")
}
"""The source of every test file."""

TRIAL = f"{sweeps.SWEEP_ID}-7"
RUN = {
    "list": [],
    "status": ["retrieval"],
    "show": [TRIAL],
    "report": ["retrieval"],
    "compare": ["retrieval"],
    "replay": ["retrieval"],
    "check": ["retrieval"],
    "validate": [str(ROOT / "search_spaces" / "listops.yaml")],
    "export": [TRIAL, "--to", "{folder}/export"],
    "export-study": ["retrieval", "{folder}/study.db"],
    "export-tensorboard": ["retrieval", "{folder}/tensorboard"],
}
"""Verbs that are run here, with their arguments; those that train, serve or wait are run by other tests."""


def _verbs(command: str) -> list[str]:
    """Return the verbs that a line shows: `resume | stop | status SWEEP` shows three."""
    words = [part.split()[0] for part in command.partition("#")[0].split("|") if part.strip()]
    return [
        word for word in words if not word.startswith(("-", "[")) and "." not in word and not word.isupper()
    ]


@pytest.mark.parametrize(("page", "command"), sorted(COMMANDS))
def test_a_shown_command_exists(page: str, command: str) -> None:
    """Its verb is known, and so is each of its long options."""
    for verb in _verbs(command):
        assert verb in VERBS, f"{page}: {command}"
    shown = set(re.findall(r"--[a-z][a-z-]+", command.partition("#")[0])) - {"--help"}
    known = {option for source in (ROOT / "orchestrator" / "cli").glob("*.py") for option in _options(source)}
    assert shown <= known, f"{page}: {command}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_named_test_exists(page: Path) -> None:
    """A page names a test by the end of its file's path, or after another one of the same file."""
    file = ""
    for named, test in re.findall(r"`([\w/.]*)::(test_\w+)", page.read_text(encoding="utf-8")):
        file = named or file
        sources = [text for path, text in TESTS.items() if f"/{path}".endswith(f"/{file}")]
        assert any(f"def {test}(" in text for text in sources), f"{file}::{test}"


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.parent.name == "how-to"], ids=lambda page: page.name
)
def test_a_page_that_says_how_to_do_something_is_short(page: Path) -> None:
    assert len(page.read_text(encoding="utf-8").splitlines()) <= LONGEST_HOW_TO


def test_the_list_of_pages_for_agents_is_complete() -> None:
    """docs/llms.txt links existing files, and every page that says how to do something."""
    docs = ROOT / "docs"
    linked = set(re.findall(r"\]\(([^)]+)\)", (docs / "llms.txt").read_text(encoding="utf-8")))
    assert {name for name in linked if not (docs / name).is_file()} == set()
    assert {f"how-to/{page.name}" for page in (docs / "how-to").glob("*.md")} <= linked


def _options(source: Path) -> set[str]:
    text = source.read_text(encoding="utf-8")
    named = set(re.findall(r"\"(--[a-z][a-z-]+)\"", text))
    return named | {f"--{name}" for name in re.findall(r"^    ([a-z_]+): .*=", text, re.MULTILINE)}


@pytest.mark.parametrize(
    "target", sorted(set(re.findall(r"(?<=[`\n ])make ([a-z-]+)", PAGES[0].read_text())))
)
def test_a_shown_target_is_one_of_the_makefile(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a root whose ledger holds a sweep."""
    return sweeps.filled(tmp_path_factory.mktemp("readme") / "mlruns").root


@pytest.mark.parametrize("verb", RUN)
def test_a_cheap_verb_runs(root: Path, tmp_path: Path, verb: str) -> None:
    arguments = [argument.format(folder=tmp_path) for argument in RUN[verb]]
    options = [] if verb == "validate" else ["--root", str(root)]
    # The stored checkpoints are stubs, which `check` finds.
    assert run_command([verb, *arguments, *options]) == (1 if verb == "check" else 0), shlex.join(
        [verb, *arguments]
    )


def test_the_doctests_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    results = doctest.testmod(orchestrator, optionflags=doctest.ELLIPSIS)
    assert results.attempted
    assert not results.failed


def test_documented_variables_exist_and_those_of_options_are_documented() -> None:
    """A variable in a page is read or set by the code; one that `--help` shows is in a page."""
    documented = set(re.findall(r"SWEEP_[A-Z_]*[A-Z]", "".join(page.read_text("utf-8") for page in PAGES)))
    files = [path for path in (ROOT / "orchestrator").rglob("*.py") if "migrations" not in path.parts]
    used = set(re.findall(r"SWEEP_[A-Z_]*[A-Z]", "".join(path.read_text("utf-8") for path in files)))
    hyperparameters = {name for name in documented if name.startswith("SWEEP_PARAM_")}
    assert documented - hyperparameters <= used
    group = typer.main.get_command(build(VERBS))
    options = [option for command in group.commands.values() for option in command.params]  # type: ignore[attr-defined]
    assert {str(option.envvar) for option in options if option.envvar} <= documented
