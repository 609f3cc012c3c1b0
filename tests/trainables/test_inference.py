"""A predictor agrees with the engine that trained its checkpoint, and refuses bad examples."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.trainables.checkpoints import LISTOPS, saved, settings
from trainables.data.task import END, UNKNOWN, Signature, TaskData
from trainables.errors import Refusal
from trainables.inference import Predictor, Reader
from trainables.tasks import TASKS
from trainables.tasks.listops import parsed
from trainables.tasks.listops_rule import CLOSE, CLOSE_TOKEN, FIRST_DIGIT, FIRST_OPERATOR, OPERATORS
from trainables.tasks.text import Characters


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("inference")


@pytest.fixture(scope="module")
def listops(folder: Path) -> tuple[Predictor, TaskData, dict[str, float]]:
    """Return a predictor, its data, and the engine's scores on validation."""
    written, engine = saved(folder, settings("listops", LISTOPS))
    return (
        Predictor(written.folder, written.digest),
        TASKS["listops"].load(LISTOPS, folder),
        engine.evaluate(0),
    )


def _expression(tokens: np.ndarray) -> str:
    words = {FIRST_DIGIT + digit: str(digit) for digit in range(10)}
    words |= {FIRST_OPERATOR + code: operator for code, operator in enumerate(OPERATORS)}
    return " ".join({**words, CLOSE_TOKEN: CLOSE}[token] for token in tokens.tolist())


def _expressions(data: TaskData) -> list[str]:
    """Return the expressions of validation as texts, without their end tokens."""
    split = data.validation
    return [_expression(row[: n - 1]) for row, n in zip(split.inputs, split.lengths, strict=True)]


def test_predictions_score_as_the_engine_evaluated(
    listops: tuple[Predictor, TaskData, dict[str, float]],
) -> None:
    """The texts of validation give the recorded scores, whatever the padding."""
    predictor, data, scores = listops
    answers = predictor.predict(_expressions(data))
    targets = data.validation.targets
    assert np.mean(np.array(answers["answer"]) == targets) == scores["accuracy"]
    chosen = np.array(answers["probabilities"])[np.arange(len(targets)), targets]
    assert -np.mean(np.log(chosen)) == pytest.approx(scores["loss"], rel=1e-5)


@pytest.mark.slow
def test_stepping_equals_the_whole_sequence(listops: tuple[Predictor, TaskData, dict[str, float]]) -> None:
    """The recurrent form, with carried state, ends with the same answer as the whole sequence."""
    predictor, data, _ = listops
    texts = _expressions(data)[:3]
    whole = predictor.predict(texts)
    for text, probabilities, answer in zip(texts, whole["probabilities"], whole["answer"], strict=True):
        *_, last = predictor.steps(text)
        np.testing.assert_allclose(last["probabilities"][0], probabilities, rtol=1e-4)
        assert last["answer"] == [answer]


@pytest.mark.slow
def test_stepping_answers_every_step(folder: Path) -> None:
    """Where each step has a class, each step's logits are those of the whole sequence."""
    sizes = {"delay": 5, "examples": 32, "held_out": 8}
    written, _ = saved(folder, settings("copy", sizes, layer="lstm", options={}, depth=1))
    predictor = Predictor(written.folder, written.digest)
    sequence = TASKS["copy"].load(sizes, folder).validation.inputs[0]
    stream = predictor.stream()
    stepped = np.stack([stream.feed(token) for token in sequence])
    np.testing.assert_allclose(stepped, predictor.logits([(sequence,)])[0], rtol=1e-4, atol=1e-6)
    whole = stepped.argmax(axis=-1).tolist()
    shorter = predictor.predict([sequence, sequence[:7]])["answer"]
    assert shorter == [whole, whole[:7]], "an answer for each step that the example has"
    for odd in (predictor.signature.vocabulary, -1, 0.5, [0]):
        with pytest.raises(Refusal, match="example must"):
            stream.feed(odd)


