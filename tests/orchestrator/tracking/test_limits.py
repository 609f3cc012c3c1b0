"""Names and texts fit MLflow's limits, and stay apart."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlflow.utils import validation

from orchestrator.tracking import limits


@pytest.mark.parametrize("name", ["val/accuracy", "hidden_norm/layer_0", "gamma_init.min", "a b-c_d:e"])
def test_legal_names_stay(name: str) -> None:
    assert limits.legal_name(name) == name


@given(st.text(max_size=300))
def test_every_name_becomes_legal(name: str) -> None:
    legal = limits.legal_name(name)
    validation._validate_metric_name(legal)
    validation._validate_param_name(legal)
    assert 0 < len(legal) <= limits.KEY_LENGTH


@pytest.mark.parametrize("name", ["../../x", "/etc/x", "a//b", "x" * 400, "50%", "a\nb", "", ".."])
def test_odd_names_are_mended_and_stay_apart(name: str) -> None:
    legal = limits.legal_name(name)
    assert legal != name
    assert legal != limits.legal_name(name + "'")


def test_long_texts_are_cut_with_a_marker() -> None:
    cut = limits.shortened(string.ascii_letters * 200, 6000)
    assert len(cut) == 6000
    assert cut.endswith("[... 10400 characters in all]")
    assert limits.shortened("x" * 6000, 6000) == "x" * 6000


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), -float("inf"), None, "1", True, pytest.param(10**400, id="huge")]
)
def test_what_is_no_number(value: object) -> None:
    assert not limits.is_number(value)


def test_chunks_lose_nothing() -> None:
    assert list(limits.chunks(range(7), 3)) == [[0, 1, 2], [3, 4, 5], [6]]
