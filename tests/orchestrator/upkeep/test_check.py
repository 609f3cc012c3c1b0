"""`check` reports nothing for an intact sweep, and every violated invariant for another."""

from __future__ import annotations

import math
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import text

from orchestrator.errors import BadInput, Busy
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.sweeps.lease import Lease
from orchestrator.ledger.sweeps.records import CheckpointRecord, EvaluationRecord, SweepState, pack_scores
from orchestrator.ledger.sweeps.writer import SweepWriter
from orchestrator.storage.paths import Paths
from orchestrator.upkeep import orphans
from orchestrator.upkeep.check import check, leftovers
from orchestrator.upkeep.orphans import clear, clear_trial, collect, garbage_of, orphans_of, own, owner_of
from tests.orchestrator.ledger.examples import (
    STEPS,
    SWEEP_ID,
    create_sweep,
    trial_record,
    writer,
)
from trainables import checkpoint


@dataclass(frozen=True)
class Site:
    """A ledger and the checkpoints beside it."""

    ledger: Ledger
    folder: Path

    @property
    def writer(self) -> SweepWriter:
        """Return a writer with the newest token."""
        return writer(self.ledger)

    def save(self, key: str, step: int, kind: str) -> CheckpointRecord:
        """Write a checkpoint and return its row."""
        stem = self.folder / key / f"step-{step}"
        saved = checkpoint.save(stem, {"weights": np.full(3, float(step))}, {"step": step})
        return CheckpointRecord(key, step, kind, str(saved.folder), saved.digest, saved.bytes, {})  # type: ignore[arg-type]

    def checkpoint(self, number: int, step: int) -> Path:
        """Return the folder of the checkpoint of a trial at a step."""
        (folder,) = (self.folder / f"{SWEEP_ID}-{number}").glob(f"step-{step}-*")
        return folder

    def problems(self) -> list[str]:
        """Return the findings as text."""
        return [
            f"{finding.where}: {finding.problem}" for finding in check(self.ledger, SWEEP_ID, self.folder)
        ]

    def leftovers(self) -> list[str]:
        """Return the orphans that are no finding, relative to the folder of the sweep."""
        found = leftovers(self.ledger, SWEEP_ID, self.folder)
        return [str(path.relative_to(self.folder)) for path in found]


@pytest.fixture
def site(sqlite_url: str, tmp_path: Path) -> Iterator[Site]:
    """Return a finished sweep: trial 0 complete, 1 pruned, 2 failed."""
    site = Site(Ledger.open(sqlite_url), tmp_path / "checkpoints" / SWEEP_ID)
    ledger = site.ledger
    create_sweep(ledger)
    for number, state in enumerate(("COMPLETE", "PRUNED", "FAILED")):
        trial = trial_record(number)
        site.writer.add_trial(trial)
        first = site.writer.start_attempt(trial.key)
        site.writer.record_report(first.id, 10, {"val/accuracy": 0.5}, [site.save(trial.key, 10, "last")])
        site.writer.end_attempt(first.id, "LOST", "node died")
        second = site.writer.start_attempt(trial.key)
        site.writer.record_report(second.id, 20, {"val/accuracy": 0.75}, [site.save(trial.key, 20, "best")])
        if state == "COMPLETE":
            site.writer.record_report(
                second.id, STEPS, {"val/accuracy": 0.5}, [site.save(trial.key, STEPS, "last")]
            )
        value = None if state == "FAILED" else 0.75
        site.writer.end_attempt(second.id, "ENDED", "why" if state == "FAILED" else None, state, value, 20)  # type: ignore[arg-type]
    site.writer.set_sweep_state("COMPLETE")
    yield site
    ledger.close()


def test_an_intact_sweep_has_no_findings(site: Site) -> None:
    """An undisturbed sweep violates no invariant."""
    assert site.problems() == []


def test_a_recorded_evaluation_has_no_findings(site: Site) -> None:
    """With the scores of its examples, which have 32 bits, and without them as in earlier versions."""
    metrics = {"test/loss": 1.0, "test/accuracy": 1 / 3}
    for at, scores in enumerate((pack_scores([1 / 3]), pack_scores([1.0, 0.0, 0.0]), None)):
        site.writer.add_evaluation(EvaluationRecord(f"{SWEEP_ID}-0", 20, "test", metrics, float(at), scores))
    not_finite = {"test/loss": math.nan, "test/accuracy": math.nan}
    site.writer.add_evaluation(
        EvaluationRecord(f"{SWEEP_ID}-0", 20, "test", not_finite, 3.0, pack_scores([math.nan]))
    )
    assert site.problems() == []


