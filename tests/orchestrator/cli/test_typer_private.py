"""The private interface of Typer by which texts and paths are checked without pydantic."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer._coercion import build_runtime_param

from orchestrator.cli import typer_private


def test_the_checked_version_is_installed() -> None:
    assert version("typer") == typer_private.CHECKED_VERSION


@pytest.fixture(params=[True, False], ids=["light", "typer"])
def _check(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    check = typer_private.LightCheck if request.param else build_runtime_param
    monkeypatch.setitem(vars(typer.core), "build_runtime_param", check)


def run(arguments: list[str], folder: Path) -> Any:
    """Return what a command receives, or the message of its refusal."""
    app, got = typer.Typer(), []

    @app.command()
    def command(
        words: list[str],
        name: str | None = None,
        root: Path = Path("mlruns"),
        of: Annotated[Path | None, typer.Option(exists=True, dir_okay=False)] = None,
        sets: Annotated[list[str] | None, typer.Option("--set")] = None,
        count: int = 3,
        share: Annotated[float, typer.Option(min=0.0)] = 1.0,
        switch: bool = False,
    ) -> None:
        got.extend([words, name, root, of, sets, count, share, switch])

    try:
        app(arguments, standalone_mode=False)
    except typer.TyperException as error:
        return error.format_message()
    return got


@pytest.mark.usefixtures("_check")
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["a"], [["a"], None, Path("mlruns"), None, None, 3, 1.0, False]),
        (["a", "b", "--name", ""], [["a", "b"], "", Path("mlruns"), None, None, 3, 1.0, False]),
        (
            [
                "a",
                "--root",
                "x/y",
                "--set",
                "k=1",
                "--set",
                "l=2",
                "--count",
                "4",
                "--share",
                "2",
                "--switch",
            ],
            [["a"], None, Path("x/y"), None, ["k=1", "l=2"], 4, 2.0, True],
        ),
        (["a", "--count", "many"], "valid integer"),
        (["a", "--share", "-1"], "greater than or equal to 0"),
        (["a", "--of", "missing"], "does not exist"),
        (["a", "--of", "."], "is a directory"),
    ],
)
def test_values_are_those_of_typer(arguments: list[str], expected: Any, tmp_path: Path) -> None:
    got = run(arguments, tmp_path)
    if isinstance(expected, str):
        assert expected in got
    else:
        assert got == expected


def test_no_verb_is_checked_by_pydantic(tmp_path: Path) -> None:
    code = "import sys; from orchestrator.cli.app import run_command; run_command(['list', '--root', 'none'])"
    code += "; print('pydantic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "False", done.stderr
