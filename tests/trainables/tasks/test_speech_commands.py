"""Speech Commands: real recordings and lists, a tree made to the format, and trees that are not in it."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.data import shared_file
from tests.published import speech, wav
from trainables.errors import BadData, Refusal
from trainables.tasks.mfcc import coefficients
from trainables.tasks.speech_commands import RATE, WORDS, SpeechCommands, by_hash

TASK = SpeechCommands()
CLIP = "backward/00000000_nohash_0.wav"


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return 35 words: 300 recordings of version 0.01, under 210 of version 0.02 with its lists."""
    folder = tmp_path_factory.mktemp("speech")
    for name in ("speech_commands_v0.01_sample.tar.gz", "speech_commands_v0.02_testset_sample.tar.gz"):
        with tarfile.open(shared_file(f"speech_commands/{name}")) as archive:
            archive.extractall(folder / "speech_commands_v0.02", filter="data")
    return folder


def test_the_complete_published_lists_follow_the_hash_rule(real: Path) -> None:
    for split, name, number in (
        ("validation", "validation_list.txt", 9981),
        ("test", "testing_list.txt", 11_005),
    ):
        lines = (real / "speech_commands_v0.02" / name).read_text().split()
        assert len(lines) == number
        assert {by_hash(line.split("/")[1]) for line in lines} == {split}


def test_real_recordings_are_read(real: Path) -> None:
    data = TASK.load({}, real)
    assert data.signature.classes == 35
    assert data.train.inputs.shape[1:] == (RATE, 1)
    assert len(data.train) + len(data.validation) + len(data.test) == 507
    # Version 0.02 dropped one of the recordings of 0.01, whose speaker is of test.
    assert "left out: recordings of held-out speakers that are in no list (1)" in data.note
    assert "a subset" in data.note
    assert not data.comparable
    shift, factor = data.signature.scale
    inside = np.arange(RATE) < data.train.lengths[:, None]
    standard = (np.array(data.train.inputs, np.float64)[inside] - shift[0]) * factor[0]
    assert standard.mean() == pytest.approx(0, abs=1e-6)
    assert standard.std() == pytest.approx(1, abs=1e-6)
    assert (data.train.lengths < RATE).any()


def test_short_recordings_are_padded_and_keep_their_length(tmp_path: Path) -> None:
    root = speech(tmp_path)
    data = TASK.load({}, tmp_path)
    assert data.signature.classes == 2
    lengths = np.sort(np.concatenate([s.lengths for s in (data.train, data.validation, data.test)]))
    assert lengths.tolist() == sorted(RATE - 100 * speaker for speaker in range(30) for _ in range(2))
    assert "2 words instead of 35" in data.note
    assert (root / "_background_noise_").is_dir()


