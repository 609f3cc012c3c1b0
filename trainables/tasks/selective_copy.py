"""Selective copying: data tokens at random places among noise, which have to be recalled in order at the end.

The places are uniform without repetition, so that no fixed delay recalls the tokens. Of V symbols one is
noise; the symbol that asks is one more. The generator of the published figures was not released. The further
test splits x2, x4 and x8 hold as many tokens among 2 L, 4 L and 8 L steps.

Source: Gu & Dao 2023 (Mamba, arXiv 2312.00752), table 1 and appendix E.1: L = 4096, 16 tokens, V = 16; Poli
et al. 2024 (MAD, arXiv 2403.17844): L = 256, 16 tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from trainables.data.task import IGNORED, Requirement, Signature
from trainables.errors import Refusal
from trainables.settings import MOST_EXAMPLES, Option
from trainables.tasks.lengths import names_of_longer
from trainables.tasks.recall import (
    REACH,
    SIZES,
    Part,
    RecallTask,
    chosen,
    times_of,
)


class SelectiveCopy(RecallTask):
    """Recall the data tokens among noise; the accuracy is the share of tokens recalled right."""

    name = "selective_copy"
    title = "Selective copying: recall tokens at random places among noise; a class where one is asked for"
    published: ClassVar[Mapping[str, Any]] = {"length": 4096, "tokens": 16, "symbols": 16}
    options: ClassVar[Mapping[str, Option]] = {
        "length": Option(4096, "Steps before the tokens must be recalled; published: 4096, 256.", at_least=1),
        "tokens": Option(16, "Data tokens of a sequence.", at_least=1),
        "symbols": Option(16, "V, the symbols: V - 1 of data, and noise.", at_least=3),
        "reach": REACH,
        **SIZES,
        "examples": Option(20_000, "Training sequences.", at_least=1, at_most=MOST_EXAMPLES),
    }

    def validate(self, options: Mapping[str, Any]) -> None:
        """Refuse more data tokens than steps."""
        if options["tokens"] > options["length"]:
            must, got = f"must be at most the length, {options['length']}", str(options["tokens"])
            raise Refusal(f"task {self.name}: options.tokens", must, got, "Ask for fewer tokens.")

    def parts(self, options: Mapping[str, Any], split: str) -> tuple[Part, ...]:
        """Return one kind of sequences."""
        rows = options["examples" if split == "train" else "held_out"]
        return (Part(times_of(split) * options["length"] + options["tokens"], options["tokens"], rows),)

    def further(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the names of the test splits with longer sequences, such as "x2"."""
        return names_of_longer(options)

    def outline(self, options: Mapping[str, Any]) -> Signature:
        """Return the signature: the classes are the data tokens."""
        length = options["length"] + options["tokens"]
        symbols = options["symbols"]
        return Signature("steps", symbols - 1, symbols + 2, features=1, length=length)

    def requires(self, options: Mapping[str, Any]) -> Requirement:
        """Return the requirement: memory of the whole length, because all tokens precede the recall."""
        return Requirement(options["length"], order=True)

    def phrase(self, options: Mapping[str, Any]) -> str:
        """Return a description of the generated data."""
        return f"{options['tokens']} tokens among {options['length']} steps"

    def departure(self, options: Mapping[str, Any]) -> str:
        """Return the departure that training has a limited number of sequences."""
        return f"{options['examples']:,} training sequences instead of an unlimited stream"

    def draw(
        self, options: Mapping[str, Any], rng: np.random.Generator, part: Part, rows: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw sequences; data tokens have the first numbers, followed by noise and the query symbol."""
        length, count = part.length - part.items, part.items
        classes = options["symbols"] - 1
        data = rng.integers(classes, size=(rows, count))
        places = np.sort(chosen(rng, rows, count, length), axis=1)
        tokens = np.full((rows, part.length), classes)
        tokens[np.arange(rows)[:, None], places] = data
        tokens[:, length:] = classes + 1
        targets = np.full((rows, part.length), IGNORED, np.int32)
        targets[:, length:] = data
        return tokens + 1, targets
