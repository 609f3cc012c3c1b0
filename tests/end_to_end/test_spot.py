"""A cloud takes a machine away: cluster/spot.sh reads the notice, and the trials continue elsewhere."""

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
"""The shorter of the two notice periods, Google's; long enough on an otherwise idle machine."""

"""A server that answers as the metadata services of AWS and Google Cloud do, according to their manuals."""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[ClusterSite]:
    """Yield a cluster of three hosts with one processor each; the first is the head."""
    cluster = ClusterSite(tmp_path, "spot")
    for number in (1, 2, 3):
        cluster.join(number)
    yield cluster
    cluster.end()


def watch(site: ClusterSite, number: int, cloud: str) -> Path:
    """Start cluster/spot.sh on a host; return the file that a test creates to give the cloud's notice."""
    notice, host = site.folder / f"notice-{cloud}", site.hosts[number]
    address = ["ip", "address", "add", "169.254.169.254/32", "dev", "lo"]
    assert finish(host.run(address))[0] == 0
    host.run([sys.executable, "-m", "tests.programs.spot_metadata", cloud, str(notice)], quiet=True)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    script = ["sh", str(ROOT / "cluster" / "spot.sh")]
    host.run(script, quiet=True, **{**site.environment, "PATH": path})
    return notice


def running_on(site: ClusterSite, number: int) -> list[str]:
    """Return the trials whose current attempt runs on a host and has reported."""
    reported = {report.attempt_id for report in site.ledger.reports(site.id)}
    on_host = [key for key, host in site.places().items() if host == f"host-{number}"]
    attempts = {trial.key: f"{trial.key}.{trial.attempts}" for trial in site.trials()}
    return [key for key in on_host if attempts[key] in reported]


def reported_elsewhere(site: ClusterSite, key: str, number: int) -> bool:
    """Return True if a trial has reported from another host."""
    return any(key in running_on(site, other) for other in site.hosts if other != number)


def test_trials_leave_a_machine_that_is_taken_away(site: ClusterSite) -> None:
    """After a notice of either cloud they are saved in time and uncharged, and repeat no step elsewhere."""
    site.write(trials=2, steps=5_000_000)
    driver = site.drive("--set", "training.interval=500")
    wait_for(lambda: site.reports() > 0 or driver.poll() is not None, seconds=400)
    for cloud in ("aws", "google"):
        wait_for(lambda: running_on(site, 2) + running_on(site, 3) != [], seconds=400)
        number = 2 if running_on(site, 2) else 3
        notice = watch(site, number, cloud)
        (key,) = running_on(site, number)
        before = {attempt.id for attempt in site.ledger.attempts(site.id)}
        notice.touch()
        wait_for(partial(reported_elsewhere, site, key, number), seconds=400)
        site.lose(number)
        attempts = site.ledger.attempts(site.id)
        ended = [attempt for attempt in attempts if attempt.id in before and attempt.cause]
        assert ended[-1].trial_key == key
        assert (ended[-1].ended_at or 0.0) - notice.stat().st_mtime < NOTICE_SECONDS * slowness()
        site.join(number)
    assert finish(site.start("stop", site.id))[0] == 0
    code, output = finish(driver)
    assert code == 4, output
    causes = Counter(attempt.cause for attempt in site.ledger.attempts(site.id) if attempt.cause)
    assert causes.keys() <= UNCHARGED, causes
    assert set(site.repeated().values()) == {0}
    assert site.check() == ""
