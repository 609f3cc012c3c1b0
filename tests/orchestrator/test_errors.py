"""Secrets alone are removed from texts; an outage and a mistake have different exit codes."""

from __future__ import annotations

import sys

import pytest

from orchestrator import provenance
from orchestrator.errors import (
    BadInput,
    Busy,
    Damaged,
    Exit,
    NoCluster,
    NoDatabase,
    NoServer,
    NoSpace,
    NoStore,
    Refusal,
    exit_of,
)
from orchestrator.process_secrets import redacted


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("postgresql://me:canary@host:5432/x failed", "postgresql://host:5432/x failed"),
        ("http://canary@host", "http://host"),
        ("http://me:can@ary@host/a@b", "http://host/a@b"),
        ("two: a://u:canary@b, c://u:canary@d", "two: a://b, c://d"),
        ("write to me@example.org, see http://host/x", "write to me@example.org, see http://host/x"),
    ],
)
def test_addresses(text: str, kept: str) -> None:
    assert redacted(text) == kept


def test_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable's name makes its value a secret, unless the value is a path or too short."""
    for name, value in {
        "SOME_API_KEY": "canary-of-a-key",
        "DB_PASSWORD": "canary-of-a-database",
        "AWS_SECRET_ACCESS_KEY": "/canary+in/base64",
        "GOOGLE_CREDENTIALS": sys.executable,
        "RAY_AUTH_TOKEN_PATH": "/etc/token",
        "TOKEN_KIND": "jwt",
        "KEYBOARD": "a-long-word",
    }.items():
        monkeypatch.setenv(name, value)
    kept = f"/etc/token {sys.executable} jwt a-long-word"
    assert redacted(f"canary-of-a-key canary-of-a-database /canary+in/base64 {kept}") == f"*** *** *** {kept}"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TOKENIZER", "bert-base-uncased"),
        ("HF_TOKENIZER_NAME", "bert-base-uncased"),
        ("TOKENIZERS_PARALLELISM", "a-long-word"),
        ("MAX_TOKENS", "a-long-word"),
        ("MAX_NEW_TOKENS", "a-long-word"),
        ("SPECIAL_TOKENS", "<pad>,<eos>,<mask>"),
        ("PRIMARY_KEY", "identifier"),
        ("SORT_KEY", "validation_loss"),
        ("MONKEY", "a-long-word"),
        ("BYPASS", "a-long-word"),
        ("API_KEY", "0.000001"),
        ("GITHUB_TOKENS_PER_DAY", "100000"),
    ],
)
def test_what_is_no_secret_is_not_replaced(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    """A setting whose name holds a word such as TOKEN or KEY, or a number."""
    monkeypatch.setenv(name, value)
    assert redacted(f"model = {value}") == f"model = {value}"


@pytest.mark.parametrize(
    "name", ["GITHUB_TOKENS", "TOKEN", "OPENAI_API_KEY", "SSH_KEYS", "DB_PASS", "ACCESSKEY", "CI_JOB_TOKEN"]
)
def test_what_is_named_like_a_secret_is_replaced(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "canary-of-a-service")
    assert redacted("at canary-of-a-service") == "at ***"


@pytest.mark.parametrize("words", [["--notify", "http://hook/canary"], ["--notify=http://hook/canary"]])
def test_the_command(monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    """The target of `--notify` is removed, because the path of a webhook suffices to post to it."""
    monkeypatch.setattr(sys, "argv", ["/bin/sweep", "x.yaml", *words, "--quiet"])
    assert provenance.command() == f"sweep x.yaml {words[0][:8]}{words[0][8:9] or ' '}... --quiet"


@pytest.mark.parametrize("outage", [NoCluster, NoDatabase, NoServer, NoSpace, NoStore])
def test_a_command_that_meets_an_outage_can_be_run_again(outage: type[Refusal]) -> None:
    """A batch system starts it again after code 4, and gives up after code 2."""
    assert exit_of(outage("where", "must answer", "nothing", "Wait.")) is Exit.RESUMABLE


@pytest.mark.parametrize("mistake", [BadInput, Damaged])
def test_a_command_that_was_wrong_is_not_to_be_run_again(mistake: type[Refusal]) -> None:
    assert exit_of(mistake("where", "must hold", "something", "Correct it.")) is Exit.BAD_INPUT


def test_a_sweep_that_another_driver_holds_has_a_code_of_its_own() -> None:
    """A supervisor must not take it for bad input, nor start it again at once."""
    assert exit_of(Busy("sweep s", "already has a driver", "process 7", "Wait.")) is Exit.BUSY
