"""Retrieval: are two documents related? Two towers, two classes, character by character.

The documents are Long Range Arena's AAN pairs if the data folder has them, else passages of Python's own
documentation; every score names the source.

Source: Long Range Arena (Tay et al. 2021), section 2.2.3; ACL Anthology Network (Radev et al. 2013).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from trainables.data.cache import Writer
from trainables.data.task import SPLITS, Encoding, Progress, Remote, Signature, Source, Task, long_range_arena
from trainables.errors import BadData, Refusal
from trainables.settings import LARGEST_SEED, MOST_EXAMPLES, Option
from trainables.tasks import pydoc_passages
from trainables.tasks.text import Characters, tokens_of, write

_FOLDERS = ("tsv_data", "lra_release/lra_release/tsv_data", "lra_release/tsv_data")
_FILES = {
    "train": "new_aan_pairs.train.tsv",
    "validation": "new_aan_pairs.eval.tsv",
    "test": "new_aan_pairs.test.tsv",
}
_VOCABULARY = 98
"""Tokens of the published encoding; the training documents may have fewer."""

_AGAIN = "Fetch the file again."
_NOTE = (
    "embedded stand-in for the AAN pairs, which the data folder does not have: "
    "accuracy does not compare with the paper's"
)

Row = tuple[str, str, int]


class Retrieval(Task):
    """Pairs of texts, related or not."""

    name = "retrieval"
    title = "Retrieval: are two documents related? Character level, 2 classes"
    remotes: ClassVar[tuple[Remote, ...]] = (
        long_range_arena(_FOLDERS[1], _FOLDERS[1], unpacked=16_000_000_000, members=20),
    )
    texts: ClassVar[tuple[str, ...]] = (
        "A lambda expression is an anonymous function of one expression.",
        "Generators are functions that yield their values one by one.",
    )
    version = 2
    published: ClassVar[Mapping[str, Any]] = {"length": 4000}
    options: ClassVar[Mapping[str, Option]] = {
        "source": Option(
            "auto",
            "`auto` reads AAN if the data folder has it, else Python's documentation.",
            choices=("auto", "aan", "pydoc"),
        ),
        "length": Option(4000, "Padded characters of a document; longer ones are cut off.", at_least=16),
        "passage": Option(256, "Padded characters of a passage of Python's documentation.", at_least=16),
        "pairs": Option(
            20_000, "Training pairs from Python's documentation.", at_least=2, at_most=MOST_EXAMPLES
        ),
        "held_out": Option(
            1000,
            "Pairs of validation, and of test, from Python's documentation.",
            at_least=2,
            at_most=MOST_EXAMPLES,
        ),
        "seed": Option(
            0,
            "Seed of the split and of the pairs of Python's documentation.",
            at_least=0,
            at_most=LARGEST_SEED,
        ),
    }

    def validate(self, options: Mapping[str, Any]) -> None:
        """Refuse odd numbers of pairs, which cannot have equal classes."""
        for name in ("pairs", "held_out"):
            if options[name] % 2:
                where = f"task retrieval: options.{name}"
                raise Refusal(where, "must be even, for equal classes", str(options[name]), "Add one.")

    def find(self, options: Mapping[str, Any], folder: Path) -> Source:
        """Return the AAN pairs or the embedded passages."""
        published = next((folder / name for name in _FOLDERS if (folder / name).is_dir()), None)
        if options["source"] == "aan" or (options["source"] == "auto" and published):
            return _aan(published or folder / _FOLDERS[0])
        return Source(
            pydoc_passages.phrase(_passage(options) - 1),
            comparable=False,
            note=_NOTE,
            identity=pydoc_passages.identity(),
            kind="pydoc",
        )

    def published_rows(self, source: Source) -> tuple[int, int, int] | None:
        """Return the numbers of pairs in LRA's splits; None for the stand-in, which is not published."""
        return (147_086, 18_090, 17_437) if source.kind == "aan" else None

    def outline(self, options: Mapping[str, Any]) -> Signature:
        """Return the signature of pairs of documents, with the published vocabulary."""
        length = _passage(options) if options["source"] == "pydoc" else options["length"]
        return Signature("class", 2, _VOCABULARY, features=1, length=length, towers=2)

    def encode(self, options: Mapping[str, Any], source: Source, out: Writer, progress: Progress) -> Encoding:
        """Write character numbers, with the vocabulary of the training split."""
        if source.kind == "aan":
            length = options["length"]
            encoder = _AanEncoder(dict(zip(SPLITS, source.files, strict=True)), length, progress)
            characters = encoder.write(out)
        else:
            length = _passage(options)
            characters = _embed(options, length, out, progress)
        signature = replace(self.outline(options), vocabulary=characters.size, length=length)
        return Encoding(signature, characters=characters.known)

    def tokens(self, text: str, length: int, characters: str) -> np.ndarray:
        """Return the character numbers of a document, cut off where it is too long."""
        return tokens_of(text, length, characters)


