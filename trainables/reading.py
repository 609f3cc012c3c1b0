"""Raw examples, texts or numbers, as the sequences that a network reads; no JAX."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trainables.data.task import Signature, Task
from trainables.errors import Refusal


@dataclass(frozen=True)
class Reader:
    """Reads examples as the task's own data was read.

    Attributes:
        task: the task.
        signature: of its arrays.
        characters: what its tokens stand for; '' unless they are characters.
    """

    task: Task
    signature: Signature
    characters: str

    @property
    def width(self) -> tuple[int, ...]:
        """Return the shape of a step: () for a token, (F,) for numbers."""
        return () if self.signature.vocabulary else (self.signature.features,)

    def read(self, example: Any) -> tuple[np.ndarray, ...]:
        """Return the sequences of an example, one a tower: int32 (at most L,) or float32 (at most L, F).

        Args:
            example: a text, a pair of texts, or an array as the task stores it.

        Raises:
            Refusal: if the example is none that the task asks about.
        """
        if not self.task.texts:
            return (self._numbers(example),)
        texts = tuple(example) if isinstance(example, list | tuple) else (example,)
        if len(texts) != self.signature.towers or not all(isinstance(text, str) for text in texts):
            must = "must be a text" if self.signature.towers == 1 else "must be a pair of texts"
            raise Refusal("example", must, repr(example)[:60], f"For example: {self.task.texts}")
        return tuple(self.task.tokens(text, self.signature.length, self.characters) for text in texts)

    def padded(self, examples: Sequence[tuple[np.ndarray, ...]], rows: int) -> tuple[np.ndarray, np.ndarray]:
        """Return inputs and lengths of `rows` examples, those behind the given ones of one step of zeros.

        Args:
            examples: what `read` returned.
            rows: at least as many.

        Returns:
            (rows, L), (rows, L, F) or (rows, 2, L), and true lengths (rows,) or (rows, 2).
        """
        signature = self.signature
        inputs = np.zeros((rows, signature.towers, signature.length, *self.width), self._type)
        lengths = np.ones((rows, signature.towers), np.int32)
        for row, sequences in enumerate(examples):
            for tower, sequence in enumerate(sequences):
                inputs[row, tower, : len(sequence)] = sequence
                lengths[row, tower] = len(sequence)
        return (inputs, lengths) if signature.towers > 1 else (inputs[:, 0], lengths[:, 0])

    @property
    def _type(self) -> type[np.int32] | type[np.float32]:
        return np.int32 if self.signature.vocabulary else np.float32

    def _numbers(self, example: Any) -> np.ndarray:
        longest, tokens = self.signature.length, self.signature.vocabulary
        shape = f"({', '.join(map(str, ('steps', *self.width)))})"
        try:
            found = np.asarray(example, np.float64)
        except (TypeError, ValueError) as error:
            must = f"must be an array of numbers {shape}"
            raise Refusal("example", must, repr(example)[:60], "Write its numbers.") from error
        if (
            found.ndim != 1 + len(self.width)
            or found.shape[1:] != self.width
            or not 0 < len(found) <= longest
        ):
            must = f"must be an array {shape} of 1 to {longest} steps"
            raise Refusal("example", must, f"shape {found.shape}", "Give each example an array of its own.")
        if not np.isfinite(found).all() or (tokens and not _whole(found, tokens)):
            must = f"must hold tokens 0 to {tokens - 1}" if tokens else "must hold finite numbers"
            raise Refusal("example", must, str(found.ravel()[:6].tolist()), "Give what the task stores.")
        return found.astype(self._type)


def _whole(found: np.ndarray, below: int) -> bool:
    return bool(np.all((found == np.floor(found)) & (found >= 0) & (found < below)))