def test_samples_can_be_averaged(tmp_path: Path) -> None:
    speech(tmp_path)
    whole, coarse = TASK.load({}, tmp_path), TASK.load({"every": 8}, tmp_path)
    assert coarse.train.inputs.shape[1:] == (2000, 1)
    row = int(np.argmax(whole.train.lengths))
    means = np.array(whole.train.inputs[row], np.float64).reshape(2000, 8).mean(axis=1)
    kept = whole.train.lengths[row] // 8
    assert np.abs(coarse.train.inputs[row, :kept, 0] - means[:kept]).max() <= 0.5
    assert (coarse.train.lengths == whole.train.lengths // 8).all()
    assert "2,000 samples a second instead of 16,000" in coarse.note


def test_coefficients_have_a_frame_a_hop_and_are_standardised(tmp_path: Path) -> None:
    speech(tmp_path)
    data = TASK.load({"features": "mfcc"}, tmp_path)
    assert (data.signature.length, data.signature.features) == (161, 20)
    assert data.train.inputs.shape[1:] == (161, 20)
    whole = TASK.load({}, tmp_path)
    assert (data.train.lengths == 1 + whole.train.lengths // 100).all()
    row = int(np.argmin(whole.train.lengths))
    samples = np.array(whole.train.inputs[row, :, 0])  # padded with zeros, as the coefficients are
    frames = coefficients(samples[None], RATE)[0, : data.train.lengths[row]]
    assert np.array(data.train.inputs[row, : len(frames)]) == pytest.approx(frames, abs=1e-4)
    assert not data.train.inputs[row, len(frames) :].any()
    inside = np.arange(161) < data.train.lengths[:, None]
    scaled = (np.array(data.train.inputs, np.float64)[inside] - data.signature.scale[0]) * np.array(
        data.signature.scale[1]
    )
    assert scaled.mean(axis=0) == pytest.approx(np.zeros(20), abs=1e-5)
    assert scaled.std(axis=0) == pytest.approx(np.ones(20), abs=1e-5)
    assert "20 cepstral coefficients instead of samples" in data.note
    with pytest.raises(Refusal, match=r"every must be 1 with features mfcc \(got 4\)"):
        TASK.load({"features": "mfcc", "every": 4}, tmp_path)


def test_ten_words_can_be_kept(tmp_path: Path) -> None:
    root = speech(tmp_path)
    (root / "backward").rename(root / "wow")
    for name in ("validation_list.txt", "testing_list.txt"):
        (root / name).write_text((root / name).read_text().replace("backward/", "wow/"))
    (root / "yes").mkdir()
    data = TASK.load({"words": "auxiliary"}, tmp_path)
    assert data.signature.classes == 2  # bed and wow; yes is a command
    assert "2 words instead of 10, the auxiliary words, 10 of 35" in data.note
    with pytest.raises(BadData, match=r"must hold two or more folders of words \(got 1\)"):
        TASK.check({"words": "commands"}, tmp_path)
    both = (*WORDS["commands"], *WORDS["auxiliary"])
    assert len(set(both)) == 20
    assert all(list(words) == sorted(words) for words in WORDS.values())


def noise(number: int) -> np.ndarray:
    return np.arange(number) % 100


@pytest.mark.parametrize(
    ("damage", "must"),
    [
        (
            lambda clip: wav(clip, noise(8000), rate=8000),
            r"must have 16,000 Hz, 1 channel and 16 bits \(got 8,000",
        ),
        (lambda clip: wav(clip, noise(8000), channels=2), "got 16,000 Hz, 2 channels"),
        (lambda clip: wav(clip, noise(8000), width=1), "1 channels, 8 bits"),
        (lambda clip: wav(clip, noise(RATE + 1)), r"must have 1 to 16,000 samples \(got 16,001\)"),
        (lambda clip: wav(clip, noise(0)), r"must have 1 to 16,000 samples \(got 0\)"),
        (lambda clip: clip.write_bytes(b""), "must be a wav file"),
        (lambda clip: clip.write_bytes(b"RIFFxxxxWAVEnonsense"), "must be a wav file"),
        (lambda clip: clip.write_bytes(clip.read_bytes()[:-1000]), "must hold the 16,000 samples"),
        (lambda clip: clip.write_bytes(clip.read_bytes()[:30]), "must be a wav file"),
    ],
)
def test_bad_recordings_are_refused(tmp_path: Path, damage: Callable[[Path], object], must: str) -> None:
    clip = speech(tmp_path) / CLIP
    damage(clip)
    with pytest.raises(BadData, match=must) as refused:
        TASK.load({}, tmp_path)
    assert str(refused.value).startswith(str(clip))


def test_lists_of_another_version_are_refused(tmp_path: Path) -> None:
    root = speech(tmp_path)
    name = next(path.name for path in sorted((root / "bed").iterdir()) if by_hash(path.name) == "train")
    with (root / "testing_list.txt").open("a") as file:
        file.write(f"bed/{name}\n")
    with pytest.raises(
        BadData, match=r"must be in the train split, by the hash of its speaker \(got test, by the lists\)"
    ):
        TASK.load({}, tmp_path)


def test_trees_that_are_not_whole_are_refused(tmp_path: Path) -> None:
    root = speech(tmp_path)
    (root / "validation_list.txt").rename(root / "elsewhere.txt")
    with pytest.raises(BadData, match=r"validation_list.txt must be the list of a split"):
        TASK.check({}, tmp_path)
    (root / "validation_list.txt").write_text("")
    with pytest.raises(BadData, match="must hold recordings of validation"):
        TASK.load({}, tmp_path)
    (root / "bed").rename(root / "_background_noise_" / "bed")
    with pytest.raises(BadData, match=r"must hold two or more folders of words \(got 1\)"):
        TASK.check({}, tmp_path)
