"""The checkpoints of the attempts of one trial: real training, on two machines that share a store."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partialmethod
from pathlib import Path

import pytest

from orchestrator.assignment import SIZE, Assignment, Outcome, SavedCheckpoint
from orchestrator.training import attempt
from orchestrator.training.attempt import Attempt, OwnEngine, failure_outcome
from orchestrator.training.engine_cache import cache_of_process
from orchestrator.training.evaluation import evaluate
from tests.attempts import INTERVAL, asked_since_the_last_look, assignment
from trainables import checkpoint
from trainables.cost import Cost
from trainables.engine import Engine
from trainables.errors import DamagedCheckpoint
from trainables.tasks import TASKS

pytestmark = pytest.mark.usefixtures("device")

Assign = Callable[..., Assignment]


@pytest.fixture
def assign(tmp_path: Path) -> Assign:
    """Return a function that assigns an attempt to a machine; all machines share one store."""

    def of_machine(machine: str, attempt: int, resume: SavedCheckpoint | None = None) -> Assignment:
        own = assignment(tmp_path, 0, attempt=attempt, store=f"file://{tmp_path}/store")
        folder = tmp_path / machine / "trial"
        local = replace(resume, path=str(folder / Path(resume.path).name)) if resume else None
        return replace(own, gpu=0.0, checkpoints=str(folder), resume=local)

    return of_machine


@pytest.fixture
def engine() -> Iterator[OwnEngine]:
    engine = OwnEngine()
    yield engine
    engine.release()


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a disk of its own, with less than a mebibyte free."""
    disk = tmp_path / "full disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(disk)], check=False)
    if mounted.returncode != 0:
        pytest.skip("needs the permission to mount a file system")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def advance(engine: OwnEngine, attempt: Assignment) -> Outcome:
    """Train one interval of an attempt in the engine, which another attempt may have used before."""
    outcome = engine.advance(attempt)
    assert outcome.failure is None, outcome.message
    assert outcome.checkpoint is not None
    return outcome


def saved(outcome: Outcome) -> SavedCheckpoint:
    assert outcome.checkpoint is not None
    return outcome.checkpoint


def test_an_attempt_that_was_given_a_gpu_is_not_trained_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SWEEP_HOST_DEVICES")
    outcome = OwnEngine().advance(assignment(tmp_path, 0, gpu=1.0))
    assert (outcome.done, outcome.failure) == (True, "error")
    assert "has a share of a GPU, but JAX found none" in outcome.message


@pytest.mark.slow
def test_a_checkpoint_names_its_attempt_and_its_content(engine: OwnEngine, assign: Assign) -> None:
    """Two attempts that train the same interval write two folders, whose arrays are equal."""
    first = saved(advance(engine, assign("a", 1)))
    engine.release()
    second = saved(advance(engine, assign("a", 2)))
    assert Path(first.path).name == f"step-000000010-1-{first.digest[:12]}"
    assert Path(second.path).name == f"step-000000010-2-{second.digest[:12]}"


@pytest.mark.slow
def test_an_attempt_that_was_asked_to_stop_before_it_began_trains_nothing(
    engine: OwnEngine, assign: Assign
) -> None:
    """Its driver may have dropped it: a checkpoint would have no row in the ledger."""
    trial = assign("a", 1)
    with asked_since_the_last_look(trial):
        outcome = engine.advance(trial)
    assert (outcome.interrupted, outcome.done, outcome.step, outcome.checkpoint) == (True, True, 0, None)
    assert not Path(trial.checkpoints).exists()
    assert advance(engine, trial).step == INTERVAL, "the next one begins"


@pytest.mark.slow
def test_the_first_report_of_a_trial_has_the_sizes_of_its_network(engine: OwnEngine, assign: Assign) -> None:
    """Of the trial and not of the attempt: a resumed curve is the same as one in a piece."""
    first = advance(engine, assign("a", 1))
    sizes = {name: value for name, value in first.metrics.items() if name.startswith(SIZE)}
    assert Cost.from_document({name.removeprefix(SIZE): value for name, value in sizes.items()}) == Cost(
        parameters=367, layer_parameters=174, recurrent_parameters=102, state_floats=8
    )
    assert not any(name.startswith(SIZE) for name in engine.advance(assign("a", 1)).metrics)
    engine.release()
    resumed = advance(engine, assign("a", 2, resume=saved(first)))
    assert not any(name.startswith(SIZE) for name in resumed.metrics)


