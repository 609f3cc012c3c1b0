"""A machine that its cloud takes away: cluster/spot.sh hears of it, and the trials there go on elsewhere."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from benchmarks.faults.cluster import ClusterSite, slowness
from orchestrator.session.limits import UNCHARGED
from tests import postgres
from tests.end_to_end.commands import ROOT, finish, wait_for
from tests.end_to_end.network import marks

pytestmark = [
    *marks(1200),
    pytest.mark.skipif(postgres.binaries() is None, reason="needs PostgreSQL (Debian: postgresql)"),
]
NOTICE_SECONDS = 30.0
"""The shorter of the two warnings, Google's: enough where nobody else uses the processors."""

METADATA = """
import http.server, pathlib, sys

cloud, notice = sys.argv[1], pathlib.Path(sys.argv[2])

class Answer(http.server.BaseHTTPRequestHandler):
    def tell(self, status, text=""):
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())

    def do_PUT(self):
        mine = cloud == "aws" and self.path == "/latest/api/token" and "X-aws-ec2-metadata-token-ttl-seconds"
        self.tell(200, "a token") if mine and self.headers[mine] else self.tell(404)

    def do_GET(self):
        if cloud == "aws" and self.headers["X-aws-ec2-metadata-token"] == "a token":
            there = self.path == "/latest/meta-data/spot/instance-action" and notice.exists()
            self.tell(200, "{}") if there else self.tell(404)
        elif cloud == "google" and self.headers["Metadata-Flavor"] == "Google":
            self.tell(200, str(notice.exists()).upper())
        else:
            self.tell(401)

http.server.ThreadingHTTPServer(("169.254.169.254", 80), Answer).serve_forever()
"""
"""What AWS and Google Cloud tell a machine at this address, as their manuals have it."""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[ClusterSite]:
    """Give a cluster of three hosts, one processor each, the first of them the head."""
    cluster = ClusterSite(tmp_path, "spot")
    for number in (1, 2, 3):
        cluster.join(number)
    yield cluster
    cluster.end()


def watch(site: ClusterSite, number: int, cloud: str) -> Path:
    """Start cluster/spot.sh on a host of a cloud; return the file whose presence is the cloud's notice."""
    notice, host = site.folder / f"notice-{cloud}", site.hosts[number]
    address = ["ip", "address", "add", "169.254.169.254/32", "dev", "lo"]
    assert finish(host.run(address))[0] == 0
    host.run([sys.executable, "-c", METADATA, cloud, str(notice)], quiet=True)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    told = {**site.environment, "PATH": path}
    host.run(["sh", str(ROOT / "cluster" / "spot.sh")], quiet=True, **told)
    return notice


def running_on(site: ClusterSite, number: int) -> list[str]:
    """Return the trials whose attempt on a host has reported there."""
    reported = {report.attempt_id for report in site.ledger.reports(site.id)}
    here = [key for key, place in site.places().items() if place == f"host-{number}"]
    attempts = {trial.key: f"{trial.key}.{trial.attempts}" for trial in site.trials()}
    return [key for key in here if attempts[key] in reported]


def goes_on(site: ClusterSite, key: str, number: int) -> bool:
    """Tell whether a trial has reported from another host."""
    return any(key in running_on(site, other) for other in site.hosts if other != number)


def test_trials_leave_a_machine_that_is_taken_away(site: ClusterSite) -> None:
    """By the notice of either cloud: saved in time, not charged, on another host, no step run twice."""
    site.write(trials=2, steps=5_000_000)
    driver = site.drive("--set", "training.interval=500")
    wait_for(lambda: site.reports() > 0 or driver.poll() is not None, seconds=400)
    for cloud in ("aws", "google"):
        wait_for(lambda: running_on(site, 2) + running_on(site, 3) != [], seconds=400)
        number = 2 if running_on(site, 2) else 3
        notice = watch(site, number, cloud)
        (key,) = running_on(site, number)
        before = {each.id for each in site.ledger.attempts(site.id)}
        notice.touch()
        wait_for(partial(goes_on, site, key, number), seconds=400)
        site.lose(number)
        ended = [each for each in site.ledger.attempts(site.id) if each.id in before and each.cause]
        assert ended[-1].trial_key == key
        assert (ended[-1].ended_at or 0.0) - notice.stat().st_mtime < NOTICE_SECONDS * slowness()
        site.join(number)
    assert finish(site.start("stop", site.id))[0] == 0
    code, output = finish(driver)
    assert code == 4, output
    causes = Counter(each.cause for each in site.ledger.attempts(site.id) if each.cause)
    assert causes.keys() <= UNCHARGED, causes
    assert set(site.repeated().values()) == {0}
    assert site.check() == ""
