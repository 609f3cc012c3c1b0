"""Fixtures of real commands, which must leave no process behind, and of networks."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver

from tests.end_to_end import browser
from tests.end_to_end.commands import LEAVE_SECONDS, Commands
from tests.end_to_end.network import Switch


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of data sets of this session."""
    return tmp_path_factory.mktemp("shared")


@pytest.fixture
def commands(tmp_path: Path, shared_folder: Path) -> Iterator[Commands]:
    """Yield commands with their own folder; check afterwards that none of their processes is left."""
    started = Commands(tmp_path, shared_folder, mark=f"{os.getpid()}-{time.monotonic_ns()}")
    yield started
    left = started.wait_until_gone()
    described = [" ".join(process.cmdline())[:120] for process in left]
    for process in left:
        process.kill()
    for command in started.processes:
        command.communicate()
    assert not left, f"left running after {LEAVE_SECONDS:g} s: {described}"


@pytest.fixture
def switch() -> Iterator[Switch]:
    """Yield a network without hosts."""
    network = Switch()
    yield network
    network.remove()


@pytest.fixture(scope="session")
def shared_chrome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """Yield the browser that all tests of the page share."""
    with browser.opened(tmp_path_factory.mktemp("chrome") / "profile") as opened:
        yield opened


@pytest.fixture
def chrome(shared_chrome: webdriver.Chrome) -> Iterator[webdriver.Chrome]:
    """Yield a browser, and leave the page of a test: it would go on asking a server that has ended."""
    yield shared_chrome
    shared_chrome.get("about:blank")


@pytest.fixture
def silent(chrome: webdriver.Chrome) -> Iterator[None]:
    """Require that a test leaves no error on the browser's console that it has not read itself."""
    browser.errors(chrome)
    yield
    assert browser.errors(chrome) == []
