"""Tracking URIs: which are accepted and which are refused, and how they are printed."""

from __future__ import annotations

import pytest

from orchestrator.errors import BadInput
from orchestrator.tracking import address


@pytest.mark.parametrize(
    "uri", ["sqlite:///mlruns/mlflow.db", "postgresql+psycopg2://u:p@h/d", "http://h:5000", "https://h"]
)
def test_databases_and_servers_are_accepted(uri: str) -> None:
    address.check(uri)


@pytest.mark.parametrize("uri", ["file:./mlruns", "./mlruns", "ftp://h", "", "htp://h:5000"])
def test_anything_else_is_refused_with_what_would_be_right(uri: str) -> None:
    with pytest.raises(BadInput, match=r"sqlite:///mlruns/mlflow\.db"):
        address.check(uri)


def test_secrets_are_not_printed() -> None:
    assert address.shown("http://me:canary@host:5000/x?y=1") == "http://host:5000/x?y=1"
    with pytest.raises(BadInput) as refused:
        address.check("ftp://me:canary@host")
    assert "canary" not in str(refused.value)


def test_paths_of_sqlite_are_unquoted() -> None:
    assert address.sqlite_path("sqlite:////a%20b/mlflow.db") == "/a b/mlflow.db"
    assert address.sqlite_path("sqlite:///mlruns/mlflow.db") == "mlruns/mlflow.db"
    assert address.sqlite_path("http://host") is None
