"""R8: an MLflow server that is killed, overloaded, silent, or permanently unreachable."""

from __future__ import annotations

import time

from benchmarks.faults.served import TrackingServer
from benchmarks.faults.site import Site, disagreement, until
from benchmarks.faults.table import Dose, Row, Tally
from tests.end_to_end.commands import finish
from tests.orchestrator.tracking.proxy import Mode

MUST = "0 trials failed; once it is back, every point exactly once, as in the ledger"


def unreliable_server(dose: Dose) -> list[Row]:
    """Make the server of a running sweep unavailable in three ways: killed, 503, no answer."""
    site, tally = Site(dose.folder, "mlflow").write(steps=200_000, trials=2), Tally()
    site.root.mkdir()
    server = TrackingServer(site.root)
    try:
        driver = site.drive("--tracking-patience", "600", MLFLOW_TRACKING_URI=server.url)
        site.until_reports(4, driver)
        reports_meanwhile = [
            _outage(site, server, mode, dose.outage) for mode in ("hang up", "503", "swallow")
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
        server.close()
    seen = f"reports meanwhile: {', '.join(reports_meanwhile)}; {waiting} records left to deliver"
    return [tally.row(f"MLflow killed, 503, black hole, {dose.outage:g} s each", MUST, seen)]


def _outage(site: Site, server: TrackingServer, mode: Mode, seconds: float) -> str:
    before = site.reports()
    server.proxy.mode = mode
    if mode == "hang up":
        server.kill()
    time.sleep(seconds)
    if mode == "hang up":
        server.start()
    server.proxy.mode = "pass"
    during = site.reports() - before
    until(lambda: site.ledger.backlog(site.id) < 100)
    return f"{during} ({mode})"


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
