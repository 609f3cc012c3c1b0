"""Ray's private interfaces behave as the service expects; a version of Ray that changes one fails here."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
import ray
from ray.air.execution import PlacementGroupResourceManager
from ray.air.execution._internal import RayActorManager, TrackedActor
from ray.tune import PlacementGroupFactory
from ray.tune.analysis import ExperimentAnalysis
from ray.tune.execution import class_cache
from ray.tune.execution.tune_controller import TuneController
from ray.tune.experiment import Trial
from ray.tune.trainable import metadata

from orchestrator.schedule import ray_private
from orchestrator.schedule.environment import KEYS_OF_STORE, METRICS_OFF, NO_SPARE_WORKERS
from orchestrator.schedule.ray_private import DEATH_PHRASES, cause_of_death
from tests.shared_ray import own_ray

tune_module = import_module("ray.tune.tune")  # `ray.tune.tune` is not its attribute

INSTALLED = Path(ray.__file__).parent
TEXTS = ("exceptions.py", "_raylet.so", "core/src/ray/raylet/raylet", "core/src/ray/gcs/gcs_server")
"""The files of Ray that contain its error texts and the names of its settings."""

KILLED = """Failure # 1 (occurred at 2026-11-21_12-43-04)
The actor died unexpectedly before finishing this task.
	class_name: Worker
The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail:
Worker unexpectedly exits with a connection error code 2. End of file. Some common causes include: (1) the
process was killed by the OOM killer due to high memory usage, (2) ray stop --force was called
"""


EXPECTED = {
    # While a driver is connected to Ray, and afterwards: a signal during the conclusion must not end it.
    "handlers": [True, True],
    "published": [[], ["one", "two"], [], []],
    "address": True,
    "nodes": [[True, 2.0]],
    "groups": [False, True],
    "addable": [],
    "pool": [32, True],
    "wants": [False, True, True, True],
    "free": 1.0,
    "death": ["worker lost", "The actor died unexpectedly before finishing this task."],
    "words": "It wrote last: no such flag; Fatal Python error: Aborted",
    "elsewhere": "What it wrote last is in worker-*-7.err, among Ray's logs on 192.0.2.99.",
    "draining": [[], [True]],
}


def test_this_is_the_ray_that_was_checked() -> None:
    assert ray.__version__ == ray_private.CHECKED_VERSION


@pytest.mark.slow
@pytest.mark.ray
def test_a_real_cluster_answers_as_expected(temporary: Path) -> None:
    """Its driver prints only one line of JSON, although it has received one of Ray's log messages."""
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    with own_ray(temporary) as variables:  # its node is drained
        done = subprocess.run(
            [sys.executable, "-m", "tests.programs.ray_cluster", str(temporary)],
            env={**environment, **variables},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == EXPECTED


@pytest.mark.ray
@pytest.mark.slow
def test_two_jobs_register_one_name(temporary: Path) -> None:
    """Two sweeps on one Ray use one name for their workers; each gets its own, the first one too."""
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    with own_ray(temporary) as variables:
        jobs = [
            subprocess.Popen(
                [sys.executable, "-m", "tests.programs.ray_job", str(temporary / "token"), own],
                env={**environment, **variables},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for own in ("first", "second")
        ]
        for job in jobs:
            assert job.stdout is not None
            assert job.stdout.readline() == "registered\n"
        for job, own in zip(jobs, ("first", "second"), strict=True):
            assert job.stdin is not None
            assert job.stdout is not None
            print(file=job.stdin, flush=True)
            printed = iter(job.stdout.readline, "")
            assert own in (line.strip() for line in printed)
        for job in jobs:
            job.communicate(timeout=60)


@cache
def texts() -> bytes:
    return b"".join((INSTALLED / name).read_bytes() for name in TEXTS)


@pytest.mark.parametrize("phrase", [phrase for phrases in DEATH_PHRASES.values() for phrase in phrases])
def test_ray_still_has_each_phrase_of_a_cause(phrase: str) -> None:
    assert phrase.encode() in texts()


@pytest.mark.parametrize("name", [*METRICS_OFF, *NO_SPARE_WORKERS])
def test_ray_still_has_each_undocumented_variable(name: str) -> None:
    settings = ("autoscaler/_private/constants.py", "dashboard/consts.py")
    constants = b"".join((INSTALLED / file).read_bytes() for file in settings)
    assert name.removeprefix("RAY_").encode() in texts() + constants


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (KILLED, "worker lost"),
        (
            "Task was killed due to the node running low on memory.\nMemory on the node was 22 GB",
            "out of memory",
        ),
        ("The actor is dead because its node has died. Node Id: 1f2e", "node lost"),
        (
            "The actor 59a2 is unavailable: The actor is temporarily unavailable: RpcError: Socket closed",
            "node lost",
        ),
        ("Failure # 1 (occurred at ...)\nZeroDivisionError: division by zero", "error"),
    ],
)
def test_a_cause_is_recognised_by_its_phrase(text: str, cause: str) -> None:
    assert cause_of_death(text)[0] == cause


