"""Pairs of passages from Python's own documentation: "do the two come from the same topic?"

They are the stand-in for the AAN pairs of Retrieval: real English that is part of every Python installation,
with two texts and two classes. Accuracies cannot be compared with those on AAN.

A topic's text is cut into passages, the passages are divided among the three splits, and only then are pairs
drawn, so that no passage is in two splits. Paragraphs that several topics share are kept in the largest only.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pydoc_data.topics import topics

import numpy as np

from trainables.errors import Refusal

_SHARES = {"train": 0.7, "validation": 0.15, "test": 0.15}
_PASSAGES_A_TOPIC = 30
"""Minimum number of passages of a topic, so that validation and test have enough pairs."""


@dataclass(frozen=True)
class Pairs:
    """Pairs of one split.

    Attributes:
        texts: (n) pairs of passages.
        same: (n,) int32, 1 where both come from one topic; half of them are.
    """

    texts: Sequence[tuple[str, str]]
    same: np.ndarray


def identity() -> str:
    """Return the SHA-256 of the documentation of this Python."""
    return hashlib.sha256(json.dumps(topics, sort_keys=True).encode()).hexdigest()


def phrase(length: int) -> str:
    """Return the source in words."""
    return f"passages of {length} characters from the documentation of Python {_version()} (not AAN)"


def _version() -> str:
    return ".".join(platform.python_version_tuple()[:2])


def whole_phrase() -> str:
    """Return the whole text in words."""
    return f"the documentation of Python {_version()}"


def whole_text() -> str:
    """Return the documentation of this Python, the topics in their order, each paragraph once."""
    return "\n\n".join(_distinct_texts())


@cache
def alphabet() -> str:
    """Return the distinct characters of the whole text in their order."""
    return "".join(sorted(set(whole_text())))


def drawn(length: int, sizes: Mapping[str, int], seed: int) -> dict[str, Pairs]:
    """Draw distinct pairs for each split, half of them from one topic.

    Args:
        length: Characters of a passage.
        sizes: Pairs of each split.
        seed: Seed of the split and of the pairs.

    Raises:
        Refusal: The passages have fewer distinct pairs.
    """
    rng = np.random.default_rng(seed)
    divided = _divided(_passages(length), rng)
    return {split: _pairs(rng, divided[split], sizes[split], split) for split in sizes}


def _passages(length: int) -> list[list[str]]:
    """Return the passages of each topic that has enough of them, the largest topic first."""
    texts = _distinct_texts()
    cut = (
        [text[start : start + length] for start in range(0, len(text) - length + 1, length)] for text in texts
    )
    return [passages for passages in cut if len(passages) >= _PASSAGES_A_TOPIC]


def _distinct_texts() -> list[str]:
    """Return the topics' texts, the largest first, without the paragraphs of an earlier one."""
    seen: set[str] = set()
    texts = []
    for name in sorted(topics, key=lambda name: (-len(topics[name]), name)):
        kept = []
        for paragraph in re.split(r"\n\s*\n", topics[name]):
            words = " ".join(paragraph.split())
            if words and words not in seen:
                kept.append(paragraph)
            seen.add(words)
        texts.append("\n\n".join(kept))
    return texts


def _divided(passages: Sequence[Sequence[str]], rng: np.random.Generator) -> dict[str, list[list[str]]]:
    """Divide each topic's passages among the splits by their shares."""
    divided: dict[str, list[list[str]]] = {split: [] for split in _SHARES}
    for topic in passages:
        order = rng.permutation(len(topic))
        ends = np.cumsum([round(share * len(topic)) for share in _SHARES.values()][:-1])
        for split, indices in zip(_SHARES, np.split(order, ends), strict=True):
            divided[split].append([topic[index] for index in indices])
    return divided


def _pairs(rng: np.random.Generator, passages: Sequence[Sequence[str]], size: int, split: str) -> Pairs:
    """Draw `size` distinct pairs of passages, half of them from one topic.

    Both halves contain each topic equally often, so that no topic reveals the answer.
    """
    quotas = _quotas([len(topic) * (len(topic) - 1) // 2 for topic in passages], size // 2)
    if quotas.sum() < size // 2:
        raise Refusal(
            "task retrieval: options",
            f"the {split} passages must have that many distinct pairs",
            f"{2 * quotas.sum()} of {size}",
            "Ask for fewer pairs or for shorter passages.",
        )
    if quotas.max() > size // 4:
        raise Refusal(
            "task retrieval: options",
            f"no topic of the {split} passages may have more than half of the pairs, or unlike pairs run out",
            f"{quotas.max()} of {size // 2} pairs of one topic",
            "Ask for more pairs, or for shorter passages.",
        )
    firsts = np.repeat(np.arange(len(passages)), quotas)
    alike = [
        pair for topic, quota in zip(passages, quotas, strict=True) for pair in _alike(rng, topic, quota)
    ]
    unlike = _unlike(rng, passages, firsts, _strangers(rng, firsts))
    order = rng.permutation(2 * len(firsts))
    texts = alike + unlike
    return Pairs([texts[index] for index in order], (order < len(firsts)).astype(np.int32))


def _quotas(available: Sequence[int], total: int) -> np.ndarray:
    """Divide `total` as evenly as the topics have pairs; (topics,), less than `total` if all are used up."""
    quotas = np.zeros(len(available), np.int64)
    for _ in range(min(total, sum(available))):
        open_topics = np.where(quotas < available, quotas, total)
        quotas[np.argmin(open_topics)] += 1
    return quotas


def _alike(rng: np.random.Generator, topic: Sequence[str], number: int) -> list[tuple[str, str]]:
    """Draw distinct pairs of one topic's passages, the two of a pair in random order."""
    first, second = np.triu_indices(len(topic), k=1)
    chosen = rng.choice(len(first), number, replace=False)
    pairs = np.stack([first[chosen], second[chosen]], axis=1)
    return [(topic[a], topic[b]) for a, b in rng.permuted(pairs, axis=1).tolist()]


def _strangers(rng: np.random.Generator, topics: np.ndarray) -> np.ndarray:
    """Shuffle topic numbers (p,) so that none keeps its position; none may fill more than half of them."""
    other = rng.permutation(topics)
    while (same := np.flatnonzero(other == topics)).size:
        index, swap = same[0], rng.integers(len(topics))
        if other[swap] != topics[index] and other[index] != topics[swap]:
            other[[index, swap]] = other[[swap, index]]
    return other


def _unlike(
    rng: np.random.Generator, passages: Sequence[Sequence[str]], firsts: np.ndarray, seconds: np.ndarray
) -> list[tuple[str, str]]:
    """Draw distinct pairs: a passage of each topic in `firsts`, and one of its partner in `seconds`."""
    pairs: dict[tuple[str, str], None] = {}
    for first, second in zip(firsts.tolist(), seconds.tolist(), strict=True):
        while True:
            pair = _any(rng, passages[first]), _any(rng, passages[second])
            if pair not in pairs and pair[::-1] not in pairs:
                break
        pairs[pair] = None
    return list(pairs)


def _any(rng: np.random.Generator, topic: Sequence[str]) -> str:
    return topic[int(rng.integers(len(topic)))]
