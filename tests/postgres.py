"""A real PostgreSQL server on the loopback interface, for the tests of the ledger."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import psycopg

PASSWORD = "hunter2-of-the-test"
START_SECONDS = 30.0


def binaries() -> Path | None:
    """Return the folder of the newest installed server, or None."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return programs[-1].parent if programs else None


def unprivileged_user() -> str | None:
    """Return the account that the server runs as: the current one, or an ordinary one instead of root."""
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid()).pw_name
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in ("postgres", "nobody") if name in names), None)


class Server:
    """A server with its own data folder and process group."""

    def __init__(self, programs: Path, user: str) -> None:
        self._programs, self._user = programs, user
        self._folder = Path(tempfile.mkdtemp(prefix="postgres-"))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        secret = self._folder / "password"
        secret.write_text(PASSWORD)
        if os.geteuid() == 0:
            shutil.chown(self._folder, user)
            shutil.chown(secret, user)
        options = ["--no-sync", "--username=sweep", "--auth=scram-sha-256", f"--pwfile={secret}"]
        self._run("initdb", *options, f"--pgdata={self._folder / 'data'}").wait()
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start the server and wait until it answers."""
        settings = [
            f"-cunix_socket_directories={self._folder}",
            "-clisten_addresses=127.0.0.1",
            "-cfsync=off",
        ]
        self._process = self._run("postgres", "-D", f"{self._folder / 'data'}", f"-p{self.port}", *settings)
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                psycopg.connect(self._dsn, connect_timeout=2).close()
            except psycopg.OperationalError:
                assert time.monotonic() < deadline, "the server does not start"
                time.sleep(0.05)
            else:
                return

    def stop(self) -> None:
        """End the server and its connections at once, as a crash does."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGQUIT)
        self._process.wait()

    def remove(self) -> None:
        """End the server and remove its data."""
        self.stop()
        shutil.rmtree(self._folder)

    def empty_database(self) -> str:
        """End all connections, empty the only database, and return its URL, which holds the password."""
        others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            connection.execute(f"{others} AND backend_type = 'client backend'")
            connection.execute("DROP SCHEMA public CASCADE")
            connection.execute("CREATE SCHEMA public")
        return f"postgresql://sweep:{PASSWORD}@127.0.0.1:{self.port}/postgres"

    @property
    def socket_url(self) -> str:
        """Return the URL of the database's socket, which all network namespaces of this machine reach."""
        return f"postgresql://sweep:{PASSWORD}@/postgres?host={self._folder}&port={self.port}"

    @property
    def _dsn(self) -> str:
        return f"host=127.0.0.1 port={self.port} user=sweep password={PASSWORD} dbname=postgres"

    def _run(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        as_user: dict[str, Any] = {}
        if os.geteuid() == 0:
            as_user = {"user": self._user, "group": pwd.getpwnam(self._user).pw_gid}
        return subprocess.Popen(
            [str(self._programs / program), *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
            **as_user,
        )
