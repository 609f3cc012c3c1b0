"""`--help` of every verb gives its purpose in one sentence, and an example that the verb accepts."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import pytest
import typer

from orchestrator.cli.app import VERBS, build


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


@pytest.mark.parametrize("verb", COMMANDS)
def test_every_option_is_explained(verb: str) -> None:
    for parameter in COMMANDS[verb].params:
        text = getattr(parameter, "help", None)
        assert text, parameter.name
        assert text[0].isupper(), parameter.name
        assert text.endswith("."), parameter.name
