"""Every method of the client protocol answers the same on both backends."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from orchestrator.api.local import LocalBackend
from orchestrator.client.http import HttpBackend
from orchestrator.client.protocol import Backend
from tests import sweeps
from tests.orchestrator.web import server
from tests.orchestrator.web.server import FILE, QUEUED, Client

TRIAL = f"{sweeps.SWEEP_ID}-0"
METHODS = {name for name in vars(Backend) if not name.startswith("_")}

READ: dict[str, Callable[[Backend], Any]] = {
    "sweeps": lambda backend: backend.sweeps(),
    "status": lambda backend: [backend.status(name) for name in (None, sweeps.SWEEP_ID, QUEUED)],
    "live": lambda backend: [backend.live(name) for name in (None, sweeps.SWEEP_ID, QUEUED)],
    "changes": lambda backend: backend.changes(sweeps.SWEEP_ID),
    "pareto": lambda backend: backend.pareto(sweeps.SWEEP_ID),
    "trials": lambda backend: backend.trials(sweeps.SWEEP_ID),
    "trial": lambda backend: backend.trial(TRIAL),
    "reports": lambda backend: backend.reports(TRIAL),
    "log": lambda backend: [backend.log(sweeps.SWEEP_ID), backend.log(sweeps.SWEEP_ID, 4)],
    "trial_log": lambda backend: backend.trial_log(TRIAL, 3),
    "queue": lambda backend: backend.queue(),
    "quota": lambda backend: backend.quota("ada"),
    "users": lambda backend: backend.users(),
    "audit_log": lambda backend: backend.audit_log(3),
}
"""Calls of the methods that change nothing."""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with server.served(tmp_path_factory.mktemp("service") / "mlruns") as client:
        paths = client.workspace.paths
        for log in (paths.log(sweeps.SWEEP_ID, TRIAL), paths.driver_log(sweeps.SWEEP_ID)):
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_text("what was printed\n")
        yield client


def backends(client: Client, user: str = "grace") -> tuple[Backend, Backend]:
    paths = client.workspace
    return LocalBackend(paths.paths.root, paths.data), HttpBackend(client.address, client.tokens[user])


def plain(answer: Any) -> Any:
    """Return an answer as JSON values, with the type of each dataclass."""
    if isinstance(answer, list | tuple):
        return [plain(each) for each in answer]
    if is_dataclass(answer) and not isinstance(answer, type):
        return [type(answer).__name__, json.loads(json.dumps(asdict(answer)))]
    return answer


@pytest.mark.parametrize("method", READ)
def test_both_backends_answer_the_same(client: Client, method: str) -> None:
    local, remote = backends(client)
    assert plain(READ[method](remote)) == plain(READ[method](local))


def test_the_report_is_the_same_page(client: Client) -> None:
    pages = [backend.report(sweeps.SWEEP_ID) for backend in backends(client)]
    assert all(b"<html" in page for page in pages)


def test_a_validated_file_gives_the_same_plan(client: Client, tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(FILE)
    local, remote = (backend.validate(file, sizes=False) for backend in backends(client))
    assert plain(remote) == plain(local)
    assert remote.lines[0].endswith(": valid")


@pytest.mark.parametrize("place", [0, 1], ids=["local", "http"])
def test_changes_answer_the_same_types(place: int, tmp_path: Path) -> None:
    """The answers differ in names of hosts and tokens only, so each is compared with its own effect."""
    file = tmp_path / "small.yaml"
    file.write_text(FILE)
    with server.served(tmp_path / "mlruns") as client:
        backend = backends(client)[place]
        submitted = backend.submit(file, overrides=["budget.trials=3"])
        assert (submitted.state, submitted.added) == ("QUEUED", True)
        assert backend.status(submitted.id).progress.wanted == 3
        assert backend.status("small").id == submitted.id
        moved = backend.move(submitted.id, "idle", weight=2)
        assert (moved.id, moved.priority_class, moved.weight) == (submitted.id, "idle", 2.0)
        assert backend.stop(submitted.id).driver is None
        assert backend.status(submitted.id).paused
        assert not backend.resume(submitted.id).paused
        retried = backend.retry(sweeps.SWEEP_ID)
        assert (retried.id, retried.state) == (sweeps.SWEEP_ID, "QUEUED")
        quota = backend.set_quota("ada", weight=2, share=0.5, gpu_hours=math.inf, sweeps=9)
        assert (quota.weight, quota.share, quota.gpu_hours, quota.sweeps) == (2.0, 0.5, None, 9)
        assert backend.quota("ada") == quota
        eve = backend.add_user("eve", "viewer", days=math.inf)
        assert (eve.name, eve.role, eve.expires_at) == ("eve", "viewer", None)
        assert eve.token
        assert eve.token not in repr(eve)
        assert backend.revoke_user("eve").revoked_at is not None


def test_every_method_is_tested() -> None:
    changing = {"submit", "validate", "stop", "resume", "extend", "retry", "move", "set_quota"}
    assert READ.keys() | changing | {"add_user", "revoke_user", "report"} == METHODS