@pytest.mark.slow
def test_stepping_through_another_kind_of_network(folder: Path) -> None:
    """The same holds without an encoder, normalised last, with a convolution, a gate and the last answer."""
    network = {"d_model": 2, "layer": "lru", "options": {}, "mixing": "half_glu2", "norm": "layer"}
    choices = {"norm_position": "after", "encoder": "none", "pooling": "last"}
    choices |= {"short_conv": 4, "gate": "silu"}
    sizes = {"length": 20, "examples": 32, "held_out": 8}
    written, _ = saved(folder, settings("adding", sizes, **network, **choices))
    predictor = Predictor(written.folder, written.digest)
    sequence = TASKS["adding"].load(sizes, folder).validation.inputs[0]
    stream = predictor.stream()
    *_, last = (stream.feed(step) for step in sequence)
    np.testing.assert_allclose(last, predictor.logits([(sequence,)])[0], rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_a_bidirectional_network_cannot_be_stepped(folder: Path) -> None:
    """A network that needs the end of a sequence is refused before the first step."""
    both = settings("listops", LISTOPS, bidirectional=True, depth=1, layer="lru", options={})
    written, _ = saved(folder, both)
    with pytest.raises(Refusal, match="must be causal"):
        Predictor(written.folder, written.digest).stream()


@pytest.mark.slow
def test_answers_do_not_depend_on_the_batch(listops: tuple[Predictor, TaskData, dict[str, float]]) -> None:
    """An answer does not depend on the other examples that are answered together with it."""
    predictor, data, _ = listops
    texts = _expressions(data)[:7]
    together = predictor.predict(texts)["probabilities"]
    apart = [predictor.predict([text])["probabilities"][0] for text in texts]
    np.testing.assert_allclose(together, apart, rtol=1e-5)


EXPRESSIONS = Reader(TASKS["listops"], Signature("class", 10, 18, 1, 12), "")
PAIRS = Reader(TASKS["retrieval"], Signature("class", 2, 6, 1, 5, towers=2), "abc")
TOKENS = Reader(TASKS["copy"], Signature("steps", 9, 10, 1, 4), "")
NUMBERS = Reader(TASKS["adding"], Signature("value", 1, None, 2, 3), "")


def test_every_task_of_texts_reads_its_own_example() -> None:
    """The example of a model card is valid input of the model."""
    for name, task in TASKS.items():
        if name in TASKS and task.texts:
            signature = Signature("class", 2, 300, 1, 100, towers=len(task.texts))
            sequences = Reader(task, signature, "abcdefghij ").read(task.texts)
            assert [sequence[-1] for sequence in sequences] == [END] * len(task.texts), name
    assert parsed(TASKS["listops"].texts[0])[1] == 9


def test_expressions_read_with_and_without_parentheses() -> None:
    """Long Range Arena's binary brackets add nothing to the operators."""
    (bare,) = EXPRESSIONS.read("[MAX 2 9 ]")
    (bracketed,) = EXPRESSIONS.read("( ( ( [MAX 2 ) 9 ) ] )")
    np.testing.assert_array_equal(bare, bracketed)


def test_pairs_read_as_they_are_encoded() -> None:
    """Characters are numbered, strange ones are unknown, and texts are cut so that the end token fits."""
    first, second = PAIRS.read(("ab?", "cccccccc"))
    assert first.tolist() == [3, 4, UNKNOWN, END]
    assert second.tolist() == [5, 5, 5, 5, END]


def test_padding_keeps_the_true_lengths() -> None:
    """Rows that fill up the shape do not change the given ones."""
    inputs, lengths = NUMBERS.padded([NUMBERS.read([[0.5, 1]])], 2)
    assert inputs.shape == (2, 3, 2)
    assert lengths.tolist() == [1, 1]
    inputs, lengths = PAIRS.padded([PAIRS.read(("a", "bb"))], 1)
    assert inputs.tolist() == [[[3, END, 0, 0, 0], [4, 4, END, 0, 0]]]
    assert lengths.tolist() == [[2, 3]]


@pytest.mark.parametrize(
    ("reader", "example", "message"),
    [
        (EXPRESSIONS, "[MAX 2 9", "must be a ListOps expression"),
        (EXPRESSIONS, "[MAX 2 ten ]", "unknown token 'ten'"),
        (EXPRESSIONS, "", "must be a ListOps expression"),
        (EXPRESSIONS, "[MAX 1 2 3 4 5 6 7 8 9 0 ]", "at most 11 tokens"),
        (EXPRESSIONS, 7, "must be a text"),
        (EXPRESSIONS, ("[MAX 2 9 ]", "[MAX 2 9 ]"), "must be a text"),
        (PAIRS, ("a",), "must be a pair of texts"),
        (TOKENS, [1, 2, 10], "tokens 0 to 9"),
        (TOKENS, [1, 2.5], "tokens 0 to 9"),
        (TOKENS, [[1], [2]], "shape (2, 1)"),
        (NUMBERS, [[0.5, np.nan]], "finite numbers"),
        (NUMBERS, [[0.5, 1]] * 4, "1 to 3 steps"),
        (NUMBERS, [], "1 to 3 steps"),
        (NUMBERS, "0.5", "an array"),
    ],
)
def test_a_bad_example_is_refused(reader: Reader, example: Any, message: str) -> None:
    """The refusal says what must hold; no other exception is raised."""
    with pytest.raises(Refusal) as caught:
        reader.read(example)
    assert message in str(caught.value)


def test_characters_are_kept_with_the_data(tmp_path: Path) -> None:
    """The characters of retrieval's tokens are kept, and reproduce the stored rows."""
    options = {"source": "pydoc", "passage": 32, "pairs": 40, "held_out": 4}
    data = TASKS["retrieval"].load(options, tmp_path)
    names = dict(enumerate(data.characters, 3))
    reader = Reader(TASKS["retrieval"], data.signature, data.characters)
    split = data.train
    pair = [
        "".join(names[token] for token in row[: length - 1].tolist())
        for row, length in zip(split.inputs[0], split.lengths[0], strict=True)
    ]
    for sequence, row, length in zip(reader.read(pair), split.inputs[0], split.lengths[0], strict=True):
        np.testing.assert_array_equal(sequence, row[:length])
    assert Characters(data.characters).size == data.signature.vocabulary


@pytest.mark.slow
def test_a_stream_reads_on_as_an_evaluation_that_carries_states(folder: Path) -> None:
    """Character by character, two segments of a text have the bits that the engine gives them."""
    options = {"source": "pydoc", "length": 16, "characters": 8000, "reach": 1}
    trial = settings("char_lm", options, depth=1, norm="layer")
    written, engine = saved(folder, replace(trial, training=replace(trial.training, carry_state=True)))
    split, scores = engine.data.validation, engine.evaluate_each(0, "validation")[1]
    predictor = Predictor(written.folder, written.digest)
    stream = predictor.stream()
    for segment in range(2):
        logits = np.array([stream.feed(now) for now in split.inputs[segment]], np.float64)
        rates = logits - np.log(np.sum(np.exp(logits), axis=1, keepdims=True))
        bits = -rates[np.arange(16), split.targets[segment]].mean() / np.log(2)
        assert bits == pytest.approx(scores[segment], rel=1e-4)
    again = predictor.stream()
    begun = np.array([again.feed(now) for now in split.inputs[1]])
    assert np.abs(begun - logits).max() > 1e-3
