"""A checkpoint that answers: raw examples in, classes or numbers out; whole, or one step at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from trainables import checkpoint, streaming
from trainables.data.task import Signature
from trainables.engine.engine import bucket
from trainables.engine.names import Names
from trainables.engine.program import Program
from trainables.engine.state import Trained
from trainables.model import Model
from trainables.reading import Reader
from trainables.streaming import Carried
from trainables.tasks import TASKS
from trainables.trial import TrialSettings

TOGETHER = 16
"""Examples answered by one device call."""

Answers = dict[str, list[Any]]
"""`answer`: a class, a number, or the classes of all steps; `probabilities` (C,) for one class a sequence."""


class Predictor:
    """The network of a checkpoint.

    Attributes:
        settings: what was trained.
        signature: of its task's arrays.
        reader: turns raw examples into sequences.
    """

    def __init__(self, folder: Path, digest: str) -> None:
        """Read a checkpoint. It needs nothing else, not even the data of its task.

        Args:
            folder: of the checkpoint.
            digest: SHA-256 of its manifest, as the ledger records it.

        Raises:
            DamagedCheckpoint: if a file is not what was recorded.
        """
        arrays, facts = checkpoint.load(folder, digest)
        self.settings = TrialSettings.from_document(facts["settings"])
        self.signature = Signature.from_document(facts["signature"])
        self.reader = Reader(TASKS[self.settings.task], self.signature, facts["characters"])
        self._layout = Program(self.settings, self.signature, padded=True, evaluated=1).layout
        self._trained = Names(self._layout.params, self._layout.stats).together(arrays)
        # The arrays are arguments: XLA would spend minutes on folding constants.
        self._whole = jax.jit(lambda trained, inputs, lengths: self._model(trained)(inputs, lengths)[0])
        self._step = jax.jit(lambda trained, carried, now: streaming.step(self._model(trained), carried, now))

    def predict(self, examples: Sequence[Any]) -> Answers:
        """Answer raw examples: texts, pairs of texts, or arrays as the task stores them.

        Raises:
            Refusal: if one of them is none that the task asks about.
        """
        return self._answers(self.logits([self.reader.read(example) for example in examples]))

    def logits(self, examples: Sequence[tuple[np.ndarray, ...]]) -> np.ndarray:
        """Return logits (n, C), or (n, L, C) for an output by step, of examples that `reader` has read."""
        parts = []
        for start in range(0, len(examples), TOGETHER):
            together = examples[start : start + TOGETHER]
            inputs, lengths = self.reader.padded(together, bucket(len(together), TOGETHER))
            parts.append(np.asarray(self._whole(self._trained, inputs, lengths))[: len(together)])
        return np.concatenate(parts) if parts else np.zeros((0, self.signature.classes), np.float32)

    def stream(self) -> Stream:
        """Return the network before the first step of a sequence.

        Raises:
            Refusal: if it reads the sequence backwards too, or compares two.
        """
        return Stream(self._trained, self._step, streaming.initial_state(self._model(self._trained)))

    def steps(self, example: Any) -> Iterator[Answers]:
        """Yield the answer after each step of a raw example, read one step at a time."""
        stream = self.stream()
        for now in self.reader.read(example)[0]:
            yield self._answers(stream.feed(now)[None])

    def _model(self, trained: Trained) -> Model:
        layout = self._layout
        return layout.model(layout.params.unpack(trained.params), layout.stats.unpack(trained.stats))

    def _answers(self, logits: np.ndarray) -> Answers:
        if self.signature.output == "value":
            return {"answer": logits[..., 0].tolist()}
        answers = {"answer": logits.argmax(axis=-1).tolist()}
        if self.signature.output == "class":
            answers["probabilities"] = np.asarray(jax.nn.softmax(logits, axis=-1)).tolist()
        return answers


class Stream:
    """One sequence, read step by step; all that is remembered of it is the carried state."""

    def __init__(self, trained: Trained, step: Any, carried: Carried) -> None:
        self._trained, self._step, self._carried = trained, step, carried

    def feed(self, now: Any) -> np.ndarray:
        """Read one step, a token or numbers (F,); return the logits (C,) after it."""
        self._carried, logits = self._step(self._trained, self._carried, np.asarray(now))
        return np.asarray(logits)
