"""Seeds for the random draws of the product, so that a simulation repeats."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch


@contextmanager
def drawing_from(seed: str) -> Iterator[None]:
    """Let what the product draws by itself, waits and names of files, follow from a seed."""
    names, state = random.Random(seed), random.getstate()
    random.seed(seed)
    try:
        with patch.object(uuid, "uuid4", lambda: uuid.UUID(int=names.getrandbits(128), version=4)):
            yield
    finally:
        random.setstate(state)
