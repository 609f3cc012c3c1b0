"""What the API returns of sweeps, trials, curves, logs, reports and the queue."""

from __future__ import annotations

from orchestrator.api.places import UNSERVED
from orchestrator.api.queue import queue
from orchestrator.ledger.records import CurvePoint
from orchestrator.web.documents import thinned
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
    assert shown["text"] == FILE
    assert reader.send("GET", f"/api/v1{SWEEP}/file", "vera").body.decode() == FILE
    assert reader.get(f"/sweeps/{QUEUED}")["state"] == "QUEUED"


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
    assert reader.send("GET", f"/api/v1/sweeps/{QUEUED}/log", "vera").status == 404
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("one\ntwo\n")
    assert reader.get(f"/sweeps/{QUEUED}/log?length=4") == {"start": 4, "end": 8, "size": 8, "text": "two\n"}
    assert reader.get(f"/sweeps/{QUEUED}/log?start=0&length=3")["text"] == "one"
    assert reader.get(f"/sweeps/{QUEUED}/log?start=99")["text"] == ""
    assert reader.send("GET", f"/api/v1{SWEEP}/trials/../log", "vera").status == 422
    trial_log = reader.workspace.paths.log(sweeps.SWEEP_ID, f"{sweeps.SWEEP_ID}-0")
    trial_log.parent.mkdir(parents=True, exist_ok=True)
    trial_log.write_text("step 1\n")
    assert reader.get(f"{SWEEP}/trials/0/log")["text"] == "step 1\n"


def test_the_analysis_has_the_time_and_the_norms_of_the_best_trial(reader: Client) -> None:
    found = reader.get(f"{SWEEP}/analysis")
    assert found["best"] == f"{sweeps.SWEEP_ID}-7"
    assert found["importances"] == [], "five complete trials are too few"
    assert found["seconds"]["train"] == 3.0 * sum(trial.step // sweeps.INTERVAL for trial in sweeps.trials())
    assert [norm["metric"] for norm in found["norms"]] == ["hidden_norm/layer_0", "hidden_norm/layer_1"]
    assert [step for step, _ in found["norms"][0]["points"]] == [40, 80, 120, 160, 200]
    assert reader.send("GET", f"/api/v1/sweeps/{QUEUED}/analysis", "vera").status == 422


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
    assert [entry] == [place.document() for place in queue(root=reader.workspace.paths.root)]