def test_the_message_is_the_first_line_of_the_error() -> None:
    assert cause_of_death(KILLED)[1] == "The actor died unexpectedly before finishing this task."


@pytest.mark.parametrize(
    ("log", "end"),
    [
        (":job_id:01\n:actor_name:Worker\nloading\nUnknown flag --x\n", "Unknown flag --x"),
        (
            "Unknown flag\n\n[2026] *** SIGABRT received ***\nPC\nFatal Python error: Aborted\n\nStack\n",
            "Unknown flag; Fatal Python error: Aborted",
        ),
        (
            ":job_id:01\nFatal Python error: Segmentation fault\nStack",
            "Fatal Python error: Segmentation fault",
        ),
        ("w" * 1_000, "w" * 500),
        (":job_id:01\n", ""),
        ("", ""),
    ],
)
def test_the_last_words_of_a_process_stand_before_the_dump_of_its_signal(log: str, end: str) -> None:
    assert ray_private.end_of(log) == end


def test_an_error_that_names_no_process_has_no_last_words() -> None:
    assert ray_private.last_words("The actor died unexpectedly before finishing this task.") == ""


def test_a_log_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool may be another user's; the end of an attempt is recorded all the same."""
    (tmp_path / "worker-1-7.err").mkdir()  # a folder cannot be read as a file, by root either
    node = SimpleNamespace(get_logs_dir_path=lambda: str(tmp_path), node_ip_address="192.0.2.1")
    monkeypatch.setattr(ray_private, "global_worker", SimpleNamespace(node=node))
    named = "What it wrote last is in worker-*-7.err, among Ray's logs on 192.0.2.1."
    assert ray_private.last_words("\tpid: 7\n\tip: 192.0.2.1\n") == named