def test_a_spent_budget_leaves_unfinished_trials(site: Site) -> None:
    site.writer.add_trial(trial_record(3))
    site.writer.set_sweep_state("COMPLETE", "the budget of 12 hours is spent")
    assert site.problems() == []


def _end_early(write: SweepWriter, key: str, site: Site) -> None:
    attempt = write.start_attempt(key)
    kept: list[CheckpointRecord] = [site.save(key, 7, "best"), site.save(key, 8, "last")]
    write.record_report(attempt.id, 7, {"val/accuracy": 0.5}, kept[:1])
    write.record_report(attempt.id, 8, {"val/accuracy": 0.25}, kept[1:])
    write.end_attempt(attempt.id, "ENDED", None, "COMPLETE", 0.5, 7)


def _end_at_once(write: SweepWriter, key: str, site: Site) -> None:
    attempt = write.start_attempt(key)
    write.record_report(attempt.id, 0, {"val/accuracy": 0.5}, [site.save(key, 0, "best")])
    write.end_attempt(attempt.id, "ENDED", None, "COMPLETE", 0.5, 0)


def _end_beyond(write: SweepWriter, key: str, site: Site) -> None:
    attempt = write.start_attempt(key)
    write.record_report(attempt.id, STEPS + 5, {"val/accuracy": 0.5}, [site.save(key, STEPS + 5, "best")])
    write.end_attempt(attempt.id, "ENDED", None, "COMPLETE", 0.5, STEPS + 5)


def _start_again(write: SweepWriter, key: str, site: Site) -> None:
    first = write.start_attempt(key)
    for step in (5, 10):
        write.record_report(first.id, step, {"val/accuracy": 0.5}, [site.save(key, 0, "last")])
    write.end_attempt(first.id, "LOST", "node died")
    second = write.start_attempt(key)
    row = replace(site.save(key, 5, "best"), metrics={"val/accuracy": 0.75})
    write.record_report(second.id, 5, row.metrics, [row])
    write.record_report(second.id, 7, {"val/accuracy": 0.5}, [site.save(key, 7, "last")])
    write.end_attempt(second.id, "ENDED", None, "COMPLETE", 0.75, 5)


@pytest.mark.parametrize("end", [_end_early, _end_at_once, _end_beyond, _start_again])
@pytest.mark.parametrize("kind", ["function", "command", "program"])
def test_a_script_reports_at_steps_of_its_own(site: Site, end: Callable[..., None], kind: str) -> None:
    """What the documentation allows a function and a command is a finding for a program alone."""
    site.writer.amend_sweep({"trainable": {kind: "train.py:train"}}, "d", {"metric": "val/accuracy"})
    site.writer.add_trial(trial_record(3))
    end(site.writer, trial_record(3).key, site)
    assert (site.problems() == []) is (kind != "program")


def test_a_driven_sweep_has_no_findings(site: Site) -> None:
    """A running trial and a half-written checkpoint are correct only while a driver runs."""
    site.writer.set_sweep_state("RUNNING")
    site.writer.add_trial(trial_record(3))
    site.writer.start_attempt(trial_record(3).key)
    (site.folder / trial_record(3).key / ".step-10-staged").mkdir(parents=True)
    being_deleted = site.checkpoint(0, 20).parent / "step-000000010-1-0123456789ab"
    being_deleted.mkdir()
    with Lease(site.ledger, SWEEP_ID):
        assert (site.problems(), site.leftovers()) == ([], [])
    being_deleted.rmdir()
    assert [problem.partition(":")[0] for problem in site.problems()] == [SWEEP_ID, f"{SWEEP_ID}-3"]
    assert site.leftovers() == [f"{SWEEP_ID}-3/.step-10-staged"]


