"""Induction heads: recall of the token that followed a trigger.

The trigger occurs once among random tokens, and again at the end. The answer is the token that followed it.
Tokens other than the trigger are uniform, and so is the place of the pair.

Source: Gu & Dao 2023 (Mamba, arXiv 2312.00752), section 4.1.2, appendix E.1 and table 11: V = 16, L = 256 in
training, 64 to 1,048,576 in test.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from trainables.data.task import IGNORED, Requirement, Signature
from trainables.settings import MOST_EXAMPLES, Option
from trainables.tasks.lengths import names_of_longer
from trainables.tasks.recall import SIZES, Part, RecallTask, times_of

_SHORTEST = 3
"""Length of the shortest sequence: trigger, answer, trigger."""

_TIMES = (2, 4, 8, 16, 32, 64)


class Induction(RecallTask):
    """Recall what followed the trigger; one answer a sequence, at its last step."""

    name = "induction"
    title = "Induction heads: what followed the trigger? Trained at one length, tested at longer ones"
    published: ClassVar[Mapping[str, Any]] = {"length": 256, "symbols": 16}
    options: ClassVar[Mapping[str, Option]] = {
        "length": Option(256, "L, the steps of a sequence in training.", at_least=_SHORTEST),
        "symbols": Option(16, "V, the tokens beside the trigger.", at_least=2),
        "reach": Option(16, "How many times L the longest sequences of test are.", (1, *_TIMES)),
        **SIZES,
        "held_out": Option(
            1000, "Sequences of validation, and of each test split.", at_least=1, at_most=MOST_EXAMPLES
        ),
    }

    def parts(self, options: Mapping[str, Any], split: str) -> tuple[Part, ...]:
        """Return one kind of sequences."""
        rows = options["examples" if split == "train" else "held_out"]
        return (Part(times_of(split) * options["length"], 1, rows),)

    def further(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the names of the test splits with longer sequences, such as "x2"."""
        return names_of_longer(options, _TIMES)

    def outline(self, options: Mapping[str, Any]) -> Signature:
        """Return the signature: the classes are all tokens except for the trigger."""
        symbols = options["symbols"]
        return Signature("steps", symbols, symbols + 2, features=1, length=options["length"])

    def requires(self, options: Mapping[str, Any]) -> Requirement:
        """Return the requirement: memory of almost the whole length, back to the second step."""
        return Requirement(options["length"] - 2, order=True)

    def phrase(self, options: Mapping[str, Any]) -> str:
        """Return a description of the generated data."""
        return f"a trigger among {options['length']} tokens of {options['symbols']}"

    def departure(self, options: Mapping[str, Any]) -> str:
        """Return the departure that training has a limited number of sequences."""
        return f"{options['examples']:,} training sequences instead of an unlimited stream"

    def draw(
        self, options: Mapping[str, Any], rng: np.random.Generator, part: Part, rows: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw sequences: the trigger is the number after those of the other tokens."""
        symbols = trigger = options["symbols"]
        tokens = rng.integers(symbols, size=(rows, part.length))
        place = rng.integers(part.length - 2, size=rows)
        row = np.arange(rows)
        tokens[row, place] = tokens[:, -1] = trigger
        targets = np.full((rows, part.length), IGNORED, np.int32)
        targets[:, -1] = tokens[row, place + 1]
        return tokens + 1, targets