def _passage(options: Mapping[str, Any]) -> int:
    return min(options["passage"], options["length"])


def _embed(options: Mapping[str, Any], length: int, out: Writer, progress: Progress) -> Characters:
    sizes = {"train": options["pairs"], "validation": options["held_out"], "test": options["held_out"]}
    progress("pairing passages", 0, 1)
    drawn = pydoc_passages.drawn(length - 1, sizes, options["seed"])
    counts: Counter[str] = Counter()
    for text in {text for pair in drawn["train"].texts for text in pair}:
        counts.update(text)
    characters = Characters.of(counts)
    table = characters.table()
    for split, pairs in drawn.items():
        inputs = out.array(f"{split}.inputs", (len(pairs.texts), 2, length), characters.dtype)
        _write_pairs(split, inputs, pairs.texts, table, out)
        out.put(f"{split}.targets", pairs.same)
    progress("pairing passages", 1, 1)
    return characters


def _write_pairs(
    split: str, inputs: np.ndarray, texts: Sequence[tuple[str, str]], table: np.ndarray, out: Writer
) -> None:
    lengths = [
        [write(row, text, table) for row, text in zip(rows, pair, strict=True)]
        for rows, pair in zip(inputs, texts, strict=True)
    ]
    out.put(f"{split}.lengths", np.array(lengths, np.int32))


def _aan(folder: Path) -> Source:
    paths = tuple(folder / name for name in _FILES.values())
    for path in paths:
        if not path.is_file():
            remedy = "Fetch it (`data fetch retrieval`), or set `data: {source: pydoc}`."
            raise BadData(str(path), "must be LRA's file of AAN pairs", "no such file", remedy)
        if next(_rows(path), None) is None:
            raise BadData(str(path), "must hold pairs", "zero rows", _AGAIN)
    return Source(f"AAN pairs in {folder.name}", comparable=True, files=paths, kind="aan")


def _rows(path: Path) -> Iterator[Row]:
    """Yield two texts and the label of each row: label, id, id, text, text; no header, no quoting."""
    with path.open(encoding="utf-8", newline="\n") as file:
        lines = enumerate(file, 1)
        while True:
            try:
                number, line = next(lines)
            except StopIteration:
                return
            except UnicodeDecodeError as error:
                raise BadData(str(path), "must be UTF-8", str(error), _AGAIN) from error
            yield _row(f"{path}:{number}", line.rstrip("\r\n").split("\t"))


def _row(where: str, fields: list[str]) -> Row:
    if len(fields) != 5:
        raise BadData(where, "must have 5 fields: label, id, id, text, text", f"{len(fields)}", _AGAIN)
    label, _, _, first, second = fields
    if label not in ("0", "1", "0.0", "1.0"):
        raise BadData(where, "must start with the label 0 or 1", repr(label[:20]), _AGAIN)
    if not first or not second:
        raise BadData(where, "must have two texts", "an empty one", _AGAIN)
    return first, second, int(float(label))


class _AanEncoder:
    """Encodes the three files. Each row is read twice: to check and count it, and to write it."""

    def __init__(self, paths: Mapping[str, Path], length: int, progress: Progress) -> None:
        self._paths, self._length, self._progress = paths, length, progress

    def write(self, out: Writer) -> Characters:
        """Write the splits; return the vocabulary."""
        targets = {split: self._targets(split) for split in ("validation", "test")}
        counts: Counter[str] = Counter()
        targets["train"] = self._targets("train", counts)
        characters = Characters.of(counts)
        for split in SPLITS:
            self._split(split, characters, targets[split], out)
        return characters

    def _targets(self, split: str, counts: Counter[str] | None = None) -> np.ndarray:
        path = self._paths[split]
        labels = []
        for first, second, label in _rows(path):
            labels.append(label)
            if counts is not None:
                counts.update(first[: self._length])
                counts.update(second[: self._length])
            if len(labels) % 1000 == 0:
                self._progress(f"checking {path.name}", len(labels), len(labels))
        if len(set(labels)) == 1:
            raise BadData(str(path), "must have both classes", f"only {labels[0]}", _AGAIN)
        return np.array(labels, np.int32)

    def _split(self, split: str, characters: Characters, targets: np.ndarray, out: Writer) -> None:
        table, total = characters.table(), len(targets)
        inputs = out.array(f"{split}.inputs", (total, 2, self._length), characters.dtype)
        lengths = np.zeros((total, 2), np.int32)
        for row, (first, second, _) in enumerate(_rows(self._paths[split])):
            lengths[row] = [write(inputs[row, 0], first, table), write(inputs[row, 1], second, table)]
            if row % 1000 == 0:
                self._progress(f"encoding {self._paths[split].name}", row, total)
        out.put(f"{split}.lengths", lengths)
        out.put(f"{split}.targets", targets)
