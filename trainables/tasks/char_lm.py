"""Character-level language modelling: the next character of a text, in bits per character.

A text is cut into consecutive segments of L characters. The target at each step is the next character. With
`training.carry_state`, a row of a batch reads segment after segment, in training, validation and test, and
every layer continues from its state. Otherwise each segment begins with the initial state. The further test
splits x2, x4 and x8 have segments of 2 L, 4 L and 8 L characters, which begin with the initial state. Only
their later halves are scored, so that their bits measure the worth of a context of that length.

Source: Mahoney 2011, http://mattmahoney.net/dc/textdata.html (text8 and enwik8); the usual division of both
is 90, 5 and 5 million characters (Mikolov et al. 2012, Graves 2013).
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from trainables.data.cache import Writer
from trainables.data.task import (
    IGNORED,
    SPLITS,
    Encoding,
    Metric,
    Progress,
    Remote,
    Signature,
    Source,
    Task,
)
from trainables.errors import BadData, Refusal
from trainables.settings import MOST_EXAMPLES, Option
from trainables.tasks import pydoc_passages
from trainables.tasks.lengths import TIMES, names_of_longer

_SHARES = (0.9, 0.05, 0.05)
"""Shares of training, validation and test, in the order of the text."""

_BYTES = 256


@dataclass(frozen=True)
class _Text:
    """A published text.

    Attributes:
        remote: Archive of the text.
        characters: Number of characters.
        alphabet: Distinct bytes in their order; None for all 256.
    """

    remote: Remote
    characters: int
    alphabet: bytes | None


_TEXTS: Mapping[str, _Text] = MappingProxyType(
    {
        "text8": _Text(
            Remote("http://mattmahoney.net/dc/text8.zip", "text8.zip", sha256=None, size=31_344_016),
            characters=100_000_000,
            alphabet=b" abcdefghijklmnopqrstuvwxyz",
        ),
        "enwik8": _Text(
            Remote("http://mattmahoney.net/dc/enwik8.zip", "enwik8.zip", sha256=None, size=36_445_475),
            characters=100_000_000,
            alphabet=None,
        ),
    }
)


class CharLm(Task):
    """The next character at every step."""

    name = "char_lm"
    title = "Character-level language modelling: text8, enwik8 or Python's documentation, bits per character"
    metric: ClassVar[Metric] = "bits"
    carries_state: ClassVar[bool] = True
    remotes: ClassVar[tuple[Remote, ...]] = tuple(text.remote for text in _TEXTS.values())
    options: ClassVar[Mapping[str, Option]] = {
        "source": Option(
            "auto",
            "`auto` reads text8 if the data folder has it, else Python's documentation.",
            choices=("auto", *_TEXTS, "pydoc"),
        ),
        "length": Option(256, "L, the characters of a segment.", at_least=16),
        "characters": Option(
            0, "How many first characters of the text are read; 0 for all.", at_least=0, at_most=MOST_EXAMPLES
        ),
        "reach": Option(8, "How many times L the longest segments of test are.", (1, *TIMES)),
    }

    def find(self, options: Mapping[str, Any], folder: Path) -> Source:
        """Return the archive of the text, or the documentation of this Python."""
        kind = options["source"]
        if kind == "auto":
            kind = "text8" if (folder / _TEXTS["text8"].remote.place).is_file() else "pydoc"
        part = f"the first {options['characters']:,} characters of " if options["characters"] else ""
        if kind == "pydoc":
            return Source(
                f"{part}{pydoc_passages.whole_phrase()}",
                comparable=False,
                note="Python's documentation is not a published text: bits per character do not compare",
                identity=pydoc_passages.identity(),
                kind=kind,
            )
        path = folder / _TEXTS[kind].remote.place
        if not path.is_file():
            must, remedy = (
                f"must be the archive of {kind}",
                "Fetch it (`data fetch char_lm`), or use `pydoc`.",
            )
            raise BadData(str(path), must, "no such file", remedy)
        note = "a part of the published text" if part else ""
        return Source(f"{part}{kind}", comparable=not note, note=note, files=(path,), kind=kind)

    def further(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the names of the test splits of longer segments, such as "x2"."""
        return names_of_longer(options)

    def outline(self, options: Mapping[str, Any]) -> Signature:
        """Return the signature of segments; that of text8 if the data folder decides the source."""
        source = options["source"]
        return self._signature(options, "text8" if source == "auto" else source)

    def _signature(self, options: Mapping[str, Any], kind: str) -> Signature:
        classes, length = len(_alphabet(kind)), options["length"]
        return Signature("steps", classes, classes + 1, features=1, length=length, metric=self.metric)

    def encode(self, options: Mapping[str, Any], source: Source, out: Writer, progress: Progress) -> Encoding:
        """Write segments of each part of the text, without a remainder that is shorter than a segment."""
        numbers = _read(source)[: options["characters"] or None]
        ends = np.cumsum([round(share * len(numbers)) for share in _SHARES[:-1]])
        parts = dict(zip(SPLITS, np.split(numbers, ends), strict=True))
        longest = options["length"] * max((1, *(_times(name) for name in self.further(options))))
        if min(map(len, parts.values())) <= longest:
            must, got = "must leave a segment for every split", f"{len(numbers):,} characters"
            raise Refusal(f"task {self.name}: options", must, got, "Ask for more, or for shorter segments.")
        for split, part in parts.items():
            _write(out, split, part, options["length"])
            progress("cutting segments", SPLITS.index(split) + 1, len(SPLITS))
        for name in self.further(options):
            _write(out, f"test_{name}", parts["test"], _times(name) * options["length"])
        return Encoding(self._signature(options, source.kind))


