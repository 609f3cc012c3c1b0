"""A TCP proxy with faults: it forwards, answers 400 or 503, swallows requests, or hangs up."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from pathlib import Path
from typing import Literal

from orchestrator.tracking import ui

Mode = Literal["pass", "400", "503", "swallow", "hang up"]

_ANSWERS: dict[str, bytes] = {
    "400": b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    "503": b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
}


def command_on(port: int, artifacts: Path, through: int | None = None) -> list[str]:
    """Return the command of an MLflow server that listens on a port, instead of on a socket of its owner.

    Args:
        port: of 127.0.0.1.
        artifacts: folder of the artifacts.
        through: port by which clients reach it; if None, the same.
    """
    command = ui.command(artifacts, artifacts)
    at = command.index("--uvicorn-opts")
    command[at : at + 2] = ["--host", "127.0.0.1", "--port", str(port)]
    command[command.index("--allowed-hosts") + 1] = f"127.0.0.1:{through or port}"
    return command


class Proxy:
    """Listens on a free port of 127.0.0.1 and forwards to another port, as `mode` allows."""

    def __init__(self) -> None:
        self.mode: Mode = "hang up"
        self.target = 0
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._kept: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Stop listening and close the swallowed connections."""
        self._listener.close()
        for connection in self._kept:
            connection.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.connections += 1
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            if self.mode == "swallow":
                self._kept.append(client)
                return
            with client:
                if self.mode == "pass":
                    self._forward(client)
                elif self.mode in _ANSWERS:
                    client.recv(65536)
                    client.sendall(_ANSWERS[self.mode])

    def _forward(self, client: socket.socket) -> None:
        server = socket.create_connection(("127.0.0.1", self.target))
        threading.Thread(target=self._copy, args=(server, client), daemon=True).start()
        self._copy(client, server)

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        """Forward one direction while the mode allows it."""
        with contextlib.suppress(OSError), source, sink:
            while data := source.recv(65536):
                while self.mode == "swallow":
                    time.sleep(0.05)
                if self.mode != "pass":
                    return
                sink.sendall(data)
