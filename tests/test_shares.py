"""The shares of the slow tests, of which each landing runs one, and the markers of tests and cases."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.conftest import dealt

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
