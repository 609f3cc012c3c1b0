"""MLflow's limits, met by changing as little as possible and by saying so.

Source: `mlflow.utils.validation` of 3.17: keys of 250 characters, parameters of 6,000, tags of 8,000; names
made of letters, digits and `_ - . : /` and blanks, that are normal relative paths; 100 parameters and
100 tags, 1,000 metrics a batch.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TypeVar

KEY_LENGTH = 250
PARAMETER_LENGTH = 6000
TAG_LENGTH = 8000
METRICS_A_BATCH = 800
"""Below MLflow's 1,000, which parameters and tags of the same batch share."""
NAMES_A_BATCH = 100

_ODD = re.compile(r"[^/\w.\- :]")
_Item = TypeVar("_Item")


def legal_name(name: str) -> str:
    """Return `name` if MLflow takes it, else the nearest legal name, with a digest that keeps names apart."""
    cleaned = posixpath.normpath(_ODD.sub("_", name)).lstrip("/.").rstrip()
    if name and cleaned == name and len(name) <= KEY_LENGTH:
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{cleaned[: KEY_LENGTH - 9]}_{digest}"


def legal_names(values: Mapping[str, str], length: int) -> dict[str, str]:
    """Return `values` with legal names and with texts of at most `length` characters."""
    return {legal_name(name): shortened(value, length) for name, value in values.items()}


def shortened(text: str, length: int) -> str:
    """Return `text`, cut to `length` characters with a marker of how much was left out."""
    if len(text) <= length:
        return text
    marker = f" [... {len(text)} characters in all]"
    return text[: length - len(marker)] + marker


def is_number(value: object) -> bool:
    """Tell whether MLflow can draw `value`: a finite number, and not a truth value."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= sys.float_info.max


def chunks(items: Iterable[_Item], size: int) -> Iterator[list[_Item]]:
    """Yield `items` in lists of at most `size`."""
    rest = iter(items)
    while chunk := list(islice(rest, size)):
        yield chunk
