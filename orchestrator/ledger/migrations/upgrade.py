"""Run Alembic on an open connection; no configuration file, no output."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection


def configuration() -> Config:
    """Return Alembic's configuration for the revisions beside this file."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    return config


def upgrade(connection: Connection, revision: str) -> None:
    """Bring the database to `revision` within the connection's transaction."""
    config = configuration()
    config.attributes["connection"] = connection
    command.upgrade(config, revision)


def head() -> str | None:
    """Return the newest revision there is."""
    return ScriptDirectory.from_config(configuration()).get_current_head()
