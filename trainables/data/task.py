"""The contract of a task: three disjoint splits of the same shape, a metric, a chance level, and a source.

A task subclasses `Task` with two methods: `find` returns the source of the data without reading it, and
`encode` writes its arrays once. `Task` checks options, caches arrays, opens splits and computes digests.

Letters: n examples, L length, F features a step, C classes.
"""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from trainables.data.cache import Cache, Writer, fingerprint
from trainables.data.comparable import other_options, other_rows
from trainables.errors import Refusal
from trainables.settings import Option, Pooling

if TYPE_CHECKING:
    import numpy as np

Output = Literal["class", "steps", "value"]
"""One class a sequence, one class a step, or one real number a sequence."""

Metric = Literal["accuracy", "mse", "bits"]
"""Share of right answers, mean squared error, or bits per prediction (cross-entropy to the base 2)."""

Progress = Callable[[str, int, int], None]
"""Function `progress(what, done, total)`, called only in the calling process."""

SPLITS = ("train", "validation", "test")

PAD, UNKNOWN, END = 0, 1, 2
"""First token numbers of every vocabulary: padding, an unknown token, the end of the sequence."""

IGNORED = -1
"""Target of a step without a prediction, which counts neither in the loss nor in the metric."""

SPECIALS = 3
"""Number of reserved tokens, and the first token of a task."""

_CACHE = ".cache"
"""Folder of the encoded arrays, in the data folder."""

_CONSTANT_SCORES = 2
"""Version of the scores of constant answers, which are stored beside the arrays."""

MOST_NUMBERS = 2**32
"""Largest total number of input values of a task, several times that of the largest published data."""


class Scale(NamedTuple):
    """The scaling of stored numbers to model inputs: `(stored - shift) * factor`.

    Attributes:
        shift: One number for all features, or F numbers.
        factor: One number for all features, or F numbers.
    """

    shift: tuple[float, ...] = (0.0,)
    factor: tuple[float, ...] = (1.0,)


IDENTITY = Scale()


@dataclass(frozen=True)
class Signature:
    """The properties of a task's arrays on which a model depends.

    Attributes:
        output: Kind of prediction.
        classes: Number of classes C, or 1 for `value`.
        vocabulary: Number of tokens, specials included, or None for real-valued inputs.
        features: F of real-valued inputs, 1 for tokens.
        length: L, the padded length of every sequence.
        towers: Number of sequences of an example: 1, or 2 for pairs.
        scale: Scaling of stored numbers to model inputs; ignored for tokens.
        metric: Score of validation and test.
    """

    output: Output
    classes: int
    vocabulary: int | None
    features: int
    length: int
    towers: int = 1
    scale: Scale = IDENTITY
    metric: Metric = "accuracy"

    @staticmethod
    def from_document(document: Mapping[str, Any]) -> Signature:
        """Return the signature from its document, the result of `asdict`."""
        shift, factor = document["scale"]
        return Signature(**{**document, "scale": Scale(tuple(shift), tuple(factor))})


@dataclass(frozen=True)
class Split:
    """One part of a task's data, memory-mapped and read-only.

    Attributes:
        inputs: Tokens (n, L), pairs of them (n, 2, L), or numbers (n, L, F); padding is zero.
        lengths: True lengths (n,), or (n, 2) for pairs; int32.
        targets: Classes (n,) int32, classes a step (n, L) int32, or numbers (n,) float32. A step with the
            target `IGNORED` is not counted.
    """

    inputs: np.ndarray
    lengths: np.ndarray
    targets: np.ndarray

    def __len__(self) -> int:
        return len(self.lengths)


@dataclass(frozen=True)
class Remote:
    """One published file that can be fetched.

    Attributes:
        url: Address of the file.
        place: Path in the data folder, of the file or of the folder unpacked from an archive.
        sha256: Published SHA-256, or None.
        size: Published size in bytes, or None.
        inside: Folder of an archive that becomes `place`; "" for the whole archive, None for a file that is
            not unpacked.
        unpacked: Largest size of the unpacked part, in bytes.
        members: Largest number of files and folders of the unpacked part.
    """

    url: str
    place: str
    sha256: str | None
    size: int | None
    inside: str | None = None
    unpacked: int = 0
    members: int = 0

    @property
    def name(self) -> str:
        """File name at the end of the URL."""
        return self.url.rsplit("/", 1)[-1]


def long_range_arena(inside: str, place: str, *, unpacked: int, members: int) -> Remote:
    """Return one folder of the archive of Long Range Arena, which has no published checksum."""
    return Remote(
        url="https://storage.googleapis.com/long-range-arena/lra_release.gz",
        place=place,
        sha256=None,
        size=None,
        inside=inside,
        unpacked=unpacked,
        members=members,
    )


