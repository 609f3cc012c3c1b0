"""Speech Commands: a spoken word of one second at 16 kHz, 35 classes.

Splits are those of the published lists, and each recording is checked against the rule that made the lists.
Samples are standardised by one mean and one deviation of training, where S5's code has one a time step. A
clip under a second is padded with zeros; its true length is kept. The option `features: mfcc` turns a clip
into 161 frames of 20 coefficients, each standardised over training, and `words` may keep ten words.

Source: Warden 2018, version 0.02; S5 (Smith et al. 2023) for the task; Kidger et al. 2020 for
coefficients and the ten commands.
"""

from __future__ import annotations

import hashlib
import wave
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from trainables.data.cache import Writer
from trainables.data.evaluation_protocol import mixed
from trainables.data.task import SPLITS, Encoding, Progress, Remote, Scale, Signature, Source, Task
from trainables.errors import BadData, Refusal
from trainables.settings import Option
from trainables.tasks import mfcc

RATE = 16_000
"""Samples a second, and samples of the longest clip."""

_FOLDER = "speech_commands_v0.02"
_NOISE = "_background_noise_"
_LISTS = {"validation": "validation_list.txt", "test": "testing_list.txt"}
_WORDS = 35

WORDS: Mapping[str, tuple[str, ...]] = {
    "commands": ("down", "go", "left", "no", "off", "on", "right", "stop", "up", "yes"),
    "auxiliary": ("bed", "bird", "cat", "dog", "happy", "house", "marvin", "sheila", "tree", "wow"),
}
"""Groups of ten words that the option `words` selects: commands, and words that most speakers said once."""

_BUCKETS = 2**27 - 1
_SEED_OF_THE_ORDER = 0
_SMALLEST_DEVIATION = 1e-6
_AGAIN = "Unpack the archive again (`data fetch speech_commands`)."


@dataclass(frozen=True)
class Clip:
    """One recording: its file, its class and its split."""

    path: Path
    label: int
    split: str