def test_what_a_killed_worker_has_left_is_a_finding_once_the_sweep_is_finished(site: Site) -> None:
    """Until then, the next driver deletes it before it launches anything."""
    (site.checkpoint(0, 20).parent / ".step-20-staged").mkdir()
    site.writer.set_sweep_state("INTERRUPTED", "stopped by SIGINT")
    assert (site.problems(), site.leftovers()) == ([], [f"{SWEEP_ID}-0/.step-20-staged"])
    site.writer.set_sweep_state("COMPLETE")
    (problem,) = site.problems()
    assert problem.endswith("/.step-20-staged: checkpoint without a row in the ledger")
    assert site.leftovers() == []


def test_the_folder_of_an_unknown_trial_is_always_a_finding(site: Site) -> None:
    """No interruption leaves one: the row of a trial is there before its first file."""
    (site.folder / "orphan").mkdir()
    site.writer.set_sweep_state("INTERRUPTED", "stopped by SIGINT")
    (problem,) = site.problems()
    assert "without a trial in the ledger" in problem
    assert site.leftovers() == []


def test_a_damaged_ledger_names_no_leftovers(site: Site) -> None:
    """Its rows do not say what belongs to it; `check` reports the damage instead."""
    (site.checkpoint(0, 20).parent / ".step-20-staged").mkdir()
    site.writer.set_sweep_state("INTERRUPTED", "stopped by SIGINT")
    _change_a_row(site)
    assert site.leftovers() == []
    assert any("does not match the digest" in problem for problem in site.problems())


def _damage_weights(site: Site) -> None:
    path = site.checkpoint(0, 20) / "arrays.npz"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def _exchange_checkpoint(site: Site) -> None:
    own = site.checkpoint(0, 20)
    other = checkpoint.save(site.folder.parent / "other", {"weights": np.zeros(3)}, {"step": 20})
    shutil.rmtree(own)
    other.folder.rename(own)


def _remove_checkpoint(site: Site) -> None:
    site.checkpoint(1, 10).rename(site.folder.parent / "elsewhere")


def _leave_orphans(site: Site) -> None:
    (site.folder / f"{SWEEP_ID}-0" / "step-5").mkdir()
    (site.folder / "orphan").mkdir()


def _drop_the_best(site: Site) -> None:
    site.writer.drop_checkpoint(f"{SWEEP_ID}-0", site.checkpoint(0, 20))


def _leave_a_gap(site: Site) -> None:
    site.writer.add_trial(trial_record(4))


def _name_wrongly(site: Site) -> None:
    site.writer.add_trial(trial_record(3, key=f"{SWEEP_ID}-7", state="FAILED", cause="x", finished_at=1.0))


def _finish_without_training(site: Site) -> None:
    site.writer.add_trial(trial_record(3, state="COMPLETE", value=0.5, best_step=1, finished_at=1.0))


def _prune_at_the_end(site: Site) -> None:
    site.writer.add_trial(trial_record(3, state="PRUNED", step=STEPS, finished_at=1.0))


def _fail_without_a_cause(site: Site) -> None:
    site.writer.add_trial(trial_record(3, state="FAILED", finished_at=1.0))


def _end_without_a_time(site: Site) -> None:
    site.writer.add_trial(trial_record(3, state="FAILED", cause="x"))


def _miscount_attempts(site: Site) -> None:
    site.writer.add_trial(trial_record(3, state="FAILED", cause="x", finished_at=1.0, attempts=2))


def _report_beyond_the_end(site: Site) -> None:
    key = trial_record(3).key
    site.writer.add_trial(trial_record(3))
    write = site.writer
    write.record_report(write.start_attempt(key).id, STEPS + 1, {"val/accuracy": 0.5})
    site.writer.end_attempt(f"{key}.1", "ENDED", "x", "FAILED")


def _report_backwards(site: Site) -> None:
    key = trial_record(3).key
    site.writer.add_trial(trial_record(3))
    write = site.writer
    write.record_report(write.start_attempt(key).id, 20, {"val/accuracy": 0.5})
    write.record_report(write.start_attempt(key).id, 10, {"val/accuracy": 0.5})
    site.writer.end_attempt(f"{key}.2", "ENDED", "x", "FAILED")


