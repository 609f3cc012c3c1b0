"""Answers of the API about sweeps, trials, curves, logs, reports and the queue."""

from __future__ import annotations

import gzip
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from orchestrator.api.live import thinned
from orchestrator.api.local import log_part
from orchestrator.api.priorities import queue
from orchestrator.api.queue_order import UNSERVED
from orchestrator.ledger.sweeps.records import CurvePoint
from orchestrator.web.file_routes import tail_start
from tests import sweeps
from tests.orchestrator.web.server import FILE, QUEUED, Client

SWEEP = f"/sweeps/{sweeps.SWEEP_ID}"


def test_the_list_has_every_sweep_and_its_owner(reader: Client) -> None:
    listed = reader.get("/sweeps")
    assert listed["total"] == 2
    assert {(row["id"], row["state"], row["owner"]) for row in listed["sweeps"]} == {
        (sweeps.SWEEP_ID, "INTERRUPTED", "ada"),
        (QUEUED, "QUEUED", "ada"),
    }
    assert len(reader.get("/sweeps?limit=1&offset=1")["sweeps"]) == 1


def test_a_sweep_is_shown_with_its_progress_and_its_file(reader: Client) -> None:
    shown = reader.get(SWEEP)
    assert shown["progress"]["best_key"] == f"{sweeps.SWEEP_ID}-7"
    assert shown["failures"] == {"non-finite: val/accuracy is nan": 1}
    assert (shown["direction"], shown["submission"]) == ("maximize", "ENDED")
    assert shown["text"] == FILE
    assert reader.send("GET", f"/api/v1{SWEEP}/file", "vera").body.decode() == FILE
    waiting = reader.get(f"/sweeps/{QUEUED}")
    assert (waiting["state"], waiting["direction"], waiting["submission"]) == ("QUEUED", None, "QUEUED")


def test_trials_are_sorted_and_paged(reader: Client) -> None:
    page = reader.get(f"{SWEEP}/trials?sort=value&descending=true&limit=3&offset=1")
    values = [trial["value"] for trial in reader.get(f"{SWEEP}/trials?sort=value&descending=true")["trials"]]
    assert values[-1] is None, "a failed trial has no value"
    assert values[:-1] == sorted(values[:-1], reverse=True)
    assert [trial["value"] for trial in page["trials"]] == values[1:4]
    assert page["total"] == len(values)
    assert reader.send("GET", f"/api/v1{SWEEP}/trials?sort=seed", "vera").status == 422


def test_curves_are_of_the_best_trials_and_thinned(reader: Client) -> None:
    answer = reader.get(f"{SWEEP}/curves?trials=2&points=2")
    assert [curve["number"] for curve in answer["curves"]] == [7, 6]
    first, last = answer["curves"][0]["points"]
    assert (first[0], last[0]) == (sweeps.INTERVAL, sweeps.STEPS)
    assert reader.get(f"/sweeps/{QUEUED}/curves")["curves"] == []


def test_thinned_curves_keep_both_ends() -> None:
    points = [CurvePoint("a-0", step, {}, 0.0) for step in range(1000)]
    kept = thinned(points, 7)
    assert (len(kept), kept[0].step, kept[-1].step) == (7, 0, 999)
    assert thinned(points[:5], 7) == points[:5]


def test_logs_are_read_by_range(reader: Client) -> None:
    log = reader.workspace.paths.driver_log(QUEUED)
    empty = reader.get(f"/sweeps/{QUEUED}/log")
    assert (empty["start"], empty["end"], empty["size"], empty["text"]) == (0, 0, 0, "")
    assert empty["note"].startswith("QUEUED")
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("one\ntwo\n")
    part = reader.get(f"/sweeps/{QUEUED}/log?start=4&length=4")
    assert (part["start"], part["end"], part["size"], part["text"]) == (4, 8, 8, "two\n")
    assert not part["is_over"]
    assert reader.get(f"/sweeps/{QUEUED}/log")["text"] == "one\ntwo\n"
    assert reader.get(f"/sweeps/{QUEUED}/log?start=0&length=3")["text"] == "one"
    assert reader.get(f"/sweeps/{QUEUED}/log?start=99")["text"] == ""
    assert reader.send("GET", f"/api/v1{SWEEP}/trials/../log", "vera").status == 422
    trial_log = reader.workspace.paths.log(sweeps.SWEEP_ID, f"{sweeps.SWEEP_ID}-0")
    trial_log.parent.mkdir(parents=True, exist_ok=True)
    trial_log.write_text("step 1\n")
    assert reader.get(f"{SWEEP}/trials/0/log")["text"] == "step 1\n"
    assert reader.get(f"{SWEEP}/trials/0/log?length=2")["text"] == "1\n"
    assert reader.send("GET", f"/api/v1{SWEEP}/trials/1/log", "vera").status == 404


