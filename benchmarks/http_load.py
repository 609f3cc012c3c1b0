"""Latency of the HTTP API at a fixed rate, and the delay of events to many watchers of one sweep.

    python -m benchmarks.http_load --rate 200 --seconds 20 --watchers 1000

A service runs in a process of its own over a ledger with 20 running sweeps. Another process stands for their
drivers: it holds the lease of each, and writes one report of each per second. Requests are sent at fixed
times over 50 kept connections, and a latency counts from the time at which the request was due.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, urlsplit

import psutil

from orchestrator.api import user_admin
from orchestrator.api.serving import running
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.sweeps.index import begun
from orchestrator.ledger.sweeps.lease import Lease
from orchestrator.ledger.sweeps.records import trial_key
from orchestrator.storage.paths import Paths
from tests import sweeps
from tests.orchestrator.ledger.examples import create_sweep

SWEEPS = 20
CONNECTIONS = 50
REPORTS_A_SECOND = 1.0
"""Of each sweep."""

ALONE_RATE, ALONE_CONNECTIONS, REST_SECONDS = 10.0, 10, 5.0
"""Rate and connections of the requests of one kind, and seconds in which the processor time without requests
is measured. The service closes a connection without a request for 5 s."""


SHARE_OF_OTHERS = 10
"""One in this many requests is none of those that the page sends."""


class Request(NamedTuple):
    """A request: its method, its path, and its body as JSON."""

    method: str
    path: str
    body: object = None

    def head(self, host: str, token: str) -> bytes:
        """Return the bytes to send."""
        content = b"" if self.body is None else json.dumps(self.body).encode()
        lines = [
            f"{self.method} {self.path} HTTP/1.1",
            f"Host: {host}",
            f"Authorization: Bearer {token}",
            "Accept: application/json, text/event-stream",
            *(["Content-Type: application/json"] if content else []),
            f"Content-Length: {len(content)}",
        ]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


def of_page(sweep_id: str) -> dict[str, Request]:
    """Return the requests of the page, by name."""
    api, one = "/api/v1", f"/api/v1/sweeps/{sweep_id}"
    paths = {
        "sweeps": f"{api}/sweeps",
        "queue": f"{api}/queue",
        "sweep": one,
        "trials": f"{one}/trials?sort=value",
        "curves": f"{one}/curves",
        "me": f"{api}/me",
    }
    return {name: Request("GET", path) for name, path in paths.items()}


def others(sweep_id: str) -> dict[str, Request]:
    """Return the requests of monitoring, agents and people's decisions, by name."""
    one, query = f"/api/v1/sweeps/{sweep_id}", quote("SELECT state, count(*) FROM trials GROUP BY state")
    call = {"name": "status", "arguments": {"sweep": sweep_id}}
    return {
        "metrics": Request("GET", "/metrics"),
        "note": Request("PATCH", f"{one}/note", {"text": "looks good", "add": ["kept"]}),
        "mcp status": Request(
            "POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
        ),
        "sql": Request("GET", f"/api/v1/sql?query={query}"),
        "cost": Request("POST", "/api/v1/cost", {}),
        "stop a trial": Request("POST", f"{one}/trials/8/stop"),
    }


@contextmanager
def service(root: Path, *options: str) -> Iterator[str]:
    """Run a service for the length of a `with` block, and yield its address."""
    words = ["-m", "orchestrator.sweep", "serve", "--http", "0", "--root", str(root), *options]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [sys.executable, *words], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        threading.Thread(target=process.stdout.read, daemon=True).start()
        try:
            yield line.split()[5].removesuffix("/api/v1;")
        finally:
            process.terminate()
            process.wait()


@contextmanager
def drivers(root: Path) -> Iterator[None]:
    """Run the process that simulates the drivers during a `with` block."""
    words = ["-m", "benchmarks.http_load", "--drive", str(root)]
    with subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield
        finally:
            process.terminate()


def drive(root: Path) -> None:
    """Hold the lease of every sweep and write its reports, until this process is ended."""
    ledger = Ledger.open(Paths(root).ledger_url)
    with ExitStack() as stack:
        driven = {}
        for sweep_id in begun(ledger):
            writer = stack.enter_context(Lease(ledger, sweep_id)).writer
            initial = {"value": None, "best_step": None, "step": 0, "attempts": 0, "finished_at": None}
            trial = replace(sweeps.trial(8, "RUNNING", **initial), total_steps=1_000_000)
            trial = replace(trial, key=trial_key(sweep_id, trial.number), sweep_id=sweep_id)
            writer.set_sweep_state("RUNNING")
            writer.add_trial(trial)
            driven[sweep_id] = writer, writer.start_attempt(trial.key)
        print("All sweeps are driven.", flush=True)
        began = time.monotonic()
        for step in itertools.count(1):
            for number, (writer, attempt) in enumerate(driven.values()):
                due = began + (step - 1 + number / len(driven)) / REPORTS_A_SECOND
                time.sleep(max(0.0, due - time.monotonic()))
                writer.record_report(attempt.id, step, {"val/accuracy": 0.5}, at=time.time())