class SpeechCommands(Task):
    """Spoken words as raw samples."""

    name = "speech_commands"
    title = "Speech Commands: one-second words at 16 kHz (L = 16,000), 35 classes"
    version = 2
    remotes: ClassVar[tuple[Remote, ...]] = (
        Remote(
            url="http://download.tensorflow.org/data/speech_commands_v0.02.tar.gz",
            place=_FOLDER,
            sha256="af14739ee7dc311471de98f5f9d2c9191b18aedfe957f4a6ff791c709868ff58",
            size=2_428_923_189,
            inside="",
            unpacked=4_500_000_000,
            members=120_000,
        ),
    )
    options: ClassVar[Mapping[str, Option]] = {
        "every": Option(
            1, "Samples averaged to one: 1 is the published 16 kHz, 16 is 1 kHz.", choices=(1, 2, 4, 8, 16)
        ),
        "features": Option(
            "samples",
            "`samples`, or `mfcc`: 161 frames of 20 mel-frequency cepstral coefficients.",
            choices=("samples", "mfcc"),
        ),
        "words": Option(
            "all",
            "`all` 35; the ten `commands` yes, no, up, down, left, right, on, off, stop and go; or the ten"
            " `auxiliary` ones.",
            choices=("all", *WORDS),
        ),
    }

    def find(self, options: Mapping[str, Any], folder: Path) -> Source:
        """Return the folder of words, after checking its two lists."""
        root = folder / _FOLDER
        if not root.is_dir():
            remedy = "Fetch it (`data fetch speech_commands`)."
            raise BadData(str(root), "must be the folder of Speech Commands", "no such folder", remedy)
        for name in _LISTS.values():
            if not (root / name).is_file():
                raise BadData(str(root / name), "must be the list of a split", "no such file", _AGAIN)
        words, listed = _words(root, options["words"]), _listed(root)
        if len(words) < 2:
            raise BadData(str(root), "must hold two or more folders of words", str(len(words)), _AGAIN)
        asked = _asked(options)
        wanted = {name for name in listed if options["words"] == "all" or _word(name) in words}
        missing = len(wanted - set(_names(root, words)))
        notes = []
        if len(words) != asked:
            notes.append(f"{len(words)} words instead of {asked}")
        if asked != _WORDS:
            notes.append(f"the {options['words']} words, {asked} of {_WORDS}")
        if missing:
            notes.append(f"a subset without {missing:,} of the {len(wanted):,} listed recordings")
        if options["features"] == "mfcc":
            notes.append(f"{mfcc.FEATURES} cepstral coefficients instead of samples")
        if options["every"] != 1:
            notes.append(f"{RATE // options['every']:,} samples a second instead of {RATE:,}")
        return Source(
            f"Speech Commands in {root.name}, {len(words)} words",
            comparable=not notes,
            note=", ".join(notes),
            files=(root,),
            kind="wav",
        )

    def validate(self, options: Mapping[str, Any]) -> None:
        """Refuse averaged samples with coefficients, whose frames require 16 kHz."""
        if options["features"] == "mfcc" and options["every"] != 1:
            raise Refusal(
                "task speech_commands: options.every",
                "must be 1 with features mfcc",
                str(options["every"]),
                "Leave every out.",
            )

    def outline(self, options: Mapping[str, Any]) -> Signature:
        """Return the signature of recordings of the published words."""
        length, features, _ = _shape(options)
        return Signature("class", _asked(options), None, features=features, length=length)

    def encode(self, options: Mapping[str, Any], source: Source, out: Writer, progress: Progress) -> Encoding:
        """Write 16-bit samples, zero-padded, standardised by the signature."""
        root = source.files[0]
        words = _words(root, options["words"])
        clips, left_out = _clips(root, words)
        scale = Scale()
        for split in SPLITS:
            ordered = [clip for clip in clips if clip.split == split]
            if not ordered:
                raise BadData(str(root), f"must hold recordings of {split}", "", _AGAIN)
            shuffled = [ordered[index] for index in mixed(len(ordered), _SEED_OF_THE_ORDER)]
            out.put(f"{split}.targets", np.array([clip.label for clip in shuffled], np.int32))
            moments = _write_split(split, shuffled, options, out, progress)
            scale = moments if split == "train" else scale
        signature = replace(self.outline(options), classes=len(words), scale=scale)
        note = (
            f"left out: recordings of held-out speakers that are in no list ({left_out})" if left_out else ""
        )
        return Encoding(signature, note)


def by_hash(name: str) -> str:
    """Return the split of a recording by the published rule: a hash of its speaker.

    Args:
        name: File name, `<speaker>_nohash_<number>.wav`.

    Source: Warden 2018, section 7; 10 % validation, 10 % test.
    """
    speaker = name.split("_nohash_")[0]
    digest = int(hashlib.sha1(speaker.encode(), usedforsecurity=False).hexdigest(), 16)
    percent = digest % (_BUCKETS + 1) * (100 / _BUCKETS)
    return "validation" if percent < 10 else "test" if percent < 20 else "train"


def _asked(options: Mapping[str, Any]) -> int:
    """Return the number of words that the options ask for."""
    return _WORDS if options["words"] == "all" else len(WORDS[options["words"]])


def _words(root: Path, kept: str) -> list[str]:
    """Return the selected words in the order of their classes."""
    found = sorted(path.name for path in root.iterdir() if path.is_dir() and path.name != _NOISE)
    return found if kept == "all" else [word for word in found if word in WORDS[kept]]


def _word(name: str) -> str:
    return name.partition("/")[0]


def _names(root: Path, words: list[str]) -> list[str]:
    """Return every recording of some words as `<word>/<file>`, in order."""
    return [
        f"{word}/{name}"
        for word in words
        for name in sorted(path.name for path in (root / word).iterdir() if path.suffix == ".wav")
    ]


def _listed(root: Path) -> dict[str, str]:
    """Return the split of each recording that the two lists name."""
    return {
        line: split
        for split, name in _LISTS.items()
        for line in (root / name).read_text(encoding="utf-8").splitlines()
        if line
    }