def _value_that_was_not_reported(site: Site) -> None:
    site.writer.set_sweep_state("RUNNING")
    site.writer.amend_sweep({}, "d", {"metric": "val/accuracy"})
    key = trial_record(3).key
    site.writer.add_trial(trial_record(3))
    attempt = site.writer.start_attempt(key)
    kept = [site.save(key, STEPS, "best")]
    site.writer.record_report(attempt.id, STEPS, {"val/accuracy": 0.5}, kept)
    site.writer.end_attempt(attempt.id, "ENDED", None, "COMPLETE", 0.9, STEPS)
    site.writer.set_sweep_state("COMPLETE")


def _score_otherwise(site: Site) -> None:
    scores = pack_scores([1.0, 0.0, 1.0])
    evaluation = EvaluationRecord(f"{SWEEP_ID}-0", 20, "test", {"test/accuracy": 0.6}, 1.0, scores)
    site.writer.add_evaluation(evaluation)


def _stop_driving(site: Site) -> None:
    site.writer.set_sweep_state("WAITING", "no GPU")


def _change_a_row(site: Site) -> None:
    with site.ledger.writer() as connection:
        connection.execute(text("UPDATE trial SET value = 2 WHERE number = 0"))
        connection.commit()


@pytest.mark.parametrize(
    ("violate", "finding"),
    [
        (_damage_weights, "/arrays.npz: must have SHA-256"),
        (_exchange_checkpoint, "/manifest.json: must have SHA-256"),
        (_remove_checkpoint, "/manifest.json: does not exist"),
        (_leave_orphans, "step-5: checkpoint without a row in the ledger"),
        (_leave_orphans, "orphan: checkpoint folder without a trial in the ledger"),
        (_drop_the_best, f"{SWEEP_ID}-0: is COMPLETE without a checkpoint of its best step"),
        (_leave_a_gap, r"lacks the search trials with the numbers \[3\]"),
        (_leave_a_gap, f"is COMPLETE with unfinished trials: {SWEEP_ID}-4"),
        (_name_wrongly, f"{SWEEP_ID}-7: has a key that does not match its number"),
        (_finish_without_training, f"is COMPLETE at step 0 of {STEPS}"),
        (_prune_at_the_end, f"is PRUNED, but has all {STEPS} steps"),
        (_fail_without_a_cause, "is FAILED without a cause"),
        (_end_without_a_time, "is FAILED without an end time"),
        (_miscount_attempts, "has 0 of the attempts 1 to 2"),
        (_report_beyond_the_end, f"has reports outside of steps 0 to {STEPS}"),
        (_report_backwards, "has a later step that was reported by an earlier attempt"),
        (_value_that_was_not_reported, "has the value 0.9, but its best step reported 0.5"),
        (_score_otherwise, f"{SWEEP_ID}-0: has the metric 0.6 on test, but the mean of its scores is 0.66"),
        (_stop_driving, f"{SWEEP_ID}: is WAITING, but no driver runs it"),
        (_change_a_row, f"ledger table trial, row key='{SWEEP_ID}-0': does not match the digest"),
    ],
)
def test_each_violation_is_reported(site: Site, violate: Callable[[Site], None], finding: str) -> None:
    """The finding names the violated invariant."""
    violate(site)
    with pytest.raises(AssertionError, match=finding):
        assert "\n".join(site.problems()) == ""


def test_orphans_are_deleted(site: Site) -> None:
    """The next driver deletes the orphaned checkpoints of a dead one, and nothing else."""
    _leave_orphans(site)
    kept = {Path(row.path) for row in site.ledger.checkpoints(SWEEP_ID)}
    deleted = clear(site.ledger, SWEEP_ID, site.folder)
    assert deleted == [site.folder / f"{SWEEP_ID}-0" / "step-5", site.folder / "orphan"]
    assert set(site.folder.glob("*/*")) == kept
    assert site.problems() == []


def test_a_root_that_was_moved_keeps_its_checkpoints(site: Site, tmp_path: Path) -> None:
    """The rows hold the earlier paths; so do those of a root that two machines mount at different places."""
    own(site.folder, site.ledger.id)
    (site.folder / f"{SWEEP_ID}-0" / "step-5").mkdir()
    moved = Site(site.ledger, tmp_path / "elsewhere" / "checkpoints" / SWEEP_ID)
    moved.folder.parent.mkdir(parents=True)
    site.folder.rename(moved.folder)
    garbage = garbage_of(site.ledger, SWEEP_ID, Paths(tmp_path / "elsewhere"))
    orphan = moved.folder / f"{SWEEP_ID}-0" / "step-5"
    assert [entry.path for entry in garbage] == [str(orphan)]
    assert clear(site.ledger, SWEEP_ID, moved.folder) == [orphan]
    rows = {row.path for row in site.ledger.checkpoints(SWEEP_ID)}
    assert len(list(moved.folder.glob("*/step-*"))) == len(rows)


