"""The process of `serve` ends with its own code after a signal, whatever its threads are doing."""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from orchestrator.api import user_admin
from orchestrator.api.serving import Rounds
from orchestrator.api.workspace import Workspace
from orchestrator.cli.app import code_of_interruption
from orchestrator.cli.serve import _answering
from orchestrator.driver.admission import OWNER
from orchestrator.errors import Exit
from orchestrator.web.server import Listening

FOR_EVER = 300.0
"""Seconds for which what is blocked stays blocked; a service that waits for it has not left in time."""

PATIENCE = 100.0
"""Seconds after which a test gives up; the service itself promises ten on a machine that has time for it."""

BUSY = f"""
import sys, time
from orchestrator import sweep
from orchestrator.service.service import Service
from orchestrator.web.app_state import AppState

def supervise(service):
    print("supervises", flush=True)
    time.sleep({FOR_EVER})

def answer(site):
    print("answers", flush=True)
    time.sleep({FOR_EVER})

Service.poll, AppState.users = supervise, answer
sys.argv[1:] = ["serve", "--http", "0", "--root", sys.argv[1]]
sweep.main()
"""

LATE = f"""
import sys, time
from contextlib import contextmanager
from pathlib import Path
from orchestrator.driver import shutdown
from orchestrator.service import service
from orchestrator.storage.paths import Paths

@contextmanager
def beside():
    yield
    print("late", flush=True)
    time.sleep({FOR_EVER})

shutdown.GRACE_SECONDS, service.STOP_SECONDS = float(sys.argv[2]), 0.0
stop, paths = len(sys.argv) > 3, Paths(Path(sys.argv[1]))
sys.exit(service.serve(paths, print, stop_drivers=stop, start=lambda _: 0, beside=beside()))
"""


@contextmanager
def running(script: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-uc", script, *words], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def line_with(process: subprocess.Popen[str], word: str) -> str:
    """Return the next line of a process that has a word."""
    assert process.stdout is not None
    for line in process.stdout:
        if word in line:
            return line
    raise AssertionError(f"the process has ended with {process.wait()}")


@pytest.mark.slow
def test_a_service_ends_with_0_while_its_supervision_and_a_request_are_busy(tmp_path: Path) -> None:
    def ask() -> None:
        connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=FOR_EVER)
        with suppress(OSError, http.client.HTTPException):
            connection.request("GET", "/api/v1/readyz")
            connection.getresponse()

    with running(BUSY, str(tmp_path)) as process:
        address = line_with(process, "HTTP API").split()[5]
        line_with(process, "supervises")
        threading.Thread(target=ask, daemon=True).start()
        line_with(process, "answers")
        process.terminate()
        assert process.wait(PATIENCE) == Exit.COMPLETE


@pytest.mark.slow
@pytest.mark.parametrize(("options", "code"), [([], Exit.COMPLETE), (["stop"], Exit.RESUMABLE)])
def test_a_service_whose_main_thread_gets_no_processor_ends_with_its_code(
    tmp_path: Path, options: list[str], code: Exit
) -> None:
    with running(LATE, str(tmp_path), "0.5", *options) as process:
        line_with(process, "serves")
        process.terminate()
        assert process.wait(PATIENCE) == code


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(("options", "code"), [([], Exit.COMPLETE), (["stop"], Exit.RESUMABLE)])
def test_a_second_signal_does_not_change_the_code(tmp_path: Path, options: list[str], code: Exit) -> None:
    with running(LATE, str(tmp_path), str(FOR_EVER), *options) as process:
        line_with(process, "serves")
        process.terminate()
        line_with(process, "late")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == code


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (["serve", "--http", "8080"], Exit.COMPLETE),
        (["serve", "--stop-drivers"], Exit.RESUMABLE),
        (["space.yaml"], Exit.RESUMABLE),
    ],
)
def test_the_code_of_a_command_that_is_interrupted_before_it_has_begun(line: list[str], code: Exit) -> None:
    assert code_of_interruption(line) == code


@pytest.mark.parametrize(
    ("stop_drivers", "what"),
    [(False, "its sweeps continue"), (True, "its drivers save their trials and end too")],
)
def test_serve_prints_the_link_to_the_page_and_how_to_end_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    stop_drivers: bool,
    what: str,
) -> None:
    monkeypatch.setenv(OWNER, "ada")
    workspace, listening = Workspace.at(tmp_path / "mlruns"), Listening(0)
    workspace.paths.create()
    later: list[str] = []
    with _answering(workspace, listening, Rounds(), later, stop_drivers=stop_drivers):
        [api], [page, end] = capsys.readouterr().out.splitlines(), later
    address = api.split()[5].removesuffix("/api/v1;")
    assert re.fullmatch(
        re.escape(f"The page is at {address}/sign-in#")
        + r"[\w-]{43} \(the link signs ada in, once, within 15 minutes\)\.",
        page,
    )
    assert end == f"Ctrl-C or `kill {os.getpid()}` ends the service; {what}."
    user_admin.add("ada", root=workspace.paths.root)
    user_admin.revoke("ada", root=workspace.paths.root)
    with _answering(workspace, listening, Rounds(), revoked := [], stop_drivers=stop_drivers):
        assert "sign-in" not in "".join(revoked), "a revoked account gets no link"


@pytest.mark.slow
def test_serve_prints_the_link_once_the_service_runs(tmp_path: Path) -> None:
    words = ["-m", "orchestrator.sweep", "serve", "--http", "0", "--root", str(tmp_path / "mlruns")]
    with subprocess.Popen([sys.executable, "-u", *words], stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout is not None
        try:
            first, second, page, end = (service.stdout.readline() for _ in range(4))
        finally:
            service.send_signal(signal.SIGTERM)
            service.communicate(timeout=PATIENCE)
    assert first.startswith("The HTTP API is at ")
    assert " serves " in second
    assert "/sign-in#" in page
    assert f"kill {service.pid}" in end
