"""Warm workers in a real Ray: one driver at a time has one, and nothing of its sweep stays."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from orchestrator.config.trainable import Trainable
from orchestrator.machines.idle_timeout import OWN_SECONDS, WARM
from orchestrator.schedule import environment, ray_private, warm_pool
from orchestrator.schedule.warm_pool import idle_seconds, pool

EXPECTED = {
    "claimed by another": 0,
    "claimed by its own driver": 0,
    "same process": True,
    "secrets": ["of this sweep", None],
    "claimed when idle": 1,
    "earlier loan": 4,
    "freed by an earlier loan": 0,
    "claimed for another folder": 0,
    "unused": "WrongLoan",
    "lives with its driver": True,
    "ends with its driver": True,
    "ends when idle": True,
}


@pytest.mark.slow
@pytest.mark.ray
def test_a_worker_has_one_driver_at_a_time_and_keeps_nothing_of_it(temporary: Path) -> None:
    """The Ray is that which all tests of this process share."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.programs.warm_worker_driver", str(temporary)],
        env={name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == EXPECTED


def test_a_worker_is_only_found_by_the_same_code_and_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    def key(variables: dict[str, str | None], program: str = "") -> str:
        return warm_pool.key_of(variables, "compilations", program)

    monkeypatch.setattr(environment, "GIVEN", set())  # a test before may have set some by an import
    plain = key({"XLA_FLAGS": "a", "SWEEP_OWNER": "ada"})
    assert plain == key({"SWEEP_OWNER": "bob", "XLA_FLAGS": "a"})
    assert plain != key({"XLA_FLAGS": "b", "SWEEP_OWNER": "ada"})
    assert plain != key({"XLA_FLAGS": None, "SWEEP_OWNER": "ada"})
    assert plain != key({"XLA_FLAGS": "a", "SWEEP_OWNER": "ada"}, program="changed since")
    set_by_an_import = {"XLA_FLAGS": "a", "SWEEP_OWNER": "ada", "KMP_INIT_AT_FORK": "FALSE"}
    assert plain == key(set_by_an_import)
    monkeypatch.setattr(environment, "GIVEN", {"KMP_INIT_AT_FORK"})
    assert plain != key(set_by_an_import)
    monkeypatch.setattr(warm_pool, "CODE", "changed since")
    assert plain != key({"XLA_FLAGS": "a", "SWEEP_OWNER": "ada"})


SCRIPT = Trainable("command", ("train",), ".")


@pytest.mark.parametrize(
    ("variables", "gpu", "trainable"),
    [
        ({}, 0.0, SCRIPT),
        ({}, 1.0, None),
        ({WARM: "9"}, 0.5, None),
        ({WARM: "9"}, 1.0, SCRIPT),
        ({WARM: "9", "RAY_ADDRESS": "host:1"}, 0.0, None),
        ({WARM: "9", "RAY_ADDRESS": "host:1"}, 1.0, None),
    ],
)
def test_no_worker_is_kept_warm_unasked_on_a_cluster_or_on_a_gpu_that_it_does_not_use_itself(
    variables: dict[str, str], gpu: float, trainable: Trainable | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trials that share a GPU are trained by its engine, and those of a command by a process of their own."""
    for name in (WARM, "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pool(gpu, "compilations", trainable) as warm:
        assert warm is None


@pytest.mark.parametrize(
    ("variables", "seconds"), [({}, OWN_SECONDS), ({WARM: "0"}, 0.0), ({"RAY_ADDRESS": "host:1"}, 0.0)]
)
def test_the_workers_of_a_network_stay_until_the_end_of_their_sweep_without_a_service(
    variables: dict[str, str], seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (WARM, "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert idle_seconds(0.0, None) == seconds


class SilentActors:
    """Takes every call and every kill, and answers nothing."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def call(self, actor: object, method: str, *arguments: object, **named: object) -> None:
        self.sent.append(method)

    def kill(self, actor: object) -> None:
        self.sent.append("kill")


def test_a_worker_that_was_killed_is_not_returned() -> None:
    """A kill takes effect later than a call: another driver would get the worker, and lose it."""
    actors = SilentActors()
    worker = warm_pool.Borrowed(actors, "name", object(), "loan", {})  # type: ignore[arg-type]
    worker.kill()
    worker.give_back()
    assert actors.sent == ["kill"]


class Manager:
    """Tune's manager of actors, as far as it kills them; see `RayActorManager`."""

    def __init__(self, actor: object) -> None:
        self._resource_manager = SimpleNamespace(_resource_cls=None)
        self._live_actors_to_ray_actors_resources = {"tracked": (actor, None)}
        self._live_actors_to_kill = {"tracked"}

    def _actor_stop_resolved(self, tracked_actor: str) -> None:
        del self._live_actors_to_ray_actors_resources[tracked_actor]

    def _try_kill_actor(self) -> bool:
        self._actor_stop_resolved(self._live_actors_to_kill.pop())
        return True


def test_an_actor_that_tune_has_killed_is_not_released() -> None:
    released: list[str] = []
    for is_killed in (False, True):
        handle = ray_private.handle_with(SimpleNamespace(), {}, lambda: released.append("released"))
        manager = Manager(handle)
        ray_private.lend_actors(SimpleNamespace(_actor_manager=manager), lambda arguments: None)
        if is_killed:
            assert manager._try_kill_actor()
        else:
            manager._actor_stop_resolved("tracked")
    assert released == ["released"]
