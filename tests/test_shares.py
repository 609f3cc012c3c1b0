"""The shares of the slow tests, of which each landing runs one, and the markers of tests and cases."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import dealt
from tests.end_to_end.commands import ROOT

NAMES = [f"tests/{file}.py::test[{case}]" for file in ("a", "b", "c") for case in range(35)]


def test_the_tests_of_a_file_are_dealt_out_evenly() -> None:
    shares = dealt(NAMES, 16)
    assert set(shares) == set(range(1, 17))
    for first in range(0, len(NAMES), 35):
        assert set(Counter(shares[first : first + 35]).values()) == {2, 3}


def test_a_new_test_in_one_file_leaves_the_shares_of_the_others() -> None:
    before = dict(zip(NAMES, dealt(NAMES, 16), strict=True))
    more = [*NAMES[:35], "tests/a.py::test[new]", *NAMES[35:]]
    after = dict(zip(more, dealt(more, 16), strict=True))
    assert {name: after[name] for name in NAMES} == before


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("case", [0, 1])
def test_a_case_after_the_count_is_slow(request: pytest.FixtureRequest, case: int) -> None:
    assert (request.node.get_closest_marker("slow") is not None) == (case == 1)


@pytest.mark.slow_cases("one")
@pytest.mark.parametrize("case", ["one", "another"])
def test_a_named_case_is_slow(request: pytest.FixtureRequest, case: str) -> None:
    assert (request.node.get_closest_marker("slow") is not None) == (case == "one")


@pytest.mark.parametrize("url", ["sqlite", "postgresql"])
def test_a_case_on_postgresql_uses_a_server(request: pytest.FixtureRequest, url: str) -> None:
    assert (request.node.get_closest_marker("server") is not None) == (url == "postgresql")


@pytest.mark.slow
@pytest.mark.ray
def test_a_test_that_starts_ray_needs_the_marker_after_another_one_too(tmp_path: Path) -> None:
    (tmp_path / "test_both.py").write_text(
        """\
import pytest

from orchestrator.machines import hardware, joining
from orchestrator.schedule import environment

pytestmark = pytest.mark.end_to_end


def start():
    with joining.joined(hardware.detect(), environment.of_head()):
        pass


@pytest.mark.ray
def test_with_it():
    start()


def test_without_it():
    start()


def test_that_starts_none():
    pass
"""
    )
    options = ["-c", str(ROOT / "pyproject.toml"), "-p", "tests.conftest", "-p", "no:cacheprovider", "-rA"]
    command = [sys.executable, "-m", "pytest", *options, str(tmp_path)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "ERROR test_both.py::test_without_it" in ran.stdout.replace(f"{tmp_path}/", "")
    assert "3 passed, 1 error" in ran.stdout
