"""Small generated data sets in the published formats, and small options, for every task."""

from __future__ import annotations

import struct
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from trainables.tasks.speech_commands import RATE, by_hash

SMALL: dict[str, dict[str, Any]] = {
    "listops": {"length": 64, "min_length": 8, "max_length": 60, "examples": 60, "held_out": 20},
    "text": {"length": 128},
    "retrieval": {"length": 64, "pairs": 60, "held_out": 20},
    "image": {},
    "pathfinder": {"examples": 30, "held_out": 10, "difficulty": "easy"},
    "pathfinder16": {"examples": 30, "held_out": 10},
    "pathx": {"examples": 4, "held_out": 2, "difficulty": "easy"},
    "speech_commands": {},
    "smnist": {},
    "psmnist": {},
    "copy": {"delay": 30, "examples": 60, "held_out": 20},
    "adding": {"length": 20, "examples": 60, "held_out": 20},
    "parity": {"length": 16, "examples": 60, "held_out": 20},
    "modular": {"length": 12, "examples": 60, "held_out": 20},
    "group_words": {"group": "S3", "length": 8, "examples": 60, "held_out": 20},
    "mqar": {"vocabulary": 64, "length": 32, "examples": 60, "held_out": 20},
    "selective_copy": {"length": 24, "tokens": 4, "examples": 60, "held_out": 20},
    "induction": {"length": 16, "reach": 4, "examples": 60, "held_out": 20},
    "char_lm": {"source": "pydoc", "length": 64, "characters": 20_000},
}
"""Options with which each task is encoded in well under a second."""


def idx(path: Path, array: np.ndarray) -> None:
    """Write an idx file of unsigned bytes."""
    header = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
    path.write_bytes(header + array.astype(np.uint8).tobytes())


def mnist(folder: Path, train: int = 40, test: int = 20) -> Path:
    """Write MNIST's four files; return their folder."""
    inner, rng = folder / "mnist", np.random.default_rng(0)
    inner.mkdir(parents=True)
    for name, number in (("train", train), ("t10k", test)):
        idx(inner / f"{name}-images-idx3-ubyte", rng.integers(256, size=(number, 28, 28)))
        idx(inner / f"{name}-labels-idx1-ubyte", np.arange(number) % 10)
    return inner


def cifar(folder: Path, number: int = 10) -> Path:
    """Write CIFAR-10's binary batches; return their folder."""
    inner, rng = folder / "cifar-10-batches-bin", np.random.default_rng(0)
    inner.mkdir(parents=True)
    for name in (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"):
        records = rng.integers(256, size=(number, 3073), dtype=np.uint8)
        records[:, 0] = np.arange(number) % 10
        records.tofile(inner / f"{name}.bin")
    return inner


def imdb(folder: Path, number: int = 12) -> Path:
    """Write IMDB's tree of reviews; return its root."""
    root, rng = folder / "aclImdb", np.random.default_rng(0)
    for split in ("train", "test"):
        for label, rating in (("neg", 2), ("pos", 9)):
            inner = root / split / label
            inner.mkdir(parents=True)
            for index in range(number):
                words = rng.choice(["good", "bad", "film", "<br />", "né"], size=rng.integers(3, 30))
                text = f"{split} {label} {index} " + " ".join(words)
                (inner / f"{index}_{rating}.txt").write_text(text, encoding="utf-8")
    return root


def wav(path: Path, samples: np.ndarray, rate: int = RATE, channels: int = 1, width: int = 2) -> None:
    """Write a wav file."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(samples.astype("<i2").tobytes())


def speech(folder: Path, speakers: int = 30) -> Path:
    """Write a tree of two words with its lists of the splits; return its root."""
    root, rng = folder / "speech_commands_v0.02", np.random.default_rng(0)
    lists: dict[str, list[str]] = {"validation": [], "test": []}
    for word in ("backward", "bed", "_background_noise_"):
        (root / word).mkdir(parents=True)
    for word in ("backward", "bed"):
        for speaker in range(speakers):
            name = f"{speaker:08x}_nohash_0.wav"
            wav(root / word / name, rng.integers(-3000, 3000, size=RATE - 100 * speaker))
            if by_hash(name) != "train":
                lists[by_hash(name)].append(f"{word}/{name}")
    (root / "validation_list.txt").write_text("".join(f"{line}\n" for line in lists["validation"]))
    (root / "testing_list.txt").write_text("".join(f"{line}\n" for line in lists["test"]))
    return root


def pathfinder(folder: Path, side: int = 32, number: int = 20, files: int = 2) -> Path:
    """Write LRA's tree of hard Pathfinder images; return its root."""
    root, rng = folder / f"pathfinder{side}" / "curv_contour_length_14", np.random.default_rng(0)
    (root / "metadata").mkdir(parents=True)
    for k in range(files):
        (root / "imgs" / str(k)).mkdir(parents=True)
        lines = []
        for index in range(number):
            file = f"sample_{index}.png"
            pixels = rng.integers(256, size=(side, side), dtype=np.uint8)
            Image.fromarray(pixels).save(root / "imgs" / str(k) / file)
            lines.append(f"imgs/{k} {file} {index} {index % 2} 1.0 14 4 2 0.5 1 1")
        (root / "metadata" / f"{k}.npy").write_text("\n".join(lines))
    return root


MADE: dict[str, Callable[[Path], Path]] = {
    "text": imdb,
    "image": cifar,
    "speech_commands": speech,
    "smnist": mnist,
    "psmnist": mnist,
}
"""Writers of the files that tasks need, by task; the other tasks generate their data."""
