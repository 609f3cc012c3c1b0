"""Multi-query associative recall: pairs of a key and a value, then the keys again; recall each value.

A sequence begins with n pairs. The rest consists of slots of two steps. Each key returns once, in a slot of
its own, and its value is the target at that step. The gap g to a slot has the probability p ~ g^(a - 1). Keys
are the numbers 1 to V/2 - 1, values V/2 to V - 1, both without repetition. Other steps hold the filler 0 or
random numbers. The further test splits x2, x4 and x8 hold equally many pairs in 2 L, 4 L and 8 L steps. The
mixture has its own tests, with more pairs in more steps.

Source: Arora et al. 2023 (Zoology, arXiv 2312.04927), appendix C, and its code `multiquery_ar.py`; the
mixture is the one of its later configurations (Arora et al. 2024, "Based").
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from trainables.data.comparable import other_options
from trainables.data.task import IGNORED, Requirement, Signature
from trainables.errors import Refusal
from trainables.settings import Option
from trainables.tasks.lengths import names_of_longer
from trainables.tasks.recall import (
    REACH,
    SIZES,
    Part,
    RecallTask,
    chosen,
    times_of,
    weighted,
)

_STEPS_A_PAIR = 4
"""Number of steps a pair: two for the pair, and two for the slot in which its key returns."""

_MIXTURE = ((64, 4, 5), (128, 8, 1), (256, 16, 1), (256, 32, 1), (256, 64, 1))
"""Length, pairs, and share of training: 100,000 of the first kind and 20,000 of each other, of 180,000."""

_TESTS = ((64, 4), (64, 8), (64, 16), (128, 32), (256, 64), (512, 128), (1024, 256))
"""Length and pairs of the published tests of a network that was trained on the mixture."""

_KINDS = ((64, 4), (128, 8), (256, 16), (512, 64))
"""Length and pairs of the published sequences without the mixture."""

_OF_ONE_KIND, _OF_THE_MIXTURE = 100_000, 180_000
"""Published training sequences without the mixture, and with it."""

_FURTHER = {f"l{length}_n{pairs}": (length, pairs) for length, pairs in _TESTS}


class Mqar(RecallTask):
    """Multi-query associative recall; the accuracy is the share of queries answered right."""

    name = "mqar"
    title = "MQAR: recall the values of several keys; one of V classes where a key returns"
    published: ClassVar[Mapping[str, Any]] = {"vocabulary": 8192, "power": 0.01, "random_filler": False}
    options: ClassVar[Mapping[str, Option]] = {
        "length": Option(
            64, "L, the steps of a sequence; published with pairs: 64, 128, 256, 512.", at_least=4
        ),
        "pairs": Option(4, "n, the pairs of a sequence; published: 4, 8, 16, 64.", at_least=1),
        "mixture": Option(
            default=False,
            summary="Whether to train on the published mixture of lengths and pairs, and test on more.",
        ),
        "vocabulary": Option(8192, "V, the keys and values together, the filler included.", at_least=8),
        "power": Option(0.01, "Exponent a of the distribution of gaps; 1 is uniform.", at_least=0.0),
        "reach": REACH,
        "random_filler": Option(default=False, summary="Whether other steps hold random numbers."),
        **SIZES,
    }

    def validate(self, options: Mapping[str, Any]) -> None:
        """Refuse pairs that do not fit a sequence or the vocabulary."""
        where = f"task {self.name}: options"
        kinds = {(part.length, part.items) for part in self.parts(options, "train")}
        if not options["mixture"]:
            kinds = {(options["length"], options["pairs"])}
        for length, pairs in kinds:
            if length % 2 or _STEPS_A_PAIR * pairs > length:
                must = f"must be even and at least {_STEPS_A_PAIR} steps a pair"
                raise Refusal(f"{where}.length", must, f"{length} for {pairs}", "Ask for fewer pairs.")
        if options["mixture"] and options["reach"] > 1:
            must = "must be 1 with the mixture, which has tests of its own"
            raise Refusal(f"{where}.reach", must, str(options["reach"]), "Leave it out.")
        most = max(pairs for _, pairs in (*kinds, *(_FURTHER.values() if options["mixture"] else ())))
        if options["vocabulary"] // 2 - 1 < most:
            must, got = f"must have a key for each of {most} pairs", str(options["vocabulary"])
            raise Refusal(f"{where}.vocabulary", must, got, f"Give at least {2 * most + 2}.")

    def parts(self, options: Mapping[str, Any], split: str) -> tuple[Part, ...]:
        """Return one kind of sequences, or the kinds of the mixture."""
        rows = options["examples" if split == "train" else "held_out"]
        if (further := _FURTHER.get(split.removeprefix("test_"))) is not None:
            return (Part(*further, rows),)
        if not options["mixture"]:
            return (Part(times_of(split) * options["length"], options["pairs"], rows),)
        total = sum(share for *_, share in _MIXTURE)
        rest = [Part(length, pairs, rows * share // total) for length, pairs, share in _MIXTURE[1:]]
        length, pairs, _ = _MIXTURE[0]
        return Part(length, pairs, rows - sum(part.rows for part in rest)), *rest

    def further(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the names of the test splits of longer sequences: "x2", "l1024_n256" of the mixture."""
        return tuple(_FURTHER) if options["mixture"] else names_of_longer(options)

    def outline(self, options: Mapping[str, Any]) -> Signature:
        """Return the signature: the classes are all numbers, as published, so that chance is 1 / V."""
        length = max(part.length for part in self.parts(options, "train"))
        return Signature("steps", options["vocabulary"], options["vocabulary"] + 1, features=1, length=length)

    def requires(self, options: Mapping[str, Any]) -> Requirement:
        """Return the requirement: memory of the whole length, and order, because a value follows its key."""
        length = max(part.length for part in self.parts(options, "train"))
        return Requirement(length - 2, order=True)

    def phrase(self, options: Mapping[str, Any]) -> str:
        """Return a description of the generated data."""
        if options["mixture"]:
            return "the published mixture of 4 to 64 pairs in 64 to 256 steps"
        return f"{options['pairs']} pairs in {options['length']} steps"

    def departure(self, options: Mapping[str, Any]) -> str:
        """Return the departure from all published sequences and their number; '' if there is none."""
        rows = _OF_THE_MIXTURE if options["mixture"] else _OF_ONE_KIND
        other = other_options({"examples": rows}, options)
        if not options["mixture"] and (options["length"], options["pairs"]) not in _KINDS:
            kinds = ", ".join(f"{pairs} in {length}" for length, pairs in _KINDS)
            other.append(f"{self.phrase(options)} instead of {kinds}")
        return ", ".join(other)

    def draw(
        self, options: Mapping[str, Any], rng: np.random.Generator, part: Part, rows: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw sequences with the same number of pairs."""
        vocabulary, pairs = options["vocabulary"], part.items
        half = vocabulary // 2
        keys = 1 + chosen(rng, rows, pairs, half - 1)
        values = half + chosen(rng, rows, pairs, vocabulary - half)
        slots = (part.length - 2 * pairs) // 2
        slot = weighted(rng, rows, pairs, np.arange(1, slots + 1) ** (options["power"] - 1.0))
        asked = 2 * pairs + 2 * slot
        row = np.arange(rows)[:, None]
        tokens = np.zeros((rows, part.length), np.int64)
        targets = np.full((rows, part.length), IGNORED, np.int32)
        tokens[:, : 2 * pairs : 2], tokens[:, 1 : 2 * pairs : 2] = keys, values
        tokens[row, asked], targets[row, asked] = keys, values
        if options["random_filler"]:
            tokens = np.where(tokens == 0, rng.integers(vocabulary, size=tokens.shape), tokens)
        return tokens + 1, targets
