"""Where MLflow may be: what a tracking URI can name, said before anything runs."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from orchestrator.errors import BadInput

_DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
_SERVERS = ("http", "https")


def check(uri: str) -> None:
    """Refuse a tracking URI that no MLflow can be behind.

    Raises:
        BadInput: if it names neither a database nor a server; a folder of files is no longer either.
    """
    scheme = urlsplit(uri).scheme.partition("+")[0]
    if scheme not in (*_DATABASES, *_SERVERS):
        raise BadInput(
            "MLFLOW_TRACKING_URI",
            "must name a database or a server",
            f"`{shown(uri)}`",
            "Write sqlite:///mlruns/mlflow.db, postgresql://user@host/database or http://host:5000.",
        )


def is_server(uri: str) -> bool:
    """Tell whether MLflow is reached over HTTP, so that somebody else serves its pages."""
    return urlsplit(uri).scheme in _SERVERS


def shown(uri: str) -> str:
    """Return a URI as it may be printed: without user name and password."""
    parts = urlsplit(uri)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def sqlite_path(uri: str) -> str | None:
    """Return the path of an SQLite URI, or None for any other kind of store."""
    return unquote(urlsplit(uri).path[1:]) if uri.startswith("sqlite:///") else None
