"""Metrics of the service, as Prometheus reads them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import insert

from orchestrator.client.answers import QueuedSweep
from orchestrator.ledger.tables import OUTBOX
from orchestrator.service.discovery import Rounds
from orchestrator.web.app_state import AppState
from orchestrator.web.metric_routes import queue_metrics
from orchestrator.web.server import Listening, answering
from tests import sweeps
from tests.orchestrator.ledger.examples import writer
from tests.orchestrator.web.server import QUEUED, Client

Samples = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


def _scraped(client: Client) -> Samples:
    answer = client.send("GET", "/metrics", "vera")
    assert answer.status == 200, answer.body
    assert answer.headers["content-type"].startswith("text/plain; version=")
    families = text_string_to_metric_families(answer.body.decode())
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def _value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, frozenset(labels.items())]


def test_a_scrape_shows_the_queue_and_the_states(reader: Client) -> None:
    samples = _scraped(reader)
    assert _value(samples, "sweep_queue_length") == 1
    assert _value(samples, "sweep_waiting_owners") == 1
    assert _value(samples, "sweep_sweeps", state="QUEUED") == 1
    assert _value(samples, "sweep_sweeps", state="PARKED") == 0
    assert _value(samples, "sweep_running_trials", owner="ada") == 0


def test_a_parked_sweep_is_counted(client: Client) -> None:
    with client.workspace.ledger() as ledger, ledger.writer() as connection:
        connection.exec_driver_sql(f"UPDATE submission SET state = 'PARKED' WHERE sweep_id = '{QUEUED}'")
        connection.commit()
    samples = _scraped(client)
    assert _value(samples, "sweep_sweeps", state="PARKED") == 1
    assert _value(samples, "sweep_queue_length") == 0


def test_the_lag_is_the_age_of_the_oldest_pending_record(client: Client) -> None:
    with client.workspace.ledger() as ledger:
        write = writer(ledger, sweeps.SWEEP_ID)
        write.record_mlflow_runs({trial.key: trial.key for trial in ledger.trials(sweeps.SWEEP_ID)})
        write.delivered(ledger.pending(sweeps.SWEEP_ID, 1000))
        assert ledger.backlog(sweeps.SWEEP_ID) == 0
    with client.workspace.ledger() as ledger, ledger.writer() as connection:
        row = {"sweep_id": sweeps.SWEEP_ID, "kind": "x", "run": "x", "payload": "{}", "row_digest": 0}
        for age in (500, 100):
            at_ms = round(1000 * (time.time() - age))
            connection.execute(insert(OUTBOX).values(**row, at_ms=at_ms, delivered=False))
        connection.commit()
    samples = _scraped(client)
    assert 499 < _value(samples, "sweep_mlflow_lag_seconds") < 600
    assert _value(samples, "sweep_mlflow_pending_records") == 2


def test_the_supervision_has_a_metric_if_it_runs_in_this_process(reader: Client) -> None:
    now = [0.0]
    with answering(AppState(reader.workspace, rounds=Rounds(lambda: now[0])), Listening(0)) as address:
        now[0] = 42.0
        scraped = _scraped(replace(reader, address=address))
    assert _value(scraped, "sweep_supervision_silent_seconds") == 42.0


def test_requests_are_counted_by_route(client: Client) -> None:
    for _ in range(3):
        client.get("/me")
    client.send("GET", "/api/v1/me")
    samples = _scraped(client)
    assert _value(samples, "sweep_http_request_seconds_count", route="me", status="2xx") == 3
    assert _value(samples, "sweep_http_request_seconds_count", route="me", status="4xx") == 1


def test_a_request_without_a_route_adds_no_time_series(client: Client) -> None:
    for number in range(5):
        client.send("GET", f"/no-such-page-{number}")
    samples = _scraped(client)
    assert _value(samples, "sweep_http_request_seconds_count", route="unknown", status="4xx") == 5
    assert "no-such-page" not in client.send("GET", "/metrics", "vera").body.decode()


def test_a_stranger_reads_no_metrics(reader: Client) -> None:
    answer = reader.send("GET", "/metrics")
    assert answer.status == 401
    assert b"sweep_queue_length" not in answer.body


def test_shares_and_shortages_are_sums_over_an_owner_s_sweeps() -> None:
    def entry(
        owner: str, share: int, running: int, pool: str | None = "p", position: int | None = None
    ) -> QueuedSweep:
        return QueuedSweep("s", owner, "normal", pool, position, share, running, 8, None, None)

    queue = [
        entry("ada", 4, 3),
        entry("ada", 2, 3),
        entry("bob", 2, 0, position=1),
        entry("eve", 9, 0, pool=None, position=2),
    ]
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in queue_metrics(queue)
        for sample in family.samples
    }
    assert found["sweep_queue_length",] == 2
    assert found["sweep_waiting_owners",] == 2
    assert found["sweep_running_trials", "ada"] == 6
    assert (found["sweep_share_trials", "ada"], found["sweep_shortage_trials", "ada"]) == (6, 1)
    assert found["sweep_shortage_trials", "bob"] == 2
    assert found["sweep_share_trials", "eve"] == 0, "its sweep has no driver, so its share is a forecast"
