"""Submissions, stops, priorities and quotas over HTTP, and their rows in the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import select

from orchestrator.api import serving
from orchestrator.api.local_sweep import Sweep
from orchestrator.errors import Busy
from orchestrator.ledger.people import idempotency
from orchestrator.ledger.people.idempotency import RequestKey
from orchestrator.ledger.pool import claims
from orchestrator.ledger.queue import submissions
from orchestrator.ledger.queue.queue_settings import ask_to_stop, asked_to_stop
from orchestrator.ledger.queue.submissions import Submission
from orchestrator.ledger.tables import (
    AUDIT,
    NOTE,
    OWNER,
    PRIORITY,
    REQUEST_KEY,
    SERVICE_USER,
    SHELF,
    STOP_REQUEST,
    SUBMISSION,
    TRIAL_REQUEST,
    WANTED_SETTING,
)
from orchestrator.web.app_state import SUBMISSIONS_A_MINUTE, AppState
from orchestrator.web.change_routes import Submit, digest_of
from orchestrator.web.rate_limits import RateLimit
from orchestrator.web.server import Listening, answering
from tests import sweeps
from tests.orchestrator.ledger.examples import writer
from tests.orchestrator.web.routes import ROUTES
from tests.orchestrator.web.server import FILE, QUEUED, Answer, Client, served


def submit(client: Client, user: str = "ada", key: str | None = None, **body: object) -> Answer:
    headers = {} if key is None else {"Idempotency-Key": key}
    given = {"name": "small", "text": FILE, **body}
    return client.send("POST", "/api/v1/sweeps", user, body=given, headers=headers)


def submission(client: Client, sweep_id: str) -> Submission:
    with client.workspace.ledger() as ledger:
        entry = submissions.submission(ledger, sweep_id)
    assert entry is not None
    return entry


def change_row(client: Client, statement: str) -> None:
    with client.workspace.ledger() as ledger, ledger.writer() as connection:
        connection.exec_driver_sql(statement)
        connection.commit()


def rows(client: Client) -> dict[str, list[tuple[object, ...]]]:
    """Return all rows of the tables that users change."""
    requests = (STOP_REQUEST, WANTED_SETTING, TRIAL_REQUEST, SHELF)
    tables = (SUBMISSION, *requests, NOTE, PRIORITY, OWNER, SERVICE_USER, AUDIT)
    with client.workspace.ledger() as ledger, ledger.reader() as connection:
        return {table.name: [tuple(row) for row in connection.execute(select(table))] for table in tables}


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


def test_a_key_gives_the_first_answer_again_and_belongs_to_its_user(client: Client) -> None:
    first, again = submit(client, key="k", new=True), submit(client, key="k", new=True)
    assert first.document["added"]
    assert (again.status, again.document) == (first.status, first.document)
    refused = submit(client, key="k", text=FILE.replace("steps: 20", "steps: 30"))
    assert (refused.status, refused.document["where"]) == (422, "Idempotency-Key")
    assert submit(client, key="k", new=False).status == 422, "every key of the body counts"
    assert submit(client, "bob", key="k", new=True).document["id"] != first.document["id"]
    assert submit(client, key="l", new=True).document["id"] != first.document["id"]


@pytest.mark.parametrize(
    ("action", "body", "other"), [("extend", {"trials": 9}, {"trials": 10}), ("retry", None, None)]
)
def test_a_key_extends_or_retries_once(client: Client, action: str, body: object, other: object) -> None:
    """The second request finds the sweep QUEUED, and would be a conflict without its key."""
    path, headers = f"/api/v1/sweeps/{sweeps.SWEEP_ID}/{action}", {"Idempotency-Key": "k"}
    first = client.send("POST", path, "ada", body=body, headers=headers)
    assert first.status == 202, first.body
    entry = submission(client, sweeps.SWEEP_ID)
    again = client.send("POST", path, "ada", body=body, headers=headers)
    assert (again.status, again.document) == (202, first.document)
    assert submission(client, sweeps.SWEEP_ID) == entry
    assert client.send("POST", path, "ada", body=body).status == 409
    if other is not None:
        assert client.send("POST", path, "ada", body=other, headers=headers).status == 422
    elsewhere = client.send("POST", f"/api/v1/sweeps/{QUEUED}/{action}", "ada", body=body, headers=headers)
    assert (elsewhere.status, elsewhere.document["where"]) == (422, "Idempotency-Key")
    assert submit(client, key="k").status == 422, "a key is that of one request"
    entries = client.get("/audit", "grace")["audit"]
    assert sum(entry["action"] == action for entry in entries) == 1


def test_a_refused_extension_uses_up_no_key(client: Client) -> None:
    headers = {"Idempotency-Key": "k"}
    refused = client.send(
        "POST", f"/api/v1/sweeps/{QUEUED}/extend", "ada", body={"trials": 9}, headers=headers
    )
    assert refused.status == 409
    path = f"/api/v1/sweeps/{sweeps.SWEEP_ID}/extend"
    assert client.send("POST", path, "ada", body={"trials": 9}, headers=headers).status == 202


@pytest.mark.slow
def test_a_submission_withdraws_no_request_to_stop(client: Client) -> None:
    first = submit(client).document["id"]
    with client.workspace.ledger() as ledger:
        ask_to_stop(ledger, first)
        refused = submit(client)
        assert refused.status == 409
        assert refused.document["must"].startswith("has a pending stop request from ")
        assert "resume" in refused.document["remedy"]
        assert asked_to_stop(ledger, first) is not None


def test_a_quota_of_somebody_whom_nothing_knows_is_refused(client: Client) -> None:
    refused = client.send("PATCH", "/api/v1/quotas/adda", "grace", body={"weight": 2})
    assert refused.status == 404
    assert "Did you mean ada?" in refused.document["remedy"]
    assert client.send("GET", "/api/v1/quotas/adda", "vera").status == 404
    body = {"weight": 2, "new": True}
    assert client.send("PATCH", "/api/v1/quotas/adda", "grace", body=body).status == 200
    assert client.get("/quotas/adda")["weight"] == 2.0
    assert client.get("/quotas/vera")["share"] == 1.0, "a user without a sweep"


@pytest.mark.slow
def test_a_key_in_work_is_a_conflict_until_its_process_is_taken_as_lost(client: Client) -> None:
    digest = digest_of("submit", Submit(name="small", text=FILE))
    with client.workspace.ledger() as ledger:
        begun = idempotency.begin(ledger, "ada", "k", digest)
    assert isinstance(begun, RequestKey)
    refused = submit(client, key="k")
    assert (refused.status, refused.document["where"]) == (409, "Idempotency-Key")
    change_row(client, f"UPDATE request_key SET at = at - {idempotency.IN_WORK_SECONDS + 1}")
    assert submit(client, key="k").status == 202
    with (
        client.workspace.ledger() as ledger,
        ledger.writer() as connection,
        pytest.raises(Busy, match="Idempotency-Key has expired"),
    ):
        idempotency.complete(connection, begun, {})


@pytest.mark.slow
def test_a_refusal_uses_up_no_key(client: Client) -> None:
    assert submit(client, key="k", text="task: nothing\n").status == 422
    assert submit(client, key="k").status == 202


@pytest.mark.slow
def test_a_key_is_forgotten_after_a_day(client: Client) -> None:
    first = submit(client, key="k", new=True)
    change_row(client, f"UPDATE request_key SET at = at - {idempotency.KEPT_SECONDS + 1}")
    assert submit(client, key="k", text=FILE.replace("steps: 20", "steps: 30")).status == 202
    assert submit(client, key="other").status == 202
    with client.workspace.ledger() as ledger, ledger.reader() as connection:
        keys = connection.execute(select(REQUEST_KEY.c.key)).scalars().all()
    assert sorted(keys) == ["k", "other"]
    assert submission(client, first.document["id"]).state == "QUEUED"


CHANGES: Mapping[str, tuple[str, str, object]] = {
    "submit": ("POST", "/sweeps", {"name": "small", "text": FILE}),
    "stop": ("POST", f"/sweeps/{QUEUED}/stop", None),
    "stop_trial": ("POST", "/sweeps/{unfinished}/trials/8/stop", None),
    "resume_trial": ("POST", "/sweeps/{unfinished}/trials/8/resume", None),
    "try_setting": ("POST", f"/sweeps/{QUEUED}/try", {"params": {"learning_rate": 1e-3}}),
    "shelve": ("PUT", f"/sweeps/{sweeps.SWEEP_ID}/shelf", {"shelf": "archived"}),
    "note_sweep": ("PATCH", f"/sweeps/{QUEUED}/note", {"text": "A *baseline*", "add": ["paper"]}),
    "note_trial": ("PATCH", f"/sweeps/{sweeps.SWEEP_ID}/trials/0/note", {"favourite": True}),
    "extend": ("POST", "/sweeps/{ended}/extend", {"trials": 9}),
    "retry": ("POST", "/sweeps/{ended}/retry", None),
    "resume": ("POST", "/sweeps/{ended}/resume", None),
    "resume a parked sweep": ("POST", "/sweeps/{parked}/resume", None),
    "set_priority": ("PATCH", f"/sweeps/{QUEUED}", {"priority_class": "idle"}),
    "set_quota": ("PATCH", "/quotas/ada", {"weight": 2}),
    "add_user": ("POST", "/users", {"name": "eve"}),
    "revoke_user": ("DELETE", "/users/vera", None),
}
"""One request that each route that changes the ledger grants to an admin."""

UNRECORDED = {
    *("validate", "sign_in", "sign_out", "show_cost", "agent_tools"),
    *("add_notice", "remove_notice"),  # of the caller, in a file of the service
    "issue_token",  # tested with the provider of single sign-on
}
"""Routes with other methods than GET that make no entry here."""


def test_every_route_that_changes_something_is_tested_for_its_audit_entry() -> None:
    changing = {route.name for route in ROUTES if route.methods != {"GET"}}
    assert changing == {name.split()[0] for name in CHANGES} | UNRECORDED


@pytest.mark.slow_after(3)
@pytest.mark.parametrize("name", CHANGES)
def test_no_change_without_its_audit_entry_and_no_entry_without_its_change(client: Client, name: str) -> None:
    """A failure while the entry is written undoes the change; the next request makes both."""
    method, path, body = CHANGES[name]
    if "{unfinished}" in path:
        with client.workspace.ledger() as ledger:
            driver = sweeps.writer_of(ledger)
            driver.reopen("it continues")
            sweeps.start_trial(driver, sweeps.trial(8, "PRUNED"), client.workspace.paths.root / "saved")
        path = path.format(unfinished=sweeps.SWEEP_ID)
    elif "{" in path:
        ended = submit(client, "grace", text=FILE.replace("steps: 20", "steps: 40")).document["id"]
        state = "PARKED" if "{parked}" in path else "ENDED"
        change_row(client, f"UPDATE submission SET state = '{state}' WHERE sweep_id = '{ended}'")
        if name == "resume":
            with client.workspace.ledger() as ledger:
                ask_to_stop(ledger, ended)
        path = path.format(ended=ended, parked=ended)
    path = f"/api/v1{path}"
    before = rows(client)
    change_row(
        client, "CREATE TRIGGER refuse BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'no entry'); END"
    )
    assert client.send(method, path, "grace", body=body).status == 500
    assert rows(client) == before
    change_row(client, "DROP TRIGGER refuse")
    answer = client.send(method, path, "grace", body=body)
    assert answer.status in {200, 201, 202}, answer.body
    after = rows(client)
    assert len(after.pop("audit")) == len(before.pop("audit")) + 1
    assert after != before


@pytest.mark.slow
def test_a_refused_change_leaves_no_entry(client: Client) -> None:
    before = rows(client)
    assert client.send("POST", f"/api/v1/sweeps/{QUEUED}/retry", "ada").status == 409
    assert submit(client, text="task: nothing\n").status == 422
    assert rows(client) == before


def test_a_member_does_not_take_over_the_sweep_of_another(client: Client) -> None:
    first = submit(client)
    refused = submit(client, "bob")
    assert refused.status == 422
    assert refused.document["must"] == "belongs to ada"
    assert submission(client, first.document["id"]).owner == "ada"


@pytest.mark.slow_after(1)
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
def test_what_a_submission_may_not_ask_for(reader: Client, body: dict[str, object], where: str) -> None:
    answer = submit(reader, **body)
    assert answer.status == 422, answer.body
    assert where in answer.document["where"]


@pytest.mark.slow
def test_submissions_are_limited(client: Client) -> None:
    """Submissions and retries share one token bucket, which is refilled by the clock of the server."""
    now = [0.0]
    site = AppState(client.workspace, submissions=RateLimit(SUBMISSIONS_A_MINUTE, lambda: now[0]))
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
    assert (answer.status, answer.document) == (202, {"id": QUEUED, "driver": None, "trial": None})
    with client.workspace.ledger() as ledger:
        assert asked_to_stop(ledger, QUEUED) is not None


def test_a_sweep_that_waits_is_neither_extended_nor_resumed(client: Client) -> None:
    body = {"trials": 5}
    assert client.send("POST", f"/api/v1/sweeps/{QUEUED}/resume", "ada").status == 409
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


def test_a_complete_sweep_whose_driver_has_not_left_is_not_to_be_stopped(client: Client) -> None:
    change_row(client, f"UPDATE submission SET state = 'STARTED' WHERE sweep_id = '{sweeps.SWEEP_ID}'")
    with client.workspace.ledger() as ledger:
        sweeps.writer_of(ledger).set_sweep_state("COMPLETE", None)
    for action, body in (("extend", {"trials": 9}), ("retry", None)):
        answer = client.send("POST", f"/api/v1/sweeps/{sweeps.SWEEP_ID}/{action}", "ada", body=body)
        assert answer.status == 409, action
        assert answer.document["must"] == "is still shutting down"
        assert answer.document["remedy"] == "Try again in a minute."
    before = rows(client)
    answer = client.send("POST", f"/api/v1/sweeps/{sweeps.SWEEP_ID}/stop", "ada")
    assert answer.status == 409
    assert answer.document["must"] == "must not have finished to be stopped"
    assert (answer.document["got"], answer.document["remedy"]) == ("COMPLETE", "Extend it to continue.")
    assert rows(client) == before


@pytest.mark.parametrize("state", ["QUEUED", "STARTED"])
def test_a_complete_sweep_that_was_extended_is_stopped_before_it_continues(
    client: Client, state: str
) -> None:
    """Its driver, if any, has not reopened it."""
    with client.workspace.ledger() as ledger:
        sweeps.writer_of(ledger).set_sweep_state("COMPLETE", None)
        record = ledger.sweep(sweeps.SWEEP_ID)
    assert record is not None
    change = f"state = '{state}', finished_before = {record.finished_at!r}"
    change_row(client, f"UPDATE submission SET {change} WHERE sweep_id = '{sweeps.SWEEP_ID}'")
    answer = client.send("POST", f"/api/v1/sweeps/{sweeps.SWEEP_ID}/stop", "ada")
    assert answer.status == 202
    with client.workspace.ledger() as ledger:
        assert asked_to_stop(ledger, sweeps.SWEEP_ID) is not None


def test_a_stale_revision_changes_nothing(client: Client) -> None:
    path = f"/api/v1/sweeps/{QUEUED}"

    def patch(body: object, **headers: str) -> Answer:
        return client.send("PATCH", path, "ada", body=body, headers=headers)

    read = client.get(f"/sweeps/{QUEUED}")["revision"]
    first = patch({"weight": 2}, **{"If-Match": f'"{read}"'})
    assert (first.status, first.headers["etag"]) == (200, f'"{first.document["revision"]}"')
    assert first.document == {
        "id": QUEUED,
        "priority_class": "normal",
        "weight": 2.0,
        "paused": False,
        "revision": client.get(f"/sweeps/{QUEUED}")["revision"],
    }
    before = rows(client)
    stale = patch({"priority_class": "idle"}, **{"If-Match": f'"{read}"'})
    assert (stale.status, stale.document["where"]) == (412, QUEUED)
    assert rows(client) == before
    last = patch({"priority_class": "idle"}, **{"If-Match": first.headers["etag"]})
    assert (last.status, last.document["weight"]) == (200, 2.0), "what is not named stays"
    assert patch({"weight": 1}, **{"If-Match": "*"}).status == 200
    assert patch({"weight": 1}).status == 200


def test_a_sweep_is_stopped_and_resumed(client: Client) -> None:
    path = f"/api/v1/sweeps/{QUEUED}"

    def stop(user: str = "ada") -> int:
        return client.send("POST", f"{path}/stop", user).status

    running = client.send("POST", f"{path}/resume", "ada")
    assert (running.status, running.document["where"]) == (409, QUEUED)
    read = client.get(f"/sweeps/{QUEUED}")["revision"]
    weighed = client.send("PATCH", path, "ada", body={"weight": 2}, headers={"If-Match": f'"{read}"'})
    assert (weighed.status, weighed.document["paused"], weighed.document["weight"]) == (200, False, 2.0)
    assert stop() == 202
    stopped = client.get(f"/sweeps/{QUEUED}")
    assert stopped["paused"]
    stale = client.send("PATCH", path, "ada", body={"weight": 3}, headers={"If-Match": f'"{read}"'})
    assert stale.status == 412
    change_row(client, f"UPDATE submission SET state = 'ENDED', tries = 3 WHERE sweep_id = '{QUEUED}'")
    assert stop() == 409, "it has stopped"
    assert client.get(f"/sweeps/{QUEUED}")["revision"] == stopped["revision"]
    resumed = client.send("POST", f"{path}/resume", "ada")
    assert (resumed.status, resumed.document["paused"], resumed.document["weight"]) == (202, False, 2.0)
    assert not client.get(f"/sweeps/{QUEUED}")["paused"]
    entry = submission(client, QUEUED)
    assert (entry.state, entry.tries) == ("QUEUED", 0)
    assert stop("grace") == 202
    assert client.send("POST", f"{path}/resume", "grace").document == resumed.document
    audit = client.get("/audit", "grace")["audit"]
    assert [(entry["actor"], entry["action"]) for entry in audit[:2]] == [
        ("grace", "resume"),
        ("grace", "stop"),
    ]


def test_the_request_body_of_a_priority_has_no_state(client: Client) -> None:
    refused = client.send("PATCH", f"/api/v1/sweeps/{QUEUED}", "ada", body={"paused": True})
    assert (refused.status, refused.document["where"]) == (422, "body.paused")


def test_a_sweep_that_has_ended_is_not_resumed(client: Client) -> None:
    path = f"/api/v1/sweeps/{sweeps.SWEEP_ID}"
    with client.workspace.ledger() as ledger:
        writer(ledger, sweeps.SWEEP_ID).set_sweep_state("COMPLETE")
        ask_to_stop(ledger, sweeps.SWEEP_ID)
    before = rows(client)
    refused = client.send("POST", f"{path}/resume", "ada")
    assert (refused.status, refused.document["got"]) == (409, "COMPLETE")
    assert rows(client) == before


OWN_CODE = """\
trainable: {function: train.py:train}
search: {rate: {uniform: [0, 1]}}
objective: {minimize: loss}
sampler: {random: {seed: 0}}
scheduler: none
training: {steps: 10, interval: 5}
budget: {trials: 2}
resources: {cpu: 1}
"""


@pytest.mark.parametrize("plugins", [False, True])
def test_the_code_of_another_package_is_not_resumed(tmp_path: Path, plugins: bool) -> None:
    """The sweep was submitted in a shell; over HTTP, its code would run as the service.

    Plugins are names of packages that an admin has installed, not the code of users.
    """
    (tmp_path / "train.py").write_text("def train(trial): pass\n")
    file = tmp_path / "own.yaml"
    file.write_text(OWN_CODE)
    requests: tuple[tuple[str, str, object], ...] = (
        ("POST", "/resume", None),
        ("POST", "/extend", {"trials": 9}),
        ("POST", "/retry", None),
    )
    with served(tmp_path / "mlruns", plugins=plugins) as client:
        root, data = client.workspace.paths.root, client.workspace.data
        entry, _ = serving.submit(Sweep.load(file, root=root, data=data), owner="ada")
        with client.workspace.ledger() as ledger:
            ask_to_stop(ledger, entry.sweep_id)
        before = rows(client)
        answers = [
            client.send(method, f"/api/v1/sweeps/{entry.sweep_id}{path}", "ada", body=body)
            for method, path, body in requests
        ]
        refused = [(answer.status, answer.document.get("where")) for answer in answers]
        assert refused == [(403, "trainable")] * len(requests)
        assert rows(client) == before


def test_only_an_admin_grants_urgency(client: Client) -> None:
    path = f"/api/v1/sweeps/{QUEUED}"
    assert client.send("PATCH", path, "ada", body={"priority_class": "urgent"}).status == 403
    assert client.send("PATCH", path, "ada", body={"priority_class": "idle", "weight": 2}).status == 200
    with client.workspace.ledger() as ledger:
        assert claims.priority_classes(ledger) == {QUEUED: "idle"}
    assert client.send("PATCH", path, "grace", body={"priority_class": "urgent"}).status == 200


@pytest.mark.slow
def test_a_submission_over_the_quota_of_sweeps_is_a_conflict(client: Client) -> None:
    body = {"sweeps": 1}
    assert client.send("PATCH", "/api/v1/quotas/ada", "grace", body=body).status == 200
    refused = submit(client, key="k", new=True)
    assert (refused.status, refused.document["where"]) == (409, "owner ada")
    assert refused.document["must"] == "may have at most 1 sweep that waits or runs"
    assert client.send("PATCH", "/api/v1/quotas/ada", "grace", body={"sweeps": 2}).status == 200
    assert submit(client, key="k", new=True).status == 202, "a refusal uses up no key"


def test_an_admin_sets_quotas(client: Client) -> None:
    body = {"share": 0.5, "gpu_hours": 100.0, "sweeps": 3}
    assert client.send("PATCH", "/api/v1/quotas/ada", "grace", body=body).status == 200
    [row] = client.get("/quotas")["quotas"]
    assert (row["owner"], row["share"], row["gpu_hours"], row["sweeps"]) == ("ada", 0.5, 100.0, 3)
    assert client.send("PATCH", "/api/v1/quotas/ada", "grace", body={"sweeps": 1.5}).status == 422
    assert client.send("PATCH", "/api/v1/quotas/ada", "grace", body={"share": 2}).status == 422