def test_tune_keeps_no_statistics_of_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would grow with the trials until the end of the sweep."""
    trial, report = Trial("anything", stub=True), {f"metric/{number}": 0.5 for number in range(10)}
    monkeypatch.setattr(
        metadata._TrainingRunMetadata, "update_metric", metadata._TrainingRunMetadata.update_metric
    )
    trial.update_last_result(dict(report))
    assert trial.run_metadata.metric_analysis.keys() == report.keys()
    again = Trial("anything", stub=True)
    ray_private.keep_no_statistics()
    again.update_last_result(dict(report))
    assert again.last_result.items() >= report.items()  # Tune adds the trial's ID
    assert (again.run_metadata.metric_analysis, again.run_metadata.metric_n_steps) == ({}, {})


def test_tune_still_has_the_method_that_ends_idle_actors() -> None:
    method = inspect.signature(TuneController._cleanup_cached_actors)
    assert method.parameters.keys() == {"self", "force_all"}


def test_tune_uses_the_actor_that_is_lent_and_creates_one_otherwise() -> None:
    """Of the real manager only the type of what it acquires matters; its source shows how that is used."""
    manager = PlacementGroupResourceManager()
    actors = SimpleNamespace(_resource_manager=manager, _actor_stop_resolved=None, _try_kill_actor=None)
    controller = SimpleNamespace(_actor_manager=actors)
    lent = iter(["lent", None])
    ray_private.lend_actors(controller, lambda arguments: next(lent))
    acquired = manager._resource_cls(
        placement_group=None, resource_request=PlacementGroupFactory([{"CPU": 1}])
    )
    created = SimpleNamespace(options=lambda **_: created, remote=lambda **arguments: arguments)
    [actor_class] = acquired.annotate_remote_entities([created])
    assert actor_class.remote(config=1) == "lent"
    assert actor_class.remote(config=1) == {"config": 1}
    start = inspect.getsource(RayActorManager._try_start_actors)
    assert "] = acquired_resources.annotate_remote_entities(" in start
    assert "actor = remote_actor_cls.remote(**kwargs)" in start
    acquire = inspect.getsource(PlacementGroupResourceManager.acquire_resources)
    assert "self._resource_cls(placement_group=pg, resource_request=resource_request)" in acquire


def test_an_actor_is_released_once_tune_neither_calls_nor_kills_it_any_more() -> None:
    """Tune may kill an actor that it has asked to stop, until it has read the answer."""
    done: list[str] = []
    handle = ray_private.handle_with(SimpleNamespace(), {}, released=lambda: done.append("released"))
    plain = SimpleNamespace()
    actors = SimpleNamespace(
        _resource_manager=PlacementGroupResourceManager(),
        _actor_stop_resolved=lambda tracked_actor: done.append(f"{tracked_actor} resolved"),
        _live_actors_to_ray_actors_resources={"lent": (handle, None), "created": (plain, None)},
        _try_kill_actor=None,
    )
    ray_private.lend_actors(SimpleNamespace(_actor_manager=actors), lambda arguments: None)
    actors._actor_stop_resolved(tracked_actor="created")
    actors._actor_stop_resolved(tracked_actor="lent")
    assert done == ["created resolved", "lent resolved", "released"]
    removed = inspect.getsource(RayActorManager.remove_actor)
    assert "self._actor_stop_resolved(tracked_actor=tracked_actor)" in removed
    assert "on_result=on_actor_stop,\n                    on_error=on_actor_stop," in removed
    resolved = inspect.getsource(RayActorManager._actor_stop_resolved)
    assert resolved.index("self._cleanup_actor(") < resolved.index("tracked_actor._on_stop(")
    assert "self._live_actors_to_ray_actors_resources.pop(" in inspect.getsource(
        RayActorManager._cleanup_actor
    )


def test_tune_takes_a_wrong_answer_for_a_call_that_has_failed() -> None:
    met: list[tuple[str, object]] = []
    controller = SimpleNamespace(
        _on_training_result=lambda trial, result: met.append((trial.trial_id, result)),
        _trial_task_failure=lambda trial, exception: met.append((trial.trial_id, exception)),
    )
    wrong = RuntimeError("of another trial")
    ray_private.check_answers(controller, lambda attempt_id, result: wrong if result == "wrong" else None)
    trial = SimpleNamespace(trial_id="s-0.1")
    controller._on_training_result(trial, "right")
    controller._on_training_result(trial, "wrong")
    assert met == [("s-0.1", "right"), ("s-0.1", wrong)]
    train = inspect.getsource(TuneController._schedule_trial_train)
    assert "on_result=self._on_training_result,\n            on_error=self._trial_task_failure," in train
    failed = inspect.getsource(TuneController._process_trial_failure)
    assert "self._scheduler_alg.on_trial_error(self, trial)" in failed, "the rule is shown no result"
    assert "self._schedule_trial_stop(trial, exception=exception)" in failed
    assert "if not exception and self._maybe_cache_trial_actor(trial)" in inspect.getsource(
        TuneController._schedule_trial_stop
    ), "no other trial gets the actor"


def test_tune_waits_longer_for_an_event() -> None:
    waits: list[float] = []
    manager = SimpleNamespace(next=lambda timeout: waits.append(timeout))
    ray_private.wait_for_events(SimpleNamespace(_actor_manager=manager), 0.5)
    manager.next(timeout=0.1)
    manager.next(timeout=2.0)
    assert waits == [0.5, 2.0]
    assert "self._actor_manager.next(timeout=0.1)" in inspect.getsource(TuneController.step)


@pytest.mark.parametrize("drops", [False, True])
def test_tune_keeps_no_answer_that_it_has_read(drops: bool) -> None:
    """Tune by itself keeps the answers of an actor until the actor ends: the control."""
    manager = RayActorManager(PlacementGroupResourceManager())
    if drops:
        ray_private.drop_read_answers(SimpleNamespace(_actor_manager=manager))
    handle = SimpleNamespace(train=SimpleNamespace(remote=ray.ObjectRef.from_random))
    actor, busy = TrackedActor(1), TrackedActor(2)
    manager._live_actors_to_ray_actors_resources |= {actor: (handle, None), busy: (handle, None)}
    manager.schedule_actor_task(busy, "train")
    for _ in range(100):
        manager.schedule_actor_task(actor, "train")
        for answer in manager._tracked_actors_to_task_futures[actor]:
            manager._actor_task_events.discard_future(answer)  # as if it had been read
    assert len(manager._tracked_actors_to_task_futures[actor]) == (1 if drops else 100)
    manager.schedule_actor_task(busy, "train")
    assert len(manager._tracked_actors_to_task_futures[busy]) == 2, "neither answer has been read"


def test_tune_drops_the_trials_that_have_ended_and_have_no_actor() -> None:
    """All but the newest: without any, Tune would read them from its state file at the end."""
    states = ("TERMINATED", "ERROR", "TERMINATED", "RUNNING", "PENDING", "TERMINATED", "TERMINATED")
    trials = [Trial("anything", trial_id=str(number), stub=True) for number in range(len(states))]
    for trial, state in zip(trials, states, strict=True):
        trial.set_status(state)
    controller = SimpleNamespace(
        _trials=list(trials),
        _trial_to_actor={trials[2]: "ending", trials[3]: "busy"},
        _trial_metadata={trial.trial_id: ("{}", "{}") for trial in trials},
        _stopped_trials={trial for trial in trials if trial.status == "TERMINATED"},
        _failed_trials={trials[1]},
        _live_trials={trials[1], trials[3], trials[4]},
        _trials_to_cache=set(trials),
    )
    seen = controller._trials
    for _ in range(2):
        ray_private.forget_ended_trials(controller)
        assert [trial.trial_id for trial in seen] == ["2", "3", "4", "6"], "callbacks have this list"
        assert controller._trial_metadata.keys() == {"2", "3", "4", "6"}
        assert controller._stopped_trials == {trials[2], trials[6]}
        assert controller._failed_trials == set()
        assert controller._live_trials == {trials[3], trials[4]}
        assert controller._trials_to_cache == {trials[number] for number in (2, 3, 4, 6)}
    assert "self.trials = trials or self._load_trials()" in inspect.getsource(ExperimentAnalysis.__init__)
    status = inspect.getsource(TuneController._set_trial_status)
    assert "assert trial in status_str_map[current_status]" in status, "a forgotten trial must not change"
    failure = inspect.getsource(TuneController._process_trial_failure)
    assert "elif trial.status in {Trial.RUNNING, Trial.PENDING}:" in failure


def test_tune_calls_only_what_the_handle_of_a_shared_actor_answers() -> None:
    """Whatever else Tune called would reach the process of several trials, which knows no trial by it."""
    controller = inspect.getsource(TuneController)
    calls = r'(?:method_name ?= ?|schedule_actor_task\(\s*tracked_actor, )"(\w+)"'
    called = set(re.findall(calls, controller))
    # The others serve buffered results, checkpoints of Tune's own and exports, which no sweep asks for.
    assert called == {"train", "reset", "stop"} | {"train_buffered", "save", "restore", "export_model"}
    manager = inspect.getsource(RayActorManager)
    assert set(re.findall(r"actor\.(__\w+__)\.remote", manager)) == {"__ray_ready__", "__ray_terminate__"}
    assert "remote_fn = getattr(ray_actor, method_name)" in manager


def test_tune_does_not_import_mlflow_to_count_callbacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune_module.air_usage, "tag_callbacks", tune_module.air_usage.tag_callbacks)
    assert "air_usage.tag_callbacks(callbacks)" in inspect.getsource(tune_module.run)
    ray_private.count_no_callbacks()
    assert not tune_module.air_usage.tag_callbacks([object()])


def test_tune_starts_workers_without_the_keys_of_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would be in an environment that others can read, for as long as the worker runs."""
    monkeypatch.setattr(class_cache, "ENV_VARS_TO_PROPAGATE", class_cache.ENV_VARS_TO_PROPAGATE)
    monkeypatch.setattr(class_cache.ray, "remote", lambda **options: lambda trainable: options)
    for name in KEYS_OF_STORE:
        monkeypatch.setenv(name, f"canary-{name}")
    assert str(class_cache._ActorClassCache().get(object)).count("canary") == len(KEYS_OF_STORE)
    ray_private.withhold_keys()
    assert "canary" not in str(class_cache._ActorClassCache().get(object))


