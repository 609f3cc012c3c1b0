"""Source is parsed by several threads at once, which the parser of CPython 3.11 does not stand by itself."""

from __future__ import annotations

import gc
import inspect
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from trainables import registry
from trainables.sources import LARGEST, parsed, text_of

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


@pytest.mark.slow
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


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbfword = 'a'\n",
        b"\xef\xbb\xbf# coding: utf-8\r\nword = '\xc3\xa9'\r\n",
        b"# -*- coding: latin-1 -*-\nword = '\xe9'\n",
        b"#!/usr/bin/python\n# vim: set fileencoding=cp1252 :\nword = '\x80'\n",
        "# coding: gbk\nword = '\u4e2d'\n".encode("gbk"),
    ],
)
def test_source_is_read_as_python_reads_it(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "train.py"
    file.write_bytes(content)
    subprocess.run([sys.executable, file], check=True)
    names: dict[str, str] = {}
    exec(compile(parsed(text_of(file), str(file)), str(file), "exec"), names)
    theirs: dict[str, str] = {}
    exec(compile(content, str(file), "exec"), theirs)
    assert names["word"] == theirs["word"]


def test_what_is_no_source_is_refused_before_it_is_read(tmp_path: Path) -> None:
    """A member's file may be a pipe, or have a hole of any size; or an encoding that is none."""
    os.mkfifo(tmp_path / "pipe.py")
    with (tmp_path / "sparse.py").open("wb") as file:
        file.truncate(1 << 40)
    (tmp_path / "unknown.py").write_bytes(b"# coding: klingon\n")
    (tmp_path / "latin.py").write_bytes(b"word = '\xe9'\n")
    for name, message in [
        ("pipe.py", "no regular file"),
        ("sparse.py", f"more than {LARGEST:,} bytes"),
        ("unknown.py", "unknown encoding"),
        ("latin.py", "codec can't decode|invalid or missing encoding"),
    ]:
        with pytest.raises((SyntaxError, OSError), match=message):
            text_of(tmp_path / name)
