"""Language modelling of characters: segments in the order of the text, and bits per character."""

from __future__ import annotations

import math
import zipfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainables.cost import parameters
from trainables.data.task import IGNORED, Signature, TaskData, completed
from trainables.engine import Engine
from trainables.errors import BadData, Refusal
from trainables.matching import matched
from trainables.tasks import char_lm
from trainables.tasks.char_lm import CharLm
from trainables.tasks.pydoc_passages import whole_text
from trainables.trial import ModelSettings, TrainingSettings, TrialSettings

LETTERS = " abcdefghijklmnopqrstuvwxyz"


def archive(folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str, content: bytes) -> Path:
    """Write an archive of a text that is shorter than the published one."""
    text = char_lm._TEXTS[kind]
    monkeypatch.setattr(char_lm, "_TEXTS", {**char_lm._TEXTS, kind: replace(text, characters=len(content))})
    path = folder / text.remote.place
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(kind, content)
    return path


def text_of(data: TaskData, alphabet: str) -> str:
    """Return the text that the segments of the three splits hold, with the last target of each split."""
    parts = []
    for split in (data.train, data.validation, data.test):
        numbers = [*(split.inputs - 1).ravel().tolist(), int(split.targets[-1, -1])]
        parts.append("".join(alphabet[number] for number in numbers))
    return "|".join(parts)


def test_segments_follow_one_another_and_ask_for_the_next_character(tmp_path: Path) -> None:
    data = CharLm().load({"source": "pydoc", "length": 50, "characters": 10_000}, tmp_path)
    text = whole_text()[:10_000]
    alphabet = "".join(sorted(set(whole_text())))
    assert text_of(data, alphabet) == f"{text[:8951]}|{text[9000:9451]}|{text[9500:9951]}"
    for split in (data.train, data.validation, data.test):
        inputs, targets = split.inputs.astype(int) - 1, np.asarray(split.targets)
        assert (inputs.ravel()[1:] == targets.ravel()[:-1]).all()
    assert data.signature.metric == "bits"
    assert data.signature.classes == len(alphabet)


def test_longer_segments_score_their_later_halves(tmp_path: Path) -> None:
    data = CharLm().load({"source": "pydoc", "length": 32, "characters": 20_000}, tmp_path)
    flat = data.test.inputs.ravel()
    for times in (2, 4, 8):
        longer = data.split(f"test_x{times}")
        assert longer.inputs.shape[1] == 32 * times
        assert (longer.inputs.ravel() == flat[: longer.inputs.size]).all()
        assert (longer.targets[:, : 16 * times] == IGNORED).all()
        assert (longer.targets[:, 16 * times :] != IGNORED).all()


def test_chance_is_the_cross_entropy_with_the_frequencies_of_training(tmp_path: Path) -> None:
    """A character that is not in training counts a little, which hardly changes the mean over all."""
    data = CharLm().load({"source": "pydoc", "length": 64, "characters": 30_000}, tmp_path)
    counts = Counter(data.train.targets.ravel().tolist())
    asked = data.test.targets.ravel().tolist()
    missing = set(asked) - set(counts)
    assert missing
    counts.update(missing)
    bits = -sum(math.log2(counts[number] / counts.total()) for number in asked) / len(asked)
    assert data.chance["test"] == pytest.approx(bits, abs=0.01)


@pytest.mark.parametrize("kind", ["text8", "enwik8"])
def test_published_texts_are_read_from_their_archives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    rng = np.random.default_rng(0)
    alphabet = LETTERS.encode() if kind == "text8" else bytes(range(256))
    content = bytes(rng.choice(np.frombuffer(alphabet, np.uint8), 8000))
    archive(tmp_path, monkeypatch, kind, content)
    data = CharLm().load({"source": kind, "length": 20, "reach": 1}, tmp_path)
    assert (data.comparable, data.signature.classes) == (True, len(alphabet))
    assert data.signature == _outline({"source": kind, "length": 20})
    text = content.decode("latin-1")
    expected = f"{text[:7181]}|{text[7200:7581]}|{text[7600:7981]}"
    assert text_of(data, alphabet.decode("latin-1")) == expected
    assert CharLm().check({}, tmp_path).kind == ("text8" if kind == "text8" else "pydoc")
    part = CharLm().load({"source": kind, "length": 20, "reach": 1, "characters": 4000}, tmp_path)
    assert not part.comparable


def _outline(options: dict[str, Any]) -> Signature:
    return CharLm().outline(completed("char_lm", CharLm.options, options))


@pytest.mark.parametrize("characters", [0, 20_000])
def test_sizes_are_known_before_the_documentation_is_encoded(tmp_path: Path, characters: int) -> None:
    """The alphabet is that of the whole text, however much of it is read; `auto` stands for text8."""
    options = {"source": "pydoc", "length": 32, "characters": characters}
    signature = CharLm().load(options, tmp_path).signature
    assert signature == _outline(options)
    assert signature.classes == len(set(whole_text()))
    assert _outline({"length": 32}) == _outline({"source": "text8", "length": 32})
    assert _outline({"length": 32}).classes == len(LETTERS)


def test_networks_are_matched_by_the_alphabet_that_they_read(tmp_path: Path) -> None:
    """The number of parameters of a file is that of the network that trains on the documentation."""
    options = {"source": "pydoc", "length": 32, "characters": 20_000}
    model = ModelSettings("lru", depth=2, d_model=32, d_state=16)
    network = matched(model, _outline(options), 20_000)
    assert parameters(network, CharLm().load(options, tmp_path).signature) == pytest.approx(20_000, rel=0.01)


def test_a_damaged_archive_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = archive(tmp_path, monkeypatch, "text8", b"a text with a full stop. " * 20)
    options = {"source": "text8", "length": 16, "reach": 1}
    with pytest.raises(BadData, match="lower-case letters"):
        CharLm().load(options, tmp_path)
    monkeypatch.undo()
    with pytest.raises(BadData, match="100,000,000 characters"):
        CharLm().load(options, tmp_path)
    path.write_bytes(b"no archive")
    with pytest.raises(BadData, match="zip archive of text8"):
        CharLm().load(options, tmp_path)
    path.unlink()
    with pytest.raises(BadData, match="data fetch char_lm"):
        CharLm().load(options, tmp_path)


def test_a_text_without_a_segment_for_every_split_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="a segment for every split"):
        CharLm().load({"source": "pydoc", "length": 256, "characters": 30_000}, tmp_path)


@pytest.mark.slow
def test_bits_are_the_loss_to_the_base_2(tmp_path: Path) -> None:
    """Of a network that has not learnt anything: about the logarithm of the number of characters."""
    options = {"source": "pydoc", "length": 16, "characters": 5000, "reach": 2}
    data = CharLm().load(options, tmp_path)
    model = ModelSettings("rotrnn", depth=1, d_model=8, d_state=8, options={"heads": 2})
    training = TrainingSettings(10, 10, 8, learning_rate=0.0, recurrent_learning_rate=0.0)
    engine = Engine(TrialSettings("char_lm", model, training, 0, options), data)
    engine.admit(0, TrialSettings("char_lm", model, training, 0, options))
    report = engine.advance({0: 2})[0]
    assert report.metric == pytest.approx(report.loss / math.log(2), rel=1e-5)
    metrics = engine.evaluate(0, "test_x2")
    assert set(metrics) == {"loss", "bits"}
    assert metrics["bits"] == pytest.approx(metrics["loss"] / math.log(2), rel=1e-5)
    assert metrics["bits"] == pytest.approx(math.log2(data.signature.classes), rel=0.3)
    assert CharLm().direction == "minimize"