def test_the_actor_of_a_trial_is_known() -> None:
    trial = Trial("anything", stub=True)
    assert ray_private.actor_of(trial) is None
    trial.set_ray_actor(actor := type("Actor", (), {"get_auto_filled_metrics": _NoMethod()})())
    assert ray_private.actor_of(trial) is actor


class _NoMethod:
    """The method of an actor that Tune calls when a trial gets its actor."""

    def remote(self, **_: object) -> None:
        return None


def test_workers_do_not_search_the_working_folder_of_their_driver() -> None:
    """`ray.init` extends this list by the folder; it is what a worker puts first on its path."""
    config = ray_private.job()
    config._py_driver_sys_path.extend(["/the/working/folder"])
    sent = config._get_proto_job_config().py_driver_sys_path
    assert list(sent) == [str(Path(ray_private.__file__).parents[2])]
    source = inspect.getsource(import_module("ray._private.worker").connect)
    assert "job_config._py_driver_sys_path.extend(code_paths)" in source


def test_secrets_are_handed_over_in_the_memory_of_the_head_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: dict[bytes, bytes] = {}
    monkeypatch.setattr(ray_private, "_internal_kv_put", kept.__setitem__)
    monkeypatch.setattr(ray_private, "_internal_kv_get", kept.get)
    monkeypatch.setattr(os, "umask", lambda bits: bits)
    monkeypatch.setattr(os, "environ", {"SWEEP_HANDED": "of another sweep", "LC_ALL": "C"})
    secret = {
        "AWS_ACCESS_KEY_ID": "canary-1",
        "MLFLOW_TRACKING_URI": "http://me:canary@host",
        "ASKED": "canary-2",
    }
    variables = {"LC_ALL": None, "OMP_NUM_THREADS": "1", **secret}
    handed = ray_private.handed(variables)
    assert "canary" not in str(handed)
    assert handed["OMP_NUM_THREADS"] == "1"
    ray_private.adopt(handed)
    assert os.environ == {"OMP_NUM_THREADS": "1", **secret}
    kept.clear()
    with pytest.raises(RuntimeError, match="has ended"):
        ray_private.adopt({**handed, "OMP_NUM_THREADS": "2"})
    assert os.environ["OMP_NUM_THREADS"] == "1"
    assert ray_private.handed({"LC_ALL": None}) == {"LC_ALL": None}