@dataclass(frozen=True)
class Source:
    """The source of a task's data.

    Attributes:
        phrase: Description in one phrase.
        comparable: Whether scores can be compared with published ones.
        note: Reason why scores cannot be compared, or another remark; '' if there is none.
        files: Files and folders that are read; empty for generated or embedded data.
        identity: Digest of content outside `files`, such as an embedded text.
        kind: Short name of the source for `encode`.
    """

    phrase: str
    comparable: bool
    note: str = ""
    files: tuple[Path, ...] = ()
    identity: str = ""
    kind: str = "generated"

    def departing(self, departures: Sequence[str]) -> Source:
        """Return the source with a note on differences from the published data, if there are any."""
        if not departures:
            return self
        note = "; ".join(filter(None, (self.note, ", ".join(departures))))
        return replace(self, comparable=False, note=note)


@dataclass(frozen=True)
class Encoding:
    """Facts about the arrays that `encode` wrote.

    Attributes:
        signature: Signature of the arrays.
        note: Remark on the scores that requires the data; '' if there is none.
        characters: Characters of the tokens from `SPECIALS` on; '' if tokens are not characters.
        comparable: Whether scores can be compared with published ones, according to the data.
    """

    signature: Signature
    note: str = ""
    characters: str = ""
    comparable: bool = True


@dataclass(frozen=True)
class Requirement:
    """The abilities that a task requires of a network, which tests verify with controls that lack them.

    Attributes:
        memory: Largest number of steps between a relevant step and the answer; 0 if no memory is needed.
        order: Whether the answer depends on the order of the steps.
    """

    memory: int
    order: bool

    @property
    def phrase(self) -> str:
        """Return the requirement in words."""
        order = "their order" if self.order else "in any order"
        return f"memory of up to {self.memory:,} steps, {order}" if self.memory else f"no memory, {order}"


@dataclass(frozen=True)
class TaskData:
    """A task's data, ready to train on.

    Attributes:
        signature: Signature of the arrays.
        train: Split for gradients.
        validation: Split for comparisons of trials.
        open_test: Function that opens the test split, which is not read before.
        source: Description of the source in one phrase.
        comparable: Whether scores can be compared with published ones.
        note: Reason why scores cannot be compared, or another remark; '' if there is none.
        digest: SHA-256 of the content of all three splits.
        chance: Metric of the best constant answer to the training split (`protocol.constant_scores`), on
            "validation" and on "test".
        trivial_loss: Loss of that answer in nats or squared units, on both.
        characters: Characters of the tokens from `SPECIALS` on; '' if tokens are not characters.
        further: Names of further test splits, such as "x2"; their sequences may be longer than L.
        open_further: Function that opens one of them by its name.
    """

    signature: Signature
    train: Split
    validation: Split
    open_test: Callable[[], Split]
    source: str
    comparable: bool
    note: str
    digest: str
    chance: Mapping[str, float]
    trivial_loss: Mapping[str, float]
    characters: str = ""
    further: tuple[str, ...] = ()
    open_further: Callable[[str], Split] | None = None

    @cached_property
    def test(self) -> Split:
        """The test split, opened when it is first used."""
        return self.open_test()

    def split(self, name: str) -> Split:
        """Return a split: "train", "validation", "test", or a further test split such as "test_x2"."""
        if name in SPLITS:
            split: Split = getattr(self, name)
            return split
        assert self.open_further is not None, f"no split {name}"
        return self.open_further(name.removeprefix("test_"))

    def facts(self) -> dict[str, Any]:
        """Return the facts about the data in a checkpoint, as JSON values."""
        return {"signature": asdict(self.signature), "characters": self.characters}

    def constant_answer(self, score: str) -> dict[str, float]:
        """Return the score of the best constant answer to the training split, on "validation" and on "test".

        Args:
            score: Metric of the task, or "loss".
        """
        return dict(self.trivial_loss if score == "loss" else self.chance)


