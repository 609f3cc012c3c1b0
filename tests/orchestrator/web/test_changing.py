"""Submissions, stops, priorities and quotas over HTTP, and what each leaves in the ledger."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.ledger import claims, submissions
from orchestrator.ledger.stop_requests import asked_to_stop
from orchestrator.ledger.submissions import Submission
from orchestrator.web.limits import RateLimit
from orchestrator.web.server import Listening, answering
from orchestrator.web.site import SUBMISSIONS_A_MINUTE, Site
from tests.orchestrator.web.server import FILE, QUEUED, Answer, Client


def submit(client: Client, user: str = "ada", key: str | None = None, **body: object) -> Answer:
    headers = {} if key is None else {"Idempotency-Key": key}
    given = {"name": "small", "text": FILE, **body}
    return client.send("POST", "/api/v1/sweeps", user, body=given, headers=headers)


def submission(client: Client, sweep_id: str) -> Submission:
    with client.workspace.ledger() as ledger:
        entry = submissions.submission(ledger, sweep_id)
    assert entry is not None
    return entry


def test_a_submission_is_a_row_of_the_ledger(client: Client) -> None:
    answer = submit(client)
    assert answer.status == 202, answer.body
    entry = submission(client, answer.document["id"])
    assert (entry.owner, entry.state, entry.text) == ("ada", "QUEUED", FILE)
    assert entry.options == {
        "data": str(client.workspace.data),
        "deadline": 600.0,
        "tracking_patience": entry.options["tracking_patience"],
        "wait": None,
    }
    assert client.get(f"/sweeps/{entry.sweep_id}")["state"] == "QUEUED"
    audit = client.get("/audit", "grace")["audit"]
    assert (audit[0]["actor"], audit[0]["action"], audit[0]["target"]) == ("ada", "submit", "small")


def test_a_key_submits_once_and_belongs_to_its_user(client: Client) -> None:
    first, again = submit(client, key="k", new=True), submit(client, key="k", new=True)
    assert first.document["added"]
    assert again.document == {**first.document, "added": False}
    assert submit(client, key="k", text=FILE.replace("steps: 20", "steps: 30")).status == 422
    assert submit(client, "bob", key="k", new=True).document["id"] != first.document["id"]


def test_a_member_does_not_take_over_the_sweep_of_another(client: Client) -> None:
    first = submit(client)
    refused = submit(client, "bob")
    assert refused.status == 422
    assert "one of ada" in refused.document["got"]
    assert submission(client, first.document["id"]).owner == "ada"


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({"text": "task: nothing\n"}, "small.yaml"),
        ({"text": "a: &a [*a]\n"}, "small.yaml"),
        ({"name": "../small"}, "body.name"),
        ({"root": "/tmp"}, "body.root"),
        ({"data": "/etc"}, "body.data"),
        ({"notify": "http://127.0.0.1/"}, "body.notify"),
        ({"text": FILE + "notify: http://127.0.0.1/\n"}, "small.yaml"),
        ({"overrides": ["data.folder=/etc"]}, "folder"),
        ({"overrides": ["budget.trials=100001"]}, "budget.trials"),
    ],
)
def test_what_a_submission_may_not_ask_for(client: Client, body: dict[str, object], where: str) -> None:
    answer = submit(client, **body)
    assert answer.status == 422, answer.body
    assert where in answer.document["where"]


def test_submissions_are_limited(client: Client) -> None:
    """Submissions and retries share one allowance, which fills up with the clock of the site and no other."""
    now = [0.0]
    site = Site(client.workspace, submissions=RateLimit(SUBMISSIONS_A_MINUTE, lambda: now[0]))
    with answering(site, Listening(0)) as address:
        limited = replace(client, address=address)

        def retry() -> int:
            return limited.send("POST", f"/api/v1/sweeps/{QUEUED}/retry", "ada").status

        assert submit(limited, text="task: nothing\n").status == 422
        assert [retry() for _ in range(SUBMISSIONS_A_MINUTE)] == [409] * (SUBMISSIONS_A_MINUTE - 1) + [429]
        assert submit(limited, text="task: nothing\n").status == 429
        assert submit(limited, "bob", text="task: nothing\n").status == 422, "everybody has their own"
        now[0] += 60.0 / SUBMISSIONS_A_MINUTE
        assert [retry(), retry()] == [409, 429]


def test_a_waiting_sweep_is_stopped(client: Client) -> None:
    answer = client.send("POST", f"/api/v1/sweeps/{QUEUED}/stop", "ada")
    assert (answer.status, answer.document) == (202, {"id": QUEUED, "driver": None})
    with client.workspace.ledger() as ledger:
        assert asked_to_stop(ledger, QUEUED) is not None


def test_a_sweep_that_waits_is_neither_extended_nor_released(client: Client) -> None:
    body = {"trials": 5}
    assert client.send("POST", f"/api/v1/sweeps/{QUEUED}/release", "ada").status == 409
    assert client.send("POST", f"/api/v1/sweeps/{QUEUED}/extend", "ada", body=body).status == 409


def test_failed_trials_are_retried_by_a_driver_of_the_service(client: Client) -> None:
    first = submit(client).document["id"]
    assert client.send("POST", f"/api/v1/sweeps/{first}/retry", "ada").status == 409, "it waits"
    with client.workspace.ledger() as ledger, ledger.writer() as connection:
        connection.exec_driver_sql(f"UPDATE submission SET state = 'ENDED' WHERE sweep_id = '{first}'")
        connection.commit()
    assert client.send("POST", f"/api/v1/sweeps/{first}/retry", "grace").status == 202
    entry = submission(client, first)
    assert (entry.state, entry.owner, entry.options["retry_failed"]) == ("QUEUED", "ada", True)


def test_an_ended_sweep_is_extended(client: Client) -> None:
    first = submit(client).document["id"]
    with client.workspace.ledger() as ledger, ledger.writer() as connection:
        connection.exec_driver_sql(f"UPDATE submission SET state = 'ENDED' WHERE sweep_id = '{first}'")
        connection.commit()
    answer = client.send("POST", f"/api/v1/sweeps/{first}/extend", "ada", body={"trials": 7})
    assert answer.status == 202, answer.body
    entry = submission(client, first)
    assert (entry.state, entry.document["budget"]["trials"]) == ("QUEUED", 7)


def test_only_an_admin_grants_urgency(client: Client) -> None:
    path = f"/api/v1/sweeps/{QUEUED}"
    assert client.send("PATCH", path, "ada", body={"priority_class": "urgent"}).status == 403
    assert client.send("PATCH", path, "ada", body={"priority_class": "idle", "weight": 2}).status == 200
    with client.workspace.ledger() as ledger:
        assert claims.priority_classes(ledger) == {QUEUED: "idle"}
    assert client.send("PATCH", path, "grace", body={"priority_class": "urgent"}).status == 200


def test_an_admin_sets_quotas(client: Client) -> None:
    body = {"share": 0.5, "gpu_hours": 100.0}
    assert client.send("PATCH", "/api/v1/quotas/ada", "grace", body=body).status == 200
    [row] = client.get("/quotas")["quotas"]
    assert (row["owner"], row["share"], row["gpu_hours"]) == ("ada", 0.5, 100.0)
    assert client.send("PATCH", "/api/v1/quotas/ada", "grace", body={"share": 2}).status == 422
