"""Inference from a checkpoint: raw examples in, classes or numbers out.

`Reader` turns raw examples into the sequences that the network reads. `Predictor` answers whole sequences.
`Stream` runs the network as an RNN, one step at a time, for causal networks that read one sequence:
normalisation uses its running statistics, and a mean over time is a sum and a count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array
from jax import numpy as jnp

from trainables import checkpoint
from trainables.data.task import Signature, Task
from trainables.engine.buckets import bucket
from trainables.engine.network import NetworkProgram
from trainables.engine.state import Trained
from trainables.errors import Refusal
from trainables.layers.layer import only_looks_back
from trainables.model import BlockState, Model, Padding
from trainables.tasks import TASKS
from trainables.trial import TrialSettings

TOGETHER = 16
"""Number of examples of one device call."""

Answers = dict[str, list[Any]]
"""`answer`: a class, a number, or the classes of all steps; `probabilities` (C,) for one class a sequence."""


@dataclass(frozen=True)
class Reader:
    """Converts raw examples to arrays in the same way as the data of the task.

    Attributes:
        task: Task.
        signature: Signature of its arrays.
        characters: Characters of its tokens; '' if tokens are not characters.
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
            example: Text, a pair of texts, or an array as the task stores it.

        Raises:
            Refusal: The example is not one of the task.
        """
        if not self.task.texts:
            return (self._numbers(example),)
        texts = tuple(example) if isinstance(example, list | tuple) else (example,)
        if len(texts) != self.signature.towers or not all(isinstance(text, str) for text in texts):
            must = "must be a text" if self.signature.towers == 1 else "must be a pair of texts"
            raise Refusal("example", must, repr(example)[:60], f"For example: {self.task.texts}")
        return tuple(self.task.tokens(text, self.signature.length, self.characters) for text in texts)

    def step(self, now: Any) -> np.ndarray:
        """Return one step of a sequence, a token or numbers (F,), as the network reads it.

        Raises:
            Refusal: The value is not a step of the task.
        """
        (step,) = self._numbers(np.asarray(now)[None])
        return np.asarray(step)

    def padded(self, examples: Sequence[tuple[np.ndarray, ...]], rows: int) -> tuple[np.ndarray, np.ndarray]:
        """Return inputs and lengths of `rows` examples; missing examples are one step of zeros.

        Args:
            examples: Examples as `read` returns them.
            rows: Number of rows; at least the number of examples.

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
            values = np.asarray(example, np.float64)
        except (TypeError, ValueError) as error:
            must = f"must be an array of numbers {shape}"
            raise Refusal("example", must, repr(example)[:60], "Write its numbers.") from error
        if (
            values.ndim != 1 + len(self.width)
            or values.shape[1:] != self.width
            or not 0 < len(values) <= longest
        ):
            must = f"must be an array {shape} of 1 to {longest} steps"
            raise Refusal(
                "example", must, f"shape {values.shape}", "Give every example as an array of its own."
            )
        if not np.isfinite(values).all() or (tokens and not _whole(values, tokens)):
            must = f"must hold tokens 0 to {tokens - 1}" if tokens else "must hold finite numbers"
            raise Refusal(
                "example", must, str(values.ravel()[:6].tolist()), "Give numbers as the task stores them."
            )
        return values.astype(self._type)


def _whole(values: np.ndarray, below: int) -> bool:
    return bool(np.all((values == np.floor(values)) & (values >= 0) & (values < below)))


