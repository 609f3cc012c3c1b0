"""Placeholders in the words of a command.

They are `{name}`, `{name:format}`, `{?name: text}`, `{!name: text}` and `{args}`.
A name is looked up as it is, dots included, and only the text of a value is used: no attributes, items,
conversions or nested formats. In a text for a shell, a value is one word or part of one. `{{` and `}}` are
literal braces.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Context = Literal["argument", "word", "double quotes", "single quotes", "comment", "unclear"]

LONGEST_WORD = 131_071
"""Maximum length in bytes of an argument, or of a variable with its value, in Linux."""

NAME = r"[A-Za-z_][A-Za-z0-9_.]{0,63}"
"""Pattern of the name of a hyperparameter."""

_FORMAT = r"(?:[^{}\0\n]?[<>=^])?[-+ ]?z?#?0?(?P<width>[0-9]*)[_,]?(?:\.(?P<digits>[0-9]+))?[bdeEfFgGosxX%]?"
_PLACEHOLDER = rf"\{{(?P<name>{NAME})(?::(?P<format>{_FORMAT}))?\}}"
_INNER = re.sub(r"\?P<\w+>", "?:", _PLACEHOLDER)
_CONDITION = rf"\{{(?P<sign>[?!])(?P<condition>{NAME}):(?P<then>(?:[^{{}}]|{_INNER})*)\}}"
_TOKEN = re.compile(rf"(?P<brace>\{{\{{|\}}\}})|{_PLACEHOLDER}|{_CONDITION}|(?P<stray>[{{}}])")
_HARMLESS = re.compile(r"[\w@%+=:,./-]+", re.ASCII)
_NUMBER_FORMAT = re.compile(r"[-+]?[_,]?(\.[0-9]+)?[bdeEfFgGoxX%]?")
_LONGEST_NUMBER = 3

ARGUMENTS = "args"
"""Name of the placeholder of all hyperparameters, each as `--name=value`."""


def plain(value: Any) -> Any:
    """Return null, a list or a mapping as its JSON text, and any other value as it is."""
    return value if isinstance(value, bool | int | float | str) else json.dumps(value, ensure_ascii=False)


class PlaceholderError(ValueError):
    """The placeholders of a text cannot be read.

    Args:
        must: Requirement that the text violates.
        got: Value that was found.
        remedy: Correction.
    """

    def __init__(self, must: str, got: str, remedy: str) -> None:
        super().__init__(must, got, remedy)
        self.must, self.got, self.remedy = must, got, remedy


@dataclass(frozen=True)
class Placeholder:
    """A placeholder and its context.

    Attributes:
        name: Name of a value.
        format: Format of the value, in Python's format mini-language; '' for its shortest text.
        context: Context in the language of the shell; `argument` without a shell.
        redirects: Whether a redirection follows, which would use a number before it.
    """

    name: str
    format: str = ""
    context: Context = "argument"
    redirects: bool = False

    def text(self, value: Any) -> str:
        """Return the text of a value for the placeholder.

        Raises:
            ValueError: The format does not fit the value, or the value would not stay one word of the shell.
        """
        text = format(plain(value), self.format)
        if self.context == "word":
            quoted = shlex.quote(text)
            return f"'{text}'" if self.redirects and quoted == text else quoted
        if self.context == "double quotes":
            return re.sub(r'[\\$"`]', r"\\\g<0>", text)
        if self.context == "single quotes":
            return text.replace("'", "'\\''")
        if self.context == "unclear" and not _HARMLESS.fullmatch(text):
            raise ValueError(f"{text!r} has characters with a meaning to the shell")
        return text

    @property
    def keeps_numbers_harmless(self) -> bool:
        """Return True if numbers in this format contain only characters without a meaning to a shell."""
        return _NUMBER_FORMAT.fullmatch(self.format) is not None


@dataclass(frozen=True)
class ConditionalText:
    """A text that depends on a value: `{?name: text}` or `{!name: text}`.

    Attributes:
        name: Name of a value.
        expected: Whether the text is used if the value is given (`?`), or if it is not (`!`).
        pieces: Text with its placeholders, without the space after the colon.
    """

    name: str
    expected: bool
    pieces: tuple[str | Placeholder, ...]

    def applies(self, values: Mapping[str, Any]) -> bool:
        """Return True if the text is used.

        A value is given unless it is False, None or an empty text. If the trial does not have the
        hyperparameter, because its condition does not hold, neither text is used.
        """
        if self.name not in values:
            return False
        value = values[self.name]
        return self.expected is not (value is None or value is False or value == "")


Piece = str | Placeholder | ConditionalText


def parsed(text: str, *, shell: bool) -> list[Piece]:
    """Return a text as literal pieces and placeholders, in order.

    Example:

        parsed("--rate={lr}", shell=False)  # ["--rate=", Placeholder("lr")]

    Args:
        text: Text of a word of a command.
        shell: Whether the text is for a shell.

    Raises:
        PlaceholderError: A brace is not part of a placeholder, a width or a precision is too large, or a
            conditional text opens quotes of a shell.
    """
    return _parsed(text, _ShellReader() if shell else None, "")


def _parsed(text: str, reader: _ShellReader | None, following: str) -> list[Piece]:
    """Return the pieces of a text that is followed by another one."""
    pieces: list[Piece] = []
    position = 0
    for token in _TOKEN.finditer(text):
        literal = text[position : token.start()] + (token["brace"] or "")[:1]
        pieces.append(literal)
        if reader is not None:
            reader.read(literal)
        position = token.end()
        if token["stray"]:
            raise _stray(text, token.start())
        if token["name"]:
            redirects = (text + following)[position : position + 1] in ("<", ">")
            context = reader.context(token[0]) if reader is not None else "argument"
            _check_size(token)
            pieces.append(Placeholder(token["name"], token["format"] or "", context, redirects))
            if reader is not None:
                reader.pass_value()
        if token["condition"]:
            pieces.append(_condition(token, reader, (text + following)[position : position + 1]))
    pieces.append(text[position:])
    if reader is not None:
        reader.read(text[position:])
    return [piece for piece in pieces if piece != ""]


def _condition(token: re.Match[str], reader: _ShellReader | None, following: str) -> ConditionalText:
    """Return a conditional text.

    Raises:
        PlaceholderError: A shell would read what follows differently with the text than without it.
    """
    quotes = None
    if reader is not None:
        reader.context(token[0])
        quotes = reader.quotes
    pieces = _parsed(token["then"].removeprefix(" "), reader, following)
    if reader is not None and reader.quotes != quotes:
        must = "the text of a placeholder must close the quotes and brackets that it opens"
        raise PlaceholderError(must, token[0][:60], "Move them out of the placeholder, or close them in it.")
    inner = tuple(piece for piece in pieces if not isinstance(piece, ConditionalText))
    return ConditionalText(token["condition"], token["sign"] == "?", inner)


def _check_size(token: re.Match[str]) -> None:
    if any(number and len(number) > _LONGEST_NUMBER for number in (token["width"], token["digits"])):
        must = f"the width and the precision of a format must have at most {_LONGEST_NUMBER} digits"
        raise PlaceholderError(must, token[0][:60], f"Write {{{token['name']}}}.")


def _stray(text: str, position: int) -> PlaceholderError:
    """Return the error of a brace outside a placeholder, with the correct spelling of a short text."""
    must = (
        "a brace must be part of a placeholder, {name}, {name:format} or {?name: text}; "
        "{{ and }} stand for braces"
    )
    right = _TOKEN.sub(lambda token: 2 * token[0] if token["stray"] else token[0], text).replace("\n", "\\n")
    remedy = f"Write {right} for this text." if len(right) <= 160 else "Double a brace that is meant."
    return PlaceholderError(must, text[position:][:40].replace("\n", "\\n"), remedy)


class _ShellReader:
    """Tracks the quotes of a text for a POSIX shell."""

    def __init__(self) -> None:
        self._open = ["word"]
        self._before, self._letters = "\n", ""
        self._escaped = self._is_lost = self._has_case = False

    def context(self, placeholder: str) -> Context:
        """Return the context at the current end of the text.

        Raises:
            PlaceholderError: The shell reads a variable's name there.
        """
        inner = self._open[-1]
        if self._before == "$" and not self._escaped and inner not in ("single quotes", "comment"):
            must = "a placeholder must not follow $, after which the shell reads a variable's name"
            remedy = f"Write ${{{placeholder}}} for a variable, {placeholder} for a hyperparameter."
            raise PlaceholderError(must, f"${placeholder}", remedy)
        if self._escaped or self._is_lost or {"backquotes", "braces"} & set(self._open):
            return "unclear"
        return inner  # type: ignore[return-value]

    @property
    def quotes(self) -> tuple[object, ...]:
        """Return the open quotes and brackets, and whether the next character is escaped."""
        return (*self._open, self._escaped, self._is_lost)

    def pass_value(self) -> None:
        """Skip the value of a placeholder, which is not parsed as shell language."""
        self._escaped, self._before, self._letters = False, "x", ""

    def read(self, literal: str) -> None:
        """Read a piece of the text."""
        for character in literal:
            if self._escaped:
                self._escaped = False
            elif character == "\\" and self._open[-1] not in ("single quotes", "comment"):
                self._escaped = True
            else:
                self._step(character, self._open[-1], self._before)
            self._before = character
            self._letters = self._letters + character if character.isalpha() else ""
            self._has_case |= self._letters == "case"

    def _step(self, character: str, inner: str, before: str) -> None:
        closes = {
            "single quotes": "'",
            "double quotes": '"',
            "comment": "\n",
            "backquotes": "`",
            "braces": "}",
        }
        if character == closes.get(inner):
            self._open.pop()
        elif inner in ("single quotes", "comment"):
            return
        elif character == "`":
            self._open.append("backquotes")
        elif before == "$" and character in "({":
            self._open.append("word" if character == "(" else "braces")
        elif character == '"':
            self._open.append("double quotes")
        elif inner == "double quotes":
            return
        elif character == "'":
            self._open.append("single quotes")
            self._is_lost |= before == "$"  # `$'...'` of other shells has its own escapes
        elif character == "(":
            self._open.append("word")
        elif character == ")" and inner == "word" and len(self._open) > 1:
            self._open.pop()
            self._is_lost |= self._has_case  # patterns of `case` end with a single bracket
        elif character == "#" and (before.isspace() or before in ";&|()"):
            self._open.append("comment")
        elif before == character == "<":
            self._is_lost = True  # a here-document may follow


def rendered(text: str, values: Mapping[str, Any], *, shell: bool) -> str:
    """Return a text with its placeholders replaced by values.

    Args:
        text: Text of a word of a command.
        values: Values by name.
        shell: Whether the text is for a shell.
    """
    return "".join(_filled(parsed(text, shell=shell), values))


def _filled(pieces: Sequence[Piece], values: Mapping[str, Any], options: str | None = None) -> Iterator[str]:
    """Yield the texts of pieces; that of `{args}` is `options` unless it is None."""
    for piece in pieces:
        if isinstance(piece, str):
            yield piece
        elif piece.name == ARGUMENTS and options is not None:
            yield options
        elif isinstance(piece, Placeholder):
            yield piece.text(values[piece.name])
        elif piece.applies(values):
            yield from _filled(piece.pieces, values)


def arguments(
    words: Sequence[str], values: Mapping[str, Any], searched: Mapping[str, Any], *, shell: bool
) -> list[str]:
    """Return the arguments of a command.

    Args:
        words: Words of the command; for a shell, one text.
        values: Values that a placeholder may name, without the hyperparameters.
        searched: Hyperparameters of the trial.
        shell: Whether the text is for a shell.
    """
    known = {**values, **searched}
    options = [f"--{name}={Placeholder(name).text(value)}" for name, value in sorted(searched.items())]
    joined = shlex.join(options)
    found: list[str] = []
    for word in words:
        pieces = parsed(word, shell=shell)
        match pieces:
            case [Placeholder(name="args")] if ARGUMENTS not in searched and not shell:
                found += options
            case [ConditionalText() as only] if not shell:
                found += _split(only.pieces, known) if only.applies(known) else []
            case _:
                found.append("".join(_filled(pieces, known, None if ARGUMENTS in searched else joined)))
    return found


def _split(pieces: Sequence[Piece], values: Mapping[str, Any]) -> list[str]:
    """Split a text into words at its own spaces, but not at spaces in its values."""
    words: list[str] = []
    is_open = False
    for piece in pieces:
        parts = re.split(r"\s+", piece) if isinstance(piece, str) else list(_filled([piece], values))
        for number, part in enumerate(parts):
            is_open = is_open and number == 0
            if part or not isinstance(piece, str):
                words[len(words) - is_open :] = [words[-1] + part] if is_open else [part]
                is_open = True
    return words


def names_in(words: Sequence[str], *, shell: bool) -> set[str]:
    """Return the names of the placeholders of a command."""
    pieces = [piece for word in words for piece in parsed(word, shell=shell)]
    inner = [each for piece in pieces if isinstance(piece, ConditionalText) for each in piece.pieces]
    return {piece.name for piece in (*pieces, *inner) if not isinstance(piece, str)}
