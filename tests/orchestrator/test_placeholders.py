"""Placeholders of commands: what takes their place, in a word and in a text for a shell."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from orchestrator.placeholders import Placeholder, PlaceholderError, names_in, parsed, rendered
from orchestrator.placeholders import arguments as arguments_of

TEXTS = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF), max_size=12)
PRINT = "import json, sys; print(json.dumps(sys.argv[1:]))"


def arguments(text: str, **values: object) -> list[str]:
    """Return the arguments that a program gets from a shell."""
    line = rendered(f"{sys.executable} -S -c '{PRINT}' {text}", values, shell=True)
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=True)
    words: list[str] = json.loads(done.stdout.splitlines()[0])
    return words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{x}", "X"),
        ("--x={x}", "--x=X"),
        ('"--x={x}!"', "--x=X!"),
        ("'--x={x}!'", "--x=X!"),
        ("\"it's \"{x}'\\\"'", "it's X\\\""),
        ('\\"{x}', '"X'),
        ('"$(echo a)\'{x}"', "a'X"),
        ('"$(true && printf %s {x})"', "X"),
        ('"$(printf %s "{x}")"', "X"),
        ("{x} # don't {x}", "X"),
        ("{x}; (echo '{x}'); echo \"{x}", None),
        ("a#'b'{x}", "a#bX"),
        ("{x}>/dev/stdout", "X"),
    ],
)
@pytest.mark.parametrize(
    "value", ["it's", "a b", "$HOME", '"', "`id`", "\\", "", "*", "#", "1", "~", "a;b|c&"]
)
def test_a_value_is_one_word_of_a_shell_or_part_of_one(text: str, expected: str | None, value: str) -> None:
    text, expected = (f'{text}"', "X") if expected is None else (text, expected)
    assert arguments(text, x=value) == [expected.replace("X", value)]


@settings(deadline=None)  # it starts a shell
@given(st.lists(TEXTS, min_size=3, max_size=3))
@example(["'", '"', "\\"])
def test_any_text_arrives_as_it_is(values: list[str]) -> None:
    given = dict(zip("abc", values, strict=True))
    assert arguments("{a} '{b}' \"{c}\"", **given) == values


@pytest.mark.parametrize(
    "text",
    ["`echo {x}`", '"`echo {x}`"', '"${{A:-{x}}}"', "${{A:-{x}}}", "\\{x}", "cat <<END\n{x}\nEND", "$'{x}'",
     '"$(case a in b) echo {x};; esac)"'],
)  # fmt: skip
def test_only_harmless_values_stand_where_they_cannot_be_quoted(text: str) -> None:
    (placeholder,) = (piece for piece in parsed(text, shell=True) if isinstance(piece, Placeholder))
    assert placeholder.context == "unclear"
    assert placeholder.text("adam-1.5") == "adam-1.5"
    for harmful in ("a b", "$A", "", "'", "a\\"):
        with pytest.raises(ValueError, match="a meaning to the shell"):
            placeholder.text(harmful)


@pytest.mark.parametrize(
    "text",
    ["{", "}", "{}", "{0}", "{x!r}", "{x!s}", "{x[0]}", "{x:{y}}", "{x:{y.z}}", "{x", "x}", "{ x }", "{x:c}"],
)
def test_what_is_no_placeholder_is_refused(text: str) -> None:
    with pytest.raises(PlaceholderError) as caught:
        parsed(text, shell=False)
    assert "{{ and }} stand for braces" in caught.value.must
    remedy = caught.value.remedy.removeprefix("Write ").removesuffix(" for this text.")
    assert rendered(remedy, {"y": "{y}", "y.z": "{y.z}"}, shell=False) == text


def test_no_attribute_of_a_value_is_reached() -> None:
    class Value(float):
        secret = "secret"

    assert rendered("{x} {x.real}", {"x": 2.5, "x.real": 3}, shell=False) == "2.5 3"
    with pytest.raises(KeyError):
        rendered("{x.secret}", {"x": Value(1)}, shell=False)


@pytest.mark.parametrize("form", ["1000000000", ".1000000000f", "01000d", ",.5000f"])
def test_a_format_makes_no_long_text(form: str) -> None:
    with pytest.raises(PlaceholderError, match="at most 3 digits"):
        parsed(f"{{x:{form}}}", shell=False)


@pytest.mark.parametrize("form", [".3e", "+.2f", "_d", "08.3f", ">10", "*^10", "%", "x", ",", ".17g", "#x"])
def test_a_format_is_that_of_python(form: str) -> None:
    value = 7 if form in ("_d", "x", "#x") else 0.1
    assert rendered(f"{{x:{form}}}", {"x": value}, shell=False) == format(value, form)


OWN = {"seed": 3, "resume": "", "folder": "a b"}


def test_args_stands_for_every_hyperparameter_of_a_trial() -> None:
    drawn = {"lr": 1e-5, "opt.kind": "a b", "amp": True}
    expected = ["--amp=True", "--lr=1e-05", "--opt.kind=a b"]
    assert arguments_of(["train", "{args}", "-v"], OWN, drawn, shell=False) == ["train", *expected, "-v"]
    (line,) = arguments_of([f"{sys.executable} -S -c '{PRINT}' {{args}} x"], OWN, drawn, shell=True)
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [*expected, "x"]
    assert arguments_of(["{args}"], OWN, {"args": 5}, shell=False) == ["5"], "a hyperparameter of this name"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, ["--amp", "model-amp", "is=True"]),
        (False, ["model", "--no-amp"]),
        (None, ["model", "--no-amp"]),
        ("", ["model", "--no-amp"]),
        (0, ["--amp", "model-amp", "is=0"]),
        ("a b", ["--amp", "model-amp", "is=a b"]),
    ],
)
def test_a_text_depends_on_a_value(value: object, expected: list[str]) -> None:
    words = ["{?amp: --amp}", "model{?amp:-amp}", "{!amp: --no-amp}", "{?amp: is={amp}}"]
    assert arguments_of(words, OWN, {"amp": value}, shell=False) == expected


def test_a_text_with_spaces_is_several_arguments_but_a_value_with_spaces_is_one() -> None:
    words = ["{?warmup: --warmup {warmup} --at={seed}{warmup}  --last}"]
    expected = ["--warmup", "a b", "--at=3a b", "--last"]
    assert arguments_of(words, OWN, {"warmup": "a b"}, shell=False) == expected
    assert arguments_of(words, OWN, {}, shell=False) == [], "the trial has no such hyperparameter"
    resume = ["{?resume: --resume {resume}}"]
    assert arguments_of(resume, OWN, {}, shell=False) == []
    assert arguments_of(resume, {**OWN, "resume": "/k"}, {}, shell=False) == ["--resume", "/k"]


@pytest.mark.parametrize("value", ["it's", "a b", "$HOME", "1", "a;b|c&"])
def test_a_text_for_a_shell_quotes_its_values(value: str) -> None:
    (line,) = arguments_of(
        [f"{sys.executable} -S -c '{PRINT}' {{?x: --x {{x}}}} \"is{{?x: {{x}}}}\" {{?x:{{x}}}}>/dev/stdout"],
        OWN,
        {"x": value},
        shell=True,
    )
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == ["--x", value, f"is{value}", value]


@pytest.mark.parametrize(
    ("text", "must"),
    [
        ("{?x: ' }", "must close the quotes"),
        ("{?x: $(ls }", "must close the quotes"),
        ("${?x: x}", "must not follow"),
        ("{?x: {{}}}", "a brace must be part"),
        ("{?x: {?y: z}}", "a brace must be part"),
        ("{?x}", "a brace must be part"),
        ("{?: x}", "a brace must be part"),
    ],
)
def test_a_text_that_a_shell_would_read_otherwise_is_refused(text: str, must: str) -> None:
    with pytest.raises(PlaceholderError, match=must):
        parsed(text, shell=True)


def test_the_names_of_a_command() -> None:
    words = ["{?x: --y={y}}", "{z:.3f}", "{{a}}"]
    assert names_in(words, shell=False) == {"x", "y", "z"}