class Predictor:
    """The network of a checkpoint.

        predictor = Predictor(folder, digest)
        answers = predictor.predict(["a fine film", "a dull one"])

    Attributes:
        settings: Settings of the trial that was trained.
        signature: Signature of its task's arrays.
        reader: Reader that converts raw examples to sequences.
    """

    def __init__(self, folder: Path, digest: str) -> None:
        """Read a checkpoint, which contains everything that is needed.

        Args:
            folder: Folder of the checkpoint.
            digest: SHA-256 of its manifest, as the ledger records it.

        Raises:
            DamagedCheckpoint: A file was changed.
        """
        arrays, facts = checkpoint.load(folder, digest)
        self.settings = TrialSettings.from_document(facts["settings"])
        self.signature = Signature.from_document(facts["signature"])
        self.reader = Reader(TASKS[self.settings.task], self.signature, facts["characters"])
        program = NetworkProgram(self.settings, self.signature, padded=True, evaluated=1)
        self._layout = program.layout
        # An example begins with the initial state: what rows of the training text carried is left out.
        self._trained = replace(program.together(arrays), carried=None)
        # The arrays are arguments: as constants, XLA would fold them for minutes.
        self._whole = jax.jit(lambda trained, inputs, lengths: self._model(trained)(inputs, lengths))
        self._step = jax.jit(lambda trained, carried, now: step(self._model(trained), carried, now))

    def predict(self, examples: Sequence[Any]) -> Answers:
        """Answer raw examples: texts, pairs of texts, or arrays as the task stores them.

        Returns:
            An answer for each example; for an output by step, one for each step of the example.

        Raises:
            Refusal: One of them is not an example of the task.
        """
        read = [self.reader.read(example) for example in examples]
        answers = self._answers(self.logits(read))
        if self.signature.output != "steps":
            return answers
        return {
            name: [row[: len(sequence)] for row, (sequence,) in zip(rows, read, strict=True)]
            for name, rows in answers.items()
        }

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
            Refusal: The network also reads the sequence backwards, or compares two sequences.
        """
        return Stream(self.reader, self._trained, self._step, initial_state(self._model(self._trained)))

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
    """One sequence that is read step by step and remembered only in the carried state."""

    def __init__(self, reader: Reader, trained: Trained, step: Any, carried: ReadState) -> None:
        self._reader, self._trained, self._step, self._carried = reader, trained, step, carried

    def feed(self, now: Any) -> np.ndarray:
        """Read one step, a token or numbers (F,); return the logits (C,) after it.

        Raises:
            Refusal: The value is not a step of the task.
        """
        self._carried, logits = self._step(self._trained, self._carried, self._reader.step(now))
        return np.asarray(logits)


class ReadState(NamedTuple):
    """The memory of a network after the steps so far.

    Attributes:
        blocks: State of each block.
        total: (D,), sum of the last block's outputs.
        steps: Number of steps, a float scalar.
    """

    blocks: tuple[BlockState, ...]
    total: Array
    steps: Array


def initial_state(model: Model) -> ReadState:
    """Return the memory before the first step.

    Raises:
        Refusal: The network also reads the sequence backwards, or compares two sequences.
    """
    if model.signature.towers != 1:
        must, remedy = "the network must read one sequence", "Call `predict` with both documents."
        raise Refusal("streaming", must, f"{model.signature.towers} sequences", remedy)
    for block in model.blocks:
        only_looks_back(block.layer)
    blocks = tuple(block.initial_state() for block in model.blocks)
    return ReadState(blocks, jnp.zeros(model.head.in_features), jnp.float32(0))


def step(model: Model, carried: ReadState, now: Array) -> tuple[ReadState, Array]:
    """Advance by one step.

    Args:
        model: Network.
        carried: Returned by `initial_state` or by the step before.
        now: Step's token, a scalar, or its numbers (F,), as stored.

    Returns:
        The next memory, and logits (C,): of the sequence so far, or of this step for an output by step.
    """
    x = model.encoder(now[None, None])
    unpadded = Padding(lengths=None, mask=None, steps=jnp.float32(1))
    states = []
    for block, state in zip(model.blocks, carried.blocks, strict=True):
        normal = block.normalised("before", x, unpadded, training=False)
        state, out = block.step(state, normal[0, 0])
        x = block.normalised("after", x + block.mixed(out), unpadded, training=False)
        states.append(state)
    moved = ReadState(tuple(states), carried.total + x[0, 0], carried.steps + 1)
    only_this = model.signature.output == "steps" or model.pooling == "last"
    pooled = x[0, 0] if only_this else moved.total / moved.steps
    return moved, model.head(pooled)