@pytest.mark.slow
def test_a_report_covers_its_whole_interval_if_attempts_had_to_stop_in_it(tmp_path: Path) -> None:
    """Two attempts stop inside the second interval; what the third reports has the bits of one in a piece."""
    engine = cache_of_process().engine(assignment(tmp_path, 0).settings, str(tmp_path / "data"))

    def attempt(number: int, stops: Sequence[int], resume: SavedCheckpoint | None = None) -> list[Outcome]:
        folder = str(tmp_path / ("whole" if number == 9 else "stopped"))
        running = Attempt(
            engine, 0, assignment(tmp_path, 0, attempt=number, checkpoints=folder, resume=resume)
        )
        outcomes = [running.outcome(engine.advance({0: steps})[0]) for steps in stops]
        running.release()
        return outcomes

    whole = attempt(9, [10, 10, 10])
    first = attempt(1, [10, 4])
    second = attempt(2, [3], resume=saved(first[-1]))
    third = attempt(3, [3, 10], resume=saved(second[-1]))
    assert [outcome.interrupted for outcome in (*first, *second, *third)] == [False, True, True, False, False]
    reported = [outcome for outcome in (*first, *second, *third) if outcome.metrics]
    assert [curve(outcome) for outcome in reported] == [curve(outcome) for outcome in whole]
    assert [saved(outcome).digest for outcome in whole] == [saved(outcome).digest for outcome in reported], (
        "a checkpoint at a report holds nothing of how it was reached"
    )


def curve(outcome: Outcome) -> dict[str, float]:
    """Return what does not depend on the clock."""
    return {
        name: value
        for name, value in outcome.metrics.items()
        if not name.startswith(("seconds/", "tokens_per_second"))
    }


@pytest.mark.slow
def test_the_same_state_has_the_same_digest(engine: OwnEngine, assign: Assign) -> None:
    """A manifest holds no times."""
    first = saved(advance(engine, assign("a", 1)))
    engine.release()
    again = saved(advance(engine, assign("b", 1)))
    assert again.digest == first.digest


@pytest.mark.slow
def test_a_checkpoint_names_every_kind_of_device_that_has_trained_it(
    engine: OwnEngine, tmp_path: Path
) -> None:
    """An export promises nothing of the digits of a trial that a GPU began and a CPU went on with."""
    first = saved(advance(engine, assignment(tmp_path, 0)))
    engine.release()
    arrays, facts = checkpoint.load(Path(first.path), first.digest)
    assert facts["devices"] == ["cpu"]
    on_gpu = {**facts, "device": "gpu", "devices": ["gpu"]}
    kept = checkpoint.save(tmp_path / "elsewhere" / "step-000000010-1", arrays, on_gpu)
    resume = SavedCheckpoint(str(kept.folder), INTERVAL, kept.digest, kept.bytes)
    second = saved(advance(engine, assignment(tmp_path, 0, attempt=2, resume=resume)))
    _, facts = checkpoint.load(Path(second.path), second.digest)
    assert (facts["device"], facts["devices"]) == ("cpu", ["gpu", "cpu"])


@pytest.mark.slow
def test_a_machine_resumes_what_is_recorded_not_what_it_left_there_itself(
    engine: OwnEngine, assign: Assign
) -> None:
    """Attempt 1 on A died before its commit, attempt 2 on B was recorded, attempt 3 is on A again."""
    advance(engine, assign("a", 1))
    engine.release()
    recorded = saved(advance(engine, assign("b", 2)))
    engine.release()
    third = advance(engine, assign("a", 3, resume=recorded))
    assert third.step == 20


def test_a_worker_that_was_given_up_does_not_replace_a_recorded_checkpoint(
    engine: OwnEngine, assign: Assign, tmp_path: Path
) -> None:
    """Attempt 1 still runs on a machine that was cut off, and uploads the step that attempt 2 reported."""
    recorded = saved(advance(engine, assign("b", 2)))
    engine.release()
    advance(engine, assign("a", 1))
    engine.release()
    shutil.rmtree(tmp_path / "b")
    assert advance(engine, assign("b", 3, resume=recorded)).step == 20


