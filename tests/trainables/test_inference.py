"""A checkpoint answers as the engine that trained it evaluates, whole and step by step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.trainables.checkpoints import LISTOPS, saved, settings
from trainables.data.task import TaskData
from trainables.errors import Refusal
from trainables.inference import Predictor
from trainables.tasks import TASKS
from trainables.tasks.listops_rule import CLOSE, CLOSE_TOKEN, FIRST_DIGIT, FIRST_OPERATOR, OPERATORS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("inference")


@pytest.fixture(scope="module")
def listops(folder: Path) -> tuple[Predictor, TaskData, dict[str, float]]:
    """A network, its data, and how the engine scores it on validation."""
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
    """Return validation's expressions as texts, without their end tokens."""
    split = data.validation
    return [_expression(row[: n - 1]) for row, n in zip(split.inputs, split.lengths, strict=True)]


def test_answers_as_it_was_evaluated(listops: tuple[Predictor, TaskData, dict[str, float]]) -> None:
    """Texts of validation score as validation did: the same rows, the same network, padding harmless."""
    predictor, data, scores = listops
    answers = predictor.predict(_expressions(data))
    targets = data.validation.targets
    assert np.mean(np.array(answers["answer"]) == targets) == scores["accuracy"]
    chosen = np.array(answers["probabilities"])[np.arange(len(targets)), targets]
    assert -np.mean(np.log(chosen)) == pytest.approx(scores["loss"], rel=1e-5)


def test_stepping_answers_as_the_whole_does(listops: tuple[Predictor, TaskData, dict[str, float]]) -> None:
    """The RNN form, its state carried, ends where the whole sequence does."""
    predictor, data, _ = listops
    texts = _expressions(data)[:3]
    whole = predictor.predict(texts)
    for text, probabilities, answer in zip(texts, whole["probabilities"], whole["answer"], strict=True):
        *_, last = predictor.steps(text)
        np.testing.assert_allclose(last["probabilities"][0], probabilities, rtol=1e-4)
        assert last["answer"] == [answer]


def test_stepping_answers_every_step(folder: Path) -> None:
    """Where each step has a class, each step's logits are those of the whole sequence."""
    sizes = {"delay": 5, "examples": 32, "held_out": 8}
    written, _ = saved(folder, settings("copy", sizes, layer="lstm", options={}, depth=1))
    predictor = Predictor(written.folder, written.digest)
    sequence = TASKS["copy"].load(sizes, folder).validation.inputs[0]
    stream = predictor.stream()
    stepped = np.stack([stream.feed(token) for token in sequence])
    np.testing.assert_allclose(stepped, predictor.logits([(sequence,)])[0], rtol=1e-4, atol=1e-6)
    assert predictor.predict([sequence])["answer"] == [stepped.argmax(axis=-1).tolist()]


def test_looking_back_and_forth_is_not_stepped(folder: Path) -> None:
    """A network that needs the end of a sequence says so before the first step."""
    both = settings("listops", LISTOPS, bidirectional=True, depth=1, layer="lru", options={})
    written, _ = saved(folder, both)
    with pytest.raises(Refusal, match="the layer must only look back"):
        Predictor(written.folder, written.digest).stream()


def test_answers_do_not_depend_on_company(listops: tuple[Predictor, TaskData, dict[str, float]]) -> None:
    """Answers do not depend on how many are asked for together."""
    predictor, data, _ = listops
    texts = _expressions(data)[:7]
    together = predictor.predict(texts)["probabilities"]
    apart = [predictor.predict([text])["probabilities"][0] for text in texts]
    np.testing.assert_allclose(together, apart, rtol=1e-5)
