"""Scores are read as they were packed, rounded to 32 bits, and right or wrong answers take little room."""

from __future__ import annotations

import base64
import math
import random
import zlib

import pytest

from orchestrator.ledger.sweeps.records import pack_scores, unpack_scores


def test_scores_are_read_as_they_were_packed() -> None:
    assert unpack_scores(pack_scores([1.0, 0.0, 0.5])) == [1.0, 0.0, 0.5]
    assert unpack_scores(pack_scores([0.0017])) == pytest.approx([0.0017], rel=1e-7)
    assert unpack_scores(pack_scores([])) == []
    assert math.isnan(unpack_scores(pack_scores([math.nan]))[0])


def test_the_numbers_are_the_same_on_every_machine() -> None:
    """They are little-endian, whatever the machine that packs them."""
    assert zlib.decompress(base64.b64decode(pack_scores([1.0, 0.0]))) == b"\x00\x00\x80\x3f\x00\x00\x00\x00"


def test_right_and_wrong_answers_take_about_two_bits() -> None:
    answers = [float(random.Random(index).random() < 0.6) for index in range(25_000)]
    assert len(pack_scores(answers)) < 25_000 * 2.5 / 8
