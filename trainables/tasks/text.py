"""Text: IMDB reviews character by character, positive or negative.

The published protocol has no validation split and selects by test. Here validation is held out of training by
seed, and test is read once, for the selected model. IMDB has some reviews several times; so that the splits
are disjoint, training leaves out repeated reviews and reviews of test.

Source: Maas et al. 2011; Long Range Arena (Tay et al. 2021), section 2.2.2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from trainables.data.cache import Writer
from trainables.data.evaluation_protocol import divided, mixed
from trainables.data.task import END, SPECIALS, UNKNOWN, Encoding, Progress, Remote, Signature, Source, Task
from trainables.errors import BadData
from trainables.settings import LARGEST_SEED, Option

_FOLDER = "aclImdb"
_LABELS = {"neg": 0, "pos": 1}
_RATINGS = {"neg": range(1, 5), "pos": range(7, 11)}
_PUBLISHED = 25_000
_LEAST_FREQUENT = 15
"""A character that is rarer in training is unknown. Source: S5 and S4, `min_freq`."""

_VOCABULARY = 135
"""Tokens of the published encoding (S5); the training reviews that are kept may have fewer."""

_AGAIN = "Unpack the archive again (`data fetch text`)."
_NOTE = (
    "validation is held out of the 25,000 training reviews by seed (the published protocol trains on all and "
    "selects by test): accuracy does not compare with the papers'"
)


class Text(Task):
    """IMDB's reviews."""

    name = "text"
    title = "Text: IMDB reviews, character by character (L = 4,096), 2 classes"
    remotes: ClassVar[tuple[Remote, ...]] = (
        Remote(
            url="https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
            place=_FOLDER,
            sha256="c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
            size=84_125_825,
            inside="aclImdb",
            unpacked=1_000_000_000,
            members=110_000,
        ),
    )
    texts: ClassVar[tuple[str, ...]] = ("Two hours well spent: I would gladly see it again.",)
    version = 3
    published: ClassVar[Mapping[str, Any]] = {"length": 4096}
    options: ClassVar[Mapping[str, Option]] = {
        "length": Option(4096, "Padded characters of a review; longer ones are cut off.", at_least=16),
        "validation_share": Option(
            0.1, "Share of the training reviews held out for validation.", at_least=0.0
        ),
        "seed": Option(0, "Seed of the held-out reviews.", at_least=0, at_most=LARGEST_SEED),
    }

    def find(self, options: Mapping[str, Any], folder: Path) -> Source:
        """Return the four folders of labelled reviews."""
        root = folder / _FOLDER
        folders = tuple(root / split / label for split in ("train", "test") for label in _LABELS)
        for inner in folders:
            if not inner.is_dir():
                remedy = "Fetch it (`data fetch text`)."
                raise BadData(str(inner), "must be a folder of IMDB reviews", "no such folder", remedy)
        counts = [sum(1 for _ in inner.iterdir()) for inner in folders]
        whole = sum(counts[:2]) == sum(counts[2:]) == _PUBLISHED
        size = f"{sum(counts[:2]):,} + {sum(counts[2:]):,} reviews instead of 25,000 + 25,000"
        note = _NOTE if whole else f"{size}: accuracy does not compare with the papers'"
        return Source("IMDB reviews in aclImdb", comparable=False, note=note, files=folders, kind="imdb")

    def outline(self, options: Mapping[str, Any]) -> Signature:
        """Return the signature of reviews, with the published vocabulary."""
        return Signature("class", 2, _VOCABULARY, features=1, length=options["length"])

    def encode(self, options: Mapping[str, Any], source: Source, out: Writer, progress: Progress) -> Encoding:
        """Write character numbers, with the vocabulary of the reviews in the training split."""
        test_texts, test_labels = _reviews(source.files[2:], progress)
        read, read_labels = _reviews(source.files[:2], progress)
        fresh = _first_seen(read, test_texts)
        texts, labels = [read[index] for index in fresh], read_labels[fresh]
        train, validation = divided(self.name, len(texts), options["validation_share"], options["seed"])
        validation = validation[mixed(len(validation), options["seed"])]
        counts: Counter[str] = Counter()
        for index in train.tolist():
            counts.update(texts[index])
        characters = Characters.of(counts, _LEAST_FREQUENT)
        parts = {
            "train": ([texts[index] for index in train.tolist()], labels[train]),
            "validation": ([texts[index] for index in validation.tolist()], labels[validation]),
            "test": (test_texts, test_labels),
        }
        for split, (kept, classes) in parts.items():
            _write_split(split, kept, characters, options["length"], out)
            out.put(f"{split}.targets", classes)
        signature = replace(self.outline(options), vocabulary=characters.size)
        left_out = len(read) - len(texts)
        note = f"{left_out} training reviews that are repeated, or also in test, are left out"
        return Encoding(
            signature,
            note if left_out else "",
            characters.known,
        )

    def tokens(self, text: str, length: int, characters: str) -> np.ndarray:
        """Return the character numbers of a review, cut off where it is too long."""
        return tokens_of(text, length, characters)


