"""R8: an MLflow server that is killed, overloaded, silent, or permanently unreachable."""

from __future__ import annotations

import socket
import subprocess
import time

from benchmarks.faults import plain
from benchmarks.faults.site import Site, disagreement, until
from benchmarks.faults.table import Dose, Row, Tally
from orchestrator.tracking import ui
from orchestrator.tracking.address import environment
from orchestrator.tracking.database import connect
from tests.end_to_end.commands import finish
from tests.orchestrator.tracking.proxy import Mode, Proxy

MUST = "0 trials failed; once it is back, every point exactly once, as in the ledger"


def unreliable_server(dose: Dose) -> list[Row]:
    """Make the server of a running sweep unavailable in three ways: killed, 503, no answer."""
    site, tally, proxy = Site(dose.folder, "mlflow").write(steps=200_000, trials=2), Tally(), Proxy()
    server = _Server(site, proxy)
    try:
        proxy.mode = "pass"
        driver = site.drive(
            "--tracking-patience", "600", MLFLOW_TRACKING_URI=f"http://127.0.0.1:{proxy.port}"
        )
        until(lambda: site.reports() >= 4, driver)
        reports_meanwhile = [
            _outage(site, proxy, server, mode, dose.outage) for mode in ("hang up", "503", "swallow")
        ]
        tally.expect(finish(site.start("stop", site.id))[0] == 0, "the sweep could not be stopped")
        code, output = finish(driver, 1200)
        tally.expect(code == 4, f"exit code {code}: {output[-300:]}")
        waiting = site.ledger.backlog(site.id)
        tally.expect(waiting == 0, f"{waiting} records were not delivered")
        failed = [trial for trial in site.trials() if trial.state == "FAILED"]
        tally.expect(not failed, f"{len(failed)} trials failed")
        differences = disagreement(site)
        tally.expect("points" not in differences, differences)
    finally:
        server.stop()
        proxy.close()
    seen = f"reports meanwhile: {', '.join(reports_meanwhile)}; {waiting} records left to deliver"
    return [tally.row(f"MLflow killed, 503, black hole, {dose.outage:g} s each", MUST, seen, plain.NO_MLFLOW)]


def _outage(site: Site, proxy: Proxy, server: _Server, mode: Mode, seconds: float) -> str:
    before = site.reports()
    proxy.mode = mode
    if mode == "hang up":
        server.kill()
    time.sleep(seconds)
    if mode == "hang up":
        server.start()
    proxy.mode = "pass"
    during = site.reports() - before
    until(lambda: site.ledger.backlog(site.id) < 100)
    return f"{during} ({mode})"


class _Server:
    """An MLflow server behind the proxy, on the database that the site uses by default."""

    def __init__(self, site: Site, proxy: Proxy) -> None:
        site.root.mkdir()
        uri = f"sqlite:///{site.root / 'mlflow.db'}"
        connect(uri)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            proxy.target = int(probe.getsockname()[1])
        self._port = proxy.target
        self._command = ui.command(uri, site.root / "artifacts", proxy.target)
        self._command[self._command.index("--allowed-hosts") + 1] = f"127.0.0.1:{proxy.port}"
        self.start()

    def start(self) -> None:
        """Start the server and wait until it answers."""
        self._process = subprocess.Popen(
            self._command,
            env=environment(),
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until(self._answers)

    def kill(self) -> None:
        """Kill the server without a clean shutdown."""
        self._process.kill()
        ui.stop(self._process)

    def stop(self) -> None:
        """Stop the server and its child processes."""
        ui.stop(self._process)

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0


def no_server(dose: Dose) -> list[Row]:
    """Configure a tracking server that does not exist."""
    site, tally = Site(dose.folder, "mlflow-gone").write(trials=4), Tally()
    gone = {"MLFLOW_TRACKING_URI": "http://127.0.0.1:9"}
    code, output = site.finished("--tracking-patience", "5", **gone)
    tally.expect(code == 0, f"exit code {code}: {output[-300:]}")
    waiting = site.ledger.backlog(site.id)
    tally.expect(f"{waiting} records wait for MLflow" in output, "the backlog was not reported")
    code, output = site.finished()
    tally.expect(code == 0, f"second run: exit code {code}: {output[-300:]}")
    tally.expect(not (differences := disagreement(site)), differences)
    must = "the sweep completes and reports the backlog; the same command delivers it later, once"
    seen = f"complete, {waiting} records reported as waiting, all delivered by the next run"
    return [tally.row("MLflow gone for good, then another", must, seen)]
