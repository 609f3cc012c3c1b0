"""Source is parsed by several threads at once, which the parser of CPython 3.11 does not stand by itself."""

from __future__ import annotations

import gc
import inspect
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from trainables import registry
from trainables.parsing import parsed

THREADS, TIMES = 4, 10


@pytest.fixture
def yielding() -> Iterator[None]:
    """Let another thread go on whenever garbage is collected, as the finalizers of some libraries do."""
    before = gc.get_threshold()

    def give_way(*_: object) -> None:
        time.sleep(0)

    gc.callbacks.append(give_way)
    gc.set_threshold(100)
    yield
    gc.set_threshold(*before)
    gc.callbacks.remove(give_way)


@pytest.mark.usefixtures("yielding")
def test_threads_parse_at_once() -> None:
    source = inspect.getsource(registry)
    with ThreadPoolExecutor(THREADS) as pool:
        trees = list(pool.map(parsed, [source] * THREADS * TIMES))
    assert len({len(tree.body) for tree in trees}) == 1


def test_a_mistake_has_its_place() -> None:
    with pytest.raises(SyntaxError) as caught:
        parsed("a = 1\nb =", "small.py")
    assert (caught.value.filename, caught.value.lineno) == ("small.py", 2)
