"""Sweeps that are submitted over HTTP and run on a real Ray, also beside slow connections; a soak test."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest

from benchmarks.soak_http import files_of, marked, rows_of, soak
from tests.end_to_end.commands import Commands, wait_for
from tests.end_to_end.test_script_runs import free_port

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow]

CONNECTIONS = 5_000
"""More than the server has places for."""

FLOOD = f"""\
import itertools, socket, sys, time

HEAD = b"GET / HTTP/1.1\\r\\nX: " + 10_000 * b"y"
BODY = b"POST /api/v1/session HTTP/1.1\\r\\nHost: localhost\\r\\nContent-Type: application/json\\r\\n"
BODY += b"Content-Length: 9000\\r\\n\\r\\n" + 9_000 * b" "
texts = itertools.cycle((HEAD, BODY, b""))
where = sys.argv[1], int(sys.argv[2])
open_ones, opened = [], 0
while True:
    for _ in range(min(1_000, {CONNECTIONS} - len(open_ones))):
        text = next(texts)
        connection = socket.create_connection(where, timeout=30)
        connection.setblocking(False)
        first = text.find(b"\\r\\n\\r\\n") + 4 if text is BODY else 0
        connection.send(text[:first])
        open_ones.append((connection, iter(text[first:])))
        opened += 1
    print(opened, flush=True)
    time.sleep(0.5)
    kept = []
    for connection, rest in open_ones:
        try:
            byte = next(rest, None)
            if byte is not None:
                connection.send(bytes([byte]))
            elif not connection.recv(1_000):
                raise ConnectionError
            kept.append((connection, rest))
        except BlockingIOError:
            kept.append((connection, rest))
        except OSError:
            connection.close()
    open_ones = kept
"""
"""Opens connections, sends a byte on each twice a second, or none, and replaces those that are closed."""

FILE = """\
trainable: {function: train.py:train}
search: {rate: {uniform: [0.1, 0.5]}}
training: {steps: 3, interval: 1}
objective: {minimize: loss}
sampler: {random: {seed: 1}}
scheduler: none
budget: {trials: 2}
"""
TRAINING = """\
def train(trial):
    for step in range(trial.start + 1, trial.steps + 1):
        if not trial.report(step, {"loss": trial.params["rate"] / step}):
            return
"""


def test_three_sweeps_over_http_leave_no_handle_open(tmp_path: Path, temporary: Path) -> None:
    root = tmp_path / "mlruns"
    before, first, second, third, removed = soak(root, temporary, 3, 1)
    assert third.sweeps == 3
    assert third.handles <= second.handles + 2 <= first.handles + 10
    assert third.threads <= second.threads + 2
    assert marked() == [], "no process is left"
    assert third.runs - before.runs == 9, "a run of each sweep and of each trial"
    assert removed.runs == before.runs
    kept = dict(rows_of(root))
    assert kept.pop("owner", 1) == 1, "past use, which is charged every five minutes, outlives its sweeps"
    assert set(kept) == {"audit", "ledger", "lease"}, "who has done what, and the service's lease"
    assert not [name for name in files_of(root) if "tiny" in name]


def test_a_sweep_ends_while_thousands_of_connections_are_kept_open(
    commands: Commands, tmp_path: Path
) -> None:
    (tmp_path / "sweep.yaml").write_text(FILE)
    (tmp_path / "train.py").write_text(TRAINING)
    code, said = commands.run("user", "add", "ada")
    assert code == 0, said
    port, token = free_port(), said.split()[-1]
    service = commands.start("serve", "--http", str(port), "--stop-drivers")
    try:
        wait_for(lambda: _get(port, "healthz", token) is not None)
        with _flooded(port) as opened:
            wait_for(lambda: opened() >= CONNECTIONS)
            code, said = commands.run("submit", str(tmp_path / "sweep.yaml"))
            assert code == 0, said
            wait_for(lambda: _states(port, token) == ["COMPLETE"], 240)
            assert opened() > CONNECTIONS, "some were closed, and replaced"
    finally:
        service.terminate()
        service.wait(30)


def _states(port: int, token: str) -> list[str]:
    answer = _get(port, "sweeps", token)
    assert answer is not None, "the service answers within 5 s"
    return [sweep["state"] for sweep in answer["sweeps"]]


def _get(port: int, path: str, token: str) -> Any:
    """Return the document of a path of the API, or None without an answer."""
    address = f"http://127.0.0.1:{port}/api/v1/{path}"
    request = urllib.request.Request(address, headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return json.load(answer)
    except (URLError, OSError):
        return None


@contextmanager
def _flooded(port: int) -> Iterator[Callable[[], int]]:
    """Keep connections open in another process; yield what returns how many were opened until now."""
    command = [sys.executable, "-c", FLOOD, "127.0.0.1", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as flood:
        assert flood.stdout is not None
        counts = [0]
        reader = threading.Thread(target=lambda: counts.extend(map(int, flood.stdout or ())), daemon=True)
        reader.start()
        try:
            yield lambda: counts[-1]
            assert flood.poll() is None, "it goes on until the end"
        finally:
            flood.kill()