def test_a_driver_that_has_lost_its_lease_deletes_no_files_of_a_trial(site: Site) -> None:
    """It was cut off from the server: the driver that has replaced it has a worker that writes there."""
    lost = site.writer
    writer(site.ledger)
    folder = site.folder / f"{SWEEP_ID}-0"
    (folder / "step-5").mkdir()
    with pytest.raises(Busy):
        clear_trial(lost, f"{SWEEP_ID}-0", folder)
    assert (folder / "step-5").exists()


@pytest.mark.parametrize("how", ["gc", "the next run"])
def test_what_a_worker_saves_after_its_driver_was_forced_to_leave_is_collected(site: Site, how: str) -> None:
    """The driver has ended the attempt, so that nobody records the checkpoint."""
    key = f"{SWEEP_ID}-3"
    site.writer.set_sweep_state("RUNNING")
    site.writer.add_trial(trial_record(3))
    attempt = site.writer.start_attempt(key)
    site.writer.record_report(attempt.id, 10, {"val/accuracy": 0.5}, [site.save(key, 10, "last")])
    site.writer.lose_attempts()
    site.writer.set_sweep_state("INTERRUPTED", "stopped by SIGINT")
    late = site.save(key, 20, "last")
    site.writer.record_report(attempt.id, 20, {"val/accuracy": 0.6}, [late])
    assert [row.step for row in site.ledger.trial_checkpoints(key)] == [10]
    assert (site.problems(), site.leftovers()) == ([], [f"{key}/{Path(late.path).name}"])
    if how == "gc":
        (garbage,) = garbage_of(site.ledger, SWEEP_ID, Paths(site.folder.parents[1]))
        assert garbage.path == late.path
        collect(garbage)
    else:
        assert clear(site.ledger, SWEEP_ID, site.folder) == [Path(late.path)]
    assert (site.problems(), site.leftovers()) == ([], [])