async def answer(reader: asyncio.StreamReader) -> int:
    """Read one answer, and return its status."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
    await reader.readexactly(length)
    return int(head.split()[1])


async def requests(
    address: str, token: str, asked: Iterable[Request], rate: float, connections: int = CONNECTIONS
) -> tuple[list[float], int]:
    """Send requests at a fixed rate.

    Returns:
        The latencies of those that were answered, in seconds, and the number of those that exceeded a limit
        of the service, which runs few queries of a user at once.
    """
    parts = urlsplit(address)
    due: asyncio.Queue[tuple[float, Request] | None] = asyncio.Queue()
    latencies: list[float] = []
    limited = 0

    async def connection() -> None:
        nonlocal limited
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        while (entry := await due.get()) is not None:
            at, request = entry
            writer.write(request.head(parts.netloc, token))
            status = await answer(reader)
            assert status in {200, 202, 429}, (request, status)
            if status == 429:
                limited += 1
            else:
                latencies.append(time.monotonic() - at)
        writer.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(connections):
            group.create_task(connection())
        began = time.monotonic()
        for number, request in enumerate(asked):
            at = began + number / rate
            await asyncio.sleep(max(0.0, at - time.monotonic()))
            due.put_nowait((at, request))
        for _ in range(connections):
            due.put_nowait(None)
    return latencies, limited


async def watchers(
    address: str, token: str, sweep_id: str, number: int, seconds: float
) -> tuple[int, list[float]]:
    """Open streams of one sweep; return how many received events, and the spread of each event over them."""
    parts = urlsplit(address)
    received: dict[bytes, list[float]] = {}

    async def watch() -> int:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        path = f"/api/v1/sweeps/{sweep_id}/events"
        head = f"GET {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nAuthorization: Bearer {token}\r\n\r\n"
        writer.write(head.encode())
        events = 0
        try:
            async with asyncio.timeout(seconds):
                while line := await reader.readline():
                    if line.startswith(b"id: "):
                        events += 1
                        received.setdefault(line, []).append(time.monotonic())
        except TimeoutError:
            pass
        writer.close()
        return events

    counts = await asyncio.gather(*(watch() for _ in range(number)))
    complete = [times for times in received.values() if len(times) == number]
    return sum(count > 1 for count in counts), [max(times) - min(times) for times in complete]


def processor_seconds(root: Path) -> float:
    """Return the processor time of the service and its ended children; other load changes it little."""
    found = running(root=root)
    assert found is not None, "the service runs"
    times = psutil.Process(found.process.pid).cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)


def mixed(
    page: Mapping[str, Request], rest: Mapping[str, Request], given: argparse.Namespace
) -> Iterator[Request]:
    """Yield the requests of the page in turn, and now and then one of the others."""
    ours, theirs = itertools.cycle(page.values()), itertools.cycle(rest.values())
    for number in range(int(given.rate * given.seconds)):
        yield next(ours if number % SHARE_OF_OTHERS else theirs)


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which a share of the values lies."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def main() -> None:
    """Print both tables."""
    given = arguments()
    if given.drive is not None:
        drive(given.drive)
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert files > given.watchers + 100, f"`ulimit -n` is {files}"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        root = sweeps.filled(folder / "mlruns").root
        _, token = user_admin.add("load", "admin", root=root)
        with closing(Ledger.open(Paths(root).ledger_url)) as ledger:
            for number in range(1, SWEEPS):
                create_sweep(ledger, sweeps.sweep_record(id=f"copy-{number:08d}"))
        with service(root) as address, drivers(root):
            measure(given, root, address, token, sweeps.SWEEP_ID)


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--watchers", type=int, default=1000)
    parser.add_argument("--each", type=int, default=100, help="requests of each kind that are sent alone")
    parser.add_argument("--drive", type=Path, help="only write the reports of all sweeps of this root")
    return parser.parse_args()


def measure(given: argparse.Namespace, root: Path, address: str, token: str, sweep_id: str) -> None:
    """Send the requests and open the streams, and print the tables."""
    page, rest = of_page(sweep_id), others(sweep_id)
    asyncio.run(requests(address, token, [*page.values(), *rest.values()], 3.0))
    before, loads = processor_seconds(root), os.getloadavg()[0]
    latencies, limited = asyncio.run(requests(address, token, mixed(page, rest, given), given.rate))
    used = (processor_seconds(root) - before) / given.seconds
    sent = f"{len(latencies)} requests at {given.rate:g} a second, and {limited} over a limit"
    print(f"{sent}: {used:.0%} of a core, load {loads:.1f}")
    for share in (0.5, 0.9, 0.99, 1.0):
        print(f"  {share:4.0%}  {1000.0 * quantile(latencies, share):7.1f} ms")
    idle = processor_seconds(root)
    time.sleep(REST_SECONDS)
    idle = (processor_seconds(root) - idle) / REST_SECONDS
    print(f"one kind at {ALONE_RATE:g} a second; processor time without the {idle:.1%} of a core between")
    for name, request in {**page, **rest}.items():
        before, began = processor_seconds(root), time.monotonic()
        alone, limited = asyncio.run(
            requests(address, token, [request] * given.each, ALONE_RATE, ALONE_CONNECTIONS)
        )
        spent = processor_seconds(root) - before - idle * (time.monotonic() - began)
        times = [1000.0 * quantile(alone, share) for share in (0.5, 0.99)]
        cost = 1000.0 * spent / given.each
        spread = f"{times[0]:7.1f} ms at 50 %, {times[1]:7.1f} ms at 99 %, {limited} over a limit"
        print(f"  {name:14} {cost:7.1f} ms of processor, {spread}", flush=True)
    if given.watchers:
        before = processor_seconds(root)
        served, spreads = asyncio.run(watchers(address, token, sweep_id, given.watchers, given.seconds))
        used = (processor_seconds(root) - before) / given.seconds
        print(f"{served} of {given.watchers} watchers received events, {used:.0%} of a core")
        if spreads:
            median = quantile(spreads, 0.5)
            print(f"  first to last watcher: {median:.2f} s (median of {len(spreads)} events)")


if __name__ == "__main__":
    main()
