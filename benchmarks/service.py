"""Starts the service without its command line, for benchmarks whose trials train nothing."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from orchestrator.sharing.pool_rows import RULES, PoolClaim, Rules
from tests.orchestrator.ledger.examples import create_sweep

if TYPE_CHECKING:
    from orchestrator.config.sweep_config import SweepConfig
    from orchestrator.ledger.ledger import Ledger
    from orchestrator.schedule.shares import ClusterShare
    from orchestrator.session.session import Session
    from orchestrator.tracking.shipper import Shipper


class Service(NamedTuple):
    """A running sweep: its ledger, its session, its share of the cluster, and the shipper to MLflow."""

    sweep: SweepConfig
    ledger: Ledger
    session: Session
    share: ClusterShare
    shipper: Shipper


def begin(
    text: str, folder: Path, *, name: str = "space", owner: str = "benchmark", rules: Rules = RULES
) -> Service:
    """Begin a sweep in a new folder; `orchestrator.schedule.environment.prepare` must have run.

    Args:
        text: Content of the search-space file.
        folder: Folder for all files of the sweep; sweeps in one folder share a ledger.
        name: Name of the file.
        owner: Owner of the sweep.
        rules: Rules by which sweeps share the cluster.
    """
    from orchestrator.config import load
    from orchestrator.ledger.ledger import Ledger
    from orchestrator.ledger.sweeps.lease import Lease
    from orchestrator.ledger.sweeps.records import SweepRecord
    from orchestrator.schedule.resources import AvailableResources
    from orchestrator.schedule.shares import ClusterShare
    from orchestrator.session.session import Session
    from orchestrator.storage.paths import Paths
    from orchestrator.study.study import Study
    from orchestrator.tracking import events
    from orchestrator.tracking.shipper import Shipper

    file = folder / f"{name}.yaml"
    file.write_text(text)
    sweep, paths = load(file, profile=None, gpus=0), Paths(folder / "mlruns")
    paths.create()
    ledger = Ledger.open(paths.ledger_url)
    about = (sweep.id, sweep.name, None, sweep.task, sweep.document(), sweep.digest)
    record = SweepRecord(*about, "RUNNING", None, "none", "", {}, time.time())
    create_sweep(ledger, record, events=[events.sweep_started(record, sweep)])
    lease = Lease(ledger, sweep.id).__enter__()  # until the process ends
    resources = AvailableResources(sweep.resources.cpu, sweep.resources.gpu)
    study = Study(sweep)
    claim = PoolClaim.of(sweep.id, owner, record.created_at, sweep.resources.cpu, sweep.resources.gpu)
    share = ClusterShare(lease.writer, resources, claim, rules=rules)
    session = Session(
        sweep,
        lease.writer,
        study,
        paths,
        folder,
        resources=resources,
        share=share,
        node_wait=10.0,
        busy_wait=10.0,
    )
    shipper = Shipper(lease, paths.tracking_uri, paths.artifacts)
    shipper.start()
    return Service(sweep, ledger, session, share, shipper)