@pytest.mark.slow
def test_a_long_interval_gives_signs_of_life_and_trains_the_same(
    engine: OwnEngine, assign: Assign, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounds of one step and then of three, each too long: three signs of life before ten steps are done."""
    expected = saved(advance(engine, assign("a", 1)))
    engine.release()
    monkeypatch.setattr(Engine, "round", partialmethod(Engine.round, most=3))
    monkeypatch.setattr(attempt, "SIGN_OF_LIFE", -1.0)
    trial = assign("b", 1)
    for _ in range(3):
        sign = engine.advance(trial)
        assert (sign.training, sign.queued, sign.done) == (True, False, False)
        assert (sign.step, sign.metrics, sign.checkpoint) == (0, {}, None)
    report = advance(engine, trial)
    assert (report.training, report.step) == (False, 10)
    assert saved(report).digest == expected.digest


def test_a_stop_between_two_signs_of_life_saves_what_was_trained(
    engine: OwnEngine, assign: Assign, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engine, "round", partialmethod(Engine.round, most=3))
    monkeypatch.setattr(attempt, "SIGN_OF_LIFE", -1.0)
    trial = assign("a", 1)
    assert engine.advance(trial).training
    monkeypatch.setattr(Attempt, "must_stop", lambda _: True)
    outcome = advance(engine, trial)
    assert (outcome.step, outcome.interrupted, outcome.done) == (4, True, True)
    monkeypatch.undo()
    engine.release()
    assert advance(engine, assign("a", 2, resume=saved(outcome))).step == 10


@pytest.mark.slow
def test_an_upload_leaves_files_that_are_being_written_and_those_of_later_attempts(
    engine: OwnEngine, assign: Assign, tmp_path: Path
) -> None:
    """It deletes the older, completely written checkpoints of the trial from this machine."""
    folder = tmp_path / "a" / "trial"
    for name in (
        "step-000000005",
        "step-000000005-1-0123456789ab",
        "step-000000005-2-0123456789ab",
        ".stage",
    ):
        (folder / name).mkdir(parents=True)
    own = Path(saved(advance(engine, assign("a", 1))).path).name
    assert {path.name for path in folder.iterdir()} == {own, "step-000000005-2-0123456789ab", ".stage"}


@pytest.mark.slow
def test_the_test_evaluation_refuses_the_weights_of_another_writer(
    engine: OwnEngine, assign: Assign, tmp_path: Path
) -> None:
    """An intact checkpoint with other content is not evaluated in place of the recorded one."""
    recorded = saved(advance(engine, assign("a", 1)))
    other = saved(advance(engine, assign("a", 1)))
    folder = Path(recorded.path)
    shutil.rmtree(folder, ignore_errors=True)
    Path(other.path).rename(folder)
    assert checkpoint.is_whole(folder, other.digest)
    words = (str(tmp_path / "data"), "test", os.environ["JAX_COMPILATION_CACHE_DIR"])
    with pytest.raises(DamagedCheckpoint, match="must have SHA-256"):
        evaluate(str(folder), recorded.digest, *words)
    answer = evaluate(str(folder), other.digest, *words)
    assert (answer["digest"], answer["split"], answer["step"]) == (other.digest, "test", 20)


@pytest.mark.slow
def test_a_checkpoint_of_another_trial_is_neither_resumed_nor_evaluated(
    engine: OwnEngine, assign: Assign, tmp_path: Path
) -> None:
    """Although the ledger records it as this trial's: its own manifest says whose it is."""
    other = replace(assign("a", 1), trial_key="s-9", attempt_id="s-9.1", store=None)
    foreign = saved(advance(engine, other))
    engine.release()
    outcome = engine.advance(replace(assign("a", 2), resume=foreign, store=None))
    assert outcome.failure == "damaged checkpoint"
    assert "must be a checkpoint of s-0 at step 10 (got one of s-9 at step 10)" in str(outcome.message)
    engine.release()
    words = (str(tmp_path / "data"), "test", os.environ["JAX_COMPILATION_CACHE_DIR"])
    with pytest.raises(DamagedCheckpoint, match=r"must be a checkpoint of s-0 \(got one of s-9"):
        evaluate(foreign.path, foreign.digest, *words, trial="s-0")
    assert evaluate(foreign.path, foreign.digest, *words, trial="s-9")["step"] == 10


@pytest.mark.slow
def test_a_checkpoint_of_another_step_is_not_resumed(engine: OwnEngine, assign: Assign) -> None:
    first = saved(advance(engine, assign("a", 1)))
    engine.release()
    outcome = engine.advance(assign("a", 2, resume=replace(first, step=20)))
    assert outcome.failure == "damaged checkpoint"
    assert "must be a checkpoint of s-0 at step 20 (got one of s-0 at step 10)" in str(outcome.message)


@pytest.mark.slow
def test_further_test_splits_are_evaluated_with_test(engine: OwnEngine, tmp_path: Path) -> None:
    """Longer sequences of parity; an evaluation of validation reads none of them."""
    options = {"length": 8, "answer": "steps", "reach": 4, "examples": 64, "held_out": 20}
    own = assignment(tmp_path, 0, gpu=0.0, checkpoints=str(tmp_path / "trial"))
    settings = replace(own.settings, task="parity", task_options=options, evaluate_examples=None)
    stored = saved(advance(engine, replace(own, settings=settings)))
    words = (stored.path, stored.digest, str(tmp_path / "data"))
    cache = os.environ["JAX_COMPILATION_CACHE_DIR"]
    answer = evaluate(*words, "test", cache)
    scores = [f"{metric}{name}" for name in ("", "_x2", "_x4") for metric in ("loss", "accuracy")]
    assert list(answer["metrics"]) == scores
    data = TASKS["parity"].load(options, tmp_path / "data")
    arrays, _ = checkpoint.load(Path(stored.path), stored.digest)
    again = Engine(settings, data)
    again.restore(0, settings, arrays)
    assert answer["metrics"]["accuracy_x4"] == again.evaluate(0, "test_x4")["accuracy"]
    # Of 32 steps, the last 16 are counted.
    of_20 = answer["metrics"]["accuracy_x4"] * 20 * 16
    assert of_20 == pytest.approx(round(of_20), abs=1e-6)
    assert set(evaluate(*words, "validation", cache)["metrics"]) == {"loss", "accuracy"}


@pytest.mark.slow
@pytest.mark.parametrize("shared", [True, False], ids=["shared store", "local folder"])
def test_a_missing_folder_of_a_trial_is_a_lost_store_and_no_damage(
    engine: OwnEngine, tmp_path: Path, shared: bool
) -> None:
    """The disk of the checkpoints is no longer mounted: its mount point is an empty folder."""
    disk = tmp_path / "disk"
    where = {"store": f"file://{disk}/sweep/trial"} if shared else {"checkpoints": str(disk / "sweep/trial")}
    first = assignment(tmp_path, 0, gpu=0.0, **where)
    resume = saved(advance(engine, first))
    engine.release()
    if shared:
        shutil.rmtree(first.checkpoints)  # the next attempt is on another machine
    disk.rename(tmp_path / "not mounted")
    disk.mkdir()
    second = assignment(tmp_path, 0, attempt=2, gpu=0.0, resume=resume, **where)
    outcome = engine.advance(second)
    assert outcome.failure == "store lost"
    assert str(outcome.message).startswith(
        f"{disk}/sweep/trial: the folder of the trial's checkpoints is missing"
    )
    assert list(disk.iterdir()) == [], "nothing is written below the mount point"
    disk.rmdir()
    (tmp_path / "not mounted").rename(disk)
    assert advance(engine, second).step == 20


def test_a_missing_checkpoint_of_a_trial_whose_folder_exists_is_damage(
    engine: OwnEngine, tmp_path: Path
) -> None:
    resume = saved(advance(engine, assignment(tmp_path, 0, gpu=0.0)))
    engine.release()
    shutil.rmtree(resume.path)
    outcome = engine.advance(assignment(tmp_path, 0, attempt=2, gpu=0.0, resume=resume))
    assert outcome.failure == "damaged checkpoint"


def test_an_attempt_on_a_full_disk_ends_before_its_first_step(
    engine: OwnEngine, tmp_path: Path, full_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interval that it would train could not be saved."""
    trained: list[object] = []
    monkeypatch.setattr(Engine, "advance", lambda *arguments, **_: trained.append(arguments))
    outcome = engine.advance(assignment(tmp_path, 0, gpu=0.0, checkpoints=str(full_disk / "trial")))
    assert (outcome.failure, trained) == ("disk full", [])


def test_a_full_disk_is_the_cause_even_if_the_log_is_on_it(engine: OwnEngine, tmp_path: Path) -> None:
    """Writing to /dev/full fails as on a full disk; so does the attempt's first line, and the traceback."""
    outcome = engine.advance(assignment(tmp_path, 0, gpu=0.0, log="/dev/full"))
    assert (outcome.failure, outcome.done) == ("disk full", True)


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.EROFS])
def test_a_file_system_that_is_out_is_a_lost_store_and_no_error_of_the_trial(
    tmp_path: Path, number: int
) -> None:
    outcome = failure_outcome(assignment(tmp_path, 0), OSError(number, os.strerror(number)))
    assert outcome.failure == "store lost"


def test_a_failure_keeps_its_cause_if_the_log_of_its_trial_cannot_be_written(tmp_path: Path) -> None:
    """A full disk takes no log either; without its outcome, Ray would report an error of the trial."""
    log = tmp_path / "logs" / "trial.log"
    log.parent.write_text("in the way: no folder for logs can be made here")
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    outcome = failure_outcome(replace(assignment(tmp_path, 0), log=str(log)), full)
    assert outcome.failure == "disk full"