def _first_seen(texts: Sequence[str], elsewhere: Sequence[str]) -> list[int]:
    """Return the indices of the first copies of texts that are not in `elsewhere`."""
    seen, indices = set(elsewhere), []
    for index, text in enumerate(texts):
        if text not in seen:
            seen.add(text)
            indices.append(index)
    return indices


def _write_split(split: str, texts: Sequence[str], characters: Characters, length: int, out: Writer) -> None:
    inputs = out.array(f"{split}.inputs", (len(texts), length), characters.dtype)
    table = characters.table()
    lengths = [write(row, text, table) for row, text in zip(inputs, texts, strict=True)]
    out.put(f"{split}.lengths", np.array(lengths, np.int32))


def _reviews(folders: Sequence[Path], progress: Progress) -> tuple[list[str], np.ndarray]:
    """Read the reviews of the negative and the positive folder, in the order of their names."""
    texts: list[str] = []
    labels: list[int] = []
    for folder in folders:
        names = sorted(path.name for path in folder.iterdir())
        if not names:
            raise BadData(str(folder), "must hold reviews", "zero files", _AGAIN)
        for number, text in enumerate(_contents(folder, names), 1):
            texts.append(text)
            labels.append(_LABELS[folder.name])
            if number % 500 == 0:
                progress(f"reading {folder.parent.name}/{folder.name}", number, len(names))
    return texts, np.array(labels, np.int32)


def _contents(folder: Path, names: Sequence[str]) -> Iterator[str]:
    for name in names:
        path = folder / name
        number, _, rating = name.removesuffix(".txt").partition("_")
        if not name.endswith(".txt") or not number.isdecimal() or not rating.isdecimal():
            raise BadData(str(path), "must be named <id>_<rating>.txt", name, _AGAIN)
        if int(rating) not in _RATINGS[folder.name]:
            legal = _RATINGS[folder.name]
            must = f"must have a rating of {legal.start} to {legal.stop - 1}, as all of {folder.name} have"
            raise BadData(str(path), must, rating, _AGAIN)
        try:
            text = path.read_bytes().decode()
        except UnicodeDecodeError as error:
            raise BadData(str(path), "must be UTF-8", str(error), _AGAIN) from error
        if not text.strip():
            raise BadData(str(path), "must hold a review", "an empty file", _AGAIN)
        yield text


@dataclass(frozen=True)
class Characters:
    """A vocabulary: padding, unknown, end, then `known` in order.

    Attributes:
        known: Characters, each once.
    """

    known: str

    @classmethod
    def of(cls, counts: Mapping[str, int], least: int = 1) -> Characters:
        """Return the characters that are counted at least `least` times, the most frequent first."""
        kept = (character for character, number in counts.items() if number >= least)
        return cls("".join(sorted(kept, key=lambda character: (-counts[character], character))))

    @property
    def size(self) -> int:
        """Number of tokens, the three special ones included."""
        return SPECIALS + len(self.known)

    @property
    def dtype(self) -> type[np.uint8] | type[np.uint16]:
        """The smallest type that holds every token."""
        return np.uint8 if self.size <= 256 else np.uint16

    def table(self) -> np.ndarray:
        """Return token numbers by code point (1,114,112,)."""
        table = np.full(0x110000, UNKNOWN, self.dtype)
        table[code_points(self.known)] = np.arange(SPECIALS, self.size)
        return table


def tokens_of(text: str, length: int, known: str) -> np.ndarray:
    """Return a text's token numbers (at most `length`,), cut off so that the end token fits."""
    row = np.zeros(length, np.int32)
    return row[: write(row, text, Characters(known).table())]


def code_points(text: str) -> np.ndarray:
    """Return the code points of a text as (L,) uint32."""
    return np.frombuffer(text.encode("utf-32-le"), np.uint32)


def write(row: np.ndarray, text: str, table: np.ndarray) -> int:
    """Write a text into a row of zeros (L,), cut off so that the end token fits; return its true length."""
    tokens = table[code_points(text[: len(row) - 1])]
    row[: len(tokens)] = tokens
    row[len(tokens)] = END
    return len(tokens) + 1