def test_the_analysis_has_the_time_and_the_norms_of_the_best_trial(reader: Client) -> None:
    found = reader.get(f"{SWEEP}/analysis")
    assert found["best"] == f"{sweeps.SWEEP_ID}-7"
    assert found["importances"] == [], "five complete and two pruned trials are too few"
    assert [found[name] for name in ("counted", "pruned", "fewest")] == [7, 2, 10]
    assert time.time() - 60 < found["as_of"] <= time.time()
    assert found["seconds"]["train"] == 3.0 * sum(trial.step // sweeps.INTERVAL for trial in sweeps.trials())
    assert [norm["metric"] for norm in found["norms"]] == [
        f"hidden_norm/{name}/layer_{layer}" for name in ("expected", "head", "state") for layer in (0, 1)
    ]
    assert [step for step, _ in found["norms"][0]["points"]] == [0, 40, 80, 120, 160, 200]
    assert reader.send("GET", f"/api/v1/sweeps/{QUEUED}/analysis", "vera").status == 422


def test_the_result_has_the_first_sentences_of_the_report(reader: Client) -> None:
    found = reader.get(f"{SWEEP}/result")
    assert found["answer"].startswith("Trial 7 reaches 0.6469 val/accuracy")
    assert "**" not in found["answer"]
    assert any("not AAN" in sentence for sentence in found["caveats"])
    assert found["test"]["test/accuracy"] == pytest.approx(0.6, abs=0.1)
    assert found["checkpoint"].endswith(f"{sweeps.SWEEP_ID}-7/step-{sweeps.STEPS:09}")
    assert reader.send("GET", f"/api/v1/sweeps/{QUEUED}/result", "vera").status == 422


def test_artifacts_are_the_files_of_the_report(reader: Client) -> None:
    reader.send("GET", f"/api/v1{SWEEP}/report", "vera")
    names = [entry["name"] for entry in reader.get(f"{SWEEP}/artifacts")["artifacts"]]
    assert {"report.html", "report.md", "leaderboard.csv"} <= set(names)
    assert b"key" in reader.send("GET", f"/api/v1{SWEEP}/artifacts/leaderboard.csv", "vera").body
    for name in ("..%2F..%2Fsweeps.db", "other.txt"):
        assert reader.send("GET", f"/api/v1{SWEEP}/artifacts/{name}", "vera").status == 404


def test_the_queue_is_that_of_the_python_api(reader: Client) -> None:
    [entry] = reader.get("/queue")["queue"]
    assert (entry["sweep"], entry["owner"], entry["why"]) == (QUEUED, "ada", UNSERVED)
    assert [entry] == [asdict(place) for place in queue(root=reader.workspace.paths.root)]


def test_a_trial_has_its_attempts_checkpoints_and_links(reader: Client) -> None:
    shown = reader.get(f"{SWEEP}/trials/3")
    [attempt] = shown["attempts"]
    assert (attempt["state"], attempt["cause"]) == ("FAILED", "non-finite: val/accuracy is nan")
    assert shown["trial"]["key"] == f"{sweeps.SWEEP_ID}-3"
    assert shown["mlflow"] == {"experiment": "retrieval", "run_id": None, "url": None}
    best = reader.get(f"{SWEEP}/trials/7")
    assert [saved["kind"] for saved in best["checkpoints"]] == ["best"]
    assert [row["split"] for row in best["evaluations"]] == ["test"]
    assert (best["reports"], best["last_report"]["step"]) == (5, sweeps.STEPS)
    for path in (f"{SWEEP}/trials/8", f"{SWEEP}/trials/0?role=confirmation"):
        answer = reader.send("GET", f"/api/v1{path}", "vera")
        assert (answer.status, answer.document["must"]) == (404, "is not the key of a trial")


def test_the_list_has_the_best_value_of_each_sweep_and_is_filtered_and_sorted(reader: Client) -> None:
    rows = {row["id"]: row for row in reader.get("/sweeps?sort=id&descending=false")["sweeps"]}
    assert list(rows) == sorted(rows)
    best = max(trial.value or 0.0 for trial in sweeps.trials() if trial.state == "COMPLETE")
    row = rows[sweeps.SWEEP_ID]
    assert (row["metric"], row["best_value"], row["best_trial"]) == (
        "val/accuracy",
        best,
        f"{sweeps.SWEEP_ID}-7",
    )
    assert rows[QUEUED]["best_value"] is None
    assert [row["id"] for row in reader.get("/sweeps?state=QUEUED")["sweeps"]] == [QUEUED]
    assert reader.get("/sweeps?owner=bob")["total"] == 0
    assert [row["id"] for row in reader.get("/sweeps?name=retr&sort=best_value")["sweeps"]] == [
        sweeps.SWEEP_ID
    ]


def test_pages_follow_their_cursors(reader: Client) -> None:
    seen, after = [], ""
    while after is not None:
        page = reader.get(f"{SWEEP}/trials?sort=value&descending=true&limit=3{after and f'&after={after}'}")
        seen += [trial["number"] for trial in page["trials"]]
        after = page["next"]
    whole = reader.get(f"{SWEEP}/trials?sort=value&descending=true")["trials"]
    assert seen == [trial["number"] for trial in whole]
    first = reader.get("/sweeps?limit=1")
    assert reader.get(f"/sweeps?limit=1&after={first['next']}")["sweeps"][0]["id"] != first["sweeps"][0]["id"]
    for wrong in ("x", "bnVsbA", first["next"]):
        assert reader.send("GET", f"/api/v1{SWEEP}/trials?after={wrong}", "vera").status == 422


def test_reports_are_read_in_the_order_of_their_times(reader: Client) -> None:
    expected = sorted(
        (report.at, report.trial_key, report.step)
        for trial in sweeps.trials()
        for report in sweeps.reports(trial)
    )
    seen, page = [], reader.get(f"{SWEEP}/reports?limit=7")
    while page["reports"]:
        seen += [(row["at"], row["trial"], row["step"]) for row in page["reports"]]
        page = reader.get(f"{SWEEP}/reports?limit=7&after={page['next']}")
    assert seen == expected
    assert reader.send("GET", f"/api/v1{SWEEP}/reports?after=WzEsMiwzXQ", "vera").status == 422


def test_curves_have_a_band_of_the_rest_and_a_choice_of_metrics(reader: Client) -> None:
    answer = reader.get(f"{SWEEP}/curves?trials=2")
    rest = [trial for trial in sweeps.trials() if trial.number not in (6, 7)]
    at_first = sorted(sweeps.accuracy(trial.number, sweeps.INTERVAL) for trial in rest)
    assert answer["band"]["trials"] == len(rest)
    assert answer["band"]["points"][0] == [
        sweeps.INTERVAL,
        at_first[0],
        (at_first[2] + at_first[3]) / 2,
        at_first[-1],
    ]
    assert {"val/accuracy", "train/loss", "hidden_norm/head/layer_0"} <= set(answer["metrics"])
    other = reader.get(f"{SWEEP}/curves?metric=train/loss")
    assert (other["metric"], other["band"]) == ("train/loss", {"trials": 0, "points": []})


def test_the_choice_of_metrics_has_what_a_script_reports_and_what_a_sweep_observes(client: Client) -> None:
    with client.workspace.ledger() as ledger:
        script, _, _ = sweeps.fill_script(ledger).rpartition("-")
    answer = client.get(f"/sweeps/{script}/curves")
    assert answer["metric"] == "loss"
    assert answer["metrics"] == ["learning_rate", "loss", "seconds/evaluate", "seconds/train"]
    of_training = {"learning_rate", "tokens_per_second"}
    assert not of_training & set(client.get(f"{SWEEP}/curves")["metrics"])


def test_a_sweep_says_what_it_has_spent_and_what_has_happened(reader: Client) -> None:
    live = reader.get(f"{SWEEP}/live")
    assert live["budget"]["trials"] == 8
    assert live["budget"]["hours"] is None
    assert live["events"][0]["what"].startswith("attempt ")
    assert {event["detail"] for event in live["events"]} >= {"non-finite: val/accuracy is nan"}
    times = [event["at"] for event in live["events"]]
    assert times == sorted(times, reverse=True)


def test_what_has_not_changed_is_not_sent_again(reader: Client) -> None:
    first = reader.send("GET", f"/api/v1{SWEEP}/trials", "vera")
    again = reader.send(
        "GET", f"/api/v1{SWEEP}/trials", "vera", headers={"If-None-Match": first.headers["etag"]}
    )
    assert (again.status, again.body, again.headers["etag"]) == (304, b"", first.headers["etag"])
    other = reader.send(
        "GET", f"/api/v1{SWEEP}/trials?limit=1", "vera", headers={"If-None-Match": first.headers["etag"]}
    )
    assert other.status == 200
    assert other.headers["etag"] != first.headers["etag"]
    assert "etag" not in reader.send("GET", "/api/v1/nothing", "vera").headers


def test_large_answers_are_compressed_if_the_client_can_read_that(reader: Client) -> None:
    plain = reader.send("GET", f"/api/v1{SWEEP}/trials", "vera")
    packed = reader.send("GET", f"/api/v1{SWEEP}/trials", "vera", headers={"Accept-Encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert len(packed.body) < len(plain.body) / 3
    assert gzip.decompress(packed.body) == plain.body


def test_parts_of_a_log_begin_and_end_between_characters(tmp_path: Path) -> None:
    """One after the other they are the whole log, and the last part is, too."""
    log, text = tmp_path / "log", "a\u20ac\u00e9\U0001f600" * 5
    log.write_text(text)
    size = log.stat().st_size
    for length in range(4, size + 1):
        start, parts = 0, []
        while start < size:
            part = log_part(log, start, length)
            parts.append(part.text)
            assert part.end > start
            start = part.end
        assert "".join(parts) == text
        last = log_part(log, tail_start(log, length), length)
        assert text.endswith(last.text)
        assert (last.end, last.start) == (size, size - len(last.text.encode()))
