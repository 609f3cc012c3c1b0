"""`--help` of every verb gives its purpose in one sentence, and an example that the verb accepts."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from orchestrator.cli.app import VERBS, _check_verb, build, run_command


def _commands() -> Iterator[tuple[str, typer.core.TyperCommand]]:
    """Yield every verb, such as `data list`, with its command."""
    group = typer.main.get_command(build(VERBS))
    for verb, command in group.commands.items():  # type: ignore[attr-defined]
        nested = getattr(command, "commands", None)
        yield from (
            ((f"{verb} {name}", below) for name, below in nested.items()) if nested else [(verb, command)]
        )


COMMANDS = dict(_commands())


@pytest.mark.parametrize("verb", COMMANDS)
def test_the_purpose_is_one_sentence(verb: str) -> None:
    purpose = (COMMANDS[verb].help or "").partition("\n\n")[0]
    assert re.fullmatch(r"[A-Z][^.]*(\.\w[^.]*)*\.", purpose.replace("\n", " ")), purpose


@pytest.mark.parametrize("verb", COMMANDS)
def test_the_example_is_accepted(verb: str) -> None:
    """The words of each example are parsed, and the verb is not run."""
    examples = (COMMANDS[verb].help or "").partition("Example:\n\n")[2].splitlines()
    assert examples
    for example in examples:
        words = shlex.split(example)
        length = len(verb.split())
        assert words[: 1 + length] == ["sweep", *verb.split()]
        COMMANDS[verb].make_context(verb, words[1 + length :])


WITHOUT_JSON = {
    **dict.fromkeys(("run", "resume", "retry-failed", "follow", "experiment"), "follows a sweep"),
    **dict.fromkeys(("serve", "ui", "mcp"), "is a server"),
    **dict.fromkeys(("init", "import"), "writes files for people"),
    **dict.fromkeys(
        ("recover", "mlflow rebuild", "data fetch"), "prints a line for each step while it works"
    ),
}
"""Verbs without `--json`, and why."""


@pytest.mark.parametrize("verb", COMMANDS)
def test_every_verb_that_answers_has_json(verb: str) -> None:
    names = {name for parameter in COMMANDS[verb].params for name in parameter.opts}
    assert ("--json" in names) is (verb not in WITHOUT_JSON)


@pytest.mark.parametrize("verb", COMMANDS)
def test_every_option_is_explained(verb: str) -> None:
    for parameter in COMMANDS[verb].params:
        text = getattr(parameter, "help", None)
        assert text, parameter.name
        assert text[0].isupper(), parameter.name
        assert re.fullmatch(r".*\.( \[(env|default): [^\]]+\])?", text), parameter.name


@pytest.mark.parametrize("verb", ["", *COMMANDS])
def test_values_have_names_and_switches_have_none(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Typer would write `<bool>` beside each switch."""
    assert run_command([*verb.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    assert "--help" in shown
    assert not re.search(r"<\w+", shown)


def test_help_lists_no_verb_that_only_the_service_calls(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["--help"]) == 0
    listed = {line.split()[1] for line in capsys.readouterr().out.splitlines() if line.startswith("│ ")}
    assert {"run", "list", "data"} <= listed
    assert "drive" not in listed


def test_version_prints_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["--version"]) == 0
    assert re.fullmatch(r"sweep \d+\.\d+\.\d+\n", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (["lits"], "Did you mean `list`?"),
        (["statsu", "retrieval"], "Did you mean `status`?"),
        (["vaildate", "space.yaml"], "Did you mean `validate`?"),
        (["data", "lst"], "Did you mean 'list'?"),
        (["status", "--jsn"], "--json"),
        (["run", "space.yaml", "--profil", "full"], "--profile"),
        (["nosuch.yaml"], "does not exist"),
    ],
)
def test_what_was_misspelt_is_suggested(
    words: list[str], remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(words) == 2
    assert remedy in capsys.readouterr().err


def test_a_file_may_have_a_name_like_a_verb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lits").write_text("")
    _check_verb(["lits"])
    _check_verb(["my-space.yaml"])


def test_the_list_of_verbs_is_read_from_their_modules(capsys: pytest.CaptureFixture[str]) -> None:
    """`--help` imports no verb, and prints the lines that it would print with them, in the table's order."""
    assert run_command(["--help"]) == 0
    shown = capsys.readouterr().out
    build(VERBS)(["--help"], prog_name="sweep", standalone_mode=False)
    assert sorted(capsys.readouterr().out.splitlines()) == sorted(shown.splitlines())
