"""The reader accepts YAML 1.2 without its dangerous and surprising parts."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pytest

from orchestrator.config.yaml_reader import parse_document, parse_fragment, read_document
from orchestrator.errors import BadInput


def _plain(text: str) -> object:
    return parse_document(text, "f").plain()


def test_scalars_are_those_of_yaml_1_2() -> None:
    """Words that YAML 1.1 reinterprets stay text; numbers without a dot in the mantissa are numbers."""
    text = (
        "{a: on, b: no, c: 012, d: 2024-01-01, e: 12:30:00, f: 1e-4, g: true, h: ~, i: '1', j: \"on\", k: NO}"
    )
    assert _plain(text) == {
        "a": "on", "b": "no", "c": "012", "d": "2024-01-01", "e": "12:30:00", "f": 1e-4, "g": True, "h": None,
        "i": "1", "j": "on", "k": "NO",
    }  # fmt: skip


def test_every_key_knows_its_line() -> None:
    """Nested and multi-line values have the line of their key."""
    root = parse_document("a: 1\nb:\n  c:\n    [1,\n     2]\n  d: {e:\n      3}\n", "f.yaml")
    lines = {path: root.at(path).where for path in [("a",), ("b",), ("b", "c"), ("b", "d"), ("b", "d", "e")]}
    assert list(lines.values()) == ["f.yaml:1", "f.yaml:2", "f.yaml:3", "f.yaml:6", "f.yaml:6"]
    assert root.at(("b", "nothing", "deeper")).where == "f.yaml:2"


@pytest.mark.parametrize(
    ("text", "where", "must"),
    [
        ("a: 1\nb: 2\na: 3", "f:3: a", "unique"),
        ("a:\n  b: 1\n  'b': 2", "f:3: a.b", "unique"),
        ("a: &x 1", "f:1: a", "no anchors"),
        ("a: 1\nb: *x", "f:2: b", "no anchors"),
        ("a: &a [1]\nb: &b [*a, *a]", "f:1: a", "no anchors"),
        ("a: !!python/object/apply:os.system [ls]", "f:1: a", "no YAML tags"),
        ("a: !!str 1", "f:1: a", "no YAML tags"),
        ("a: !x 1", "f:1: a", "no YAML tags"),
        ("a: !<%0a> b", "f:1: a", "no YAML tags"),
        ("a: !%ff b", "f:1", "YAML 1.2"),
        ("a: &\u200b b", "f:1: a", "no anchors"),
        ("%YAML 1.1\n---\na: 1", "f:2", "no directives"),
        ("a: 1\n---\nb: 2", "f:2", "one document"),
        ("? [1, 2]\n: 3", "f:1", "a key must be a word"),
        ("a: {[1]: 2}", "f:1: a", "a key must be a word"),
        ("[1, 2]", "f:1", "must be a mapping"),
        ("just words", "f:1", "must be a mapping"),
        ("a: .nan", "f:1: a", "finite number"),
        ("a: [1, 1/0]", "f:1: a", "finite number"),
        ('a: "x\\ny"', "f:1: a", "plain text"),
        ('a: "\\ud800"', "f:1: a", "plain text"),
        ('"a\\0": 1', "f:1", "plain text"),
        ("a: \u202egnp.exe", "f:1: a", "plain text"),
        ("a: 'b", "f:1", "YAML 1.2"),
        ("a: b: c", "f:1", "YAML 1.2"),
        ("a: 1\n b: 2", "f:2", "YAML 1.2"),
        ("a: @b", "f:1", "YAML 1.2"),
        ("# only a comment", "f", "is empty"),
    ],
)
def test_refuses(text: str, where: str, must: str) -> None:
    """Features that a search-space file does not need are refused, with line and key."""
    with pytest.raises(BadInput) as caught:
        parse_document(text, "f")
    assert caught.value.where == where
    assert must in caught.value.must
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "text",
    [
        "[" * 10_000,
        "{a: " * 10_000,
        "- " * 10_000,
        "a: [" + "1," * 120_000 + "]",
        "".join(f"k{number}: 1\n" for number in range(25_000)),
        "a: " + "x" * 250_000,
        "a: |\n" + " x\n" * 80_000,
        "&a [" * 5_000,
    ],
    ids=["brackets", "braces", "dashes", "list", "keys", "word", "block", "anchors"],
)
def test_hostile_text_ends_quickly(text: str) -> None:
    """Deep, long and wide files are read or refused in well under two seconds."""
    start = time.thread_time()  # threads that earlier tests have left do not count
    with contextlib.suppress(BadInput):
        parse_document(text, "f")
    assert time.thread_time() - start < 1.9


def test_a_mark_and_windows_line_ends_are_fine(tmp_path: Path) -> None:
    """A byte order mark and CRLF change nothing."""
    path = tmp_path / "f.yaml"
    path.write_bytes(b"\xef\xbb\xbftask: x\r\nmodel:\r\n  depth: 2\r\n")
    root, _ = read_document(path)
    assert root.plain() == {"task": "x", "model": {"depth": 2}}
    assert root.at(("model", "depth")).where == f"{path}:3"


def test_fragments_are_values() -> None:
    """An override is one value of YAML on one line."""
    assert parse_fragment("1e-3", "--set a").plain() == 1e-3
    assert parse_fragment("{choice: [1, 2]}", "--set a").plain() == {"choice": [1, 2]}
    assert parse_fragment("", "--set a").plain() is None
    for text in ("a\nb", "&x 1", "!!python/name:os.system", "[1"):
        with pytest.raises(BadInput) as caught:
            parse_fragment(text, "--set a")
        assert caught.value.where == "--set a"
