"""The scores of the examples of an evaluation as one text: 32-bit floats, compressed, in base 64.

A right or wrong answer takes about two bits. The text is a column of the evaluation, so that the digest of
the row covers it and the backup contains it.
"""

from __future__ import annotations

import base64
import sys
import zlib
from array import array
from collections.abc import Iterable


def pack(scores: Iterable[float]) -> str:
    """Return scores as a text, each rounded to 32 bits."""
    floats = array("f", scores)
    if sys.byteorder == "big":
        floats.byteswap()
    return base64.b64encode(zlib.compress(floats.tobytes(), 9)).decode()


def unpack(text: str) -> list[float]:
    """Return the scores of a text that `pack` has returned."""
    floats = array("f", zlib.decompress(base64.b64decode(text)))
    if sys.byteorder == "big":
        floats.byteswap()
    return floats.tolist()