def _times(name: str) -> int:
    return int(name.removeprefix("x"))


def _alphabet(kind: str) -> str:
    """Return the different characters of a whole source in their order."""
    if kind == "pydoc":
        return pydoc_passages.alphabet()
    known = _TEXTS[kind].alphabet
    return "".join(map(chr, range(_BYTES))) if known is None else known.decode()


def _read(source: Source) -> np.ndarray:
    """Return the numbers of a text's characters in its alphabet, (n,) uint8 or uint16."""
    if source.kind == "pydoc":
        characters, text = list(_alphabet(source.kind)), list(pydoc_passages.whole_text())
        return np.searchsorted(np.array(characters), np.array(text)).astype(np.uint16)
    known, (path,) = _TEXTS[source.kind], source.files
    again = "Remove it and fetch it again (`data fetch char_lm`)."
    try:
        with zipfile.ZipFile(path) as archive:
            content = archive.read(source.kind)
    except (zipfile.BadZipFile, KeyError, OSError) as error:
        raise BadData(str(path), f"must be a zip archive of {source.kind}", str(error), again) from error
    if len(content) != known.characters:
        must, got = f"must hold {known.characters:,} characters", f"{len(content):,}"
        raise BadData(str(path), must, got, again)
    codes = np.frombuffer(content, np.uint8)
    if known.alphabet is None:
        return codes
    order = np.frombuffer(known.alphabet, np.uint8)
    if strange := set(np.unique(codes).tolist()) - set(order.tolist()):
        must = "must hold lower-case letters and blanks"
        raise BadData(str(path), must, repr(bytes(sorted(strange)))[:40], again)
    return np.searchsorted(order, codes).astype(np.uint8)


def _write(out: Writer, split: str, numbers: np.ndarray, length: int) -> None:
    """Write a part of the text as segments.

    In a further test split, only the later half of each segment is scored.
    """
    segments = (len(numbers) - 1) // length
    used = segments * length
    kind = np.uint8 if numbers.max() < _BYTES - 1 else np.uint16
    inputs = out.array(f"{split}.inputs", (segments, length), kind)
    inputs[...] = numbers[:used].reshape(segments, length)
    inputs += 1
    targets = out.array(f"{split}.targets", (segments, length), np.int32)
    targets[...] = numbers[1 : used + 1].reshape(segments, length)
    if split not in SPLITS:
        targets[:, : length // 2] = IGNORED
    out.put(f"{split}.lengths", np.full(segments, length, np.int32))
