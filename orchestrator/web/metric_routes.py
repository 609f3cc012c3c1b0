"""Route of the metrics of the service, in Prometheus' format.

A scrape reads the ledger no more than the page does: its answers are at most a second old.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Request, Response
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from orchestrator.client.answers import QueuedSweep
from orchestrator.client.statuses import Status
from orchestrator.ledger.pool import claims
from orchestrator.ledger.sweeps.index import oldest_pending
from orchestrator.web.app_state import App, AppState
from orchestrator.web.page_routes import STATES
from orchestrator.web.sweep_routes import all_queued, all_sweeps

ROUTER = APIRouter(include_in_schema=False)


@dataclass(frozen=True)
class Lags:
    """Ages of what should be recent, in seconds.

    Attributes:
        claims: Time since the last renewal of the claim of each sweep that a driver runs, by ID.
        delivery: Age of the oldest record that is not in MLflow yet; 0 if all are.
    """

    claims: Mapping[str, float]
    delivery: float


@ROUTER.get("/metrics")
def metrics(app: App, request: Request) -> Response:
    """Show the metrics of the service, for Prometheus."""
    encode, media_type = choose_encoder(request.headers.get("accept", ""))
    sweeps = all_sweeps(app)
    families = [*queue_metrics(all_queued(app)), *sweep_metrics(sweeps), *lag_metrics(_lags(app, sweeps))]
    if app.rounds is not None:
        text = "Time since the supervision has completed a round."
        families.append(_gauge("sweep_supervision_silent_seconds", text, app.rounds.silent_seconds))
    return Response(encode(Exposed([*families, *app.times.registry.collect()])), media_type=media_type)


@dataclass(frozen=True)
class Exposed:
    """The metrics of one scrape, which the encoders of prometheus_client take in place of a registry."""

    families: Sequence[Metric]

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        yield from self.families


def queue_metrics(queue: Sequence[QueuedSweep]) -> Iterator[Metric]:
    """Yield the metrics of the queue, in total and by owner."""
    waiting = [entry for entry in queue if entry.position is not None]
    running, share, shortage = Counter[str](), Counter[str](), Counter[str]()
    for entry in queue:
        running[entry.owner] += entry.running
        share[entry.owner] += entry.share if entry.pool is not None else 0
        shortage[entry.owner] += max(0, entry.share - entry.running) if entry.pool is not None else 0
    idle = {entry.owner for entry in waiting if not running[entry.owner]}
    yield _gauge("sweep_queue_length", "Sweeps without a running trial that wait for one.", len(waiting))
    yield _gauge("sweep_waiting_owners", "Owners of waiting sweeps who have no running trial.", len(idle))
    yield _by("owner", "sweep_running_trials", "Trials that run or start, by owner.", running)
    yield _by("owner", "sweep_share_trials", "Trials that the shares of an owner allow.", share)
    yield _by("owner", "sweep_shortage_trials", "Trials that an owner lacks to the shares.", shortage)


def sweep_metrics(sweeps: Sequence[Status]) -> Iterator[Metric]:
    """Yield the number of sweeps by state, parked ones included, and of their pending records."""
    states = Counter(dict.fromkeys(STATES, 0))
    states.update(sweep.state for sweep in sweeps)
    pending = sum(sweep.waiting_for_mlflow for sweep in sweeps)
    yield _by("state", "sweep_sweeps", "Sweeps of the ledger, by state.", states)
    yield _gauge("sweep_mlflow_pending_records", "Records that are not in MLflow yet.", pending)


def lag_metrics(lags: Lags) -> Iterator[Metric]:
    """Yield the ages of claims and pending records."""
    text = "Time since the driver of a sweep has renewed its claim, which it does every second."
    yield _by("sweep", "sweep_claim_age_seconds", text, lags.claims)
    yield _gauge("sweep_mlflow_lag_seconds", "Age of the oldest record that is not in MLflow.", lags.delivery)


def _lags(app: AppState, sweeps: Sequence[Status]) -> Lags:
    pending = [sweep.id for sweep in sweeps if sweep.waiting_for_mlflow]

    def read() -> Lags:
        with app.ledger() as ledger:
            ages = {
                sweep: max(0.0, view.now - use.renewed_at)
                for view in claims.pools(ledger).values()
                for sweep, use in view.uses.items()
            }
            since = oldest_pending(ledger, pending)
            return Lags(ages, 0.0 if since is None else max(0.0, time.time() - since))

    return app.cache.get("lags", read)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _by(label: str, name: str, text: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=(label,))
    for key, value in values.items():
        family.add_metric((key,), value)
    return family