def _clips(root: Path, words: list[str]) -> tuple[list[Clip], int]:
    """Return the recordings of some words in the order of their names, and the number of excluded ones.

    A recording in neither list belongs to training, unless its speaker is held out: version 0.02 dropped a
    few recordings that a folder made from several archives may still have.
    """
    listed, labels = _listed(root), {word: label for label, word in enumerate(words)}
    clips = []
    left_out = 0
    for name in _names(root, words):
        word, _, file = name.partition("/")
        rule = by_hash(file)
        split = listed.get(name, rule)
        if split != rule:
            must = f"must be in the {rule} split, by the hash of its speaker"
            raise BadData(str(root / name), must, f"{split}, by the lists", _AGAIN)
        if name in listed or rule == "train":
            clips.append(Clip(root / name, labels[word], split))
        else:
            left_out += 1
    return clips, left_out


def _shape(options: Mapping[str, Any]) -> tuple[int, int, type[np.generic]]:
    """Return the steps of a clip, the features of a step, and the type in which they are kept."""
    if options["features"] == "mfcc":
        return mfcc.frames(RATE), mfcc.FEATURES, np.float32
    return RATE // options["every"], 1, np.int16


def _write_split(
    split: str, clips: list[Clip], options: Mapping[str, Any], out: Writer, progress: Progress
) -> Scale:
    """Write the steps of a split; return the scale that standardises each of their features."""
    length, features, kind = _shape(options)
    inputs = out.array(f"{split}.inputs", (len(clips), length, features), kind)
    lengths = np.zeros(len(clips), np.int32)
    total, squares = np.zeros(features), np.zeros(features)
    for row, steps in enumerate(_stepped(clips, options)):
        inputs[row, : len(steps)] = steps
        lengths[row] = len(steps)
        exact = steps.astype(np.float64)
        total, squares = total + exact.sum(axis=0), squares + (exact**2).sum(axis=0)
        if row % 500 == 0:
            progress(f"reading wavs of {split}", row, len(clips))
    out.put(f"{split}.lengths", lengths)
    mean = total / lengths.sum()
    deviation = np.sqrt(squares / lengths.sum() - mean**2)
    least = 1.0 if kind is np.int16 else _SMALLEST_DEVIATION
    return Scale(tuple(mean.tolist()), tuple((1 / np.maximum(deviation, least)).tolist()))


def _stepped(clips: list[Clip], options: Mapping[str, Any]) -> Iterator[np.ndarray]:
    """Return the steps (n, F) of each clip, without those that are padding."""
    every = options["every"]
    for clip in clips:
        samples = _read(clip.path)
        if options["features"] == "mfcc":
            second = np.pad(samples, (0, RATE - len(samples)))
            yield mfcc.coefficients(second[None], RATE)[0, : mfcc.frames(len(samples))]
        elif every == 1:
            yield samples[:, None]
        else:
            whole = len(samples) - len(samples) % every
            means = samples[:whole].reshape(-1, every).mean(axis=1)
            yield np.rint(means).astype(np.int16)[:, None]


def _read(path: Path) -> np.ndarray:
    """Return the samples of a recording (n,) int16, n at most a second."""
    try:
        with wave.open(str(path), "rb") as file:
            audio = (file.getframerate(), file.getnchannels(), 8 * file.getsampwidth())
            declared, content = file.getnframes(), file.readframes(RATE + 1)
    except (wave.Error, EOFError) as error:
        raise BadData(str(path), "must be a wav file", str(error) or "a truncated one", _AGAIN) from error
    if audio != (RATE, 1, 16):
        got = "{:,} Hz, {} channels, {} bits".format(*audio)
        raise BadData(str(path), f"must have {RATE:,} Hz, 1 channel and 16 bits", got, _AGAIN)
    if not 0 < declared <= RATE:
        raise BadData(str(path), f"must have 1 to {RATE:,} samples", f"{declared:,}", _AGAIN)
    if len(content) != 2 * declared:
        must = f"must hold the {declared:,} samples its header declares"
        raise BadData(str(path), must, f"{len(content) // 2:,}", _AGAIN)
    return np.frombuffer(content, "<i2")
