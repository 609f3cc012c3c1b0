"""Speech Commands: a spoken word of one second at 16 kHz, 35 classes.

Splits are those of the published lists, and each recording is checked against the rule that made the lists.
Samples are standardised by one mean and one deviation of training, where S5's code has one a time step. A
clip under a second is padded with zeros; its true length is kept.

Source: Warden 2018, version 0.02; S5 (Smith et al. 2023) for the task.
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
from trainables.data.protocol import entropy, majority, mixed
from trainables.data.task import SPLITS, Encoding, Progress, Remote, Scale, Signature, Source, Task
from trainables.errors import BadData
from trainables.settings import Option

RATE = 16_000
"""Samples a second, and the longest clip."""

_FOLDER = "speech_commands_v0.02"
_NOISE = "_background_noise_"
_LISTS = {"validation": "validation_list.txt", "test": "testing_list.txt"}
_WORDS = 35
_BUCKETS = 2**27 - 1
_SEED_OF_THE_ORDER = 0
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
    }

    def find(self, options: Mapping[str, Any], folder: Path) -> Source:
        """Return the folder of words, having checked its two lists."""
        root = folder / _FOLDER
        if not root.is_dir():
            remedy = "Fetch it (`data fetch speech_commands`)."
            raise BadData(str(root), "must be the folder of Speech Commands", "no such folder", remedy)
        for name in _LISTS.values():
            if not (root / name).is_file():
                raise BadData(str(root / name), "must be the list of a split", "no such file", _AGAIN)
        words, listed = len(_words(root)), _listed(root)
        if words < 2:
            raise BadData(str(root), "must hold two or more folders of words", str(words), _AGAIN)
        missing = len(listed.keys() - set(_names(root)))
        notes = []
        if words != _WORDS:
            notes.append(f"{words} words instead of {_WORDS}")
        if missing:
            notes.append(f"a subset without {missing:,} of the {len(listed):,} listed recordings")
        if options["every"] != 1:
            notes.append(f"{RATE // options['every']:,} samples a second instead of {RATE:,}")
        return Source(
            f"Speech Commands in {root.name}, {words} words",
            comparable=not notes,
            note=", ".join(notes),
            files=(root,),
            kind="wav",
        )

    def outline(self, options: Mapping[str, Any]) -> Signature:
        """Return the signature of recordings of the published words."""
        return Signature("class", _WORDS, None, features=1, length=RATE // options["every"])

    def encode(self, options: Mapping[str, Any], source: Source, out: Writer, progress: Progress) -> Encoding:
        """Write 16-bit samples, zero-padded, standardised by the signature."""
        root, every = source.files[0], options["every"]
        clips, left_out = _clips(root)
        targets: dict[str, np.ndarray] = {}
        scale = Scale()
        for split in SPLITS:
            ordered = [clip for clip in clips if clip.split == split]
            if not ordered:
                raise BadData(str(root), f"must hold recordings of {split}", "none", _AGAIN)
            shuffled = [ordered[index] for index in mixed(len(ordered), _SEED_OF_THE_ORDER)]
            targets[split] = np.array([clip.label for clip in shuffled], np.int32)
            out.put(f"{split}.targets", targets[split])
            moments = _write_split(split, shuffled, every, out, progress)
            scale = moments if split == "train" else scale
        signature = replace(self.outline(options), classes=len(_words(root)), scale=scale)
        note = (
            f"left out: recordings of held-out speakers that are in no list ({left_out})" if left_out else ""
        )
        return Encoding(signature, majority(targets), entropy(targets["validation"]), note)


def by_hash(name: str) -> str:
    """Return the split of a recording by the published rule: a hash of its speaker.

    Args:
        name: file name, `<speaker>_nohash_<number>.wav`.

    Source: Warden 2018, section 7; 10 % validation, 10 % test.
    """
    speaker = name.split("_nohash_")[0]
    digest = int(hashlib.sha1(speaker.encode(), usedforsecurity=False).hexdigest(), 16)
    percent = digest % (_BUCKETS + 1) * (100 / _BUCKETS)
    return "validation" if percent < 10 else "test" if percent < 20 else "train"


def _words(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir() if path.is_dir() and path.name != _NOISE)


def _names(root: Path) -> list[str]:
    """Return every recording as `<word>/<file>`, in order."""
    return [
        f"{word}/{name}"
        for word in _words(root)
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


def _clips(root: Path) -> tuple[list[Clip], int]:
    """Return the recordings in the order of their names, and the number of those left out.

    A recording in neither list belongs to training, unless its speaker is held out: version 0.02 dropped a
    few recordings that a folder made from several archives may still have.
    """
    listed, labels = _listed(root), {word: label for label, word in enumerate(_words(root))}
    clips = []
    left_out = 0
    for name in _names(root):
        word, _, file = name.partition("/")
        rule = by_hash(file)
        split = listed.get(name, rule)
        if split != rule:
            must = f"must be of {rule}, by the hash of its speaker"
            raise BadData(str(root / name), must, f"{split} by the lists", _AGAIN)
        if name in listed or rule == "train":
            clips.append(Clip(root / name, labels[word], split))
        else:
            left_out += 1
    return clips, left_out


def _write_split(split: str, clips: list[Clip], every: int, out: Writer, progress: Progress) -> Scale:
    """Write the samples of a split; return the scale that standardises them."""
    inputs = out.array(f"{split}.inputs", (len(clips), RATE // every, 1), np.int16)
    lengths = np.zeros(len(clips), np.int32)
    total = squares = 0.0
    for row, samples in enumerate(_sampled(clips, every)):
        inputs[row, : len(samples), 0] = samples
        lengths[row] = len(samples)
        exact = samples.astype(np.float64)
        total, squares = total + exact.sum(), squares + (exact**2).sum()
        if row % 500 == 0:
            progress(f"reading wavs of {split}", row, len(clips))
    out.put(f"{split}.lengths", lengths)
    mean = total / lengths.sum()
    deviation = np.sqrt(squares / lengths.sum() - mean**2)
    return Scale((float(mean),), (float(1 / max(deviation, 1.0)),))


def _sampled(clips: list[Clip], every: int) -> Iterator[np.ndarray]:
    for clip in clips:
        samples = _read(clip.path)
        whole = len(samples) - len(samples) % every
        means = samples[:whole].reshape(-1, every).mean(axis=1)
        yield samples if every == 1 else np.rint(means).astype(np.int16)


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