class Task(ABC):
    """A data set with its protocol.

    Attributes:
        name: Name in `TASKS` and in a search-space file.
        title: One line for `data list` and the reference page.
        metric: Score of its splits.
        options: Options that a search-space file may give.
        remotes: Published files that it reads.
        texts: Example as texts, one a tower; empty if examples are numbers.
        pooling: Default pooling of the steps of a sequence.
        carries_state: Whether examples are consecutive segments, so that networks carry their states by
            default.
        published: Options of the published data, as tuples where papers have several values. With other
            values, scores cannot be compared.
        of_generator: Options that have no effect if files are read.
        version: Version of the encoding. Increase it when `encode` writes other arrays or facts.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    metric: ClassVar[Metric] = "accuracy"
    options: ClassVar[Mapping[str, Option]] = {}
    remotes: ClassVar[tuple[Remote, ...]] = ()
    texts: ClassVar[tuple[str, ...]] = ()
    pooling: ClassVar[Pooling] = "mean"
    carries_state: ClassVar[bool] = False
    published: ClassVar[Mapping[str, Any]] = {}
    of_generator: ClassVar[frozenset[str]] = frozenset()
    version: ClassVar[int] = 1

    @property
    def direction(self) -> Literal["maximize", "minimize"]:
        """Direction of the metric: whether higher or lower is better."""
        return "maximize" if self.metric == "accuracy" else "minimize"

    @abstractmethod
    def find(self, options: Mapping[str, Any], folder: Path) -> Source:
        """Return the source of the data, after reading at most headers.

        Raises:
            BadData: A file is missing, or is not in the format that its name indicates.
        """

    def outline(self, options: Mapping[str, Any]) -> Signature | None:
        """Return the signature of published data with these options; None if it depends on the data.

        `encode` may return another vocabulary, scale or number of classes, according to the data.

        Args:
            options: All options of the task, such as `completed` returns.
        """
        return None

    def requires(self, options: Mapping[str, Any]) -> Requirement | None:
        """Return the requirements of the task with `pooling: last`; None if unknown, as for natural data.

        Args:
            options: All options of the task, such as `completed` returns.
        """
        return None

    def further(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the names of further test splits, such as "x2" for sequences of up to twice the length.

        They are evaluated with test, at the end of a sweep, and their metrics are named `test/accuracy_x2`.

        Args:
            options: All options of the task, such as `completed` returns.
        """
        return ()

    def published_rows(self, source: Source) -> tuple[int, int, int] | None:
        """Return the numbers of examples of the published splits; None where no paper states them.

        Args:
            source: Source of the data.
        """
        return None

    @abstractmethod
    def encode(self, options: Mapping[str, Any], source: Source, out: Writer, progress: Progress) -> Encoding:
        """Write `<split>.inputs`, `.lengths` and `.targets` for the three splits.

        A further test split x2 has the arrays `test_x2.inputs`, `.lengths` and `.targets`.

        Raises:
            BadData: A row of the source is not in the published format.
        """

    def tokens(self, text: str, length: int, characters: str) -> np.ndarray:
        """Return a text as `encode` writes it: (at most `length`,) token numbers, the end token included.

        Args:
            text: One text of an example.
            length: L.
            characters: `TaskData.characters` of the task.

        Raises:
            Refusal: The text is not an example of the task, or its examples are not texts.
        """
        raise Refusal(f"task {self.name}", "an example must be numbers", repr(text[:40]), "Give its array.")

    def validate(self, options: Mapping[str, Any]) -> None:  # noqa: B027 (most tasks have no such rule)
        """Check that options do not contradict each other.

        Raises:
            Refusal: Options contradict each other.
        """

    def checked(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return all options of the task, with defaults; nothing is read or allocated.

        Raises:
            Refusal: An option is unknown or out of bounds, options contradict each other, or the data would
                be too large.
        """
        complete = completed(self.name, self.options, options)
        self.validate(complete)
        if (one := self.outline(complete)) is None:
            return complete
        rows = complete.get("examples", complete.get("pairs", 0))
        rows += complete.get("held_out", 0) * (2 + sum(range(complete.get("reach", 1) + 1)))
        numbers = rows * one.length * one.features * one.towers
        if numbers > MOST_NUMBERS:
            must = f"may request at most {MOST_NUMBERS:,} numbers, examples times their length"
            raise Refusal(
                f"task {self.name}: options", must, f"{numbers:,}", "Ask for fewer, or shorter ones."
            )
        return complete

    def check(self, options: Mapping[str, Any], folder: Path) -> Source:
        """Return the source of the data, in under half a second and without writing anything.

        Raises:
            Refusal: An option is unknown or out of bounds.
            BadData: A file is missing, or is not in the format that its name indicates.
        """
        complete = self.checked(options)
        source = self.find(complete, folder)
        read = {name: value for name, value in complete.items() if self._is_read(name, source)}
        return source.departing(other_options(self.published, read))

    def _is_read(self, option: str, source: Source) -> bool:
        return not (source.files and option in self.of_generator)

    def signature(self, options: Mapping[str, Any], folder: Path) -> Signature | None:
        """Return the signature of the arrays if they are in the cache, else None.

        Raises:
            Refusal: An option is unknown or out of bounds.
            BadData: A file is missing, or is not in the format that its name indicates.
        """
        complete = completed(self.name, self.options, options)
        source = self.check(complete, folder)
        facts = Cache.built_facts(folder / _CACHE, self.name, self._key(complete, source))
        return Signature.from_document(facts["signature"]) if facts else None

    def load(self, options: Mapping[str, Any], folder: Path, progress: Progress | None = None) -> TaskData:
        """Return the data, which the first call encodes into `folder/.cache`, as memory-mapped arrays.

        Raises:
            Refusal: An option is unknown or out of bounds, the data exceed the memory, or the cache cannot be
                written.
            BadData: The source is not in its published format.
        """
        report = progress or _silent
        complete = completed(self.name, self.options, options)
        source = self.check(complete, folder)

        def build(out: Writer) -> dict[str, Any]:
            try:
                encoding = self.encode(complete, source, out, report)
                return _facts(encoding) | _constant_scores(encoding.signature, out)
            except MemoryError as error:
                must = "must request data that fits into the memory of this machine"
                remedy = "Ask for fewer or shorter examples."
                raise Refusal(f"task {self.name}: options", must, str(error), remedy) from error

        key = self._key(complete, source)
        cache = Cache(folder / _CACHE, self.name, key, build, report)
        if rows := self.published_rows(source):
            source = source.departing(other_rows(dict(zip(SPLITS, rows, strict=True)), _rows(cache)))
        return _data(cache, source, self.further(complete))

    def _key(self, complete: Mapping[str, Any], source: Source) -> dict[str, Any]:
        """Return all values on which the encoded arrays depend."""
        return {
            "options": dict(complete),
            "version": self.version,
            "constant": _CONSTANT_SCORES,
            "source": [source.kind, source.identity, fingerprint(source.files)],
        }


def completed(task: str, declared: Mapping[str, Option], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return all declared options, with defaults, in the declared order.

    Raises:
        Refusal: A name is unknown, a value has another type than the default, or is out of bounds.
    """
    for name in given:
        if name not in declared:
            near = difflib.get_close_matches(name, declared, 1)
            remedy = f"Did you mean {near[0]}?" if near else f"Options: {', '.join(declared) or 'none'}."
            raise Refusal(f"task {task}: options.{name}", "is not an option of the task", "", remedy)
    return {
        name: _value(task, name, option, given.get(name, option.default)) for name, option in declared.items()
    }


def _value(task: str, name: str, option: Option, value: Any) -> Any:
    where = f"task {task}: options.{name}"
    kind = type(option.default)
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        raise Refusal(
            where, f"must be a value of type {kind.__name__}", repr(value), f"For example {option.default!r}."
        )
    if option.choices is not None and value not in option.choices:
        legal = ", ".join(map(str, option.choices))
        raise Refusal(where, f"must be one of {legal}", repr(value), option.summary)
    if option.at_least is not None and value < option.at_least:
        raise Refusal(where, f"must be at least {option.at_least}", repr(value), option.summary)
    if kind is int and option.choices is None and value > option.at_most:
        raise Refusal(where, f"must be at most {option.at_most}", repr(value), option.summary)
    return value


def _silent(what: str, done: int, total: int) -> None:
    """Report nothing."""


def _facts(encoding: Encoding) -> dict[str, Any]:
    """Return the facts of an encoding for the cache.

    They are part of the digest of the data, so comparability is a fact only of data that are not comparable.
    """
    facts = asdict(encoding)
    return {name: fact for name, fact in facts.items() if name != "comparable" or not fact}


def _constant_scores(signature: Signature, out: Writer) -> dict[str, Any]:
    from trainables.data.evaluation_protocol import constant_scores  # numpy: a check of a file needs none

    chance, loss = constant_scores(signature, {split: out.written(f"{split}.targets") for split in SPLITS})
    return {"chance": chance, "trivial_loss": loss}


def _data(cache: Cache, source: Source, further: tuple[str, ...]) -> TaskData:
    train, validation = _split(cache, "train"), _split(cache, "validation")
    facts = cache.facts
    return TaskData(
        signature=Signature.from_document(facts["signature"]),
        train=train,
        validation=validation,
        open_test=lambda: _split(cache, "test"),
        source=source.phrase,
        comparable=source.comparable and facts.get("comparable", True),
        note="; ".join(filter(None, (source.note, facts["note"]))),
        digest=cache.digest,
        chance=facts["chance"],
        trivial_loss=facts["trivial_loss"],
        characters=facts.get("characters", ""),  # entries of earlier versions do not have it
        further=further,
        open_further=lambda name: _split(cache, f"test_{name}"),
    )


def _rows(cache: Cache) -> dict[str, int]:
    """Return the number of examples of each split, without reading the splits."""
    return {split: cache.rows(f"{split}.lengths") for split in SPLITS}


def _split(cache: Cache, name: str) -> Split:
    return Split(*cache.arrays(f"{name}.{part}" for part in ("inputs", "lengths", "targets")))