@pytest.mark.parametrize("how", ["sweep", "trial"])
def test_orphans_are_deleted_after_a_flush(site: Site, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power failure may undo commits that are not flushed, and their rows may refer to such a folder."""
    key = f"{SWEEP_ID}-0"
    orphan = site.folder / key / "step-5"
    orphan.mkdir()
    present_at_flush: list[bool] = []
    monkeypatch.setattr(site.ledger, "flush", lambda: present_at_flush.append(orphan.exists()))
    if how == "sweep":
        clear(site.ledger, SWEEP_ID, site.folder)
    else:
        clear_trial(site.writer, key, site.folder / key)
    assert present_at_flush == [True]
    assert not orphan.exists()


def test_a_file_that_a_worker_moves_meanwhile_is_no_error(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that was cut off and not killed still saves: a staged folder gets its name, a file is gone."""
    folder = site.folder / f"{SWEEP_ID}-0"
    (folder / "left").mkdir()
    monkeypatch.setattr(orphans, "_unknown", lambda *_: [folder / ".staged", folder / "left"])
    clear_trial(site.writer, f"{SWEEP_ID}-0", folder)
    assert not (folder / "left").exists()


@pytest.mark.parametrize("state", ["RUNNING", "WAITING", "PAUSED"])
def test_a_state_that_needs_a_driver_is_a_finding_without_one(site: Site, state: SweepState) -> None:
    site.writer.set_sweep_state(state)
    assert site.problems() == [f"{SWEEP_ID}: is {state}, but no driver runs it"]


def test_the_value_of_a_trial_is_compared_with_its_report_of_step_0(site: Site) -> None:
    site.writer.set_sweep_state("RUNNING")
    site.writer.amend_sweep({}, "d", {"metric": "val/accuracy"})
    key = trial_record(3).key
    site.writer.add_trial(trial_record(3))
    attempt = site.writer.start_attempt(key)
    for step, kind in ((0, "best"), (STEPS, "last")):
        kept = [site.save(key, step, kind)]
        site.writer.record_report(attempt.id, step, {"val/accuracy": 0.5}, kept)
    site.writer.end_attempt(attempt.id, "ENDED", None, "COMPLETE", 0.9, 0)
    site.writer.set_sweep_state("COMPLETE")
    assert [problem.partition(": ")[2] for problem in site.problems()] == [
        "has the value 0.9, but its best step reported 0.5"
    ]


def test_an_unknown_sweep_is_reported(site: Site) -> None:
    """A sweep that is not in the ledger is not intact."""
    with pytest.raises(KeyError, match="nothing"):
        check(site.ledger, "nothing", site.folder)


def test_checkpoints_of_another_ledger_are_never_deleted(site: Site, tmp_path: Path) -> None:
    """A first start on another ledger is refused if checkpoints of its sweep exist."""
    with (
        closing(Ledger.open(f"sqlite:///{tmp_path / 'other.db'}")) as other,
        pytest.raises(BadInput, match="SWEEP_LEDGER"),
    ):
        clear(other, SWEEP_ID, site.folder)
    assert site.problems() == []


def test_the_folder_of_a_sweep_belongs_to_the_ledger_that_began_it(site: Site, tmp_path: Path) -> None:
    """Two ledgers that know one sweep would take the checkpoints of each other for orphans."""
    with closing(Ledger.open(f"sqlite:///{tmp_path / 'other.db'}")) as other:
        create_sweep(other)
        assert clear(site.ledger, SWEEP_ID, site.folder) == []  # a folder that an earlier version has filled
        with pytest.raises(BadInput, match=f"the ledger {site.ledger.id}"):
            clear(other, SWEEP_ID, site.folder)
        assert orphans_of(other, SWEEP_ID, site.folder) == [], "not for `gc`, either"
        assert not any("checkpoint" in each.problem for each in check(other, SWEEP_ID, site.folder))
        writer(other).set_sweep_state("INTERRUPTED", "stopped by SIGINT")
        assert leftovers(other, SWEEP_ID, site.folder) == []
    assert site.problems() == []


def test_a_folder_is_refused_before_it_holds_a_checkpoint(sqlite_url: str, tmp_path: Path) -> None:
    with (
        closing(Ledger.open(sqlite_url)) as first,
        closing(Ledger.open(f"sqlite:///{tmp_path / 'other.db'}")) as second,
    ):
        folder = tmp_path / "checkpoints"
        own(folder, first.id)
        with pytest.raises(BadInput, match="must belong to the ledger"):
            clear(second, SWEEP_ID, folder)
        with pytest.raises(BadInput, match="must belong to the ledger"):
            own(folder, second.id)
        (folder / "ledger").write_text("")  # what a loss of power may leave
        own(folder, second.id)
        assert owner_of(folder) == second.id


def test_a_start_with_the_wrong_ledger_takes_no_folder(sqlite_url: str, tmp_path: Path) -> None:
    """A driver may be interrupted, or refused, between its look at the folder and its first trial."""
    with (
        closing(Ledger.open(sqlite_url)) as wrong,
        closing(Ledger.open(f"sqlite:///{tmp_path / 'other.db'}")) as right,
    ):
        folder = tmp_path / "checkpoints"
        assert clear(wrong, SWEEP_ID, folder) == []
        create_sweep(wrong)
        assert clear(wrong, SWEEP_ID, folder) == [], "started again, with nothing saved"
        assert owner_of(folder) is None
        assert clear(right, SWEEP_ID, folder) == []
        own(folder, right.id)
        with pytest.raises(BadInput, match="must belong to the ledger"):
            clear(wrong, SWEEP_ID, folder)


def test_of_two_drivers_that_begin_at_once_one_gets_the_folder(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one finds the file of the first one before its content is written."""
    monkeypatch.setattr(orphans, "_WRITTEN_SECONDS", 60.0)
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    (folder / "ledger").touch()
    written = threading.Timer(0.2, lambda: (folder / "ledger").write_text("first"))
    with closing(Ledger.open(sqlite_url)) as second:
        written.start()
        with pytest.raises(BadInput, match="checkpoints of the ledger first"):
            own(folder, second.id)
        written.join()
    assert owner_of(folder) == "first"
